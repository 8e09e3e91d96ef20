"""A baseline: what is normal on one host, as arrays and a version.

Components and trees fit their own training windows far too well when features outnumber
windows, so thresholds and p-values come from windows held out: the baseline is cut into blocks in
time, and each is scored by components and trees fitted on the others, less the windows that share
ticks with it. Location and scale, two numbers a feature, are those of the whole baseline
throughout: left out of the scale, a disk burst that came only once would put every threshold out
of reach.

A threshold is the 99th percentile of the held-out scores. That of 120 overlapping windows is a
rough guess, and every guess that is too low is a stream of false alarms, so it is the upper end
of a confidence interval: for scores s that are about log-normal, with n windows that do not
overlap, ``q exp(1.645 sd(log s) sqrt((1 + z² / 2) / n))`` (the standard error of a normal
quantile, z being its place in the standard normal).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from models import archive, forest, mahalanobis, zscore
from models.channels import ChannelTable
from models.features import FEATURES
from models.scale import SCORED, fit_scale, scored_width, standardize

if TYPE_CHECKING:
    from collections.abc import Iterator

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
CONFIDENCE = 1.645
"""Standard errors on top of a quantile: 95 % one-sided."""
LEAST_THRESHOLDS = (1.0, 0.5, 0.5)
"""Where a host hardly moves, a score below these is not odd, whatever the baseline's scores."""


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
    - `groups` ``(F,)``, `group_weights` ``(GROUPS,)``: see `models.zscore.ZScore`
    - `thresholds` ``(3,)``; `calibration` ``(3, windows)``, sorted
    - `low`, `high` ``(C,)``: where a window's mean is expected, in the channel's unit
    """

    version: int
    location: NDArray[np.float32]
    inverse: NDArray[np.float32]
    groups: NDArray[np.int8]
    group_weights: NDArray[np.float64]
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
        Shape ``(windows, len(FEATURES) * channels)``, in order of time, or only the first
        `scored_width(channels)` features, which are those that count; NaN means absent.
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
    if windows.shape[1] not in (scored_width(len(channels)), len(FEATURES) * len(channels)):
        raise ValueError(
            f"windows of {windows.shape[1]} features do not fit {len(channels)} channels"
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
    scale = fit_scale(windows, channels)
    rows = standardize(windows, scale.location, scale.inverse)
    if not rows.any():
        raise CannotLearn("no scored channel moved in the baseline: all are constant or absent")
    live = scale.inverse > 0
    by_zscore = zscore.fit(rows, np.tile(channels.groups(), len(SCORED)), live)
    by_distance = mahalanobis.fit(rows, live)
    by_forest = forest.fit(rows, seed=seed)
    held_out = np.empty((len(DETECTORS), len(rows)))
    held_out[0] = by_zscore.score(rows)
    for inside, outside in _folds(len(rows)):
        held_out[1, inside] = mahalanobis.fit(rows[outside], live).score(rows[inside])
        part = forest.fit(rows[outside], seed=seed, trees=FOLD_TREES)
        held_out[2, inside] = part.score(rows[inside])
    low, high = _expected(windows[:, : len(channels)], scale.floor)
    return Baseline(
        version=version,
        location=scale.location,
        inverse=scale.inverse,
        groups=by_zscore.groups,
        group_weights=by_zscore.weights,
        components=by_distance.components,
        weights=by_distance.weights,
        residual=by_distance.residual,
        nodes=by_forest.nodes,
        roots=by_forest.roots,
        norm=by_forest.norm,
        thresholds=np.maximum(_thresholds(held_out, quantile), LEAST_THRESHOLDS),
        calibration=np.sort(held_out, axis=1).astype(np.float32),
        low=low,
        high=high,
    )


def _folds(n: int) -> Iterator[tuple[slice, NDArray[np.intp]]]:
    """Yield blocks of windows, and for each the windows that share no tick with it."""
    edges = np.linspace(0, n, FOLDS + 1).astype(int).tolist()
    for first, end in itertools.pairwise(edges):
        yield slice(first, end), np.r_[0 : max(0, first - OVERLAP), min(n, end + OVERLAP) : n]


def _thresholds(scores: NDArray[np.float64], quantile: float) -> NDArray[np.float64]:
    """Return the upper ends of the quantiles' confidence intervals, by detector."""
    apart = scores.shape[1] / (OVERLAP + 1)
    error = math.sqrt((1.0 + NormalDist().inv_cdf(quantile) ** 2 / 2.0) / apart)
    spread = np.log(np.maximum(scores, 1e-9)).std(axis=1)
    widened = np.quantile(scores, quantile, axis=1) * np.exp(CONFIDENCE * error * spread)
    return np.asarray(widened, np.float64)


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
