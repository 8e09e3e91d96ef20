"""Which channels and subsystems carry a deviation.

A channel's contribution is the sum of the squares of its standardised features, clipped as the
detectors see them: z and Mahalanobis distance are made of these squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.baseline import Baseline
from models.channels import ChannelTable
from models.features import FEATURES
from models.scale import CLIP, SCORED

TOP = 10


@dataclass(frozen=True, slots=True)
class Blame:
    """One channel's part in a deviation.

    Attributes
    ----------
    channel
        Its place in the layout.
    statistic
        The feature that deviates most: ``mean`` or ``std``.
    value
        Mean of the channel in the window, in its unit.
    low, high
        Where the mean is expected.
    deviation
        Signed, of the feature that deviates most, in scales of the baseline.
    share
        Of the whole deviation, 0 to 1.
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
    """Shares of the subsystems, adding up to 1, and the channels to blame, largest first."""

    subsystems: tuple[tuple[str, float], ...]
    channels: tuple[Blame, ...]


def attribute(
    baseline: Baseline, window: NDArray[np.float32], channels: ChannelTable
) -> Attribution:
    """Explain a window's deviation from a baseline; `window` is a row of features."""
    count = len(channels)
    z = (window[: SCORED * count] - baseline.location) * baseline.inverse
    z = np.nan_to_num(z, nan=0.0).reshape(SCORED, count)
    clipped = np.minimum(np.abs(z), CLIP)
    # What is clipped alike is told apart by how far it really is, a little.
    weight = (clipped**2).sum(0)
    total = float(weight.sum()) or 1.0
    names, group = channels.groups()
    shares = np.bincount(group, weights=weight, minlength=len(names)) / total
    ranked = sorted(zip(names, shares.tolist(), strict=True), key=lambda item: -item[1])
    most = np.lexsort((-np.abs(z).max(0), -np.round(weight, 1)))[:TOP]
    blamed = []
    for c in most:
        if weight[c] <= 0:
            break
        worst = int(np.abs(z[:, c]).argmax())
        blamed.append(
            Blame(
                int(c),
                FEATURES[worst],
                float(window[c]),
                float(baseline.low[c]),
                float(baseline.high[c]),
                float(z[worst, c]),
                float(weight[c]) / total,
            )
        )
    return Attribution(tuple(item for item in ranked if item[1] > 0), tuple(blamed))
