"""What episodes were worth, held against labels: events found, how late, and how many for nothing.

An event is found by the first episode that was opened while it lasted. An episode that was opened
neither then nor in the grace after it (caches and queues recover) is false. Events that cost
nothing are counted apart: nobody would miss them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOUR_S, DAY_S = 3600.0, 86400.0
NO_COST = 1.05
"""A step that takes less than this times the usual costs nobody anything."""


@dataclass(frozen=True, slots=True)
class Event:
    """A labelled fault.

    Attributes
    ----------
    fault, variant
        Which it is, and how strong.
    subsystem
        That it belongs to.
    start_us, end_us
        On the wall clock, microseconds since the epoch.
    cost
        What it cost the job: time of a step over the usual. NaN where nobody knows.
    """

    fault: str
    variant: int
    subsystem: str
    start_us: int
    end_us: int
    cost: float = math.nan

    @property
    def is_free(self) -> bool:
        """Return whether it is known to have cost nothing."""
        return self.cost < NO_COST


@dataclass(frozen=True, slots=True)
class Told:
    """An episode of one host as it was opened: when it was told, and the subsystem blamed most."""

    host: str
    opened_us: int
    subsystem: str


@dataclass(slots=True)
class Tally:
    """Events of a kind on all hosts, and what was found of them. Delays are in seconds."""

    events: int = 0
    found: int = 0
    right_subsystem: int = 0
    delays_s: list[float] = field(default_factory=list)

    def add(self, event: Event, told: Told | None) -> None:
        """Take in one event of one host, and the episode that found it."""
        self.events += 1
        if told is not None:
            self.found += 1
            self.right_subsystem += told.subsystem == event.subsystem
            self.delays_s.append((told.opened_us - event.start_us) / 1e6)

    @property
    def recall(self) -> float:
        """Share of the events that were found; NaN without any."""
        return _share(self.found, self.events)

    @property
    def subsystem_accuracy(self) -> float:
        """Share of those found of which the right subsystem was blamed first."""
        return _share(self.right_subsystem, self.found)

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
        All events but the free ones, those, and all by fault and variant.
    episodes, false
        Episodes, and those of no event.
    """

    hosts: int
    watched_s: float
    every: Tally = field(default_factory=Tally)
    free: Tally = field(default_factory=Tally)
    per_fault: dict[tuple[str, int], Tally] = field(default_factory=dict)
    episodes: int = 0
    false: int = 0

    @property
    def precision(self) -> float:
        """Share of the episodes that belong to an event."""
        return _share(self.episodes - self.false, self.episodes)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        precision, recall = self.precision, self.every.recall
        return _share(2 * precision * recall, precision + recall)

    def false_every(self, seconds: float) -> float:
        """Return the false episodes in so many seconds of one host."""
        return _share(self.false * seconds, self.watched_s)


def evaluate(
    events: Sequence[Event],
    told: Iterable[Told],
    hosts: Sequence[str],
    watched_s: float,
    grace_s: float = 10.0,
) -> Evaluation:
    """Hold episodes against events, each of which concerns every host.

    Parameters
    ----------
    events
        In any order; those before the hosts were watched left out.
    told
        Of all hosts.
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
        done.false += sum(
            not any(e.start_us < t.opened_us < e.end_us + grace_us for e in events) for t in own
        )
        for event in events:
            first = next((t for t in own if event.start_us < t.opened_us < event.end_us), None)
            (done.free if event.is_free else done.every).add(event, first)
            key = event.fault, event.variant
            done.per_fault.setdefault(key, Tally()).add(event, first)
    return done


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
