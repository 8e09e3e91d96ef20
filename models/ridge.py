"""Ridge Mahalanobis: distance from the baseline along all directions that it shows.

The covariance is that of probabilistic PCA (Tipping and Bishop 1999) with as many components as a
baseline has room for, and a ridge of `RIDGE` times the mean variance on every direction, for noise
that a short baseline did not show::

    d² = sum_i y_i² / (lambda_i + r) + (|z|² - sum_i y_i²) / (rest + r)

with y the projections. The score is ``sqrt(d² / features)``.

On labelled telemetry of servers it ranks better than the paper's distance in a subspace; see
`make bench-detection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.mahalanobis import Mahalanobis, spectrum

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPONENTS = 48
"""At most. More cost memory in every baseline: 700 channels have 1,400 features."""
RIDGE = 0.01
LEAST_RIDGE = 0.01
"""In squared scales, where hardly anything moved."""


def fit(z: NDArray[np.float32], live: NDArray[np.bool_]) -> Mahalanobis:
    """Learn from standardised rows, shape ``(windows, features)``.

    Features that are not `live` are 0 in every row, and stay without weight.
    """
    count = max(1, int(live.sum()))
    values, components = spectrum(z, COMPONENTS)
    kept = values[: np.count_nonzero(components.any(axis=0))]
    rest = max(0.0, float(values.sum() - kept.sum())) / max(1, count - len(kept))
    ridge = max(RIDGE * float(values.sum()) / count, LEAST_RIDGE)
    return Mahalanobis.of(components, kept, rest, ridge, count)
