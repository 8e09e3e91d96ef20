"""Which channels make a window odd, and what they should have been.

A channel's contribution is the sum over its scored features of the deviation beyond what is
common, ``max(0, |z| - COMMON)``, and its share is that over the sum of all channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.channels import UNSCORED
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
    up).
    """

    channel: int
    statistic: str
    value: float
    low: float
    high: float
    deviation: float
    share: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who is to blame for a window: shares of subsystems, which add up to 1, and channels.

    Both are in falling order; `channels` holds the `TOP` at most. A window that is exactly at the
    baseline's location has nothing to blame: all shares are 0.
    """

    subsystems: tuple[tuple[str, float], ...]
    channels: tuple[Blame, ...]


def attribute(baseline: Baseline, row: NDArray[np.float32], channels: ChannelTable) -> Attribution:
    """Explain one window.

    Parameters
    ----------
    baseline
        Of the host.
    row
        Features of the window, shape ``(len(FEATURES) * channels,)``.
    channels
        What the channels are.
    """
    n = len(channels)
    z = standardize(row[None], baseline.location, baseline.inverse)[0]
    z = z.astype(np.float64).reshape(len(SCORED), n)
    contribution = np.maximum(np.abs(z) - COMMON, 0.0).sum(axis=0)
    if not contribution.any():
        contribution = np.abs(z).sum(axis=0)
    share = contribution / max(float(contribution.sum()), 1e-300)
    by_subsystem: dict[str, float] = {}
    for subsystem, part in zip(channels.subsystem, share.tolist(), strict=True):
        if subsystem != UNSCORED:
            by_subsystem[subsystem] = by_subsystem.get(subsystem, 0.0) + part
    strongest = np.abs(z).argmax(0)
    top = np.argsort(-contribution, kind="stable")[:TOP]
    return Attribution(
        tuple(sorted(by_subsystem.items(), key=lambda item: -item[1])),
        tuple(
            Blame(
                channel=c,
                statistic=SCORED[strongest[c]],
                value=float(row[c]),
                low=float(baseline.low[c]),
                high=float(baseline.high[c]),
                deviation=float(z[strongest[c], c]),
                share=float(share[c]),
            )
            for c in top.tolist()
            if share[c] > 0
        ),
    )
