"""Fusion by agreement.

Each detector's score is divided by its threshold, the 99th percentile of its baseline, so that
1 means "at the threshold" for all of them. The fused score is the second largest of the three:
it is over 1 just when two detectors agree, and it says by how much the less convinced of them is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

AGREE = 2


def fuse(ratios: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the fused score of windows, from ``(windows, detectors)`` scores over thresholds."""
    return np.sort(ratios, axis=1)[:, -AGREE]
