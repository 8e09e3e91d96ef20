"""Traffic of network interfaces: /proc/net/dev.

Kernel: Documentation/networking/statistics.rst. Columns are found by their names in the header.

Interfaces of containers and of virtual machines come and go with them, hundreds an hour, and each
would be another layout, of which the detectors know nothing yet. So all whose names are of one
kind (`FOLDED`) are one device, ``veth*``: the sum of their rates, and how many there are. One that
is new counts from its second reading, one that is gone no more; what a sum means stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from producers.parsing import SLOW_ABOVE_BYTES, Draft, TextFile, numbered_lines
from producers.rates import Rates
from producers.reading import Reader
from producers.source import EVERY_TICK, SECOND_NS, WRAPS_32, Doubles, Field, Plan
from schemas.records import Channel, Kind, Subsystem

PATH = "proc/net/dev"

FOLDED = {
    "veth*": r"veth",  # Docker, Podman, most of Kubernetes
    "cali*": r"cali",  # Calico
    "lxc*": r"lxc(?!br)",  # Cilium, LXC; its bridge lxcbr0 is one that stays
    "eni*": r"eni[0-9a-f]{8,}",  # AWS
    "azv*": r"azv[0-9a-f]{8,}",  # Azure
    "gke*": r"gke[0-9a-f]{8,}",  # Google
    "tap*": r"(?:macv)?tap",  # virtual machines: QEMU, OpenStack, Proxmox, Firecracker
    "vnet*": r"vnet\d",  # libvirt
    "vif*": r"vif\d",  # Xen
    "qvo*": r"q(?:vo|vb|br|r-|g-)",  # OpenStack's plumbing of each machine
    "fwpr*": r"fw(?:br|ln|pr)\d",  # Proxmox's
}
"""What devices are made of many interfaces, and how the names of these begin."""

_NAMES = "|".join(FOLDED.values())
_ROW = re.compile(rf"^[ \t]*((?:{_NAMES})[^\s:]*):(.*)(?:\n|\Z)".encode(), re.MULTILINE)
_KINDS = [(device, re.compile(pattern)) for device, pattern in FOLDED.items()]
_NAN = float("nan")


@lru_cache(maxsize=4096)
def folded_into(interface: str) -> str:
    """Return the device that an interface is part of; empty when it is one by itself."""
    return next((device for device, begins in _KINDS if begins.match(interface)), "")


def parted(text: bytes) -> bytes:
    """Part what the file may write together: ``face |bytes``, ``eth0:1234``."""
    return text.replace(b"|", b" | ").replace(b":", b": ")


def column_names(words: Sequence[str]) -> list[str]:
    """Return the metrics that the header's second line names, once for each direction."""
    halves = " ".join(words[1:]).strip("| ").partition("|")[::2]
    return [
        f"net.{side}_{name}"
        for side, half in zip(("rx", "tx"), halves, strict=True)
        for name in half.replace("|", " ").split()
    ]


def _channel(metric: str, device: str) -> Channel:
    unit = {"bytes": "B/s", "packets": "packets/s"}.get(metric.split("_")[-1], "/s")
    return Channel(metric, device, Subsystem.NETWORK, unit, Kind.RATE)


def plan_dev(text: str) -> Draft:
    """Plan the file, its bars and colons parted.

    Of a row that lacks a number nobody can say which: all its channels are unknown, their place is
    that of the label.
    """
    draft = Draft()
    columns: list[str] = []
    for at, words in numbered_lines(text):
        if words[0] == "face":
            columns = column_names(words)
        elif words[0].endswith(":"):
            device = words[0].removesuffix(":")
            whole = len(words) - 1 == len(columns)
            for i, metric in enumerate(columns, start=1):
                channel = _channel(metric, device)
                draft.channel(at + i if whole else at, channel, modulus=WRAPS_32)
    return draft


class Interfaces:
    """The source: each lasting interface by itself, the others in sums."""

    path = PATH

    def __init__(self, remedy: str) -> None:
        self.remedy = remedy
        self.period_ns = EVERY_TICK
        self.problem = ""
        self.plan = Plan()
        self._lasting = TextFile(PATH, plan_dev, prepare=parted, remedy=remedy)
        self._folded = _Folded()
        self._planned: tuple[Plan, tuple[Channel, ...]] = (self.plan, ())

    @property
    def bad_fields(self) -> int:
        """Numbers that could not be converted, since the start."""
        return self._lasting.bad_fields + self._folded.bad_fields

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Read and parse the file; once a second where there are more than a hundred interfaces."""
        text = reader.read(PATH)
        if not isinstance(text, bytes):
            self.problem = f"{PATH}: {text.reason}"
            return self.plan.blank
        self.period_ns = SECOND_NS if len(text) > SLOW_ABOVE_BYTES else EVERY_TICK
        parts = _ROW.split(text)  # what is between the rows, and of each row name and numbers
        rows = list(zip(parts[1::3], parts[2::3], strict=True))
        numbers = self._lasting.parse(b"".join(parts[::3]))
        self.problem = "" if rows else self._lasting.problem
        sums = self._folded.update(text, rows, mono_ns)
        planned = (self._lasting.plan, self._folded.channels)
        if planned[0] is not self._planned[0] or planned[1] is not self._planned[1]:
            self._planned = planned
            self.plan = _joined(*planned)
        return [*numbers, *sums]


def _joined(lasting: Plan, folded: Sequence[Channel]) -> Plan:
    # A sum is given as the rate it already is: its interfaces are not always the same.
    levels = tuple(Field(c.label, counter=False) for c in folded)
    fields = lasting.fields + levels
    return Plan(
        fields=fields,
        channels=lasting.channels + tuple(folded),
        direct=lasting.direct + tuple(range(len(lasting.fields), len(fields))),
    )


class _Folded:
    """The interfaces that are summed, and the devices that they make. Once there, these stay."""

    def __init__(self) -> None:
        self.bad_fields = 0
        self.channels: tuple[Channel, ...] = ()
        self._rates = Rates()
        self._columns: list[str] = []
        self._header = b""
        self._doubtful = b""
        self._names: list[bytes] | None = None
        self._devices: list[str] = []
        self._rows_of: list[list[int]] = []
        self._texts: list[bytes | None] = []
        self._table: Doubles = np.empty((0, 0))

    def update(self, text: bytes, rows: Sequence[tuple[bytes, bytes]], mono_ns: int) -> list[float]:
        """Return the value of each of `channels`.

        Parameters
        ----------
        text
            The file, of which the header is read.
        rows
            Name and numbers of each interface.
        mono_ns
            When, on the monotonic clock, nanoseconds.
        """
        if not rows and not self._devices:
            return []
        if not self._knows_header(text):
            return [_NAN] * len(self.channels)
        if not text.endswith(b"\n") and rows:
            rows = rows[:-1]  # half a number would pass for a whole one
        names = [name for name, _ in rows]
        if len(set(names)) < len(names):
            rows = list({name: (name, cells) for name, cells in reversed(rows)}.values())
            names = [name for name, _ in rows]
        new = self._arrange(names)
        rates = self._rates.update(self._numbers(rows), mono_ns)
        self.bad_fields += self._rates.rejected.size
        table = rates.reshape(len(rows), len(self._columns))
        sums: list[float] = []
        for of in self._rows_of:
            known = [i for i in of if i not in new]
            # Unknown where one that was there before is; one that is new adds nothing yet.
            total = np.nansum(table[of], axis=0) + 0 * table[known].sum(axis=0)
            if of and not known:
                total[:] = _NAN
            sums += [*total.tolist(), len(of)]
        return sums

    def _knows_header(self, text: bytes) -> bool:
        """Return whether the columns are known; other ones are believed the second time."""
        header = b"".join(text.split(b"\n", 2)[:2])
        if header == self._header:
            return True
        lines = (words for _, words in numbered_lines(parted(text).decode("ascii", "replace")))
        columns = next((column_names(words) for words in lines if words[0] == "face"), [])
        if columns != self._columns:
            doubtful = header != self._doubtful and bool(self._columns)
            self._doubtful = header
            if doubtful or not columns or len(set(columns)) < len(columns):
                return False
            self._columns, self._names, self._devices = columns, None, []
        self._header = header
        return True

    def _arrange(self, names: list[bytes]) -> set[int]:
        """Take the interfaces that are there now, and return the places of those that are new."""
        if names == self._names:
            return set()
        before = set(self._names or ())
        self._names = names
        self._texts = [None] * len(names)
        self._table = np.empty((len(names), len(self._columns)))
        devices = [folded_into(name.decode("ascii", "replace")) for name in names]
        seen = [*dict.fromkeys([*self._devices, *devices])]
        if seen != self._devices:
            self._devices = seen
            self.channels = tuple(c for device in seen for c in self._channels_of(device))
        self._rows_of = [[i for i, d in enumerate(devices) if d == own] for own in seen]
        self._rates.relayout(
            [
                Field(f"{name!r} {column}", True, modulus=WRAPS_32)
                for name in names
                for column in self._columns
            ]
        )
        return {i for i, name in enumerate(names) if name not in before}

    def _channels_of(self, device: str) -> Iterable[Channel]:
        yield from (_channel(metric, device) for metric in self._columns)
        yield Channel("net.interfaces", device, Subsystem.NETWORK, "interfaces", Kind.GAUGE)

    def _numbers(self, rows: Sequence[tuple[bytes, bytes]]) -> Doubles:
        """Return the numbers of all rows, shape ``(rows * columns,)``; NaN where unknown.

        Most of many interfaces are idle from one tick to the next: only lines that changed are
        looked into.
        """
        texts, table = self._texts, self._table
        for i, (_, cells) in enumerate(rows):
            if cells != texts[i]:
                table[i] = numbers = _row_numbers(cells, len(self._columns))
                wrong = sum(map(math.isnan, numbers))
                self.bad_fields += wrong
                texts[i] = None if wrong else cells
        return table.ravel()


def _row_numbers(cells: bytes, width: int) -> Sequence[float]:
    tokens = cells.split()
    if len(tokens) != width:
        return [_NAN] * width
    # float() gives infinity for hundreds of digits, int() may raise.
    return [float(token) if token.isdigit() else _NAN for token in tokens]
