"""What is normal on one host: a value of arrays with a version, learned once from its windows."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from models.channels import ChannelTable
from models.forest import Forest
from models.mahalanobis import PcaMahalanobis
from models.scale import SCORED, fit_scale, noise_floor, standardize
from models.zscore import ZScore

DETECTORS = ("zscore", "mahalanobis", "forest")
QUANTILE = 0.99
BLOCKS = 4
"""Parts of the baseline that are each scored by detectors fitted on the others."""
MIN_WINDOWS = 30
CALIBRATION = 128
"""Baseline scores that are kept per detector, as quantiles."""


class CannotLearn(ValueError):
    """These windows make no baseline; the text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """All that scoring and attribution need of a host's normal. F is the scored features.

    Attributes
    ----------
    version
        Name of the baseline, chosen by the caller.
    windows
        How many it was learned from.
    location, inverse
        Shape ``(F,)``: see `models.scale`.
    group, inverse_size
        See `models.zscore`.
    components, inverse_variance, inverse_residual
        See `models.mahalanobis`.
    feature, value, left, inverse_norm
        See `models.forest`.
    thresholds
        Shape ``(3,)``: the baseline's 99th percentile of each detector, out of sample.
    calibration
        Shape ``(3, CALIBRATION)``: quantiles of the baseline's scores, ascending.
    low, high
        Shape ``(channels,)``: where the mean of each channel is expected, in its unit.
    """

    version: int
    windows: int
    location: NDArray[np.float32]
    inverse: NDArray[np.float32]
    group: NDArray[np.int8]
    inverse_size: NDArray[np.float32]
    components: NDArray[np.float32]
    inverse_variance: NDArray[np.float32]
    inverse_residual: np.float32
    feature: NDArray[np.int16]
    value: NDArray[np.float32]
    left: NDArray[np.int16]
    inverse_norm: np.float32
    thresholds: NDArray[np.float32]
    calibration: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """Return the arrays as an npz file."""
        out = io.BytesIO()
        arrays = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        np.savez(out, **arrays)  # type: ignore[arg-type]
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Baseline:
        """Read what `to_bytes` wrote; ValueError says what is wrong with anything else."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                found = {f.name: arrays[f.name] for f in fields(cls)}
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as e:
            raise ValueError(f"{len(data)} bytes are not a baseline: {e}") from None
        for name in ("version", "windows"):
            found[name] = int(found[name])
        for name in ("inverse_residual", "inverse_norm"):
            found[name] = np.float32(found[name])
        return cls(**found)


def fit_baseline(
    windows: NDArray[np.float32],
    channels: ChannelTable,
    *,
    seed: int,
    version: int,
    quantile: float = QUANTILE,
) -> Baseline:
    """Learn what is normal.

    Parameters
    ----------
    windows
        Shape ``(windows, >= 2 * channels)``, feature-major, in time order.
    channels
        What the channels are.
    seed
        Of the Isolation Forest.
    version
        Name of the baseline.
    quantile
        Where on the baseline's own scores the thresholds lie.

    Raises
    ------
    CannotLearn
        There are too few windows, or nothing in them moves.
    """
    count = len(windows)
    if count < MIN_WINDOWS:
        raise CannotLearn(f"{count} windows are too few: {MIN_WINDOWS} are needed")
    windows = np.ascontiguousarray(windows[:, : SCORED * len(channels)])
    scale = fit_scale(windows, channels)
    live = scale.inverse > 0
    if not live.any():
        raise CannotLearn("no channel was there in enough windows")
    z = standardize(windows, scale.location, scale.inverse)
    if not z.any():
        raise CannotLearn("no channel ever moved")
    zscore = ZScore.fit(np.tile(channels.groups()[1], SCORED), live)
    mahalanobis = PcaMahalanobis.fit(z)
    forest, unseen = Forest.fit(z, seed=seed)
    held_out = _held_out(windows, channels, zscore)
    scores = np.column_stack([*held_out, unseen]).astype(np.float32)
    low, high = _expected(windows[:, : len(channels)], channels)
    return Baseline(
        version,
        count,
        scale.location,
        scale.inverse,
        zscore.group,
        zscore.inverse_size,
        mahalanobis.components,
        mahalanobis.inverse_variance,
        mahalanobis.inverse_residual,
        forest.feature,
        forest.value,
        forest.left,
        forest.inverse_norm,
        np.maximum(np.quantile(scores, quantile, axis=0), 1e-6).astype(np.float32),
        np.quantile(scores, np.linspace(0, 1, CALIBRATION), axis=0).T.astype(np.float32),
        low,
        high,
    )


def _held_out(
    windows: NDArray[np.float32], channels: ChannelTable, zscore: ZScore
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Score each block of the baseline by scale and subspace that the others give.

    Scores of windows that a detector was fitted on are too low: a threshold taken from them
    would be crossed all the time. Blocks are whole stretches of time, since neighbouring
    windows share two thirds of their ticks.
    """
    by_zscore = np.empty(len(windows), np.float32)
    by_mahalanobis = np.empty(len(windows), np.float32)
    for block in np.array_split(np.arange(len(windows)), BLOCKS):
        others = np.delete(windows, block, axis=0)
        scale = fit_scale(others, channels)
        inside = standardize(others, scale.location, scale.inverse)
        z = standardize(windows[block], scale.location, scale.inverse)
        by_zscore[block] = zscore.score(z)
        by_mahalanobis[block] = PcaMahalanobis.fit(inside).score(z)
    return by_zscore, by_mahalanobis


def _expected(
    means: NDArray[np.float32], channels: ChannelTable
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the range of each channel's mean in the baseline, widened by its noise floor."""
    known = ~np.isnan(means)
    low = np.where(known, means, np.inf).min(0)
    high = np.where(known, means, -np.inf).max(0)
    seen = known.any(0)
    level = np.where(seen, (low + high) / 2, 0).astype(np.float64)
    floor = noise_floor(level, channels)
    low = np.where(seen, low - floor, np.nan)
    # What cannot be negative is not expected to be.
    low = np.where(seen & (np.where(known, means, np.inf).min(0) >= 0), np.maximum(low, 0), low)
    high = np.where(seen, high + floor, np.nan)
    return low.astype(np.float32), high.astype(np.float32)
