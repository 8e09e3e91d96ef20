"""Slow drift: windows that are not odd, and yet too often among the oddest of the baseline.

On windows like those of the baseline, p-values are spread evenly: one in five is below a fifth. A
host that slowly leaves its baseline shows more and more of them before windows are flagged. Kept of
each host is the exponentially weighted share of windows whose p-value is below `RARE` under most
detectors; twice what it should be is a drift. Waiting longer leaves no time to learn: where 40
channels drift together, half of the windows are flagged when each has gone one deviation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RARE = 0.2
AWAY, BACK = 0.4, 0.25
"""Shares of rare windows above which a host drifts, and below which it no longer does."""


class DriftBank:
    """Which of many hosts drift, by slot.

    Parameters
    ----------
    windows
        Time constant of the weights, in windows: what is older counts less than 1/e. Were all
        windows rare from now on, a host would drift after three tenths of it. 0 watches nothing.
    """

    def __init__(self, windows: float) -> None:
        self._rate = 1.0 - np.exp(-1.0 / windows) if windows > 0 else 0.0
        self._share = np.zeros(0)
        self._drifting = np.zeros(0, bool)

    def step(
        self, slots: NDArray[np.int64], p_values: NDArray[np.float64], calm: NDArray[np.bool_]
    ) -> NDArray[np.intp]:
        """Take a window each of some hosts; return the rows of those that begin or cease to drift.

        Parameters
        ----------
        slots
            Shape ``(n,)``, each at most once.
        p_values
            Shape ``(n, detectors)``.
        calm
            Shape ``(n,)``: windows in no episode; others do not count.
        """
        if len(slots) == 0 or self._rate == 0.0:
            return np.zeros(0, np.intp)
        self._make_room(int(slots.max()))
        share, was = self._share[slots], self._drifting[slots]
        rare = (p_values < RARE).sum(1) * 2 > p_values.shape[1]
        share += self._rate * calm * (rare - share)
        now = share > np.where(was, BACK, AWAY)
        self._share[slots], self._drifting[slots] = share, now
        return np.flatnonzero(now != was)

    def drifts(self, slot: int) -> bool:
        """Return whether a host drifts."""
        return slot < len(self._drifting) and bool(self._drifting[slot])

    def reset(self, slot: int) -> None:
        """Begin anew with a slot: another host, or another baseline."""
        if slot < len(self._share):
            self._share[slot], self._drifting[slot] = RARE, False

    def _make_room(self, slot: int) -> None:
        if slot >= len(self._share):
            more = max(slot + 1, 2 * len(self._share)) - len(self._share)
            self._share = _longer(self._share, more, RARE)
            self._drifting = _longer(self._drifting, more, False)


def _longer(array: NDArray[Any], more: int, fill: float) -> NDArray[Any]:
    return np.concatenate([array, np.full(more, fill, array.dtype)])
