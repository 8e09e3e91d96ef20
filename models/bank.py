"""Baselines of many hosts in stacked arrays, so that a batch of windows is one call.

Every host has a baseline of its own; all hosts of a bank have the same number of channels.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from models import forest, fusion, mahalanobis, scale, zscore
from models.baseline import DETECTORS
from models.features import FEATURES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.baseline import Baseline

__all__ = ["DETECTORS", "BaselineBank", "BatchScores"]


@dataclass(frozen=True, slots=True, eq=False)
class BatchScores:
    """Scores of n windows by the detectors in `DETECTORS`.

    `raw`, `p_values` and `over` (its threshold) have shape ``(n, 3)``; `fused` and `flagged`
    have shape ``(n,)`` and are explained in `models.fusion`. Higher is odder, but for p-values.
    """

    raw: NDArray[np.float64]
    p_values: NDArray[np.float64]
    over: NDArray[np.bool_]
    fused: NDArray[np.float64]
    flagged: NDArray[np.bool_]


_BY_SLOT = (
    *("_location", "_inverse", "_groups", "_group_weights", "_components", "_weights"),
    *("_roots", "_scalars", "_thresholds", "_windows"),
)
"""Arrays whose first axis is the slot and whose other axes never change."""


class BaselineBank:
    """Baselines by slot. Arrays grow by doubling, as slots and larger forests come.

    Parameters
    ----------
    channels
        Of every row and baseline.
    """

    def __init__(self, channels: int) -> None:
        self.channels = channels
        width = scale.scored_width(channels)
        k = mahalanobis.COMPONENTS
        self._present = np.zeros(0, bool)
        self._location = np.empty((0, width), np.float32)
        self._inverse = np.empty((0, width), np.float32)
        self._groups = np.empty((0, width), np.int8)
        self._group_weights = np.empty((0, zscore.GROUPS))
        self._components = np.empty((0, width, k), np.float32)
        self._weights = np.empty((0, k), np.float32)
        self._nodes = np.empty((0, 0, 2), np.float32)
        self._roots = np.empty((0, forest.TREES), np.int32)
        self._scalars = np.empty((0, 2))
        self._thresholds = np.empty((0, len(DETECTORS)))
        self._calibration = np.empty((0, len(DETECTORS), 0), np.float32)
        self._windows = np.empty(0, np.int64)

    def set(self, slot: int, baseline: Baseline) -> None:
        """Put a baseline into a slot, from 0 on; what was there is replaced.

        Raises
        ------
        ValueError
            The baseline has another number of channels or trees than the bank.
        """
        if baseline.channels != self.channels:
            raise ValueError(
                f"baseline of {baseline.channels} channels in a bank of {self.channels}"
            )
        if len(baseline.roots) != forest.TREES:
            raise ValueError(f"forest of {len(baseline.roots)} trees, not {forest.TREES}")
        self._make_room(slot, len(baseline.nodes), baseline.windows)
        self._location[slot] = baseline.location
        self._inverse[slot] = baseline.inverse
        self._groups[slot] = baseline.groups
        self._group_weights[slot] = baseline.group_weights
        self._components[slot] = baseline.components
        self._weights[slot] = baseline.weights
        self._nodes[slot, : len(baseline.nodes)] = baseline.nodes
        self._roots[slot] = baseline.roots
        self._scalars[slot] = baseline.residual, baseline.norm
        self._thresholds[slot] = baseline.thresholds
        self._calibration[slot, :, : baseline.windows] = baseline.calibration
        self._windows[slot] = baseline.windows
        self._present[slot] = True

    def score(self, slots: NDArray[np.int64], rows: NDArray[np.float32]) -> BatchScores:
        """Score row i by the baseline in ``slots[i]``; a slot may come more than once.

        Parameters
        ----------
        slots
            Shape ``(n,)``.
        rows
            Features, shape ``(n, len(FEATURES) * channels)``.

        Raises
        ------
        ValueError
            A row of another width, or a slot without a baseline.
        """
        n = len(slots)
        if rows.shape != (n, len(FEATURES) * self.channels):
            raise ValueError(
                f"rows of shape {rows.shape} for {n} slots and {self.channels} channels"
            )
        known = (slots >= 0) & (slots < len(self._present))
        if not known.all() or not self._present[slots].all():
            raise ValueError(f"no baseline in one of the slots {np.unique(slots).tolist()}")
        raw = np.empty((n, len(DETECTORS)))
        p_values = np.empty_like(raw)
        over = np.empty(raw.shape, bool)
        fused = np.empty(n)
        flagged = np.empty(n, bool)
        _score(
            np.ascontiguousarray(slots, np.int64),
            np.ascontiguousarray(rows, np.float32),
            self._location,
            self._inverse,
            self._groups,
            self._group_weights,
            self._components,
            self._weights,
            self._nodes,
            self._roots,
            self._scalars,
            self._thresholds,
            self._calibration,
            self._windows,
            raw,
            p_values,
            over,
            fused,
            flagged,
        )
        return BatchScores(raw, p_values, over, fused, flagged)

    def _make_room(self, slot: int, nodes: int, windows: int) -> None:
        capacity = len(self._present)
        if slot >= capacity:
            capacity = max(slot + 1, 2 * capacity)
            self._present = _resized(self._present, capacity, fill=0)
            for name in _BY_SLOT:
                setattr(self, name, _resized(getattr(self, name), capacity))
        if slot >= len(self._nodes) or nodes > self._nodes.shape[1]:
            self._nodes = _resized(self._nodes, capacity, max(nodes, self._nodes.shape[1]))
        most = max(windows, self._calibration.shape[2])
        if slot >= len(self._calibration) or windows > self._calibration.shape[2]:
            self._calibration = _resized(self._calibration, capacity, len(DETECTORS), most)


def _resized(array: NDArray[Any], *lengths: int, fill: int | None = None) -> NDArray[Any]:
    """Return a copy with longer first axes. What is new is not written, so it costs no memory."""
    shape = (*lengths, *array.shape[len(lengths) :])
    out = np.empty(shape, array.dtype) if fill is None else np.full(shape, fill, array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out


def _compiled(formulas: int) -> Callable[..., None]:
    """Compile the kernel.

    Numba keeps compiled code until the kernel's own file changes, but the formulas are in other
    files. As a constant of the kernel, their checksum is part of the key.
    """

    @njit(nogil=True, cache=True, error_model="numpy")
    def score(  # type: ignore[no-untyped-def]  # compiled: the types are those of the arrays
        slots,
        rows,
        location,
        inverse,
        groups,
        group_weights,
        components,
        weights,
        nodes,
        roots,
        scalars,
        thresholds,
        calibration,
        windows,
        raw,
        p_values,
        over,
        fused,
        flagged,
    ):
        _ = formulas
        z = np.empty(location.shape[1], np.float32)
        links = nodes.view(np.uint16)
        for i in range(len(slots)):
            s = slots[i]
            scale.standardize_row(rows[i], location[s], inverse[s], z)
            raw[i, 0] = zscore.score_row(z, groups[s], group_weights[s])
            raw[i, 1] = mahalanobis.score_row(z, components[s], weights[s], scalars[s, 0])
            raw[i, 2] = forest.score_row(z, nodes[s], links[s], roots[s], scalars[s, 1])
            n = windows[s]
            agree = 0
            square = 0.0
            for d in range(raw.shape[1]):
                known = calibration[s, d, :n]
                p = fusion.p_value(raw[i, d], known)
                p_values[i, d] = p
                over[i, d] = raw[i, d] > thresholds[s, d]
                agree += over[i, d]
                square += fusion.surprise(raw[i, d], p, known[n - 1]) ** 2
            fused[i] = np.sqrt(square / raw.shape[1])
            flagged[i] = agree >= fusion.AGREE

    return score


def _checksum() -> int:
    checksum = 0
    for module in (scale, zscore, mahalanobis, forest, fusion):
        checksum = zlib.crc32(Path(str(module.__file__)).read_bytes(), checksum)
    return checksum


_score = _compiled(_checksum())
