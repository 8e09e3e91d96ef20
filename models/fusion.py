"""How odd a score is among those of the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray


@njit(nogil=True, cache=True, error_model="numpy")
def p_value(score: float, calibration: NDArray[np.float32]) -> float:
    """Return the smoothed share of `calibration` (sorted, rising) that is at least `score`.

    That is ``(k + 1) / (n + 1)`` for k of n windows.
    """
    n = len(calibration)
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if calibration[middle] < score:
            low = middle + 1
        else:
            high = middle
    return (n - low + 1.0) / (n + 1.0)
