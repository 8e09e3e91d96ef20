"""Where each feature lies in the baseline, and how much of a change is a change at all.

A channel that did not move in the baseline has no deviation of its own: one dropped packet would
be infinitely odd. Each scale therefore has a floor, in the channel's own unit:

- a level (gauge): a share of the largest level of the same subsystem and unit. Free memory, its
  slabs and its page tables all move against the memory of the machine, not against themselves.
- a rate: an amount per second that is worth a look in its unit, or a share of the channel's own
  level, whichever is larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from models.channels import UNSCORED
from models.features import FEATURES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.channels import ChannelTable

SCORED = ("mean", "std")
"""Features that the detectors see: the first of `FEATURES`."""

GAUGE_SHARE = 0.01
GAUGE_FLOORS = {"bytes": 16 * 2.0**20, "pages": 4096.0}
"""Smallest scale of a gauge by unit; for all other units it is 1."""

RATE_SHARE = 0.05
RATE_FLOORS = {
    "bytes": 1e6,
    "percent": 2.0,
    "ms": 20.0,
}
"""Per second; by the part of the unit before the slash."""
RATE_FLOOR = 20.0
"""Events per second, for every other unit."""
LIMIT = 1e6
"""No deviation counts for more, so that sums of squares stay finite."""


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Location and scale of the scored features.

    `location` and `inverse` have shape ``(len(SCORED) * channels,)``; `inverse` is one over the
    scale, 0 for what is not scored. `spread` is the deviation in the baseline before the floor,
    in units of the scale. `floor` has shape ``(channels,)``.
    """

    location: NDArray[np.float32]
    inverse: NDArray[np.float32]
    spread: NDArray[np.float64]
    floor: NDArray[np.float64]


def fit_scale(windows: NDArray[np.float32], channels: ChannelTable) -> Scale:
    """Learn location and scale.

    Parameters
    ----------
    windows
        Shape ``(windows, len(FEATURES) * channels)``; NaN where a channel had no value. A feature
        that is absent in more than half of them is not scored.
    """
    width = scored_width(len(channels))
    x = windows[:, :width].astype(np.float64)
    known = np.isfinite(x)
    x[~known] = 0.0
    count = known.sum(0)
    live = count >= max(1.0, len(x) / 2)
    location = x.sum(0) / np.maximum(count, 1)
    x -= location
    x[~known] = 0.0
    deviation = np.sqrt((x * x).sum(0) / np.maximum(count, 1))
    level = np.where(live, np.abs(location), 0.0)[: len(channels)]
    floor = floors(level, channels)
    scale = np.maximum(deviation, np.tile(floor, len(SCORED)))
    live &= np.tile(np.array([s != UNSCORED for s in channels.subsystem], bool), len(SCORED))
    live &= scale > 0
    inverse = np.where(live, 1.0 / np.where(scale > 0, scale, 1.0), 0.0)
    location = np.where(live, location, 0.0)
    return Scale(
        location.astype(np.float32), inverse.astype(np.float32), deviation * inverse, floor
    )


def floors(level: NDArray[np.float64], channels: ChannelTable) -> NDArray[np.float64]:
    """Return the smallest change of each channel that counts as one, shape ``(channels,)``.

    `level` is the mean of each channel in the baseline, without its sign.
    """
    largest: dict[tuple[str, str], float] = {}
    groups = list(zip(channels.subsystem, channels.unit, strict=True))
    for group, value in zip(groups, level.tolist(), strict=True):
        largest[group] = max(largest.get(group, 0.0), value)
    floor = np.empty(len(channels))
    for c, group in enumerate(groups):
        if channels.kind[c] == "gauge":
            floor[c] = max(GAUGE_FLOORS.get(group[1], 1.0), GAUGE_SHARE * largest[group])
        else:
            unit = channels.unit[c].partition("/")[0]
            floor[c] = max(RATE_FLOORS.get(unit, RATE_FLOOR), RATE_SHARE * level[c])
    return floor


def scored_width(channels: int) -> int:
    """Return how many of a row's features, from the first on, are scored."""
    return FEATURES[: len(SCORED)].index(SCORED[-1]) * channels + channels


@njit(nogil=True, cache=True, error_model="numpy")
def standardize_row(
    x: NDArray[np.float32],
    location: NDArray[np.float32],
    inverse: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the deviations of one row, in scales; what is absent or not finite deviates by 0."""
    limit = np.float32(LIMIT)
    zero = np.float32(0.0)
    for f in range(len(out)):
        z = (x[f] - location[f]) * inverse[f]
        z = z if z > -limit else (-limit if z <= -limit else zero)
        out[f] = z if z < limit else limit


@njit(nogil=True, cache=True, error_model="numpy")
def _standardize(
    x: NDArray[np.float32],
    location: NDArray[np.float32],
    inverse: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    for i in range(len(x)):
        standardize_row(x[i], location, inverse, out[i])


def standardize(windows: NDArray[np.float32], scale: Scale) -> NDArray[np.float32]:
    """Return deviations, shape ``(windows, len(SCORED) * channels)``."""
    out = np.empty((len(windows), len(scale.location)), np.float32)
    _standardize(np.ascontiguousarray(windows), scale.location, scale.inverse, out)
    return out
