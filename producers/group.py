"""Collectors that are read together: whose turn it is, and what becomes of what they give."""

from __future__ import annotations

import contextlib
import itertools
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from producers.part import NONE, CollectorStats, Part
from producers.rates import Rates, View
from producers.reading import Reader
from producers.source import Collector, Derive, Doubles, Field, Gathering
from schemas.records import Channel, Floats

TICK_NS = 100_000_000
STRETCH_NS = 1_000_000_000
"""So often it is looked whether somebody set `CollectorStats.stretch`."""
_NOT_READ = -1
_NEVER_NS = 2**63
_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, less their whole part, are spread evenly, however many there are."""
_PHASES_NS = 60 * 10**9
_PASSES = 1000
"""So many are remembered: of sources that are read once a second, ten of a hundred differ."""


@dataclass(slots=True, eq=False)
class _Turns:
    """The sources of a collector, and when there is nothing to do for any of them.

    That is from `turn_ns` up to `next_ns`, unless somebody changes the stretch.
    """

    stats: CollectorStats
    parts: list[Part]
    stretch: int = 1
    turn_ns: int = 0
    next_ns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """What becomes of the numbers of sources that are read at once, in the order of reading.

    `direct_from` are places in the reading, `direct_to` those of their channels. `derived` are the
    sources that make channels themselves, and where their numbers are in the reading.
    """

    view: View
    direct_from: NDArray[np.intp]
    direct_to: NDArray[np.intp]
    derived: tuple[tuple[Part, Derive, slice], ...]


class Group:
    """Collectors that are read together.

    Attributes
    ----------
    channels
        What the values of the newest collection mean; the same object until that changes.
    stats
        By collector's name.
    events
        Counters that wrapped, went back or started anew, since the start; see `Rates.events`.
    """

    def __init__(
        self,
        collectors: Iterable[Collector],
        reader: Reader,
        *,
        tick_ns: int = TICK_NS,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._reader = reader
        self._tick_ns = tick_ns
        self._clock_ns = clock_ns
        self._cpu_ns = cpu_ns
        self.stats: dict[str, CollectorStats] = {}
        self._rates = Rates()
        self.events = self._rates.events
        self._passes: dict[tuple[int, ...], _Pass] = {}
        self._collectors: list[_Turns] = []
        numbers, phases = itertools.count(), itertools.count(0, _GOLDEN)
        for collector in collectors:
            if collector.name in self.stats:
                raise ValueError(f"two collectors are called {collector.name}")
            stats = self.stats[collector.name] = CollectorStats()
            parts = []
            for source in collector.sources:
                phase_ns = int(next(phases) % 1 * _PHASES_NS)
                parts.append(Part.of(source, stats, collector.name, next(numbers), phase_ns))
            self._collectors.append(_Turns(stats, parts))
        self._parts = [part for turns in self._collectors for part in turns.parts]
        self._shared = {id(p.shared): p.shared for p in self._parts if p.shared is not None}
        self._generations: dict[int, object] = {}
        self._gathering = [
            (shared, [p for p in self._parts if p.shared is shared])
            for shared in self._shared.values()
            if isinstance(shared, Gathering)
        ]
        self.channels: tuple[Channel, ...] = ()
        self._at = _NOT_READ
        self._stretch_ns = _NOT_READ
        self._changed = False
        self._all: Doubles = np.empty(0)
        self._values: Floats = np.empty(0, np.float32)

    def collect(self, mono_ns: int, *, whole: bool = False) -> Floats:
        """Return the values at `mono_ns`, shape ``(channels,)``; NaN where unknown.

        Sources whose turn it is not keep their values, unless the `whole` is asked for. Asked for
        the same time again, it returns the same array without reading.
        """
        if mono_ns == self._at:
            return self._values
        given: dict[int, Sequence[float]] = {}
        if self._shared:
            self._call_those_that_share()
        if not 0 <= mono_ns - self._stretch_ns < STRETCH_NS:
            self._stretch_ns = mono_ns
            self._stretch(mono_ns)
        for gathering, parts in self._gathering:
            due = [p for p in parts if whole or not p.turn_ns <= mono_ns < p.next_ns]
            with contextlib.suppress(Exception):  # each does what it wants by itself, then
                gathering.due([p.source for p in due])
        before, cpu = self._clock_ns(), self._cpu_ns()
        for turns in self._collectors:
            if turns.turn_ns <= mono_ns < turns.next_ns and not whole:
                continue
            self._take_turns(turns, mono_ns, given, whole=whole)
            after, cpu_after = self._clock_ns(), self._cpu_ns()
            turns.stats.seconds += (after - before) / 1e9
            turns.stats.cpu_ns += cpu_after - cpu
            before, cpu = after, cpu_after
        # Reading may have found out that devices came or went.
        for turns in self._call_those_that_share() if self._shared else ():
            self._take_turns(turns, mono_ns, given)
            after, cpu_after = self._clock_ns(), self._cpu_ns()
            turns.stats.seconds += (after - before) / 1e9
            turns.stats.cpu_ns += cpu_after - cpu
            before, cpu = after, cpu_after
        if self._changed:
            self._changed = False
            self._rebuild()
        self._advance(given, mono_ns)
        self._values = self._all.astype(np.float32)
        self._values.flags.writeable = False
        self._at = mono_ns
        return self._values

    def _call_those_that_share(self) -> list[_Turns]:
        """Give a turn to sources when what they share has changed; return their collectors."""
        called: list[_Turns] = []
        for key, shared in self._shared.items():
            before = self._generations.get(key)
            try:
                generation = shared.generation
            except Exception:  # its sources fail by it, and say so
                generation = before
            if generation is before:
                continue
            self._generations[key] = generation
            for turns in self._collectors:
                for part in turns.parts:
                    if part.shared is shared and part.generation is not generation:
                        part.next_ns = turns.next_ns = 0
                        if turns not in called:
                            called.append(turns)
        return called

    def _take_turns(
        self,
        turns: _Turns,
        mono_ns: int,
        given: dict[int, Sequence[float]],
        *,
        whole: bool = False,
    ) -> None:
        """Read the sources of a collector whose turn it is; add what they gave, by number."""
        turn_ns, next_ns, read_ns = 0, _NEVER_NS if turns.parts else 0, mono_ns
        for part in turns.parts:
            if whole or not part.turn_ns <= mono_ns < part.next_ns:
                part.read_ns = mono_ns
                plan = part.plan
                numbers = part.read(self._reader, mono_ns)
                if part.plan is not plan:
                    self._changed = True
                if part.plan.fields:
                    given[part.number] = numbers
                else:
                    given.pop(part.number, None)  # it had some when it was read before in this tick
                part.take_turn(mono_ns, self._tick_ns)
            elif part.read_ns < read_ns:
                read_ns = part.read_ns
            if part.turn_ns > turn_ns:
                turn_ns = part.turn_ns
            if part.next_ns < next_ns:
                next_ns = part.next_ns
        turns.turn_ns, turns.next_ns, turns.stats.read_ns = turn_ns, next_ns, read_ns

    def _stretch(self, mono_ns: int) -> None:
        """Give sources other turns where somebody set another stretch; what is due stays due."""
        for turns in self._collectors:
            if turns.stretch == turns.stats.stretch:
                continue
            turns.stretch = turns.stats.stretch
            for part in turns.parts:
                if part.turn_ns <= mono_ns < part.next_ns:
                    part.take_turn(mono_ns, self._tick_ns)
            turns.next_ns = 0

    def _pass(self, sources: Iterable[int]) -> _Pass:
        """Return what becomes of the numbers of these sources."""
        read = tuple(sources)
        found = self._passes.get(read)
        if found is None:
            if len(self._passes) == _PASSES:
                self._passes.clear()
            found = self._passes[read] = self._make_pass([self._parts[n] for n in read])
        return found

    def _make_pass(self, parts: Sequence[Part]) -> _Pass:
        places: list[NDArray[np.intp]] = [NONE]
        direct_from: list[NDArray[np.intp]] = [NONE]
        direct_to: list[NDArray[np.intp]] = [NONE]
        derived: list[tuple[Part, Derive, slice]] = []
        first = 0
        for part in parts:
            places.append(part.places)
            direct_from.append(part.direct + first)
            direct_to.append(part.direct_to)
            last = first + len(part.places)
            if part.plan.derive is not None:
                derived.append((part, part.plan.derive, slice(first, last)))
            first = last
        return _Pass(
            self._rates.view(np.concatenate(places)),
            np.concatenate(direct_from),
            np.concatenate(direct_to),
            tuple(derived),
        )

    def _advance(self, given: Mapping[int, Sequence[float]], mono_ns: int) -> None:
        """Set the values after a reading; those of sources that were not read stay."""
        done = self._pass(given)
        try:
            numbers = _doubles([*itertools.chain.from_iterable(given.values())])
        except (TypeError, ValueError):
            numbers = _doubles(self._without_what_is_no_number(given))
        levels = self._rates.update(numbers, mono_ns, done.view)
        if self._rates.rejected.size:
            self._count_rejected()
        values = self._all
        values[done.direct_to] = levels[done.direct_from]
        for part, derive, place in done.derived:
            self._derive(part, derive, levels[place], values)
        if self._rates.longer.size:
            for part, _, _ in done.derived:
                _drop_mixed(part, self._rates.longer - part.fields.start, values)

    def _without_what_is_no_number(self, given: Mapping[int, Sequence[object]]) -> list[float]:
        """Return numbers in which what is none is unknown, and count it."""
        cleaned: list[float] = []
        for part, number in ((self._parts[n], x) for n, read in given.items() for x in read):
            if isinstance(number, int | float | np.number) and not np.iscomplexobj(number):
                cleaned.append(float(number) if isinstance(number, np.number) else number)
            else:
                cleaned.append(float("nan"))
                part.stats.bad_fields += 1
                part.failed(f"{part.path}: no number but {type(number).__name__}")
        return cleaned

    def _count_rejected(self) -> None:
        for part in self._parts:
            at = part.fields
            hit = (self._rates.rejected >= at.start) & (self._rates.rejected < at.stop)
            part.stats.bad_fields += int(np.count_nonzero(hit))

    def _derive(self, part: Part, derive: Derive, levels: Doubles, values: Doubles) -> None:
        """Set the channels that a source makes of its levels and rates."""
        at = slice(part.channels.start + len(part.plan.direct), part.channels.stop)
        try:
            values[at] = derive(levels)
        except Exception as e:
            part.raised(e)
            values[at] = np.nan

    def _rebuild(self) -> None:
        """Lay fields and channels out anew. What was there before keeps its history."""
        fields: list[Field] = []
        channels: list[Channel] = []
        kept: list[tuple[slice, slice]] = []
        for part in self._parts:
            plan, was = part.plan, part.channels
            part.channels = slice(len(channels), len(channels) + len(plan.channels))
            channels += plan.channels
            if was.stop - was.start == len(plan.channels):
                kept.append((part.channels, was))
            part.fields = slice(len(fields), len(fields) + len(plan.fields))
            part.places = np.arange(part.fields.start, part.fields.stop)
            part.direct = np.array(plan.direct, np.intp)
            part.direct_to = np.arange(len(plan.direct)) + part.channels.start
            # Two sources may use one key; the number tells them apart.
            n = part.number
            fields += (Field(f"{n} {f.key}", f.counter, f.scale, f.modulus) for f in plan.fields)
        self.channels = tuple(channels)
        self._rates.relayout(fields)
        self._passes.clear()
        old = self._all
        self._all = np.full(len(channels), np.nan)
        for now, was in kept:
            self._all[now] = old[was]


def _drop_mixed(part: Part, longer: NDArray[np.intp], values: Doubles) -> None:
    """Blank ratios of a rate to one that is, after a gap, a mean over a longer time."""
    for channel, fields in part.plan.ratios:
        if 0 < len(np.intersect1d(longer, fields)) < len(fields):
            values[part.channels.start + channel] = np.nan


def _doubles(numbers: Sequence[float]) -> Doubles:
    """Return numbers as an array.

    Raises
    ------
    TypeError
        One of them is none. NumPy would take ``"7"`` for 7, and None for NaN.
    """
    try:
        return np.frombuffer(array("d", numbers))
    except OverflowError:  # an integer of more than 308 digits
        return np.array([n if abs(n) < 1e300 else np.inf for n in numbers], np.float64)
