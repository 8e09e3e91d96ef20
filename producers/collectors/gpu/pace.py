"""How often to ask, from what asking costs."""

from __future__ import annotations

from collections import deque

TICK_NS = 100_000_000
MOST_NS = 10_000_000_000
SHARE = 0.002
"""Of the time, at most, that one kind of call may take."""

REMEMBERED = 5
"""Readings of which the median counts: one that was interrupted changes nothing."""


class Pace:
    """The period of a source: its own wish, doubled until it costs at most `SHARE` of the time.

    It is halved again when that would cost half of `SHARE` at most: so it does not go to and fro
    when the cost is near a bound.

    Parameters
    ----------
    wish_ns
        The shortest period; 0 for every tick.
    """

    def __init__(self, wish_ns: int = 0, *, share: float = SHARE) -> None:
        self.period_ns = wish_ns
        self._wish_ns = wish_ns
        self._share = share
        self._steps = 0
        self._costs: deque[int] = deque(maxlen=REMEMBERED)

    def spent(self, cost_ns: int) -> None:
        """Take into account what one reading took."""
        self._costs.append(cost_ns)
        cost = sorted(self._costs)[(len(self._costs) - 1) // 2]
        while cost > self._share * self._length(self._steps) < self._share * MOST_NS:
            self._steps += 1
        if self._steps and cost < self._share / 2 * self._length(self._steps - 1):
            self._steps -= 1
        self.period_ns = self._length(self._steps) if self._steps else self._wish_ns

    def _length(self, steps: int) -> int:
        return min(max(self._wish_ns, TICK_NS) << steps, MOST_NS)
