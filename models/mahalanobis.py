"""Mahalanobis distance in the baseline's main subspace (PCA), as in the paper: Hotelling's T².

The paper scores the projection on the first components, which hold `SHARE` of the variance::

    d² = sum_i y_i² / (lambda_i + r)

with y the projections. The score is ``sqrt(d² / components)``, near 1 on normal windows of normal
data. `models.ridge` has the distance along all directions, in the same arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPONENTS = 16
"""At most."""
SHARE = 0.95
"""Of the variance, that the components hold together if there are enough."""
RIDGE = 1e-3
"""Variance added to every direction, in squared scales, so that none has no variance at all."""


@dataclass(frozen=True, slots=True, eq=False)
class Mahalanobis:
    """Components and the weights of the projections.

    `components` has shape ``(features, k)``. `weights` has shape ``(k,)``: what a squared
    projection counts beside its part in the squared length. `residual` is the weight of the whole
    squared length. `inverse` has shape ``(k,)``: one over the deviation along each component.
    """

    components: NDArray[np.float32]
    weights: NDArray[np.float32]
    residual: float
    inverse: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        components: NDArray[np.float32],
        kept: NDArray[np.float64],
        rest: float,
        ridge: float,
        count: int,
    ) -> Mahalanobis:
        """Weigh `kept` variances along components against `rest`, the variance of all others."""
        k = len(kept)
        residual = 1.0 / (rest + ridge)
        weights, inverse = np.zeros((2, components.shape[1]), np.float32)
        weights[:k] = (1.0 / (kept + ridge) - residual) / count
        inverse[:k] = 1.0 / np.sqrt(kept + ridge)
        return cls(components, weights, residual / count, inverse)

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a row; `z` has shape ``(windows, features)``."""
        return _score(z, self.components, self.weights, self.residual)

    def project(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return projections in deviations of the baseline, shape ``(windows, k)``."""
        return np.asarray((z @ self.components) * self.inverse, np.float32)


def fit(z: NDArray[np.float32]) -> Mahalanobis:
    """Learn from standardised rows, shape ``(windows, features)``."""
    values, components = spectrum(z, COMPONENTS)
    most = int(np.count_nonzero(components.any(axis=0)))
    held = np.cumsum(values[:most]) / max(float(values.sum()), 1e-12)
    k = max(1, min(most, int(np.searchsorted(held, SHARE)) + 1))
    components[:, k:] = 0.0
    weights, inverse = np.zeros((2, COMPONENTS), np.float32)
    kept = values[:k] + RIDGE
    weights[:k] = 1.0 / kept / k
    inverse[:k] = 1.0 / np.sqrt(kept)
    return Mahalanobis(components, weights, 0.0, inverse)


def spectrum(z: NDArray[np.float32], most: int) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Return the variances along all principal directions, and the first directions.

    Parameters
    ----------
    z
        Standardised rows, shape ``(windows, features)``; their location is 0.
    most
        Directions that there is room for: the second array has shape ``(features, most)``, those
        that are not there are 0.
    """
    rows = z.astype(np.float64)
    n = len(rows)
    # Of the smaller side's: its cost grows with the cube of that, and the values are the same.
    tall = n > rows.shape[1]
    values, vectors = np.linalg.eigh(rows.T @ rows / n if tall else rows @ rows.T / n)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    k = min(most, n, rows.shape[1])
    k = int(np.count_nonzero(values[:k] > 1e-9 * max(values[0], 1e-12)))
    components = np.zeros((z.shape[1], most), np.float32)
    directions = vectors[:, :k]
    components[:, :k] = directions if tall else rows.T @ directions / np.sqrt(n * values[:k])
    return values, components


@njit(nogil=True, cache=True, error_model="numpy")
def project_row(
    z: NDArray[np.float32], components: NDArray[np.float32], y: NDArray[np.float32]
) -> float:
    """Write the projections of one standardised row to `y`; return its squared length."""
    y[:] = np.float32(0.0)
    length = 0.0
    for f in range(len(z)):
        a = z[f]
        # Most channels of a host stand still: a row of components saved is a cache line or three.
        if a == np.float32(0.0):
            continue
        length += a * a
        row = components[f]
        for i in range(len(y)):
            y[i] += a * row[i]
    return length


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(
    y: NDArray[np.float32], length: float, weights: NDArray[np.float32], residual: float
) -> float:
    """Score one row by its projections and squared length."""
    total = length * residual
    for i in range(len(y)):
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
    y = np.empty(components.shape[1], np.float32)
    for i in range(len(z)):
        length = project_row(z[i], components, y)
        out[i] = score_row(y, length, weights, residual)
    return out
