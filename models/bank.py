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

from models import archive, drop, extremes, forest, fusion, mahalanobis, neighbours, scale, zscore
from models import calibration as calibrated
from models import mode as modes
from models.calibration import LEAST_SCORES, STAYS
from models.features import FEATURES
from models.mode import AGREE, DETECTORS, FUSED, Mode
from models.neighbours import DIRECTIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.baseline import Baseline

__all__ = ["BaselineBank", "BatchScores"]


@dataclass(frozen=True, slots=True, eq=False)
class BatchScores:
    """Scores of n windows by the D detectors of the mode, in the order of `models.mode.DETECTORS`.

    `raw`, `p_values` and `over` (its threshold) have shape ``(n, D)``; `fused`, `flagged` and
    `odd` have shape ``(n,)``. Higher is odder, but for p-values. `fused` is explained in
    `models.calibration`; in the paper's mode it is how many detectors are over their thresholds.
    A window that is flagged opens an episode with others, one that is `odd` keeps it open.
    `ratio` is the fused score over the threshold of its host and subsystem.
    """

    raw: NDArray[np.float64]
    p_values: NDArray[np.float64]
    over: NDArray[np.bool_]
    fused: NDArray[np.float64]
    ratio: NDArray[np.float64]
    flagged: NDArray[np.bool_]
    odd: NDArray[np.bool_]


_FIXED = (
    *("location", "inverse", "joint", "groups", "group_weights", "components", "weights"),
    *("deviations", "roots", "reach", "lowest", "floor", "middles", "spreads", "thresholds"),
    "open_at",
)
"""Arrays of a baseline that have the same shape in every slot."""


class BaselineBank:
    """Baselines by slot. Arrays grow by doubling, as slots and larger forests come.

    Parameters
    ----------
    channels
        Of every row and baseline.
    mode
        Of every baseline.
    """

    def __init__(self, channels: int, mode: Mode = Mode.DEFAULT) -> None:
        self.channels = channels
        self.mode = mode
        lengths = {
            "channels": channels,
            "features": scale.scored_width(channels),
            "components": archive.COMPONENTS[mode],
            "detectors": len(DETECTORS[mode]),
            "trees": forest.TREES,
        }
        self._present = np.zeros(0, bool)
        self._fixed: dict[str, NDArray[Any]] = {}
        for name in _FIXED:
            kind, shape = archive.ARRAYS[name]
            axes = [a if isinstance(a, int) else lengths[a] for a in shape]
            self._fixed[name] = np.empty((0, *axes), kind)
        directions = min(DIRECTIONS, lengths["components"])
        self._scalars = np.empty((0, 2))
        self._nodes = np.empty((0, 0, 2), np.float32)
        self._references = np.empty((0, 0, directions), np.float32)
        self._calibration = np.empty((0, lengths["detectors"], 0), np.float32)
        self._counts = np.empty((0, 2), np.int64)

    def set(self, slot: int, baseline: Baseline) -> None:
        """Put a baseline into a slot, from 0 on; what was there is replaced.

        Raises
        ------
        ValueError
            The baseline has another number of channels or trees than the bank, or another mode.
        """
        if baseline.mode != self.mode:
            raise ValueError(f"baseline of mode {baseline.mode} in a bank of mode {self.mode}")
        if baseline.channels != self.channels:
            raise ValueError(
                f"baseline of {baseline.channels} channels in a bank of {self.channels}"
            )
        if len(baseline.roots) != forest.TREES:
            raise ValueError(f"forest of {len(baseline.roots)} trees, not {forest.TREES}")
        references = len(baseline.references)
        self._make_room(slot, len(baseline.nodes), references, baseline.windows)
        for name, array in self._fixed.items():
            array[slot] = getattr(baseline, name)
        self._scalars[slot] = baseline.residual, baseline.norm
        self._nodes[slot, : len(baseline.nodes)] = baseline.nodes
        self._references[slot, :references] = baseline.references
        self._calibration[slot, :, : baseline.windows] = baseline.calibration
        self._counts[slot] = references, baseline.windows
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
        raw = np.zeros((n, len(DETECTORS[self.mode])))
        out = BatchScores(
            raw=raw,
            p_values=np.empty_like(raw),
            over=np.empty(raw.shape, bool),
            fused=np.empty(n),
            ratio=np.empty(n),
            flagged=np.empty(n, bool),
            odd=np.empty(n, bool),
        )
        fixed = self._fixed
        _score(
            np.ascontiguousarray(slots, np.int64),
            np.ascontiguousarray(rows, np.float32),
            self.mode is Mode.PAPER,
            *(fixed["location"], fixed["inverse"], fixed["joint"]),
            *(fixed["groups"], fixed["group_weights"]),
            *(fixed["components"], fixed["weights"], fixed["deviations"]),
            *(self._nodes, fixed["roots"], self._scalars, self._references),
            *(fixed["reach"], fixed["lowest"], fixed["floor"]),
            *(fixed["middles"], fixed["spreads"], fixed["thresholds"], fixed["open_at"]),
            *(self._calibration, self._counts),
            *(raw, out.p_values, out.over, out.fused, out.ratio, out.flagged, out.odd),
        )
        return out

    def _make_room(self, slot: int, nodes: int, references: int, windows: int) -> None:
        capacity = len(self._present)
        if slot >= capacity:
            capacity = max(slot + 1, 2 * capacity)
            self._present = _resized(self._present, capacity, fill=0)
            self._scalars = _resized(self._scalars, capacity)
            self._counts = _resized(self._counts, capacity)
            for name, array in self._fixed.items():
                self._fixed[name] = _resized(array, capacity)
        if slot >= len(self._nodes) or nodes > self._nodes.shape[1]:
            self._nodes = _resized(self._nodes, capacity, max(nodes, self._nodes.shape[1]))
        held = self._references.shape[1]
        if slot >= len(self._references) or references > held:
            self._references = _resized(self._references, capacity, max(references, held))
        most = max(windows, self._calibration.shape[2])
        if slot >= len(self._calibration) or windows > self._calibration.shape[2]:
            detectors = len(DETECTORS[self.mode])
            self._calibration = _resized(self._calibration, capacity, detectors, most)


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
    core = len(FUSED)
    least = np.array(LEAST_SCORES)

    @njit(nogil=True, cache=True, error_model="numpy")
    def score(  # type: ignore[no-untyped-def]  # compiled: the types are those of the arrays
        slots,
        rows,
        paper,
        location,
        inverse,
        joint,
        groups,
        group_weights,
        components,
        weights,
        deviations,
        nodes,
        roots,
        scalars,
        references,
        reach,
        lowest,
        floor,
        middles,
        spreads,
        thresholds,
        open_at,
        calibration,
        counts,
        raw,
        p_values,
        over,
        fused,
        ratio,
        flagged,
        odd,
    ):
        _ = formulas
        z = np.empty(location.shape[1], np.float32)
        y = np.empty(components.shape[2], np.float32)
        links = nodes.view(np.uint16)
        for i in range(len(slots)):
            s = slots[i]
            scale.standardize_row(rows[i], location[s], inverse[s], z)
            raw[i, 0], leader = zscore.score_row(z, groups[s], group_weights[s])
            for f in range(len(z)):
                if not joint[s, f]:
                    z[f] = np.float32(0.0)
            length = mahalanobis.project_row(z, components[s], y)
            raw[i, 1] = mahalanobis.score_row(y, length, weights[s], scalars[s, 0])
            by_trees = forest.score_row(z, nodes[s], links[s], roots[s], scalars[s, 1])
            if paper:
                raw[i, 2] = by_trees
            else:
                for k in range(len(y)):
                    y[k] *= deviations[s, k]
                raw[i, 2] = neighbours.score_row(y, references[s, : counts[s, 0]])
                raw[i, 3] = by_trees
                raw[i, 4] = extremes.score_row(rows[i], reach[s])
                raw[i, 5] = drop.score_row(rows[i], lowest[s], floor[s])
            agree = 0
            total = 0.0
            alone = False
            for d in range(raw.shape[1]):
                p_values[i, d] = fusion.p_value(raw[i, d], calibration[s, d, : counts[s, 1]])
                over[i, d] = raw[i, d] > thresholds[s, d]
                agree += over[i, d]
                if d < core:
                    logged = np.log(max(raw[i, d], least[d]))
                    total += (logged - middles[s, d]) / spreads[s, d]
                else:
                    alone |= over[i, d]
            if paper:
                fused[i] = agree
                ratio[i] = agree / AGREE
                flagged[i] = agree >= AGREE
                odd[i] = flagged[i]
            else:
                fused[i] = total / core
                ratio[i] = fused[i] / open_at[s, leader]
                flagged[i] = alone or ratio[i] > 1.0
                odd[i] = alone or ratio[i] > STAYS

    return score


_FORMULAS = (
    *(scale, zscore, mahalanobis, neighbours, forest, extremes, drop, fusion),
    *(calibrated, modes),
)


def _checksum() -> int:
    checksum = 0
    for module in _FORMULAS:
        checksum = zlib.crc32(Path(str(module.__file__)).read_bytes(), checksum)
    return checksum


_score = _compiled(_checksum())
