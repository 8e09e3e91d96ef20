"""Mahalanobis distance by principal components.

With the components V of the standardised baseline and their variances l, a window z has

    d^2 = sum_k (v_k . z)^2 / l_k  +  (|z|^2 - sum_k (v_k . z)^2) / r

The first term is the distance inside the subspace that the host usually moves in (Hotelling's
T^2, the paper's detector); the second is what leaves that subspace, over its usual size r per
feature. Without it, a channel that stood still in the baseline could never be seen. The score
is d over the root of the number of live features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

COMPONENTS = 16
VARIANCE_SHARE = 0.95
"""Components are kept until they explain this share, or there are `COMPONENTS` of them."""
MIN_VARIANCE = 0.05
"""Smallest variance of a direction, in squared scales: no direction is ever too sure."""


@dataclass(frozen=True, slots=True, eq=False)
class PcaMahalanobis:
    """Components ``(COMPONENTS, features)``, inverse variances, inverse residual variance.

    Components that are not used are 0. All inverse variances are already divided by the number
    of live features.
    """

    components: NDArray[np.float32]
    inverse_variance: NDArray[np.float32]
    inverse_residual: np.float32

    @classmethod
    def fit(cls, z: NDArray[np.float32]) -> PcaMahalanobis:
        """Learn the subspace of standardised baseline windows ``(windows, features)``."""
        count, features = z.shape
        live = max(1, int((z != 0).any(0).sum()))
        # The location was taken off already: directions through it, not through the mean of z.
        _, s, v = np.linalg.svd(z.astype(np.float64), full_matrices=False)
        variance = s**2 / max(1, count - 1)
        share = np.cumsum(variance) / max(variance.sum(), 1e-12)
        keep = min(COMPONENTS, int(np.searchsorted(share, VARIANCE_SHARE)) + 1, len(variance))
        components = np.zeros((COMPONENTS, features), np.float32)
        components[:keep] = v[:keep]
        inverse = np.zeros(COMPONENTS, np.float32)
        inverse[:keep] = 1 / np.maximum(variance[:keep], MIN_VARIANCE) / live
        residual = max(variance[keep:].sum() / live, MIN_VARIANCE)
        return cls(components, inverse, np.float32(1 / residual / live))

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score standardised windows ``(windows, features)``; higher is odder."""
        return _score(z, self.components, self.inverse_variance, self.inverse_residual)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def mahalanobis_row(
    z: NDArray[np.float32],
    components: NDArray[np.float32],
    inverse_variance: NDArray[np.float32],
    inverse_residual: np.float32,
) -> np.float32:
    """Score one standardised window."""
    total = np.float32(0)
    for f in range(len(z)):
        total += z[f] * z[f]
    inside = np.float32(0)
    distance = np.float32(0)
    for k in range(len(components)):
        if inverse_variance[k] == 0:
            break
        dot = np.float32(0)
        v = components[k]
        for f in range(len(z)):
            dot += v[f] * z[f]
        inside += dot * dot
        distance += dot * dot * inverse_variance[k]
    outside = max(total - inside, np.float32(0))
    return np.float32(np.sqrt(distance + outside * inverse_residual))


@njit(nogil=True, cache=True)
def _score(
    z: NDArray[np.float32],
    components: NDArray[np.float32],
    inverse_variance: NDArray[np.float32],
    inverse_residual: np.float32,
) -> NDArray[np.float32]:
    out = np.empty(len(z), np.float32)
    for w in range(len(z)):
        out[w] = mahalanobis_row(z[w], components, inverse_variance, inverse_residual)
    return out
