"""Baselines of many hosts side by side: a batch of windows is scored in one call.

The formulas are those of the single detectors; only where their arrays lie differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.baseline import CALIBRATION, DETECTORS, Baseline
from models.forest import LEAF, NODES, TREES, forest_row
from models.fusion import fuse
from models.mahalanobis import COMPONENTS, mahalanobis_row
from models.scale import SCORED, standardize_row
from models.zscore import MAX_GROUPS, zscore_row


@dataclass(frozen=True, slots=True, eq=False)
class BatchScores:
    """Scores of a batch of windows.

    Attributes
    ----------
    raw, p_values, over
        Shape ``(windows, len(DETECTORS))``: each detector's score, the share of baseline
        windows at least as odd, and whether the score is over its threshold.
    fused, flagged
        Shape ``(windows,)``: see `models.fusion`; flagged where fused is over 1.
    """

    raw: NDArray[np.float32]
    p_values: NDArray[np.float32]
    over: NDArray[np.bool_]
    fused: NDArray[np.float32]
    flagged: NDArray[np.bool_]


class BaselineBank:
    """Baselines of hosts that have `channels` channels each, by slot."""

    def __init__(self, channels: int) -> None:
        self._features = SCORED * channels
        self._size = 0
        self._arrays: dict[str, NDArray[Any]] = {}
        self._grow(4)

    def set(self, slot: int, baseline: Baseline) -> None:
        """Put a baseline into a slot."""
        while slot >= self._size:
            self._grow(2 * self._size)
        for name, array in self._arrays.items():
            array[slot] = getattr(baseline, name)

    def score(self, slots: NDArray[np.int64], windows: NDArray[np.float32]) -> BatchScores:
        """Score windows ``(windows, >= SCORED * channels)``, each by the baseline in its slot."""
        a = self._arrays
        raw = np.empty((len(slots), len(DETECTORS)), np.float32)
        p_values = np.empty_like(raw)
        _score(
            slots,
            windows,
            a["location"],
            a["inverse"],
            a["group"],
            a["inverse_size"],
            a["components"],
            a["inverse_variance"],
            a["inverse_residual"],
            a["feature"],
            a["value"],
            a["left"],
            a["inverse_norm"],
            a["calibration"],
            raw,
            p_values,
        )
        thresholds = a["thresholds"][slots]
        fused = fuse(raw / thresholds)
        return BatchScores(raw, p_values, raw > thresholds, fused, fused > 1)

    def _grow(self, size: int) -> None:
        f = self._features
        shapes: dict[str, tuple[type, tuple[int, ...]]] = {
            "location": (np.float32, (f,)),
            "inverse": (np.float32, (f,)),
            "group": (np.int8, (f,)),
            "inverse_size": (np.float32, (MAX_GROUPS,)),
            "components": (np.float32, (COMPONENTS, f)),
            "inverse_variance": (np.float32, (COMPONENTS,)),
            "inverse_residual": (np.float32, ()),
            "feature": (np.int16, (TREES, NODES)),
            "value": (np.float32, (TREES, NODES)),
            "left": (np.int16, (TREES, NODES)),
            "inverse_norm": (np.float32, ()),
            "thresholds": (np.float32, (len(DETECTORS),)),
            "calibration": (np.float32, (len(DETECTORS), CALIBRATION)),
        }
        arrays: dict[str, NDArray[Any]] = {}
        for name, (dtype, shape) in shapes.items():
            array: NDArray[Any] = np.zeros((size, *shape), dtype)
            if name == "feature":
                array.fill(LEAF)
            if self._size:
                array[: self._size] = self._arrays[name]
            arrays[name] = array
        self._arrays = arrays
        self._size = size


@njit(nogil=True, cache=True, error_model="numpy")
def _score(
    slots: NDArray[np.int64],
    windows: NDArray[np.float32],
    location: NDArray[np.float32],
    inverse: NDArray[np.float32],
    group: NDArray[np.int8],
    inverse_size: NDArray[np.float32],
    components: NDArray[np.float32],
    inverse_variance: NDArray[np.float32],
    inverse_residual: NDArray[np.float32],
    feature: NDArray[np.int16],
    value: NDArray[np.float32],
    left: NDArray[np.int16],
    inverse_norm: NDArray[np.float32],
    calibration: NDArray[np.float32],
    raw: NDArray[np.float32],
    p_values: NDArray[np.float32],
) -> None:
    z = np.empty(location.shape[1], np.float32)
    points = calibration.shape[2]
    for w in range(len(slots)):
        s = slots[w]
        standardize_row(windows[w], location[s], inverse[s], z)
        raw[w, 0] = zscore_row(z, group[s], inverse_size[s])
        raw[w, 1] = mahalanobis_row(z, components[s], inverse_variance[s], inverse_residual[s])
        raw[w, 2] = forest_row(z, feature[s], value[s], left[s], inverse_norm[s])
        for d in range(raw.shape[1]):
            below = np.searchsorted(calibration[s, d], raw[w, d])
            p_values[w, d] = np.float32(points - below + 1) / np.float32(points + 1)
