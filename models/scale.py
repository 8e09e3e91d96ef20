"""Where each feature lies in the baseline, and how much of a change is a change at all.

A channel that did not move in the baseline has no deviation of its own: one dropped packet would
be infinitely odd. So each scale has a floor, in the channel's own unit:

- a level (gauge): a share of the largest level of its subsystem and unit. Levels of memory drift
  on every machine; they count against all the memory that there is.
- a rate: an amount per second that is worth a look in its unit, a share of the channel's own
  level and, for events, of the busiest counter of its subsystem: 400 retransmits a second are
  much on an idle host and little among 45,000 segments.
"""

from __future__ import annotations

import fnmatch
import re
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
"""Features that the detectors see: the first of `FEATURES`. `min` and `max` go into
`models.extremes`. On the servers of ASD the deviation is what most faults show in (see `make
bench-detection`)."""

GAUGE_SHARE = 0.05
BYTES = {"B": 1.0, "KiB": 1024.0, "pages": 4096.0}
"""Units of memory, so that all its levels count against the largest. Where pages are larger than
4 KiB, levels in pages get a floor that is too high; their twins in bytes do not."""
GAUGE_FLOORS = {
    "B": 16 * 2.0**20,
    "sockets": 50.0,
    "connections": 50.0,
    "ms": 10.0,
    "instructions/cycle": 0.1,
}
GAUGE_FLOOR = 1.0
"""For every other unit."""
RANGE_SHARE = 0.01
"""A level without a unit, of which nobody knows how much is much: a share of its own range."""

LEAST_SHARE = 1e-3
"""Of such a level itself, where it hardly moved."""
LEAST_FLOOR = 1e-4

RATE_SHARE = 0.05
RATE_FLOORS = {"B": 2.0**18, "%": 2.0, "ms": 20.0}
"""Per second; by the part of the unit before the slash."""
EVENT_FLOOR = 20.0
"""Events per second: every other unit."""
EVENT_SHARE = 0.005

IMBALANCE = "imbalance"
IMBALANCE_FLOOR = 10.0
"""Percent, of metrics whose names end so: which core does a little more moves with every interrupt
that is placed anew. On campaign-a, found faults whose subsystem was right at the end of their
episode, of 28: 15 without, 17 with it, and 17 with 5 and 20 as well."""

NOT_SCORED = (
    *("memory.mem_free", "memory.buffers", "memory.cached", "memory.active", "memory.inactive"),
    *("memory.*file*", "memory.slab", "memory.*reclaimable", "memory.direct_map*"),
    *("vmstat.nr_free_pages*", "vmstat.nr_*file*", "vmstat.nr_slab_reclaimable"),
    *("vmstat.workingset_nodes", "vmstat.nr_*threshold", "memory.vmalloc_*", "cpu.load_*"),
)
"""Patterns of metrics that drift where nothing is wrong: the kernel fills free memory with page
cache and slabs, and its limits on dirty pages follow. What a workload takes shows in available and
anonymous memory. The vmalloc range is address space, not memory, and load averages would hold an
episode open for minutes after its cause."""

_NOT_SCORED = re.compile("|".join(map(fnmatch.translate, NOT_SCORED)))

LIMIT = 1e6
"""No deviation counts for more, so that sums of squares stay finite."""


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Location and scale of the scored features.

    `location` and `inverse` have shape ``(len(SCORED) * channels,)``; `inverse` is one over the
    scale, 0 for what is not scored. `floor` has shape ``(channels,)``.
    """

    location: NDArray[np.float32]
    inverse: NDArray[np.float32]
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
    means = np.where(known, x + location, np.nan)[:, : len(channels)]
    floor = floors(level, channels, _range(means))
    scale = np.maximum(deviation, np.tile(floor, len(SCORED)))
    live &= np.tile(scored_channels(channels), len(SCORED))
    inverse = np.where(live, 1.0 / scale, 0.0)
    location = np.where(live, location, 0.0)
    return Scale(location.astype(np.float32), inverse.astype(np.float32), floor)


def _range(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far apart the lowest and the highest mean of each channel are; 0 if absent."""
    high = np.where(np.isnan(means), -np.inf, means).max(axis=0)
    low = np.where(np.isnan(means), np.inf, means).min(axis=0)
    return np.asarray(np.maximum(high - low, 0.0))


def floors(
    level: NDArray[np.float64], channels: ChannelTable, spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the smallest change of each channel that counts as one, shape ``(channels,)``.

    `level` is the mean of each channel in the baseline, without its sign, `spread` how far apart
    its lowest and highest are.
    """
    groups = [_group(c, channels) for c in range(len(channels))]
    largest: dict[tuple[str, str, str], float] = {}
    for c in np.flatnonzero(scored_channels(channels)).tolist():
        size = level[c] * BYTES.get(channels.unit[c], 1.0)
        largest[groups[c]] = max(largest.get(groups[c], 0.0), size)
    floor = np.empty(len(channels))
    for c, group in enumerate(groups):
        _, kind, unit = group
        if kind == "gauge" and unit == "":
            floor[c] = max(RANGE_SHARE * spread[c], LEAST_SHARE * level[c], LEAST_FLOOR)
        elif kind == "gauge":
            least = max(GAUGE_FLOORS.get(unit, GAUGE_FLOOR), GAUGE_SHARE * largest.get(group, 0.0))
            floor[c] = least / BYTES.get(channels.unit[c], 1.0)
        else:
            share = EVENT_SHARE * largest.get(group, 0.0) if unit == "" else 0.0
            floor[c] = max(RATE_FLOORS.get(unit, EVENT_FLOOR), RATE_SHARE * level[c], share)
        if channels.metric[c].endswith(IMBALANCE):
            floor[c] = max(floor[c], IMBALANCE_FLOOR)
    return floor


def _group(c: int, channels: ChannelTable) -> tuple[str, str, str]:
    """Return what channel c is measured against: subsystem, kind, unit ("" for events)."""
    kind, unit = channels.kind[c], channels.unit[c]
    if kind == "gauge":
        unit = "B" if unit in BYTES else unit
    else:
        unit = unit.partition("/")[0]
        unit = unit if unit in RATE_FLOORS else ""
    return channels.subsystem[c], kind, unit


def scored_channels(channels: ChannelTable) -> NDArray[np.bool_]:
    """Return which channels are scored, shape ``(channels,)``."""
    names = zip(channels.subsystem, channels.metric, strict=True)
    return np.array([s != UNSCORED and not _NOT_SCORED.match(m) for s, m in names], bool)


def scored_width(channels: int) -> int:
    """Return how many of a row's features, from the first on, are standardised."""
    return len(SCORED) * channels


def learned_width(channels: int) -> int:
    """Return how many of a row's features, from the first on, a baseline is learned from."""
    return len(FEATURES) * channels


@njit(nogil=True, cache=True, error_model="numpy")
def standardize_row(
    x: NDArray[np.float32],
    location: NDArray[np.float32],
    inverse: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write the deviations of one row, in scales; what is absent deviates by 0."""
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


def standardize(
    windows: NDArray[np.float32], location: NDArray[np.float32], inverse: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return deviations, shape ``(windows, len(SCORED) * channels)``."""
    out = np.empty((len(windows), len(location)), np.float32)
    _standardize(np.ascontiguousarray(windows), location, inverse, out)
    return out
