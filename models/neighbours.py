"""Distance to the nearest windows of the baseline, in the directions in which it varies most.

The coordinates are the first projections of `models.ridge`, in deviations of the baseline, so that
no direction outweighs the others. A workload has phases: a window in the middle between two of
them is far from both, while a covariance finds it normal. The score is the mean distance to the
`NEAREST` of `REFERENCES` windows, spread evenly over the baseline's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.mahalanobis import Mahalanobis

DIRECTIONS = 24
REFERENCES = 512
"""At most; a baseline has 24 kB of them."""
NEAREST = 3


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Windows of the baseline, shape ``(references, DIRECTIONS)``, seen in `space`."""

    space: Mahalanobis
    references: NDArray[np.float32]

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a row; `z` has shape ``(windows, features)``."""
        y = np.ascontiguousarray(self.space.project(z)[:, :DIRECTIONS])
        return _score(y, self.references)


def fit(z: NDArray[np.float32], space: Mahalanobis) -> Neighbours:
    """Keep some of the standardised rows, shape ``(windows, features)``, as seen in `space`."""
    kept = np.unique(np.linspace(0, len(z) - 1, min(REFERENCES, len(z))).astype(int))
    return Neighbours(space, np.ascontiguousarray(space.project(z[kept])[:, :DIRECTIONS]))


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(y: NDArray[np.float32], references: NDArray[np.float32]) -> float:
    """Score one row of coordinates; those beyond the references' are not looked at."""
    nearest = np.full(NEAREST, np.inf)
    for r in range(len(references)):
        row = references[r]
        square = np.float32(0.0)
        for i in range(references.shape[1]):
            d = y[i] - row[i]
            square += d * d
        # Kept in order by insertion: there are only a few.
        at = NEAREST - 1
        if square < nearest[at]:
            while at > 0 and square < nearest[at - 1]:
                nearest[at] = nearest[at - 1]
                at -= 1
            nearest[at] = square
    total = 0.0
    for k in range(min(NEAREST, len(references))):
        total += np.sqrt(nearest[k])
    return total / min(NEAREST, len(references))


@njit(nogil=True, cache=True, error_model="numpy")
def _score(y: NDArray[np.float32], references: NDArray[np.float32]) -> NDArray[np.float64]:
    out = np.empty(len(y))
    for i in range(len(y)):
        out[i] = score_row(y[i], references)
    return out
