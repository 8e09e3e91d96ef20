"""What is mounted from NFS servers, and how long they take: /proc/1/mountstats.

Kernel: fs/nfs/super.c (nfs_show_stats), include/linux/nfs_iostat.h, net/sunrpc/stats.c
(rpc_clnt_show_stats: of each operation how many, transmissions, major timeouts, bytes both ways,
milliseconds in the queue, at the server, and in all) and net/sunrpc/xprtsock.c, xprtrdma
(``xprt:``).
A device is an export, ``server:/path``: one that is mounted several times is counted once, and at
most 32 are taken. Without permission to see the mounts of process 1 those of the agent are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from producers.parsing import Draft, TextFile, numbered_lines
from producers.reading import Reader
from producers.source import SECOND_NS, Doubles, Field
from schemas.records import Channel, Kind, Subsystem

PATH = "proc/1/mountstats"
_OWN = "proc/self/mountstats"
_LIMIT = 32
_NFS = re.compile(rb"\S+ mounted on .* with fstype nfs4?(?: |$)")

BYTES = {
    "app_read_bytes": 0,
    "app_write_bytes": 1,
    "direct_read_bytes": 2,
    "direct_write_bytes": 3,
    "read_bytes": 4,
    "write_bytes": 5,
}
"""Places in ``bytes:``. What programs read and wrote through the cache and around it, and what
went over the network."""

EVENTS = {"opens": 4, "fsyncs": 15, "short_reads": 22, "short_writes": 23, "delays": 24}
"""Places in ``events:``. `delays`: the server asked to come again later."""

OPERATIONS = {
    *("READ", "WRITE", "COMMIT", "OPEN", "OPEN_NOATTR", "CLOSE", "GETATTR", "SETATTR", "LOOKUP"),
    *("ACCESS", "READLINK", "CREATE", "MKDIR", "SYMLINK", "LINK", "REMOVE", "RMDIR", "RENAME"),
    *("READDIR", "READDIRPLUS", "FSSTAT", "STATFS", "LOCK", "LOCKU", "DELEGRETURN", "LAYOUTGET"),
}
"""Operations that programs wait for."""

COLUMNS = {"ops": 1, "sent": 2, "timeouts": 3, "queue": 6, "server": 7, "all": 8}
"""Places of an operation's numbers after its name."""

WIDTHS = (9, 10)
"""Words of an operation's line: kernels before 5.3 do not count errors."""

_CONNECTS = 4
"""Place of how often a stream was connected in ``xprt: tcp`` and ``xprt: rdma``."""

_LINES = {name.encode() for name in ("events", "bytes", "xprt", *OPERATIONS)}
TOTALS = ("read_bytes", "write_bytes")


@dataclass(slots=True)
class _Mount:
    """Keys of an export's fields: a row of each operation, and of each connection."""

    export: str
    operations: dict[str, list[str]] = field(default_factory=dict)
    connects: list[str] = field(default_factory=list)


def nfs_mounts(text: bytes) -> bytes:
    """Cut out what is not NFS, exports that came before, and lines that nobody needs."""
    kept: list[bytes] = []
    exports: set[bytes] = set()
    for block in (b"\n" + text).split(b"\ndevice ")[1:]:
        head, _, rest = block.partition(b"\n")
        export = head.partition(b" ")[0]
        if not _NFS.match(head) or export in exports or len(exports) == _LIMIT:
            continue
        exports.add(export)
        # Other letters than ASCII's would all be one.
        name = export.decode("utf-8", "surrogateescape").encode("ascii", "backslashreplace")
        kept.append(b"device " + name)
        kept += (line for line in rest.split(b"\n") if _wanted(line))
    kept.append(b"")
    return b"\n".join(kept)


def _wanted(line: bytes) -> bool:
    return line.lstrip().partition(b":")[0] in _LINES


def plan(text: str) -> Draft:
    """Plan a text that `nfs_mounts` left."""
    draft = Draft()
    mounts: list[_Mount] = []
    for at, words in numbered_lines(text):
        if words[0] == "device" and len(words) > 1:
            mounts.append(_Mount(words[1]))
        elif mounts:
            _plan_line(draft, mounts[-1], at, words)
    if mounts:
        _derive(draft, mounts)
    return draft


def _plan_line(draft: Draft, mount: _Mount, at: int, words: Sequence[str]) -> None:
    name = words[0].removesuffix(":")
    if name == "xprt":
        if len(words) > _CONNECTS and words[1] in {"tcp", "rdma"}:
            key = f"connects {len(mount.connects)} {mount.export}"
            mount.connects.append(key)
            draft.field(at + _CONNECTS, Field(key, True))
    elif name in {"bytes", "events"}:
        places, unit = (BYTES, "B/s") if name == "bytes" else (EVENTS, "/s")
        for metric, place in places.items():
            if len(words) > place + 1:
                draft.channel(at + 1 + place, _channel(metric, mount.export, unit))
    elif name not in mount.operations:
        keys = mount.operations[name] = [f"{name} {c} {mount.export}" for c in COLUMNS]
        # Where a number is missing nobody can say which: all have the place of the name.
        whole = len(words) in WIDTHS
        for key, place in zip(keys, COLUMNS.values(), strict=True):
            draft.field(at + place if whole else at, Field(key, True))


def _derive(draft: Draft, mounts: Sequence[_Mount]) -> None:
    """Add what is made of all operations of an export, and of all exports."""
    order = {key: i for i, key in enumerate(draft.fields)}
    made = [_Made.of(mount, order) for mount in mounts if mount.operations]
    sums = [
        (metric, [order[label] for m in mounts if (label := f"nfs.{metric}[{m.export}]") in order])
        for metric in TOTALS
    ]
    sums = [(metric, places) for metric, places in sums if places]
    channels = [c for m in made for c in m.channels]
    channels += [_channel(metric, "", "B/s") for metric, _ in sums]
    ratios = {label: keys for m in made for label, keys in m.ratios(draft)}
    totals = [np.array(places, np.intp) for _, places in sums]
    if channels:
        draft.derived(channels, partial(_derived, made, totals), ratios)


def _derived(made: Sequence[_Made], totals: Sequence[NDArray[np.intp]], rates: Doubles) -> Doubles:
    parts = [m.values(rates) for m in made]
    parts.append(np.array([rates[at].sum() for at in totals]))
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """What is derived of an export.

    `every` are the places of its operations' fields, shape ``(operations, columns)``; `one` the
    rows of those that have channels of their own; `connects` places too.
    """

    export: str
    every: NDArray[np.intp]
    one: tuple[tuple[str, int], ...]
    connects: NDArray[np.intp]

    @staticmethod
    def of(mount: _Mount, order: dict[str, int]) -> _Made:
        rows = list(mount.operations)
        every = [[order[key] for key in keys] for keys in mount.operations.values()]
        one = ((op.lower(), rows.index(op)) for op in ("READ", "WRITE") if op in rows)
        connects = [order[key] for key in mount.connects]
        return _Made(
            mount.export, np.array(every, np.intp), tuple(one), np.array(connects, np.intp)
        )

    @property
    def channels(self) -> Iterator[Channel]:
        for metric in ("requests", "retransmits", "timeouts"):
            yield _channel(metric, self.export, "requests/s")
        for metric in ("queue_await", "server_await", "await"):
            yield _channel(metric, self.export, "ms")
        for name, _ in self.one:
            yield _channel(f"{name}s", self.export, "requests/s")
            yield _channel(f"{name}_await", self.export, "ms")
        if self.connects.size:
            yield _channel("connects", self.export, "/s")

    def ratios(self, draft: Draft) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the channels that compare rates, and the keys of these."""
        keys = list(draft.fields)
        columns = list(COLUMNS)
        rows: dict[str, Sequence[int]] = {name: [row] for name, row in self.one}
        every = range(len(self.every))
        pairs = [("await", "all", every), ("server_await", "server", every)]
        pairs += [("queue_await", "queue", every)]
        for name, row in rows.items():
            pairs.append((f"{name}_await", "all", range(row[0], row[0] + 1)))
        for metric, column, those in pairs:
            both = [columns.index("ops"), columns.index(column)]
            places = self.every[np.ix_(list(those), both)].ravel()
            yield f"nfs.{metric}[{self.export}]", tuple(keys[i] for i in places)

    def values(self, rates: Doubles) -> Doubles:
        table = rates[self.every]
        ops, sent, timeouts, queue, server, whole = table.sum(axis=0).tolist()
        made = [ops, sent - ops, timeouts]
        made += [_mean(time, ops) for time in (queue, server, whole)]
        for _, row in self.one:
            made += [table[row, 0], _mean(table[row, -1], table[row, 0])]
        if self.connects.size:
            made.append(rates[self.connects].sum())
        return np.array(made)


def _mean(time: float, count: float) -> float:
    """Return the mean of so many; NaN where there was none."""
    return time / count if count > 0 else float("nan")


def _channel(metric: str, export: str, unit: str) -> Channel:
    kind = Kind.GAUGE if unit == "ms" else Kind.RATE
    return Channel(f"nfs.{metric}", export, Subsystem.STORAGE, unit, kind)


class MountStats(TextFile):
    """/proc/1/mountstats, or /proc/self/mountstats where that may not be read.

    A host without an NFS mount has no channels of it. When the last one goes they are unknown:
    an automounter will bring it back.
    """

    def __init__(self) -> None:
        super().__init__(
            PATH,
            plan,
            prepare=nfs_mounts,
            period_ns=SECOND_NS,
            remedy="Without it the servers behind NFS mounts, and how long they take, are not "
            "seen. Nothing to do where none are mounted; else run the agent as root.",
        )

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        """Read and parse the file."""
        text = reader.read(PATH)
        if not isinstance(text, bytes):
            own = reader.read(_OWN)
            if not isinstance(own, bytes):
                self.problem = f"{PATH}: {text.reason}"
                return self.plan.blank
            text = own
        if text and b" with fstype nfs" not in text:
            self.problem = "" if self.plan.fields else f"{PATH}: nothing is mounted from NFS"
            return self.plan.blank
        return self.parse(text)
