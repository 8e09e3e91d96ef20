"""Counters become rates, and nothing that happens to a counter becomes a spike.

| seen | taken for | rate | goes on from |
|---|---|---|---|
| first number | hotplug | NaN | it |
| NaN | broken field | NaN | last good number |
| 0 after a number | momentary zero, or a reset | NaN | last good number |
| a little less | step back (idle and iowait do it) | 0 | last good number |
| much less, near `wrap` before | wrap | over the wrap | it |
| much less | reset | NaN | it |
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from producers.metric import Metric

STEP_BACK_SHARE = 0.01
STEP_BACK_COUNTS = 16.0
"""A counter that falls by at most this share, or by so many counts, stepped back."""
WRAP_MARGIN = 0.25
"""A wrap is believed from the last quarter of the range to the first."""


class Rates:
    """Last good number of each metric of a source, and when it was read.

    Attributes
    ----------
    events
        What happened to counters: ``reset``, ``wrap``, ``step_back``, ``zero``.
    """

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self._metrics: tuple[Metric, ...] = ()
        self._last = np.empty(0)
        self._last_s = np.empty(0)
        self._counter = np.empty(0, np.bool_)
        self._scale = np.empty(0)
        self._wrap = np.empty(0)

    def update(
        self, metrics: tuple[Metric, ...], numbers: NDArray[np.float64], mono_ns: int
    ) -> NDArray[np.float64]:
        """Return the published values, ``(len(metrics),)``; NaN where there is none.

        Parameters
        ----------
        metrics
            What the numbers are; a metric that was there before keeps its history.
        numbers
            As read; NaN where a field was broken.
        mono_ns
            When they were read, on the monotonic clock.
        """
        if metrics is not self._metrics:
            self._rearrange(metrics)
        now = mono_ns / 1e9
        delta = numbers - self._last
        elapsed = now - self._last_s
        with np.errstate(invalid="ignore", divide="ignore"):
            values = np.where(self._counter, delta / elapsed, numbers)
            odd = self._counter & ~(delta >= 0)
        odd |= self._counter & ~(elapsed > 0)
        keep = None
        if odd.any():
            keep = self._judge(np.flatnonzero(odd), numbers, delta, elapsed, values)
        values *= self._scale
        if keep is None or not len(keep):
            self._last = numbers.copy()
            self._last_s[:] = now
        else:
            good = np.ones(len(numbers), np.bool_)
            good[keep] = False
            self._last[good] = numbers[good]
            self._last_s[good] = now
        return values

    def _judge(
        self,
        places: NDArray[np.intp],
        numbers: NDArray[np.float64],
        delta: NDArray[np.float64],
        elapsed: NDArray[np.float64],
        values: NDArray[np.float64],
    ) -> NDArray[np.intp]:
        """Set the values of counters that did not simply grow; return those that keep history."""
        keep = []
        for i in places:
            number, last, wrap = numbers[i], self._last[i], self._wrap[i]
            values[i] = np.nan
            if np.isnan(number):
                keep.append(i)
            elif np.isnan(last):
                pass  # the first number: its rate comes with the next
            elif elapsed[i] <= 0:
                keep.append(i)
            elif number == 0:
                # Told from a reset by what comes next: less than before, or more.
                self.events["zero"] += 1
                keep.append(i)
            elif wrap and last > (1 - WRAP_MARGIN) * wrap and number < WRAP_MARGIN * wrap:
                self.events["wrap"] += 1
                values[i] = (delta[i] + wrap) / elapsed[i]
            elif -delta[i] <= max(STEP_BACK_SHARE * last, STEP_BACK_COUNTS):
                self.events["step_back"] += 1
                values[i] = 0
                keep.append(i)
            else:
                self.events["reset"] += 1
        return np.array(keep, np.intp)

    def _rearrange(self, metrics: tuple[Metric, ...]) -> None:
        """Carry the history over to another set of metrics, by name and device."""
        before = {(m.name, m.device): i for i, m in enumerate(self._metrics) if m.counter}
        last, last_s = np.full(len(metrics), np.nan), np.full(len(metrics), np.nan)
        for i, m in enumerate(metrics):
            j = before.get((m.name, m.device)) if m.counter else None
            if j is not None:
                last[i], last_s[i] = self._last[j], self._last_s[j]
        self._last, self._last_s = last, last_s
        self._metrics = metrics
        self._counter = np.array([m.counter for m in metrics], np.bool_)
        self._scale = np.array([m.scale for m in metrics], np.float64)
        self._wrap = np.array([m.wrap for m in metrics], np.float64)
