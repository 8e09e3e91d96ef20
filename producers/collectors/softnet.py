"""Packets that each core takes from the cards: /proc/net/softnet_stat.

Kernel: net/core/net-procfs.c. A line for each core that is online, hexadecimal, 32 bits that wrap;
there is no header. Here they are summed over the cores, and compared.
"""

from __future__ import annotations

import numpy as np

from producers.imbalance import imbalance
from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import FIFTH_SECOND_NS, WRAPS_32, Doubles, Field
from schemas.records import Channel, Kind, Subsystem

COUNTERS = {0: "processed", 1: "dropped", 2: "time_squeeze", 9: "received_rps", 10: "flow_limit"}
"""Columns that only grow."""

_UNITS = {2: "/s", 9: "/s"}  # times that work was left over; other cores that were woken

BACKLOG = 11
"""Packets that wait for the core now. Since kernel 5.14."""

_COLLISIONS = 8  # of kernels before 4.7
_CORE = 12
_QUEUES = (13, 14)


def plan_softnet(text: str) -> Draft:
    """Plan the file: totals, and how unevenly the packets are spread over the cores."""
    draft = Draft()
    lines = list(numbered_lines(text))
    width = max((len(words) for _, words in lines), default=0)
    counters = [c for c in COUNTERS if c < width]
    levels = [BACKLOG] if width > BACKLOG else []
    # Every number has to be a field, since one with letters in it would pass for a label.
    other = [c for c in (_COLLISIONS, *_QUEUES) if c < width]
    cores: dict[str, None] = {}
    for row, (at, words) in enumerate(lines):
        if len(words) < width:
            continue  # nobody can say which number is missing
        core = f"{row} of {len(lines)}"  # with one less, nobody knows which is missing
        if width > _CORE:
            core = words[_CORE]
            draft.watch(at + _CORE)
        if core not in cores:
            cores[core] = None
            for c in (*counters, *levels, *other):
                counter = c in COUNTERS
                modulus = WRAPS_32 if counter else 0.0
                draft.field(at + c, Field(f"{core} {COUNTERS.get(c, c)}", counter, modulus=modulus))
    if not counters:
        return draft
    shape = (len(cores), len(counters) + len(levels) + len(other))
    sums = len(counters) + len(levels)

    def derive(rates: Doubles) -> Doubles:
        table = rates.reshape(shape)
        return np.append(table[:, :sums].sum(axis=0), imbalance(table[:, 0]))

    draft.derived(
        [
            *(_channel(COUNTERS[c], _UNITS.get(c, "packets/s"), Kind.RATE) for c in counters),
            *(_channel("backlog", "packets", Kind.GAUGE) for _ in levels),
            _channel("imbalance", "%", Kind.GAUGE),
        ],
        derive,
        {"softnet.imbalance": tuple(f"{core} processed" for core in cores)},
    )
    return draft


def _channel(name: str, unit: str, kind: Kind) -> Channel:
    return Channel(f"softnet.{name}", "", Subsystem.NETWORK, unit, kind)


def _hexadecimal(token: bytes) -> float:
    return int(token, 16)


def softnet(remedy: str) -> TextFile:
    """Return the source."""
    return TextFile(
        "proc/net/softnet_stat",
        plan_softnet,
        number=_hexadecimal,
        period_ns=FIFTH_SECOND_NS,
        slow=True,
        remedy=remedy,
    )
