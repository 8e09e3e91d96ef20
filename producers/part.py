"""A source among others that are read together: what it means now, and when it has its turn.

Whatever a source does costs itself and nothing else: nothing that it raises gets past a `Part`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from producers.reading import Reader
from producers.source import Delegating, Plan, Shared, Sharing, Source

log = logging.getLogger(__name__)

ABSENT_NS = 10_000_000_000
"""So often, at least, a source that has no channels is looked at."""
NONE = np.empty(0, np.intp)


@dataclass(slots=True)
class CollectorStats:
    """What one collector cost and what went wrong in it, since the start.

    Attributes
    ----------
    seconds
        Reading and parsing, all samples.
    cpu_ns
        CPU time that reading took, all samples: less than `seconds` where it waited for a device.
    read_ns
        When the oldest of the readings was that its channels are of.
    stretch
        How many times rarer than they want its sources are read; see `producers.budget`.
    failures
        By reason: a source raised, or brought nothing although it had before.
    bad_fields
        Numbers that were none: not digits, negative, or beyond any counter.
    """

    seconds: float = 0.0
    cpu_ns: int = 0
    read_ns: int = 0
    stretch: int = 1
    failures: Counter[str] = field(default_factory=Counter)
    bad_fields: int = 0


@dataclass(slots=True, eq=False)
class Part:
    """A source in its group: its plan, and where its fields and channels are.

    `phase_ns` spreads those of one period over the ticks. It has had its turn from `turn_ns` on,
    and has it again at `next_ns`. It has had no channels since `absent_ns`, and was read when what
    it shares with others was of `generation`. `places` are those of its fields among all, `direct`
    those of the plan, and `direct_to` those of their channels among all.
    """

    source: Source
    stats: CollectorStats
    collector: str
    number: int
    phase_ns: int
    turn_ns: int = 0
    next_ns: int = 0
    read_ns: int = 0
    absent_ns: int | None = None
    shared: Shared | None = None
    generation: object = None
    delegating: Delegating | None = None
    elsewhere_ns: int = 0
    plan: Plan = field(default_factory=Plan)
    fields: slice = field(default_factory=lambda: slice(0, 0))
    places: NDArray[np.intp] = field(default_factory=lambda: NONE)
    direct: NDArray[np.intp] = field(default_factory=lambda: NONE)
    direct_to: NDArray[np.intp] = field(default_factory=lambda: NONE)
    channels: slice = field(default_factory=lambda: slice(0, 0))
    bad_fields: int = 0

    @classmethod
    def of(
        cls, source: Source, stats: CollectorStats, collector: str, number: int, phase_ns: int
    ) -> Self:
        """Make it of a source, and see what else that is."""
        part = cls(source, stats, collector, number, phase_ns)
        if isinstance(source, Sharing):
            part.shared = source.shared
        if isinstance(source, Delegating):
            part.delegating = source
        return part

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Return what the source gives, as many numbers as its plan has fields; NaN if unknown."""
        source = self.source
        try:
            read = source.read(reader, mono_ns)
            self.plan = source.plan
            if self.shared is not None:
                self.generation = self.shared.generation
            if self.delegating is not None:
                elsewhere = self.delegating.elsewhere_ns
                self.stats.cpu_ns += elsewhere - self.elsewhere_ns
                self.elsewhere_ns = elsewhere
            if source.bad_fields != self.bad_fields:
                self.stats.bad_fields += source.bad_fields - self.bad_fields
                self.bad_fields = source.bad_fields
            if source.problem and self.plan.fields:
                self.failed(source.problem)
            if len(read) != len(self.plan.fields):
                self.failed(f"{len(read)} numbers for {len(self.plan.fields)} fields")
                return self.plan.blank
        except Exception as e:
            self.raised(e)
            return self.plan.blank
        return read

    def take_turn(self, mono_ns: int, tick_ns: int) -> None:
        """Remember when a source has its next turn."""
        try:
            period = int(self.source.period_ns)
        except Exception as e:
            self.raised(e)
            period = ABSENT_NS
        if self.plan.fields:
            self.absent_ns = None
        elif self.absent_ns is None or mono_ns < self.absent_ns:
            self.absent_ns = mono_ns
        else:
            # Most hosts lack most devices. The longer one is not there, the longer it may take to
            # be seen when it comes.
            period = max(period, min(mono_ns - self.absent_ns, ABSENT_NS))
        if self.stats.stretch > 1:
            period = max(period, tick_ns) * self.stats.stretch
        # A turn begins at multiples of the period, less the phase.
        gone = (mono_ns + self.phase_ns) % period if period > tick_ns else 0
        self.turn_ns = mono_ns - gone
        self.next_ns = self.turn_ns + (period if period > tick_ns else 0)

    def failed(self, reason: str, error: Exception | None = None) -> None:
        """Count what went wrong, and name it once."""
        if reason not in self.stats.failures:
            log.warning("collector %s: %s", self.collector, reason, exc_info=error)
        self.stats.failures[reason] += 1

    def raised(self, error: Exception) -> None:
        """Count what a source raised."""
        self.failed(f"{self.source.path}: {type(error).__name__}: {error}", error)
