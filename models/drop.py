"""Channels that were never quiet and fall silent: traffic that stops, a disk that no one asks.

A rate that varies a lot has a large deviation, so that zero is only two or three of them away, and
a mean over all channels does not see it. Here each channel that was always well above its floor is
held against the lowest that it ever was: its fall is the logarithm of that over what it is now,
with the floor added to both. The score is the mean of the `DEEPEST` falls; 0.7 is half of the
lowest ever, 1.6 a fifth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEEPEST = 3
"""Channels: what stops shows in several, bytes and packets, in and out."""
ALIVE = 4.0
"""Floors that a channel stays above all the time, to be one that is never quiet."""
LEAST_THRESHOLD = 1.2
"""Below a third of the lowest ever seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Lowest mean of each channel that is never quiet, else 0, and floors; both ``(channels,)``."""

    lowest: NDArray[np.float32]
    floor: NDArray[np.float32]

    def score(self, windows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a window; rows are features as they are, not standardised."""
        out = np.empty(len(windows))
        for i, row in enumerate(np.ascontiguousarray(windows, np.float32)):
            out[i] = score_row(row, self.lowest, self.floor)
        return out


def fit(windows: NDArray[np.float32], floor: NDArray[np.float64], live: NDArray[np.bool_]) -> Drop:
    """Learn from windows, shape ``(windows, features)``, means first.

    `floor` and `live` have shape ``(channels,)``: see `models.scale`.
    """
    means = windows[:, : len(floor)]
    lowest = np.where(np.isfinite(means), means, np.inf).min(axis=0)
    alive = live & np.isfinite(lowest) & (lowest >= ALIVE * floor)
    return Drop(np.where(alive, lowest, 0.0).astype(np.float32), floor.astype(np.float32))


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(
    row: NDArray[np.float32], lowest: NDArray[np.float32], floor: NDArray[np.float32]
) -> float:
    """Score one window's features."""
    falls = np.ones(DEEPEST, np.float32)  # ratios, so that only the deepest need a logarithm
    for c in range(len(lowest)):
        if lowest[c] <= 0 or not row[c] < lowest[c]:
            continue
        ratio = (lowest[c] + floor[c]) / (max(row[c], np.float32(0.0)) + floor[c])
        at = DEEPEST - 1
        if ratio > falls[at]:
            while at > 0 and ratio > falls[at - 1]:
                falls[at] = falls[at - 1]
                at -= 1
            falls[at] = ratio
    total = 0.0
    for k in range(DEEPEST):
        total += np.log(falls[k])
    return total / DEEPEST


def falls(
    row: NDArray[np.float32], lowest: NDArray[np.float32], floor: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return how deep each channel has fallen in one window, shape ``(channels,)``."""
    mean = np.maximum(row[: len(lowest)].astype(np.float64), 0.0)
    fell = (lowest > 0) & (mean < lowest)  # NaN has not fallen
    ratio = (lowest.astype(np.float64) + floor) / (np.where(fell, mean, 0.0) + floor)
    return np.where(fell, np.log(ratio, where=fell, out=np.zeros(len(lowest))), 0.0)
