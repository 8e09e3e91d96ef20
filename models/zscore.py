"""Standardised deviation: how far the features are from the baseline, on average.

Score: the mean of ``|z|`` over the scored features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ZScore:
    """One over the number of features that count."""

    inverse_count: float

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a row; `z` has shape ``(windows, features)``."""
        return _score(z, self.inverse_count)


def fit(live: NDArray[np.bool_]) -> ZScore:
    """Take the features that are scored, shape ``(features,)``; the others are 0 in every row."""
    return ZScore(1.0 / max(1, int(live.sum())))


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(z: NDArray[np.float32], inverse_count: float) -> float:
    """Score one standardised row."""
    total = 0.0
    for f in range(len(z)):
        total += abs(z[f])
    return total * inverse_count


@njit(nogil=True, cache=True, error_model="numpy")
def _score(z: NDArray[np.float32], inverse_count: float) -> NDArray[np.float64]:
    out = np.empty(len(z))
    for i in range(len(z)):
        out[i] = score_row(z[i], inverse_count)
    return out
