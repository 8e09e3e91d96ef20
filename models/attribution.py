"""Which channels make a window odd, and what they should have been.

Each detector that found the window odd says which features it was odd by:

- `models.zscore`: the deviation beyond what is common, ``max(0, |z| - COMMON)``
- `models.ridge`, `models.mahalanobis`: the feature's exact part of the squared distance, ``z_f (A
  z)_f`` with A the inverse covariance; parts below 0, which lessen the distance, are left out
- `models.neighbours`: its part in the way to the nearest windows, taken back to the features
- `models.forest`: the cuts on the way to a leaf share what the way is shorter than usual
- `models.extremes`, `models.drop`: the channels that stick out or fell silent

A channel's share is that of its features, each detector's parts adding up to 1 and weighed by how
far it is from its own middling window. Blame falls on channels, not on features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models import drop, extremes
from models.calibration import LEAST_SCORES, Line
from models.channels import UNSCORED
from models.forest import path_parts
from models.mode import ALONE, DETECTORS, Mode
from models.neighbours import NEAREST
from models.scale import SCORED, standardize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.baseline import Baseline
    from models.channels import ChannelTable

TOP = 10
COMMON = 2.0
"""Deviations, in scales, that a channel of a normal window may well show."""


@dataclass(frozen=True, slots=True)
class Blame:
    """A channel that contributes, in its own unit.

    `channel` is its place in the row. `value` is the window's mean, expected between `low` and
    `high`. `statistic` is the feature that deviates most, of those in `models.scale.SCORED`,
    and `deviation` how far, signed, in the baseline's deviations (which the noise floor holds
    up). `stands_for` are the places of the channels that it represents.
    """

    channel: int
    statistic: str
    value: float
    low: float
    high: float
    deviation: float
    share: float
    stands_for: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who is to blame for a window: shares of subsystems, which add up to 1, and channels.

    Both are in falling order; `channels` holds the `TOP` at most. A window that is exactly at the
    baseline's location has nothing to blame: all shares are 0.
    """

    subsystems: tuple[tuple[str, float], ...]
    channels: tuple[Blame, ...]


def attribute(
    baseline: Baseline,
    row: NDArray[np.float32],
    channels: ChannelTable,
    raw: NDArray[np.float64] | None = None,
) -> Attribution:
    """Explain one window.

    Parameters
    ----------
    baseline
        Of the host.
    row
        Features of the window, shape ``(len(FEATURES) * channels,)``.
    channels
        What the channels are.
    raw
        The detectors' scores of the window; without them all of it is told by deviations alone.
    """
    n = len(channels)
    z = standardize(row[None], baseline.location, baseline.inverse)[0].astype(np.float64)
    share = _shares(baseline, row, z, raw)
    by_subsystem: dict[str, float] = {}
    for subsystem, part in zip(channels.subsystem, share.tolist(), strict=True):
        if subsystem != UNSCORED:
            by_subsystem[subsystem] = by_subsystem.get(subsystem, 0.0) + part
    by_feature = z.reshape(len(SCORED), n)
    strongest = np.abs(by_feature).argmax(0)
    top = np.argsort(-share, kind="stable")[:TOP]
    return Attribution(
        tuple(sorted(by_subsystem.items(), key=lambda item: -item[1])),
        tuple(
            Blame(
                channel=c,
                statistic=SCORED[strongest[c]],
                value=float(row[c]),
                low=float(baseline.low[c]),
                high=float(baseline.high[c]),
                deviation=float(by_feature[strongest[c], c]),
                share=float(share[c]),
                stands_for=tuple(_others(baseline.stands, c)),
            )
            for c in top.tolist()
            if share[c] > 0
        ),
    )


def _others(stands: NDArray[np.int32], channel: int) -> Iterator[int]:
    for other in np.flatnonzero(stands == channel).tolist():
        if other != channel:
            yield other


def _shares(
    baseline: Baseline,
    row: NDArray[np.float32],
    z: NDArray[np.float64],
    raw: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return the share of each channel, shape ``(channels,)``."""
    n = baseline.channels
    total = np.zeros(n)
    names = DETECTORS[Mode(baseline.mode)]
    for place, name in enumerate(names):
        weight = 1.0 if raw is None else _weight(baseline, place, name, float(raw[place]))
        if weight <= 0.0 or (raw is None and name != "zscore"):
            continue
        parts = _parts(baseline, name, row, z)
        whole = parts.sum()
        if whole > 0.0:
            total += weight * parts / whole
    if not total.any():
        total = np.abs(z).reshape(-1, n).sum(axis=0)
    return np.asarray(total / max(float(total.sum()), 1e-300))


def _weight(baseline: Baseline, place: int, name: str, raw: float) -> float:
    """Return how far a detector is from its middling window; 0 for what flags alone and did not."""
    over = raw / max(float(baseline.thresholds[place]), 1e-12)
    if name in ALONE:
        return float(baseline.open_at[0]) * over if over > 1.0 else 0.0
    if baseline.mode == Mode.PAPER:
        return over if over > 1.0 else 0.0
    middle, spread = float(baseline.middles[place]), float(baseline.spreads[place])
    line = Line(middle, spread, LEAST_SCORES[place])
    return max(0.0, float(line.standardize(np.array([raw]))[0]))


def _parts(
    baseline: Baseline, name: str, row: NDArray[np.float32], z: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what each channel contributes to one detector's score, shape ``(channels,)``."""
    n = baseline.channels
    if name == "zscore":
        return np.asarray(np.maximum(np.abs(z) - COMMON, 0.0).reshape(-1, n).sum(axis=0))
    if name == "extremes":
        return np.maximum(extremes.ratios(row, baseline.reach) - 1.0, 0.0)
    if name == "drop":
        return drop.falls(row, baseline.lowest, baseline.floor)
    joint = np.where(baseline.joint, z, 0.0)
    if name == "forest":
        parts = path_parts(joint.astype(np.float32), baseline.nodes, baseline.roots, baseline.norm)
    else:
        components = baseline.components.astype(np.float64)
        y = joint @ components
        if name == "neighbours":
            directions = baseline.references.shape[1]
            scaled = (y * baseline.deviations)[:directions]
            away = scaled - baseline.references
            nearest = np.argsort((away * away).sum(axis=1), kind="stable")[:NEAREST]
            way = away[nearest].mean(axis=0) * baseline.deviations[:directions]
            pull = components[:, :directions] @ way
        else:
            pull = baseline.residual * joint + components @ (baseline.weights * y)
        parts = np.maximum(joint * pull, 0.0)
    return np.asarray(parts.reshape(-1, n).sum(axis=0))
