"""Counters to rates, all fields of a host at once.

Readings come as an array with a time on the monotonic clock. For a counter that only grows the
rate is its growth over the time since its own last good reading. Everything else is told apart:

============== ============================================= =========================
what           how it looks                                  what comes out
============== ============================================= =========================
first sight    no reading before                             NaN
momentary zero 0 after something else                        NaN; the next reading goes
                                                             on from the last good one
wrap           drop, the modulus is known, and the growth    the growth over the wrap
               over the wrap is in line with earlier rates
step back      a drop of a thousandth at most: per-core sums 0; growth counts again
               that the kernel reads without a lock          from the highest value seen
reset          any other drop that the next reading goes on  NaN; the next reading goes
               from, or one that stays for `PATIENCE`        on from the drop
               readings
wrong number   any other drop, and the next reading is       NaN; the next reading goes
               above it all again                            on from the last good one
not a number   NaN, negative, or 2^63 and more               NaN, as if not read
============== ============================================= =========================

A level is taken as it is, unless it is beyond 2^63 either way: then it is not a number.

So a rate is never negative and, unless two readings running are wrong in the same way, never more
than the counter truly grew. 64-bit counters never
wrap. Above 2^53 a float64 is 2 off at most, which no rate shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from producers.source import Doubles, Field

PATIENCE = 10
"""Readings for which a counter may stay below its last good value before that is a reset."""

STEP_BACK = 1e-3
"""Share of its value by which a counter may step back."""

STEP_BACK_COUNTS = 3
"""Counts by which it may step back however small it is."""

WRAP_GROWTH = 4.0
"""A wrap is believed when it means at most so many times the highest rate seen."""

OVERFLOW = 2.0**63
"""No counter gets there; the kernel's own small negative numbers, read as unsigned, do."""

_SECOND_NS = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Some of the fields, in the order of a reading of them.

    Attributes
    ----------
    fields
        Their places in `fields`; an empty reading has none.
    counters, levels
        Places in the reading.
    wraps
        Places among the counters of those that wrap.
    state
        Places of the counters among all counters.
    scale, level_scale, modulus
        Of the counters and levels.
    """

    fields: NDArray[np.intp]
    counters: NDArray[np.intp]
    levels: NDArray[np.intp]
    wraps: NDArray[np.intp]
    state: NDArray[np.intp]
    scale: Doubles
    level_scale: Doubles
    modulus: Doubles


class Rates:
    """State of the counters of one host.

    A reading need not have all fields: `view` says which, and each counter's rate is over the time
    since its own last good reading.

    Attributes
    ----------
    rejected
        Fields of the newest reading that were negative or 2^63 and more, as places in `fields`.
    events
        What happened to counters since the start: ``zero``, ``wrap``, ``step_back``, ``reset``,
        ``wrong``; a drop that turns out to be a reset is ``wrong`` first.
    longer
        Fields whose newest rate is the mean over more than the time since the reading before, as
        places in `fields`.
    """

    def __init__(self, fields: Sequence[Field] = ()) -> None:
        self._fields: tuple[Field, ...] = ()
        self._place: dict[str, int] = {}  # of a counter among the counters
        self._state = _State(0)
        self._at = -1
        self.events: Counter[str] = Counter()
        self.rejected: NDArray[np.intp] = np.empty(0, np.intp)
        self.longer: NDArray[np.intp] = np.empty(0, np.intp)
        self.relayout(fields)

    def relayout(self, fields: Sequence[Field]) -> None:
        """Take other fields. Those whose keys were there before keep their history."""
        old, before = self._place, self._state
        self._fields = tuple(fields)
        counters = [i for i, f in enumerate(self._fields) if f.counter]
        self._place = {self._fields[i].key: place for place, i in enumerate(counters)}
        self._state = _State(len(counters))
        both = [(old[key], place) for key, place in self._place.items() if key in old]
        if both:
            self._state.take(before, *np.array(both, np.intp).T)
        self._counted = np.array([f.counter for f in self._fields], np.bool_)
        self._place_of = np.cumsum(self._counted) - 1  # of a field among the counters
        self._scale = np.array([f.scale for f in self._fields], np.float64)
        self._modulus = np.array([f.modulus for f in self._fields], np.float64)
        self._whole = self.view(np.arange(len(self._fields)))

    def view(self, places: NDArray[np.intp]) -> View:
        """Return what a reading of some fields needs; good until the next `relayout`."""
        counted = self._counted[places]
        counters, levels = np.flatnonzero(counted), np.flatnonzero(~counted)
        counter = places[counters]
        return View(
            fields=places,
            counters=counters,
            levels=levels,
            wraps=np.flatnonzero(self._modulus[counter] > 0),
            state=self._place_of[counter],
            scale=self._scale[counter],
            level_scale=self._scale[places[levels]],
            modulus=self._modulus[counter],
        )

    def update(self, values: Doubles, mono_ns: int, view: View | None = None) -> Doubles:
        """Return levels and rates, each times its scale; NaN where unknown.

        Parameters
        ----------
        values
            Shape ``(fields,)``: the newest reading.
        mono_ns
            When, on the monotonic clock, nanoseconds. The same time again gives NaN for every rate
            and changes nothing; an earlier one is another boot, and everything starts anew.
        view
            Which fields were read; all by default.
        """
        v = self._whole if view is None else view
        out = np.empty(len(values))
        if self.rejected.size:
            self.rejected = np.empty(0, np.intp)
        if self.longer.size:
            self.longer = np.empty(0, np.intp)
        level = values[v.levels]
        if level.size and not (level.min() > -OVERFLOW and level.max() < OVERFLOW):
            wrong = np.abs(level) >= OVERFLOW
            self._reject(v.fields[v.levels[wrong]])
            level[wrong] = np.nan
        out[v.levels] = level * v.level_scale
        if mono_ns == self._at:
            out[v.counters] = np.nan
            return out
        if mono_ns < self._at:
            self._state.forget()
        self._at = mono_ns
        if v.counters.size:
            out[v.counters] = self._rates(values[v.counters], mono_ns, v) * v.scale
        return out

    def _rates(self, now: Doubles, mono_ns: int, v: View) -> Doubles:
        """Return the rates: at once for counters that were read before and grew since."""
        state, at = self._state, v.state
        last, asked, good = state.last[at], state.asked[at], state.good[at]
        delta = now - last
        rate: Doubles = delta * (_SECOND_NS / (mono_ns - asked))
        odd: NDArray[np.intp] | None = None
        # A NaN makes the comparison false.
        if not (good.all() and delta.min() >= 0 and now.max() < OVERFLOW):
            odd = np.flatnonzero(~(good & (delta >= 0) & (now < OVERFLOW)))
            rate[odd] = 0.0
        if v.wraps.size:
            wrapping = at[v.wraps]
            state.peak[wrapping] = np.maximum(state.peak[wrapping], rate[v.wraps])
        state.last[at] = now
        state.asked[at] = mono_ns
        if odd is not None:
            rate[odd] = self._careful(now[odd], last[odd], asked[odd], mono_ns, v, odd)
        return rate

    def _careful(
        self,
        now: Doubles,
        last: Doubles,
        asked: NDArray[np.int64],
        mono_ns: int,
        v: View,
        odd: NDArray[np.intp],
    ) -> Doubles:
        """Return the rates of those counters of a reading that cannot be had so simply.

        `last` and `asked` are of before, and all their state is written here.
        """
        state, at = self._state, v.state[odd]
        modulus = v.modulus[odd]
        seen = np.where(state.good[at], asked, state.seen[at])
        below, low, low_seen = state.below[at], state.low[at], state.low_seen[at]
        peak = state.peak[at]
        known = ~np.isnan(last)
        valid = (now >= 0) & (now < OVERFLOW)
        wrong = ~valid & ~np.isnan(now)
        if wrong.any():
            self._reject(v.fields[v.counters[odd[wrong]]])
        seconds = (mono_ns - seen) / _SECOND_NS
        # Placeholders where a value is missing, so that no comparison meets a NaN.
        here = np.where(valid, now, 0.0)
        there = np.where(known, last, 0.0)
        delta = here - there
        both = valid & known
        back = both & (delta < 0)
        patient = back & (below < PATIENCE)
        over = delta + modulus
        # A zero comes first: were it taken for a wrap, the next good reading would be a spike.
        zero = patient & (here == 0)
        wrap = back & ~zero & (modulus > 0) & (over >= 0)
        wrap &= over <= WRAP_GROWTH * peak * seconds
        step = patient & ~wrap & ~zero
        step &= -delta <= np.maximum(STEP_BACK_COUNTS, STEP_BACK * there)
        grown = both & ~back
        drop = back & ~zero & ~wrap & ~step
        reset = drop & (here >= np.where(np.isnan(low), np.inf, low))

        rate = np.full(len(now), np.nan)
        rate[grown] = delta[grown] / seconds[grown]
        rate[wrap] = over[wrap] / seconds[wrap]
        since_low = (mono_ns - low_seen[reset]) / _SECOND_NS
        rate[reset] = (here - low)[reset] / since_low
        state.peak[at] = np.fmax(peak, rate)
        rate[step] = 0.0
        self.longer = v.fields[v.counters[odd[(grown | wrap) & (seen < asked)]]]

        doubt = drop & ~reset & patient
        if back.any():
            self._count(zero=zero, wrap=wrap, step_back=step, reset=drop & ~doubt, wrong=doubt)
        state.low[at] = np.where(doubt, here, np.where(valid & ~zero, np.nan, low))
        state.low_seen[at] = np.where(doubt, mono_ns, low_seen)
        wait = zero | step | doubt
        keep = wait | ~valid
        state.last[at] = np.where(keep, last, now)
        # After a step back the value stays and time goes on: the growth that comes is the next
        # reading's alone. After a zero or a gap the next rate is the mean since the last good one.
        state.seen[at] = np.where(keep & ~step, seen, mono_ns)
        state.below[at] = np.where(wait, below + 1, np.where(valid, 0, below))
        state.good[at] = ~keep
        return rate

    def _count(self, **events: NDArray[np.bool_]) -> None:
        self.events.update({name: int(n) for name, at in events.items() if (n := at.sum())})

    def _reject(self, places: NDArray[np.intp]) -> None:
        self.rejected = np.concatenate((self.rejected, places))


class _State:
    """What is known of each counter, shape ``(counters,)``.

    Attributes
    ----------
    last
        The last good reading, NaN before the first.
    asked
        When the newest reading was, whatever it brought.
    good
        Whether it was good, and `last` is what it brought.
    seen
        When `last` was read, unless it is `good`: then that was when it was `asked`.
    below
        Readings running that were below `last`.
    peak
        The highest rate, of those that wrap.
    low, low_seen
        A drop that the next reading has to confirm, NaN when there is none; and when that was.
    """

    def __init__(self, n: int) -> None:
        self.last = np.full(n, np.nan)
        self.asked = np.full(n, -1, np.int64)
        self.good = np.zeros(n, np.bool_)
        self.seen = np.full(n, -1, np.int64)
        self.below = np.zeros(n, np.int64)
        self.peak = np.zeros(n)
        self.low = np.full(n, np.nan)
        self.low_seen = np.zeros(n, np.int64)

    def take(self, other: _State, was: NDArray[np.intp], now: NDArray[np.intp]) -> None:
        """Take over the history of some counters."""
        for name, mine in vars(self).items():
            mine[now] = vars(other)[name][was]

    def forget(self) -> None:
        """Begin anew: the machine did."""
        self.last[:] = np.nan
        self.low[:] = np.nan
        self.good[:] = False
        self.asked[:] = self.seen[:] = -1
