"""Episodes: when a run of odd windows is one event, and when it is over.

A host's episode opens when three of its last five scored windows are flagged, and closes when
three of the last five are clean. A window that could not be scored counts as neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

LAST = 5
NEEDED = 3
_MASK = (1 << LAST) - 1
_COUNT = np.array([bin(i).count("1") for i in range(1 << LAST)], np.int8)


class Phase(StrEnum):
    """What a window did to its host's episode."""

    OPEN = "open"
    ONGOING = "ongoing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class EpisodeEvent:
    """What a window of a call did.

    Attributes
    ----------
    index
        Which window of the call.
    phase
        Whether the episode opened, went on or closed.
    onset
        End of the last window before the first flagged one, in the caller's unit of time: the
        odd behaviour began after it.
    windows, flagged
        Scored windows since the onset, and flagged ones among them.
    """

    index: int
    phase: Phase
    onset: int
    windows: int
    flagged: int


class EpisodeBank:
    """Episodes of many hosts by slot; quiet hosts cost a few array operations a batch."""

    def __init__(self) -> None:
        self._history = np.zeros(4, np.int64)
        self._scored = np.zeros(4, np.int64)
        self._onset = np.zeros(4, np.int64)
        self._windows = np.zeros(4, np.int64)
        self._flagged = np.zeros(4, np.int64)
        self._open = np.zeros(4, np.bool_)

    def step(
        self,
        slots: NDArray[np.int64],
        ends: NDArray[np.int64],
        flagged: NDArray[np.bool_],
        stride: int,
    ) -> list[EpisodeEvent]:
        """Take in one scored window of each of `slots`, which are all different.

        `ends` are the windows' ends, `stride` the time between windows.
        """
        while len(slots) and int(slots.max()) >= len(self._history):
            self._grow()
        history = (self._history[slots] << 1 | flagged) & _MASK
        scored = (self._scored[slots] << 1 | 1) & _MASK
        self._history[slots], self._scored[slots] = history, scored
        odd = _COUNT[history]
        clean = _COUNT[scored] - odd
        was_open = self._open[slots]
        opens = ~was_open & (odd >= NEEDED)
        closes = was_open & (clean >= NEEDED)
        # The begin of the run that may become an episode: the first flagged window remembered.
        fresh = flagged & ~was_open & (odd == 1)
        self._onset[slots[fresh]] = ends[fresh] - stride
        self._windows[slots[fresh]] = 0
        self._flagged[slots[fresh]] = 0
        counted = was_open | (odd > 0)
        self._windows[slots] += counted
        self._flagged[slots] += flagged
        self._open[slots] = (was_open | opens) & ~closes
        events = []
        for i in np.flatnonzero(was_open | opens):
            slot = slots[i]
            phase = Phase.OPEN if opens[i] else Phase.CLOSED if closes[i] else Phase.ONGOING
            events.append(
                EpisodeEvent(
                    int(i),
                    phase,
                    int(self._onset[slot]),
                    int(self._windows[slot]),
                    int(self._flagged[slot]),
                )
            )
            if closes[i]:
                self.reset(int(slot))
        return events

    def close(self, slot: int) -> EpisodeEvent | None:
        """End a host's episode because it can no longer be judged; None if there is none."""
        if slot >= len(self._open) or not self._open[slot]:
            return None
        event = EpisodeEvent(
            0,
            Phase.CLOSED,
            int(self._onset[slot]),
            int(self._windows[slot]),
            int(self._flagged[slot]),
        )
        self.reset(slot)
        return event

    def reset(self, slot: int) -> None:
        """Forget what a slot's host did."""
        if slot < len(self._open):
            for array in (self._history, self._scored, self._windows, self._flagged):
                array[slot] = 0
            self._open[slot] = False

    def _grow(self) -> None:
        for name in ("_history", "_scored", "_onset", "_windows", "_flagged", "_open"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
