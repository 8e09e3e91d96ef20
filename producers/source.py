"""What a collector is made of: numbers, what they mean, and where they are read.

The contract in words, with an example, is in `producers/collectors/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schemas.records import Channel

if TYPE_CHECKING:
    from producers.reading import Reader

Doubles: TypeAlias = NDArray[np.float64]
Derive: TypeAlias = Callable[[Doubles], Doubles]

WRAPS_32 = 2.0**32

EVERY_TICK = 0
FIFTH_SECOND_NS = 200_000_000
HALF_SECOND_NS = 500_000_000
SECOND_NS = 1_000_000_000
TEN_SECONDS_NS = 10 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Field:
    """One number as the kernel gives it.

    Attributes
    ----------
    key
        What it is, unique in its source: its history survives a change of layout under this name.
    counter
        True for a count that only grows; False for a level.
    scale
        The level, or the counter's growth per second, times this is in the channel's unit.
    modulus
        Where the counter wraps to 0, or 0 when it does not: the kernel keeps some in 32 bits.
    """

    key: str
    counter: bool
    scale: float = 1.0
    modulus: float = 0.0


@dataclass(frozen=True, eq=False)
class Plan:
    """What the numbers of a source mean. A source makes a new one when that changes.

    Attributes
    ----------
    fields
        The numbers of a reading, in order.
    channels
        What they become: first the fields of `direct`, then what `derive` returns.
    direct
        Places in `fields` of those that are channels as they are.
    derive
        Makes the other channels from the levels and rates of all fields, NaN where unknown:
        shape ``(fields,)`` in, ``(channels - direct,)`` out. None when there are none.
    ratios
        Places in `channels` of those that mean nothing unless the rates of some fields are of one
        and the same time, and the places of these fields.
    """

    fields: tuple[Field, ...] = ()
    channels: tuple[Channel, ...] = ()
    direct: tuple[int, ...] = ()
    derive: Derive | None = None
    ratios: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @cached_property
    def blank(self) -> tuple[float, ...]:
        """A reading of which nothing is known."""
        return (float("nan"),) * len(self.fields)


class Source(Protocol):
    """A place from which numbers come, as a rule one file."""

    @property
    def path(self) -> str:
        """The file, ``proc/stat``; empty for what is not a file."""

    @property
    def remedy(self) -> str:
        """Why it matters when it cannot be read, and what to do. One or two sentences."""

    @property
    def period_ns(self) -> int:
        """How long a reading may serve, nanoseconds; `EVERY_TICK` for what changes all the time.

        It may change with a reading. Between two readings the channels keep their values.
        """

    @property
    def plan(self) -> Plan:
        """What the numbers of the newest reading mean."""

    @property
    def problem(self) -> str:
        """Why the newest reading brought nothing; empty when it did."""

    @property
    def bad_fields(self) -> int:
        """Numbers that could not be converted, since the start."""

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Return as many numbers as ``plan.fields``, NaN where unknown."""


@runtime_checkable
class Noted(Protocol):
    """What a source that can go several ways is, too."""

    @property
    def note(self) -> str:
        """Which way it went, and what it had to do without; empty for nothing to say."""


@runtime_checkable
class Closable(Protocol):
    """What a source that holds something open of its own is, too."""

    def close(self) -> None:
        """Let go of it. A later read may take it again."""


class Shared(Protocol):
    """What several sources share: devices that come and go for all of them."""

    @property
    def generation(self) -> object:
        """Another object whenever it has changed so that every source has to look again.

        It raises nothing.
        """


@runtime_checkable
class Sharing(Protocol):
    """What a source that shares something with others is, too.

    Where that is of another generation, all of them are read in that tick, whoever's turn it is:
    so the layout changes once, and not whenever one of many has its turn.
    """

    @property
    def shared(self) -> Shared:
        """What it shares, always the same object."""


@runtime_checkable
class Gathering(Protocol):
    """What sources share, too, when it does better if it does at once what they want in a tick."""

    def due(self, sources: Sequence[Source]) -> None:
        """Hear which of them are read next, in this order, in one tick; do nothing yet."""


@runtime_checkable
class Delegating(Protocol):
    """What a source that has other threads work for it is, too. All in nanoseconds."""

    @property
    def elsewhere_ns(self) -> int:
        """CPU time that other threads spent on its readings, since the start."""

    @property
    def lent_ns(self) -> int:
        """Time that went to others' readings while it was read, less the other way round."""


@dataclass(frozen=True)
class Collector:
    """The sources of one part of the host. It has state: make one for each `Group`."""

    name: str
    sources: Sequence[Source] = field(default_factory=tuple)

    def close(self) -> None:
        """Close those sources that hold something open."""
        for source in self.sources:
            if isinstance(source, Closable):
                source.close()


@dataclass(frozen=True, slots=True)
class Options:
    """What collectors that ask the machine themselves have to know of the agent's settings.

    Attributes
    ----------
    perf
        ``total``: hardware counters summed over all cores; ``per-core``; ``off``.
    """

    perf: str = "total"
