"""Lustre on a client: what programs do with each file system, and how its servers answer.

Lustre: lprocfs_status.c (lprocfs_stats_seq_show), llite/lproc_llite.c, ptlrpc/lproc_ptlrpc.c; the
format as in the Lustre Operations Manual, "Monitoring Client Activity". A line is a name, a count,
``samples [unit]``, and where the unit has a size the least, the most and the sum of it::

    read_bytes                25673 samples [bytes] 1 3366225 145121869

The files are below /sys/kernel/debug/lustre, for root only, and were below /proc/fs/lustre before
Lustre 2.12. A file system, ``llite``, is called by its name; a target, ``osc`` and ``mdc``, as
``scratch-OST0003``. Nothing is read that makes the client ask a server, as ``kbytesfree`` does: it
would wait for a server that is down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from producers.parsing import Draft, numbered_lines
from producers.reading import Reader
from producers.source import SECOND_NS, Collector, Doubles, Field
from producers.texts import Find, TextTree
from schemas.records import Channel, Kind, Subsystem

TOPS = ("sys/kernel/debug/lustre", "proc/fs/lustre")
_LIMIT = 64
_REMEDY = (
    "Without it {what} is not seen. Nothing to do where no Lustre is mounted; else run the agent "
    "as root, with the host's /sys/kernel/debug below --path.sys."
)

TIMES = (b"snapshot_time", b"start_time", b"elapsed_time")
"""Lines that say when, and nothing else."""

OPERATIONS = {
    *("open", "close", "mmap", "page_fault", "page_mkwrite", "seek", "fsync", "readdir"),
    *("setattr", "truncate", "flock", "getattr", "fallocate", "create", "link", "unlink"),
    *("symlink", "mkdir", "rmdir", "mknod", "rename", "statfs", "setxattr", "getxattr"),
    *("listxattr", "removexattr", "inode_permission", "read", "write"),
}
"""Lines of a file system whose counts are calls of programs."""

REQUESTS = {"req_waittime": "await", "req_active": "in_flight"}
"""Lines of a target, and the means that are made of them: how long a request took, and how many
were under way when one was sent. Nothing is known of them while none is sent."""

_UNITS = {"usec": ("ms", 1e-3), "usecs": ("ms", 1e-3), "reqs": ("requests", 1.0)}
_DEVICE = re.compile(
    r"([\w-]+?(?:-(?:OST|MDT)[0-9a-f]{4})?)(?:-(?:osc|mdc))?-[0-9a-f]{8,16}", re.ASCII
)
_COUNT, _SUM = 1, 6
"""Places of a line's count and of its sum."""


@dataclass(frozen=True, slots=True)
class _Mean:
    """A mean: its channel, the keys of a sum and of a count, and what it is multiplied by."""

    channel: Channel
    total: str
    count: str
    scale: float


def without_times(text: bytes) -> bytes:
    """Cut out the lines that change with the clock alone."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(TIMES))


def plan_files(device: str, text: str) -> Draft:
    """Plan the stats of a file system: bytes, calls, and how long a call took on the mean."""
    draft = Draft()
    means: list[_Mean] = []
    for at, words in numbered_lines(text):
        name = words[0]
        if len(words) <= _COUNT or "samples" not in words[2:3]:
            continue
        unit = words[3].strip("[]") if len(words) > 3 else ""
        if name in {"read_bytes", "write_bytes"} and len(words) > _SUM:
            calls = name.replace("_bytes", "s")  # of programs, whatever the cache has of it
            draft.channel(at + _COUNT, _channel(calls, device, "calls/s"))
            draft.channel(at + _SUM, _channel(name, device, "B/s"))
        elif name in OPERATIONS:
            channel = _channel(name, device, "calls/s")
            timed = len(words) > _SUM and unit in {"usec", "usecs"}
            if name in {"read", "write"}:  # how many is said with the bytes
                draft.field(at + _COUNT, Field(channel.label, True))
            else:
                draft.channel(at + _COUNT, channel)
            if timed:
                total = f"{name} time {device}"
                draft.field(at + _SUM, Field(total, True))
                mean = _mean(f"lustre.{name}_await", device, "ms")
                means.append(_Mean(mean, total, channel.label, _UNITS[unit][1]))
    _derive(draft, means)
    return draft


def plan_target(device: str, text: str) -> Draft:
    """Plan the stats of a target: requests, and what each line of them comes to on the mean."""
    draft = Draft()
    means: list[_Mean] = []
    for at, words in numbered_lines(text):
        name = words[0]
        if name not in REQUESTS or len(words) <= _SUM or words[2] != "samples":
            continue
        unit, scale = _UNITS.get(words[3].strip("[]"), ("", 1.0))
        if not unit:
            continue
        total, count = f"{name} sum {device}", f"{name} count {device}"
        draft.field(at + _SUM, Field(total, True))
        if name == "req_waittime":
            channel = Channel(
                "lustre_target.requests", device, Subsystem.STORAGE, "requests/s", Kind.RATE
            )
            draft.channel(at + _COUNT, channel)
            count = channel.label
        else:
            draft.field(at + _COUNT, Field(count, True))
        mean = _mean(f"lustre_target.{REQUESTS[name]}", device, unit)
        means.append(_Mean(mean, total, count, scale))
    _derive(draft, means)
    return draft


def _derive(draft: Draft, means: Sequence[_Mean]) -> None:
    """Add means, of several with one name the first."""
    order = {key: i for i, key in enumerate(draft.fields)}
    found: dict[str, _Mean] = {}
    for mean in means:
        found.setdefault(mean.channel.label, mean)
    if not found:
        return
    sums = np.array([order[mean.total] for mean in found.values()], np.intp)
    counts = np.array([order[mean.count] for mean in found.values()], np.intp)
    scales = np.array([mean.scale for mean in found.values()])
    ratios = {label: (mean.total, mean.count) for label, mean in found.items()}
    channels = [mean.channel for mean in found.values()]
    draft.derived(channels, partial(_means, sums, counts, scales), ratios)


def _means(
    sums: NDArray[np.intp], counts: NDArray[np.intp], scales: Doubles, rates: Doubles
) -> Doubles:
    """Return sums over counts, times their scales; NaN of nothing."""
    none = np.full(len(sums), np.nan)
    mean: Doubles = np.divide(rates[sums], rates[counts], out=none, where=rates[counts] > 0)
    return mean * scales


def _channel(metric: str, device: str, unit: str) -> Channel:
    return Channel(f"lustre.{metric}", device, Subsystem.STORAGE, unit, Kind.RATE)


def _mean(metric: str, device: str, unit: str) -> Channel:
    return Channel(metric, device, Subsystem.STORAGE, unit, Kind.GAUGE)


def devices(*kinds: str) -> Find:
    """Return a `Find` of the stats of a kind of Lustre's devices, at most 64 of them."""

    def find(reader: Reader) -> Mapping[str, str] | str:
        reason = ""
        found: dict[str, str] = {}
        for top in TOPS:
            for kind in kinds:
                names = reader.list(f"{top}/{kind}")
                if not isinstance(names, tuple):
                    reason = names.reason if not names.absent else reason or names.reason
                    continue
                for name in names:
                    device = device_name(name)
                    if device and len(found) < _LIMIT:
                        found.setdefault(device, f"{top}/{kind}/{name}/stats")
        return found or reason or "no device in it"

    return find


def device_name(directory: str) -> str:
    """Return what a directory is about, without the number of its mount; else nothing.

    ``scratch-ffff8803f1d8a000`` is about ``scratch``, and
    ``scratch-OST0003-osc-ffff8803f1d8a000`` about ``scratch-OST0003``.
    """
    named = _DEVICE.fullmatch(directory)
    return named[1] if named else ""


def collector() -> Collector:
    """Return a collector of what programs do with file systems."""
    tree = TextTree(
        TOPS[0] + "/llite",
        devices("llite"),
        plan_files,
        prepare=without_times,
        remedy=_REMEDY.format(what="what programs do with Lustre"),
    )
    return Collector("lustre", (tree,))


def target_collector() -> Collector:
    """Return a collector of how the targets answer, one of its own: there may be hundreds."""
    tree = TextTree(
        TOPS[0],
        devices("mdc", "osc"),
        plan_target,
        prepare=without_times,
        remedy=_REMEDY.format(what="how Lustre's servers answer"),
        period_ns=SECOND_NS,
    )
    return Collector("lustre_targets", (tree,))
