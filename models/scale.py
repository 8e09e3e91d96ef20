"""Standardisation against a baseline, with a floor under the scale.

Without a floor, a channel that happened to stand still while the baseline was learned would make
an alarm of its first twitch; leaving such channels out would miss a retransmit counter that
starts to move. So every channel has a smallest scale that is worth a word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.channels import UNSCORED, ChannelTable

SCORED = 2
"""Mean and deviation, the first two of `models.features.FEATURES`, are scored."""

CLIP = 8.0
"""Deviations beyond this many scales count as this many: one wild channel is not an episode."""

GAUGE_SHARE = 0.01
"""Smallest scale of a gauge, as a share of the largest level in its subsystem and unit."""

RATE_SHARE = 0.10
"""Smallest scale of a rate, as a share of its own level."""

RATE_FLOORS = {"bytes/s": 262_144.0, "percent": 2.0, "ms/s": 20.0}
"""Smallest scale of a rate by unit; all other units are counts of events."""

EVENT_FLOOR = 3.0
"""Smallest scale of a rate of events, per second."""

LIVE_SHARE = 0.8
"""A channel that is there in fewer of the baseline's windows is not scored."""


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Location and inverse scale of each scored feature, shapes ``(features,)``.

    The inverse scale is 0 where a feature is not scored.
    """

    location: NDArray[np.float32]
    inverse: NDArray[np.float32]


def fit_scale(windows: NDArray[np.float32], channels: ChannelTable) -> Scale:
    """Learn where each feature lies and what it is worth.

    Parameters
    ----------
    windows
        Shape ``(windows, >= SCORED * channels)``, feature-major; NaN where absent.
    """
    count = len(channels)
    x = windows[:, : SCORED * count].astype(np.float64)
    known = ~np.isnan(x)
    n = np.maximum(known.sum(0), 1)
    location = np.where(known, x, 0).sum(0) / n
    spread = np.sqrt(np.where(known, (x - location) ** 2, 0).sum(0) / n)
    live = known.mean(0) >= LIVE_SHARE
    live &= np.tile([s != UNSCORED for s in channels.subsystem], SCORED)
    floor = np.tile(noise_floor(location[:count], channels), SCORED)
    inverse = np.where(live, 1 / np.maximum(spread, floor), 0)
    return Scale(location.astype(np.float32), inverse.astype(np.float32))


def noise_floor(level: NDArray[np.float64], channels: ChannelTable) -> NDArray[np.float64]:
    """Return the smallest scale of each channel, given its mean level; all are positive."""
    floor = np.empty(len(channels))
    largest: dict[tuple[str, str], float] = {}
    keys = list(zip(channels.subsystem, channels.unit, strict=True))
    for key, kind, value in zip(keys, channels.kind, np.abs(level), strict=True):
        if kind == "gauge":
            largest[key] = max(largest.get(key, 0.0), float(value))
    for c, (key, kind, value) in enumerate(zip(keys, channels.kind, np.abs(level), strict=True)):
        if kind == "gauge":
            floor[c] = max(GAUGE_SHARE * largest[key], 1e-6)
        else:
            floor[c] = max(RATE_FLOORS.get(channels.unit[c], EVENT_FLOOR), RATE_SHARE * value)
    return floor


@njit(nogil=True, cache=True)
def standardize_row(
    x: NDArray[np.float32],
    location: NDArray[np.float32],
    inverse: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the clipped deviations of one window; 0 where a value is absent."""
    clip = np.float32(CLIP)
    for f in range(len(location)):
        z = (x[f] - location[f]) * inverse[f]
        if np.isnan(z):
            z = np.float32(0)
        out[f] = min(max(z, -clip), clip)


@njit(nogil=True, cache=True)
def standardize(
    windows: NDArray[np.float32],
    location: NDArray[np.float32],
    inverse: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the clipped deviations of many windows of one host, ``(windows, features)``."""
    out = np.empty((len(windows), len(location)), np.float32)
    for w in range(len(windows)):
        standardize_row(windows[w], location, inverse, out[w])
    return out
