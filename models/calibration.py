"""From scores of many kinds to one, and to a threshold that the operator states.

Scores of the detectors are made comparable on windows that they were not fitted on: ``u = (log s -
middle) / spread``, with the median and the quartiles of the held-out scores. What they say together
is the mean of their `u`: 0 on a middling window, 1 a deviation of an ordinary day, 5 what no day
shows. Counting votes instead, clipping, and the largest alone all rank worse on labelled data.

The operator states how many false episodes a host may open in a day. That asks for a tail
probability far beyond what a baseline of minutes holds: half a false episode a day is one window
in 172,800. So the tail above the 90th percentile of the held-out scores is taken to be exponential
(peaks over threshold, with a generalised Pareto distribution of shape 0), and the threshold that it
gives is kept within bounds, which move with the odds that are asked for. Without the upper bound,
one checkpoint in a short baseline would put every fault out of reach: a window of five deviations
is odd, whatever the tail. Without the lower one, a baseline in which nothing happened would alarm
at the first twitch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY_S = 86_400.0
TAIL = 0.1
"""Share of the held-out windows that the tail is fitted to."""
LOWEST, HIGHEST = 4.5, 5.5
"""Bounds of the threshold at `DEFAULT_PER_DAY`. On the servers of SMD, bounds 4.5 and 5.5, 5.5
alone and 6 alone found .69, .69 and .63 of the events with 0.43, 0.43 and 0.33 false episodes a
day; the tail alone .46."""
DEFAULT_PER_DAY = 0.5
DECAY = 0.5
"""Deviations by which the bounds move when e times as many false episodes are allowed: the decay of
a normal distribution's tail at its 90th percentile."""
SHORT = 60.0
"""Over the windows of the baseline that share no tick: by how much the upper bound is raised. A
short baseline has not seen what the host does now and then. From 120 s on campaign-a it is 1.5."""
STAYS = 0.75
"""Share of the threshold under which an open episode's windows are calm again (hysteresis)."""
LEAST_SCORES = (0.2, 0.3, 1.0, 0.35)
"""Of the detectors in `models.mode.FUSED`: no score counts for less. Where a host stands still, the
logarithm of next to nothing would make its first twitch a wonder. The middles of real hosts are
.24 and up, .41 and up, 1.8 and up, .38 and up."""


@dataclass(frozen=True, slots=True)
class Line:
    """``middle`` and ``spread`` of one detector's log scores on windows held out.

    Scores below `least` count as that.
    """

    middle: float
    spread: float
    least: float = 1e-9

    @classmethod
    def of(cls, scores: NDArray[np.float64], least_spread: float, least: float = 1e-9) -> Line:
        """Learn from held-out scores, shape ``(windows,)``; `least_spread` is in log units."""
        logs = np.log(np.maximum(scores, least))
        low, middle, high = np.percentile(logs, (25, 50, 75))
        return cls(float(middle), max(float(high - low) / 1.349, least_spread), least)

    def standardize(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `u` of scores."""
        u = (np.log(np.maximum(scores, self.least)) - self.middle) / self.spread
        return np.asarray(u, np.float64)

    def at(self, u: float) -> float:
        """Return the score whose `u` is given."""
        return math.exp(self.middle + u * self.spread)


def threshold(
    fused: NDArray[np.float64], per_day: float, stride_s: float, overlap: int = 0
) -> float:
    """Return the fused score above which a window is odd.

    Parameters
    ----------
    fused
        Of windows held out, shape ``(windows,)``.
    per_day
        False episodes that a host may open in a day.
    stride_s
        Seconds between windows.
    overlap
        Neighbours on each side of a window that share ticks with it.
    """
    chance = min(per_day * stride_s / DAY_S, TAIL)
    start = float(np.quantile(fused, 1.0 - TAIL))
    beyond = fused[fused > start] - start
    decay = float(beyond.mean()) if len(beyond) else DECAY
    moved = DECAY * math.log(DEFAULT_PER_DAY / per_day)
    tail = start + decay * math.log(TAIL / chance)
    short = SHORT * (overlap + 1) / len(fused)
    return min(max(tail, LOWEST + moved), HIGHEST + moved + short)
