"""Single samples that stick out of their window further than any did in the baseline.

The mean of thirty samples hardly moves when one of them is ten times the usual. So for each channel
the reach of a window is looked at, up (``max - mean``) and down (``mean - min``), over the largest
reach in the baseline, which the channel's floor holds up. The score is the largest ratio over the
channels: 1 is as far as ever seen. A level that shifts as a whole has no reach: that is for the
other detectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from models.scale import LIMIT

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_THRESHOLD = 4.0
"""Times the baseline's reach, below which a spike is nothing to tell: a short baseline has not
seen the largest there is."""
FLOORS = 2.0
"""Floors of a channel that a reach counts as, at least."""


@dataclass(frozen=True, slots=True, eq=False)
class Extremes:
    """One over the largest reach up and down, shape ``(2, channels)``; 0 for what is not scored."""

    inverse: NDArray[np.float32]

    def score(self, windows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a window; rows are features as they are, not standardised."""
        out = np.empty(len(windows))
        for i, row in enumerate(np.ascontiguousarray(windows, np.float32)):
            out[i] = score_row(row, self.inverse)
        return out


def fit(
    windows: NDArray[np.float32], floor: NDArray[np.float64], live: NDArray[np.bool_]
) -> Extremes:
    """Learn from windows, shape ``(windows, len(FEATURES) * channels)``.

    `floor` and `live` have shape ``(channels,)``: see `models.scale`.
    """
    channels = len(floor)
    parts = windows.reshape(len(windows), -1, channels)
    mean, low, high = parts[:, 0], parts[:, 2], parts[:, 3]
    reach = np.stack([high - mean, mean - low], axis=1)
    largest = np.nan_to_num(reach, nan=0.0, posinf=0.0).max(axis=0)
    inverse = np.where(live, 1.0 / np.maximum(largest, FLOORS * floor), 0.0)
    return Extremes(inverse.astype(np.float32))


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(row: NDArray[np.float32], inverse: NDArray[np.float32]) -> float:
    """Score one window's features."""
    channels = inverse.shape[1]
    highest = np.float32(0.0)
    for c in range(channels):
        mean = row[c]
        up = (row[3 * channels + c] - mean) * inverse[0, c]
        down = (mean - row[2 * channels + c]) * inverse[1, c]
        # A comparison with NaN is false, so what is absent sticks out nowhere.
        highest = up if up > highest else highest
        highest = down if down > highest else highest
    return float(min(highest, np.float32(LIMIT)))


def ratios(row: NDArray[np.float32], inverse: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return how far each channel sticks out of one window, over its reach; ``(channels,)``."""
    parts = row.reshape(-1, inverse.shape[1]).astype(np.float64)
    up, down = parts[3] - parts[0], parts[0] - parts[2]
    found = np.maximum(up * inverse[0], down * inverse[1])
    return np.asarray(np.clip(np.nan_to_num(found, nan=0.0), 0.0, LIMIT))
