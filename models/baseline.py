"""A baseline: what is normal on one host, as arrays and a version.

Components, references and trees fit their own training windows far too well when features
outnumber windows, so thresholds and p-values come from windows held out: the baseline is cut into
blocks in time, and each is scored by what was fitted on the others, less the windows that share
ticks with it. Location and scale, two numbers a feature, are those of the whole baseline
throughout: left out of the scale, a disk burst that came only once would put every threshold out
of reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from models import archive, drop, extremes, prune, zscore
from models.calibration import DEFAULT_PER_DAY, LEAST_SCORES, Line, threshold
from models.channels import ChannelTable
from models.fitted import Fitted, Fitting, Rows
from models.mode import AGREE, FUSED, PRUNE, Mode
from models.scale import SCORED, Scale, fit_scale, learned_width, standardize

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Baseline", "CannotLearn", "ChannelTable", "Tuning", "fit_baseline"]

LEAST_WINDOWS = 30
QUANTILE = 0.99
"""Of the training scores, where the paper's mode has its thresholds."""
LEAST_SPREADS = {"zscore": 0.15, "ridge": 0.1, "neighbours": 0.1, "forest": 0.05}
"""Of log scores: a host that stands still is not odd at its first twitch."""
MARGIN = 1.5
"""Times the highest held-out score, that a detector which flags alone has to reach."""


class CannotLearn(ValueError):
    """No baseline can be made of these windows; the message says why."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What an operator may want otherwise.

    Attributes
    ----------
    mode
        Which detectors speak.
    false_alarms_per_day
        Episodes that a host may open in a day without a cause. Not in the paper's mode.
    stride_s
        Seconds between windows.
    overlap
        Neighbours on each side that share ticks with a window.
    prune
        Correlation from which on one channel stands for another; None is the mode's own.
    sensitivity
        By subsystem: 2 halves the threshold where it is the oddest one, 0.5 doubles it.
    """

    mode: Mode = Mode.DEFAULT
    false_alarms_per_day: float = DEFAULT_PER_DAY
    stride_s: float = 1.0
    overlap: int = 2
    prune: float | None = None
    sensitivity: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Everything that scores one host.

    With C channels, F scored features and D detectors:

    - `location`, `inverse` ``(F,)``: see `models.scale.Scale`
    - `stands` ``(C,)``: see `models.prune.representatives`; `joint` ``(F,)``: features that the
      detectors see which look at channels together
    - `groups` ``(F,)``, `group_weights` ``(GROUPS,)``: see `models.zscore.ZScore`
    - `components` ``(F, k)``, `weights`, `deviations` ``(k,)``, `residual`: see
      `models.mahalanobis.Mahalanobis`
    - `references` ``(references, DIRECTIONS)``: see `models.neighbours.Neighbours`
    - `nodes` ``(nodes, 2)``, `roots` ``(trees,)``, `norm`: see `models.forest.Forest`
    - `reach` ``(2, C)``: see `models.extremes.Extremes`
    - `lowest`, `floor` ``(C,)``: see `models.drop.Drop`
    - `middles`, `spreads` ``(D,)``: see `models.calibration.Line`
    - `thresholds` ``(D,)``, and `open_at` ``(GROUPS,)``: of the fused score, by subsystem
    - `calibration` ``(D, windows)``, sorted
    - `low`, `high` ``(C,)``: where a window's mean is expected, in the channel's unit
    """

    version: int
    mode: str
    location: NDArray[np.float32]
    inverse: NDArray[np.float32]
    stands: NDArray[np.int32]
    joint: NDArray[np.bool_]
    groups: NDArray[np.int8]
    group_weights: NDArray[np.float64]
    components: NDArray[np.float32]
    weights: NDArray[np.float32]
    deviations: NDArray[np.float32]
    residual: float
    references: NDArray[np.float32]
    nodes: NDArray[np.float32]
    roots: NDArray[np.int32]
    norm: float
    reach: NDArray[np.float32]
    lowest: NDArray[np.float32]
    floor: NDArray[np.float32]
    middles: NDArray[np.float64]
    spreads: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    open_at: NDArray[np.float64]
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
    tuning: Tuning | None = None,
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
    tuning
        What the operator wants otherwise.

    Raises
    ------
    CannotLearn
        Too few windows, or nothing in them that moves.
    """
    n = len(windows)
    if windows.shape[1] != learned_width(len(channels)):
        raise ValueError(
            f"windows of {windows.shape[1]} features do not fit {len(channels)} channels"
        )
    if n < LEAST_WINDOWS:
        raise CannotLearn(f"{n} windows are too few to learn from: {LEAST_WINDOWS} are needed")
    rows = np.ascontiguousarray(windows, np.float32)
    # Matrices this small are several times slower on many threads than on one.
    with threadpool_limits(1):
        return _learn(rows, channels, seed, version, tuning or Tuning())


def _learn(
    windows: NDArray[np.float32],
    channels: ChannelTable,
    seed: int,
    version: int,
    tuning: Tuning,
) -> Baseline:
    scale = fit_scale(windows, channels)
    z = standardize(windows, scale.location, scale.inverse)
    if not z.any():
        raise CannotLearn("no scored channel moved in the baseline: all are constant or absent")
    stands, joint = _reanalyse(z, scale, tuning)
    rows = Rows(windows, z, np.where(joint, z, np.float32(0.0)))
    fitting = Fitting(rows, scale, joint, channels, seed, tuning.mode)
    fitted = fitting.fit(rows)
    scores = fitting.held_out(tuning.overlap)
    if tuning.mode is Mode.PAPER:
        lines, open_at = [Line(0.0, 1.0)] * len(scores), float(AGREE)
        thresholds = np.quantile(fitted.scores(rows), QUANTILE, axis=1)
    else:
        lines, thresholds, open_at = _calibrate(scores, tuning)
    low, high = _expected(windows[:, : len(channels)], scale.floor)
    return Baseline(
        version=version,
        mode=tuning.mode.value,
        location=scale.location,
        inverse=scale.inverse,
        stands=stands,
        joint=joint,
        **fitted.arrays(),
        middles=np.array([line.middle for line in lines]),
        spreads=np.array([line.spread for line in lines]),
        thresholds=thresholds,
        open_at=_by_group(open_at, channels, fitted, tuning),
        calibration=np.sort(scores, axis=1).astype(np.float32),
        low=low,
        high=high,
    )


def _calibrate(
    scores: NDArray[np.float64], tuning: Tuning
) -> tuple[list[Line], NDArray[np.float64], float]:
    """Return lines and thresholds of all detectors, and the fused threshold.

    `scores` are held out, shape ``(detectors, windows)``.
    """
    fused, alone = scores[: len(FUSED)], scores[len(FUSED) :]
    lines = [
        Line.of(s, LEAST_SPREADS[name], least)
        for name, s, least in zip(FUSED, fused, LEAST_SCORES, strict=True)
    ]
    units = [line.standardize(s) for line, s in zip(lines, fused, strict=True)]
    fused_all = np.mean(units, axis=0)
    open_at = threshold(fused_all, tuning.false_alarms_per_day, tuning.stride_s, tuning.overlap)
    least = (extremes.LEAST_THRESHOLD, drop.LEAST_THRESHOLD)
    reached = np.maximum(alone.max(axis=1) * MARGIN, least)
    thresholds = np.array([*(line.at(open_at) for line in lines), *reached])
    return lines + [Line(0.0, 1.0)] * len(alone), thresholds, open_at


def _reanalyse(
    z: NDArray[np.float32], scale: Scale, tuning: Tuning
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return who stands for whom, and the features that are looked at together."""
    channels = len(scale.floor)
    most = PRUNE[tuning.mode] if tuning.prune is None else tuning.prune
    stands = prune.representatives(z[:, :channels], most)
    kept = stands == np.arange(channels)
    if tuning.mode is Mode.DEFAULT:
        # What stood still moves with nothing, but that it moves now is worth the more.
        kept |= stands == prune.NOBODY
    return stands, np.tile(kept, len(SCORED)) & (scale.inverse > 0)


def _by_group(
    open_at: float, channels: ChannelTable, fitted: Fitted, tuning: Tuning
) -> NDArray[np.float64]:
    """Return the threshold of each subsystem, in the order of `ChannelTable.groups`."""
    out = np.full(zscore.GROUPS, open_at)
    if fitted.zscore.groups.any():  # otherwise all subsystems are one
        for group, name in enumerate(sorted(set(channels.subsystem))):
            out[group] = open_at / tuning.sensitivity.get(name, 1.0)
    return out


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
