"""What windows do that others did not, channel by channel, on plain arrays.

Two questions about a host's life are asked here. While it is learned: does the newest part still
do what the former part never did, so that a phase of the workload is missing? In a long episode:
which of the subsystems have left their usual range for good?

Both look at the means of a window only, against ranges. A range is widened by a share of itself
and of its level before a value counts as outside, since the range of few windows is too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.channels import UNSCORED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.channels import ChannelTable

WIDER = 0.5
"""Of a range, on each of its ends."""
LEVEL = 0.05
"""Of the larger of a range's ends, without its sign: the least by which it is widened."""

NEWEST = 5
"""The newest fifth is held against the rest."""
NEW_SHARE = 0.25
"""Share of a subsystem's live channels outside at once that makes a window a new one. A spike of
one counter is none: noise of 700 channels has some in every window."""
NEW_CHANNELS = 2
NEW_WINDOWS = 4
"""New windows that are a phase: one odd sample is in three windows of 3 s."""

USUAL = (2.0, 98.0)
"""Percentiles of the learned windows, the ends of a channel's usual range. The extremes would be
those of the largest checkpoint."""
STAYS = 0.75
"""Share of windows in which a channel is outside, for it to have left."""
TAKES_PART = 0.5
"""Share of a subsystem's live channels that have left, for it to take part in a change. A fault of
one subsystem shows in others, in the few of their channels that wait for it."""
QUIET = 0.1
"""Of the usual range: a value so near to its low end is as quiet as the channel gets."""
SILENT = 0.9
"""Share of a subsystem's live channels that are quiet, for it to have nothing to say: disks that
idle most of the time do not show whether the workload that used them is gone."""
LEAST_SUBSYSTEMS = 3
"""Subsystems that are not silent, below which a change of all cannot be told from a fault."""


@dataclass(frozen=True, slots=True, eq=False)
class Usual:
    """Where a host's channels usually are: `low` and `high`, shape ``(channels,)``, NaN if never.

    Both in the channel's unit.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]

    @classmethod
    def of(cls, means: NDArray[np.float32]) -> Usual:
        """Learn it from windows' means, shape ``(windows, channels)``."""
        low = np.full(means.shape[1], np.nan, np.float32)
        high = low.copy()
        known = ~np.isnan(means).all(axis=0)
        low[known], high[known] = np.nanpercentile(means[:, known], USUAL, axis=0)
        return cls(low, high)


@dataclass(frozen=True, slots=True)
class Part:
    """How much of a subsystem has left its usual range: `left` of its `live` channels.

    `quiet` of them are at the low end of their range, as they usually are at times.
    """

    subsystem: str
    left: int
    quiet: int
    live: int

    @property
    def silent(self) -> bool:
        """Whether it does nothing, which is usual for it."""
        return self.quiet >= SILENT * self.live

    @property
    def takes_part(self) -> bool:
        """Whether that is the subsystem, and not some channels of it."""
        return self.left >= TAKES_PART * self.live


def new_in(windows: NDArray[np.float32], channels: ChannelTable) -> tuple[str, ...]:
    """Return the subsystems whose newest windows do what the former did not, in order of names.

    Parameters
    ----------
    windows
        Shape ``(windows, features)`` in order of time; the first features are the means of the
        channels, NaN where there is none.
    """
    means = windows[:, : len(channels)]
    cut = len(means) - len(means) // NEWEST
    if cut == 0 or cut == len(means):
        return ()
    low, high = np.fmin.reduce(means[:cut]), np.fmax.reduce(means[:cut])
    newest = means[cut:]
    outside = _outside(newest, low, high)
    live = (np.fmax(high, np.fmax.reduce(newest)) > np.fmin(low, np.fmin.reduce(newest))).tolist()
    found = []
    for name, members in _subsystems(channels):
        mine = members[np.array(live)[members]]
        least = max(min(NEW_CHANNELS, len(mine)), NEW_SHARE * len(mine))
        if len(mine) and (outside[:, mine].sum(1) >= least).sum() >= NEW_WINDOWS:
            found.append(name)
    return tuple(found)


def still_moving(windows: NDArray[np.float32], channels: ChannelTable) -> bool:
    """Return whether some subsystem is on its way to somewhere, or does new things.

    It is on its way while the medians of most of its live channels in the newest fifth lie outside
    of everything before: a ramp is within any widened range. `windows` as in `new_in`.
    """
    if new_in(windows, channels):
        return True
    means = windows[:, : len(channels)]
    cut = len(means) - len(means) // NEWEST
    if cut == 0 or cut == len(means):
        return False
    low, high = np.fmin.reduce(means[:cut]), np.fmax.reduce(means[:cut])
    middle = np.median(means[cut:], axis=0)
    gone, live = (middle > high) | (middle < low), (high > low) | (middle != high)
    return any(
        gone[members].sum() >= TAKES_PART * live[members].sum() > 0
        for _, members in _subsystems(channels)
    )


def parts(windows: NDArray[np.float32], usual: Usual, channels: ChannelTable) -> tuple[Part, ...]:
    """Return of each live subsystem how much of it has left its usual range and stays outside.

    A channel is live that moved in the baseline, or has left its constant value. `windows` as in
    `new_in`.
    """
    means = windows[:, : len(channels)]
    left = _outside(means, usual.low, usual.high).mean(0) >= STAYS
    near = usual.low + QUIET * (usual.high - usual.low)
    quiet = ~left & ((means <= near).mean(0) >= STAYS)
    live = (usual.high > usual.low) | left
    return tuple(
        Part(name, *(int((live & of)[members].sum()) for of in (left, quiet, live)))
        for name, members in _subsystems(channels)
        if live[members].any()
    )


def all_changed(changed: tuple[Part, ...]) -> bool:
    """Return whether every subsystem that is not silent takes part, and there are enough."""
    heard = [part for part in changed if not part.silent]
    return len(heard) >= LEAST_SUBSYSTEMS and all(part.takes_part for part in heard)


def _outside(
    means: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Return which values lie outside widened ranges; what is absent, or never was there, not."""
    margin = np.maximum(WIDER * (high - low), LEVEL * np.maximum(np.abs(low), np.abs(high)))
    # Comparisons with NaN are false, and that is what is wanted.
    return np.asarray((means > high + margin) | (means < low - margin))


def _subsystems(channels: ChannelTable) -> list[tuple[str, NDArray[np.intp]]]:
    names = np.array(channels.subsystem)
    return [(str(s), np.flatnonzero(names == s)) for s in np.unique(names) if s != UNSCORED]
