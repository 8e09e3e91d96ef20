"""What episodes were worth, held against labels: events found, how late, and how many for nothing.

An event is found by the first episode that was told while it lasted. An episode needs several odd
windows before it is told, so one that was told in the grace after a short event and began in it
finds it, too, that much later. An episode that was told neither then nor in the grace (caches and
queues recover) is false. One on a host that a running event does not name is neither right nor
false: a flood in one namespace costs its neighbours their cores. Events that cost nothing are
counted apart: nobody would miss them.

What an episode is taken for is told again as it gets worse. An event's account is the last one of
the episode that found it, as of the event's end, or where it says "at open", the first.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOUR_S, DAY_S = 3600.0, 86400.0
NO_COST = 1.05
"""A step that takes less than this times the usual costs nobody anything."""

UNNAMED = "anomaly"
"""Fault of an event of which nobody says what it was: no cause is right or wrong."""
RULE_OF = {
    UNNAMED: "",
    "hugepages_preallocated": "hugepages",
    "memory_hog": "memory_exhaustion",
    "rank_stall": "stalled_rank",
    "timer_irq_storm": "interrupt_storm",
}
"""The rule that is right for a fault, where it has another name than the fault."""
NO_CAUSE, MISSED = "none", "missed"
"""In place of a cause: the episode has none; there is no episode."""


@dataclass(frozen=True, slots=True)
class Event:
    """A labelled fault.

    Attributes
    ----------
    fault, variant
        Which it is, and how strong.
    subsystem
        That it belongs to; empty where nobody knows.
    start_us, end_us
        On the wall clock, microseconds since the epoch.
    cost
        What it cost the job: time of a step over the usual. NaN where nobody knows.
    hosts
        On which it is expected; empty for all.
    """

    fault: str
    variant: int
    subsystem: str
    start_us: int
    end_us: int
    cost: float = math.nan
    hosts: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Return whether it is known to have cost nothing."""
        return self.cost < NO_COST

    @property
    def cause(self) -> str:
        """The rule that should name it; empty where none can be right."""
        return RULE_OF.get(self.fault, self.fault)

    def is_on(self, host: str) -> bool:
        """Return whether it is expected on a host."""
        return not self.hosts or host in self.hosts


@dataclass(frozen=True, slots=True)
class Account:
    """What an episode was taken for at a time.

    Attributes
    ----------
    at_us
        When it was told.
    subsystem, cause
        Those named first; empty for none.
    sharing
        Other subsystems that carry much of the blame, too.
    """

    at_us: int
    subsystem: str
    cause: str = ""
    sharing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """An episode of one host: when it began, and what was told of it, in order of time."""

    host: str
    onset_us: int
    accounts: tuple[Account, ...]

    @property
    def opened_us(self) -> int:
        """When it was told first."""
        return self.accounts[0].at_us

    def last_by(self, us: int) -> Account:
        """Return the last account up to a time, or the first where all are later."""
        return next((a for a in reversed(self.accounts) if a.at_us <= us), self.accounts[0])


class Verdict(StrEnum):
    """What an episode is, held against events."""

    RIGHT = "right"
    FALSE = "false"
    ELSEWHERE = "elsewhere"
    """An event was running, but not one that names its host: neither right nor false."""


@dataclass(slots=True)
class Right:
    """How often the first guess was right, of `judged` found events whose answer is known."""

    judged: int = 0
    last: int = 0
    at_open: int = 0

    def add(self, answer: str, last: str, first: str) -> None:
        """Take in a guess; there is none to judge where the answer is not known."""
        if answer:
            self.judged += 1
            self.last += last == answer
            self.at_open += first == answer

    @property
    def accuracy(self) -> float:
        """Share of right last accounts; NaN without any."""
        return _share(self.last, self.judged)

    @property
    def accuracy_at_open(self) -> float:
        """Share of right first accounts; NaN without any."""
        return _share(self.at_open, self.judged)


@dataclass(slots=True)
class Tally:
    """Events of a kind on all hosts, and what was found of them. Delays are in seconds.

    `shared` counts last accounts in which the right subsystem is the first or shares the blame.
    """

    events: int = 0
    found: int = 0
    shared: int = 0
    subsystem: Right = field(default_factory=Right)
    cause: Right = field(default_factory=Right)
    delays_s: list[float] = field(default_factory=list)

    def add(self, event: Event, told: Told | None) -> None:
        """Take in one event of one host, and the episode that found it."""
        self.events += 1
        if told is not None:
            first, last = told.accounts[0], told.last_by(event.end_us)
            self.found += 1
            self.shared += bool(event.subsystem) and (
                event.subsystem in (last.subsystem, *last.sharing)
            )
            self.subsystem.add(event.subsystem, last.subsystem, first.subsystem)
            self.cause.add(event.cause, last.cause, first.cause)
            self.delays_s.append((told.opened_us - event.start_us) / 1e6)

    @property
    def recall(self) -> float:
        """Share of the events that were found; NaN without any."""
        return _share(self.found, self.events)

    @property
    def shared_accuracy(self) -> float:
        """Share of those found in which the right subsystem carries much of the blame."""
        return _share(self.shared, self.subsystem.judged)

    @property
    def delay_p50_s(self) -> float:
        """Median time from an event's start to its being told."""
        return median(self.delays_s) if self.delays_s else math.nan


@dataclass(slots=True)
class Evaluation:
    """Episodes held against events.

    Attributes
    ----------
    hosts, watched_s
        How many, and the seconds that they were watched, summed.
    every, free, per_fault
        All events but the free ones, those, and all by fault and variant. An event counts once
        for each host that it is expected on.
    anywhere
        Share of the events but the free ones that were found on at least one host.
    confusion
        By fault, how often which cause was named first in the last account, `NO_CAUSE` and
        `MISSED` among them; all events that a rule could name.
    episodes, false, elsewhere
        Episodes, those of no event, and those on hosts that the running event does not name.
    """

    hosts: int
    watched_s: float
    every: Tally = field(default_factory=Tally)
    free: Tally = field(default_factory=Tally)
    per_fault: dict[tuple[str, int], Tally] = field(default_factory=dict)
    anywhere: float = math.nan
    confusion: dict[str, Counter[str]] = field(default_factory=dict)
    episodes: int = 0
    false: int = 0
    elsewhere: int = 0

    @property
    def precision(self) -> float:
        """Share of the episodes that belong to an event, of all that are right or false."""
        judged = self.episodes - self.elsewhere
        return _share(judged - self.false, judged)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        precision, recall = self.precision, self.every.recall
        return _share(2 * precision * recall, precision + recall)

    def false_every(self, seconds: float) -> float:
        """Return the false episodes in so many seconds of one host."""
        return _share(self.false * seconds, self.watched_s)

    def _take(self, event: Event, finder: Told | None) -> None:
        (self.free if event.is_free else self.every).add(event, finder)
        self.per_fault.setdefault((event.fault, event.variant), Tally()).add(event, finder)
        if event.cause:
            named = MISSED if finder is None else finder.last_by(event.end_us).cause or NO_CAUSE
            self.confusion.setdefault(event.fault, Counter())[named] += 1


def evaluate(
    events: Sequence[Event],
    told: Iterable[Told],
    hosts: Sequence[str],
    watched_s: float,
    grace_s: float = 10.0,
) -> Evaluation:
    """Hold episodes against events.

    Parameters
    ----------
    events
        In any order; those before the hosts were watched left out.
    told
        Episodes of all hosts, in any order.
    hosts, watched_s
        Those that were watched, and for how many seconds, summed over them.
    grace_s
        Seconds after an event in which an episode is still its own.
    """
    done = Evaluation(len(hosts), watched_s)
    grace_us = int(grace_s * 1e6)
    by_host: dict[str, list[Told]] = {host: [] for host in hosts}
    for episode in sorted(told, key=lambda t: t.opened_us):
        by_host[episode.host].append(episode)
    for own in by_host.values():
        done.episodes += len(own)
        verdicts = Counter(verdict(t, events, grace_us) for t in own)
        done.false += verdicts[Verdict.FALSE]
        done.elsewhere += verdicts[Verdict.ELSEWHERE]
    costly: list[bool] = []
    for event in events:
        finders = [finder(event, by_host[host], grace_us) for host in hosts if event.is_on(host)]
        for found in finders:
            done._take(event, found)
        if finders and not event.is_free:
            costly.append(any(found is not None for found in finders))
    done.anywhere = _share(sum(costly), len(costly))
    return done


def verdict(told: Told, events: Iterable[Event], grace_us: int) -> Verdict:
    """Return whether an episode belongs to an event: told while one lasts or in its grace."""
    around = [e for e in events if e.start_us < told.opened_us < e.end_us + grace_us]
    if not around:
        return Verdict.FALSE
    return Verdict.RIGHT if any(e.is_on(told.host) for e in around) else Verdict.ELSEWHERE


def finder(event: Event, own: Iterable[Told], grace_us: int) -> Told | None:
    """Return the episode that found an event, of those of one host in order of their opening."""
    for t in own:
        if event.start_us < t.opened_us < event.end_us:
            return t
        began_in_it = event.start_us <= t.onset_us < event.end_us
        if began_in_it and t.opened_us < event.end_us + grace_us:
            return t
    return None


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
