"""Standardised deviation: how far the channels of a subsystem are from the baseline, on average.

The score is the mean of ``|z|`` over the features of a subsystem, over what the subsystem reaches
in one baseline window of a hundred, and of these ratios the largest. So a fault of the network is
not diluted by hundreds of CPU channels, nor hidden by a disk that is restless all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROUPS = 8
"""Subsystems that there is room for."""
LEAST_FEATURES = 4
"""A subsystem with fewer has no mean worth the name; it does not count."""
QUANTILE = 0.99
LEAST_USUAL = 0.1
"""What is usual is at least this: a subsystem that stood still is not odd at its first twitch."""


@dataclass(frozen=True, slots=True, eq=False)
class ZScore:
    """Subsystem of each feature, shape ``(features,)``, and weight of each, ``(GROUPS,)``."""

    groups: NDArray[np.int8]
    weights: NDArray[np.float64]

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a row; `z` has shape ``(windows, features)``."""
        return _score(z, self.groups, self.weights)


def fit(z: NDArray[np.float32], groups: NDArray[np.int8], live: NDArray[np.bool_]) -> ZScore:
    """Learn what is usual.

    Parameters
    ----------
    z
        Standardised rows, shape ``(windows, features)``; 0 where not live.
    groups, live
        Subsystem of each feature, below `GROUPS`, and whether it is scored.
    """
    if groups.max(initial=0) >= GROUPS:
        raise ValueError(f"{groups.max() + 1} subsystems: there is room for {GROUPS}")
    weights = np.zeros(GROUPS)
    for group in range(GROUPS):
        members = (groups == group) & live
        count = int(members.sum())
        if count >= min(LEAST_FEATURES, int(live.sum())) and count:
            usual = np.quantile(np.abs(z[:, members]).mean(axis=1), QUANTILE)
            weights[group] = 1.0 / (count * max(float(usual), LEAST_USUAL))
    if not weights.any():  # all subsystems are small: better one mean than none
        groups = np.zeros_like(groups)
        usual = np.quantile(np.abs(z[:, live]).mean(axis=1), QUANTILE)
        weights[0] = 1.0 / (int(live.sum()) * max(float(usual), LEAST_USUAL))
    return ZScore(groups, weights)


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(
    z: NDArray[np.float32], groups: NDArray[np.int8], weights: NDArray[np.float64]
) -> tuple[float, int]:
    """Score one standardised row; return the score and the subsystem that it comes from."""
    totals = np.zeros(GROUPS)
    for f in range(len(z)):
        totals[groups[f]] += abs(z[f])
    highest, leader = 0.0, 0
    for g in range(GROUPS):
        if totals[g] * weights[g] > highest:
            highest, leader = totals[g] * weights[g], g
    return highest, leader


@njit(nogil=True, cache=True, error_model="numpy")
def _score(
    z: NDArray[np.float32], groups: NDArray[np.int8], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    out = np.empty(len(z))
    for i in range(len(z)):
        out[i] = score_row(z[i], groups, weights)[0]
    return out
