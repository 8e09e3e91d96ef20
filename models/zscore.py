"""Standardised deviation: how far the channels of a subsystem are from their usual place.

The score is the mean of ``|z|`` over the features of the subsystem where that is largest, so
that a network fault is not diluted by a thousand quiet CPU channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

MAX_GROUPS = 8
MIN_FEATURES = 8
"""A subsystem with fewer live features has no mean worth the name."""


@dataclass(frozen=True, slots=True, eq=False)
class ZScore:
    """Groups of the features ``(features,)`` and one over their sizes ``(MAX_GROUPS,)``."""

    group: NDArray[np.int8]
    inverse_size: NDArray[np.float32]

    @classmethod
    def fit(cls, group: NDArray[np.int8], live: NDArray[np.bool_]) -> ZScore:
        """Weigh groups by their live features; nothing else is learned."""
        sizes = np.bincount(group[live], minlength=MAX_GROUPS)
        inverse = np.where(sizes >= MIN_FEATURES, 1 / np.maximum(sizes, 1), 0)
        if not inverse.any():
            inverse = np.where(sizes > 0, 1 / np.maximum(sizes, 1), 0)
        return cls(group, inverse.astype(np.float32))

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score standardised windows ``(windows, features)``; higher is odder."""
        return _score(z, self.group, self.inverse_size)


@njit(nogil=True, cache=True)
def zscore_row(
    z: NDArray[np.float32], group: NDArray[np.int8], inverse_size: NDArray[np.float32]
) -> np.float32:
    """Score one standardised window."""
    totals = np.zeros(MAX_GROUPS, np.float32)
    for f in range(len(z)):
        totals[group[f]] += abs(z[f])
    worst = np.float32(0)
    for g in range(MAX_GROUPS):
        worst = max(worst, totals[g] * inverse_size[g])
    return worst


@njit(nogil=True, cache=True)
def _score(
    z: NDArray[np.float32], group: NDArray[np.int8], inverse_size: NDArray[np.float32]
) -> NDArray[np.float32]:
    out = np.empty(len(z), np.float32)
    for w in range(len(z)):
        out[w] = zscore_row(z[w], group, inverse_size)
    return out
