"""Statistics of network cards that only their drivers know: ``ethtool -S``, by ioctl.

Kernel: include/uapi/linux/ethtool.h; `producers.ethtool_ioctl` has the calls. A card may have two
thousand statistics, named as its driver likes. Taken are those of `CHOSEN`: packets that found no
room or were thrown away, pauses (flow control, also of priorities), broken frames, timeouts,
congestion marks, and bytes on the wire, RDMA among them. What a driver counts for each queue,
priority or lane is one channel, their sum, unless it has the sum as well. A query goes to the
card's firmware and may take a millisecond, so it is made once a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from producers.ethtool_ioctl import SystemEthtool
from producers.reading import Reader
from producers.source import SECOND_NS, Collector, Field, Options, Plan
from schemas.records import Channel, Kind, Subsystem

PATH = "sys/class/net"
LOOK_NS = 5 * SECOND_NS
MOST_CARDS = 32
MOST_METRICS = 64
"""So many channels has a card at most; the first lines of `CHOSEN` go first."""

CHOSEN = tuple(
    re.compile(pattern)
    for pattern in (
        r"out_of_buf|no_?(rx_)?buf|buff?_alloc|alloc_(fail|err)|no_desc|no_dma|wqe_err",
        r"discard|drop|miss(ed|$)|overrun|overflow|oversub|fifo",
        r"pause|pfc|xon|xoff|flow_control",
        r"timeout|hang|reset|restart|stall|stopped|underrun",
        r"crc|fcs|symbol|corrected|uncorr|fec|jabber|fragments|undersize|oversize|err(or|_|s|$)",
        r"cnp|ecn|(^|_)(np|rp)_|cong",
        r"link_down|module_|storm",
        r"(^|_)[rt]x_(bytes|packets)_(phy|nic)$|^(port_|total_)?[rt]x_(total_)?bytes(_ok)?$",
        r"(rdma|roce).*(bytes|packets|pkts)",
    )
)
"""Which statistics matter, by what is in their names, the most telling first."""

_LEVELS = re.compile(r"utiliz|(?<!high_)temp$|ring_size|queue_len|_max$|curr_|depth")
"""Statistics that are no counters. None of these is taken."""

_SIZES = re.compile(r"\d\d_?(to_|byte|oct|b_)|size_\d")
"""Frames by their length, ``rx_65_to_127_bytes_phy``: a dozen columns that nobody needs."""

_INDEXED = tuple(
    (re.compile(pattern), shorter)
    for pattern, shorter in (
        (r"^\[?\d+\]?:\s*|\[\d+\]$", ""),  # bnxt: [3]: rx_discards; gve: rx_drop_cnt[3]
        (r"^([rt]x)(?:_?queue|_?q)?[-_]?\d+[._](?=[a-z])", r"\1_"),  # rx3_, rx_queue_3_, rx-3.
        (r"^(?:queue|ch|rvec|vec|q)_?\d+[._](?=[a-z])", ""),  # ena: queue_3_rx_drops
        (r"(?<![a-z])(prio|priority|pri|cos|tc|lane)_?\d+(?![a-z0-9])", r"\1"),
    )
)
"""Where a name has the number of a queue, a priority or a lane, and what is left without it."""


class Ethtool(Protocol):
    """What is asked of a card's driver. Each raises OSError where it has no answer."""

    def count(self, interface: str) -> int:
        """Return how many statistics there are now."""

    def names(self, interface: str, count: int) -> Sequence[str]:
        """Return their names."""

    def values(self, interface: str, count: int) -> NDArray[np.uint64]:
        """Return their values, shape ``(count,)``."""

    def close(self) -> None:
        """Let go of what is open; it may be asked again."""


def without_index(name: str) -> str:
    """Return ``rx_drops`` for ``rx0_drops``, ``rx_prio_pause`` for ``rx_prio3_pause``."""
    for pattern, shorter in _INDEXED:
        name = pattern.sub(shorter, name)
    return name


def metric_of(name: str) -> str:
    """Return a name in lower case, its words joined by underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@dataclass(frozen=True)
class Choice:
    """Which statistics of a card are taken.

    Attributes
    ----------
    metrics
        What they are called.
    places
        Where they are among all, those of one metric together.
    starts
        Where in `places` each metric begins.
    """

    metrics: tuple[str, ...]
    places: NDArray[np.intp]
    starts: NDArray[np.intp]


def choose(names: Sequence[str]) -> Choice:
    """Return what is taken of a card's statistics: see `CHOSEN` and `MOST_METRICS`."""
    whole: dict[str, list[int]] = {}
    parts: dict[str, list[int]] = {}
    first: dict[str, str] = {}
    for at, name in enumerate(map(str.strip, names)):
        short = without_index(name)
        metric = metric_of(short)
        if _SIZES.search(name):
            continue
        if short != name:
            parts.setdefault(metric, []).append(at)
        elif first.setdefault(metric, name) == name:
            # Some drivers list a name once for each queue.
            whole.setdefault(metric, []).append(at)
    every = parts | whole
    rank = {metric: place for metric in every if (place := _rank(metric)) is not None}
    taken = sorted(rank, key=lambda metric: (rank[metric], every[metric][0]))[:MOST_METRICS]
    taken.sort(key=lambda metric: every[metric][0])
    counts = [len(every[metric]) for metric in taken]
    return Choice(
        tuple(taken),
        np.array([at for metric in taken for at in every[metric]], np.intp),
        np.cumsum([0, *counts], dtype=np.intp)[: len(taken)],
    )


def _rank(metric: str) -> int | None:
    if not metric or _LEVELS.search(metric):
        return None
    return next((i for i, pattern in enumerate(CHOSEN) if pattern.search(metric)), None)


def unit_of(metric: str) -> str:
    """Return the unit of a statistic, by its name: bytes, packets, or just times."""
    words = set(metric.split("_"))
    if words & {"bytes", "octets"}:
        return "B/s"
    return "packets/s" if words & {"packets", "pkts", "frames"} else "/s"


@dataclass(slots=True)
class _Card:
    count: int
    choice: Choice


class Statistics:
    """The source: the chosen statistics of every card with a driver that has some.

    Looks for cards every five seconds. One that is gone is believed at the second look.
    """

    path = PATH
    remedy = (
        "Without it packets that a card threw away are not seen. The driver has to have "
        "statistics (ethtool -S); in a container, run the agent in the host's network namespace."
    )
    period_ns = SECOND_NS

    def __init__(self, ethtool: Ethtool) -> None:
        self.problem = ""
        self.bad_fields = 0
        self.plan = Plan()
        self._ethtool = ethtool
        self._cards: dict[str, _Card] = {}
        self._gone: set[str] = set()
        self._looked_ns: int | None = None

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Ask each card."""
        looked = self._looked_ns
        if looked is None or not 0 <= mono_ns - looked < LOOK_NS:
            self._looked_ns = mono_ns
            self._look(reader)
        read = {name: self._values(name, card) for name, card in self._cards.items()}
        self._lay_out()
        numbers: list[float] = []
        for name, card in self._cards.items():
            answer = read[name]
            if answer is None:
                answer = [float("nan")] * len(card.choice.metrics)
                self.bad_fields += len(answer)
            numbers += answer
        return numbers

    def close(self) -> None:
        """Close the socket; a later reading opens it again."""
        self._ethtool.close()

    def _look(self, reader: Reader) -> None:
        listed = reader.list(PATH)
        if not isinstance(listed, tuple):
            self.problem = f"{PATH}: {listed.reason}"
            return
        there = [name for name in listed if name in self._cards or _is_card(reader, name)]
        gone = set(self._cards) - set(there)
        for name in gone & self._gone:
            del self._cards[name]
        self._gone = gone
        for name in there[:MOST_CARDS]:
            if name not in self._cards:
                card = self._card(name)
                if card is not None:
                    self._cards[name] = card
        self.problem = "" if self._cards else f"{PATH}: no card whose driver has statistics"

    def _card(self, name: str) -> _Card | None:
        try:
            count = self._ethtool.count(name)
            choice = choose(self._ethtool.names(name, count))
        except OSError:
            return None
        return _Card(count, choice) if choice.metrics else None

    def _values(self, name: str, card: _Card) -> list[float] | None:
        """Return the chosen statistics of a card, None where it does not answer."""
        try:
            count = self._ethtool.count(name)
            if count != card.count:
                # It has more queues now, or fewer.
                card.choice = choose(self._ethtool.names(name, count))
                card.count = count
            values = self._ethtool.values(name, count)
        except OSError:
            return None
        choice = card.choice
        if not choice.metrics:
            return []
        sums: list[float] = np.add.reduceat(values[choice.places], choice.starts).tolist()
        return sums

    def _lay_out(self) -> None:
        channels = tuple(
            Channel(f"ethtool.{metric}", name, Subsystem.NETWORK, unit_of(metric), Kind.RATE)
            for name, card in self._cards.items()
            for metric in card.choice.metrics
        )
        if channels != self.plan.channels:
            fields = tuple(Field(channel.label, counter=True) for channel in channels)
            self.plan = Plan(fields, channels, tuple(range(len(fields))))


def _is_card(reader: Reader, name: str) -> bool:
    """Return whether there is hardware behind an interface, and not a guest's share of a card."""
    below = f"{PATH}/{name}/device"
    return isinstance(reader.list(below), tuple) and not isinstance(
        reader.list(f"{below}/physfn"), tuple
    )


def collectors(options: Options) -> Sequence[Collector]:  # noqa: ARG001 - the table's signature
    """Return the collector of this machine's cards."""
    return [Collector("ethtool", (Statistics(SystemEthtool()),))]
