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
UNKNOWN_NS = 1_000_000_000
"""So often a source is read that has not been able to say yet how often it wants to be."""
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
    it shares with others was of `generation`. `period_ns` is the newest that was one. `places` are
    those of its fields among all, `direct` those of the plan, and `direct_to` those of their
    channels among all.
    """

    source: Source
    stats: CollectorStats
    collector: str
    number: int
    phase_ns: int
    turn_ns: int = 0
    next_ns: int = 0
    read_ns: int = 0
    period_ns: int = UNKNOWN_NS
    absent_ns: int | None = None
    shared: Shared | None = None
    generation: object = None
    delegating: Delegating | None = None
    elsewhere_ns: int = 0
    lent_ns: int = 0
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
        try:
            if isinstance(source, Sharing):
                part.shared = source.shared
            if isinstance(source, Delegating):
                part.delegating = source
        except Exception as e:
            part.raised(e)
        return part

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Return what the source gives, as many numbers as its plan has fields; NaN if unknown."""
        source = self.source
        try:
            read = source.read(reader, mono_ns)
            plan = source.plan
            if plan is not self.plan:
                _check(plan)
                self.plan = plan
            if self.shared is not None:
                generation = self.shared.generation
                if generation is not self.generation:
                    self.generation = generation
                    self.absent_ns = None
            if self.delegating is not None:
                elsewhere, lent = self.delegating.elsewhere_ns, self.delegating.lent_ns
                self.stats.cpu_ns += elsewhere - self.elsewhere_ns
                self.stats.seconds -= (lent - self.lent_ns) / 1e9
                self.elsewhere_ns, self.lent_ns = elsewhere, lent
            if source.bad_fields != self.bad_fields:
                self.stats.bad_fields += source.bad_fields - self.bad_fields
                self.bad_fields = source.bad_fields
            if source.problem and self.plan.fields:
                self.failed(str(source.problem))
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
            if period < 0:
                raise ValueError(f"a period of {period} ns")  # noqa: TRY301 - it is as if it raised
            self.period_ns = period
        except Exception as e:
            self.raised(e)
            period = self.period_ns
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
        self.failed(f"{self.path}: {type(error).__name__}: {error}", error)

    @property
    def path(self) -> str:
        """What the source reads; the collector's name where it cannot tell."""
        try:
            return str(self.source.path)
        except Exception:
            return self.collector


def _check(plan: Plan) -> None:
    """Raise what a group would trip over later, in the midst of other sources."""
    fields, direct = len(plan.fields), plan.direct
    if len(direct) > len(plan.channels):
        raise ValueError(f"{len(plan.channels)} channels for {direct}")
    if not all(0 <= at < fields for at in direct):
        raise ValueError(f"of {fields} fields the channels are {direct}")
