"""Network: interfaces (/proc/net/dev) and protocols (/proc/net/snmp, /proc/net/netstat).

Documentation/networking/snmp_counter.rst. Columns of the protocol files are found by name:
kernels insert and reorder them.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from producers.collector import Reading, SourceFile
from producers.metric import Metric
from producers.parsing import NumberReader, Planned, Words
from producers.reading import Reader
from schemas.records import Subsystem

RECEIVE = ("bytes", "packets", "errs", "drop", "fifo", "frame", "compressed", "multicast")
TRANSMIT = ("bytes", "packets", "errs", "drop", "fifo", "colls", "carrier", "compressed")
GAUGES = frozenset(("tcp.curr_estab",))
CONSTANTS = frozenset(
    (
        *("ip.forwarding", "ip.default_ttl", "ip.reasm_timeout"),
        *("tcp.rto_algorithm", "tcp.rto_min", "tcp.rto_max", "tcp.max_conn"),
    )
)
"""Settings in the guise of counters."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Interfaces:
    """Bytes, packets, errors and drops of every interface, both ways."""

    name = "net_dev"
    sources = (SourceFile("proc/net/dev", "traffic of every interface", "mount /proc"),)

    def __init__(self) -> None:
        self._numbers = NumberReader(self._plan, separators=b":|")

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._numbers.broken

    def read(self, reader: Reader) -> Reading:
        """Read the counters of every interface."""
        numbers = self._numbers.read(reader.read("proc/net/dev"))
        return Reading(self._numbers.metrics, numbers)

    @staticmethod
    def _plan(lines: list[tuple[int, Words]]) -> Planned:
        columns = [f"rx_{c}" for c in RECEIVE] + [f"tx_{c}" for c in TRANSMIT]
        planned: Planned = []
        for at, words in lines[2:]:
            for i, column in enumerate(columns[: len(words) - 1]):
                unit = "bytes/s" if column.endswith("bytes") else "1/s"
                metric = Metric(
                    f"net.{column}",
                    words[0].decode(errors="replace"),
                    Subsystem.NETWORK,
                    unit,
                    counter=True,
                )
                planned.append((metric, at + 1 + i))
        return planned


class _Protocols:
    """A file of pairs of lines: names, then numbers, each after the protocol's name."""

    def __init__(self) -> None:
        self._numbers = NumberReader(self._plan, separators=b":")

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._numbers.broken

    def _read(self, text: bytes) -> Reading:
        numbers = self._numbers.read(text)
        return Reading(self._numbers.metrics, numbers)

    @staticmethod
    def _plan(lines: list[tuple[int, Words]]) -> Planned:
        planned: Planned = []
        for (_, names), (at, numbers) in pairwise(lines):
            if names[0] != numbers[0] or len(names) < 2 or names[1][:1].isdigit():
                continue
            if not numbers[1:] or not numbers[1].lstrip(b"-").isdigit():
                continue
            protocol = names[0].decode(errors="replace").lower()
            for i, word in enumerate(names[1 : len(numbers)]):
                field = _CAMEL.sub("_", word.decode(errors="replace")).lower()
                name = f"{protocol}.{field}"
                if name in CONSTANTS:
                    continue
                counter = name not in GAUGES
                octets = field.endswith("octets")
                unit = ("bytes/s" if octets else "1/s") if counter else "connections"
                metric = Metric(name, "", Subsystem.NETWORK, unit, counter)
                planned.append((metric, at + 1 + i))
        return planned


class Snmp(_Protocols):
    """IP, ICMP, TCP and UDP; retransmits are `tcp.retrans_segs`."""

    name = "snmp"
    sources = (SourceFile("proc/net/snmp", "IP, TCP and UDP counters", "mount /proc"),)

    def read(self, reader: Reader) -> Reading:
        """Read the counters."""
        return self._read(reader.read("proc/net/snmp"))


class Netstat(_Protocols):
    """TCP's and IP's extended counters: what kind of loss and of retransmit it was."""

    name = "netstat"
    sources = (SourceFile("proc/net/netstat", "extended TCP counters", "mount /proc"),)

    def read(self, reader: Reader) -> Reading:
        """Read the counters."""
        return self._read(reader.read("proc/net/netstat"))
