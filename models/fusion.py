"""What the detectors say together.

A window's p-value under one detector is the share of baseline windows at least as odd,
``(k + 1) / (n + 1)``. It cannot fall under ``1 / (n + 1)``, however odd the window, so the
surprise goes on where the p-value stops: with ``ratio`` the score over the baseline's highest,
``surprise = -log10 p + max(0, log10 ratio)``. The fused score is the root mean square of the
surprises: 0.4 on a middling window, 2 where all detectors say one in a hundred; above that, one
more is ten times the deviation. A window is flagged when at least two detectors are over their
thresholds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

AGREE = 2
"""Detectors over their thresholds that flag a window."""


@njit(nogil=True, cache=True, error_model="numpy")
def p_value(score: float, calibration: NDArray[np.float32]) -> float:
    """Return the smoothed share of `calibration` (sorted, rising) that is at least `score`."""
    n = len(calibration)
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if calibration[middle] < score:
            low = middle + 1
        else:
            high = middle
    return (n - low + 1.0) / (n + 1.0)


@njit(nogil=True, cache=True, error_model="numpy")
def surprise(score: float, p: float, highest: float) -> float:
    """Return ``-log10 p``, continued beyond the baseline's highest score."""
    beyond = np.log10(score / highest) if 0.0 < highest < score else 0.0
    return float(beyond - np.log10(p))
