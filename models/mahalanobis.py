"""Mahalanobis distance under the main components of the baseline, with the residual.

The covariance is that of probabilistic PCA (Tipping and Bishop 1999): the variances along the
first components, and one common variance for what is left. So the distance is Hotelling's T² in
the subspace plus the squared residual over its variance::

    d² = sum_i y_i² / (lambda_i + r) + (|z|² - sum_i y_i²) / (rest + r)

with y the projections. The score is ``sqrt(d² / features)``, which is near 1 on normal windows
of normal data. The ridge `r` stands for noise that a short baseline did not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPONENTS = 16
"""At most; the arrays always have this many, those that are not there are 0."""
RIDGE = 0.1
"""Variance added to every direction, in squared scales."""


@dataclass(frozen=True, slots=True, eq=False)
class Mahalanobis:
    """Components and the weights of the projections.

    `components` has shape ``(features, COMPONENTS)``. `weights` has shape ``(COMPONENTS,)``:
    what a squared projection counts more (less, in truth: it is negative) than a squared residual.
    `residual` is the weight of the whole squared length.
    """

    components: NDArray[np.float32]
    weights: NDArray[np.float32]
    residual: float

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a row; `z` has shape ``(windows, features)``."""
        return _score(z, self.components, self.weights, self.residual)


def fit(z: NDArray[np.float32], live: NDArray[np.bool_]) -> Mahalanobis:
    """Learn from standardised rows, shape ``(windows, features)``.

    Features that are not `live` are 0 in every row, and stay without weight.
    """
    count = max(1, int(live.sum()))
    rows = z.astype(np.float64)
    n = len(rows)
    # Of the smaller side's: its cost grows with the cube of that, and the values are the same.
    tall = n > rows.shape[1]
    values, vectors = np.linalg.eigh(rows.T @ rows / n if tall else rows @ rows.T / n)
    k = min(COMPONENTS, n - 1, count - 1)
    values, vectors = values[::-1], vectors[:, ::-1]
    k = int(np.count_nonzero(values[:k] > 1e-9 * max(values[0], 1e-12)))
    kept = values[:k]
    rest = max(0.0, float(values.sum() - kept.sum())) / max(1, count - k)
    components = np.zeros((z.shape[1], COMPONENTS), np.float32)
    directions = vectors[:, :k]
    components[:, :k] = directions if tall else rows.T @ directions / np.sqrt(n * kept)
    residual = 1.0 / (rest + RIDGE)
    weights = np.zeros(COMPONENTS, np.float32)
    weights[:k] = (1.0 / (kept + RIDGE) - residual) / count
    return Mahalanobis(components, weights, residual / count)


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(
    z: NDArray[np.float32],
    components: NDArray[np.float32],
    weights: NDArray[np.float32],
    residual: float,
) -> float:
    """Score one standardised row."""
    y = np.zeros(COMPONENTS, np.float32)
    length = 0.0
    for f in range(len(z)):
        a = z[f]
        length += a * a
        row = components[f]
        for i in range(COMPONENTS):
            y[i] += a * row[i]
    total = length * residual
    for i in range(COMPONENTS):
        total += np.float64(y[i]) * y[i] * weights[i]
    return float(np.sqrt(max(total, 0.0)))


@njit(nogil=True, cache=True, error_model="numpy")
def _score(
    z: NDArray[np.float32],
    components: NDArray[np.float32],
    weights: NDArray[np.float32],
    residual: float,
) -> NDArray[np.float64]:
    out = np.empty(len(z))
    for i in range(len(z)):
        out[i] = score_row(z[i], components, weights, residual)
    return out
