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


class Rates:
    """State of the counters of one host.

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
        self._last: Doubles = np.empty(0)
        self._seen: NDArray[np.int64] = np.empty(0, np.int64)
        self._below: NDArray[np.int64] = np.empty(0, np.int64)
        self._peak: Doubles = np.empty(0)
        self._low: Doubles = np.empty(0)  # a drop that the next reading has to confirm, or NaN
        self._low_seen: NDArray[np.int64] = np.empty(0, np.int64)
        self._at = -1
        self._even = False  # every counter had a good reading at `_at`
        self.events: Counter[str] = Counter()
        self.rejected: NDArray[np.intp] = np.empty(0, np.intp)
        self.longer: NDArray[np.intp] = np.empty(0, np.intp)
        self.relayout(fields)

    def relayout(self, fields: Sequence[Field]) -> None:
        """Take other fields. Those whose keys were there before keep their history."""
        self._note_times()
        old = self._place
        kept = (self._last, self._seen, self._below, self._peak, self._low, self._low_seen)
        self._fields = tuple(fields)
        counters = [i for i, f in enumerate(self._fields) if f.counter]
        levels = [i for i, f in enumerate(self._fields) if not f.counter]
        self._counters = np.array(counters, np.intp)
        self._levels = np.array(levels, np.intp)
        self._scale = np.array([self._fields[i].scale for i in counters], np.float64)
        self._level_scale = np.array([self._fields[i].scale for i in levels], np.float64)
        self._modulus = np.array([self._fields[i].modulus for i in counters], np.float64)
        n = len(counters)
        self._last = np.full(n, np.nan)
        self._seen = np.zeros(n, np.int64)
        self._below = np.zeros(n, np.int64)
        self._peak = np.zeros(n)
        self._low = np.full(n, np.nan)
        self._low_seen = np.zeros(n, np.int64)
        self._place = {self._fields[i].key: place for place, i in enumerate(counters)}
        both = [(old[key], place) for key, place in self._place.items() if key in old]
        if both:
            was, now = np.array(both, np.intp).T
            fresh = (self._last, self._seen, self._below, self._peak, self._low, self._low_seen)
            for new, before in zip(fresh, kept, strict=True):
                new[now] = before[was]
        self._even = False

    def part(self, fields: Sequence[Field], place: slice) -> Rates:
        """Return the state of some fields as one of its own; `place` is where they are here.

        Only their names may differ from those that they have here.
        """
        self._note_times()
        other = Rates(fields)
        mine = (self._counters >= place.start) & (self._counters < place.stop)
        for name in ("_last", "_seen", "_below", "_peak", "_low", "_low_seen"):
            getattr(other, name)[:] = getattr(self, name)[mine]
        other._at = self._at
        other.events = self.events
        return other

    def update(self, values: Doubles, mono_ns: int) -> Doubles:
        """Return levels and rates, each times its scale; NaN where unknown.

        Parameters
        ----------
        values
            Shape ``(fields,)``: the newest reading.
        mono_ns
            When, on the monotonic clock, nanoseconds. The same time again gives NaN for every rate
            and changes nothing; an earlier one is another boot, and everything starts anew.
        """
        out = np.empty(len(values))
        if self.rejected.size:
            self.rejected = np.empty(0, np.intp)
        if self.longer.size:
            self.longer = np.empty(0, np.intp)
        level = values[self._levels]
        if level.size and not (level.min() > -OVERFLOW and level.max() < OVERFLOW):
            wrong = np.abs(level) >= OVERFLOW
            self._reject(self._levels[wrong])
            level[wrong] = np.nan
        out[self._levels] = level * self._level_scale
        now = values[self._counters]
        if mono_ns == self._at:
            out[self._counters] = np.nan
            return out
        if mono_ns < self._at:
            self._last[:] = np.nan
            self._low[:] = np.nan
            self._even = False
        rate = self._steady(now, mono_ns)
        if rate is None:
            rate = self._careful(now, mono_ns)
        self._at = mono_ns
        out[self._counters] = rate * self._scale
        return out

    def _steady(self, now: Doubles, mono_ns: int) -> Doubles | None:
        """Return the rates when every counter was read before and grew since; else None."""
        if not self._even or not now.size:
            return None
        delta: Doubles = now - self._last
        # A NaN makes the comparison false.
        if not (delta.min() >= 0 and now.max() < OVERFLOW):
            return None
        delta *= _SECOND_NS / (mono_ns - self._at)
        np.maximum(self._peak, delta, out=self._peak)
        self._last = now
        return delta

    def _careful(self, now: Doubles, mono_ns: int) -> Doubles:
        self._note_times()
        known = ~np.isnan(self._last)
        valid = (now >= 0) & (now < OVERFLOW)
        wrong = ~valid & ~np.isnan(now)
        if wrong.any():
            self._reject(self._counters[wrong])
        seconds = (mono_ns - self._seen) / _SECOND_NS
        # Placeholders where a value is missing, so that no comparison meets a NaN.
        here = np.where(valid, now, 0.0)
        there = np.where(known, self._last, 0.0)
        delta = here - there
        both = valid & known
        back = both & (delta < 0)
        patient = back & (self._below < PATIENCE)
        over = delta + self._modulus
        # A zero comes first: were it taken for a wrap, the next good reading would be a spike.
        zero = patient & (here == 0)
        wrap = back & ~zero & (self._modulus > 0) & (over >= 0)
        wrap &= over <= WRAP_GROWTH * self._peak * seconds
        step = patient & ~wrap & ~zero
        step &= -delta <= np.maximum(STEP_BACK_COUNTS, STEP_BACK * there)
        grown = both & ~back
        drop = back & ~zero & ~wrap & ~step
        reset = drop & (here >= np.where(np.isnan(self._low), np.inf, self._low))

        rate = np.full(len(now), np.nan)
        rate[grown] = delta[grown] / seconds[grown]
        rate[wrap] = over[wrap] / seconds[wrap]
        since_low = (mono_ns - self._low_seen[reset]) / _SECOND_NS
        rate[reset] = (here - self._low)[reset] / since_low
        np.fmax(self._peak, rate, out=self._peak)
        rate[step] = 0.0
        self.longer = self._counters[(grown | wrap) & (self._seen < self._at)]

        doubt = drop & ~reset & patient
        if back.any():
            self._count(zero=zero, wrap=wrap, step_back=step, reset=drop & ~doubt, wrong=doubt)
        self._low = np.where(doubt, here, np.where(valid & ~zero, np.nan, self._low))
        self._low_seen = np.where(doubt, mono_ns, self._low_seen)
        wait = zero | step | doubt
        keep = wait | ~valid
        self._last = np.where(keep, self._last, now)
        # After a step back the value stays and time goes on: the growth that comes is the next
        # reading's alone. After a zero or a gap the next rate is the mean since the last good one.
        self._seen = np.where(keep & ~step, self._seen, mono_ns)
        self._below = np.where(wait, self._below + 1, np.where(valid, 0, self._below))
        self._even = bool((self._seen == mono_ns).all() and not np.isnan(self._last).any())
        return rate

    def _note_times(self) -> None:
        """Write down per counter what `_steady` knows of all."""
        if self._even:
            self._seen[:] = self._at

    def _count(self, **events: NDArray[np.bool_]) -> None:
        self.events.update({name: int(n) for name, at in events.items() if (n := at.sum())})

    def _reject(self, places: NDArray[np.intp]) -> None:
        self.rejected = np.concatenate((self.rejected, places))
