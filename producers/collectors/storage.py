"""Disks: /proc/diskstats.

Kernel: Documentation/admin-guide/iostats.rst. Times are milliseconds in 32 bits and wrap.
Partitions are left out where their disk is there. Loop, RAM, network block and removable devices
are left out until they do something. What the disks do together leaves out what is stacked upon
others (device mapper, md, loop), which would count twice.

Of an NVMe disk with several paths, ``nvme0c1n1`` is a path and ``nvme0n1`` the disk, of which
older kernels count nothing: it is left out while it has only zeros, and what the disks do together
is taken from the paths.

A volume of the device mapper is called by the name that it has in /sys/block/dm-*/dm/name: the
numbers are given in the order of start, and may be others after the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines
from producers.reading import Reader
from producers.source import WRAPS_32, Collector, Doubles
from schemas.records import Channel, Kind, Subsystem

_SECTOR_BYTES = 512
_MS_TO_PERCENT = 100 / 1e3
_MS_TO_QUEUE = 1 / 1e3
_NAME = 2
_READS, _WRITES = 3, 7

COLUMNS: tuple[tuple[str, str, Kind, float, float], ...] = (
    ("reads", "requests/s", Kind.RATE, 1, 0),
    ("reads_merged", "requests/s", Kind.RATE, 1, 0),
    ("read_bytes", "B/s", Kind.RATE, _SECTOR_BYTES, 0),
    ("read_time", "ms/s", Kind.RATE, 1, WRAPS_32),
    ("writes", "requests/s", Kind.RATE, 1, 0),
    ("writes_merged", "requests/s", Kind.RATE, 1, 0),
    ("write_bytes", "B/s", Kind.RATE, _SECTOR_BYTES, 0),
    ("write_time", "ms/s", Kind.RATE, 1, WRAPS_32),
    ("in_flight", "requests", Kind.GAUGE, 1, 0),
    ("busy", "%", Kind.RATE, _MS_TO_PERCENT, WRAPS_32),
    ("queue", "requests", Kind.RATE, _MS_TO_QUEUE, WRAPS_32),
    ("discards", "requests/s", Kind.RATE, 1, 0),
    ("discards_merged", "requests/s", Kind.RATE, 1, 0),
    ("discard_bytes", "B/s", Kind.RATE, _SECTOR_BYTES, 0),
    ("discard_time", "ms/s", Kind.RATE, 1, WRAPS_32),
    ("flushes", "requests/s", Kind.RATE, 1, 0),
    ("flush_time", "ms/s", Kind.RATE, 1, WRAPS_32),
)
"""Metric, unit, kind, scale and modulus of the columns after the device's name, in order.

``queue`` is the weighted time: its rate is the mean number of requests under way.
"""

WIDTHS = (11, 15, len(COLUMNS))
"""Kernels have so many of the columns: discards came with 4.18, flushes with 5.5."""

TOTALS = ("reads", "read_bytes", "writes", "write_bytes", "in_flight")
AWAITS = (("read_await", "read_time", "reads"), ("write_await", "write_time", "writes"))
"""Mean milliseconds of a request: its metric, the time, the requests."""

_IDLE = re.compile(r"(loop|ram|zram|nbd|sr|fd)\d+")
_STACKED = re.compile(r"(loop|ram|zram|dm-|md|bcache|drbd|zd)\d+")
_MAPPED = re.compile(r"dm-\d+")
_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")


def plan(text: str, mapped: Callable[[str], str] = str) -> Draft:
    """Plan the file; `mapped` gives the name of a volume, ``dm-0``, of the device mapper."""
    draft = Draft()
    lines = [(at, words) for at, words in numbered_lines(text) if len(words) > _WRITES]
    names = {words[_NAME] for _, words in lines}
    multipath = {path[1] + path[2] for name in names if (path := _PATH.fullmatch(name))}
    disks: dict[str, str] = {}  # what they are called, by the kernel's name
    for at, words in lines:
        name = words[_NAME]
        if name in disks or name.isdigit() or is_partition(name, names):
            continue  # all digits: a number before the name is missing
        may_idle = name in multipath or _IDLE.fullmatch(name)
        if may_idle and words[_READS] == words[_WRITES] == "0":
            draft.watch(at + _READS)
            draft.watch(at + _WRITES)
            continue
        disk = mapped(name) if _MAPPED.fullmatch(name) else name
        disks[name] = name if disk in names or disk in disks.values() else disk
        count = min(len(words) - _NAME - 1, WIDTHS[-1])
        width = next(width for width in WIDTHS if count <= width)
        for i, (metric, unit, kind, scale, modulus) in enumerate(COLUMNS[:width], start=1):
            channel = _channel(f"disk.{metric}", disks[name], unit, kind)
            # Where a number is missing nobody can say which: then all are unknown, their place is
            # that of the name.
            place = at + _NAME + (i if count == width else 0)
            draft.channel(place, channel, scale=scale, modulus=modulus)
    stacked = {name for name in disks if name in multipath or _STACKED.fullmatch(name)}
    _derive(draft, list(disks.values()), {disks[name] for name in stacked})
    return draft


def is_partition(name: str, names: set[str]) -> bool:
    """Return whether `name` is a partition of one of `names`: sda1 of sda, nvme0n1p2 of nvme0n1."""
    disk = re.fullmatch(r"(.*\d)p\d+|(.*\D)\d+", name)
    return disk is not None and (disk[1] or disk[2]) in names


def _derive(draft: Draft, disks: list[str], stacked: set[str]) -> None:
    """Add what the disks do together, and how long a request takes on each."""
    place = {key: i for i, key in enumerate(draft.fields)}
    units = {metric: (unit, kind) for metric, unit, kind, _, _ in COLUMNS}

    def places(metric: str, devices: list[str]) -> list[int]:
        return [place[f"disk.{metric}[{device}]"] for device in devices]

    complete = [d for d in disks if f"disk.in_flight[{d}]" in place]
    physical = [d for d in complete if d not in stacked]
    summed = np.array([places(metric, physical) for metric in TOTALS], np.intp)
    times = np.array([places(time, complete) for _, time, _ in AWAITS], np.intp).ravel()
    counts = np.array([places(count, complete) for _, _, count in AWAITS], np.intp).ravel()

    totals = [_channel(f"disk.{metric}", "", *units[metric]) for metric in TOTALS]
    awaits = [
        _channel(f"disk.{metric}", d, "ms", Kind.GAUGE) for metric, _, _ in AWAITS for d in complete
    ]
    ratios = {
        f"disk.{metric}[{d}]": (f"disk.{time}[{d}]", f"disk.{count}[{d}]")
        for metric, time, count in AWAITS
        for d in complete
    }
    if not physical:
        draft.derived(awaits, lambda levels: mean_wait(levels[times], levels[counts]), ratios)
        return
    draft.derived(
        [*totals, *awaits],
        lambda levels: np.concatenate(
            (levels[summed].sum(axis=1), mean_wait(levels[times], levels[counts]))
        ),
        ratios,
    )


def mean_wait(time_ms: Doubles, requests: Doubles) -> Doubles:
    """Return the milliseconds that a request took; NaN where none ended: there is no mean."""
    none = np.full(len(requests), np.nan)
    mean: Doubles = np.divide(time_ms, requests, out=none, where=requests > 0)
    return mean


def _channel(metric: str, device: str, unit: str, kind: Kind) -> Channel:
    return Channel(metric, device, Subsystem.STORAGE, unit, kind)


class Diskstats(TextFile):
    """/proc/diskstats, with the names of the device mapper's volumes."""

    def __init__(self) -> None:
        super().__init__(
            "proc/diskstats",
            lambda text: plan(text, self._mapped),
            remedy="Without it nothing is known of the disks. Mount the host's /proc and name it "
            "with --path.proc.",
        )
        self._reader: Reader | None = None

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Read and parse the file."""
        self._reader = reader
        return super().read(reader, mono_ns)

    def _mapped(self, name: str) -> str:
        """Return what a volume is called, its kernel's name where it is called nothing."""
        found = self._reader.small(f"sys/block/{name}/dm/name") if self._reader else b""
        text = found.decode("utf-8", "replace").strip() if isinstance(found, bytes) else ""
        return text or name


def collector() -> Collector:
    """Return a collector of disks."""
    return Collector("storage", (Diskstats(),))
