"""A baseline: what is normal on one host, as arrays and a version.

Thresholds and p-values come from scores of windows that the detectors were not fitted on. The
baseline is cut into blocks in time; each is scored by detectors fitted on the others, less the
windows that share ticks with it. Scores of a detector on its own training windows are far too low
when features outnumber windows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from models import archive, forest, mahalanobis, zscore
from models.channels import ChannelTable
from models.features import FEATURES
from models.scale import Scale, fit_scale, standardize

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DETECTORS", "Baseline", "CannotLearn", "ChannelTable", "fit_baseline"]

DETECTORS = ("zscore", "mahalanobis", "forest")
"""In the order of every array of detectors."""
LEAST_WINDOWS = 30
FOLDS = 5
FOLD_TREES = 20
"""Trees of a forest that only scores one block: its mean is the same, and trees are what costs."""
OVERLAP = 2
"""Neighbours on each side that share ticks with a window of 3 s at a stride of 1 s."""


class CannotLearn(ValueError):
    """No baseline can be made of these windows; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Everything that scores one host.

    With C channels and F scored features:

    - `location`, `inverse` ``(F,)``: see `models.scale.Scale`
    - `components` ``(F, COMPONENTS)``, `weights` ``(COMPONENTS,)``, `residual`: see
      `models.mahalanobis.Mahalanobis`
    - `nodes` ``(nodes, 2)``, `roots` ``(trees,)``, `norm`: see `models.forest.Forest`
    - `inverse_count`: see `models.zscore.ZScore`
    - `thresholds` ``(3,)``; `calibration` ``(3, windows)``, sorted
    - `low`, `high` ``(C,)``: where a window's mean is expected, in the channel's unit
    """

    version: int
    location: NDArray[np.float32]
    inverse: NDArray[np.float32]
    inverse_count: float
    components: NDArray[np.float32]
    weights: NDArray[np.float32]
    residual: float
    nodes: NDArray[np.float32]
    roots: NDArray[np.int32]
    norm: float
    thresholds: NDArray[np.float64]
    calibration: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """Return the baseline as bytes, for a topic or a file."""
        return archive.write({f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Baseline:
        """Read what `to_bytes` wrote; ValueError says what is wrong with it."""
        return cls(**archive.read(data))

    @property
    def channels(self) -> int:
        """Channels of a row."""
        return len(self.low)

    @property
    def windows(self) -> int:
        """Windows that it was learned from."""
        return len(self.calibration[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = [np.asarray(getattr(self, f.name)) for f in fields(self)]
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True, slots=True, eq=False)
class _Detectors:
    scale: Scale
    z: zscore.ZScore
    mahalanobis: mahalanobis.Mahalanobis
    forest: forest.Forest

    def score(self, windows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return scores, shape ``(3, windows)``."""
        rows = standardize(windows, self.scale)
        return np.stack([self.z.score(rows), self.mahalanobis.score(rows), self.forest.score(rows)])


def fit_baseline(
    windows: NDArray[np.float32],
    channels: ChannelTable,
    *,
    seed: int,
    version: int,
    quantile: float = 0.99,
) -> Baseline:
    """Learn what is normal.

    Parameters
    ----------
    windows
        Shape ``(windows, len(FEATURES) * channels)``, in order of time; NaN means absent.
    channels
        What the channels are.
    seed
        Of the Isolation Forest: the same windows and seed give the same baseline.
    version
        Names the baseline in every score.
    quantile
        Of the held-out scores, where a detector's threshold lies.

    Raises
    ------
    CannotLearn
        Too few windows, or nothing in them that moves.
    """
    n = len(windows)
    if windows.shape[1:] != (len(FEATURES) * len(channels),):
        raise ValueError(
            f"windows of {windows.shape[1:]} features do not fit {len(channels)} channels"
        )
    if n < LEAST_WINDOWS:
        raise CannotLearn(f"{n} windows are too few to learn from: {LEAST_WINDOWS} are needed")
    # Matrices this small are several times slower on many threads than on one.
    with threadpool_limits(1):
        return _learn(np.ascontiguousarray(windows, np.float32), channels, seed, version, quantile)


def _learn(
    windows: NDArray[np.float32],
    channels: ChannelTable,
    seed: int,
    version: int,
    quantile: float,
) -> Baseline:
    n = len(windows)
    whole = _fit(windows, channels, seed)
    if not whole.scale.spread.any():
        raise CannotLearn("no scored channel moved in the baseline: all are constant or absent")
    held_out = np.empty((len(DETECTORS), n))
    edges = np.linspace(0, n, FOLDS + 1).astype(int)
    for first, end in itertools.pairwise(edges.tolist()):
        others = np.r_[0 : max(0, first - OVERLAP), min(n, end + OVERLAP) : n]
        part = _fit(windows[others], channels, seed, trees=FOLD_TREES)
        held_out[:, first:end] = part.score(windows[first:end])
    calibration = np.sort(held_out, axis=1).astype(np.float32)
    low, high = _expected(windows[:, : len(channels)], whole.scale.floor)
    return Baseline(
        version=version,
        location=whole.scale.location,
        inverse=whole.scale.inverse,
        inverse_count=whole.z.inverse_count,
        components=whole.mahalanobis.components,
        weights=whole.mahalanobis.weights,
        residual=whole.mahalanobis.residual,
        nodes=whole.forest.nodes,
        roots=whole.forest.roots,
        norm=whole.forest.norm,
        thresholds=np.quantile(calibration, quantile, axis=1).astype(np.float64),
        calibration=calibration,
        low=low,
        high=high,
    )


def _fit(
    windows: NDArray[np.float32], channels: ChannelTable, seed: int, *, trees: int = forest.TREES
) -> _Detectors:
    scale = fit_scale(windows, channels)
    rows = standardize(windows, scale)
    live = scale.inverse > 0
    return _Detectors(
        scale,
        zscore.fit(live),
        mahalanobis.fit(rows, live),
        forest.fit(rows, seed=seed, trees=trees),
    )


def _expected(
    means: NDArray[np.float32], floor: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the range of each channel's means in the baseline, widened by its floor."""
    known = ~np.isnan(means).all(axis=0)
    low = np.full(means.shape[1], np.nan, np.float32)
    high = low.copy()
    low[known], high[known] = np.nanpercentile(means[:, known], (1, 99), axis=0)
    # What cannot be negative is not expected to be.
    below = np.where(low >= 0, np.maximum(low - floor, 0.0), low - floor)
    return below.astype(np.float32), (high + floor).astype(np.float32)
