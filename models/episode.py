"""Episodes: when single odd windows become something to tell, and when that is over.

An episode opens when three of the last five windows of a host are flagged. It closes after three
windows in a row that are calm: "three of five" both ways would be no hysteresis at all, since
three clean of five is the same as not three flagged of five. A window is calm well below the
threshold that flags (`models.calibration.STAYS`), or one that wavers around it would be a score of
episodes. A window that was not scored counts
neither way; after a long hole the flags before it no longer count.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAST = 5
TO_OPEN = 3
TO_CLOSE = 3
FORGET_STRIDES = 15
"""A hole this long between two windows ends the count of flags. An open episode goes on."""


class Phase(StrEnum):
    """What a window did to its host's episode."""

    OPEN = "open"
    ONGOING = "ongoing"
    CLOSED = "closed"


_PHASES = tuple(Phase)
_OPEN, _ONGOING, _CLOSED = range(3)

_HOST = np.dtype(
    [
        ("seen", np.int64),  # windows in the count of flags
        ("latest", np.int64),
        ("open", np.bool_),
        ("clean", np.int64),  # unflagged windows in a row
        ("onset", np.int64),
        ("windows", np.int64),
        ("flagged", np.int64),
        ("ends", np.int64, LAST),
        ("flags", np.int8, LAST),
    ]
)
_EVENT = np.dtype(
    [
        ("row", np.int64),
        ("phase", np.int64),
        ("onset", np.int64),
        ("windows", np.int64),
        ("flagged", np.int64),
    ]
)


@dataclass(frozen=True, slots=True)
class EpisodeEvent:
    """What a window of a call did.

    Attributes
    ----------
    index
        Which window of the call; -1 when the episode was ended from outside.
    phase
        Whether the episode opened, went on or closed.
    onset
        When the last stride of the first flagged window began, in the caller's unit of time: what
        is odd came in with it.
    windows, flagged
        Scored windows since the onset, and flagged ones among them.
    """

    index: int
    phase: Phase
    onset: int
    windows: int
    flagged: int


class EpisodeBank:
    """Episodes of many hosts, by slot."""

    def __init__(self) -> None:
        self._hosts = np.zeros(0, _HOST)

    def step(
        self,
        slots: NDArray[np.int64],
        ends: NDArray[np.int64],
        flagged: NDArray[np.bool_],
        stride: int,
        odd: NDArray[np.bool_] | None = None,
    ) -> list[EpisodeEvent]:
        """Take scored windows, those of one slot in order of time; all shapes ``(n,)``.

        `ends` are the windows' ends, `stride` the time between windows, `odd` which windows are
        not calm enough to close an episode; those that are flagged, unless it is given. Returns
        events in order of the rows; an open episode has one for every window.
        """
        if len(slots) == 0:
            return []
        self._make_room(int(slots.max()))
        events = np.empty(len(slots), _EVENT)
        count = _step(
            self._hosts, slots, ends, flagged, flagged if odd is None else odd, stride, events
        )
        return [
            EpisodeEvent(row, _PHASES[phase], onset, windows, flags)
            for row, phase, onset, windows, flags in events[:count].tolist()
        ]

    def close(self, slot: int) -> EpisodeEvent | None:
        """End a host's episode because it can no longer be judged; None if there is none."""
        if slot >= len(self._hosts):
            return None
        host = self._hosts[slot].copy()
        self.reset(slot)
        if not host["open"]:
            return None
        return EpisodeEvent(
            -1, Phase.CLOSED, int(host["onset"]), int(host["windows"]), int(host["flagged"])
        )

    def reset(self, slot: int) -> None:
        """Forget everything about a slot."""
        if slot < len(self._hosts):
            self._hosts[slot] = np.zeros((), _HOST)

    def _make_room(self, slot: int) -> None:
        if slot >= len(self._hosts):
            hosts = np.zeros(max(slot + 1, 2 * len(self._hosts)), _HOST)
            hosts[: len(self._hosts)] = self._hosts
            self._hosts = hosts


@njit(nogil=True, cache=True)
def _step(  # type: ignore[no-untyped-def]  # compiled: records have no type of their own
    hosts, slots, ends, flagged, odd, stride, events
):
    count = 0
    for row in range(len(slots)):
        host = hosts[slots[row]]
        flag = flagged[row]
        if not host.open and ends[row] - host.latest > FORGET_STRIDES * stride:
            host.seen = 0
        place = host.seen % LAST
        host.ends[place] = ends[row]
        host.flags[place] = flag
        host.seen += 1
        host.latest = ends[row]
        if host.open:
            phase = _ONGOING
            host.windows += 1
            host.flagged += flag
            host.clean = 0 if odd[row] else host.clean + 1
            if host.clean == TO_CLOSE:
                phase = _CLOSED
                host.open = False
        elif flag and _opens(host, stride):
            phase = _OPEN
        else:
            continue
        event = events[count]
        event.row = row
        event.phase = phase
        event.onset = host.onset
        event.windows = host.windows
        event.flagged = host.flagged
        count += 1
    return count


@njit(nogil=True, cache=True)
def _opens(host, stride):  # type: ignore[no-untyped-def]  # compiled
    """Open an episode if enough of the last windows are flagged; say whether."""
    windows = flags = 0
    onset = 0
    for back in range(min(host.seen, LAST)):
        place = (host.seen - 1 - back) % LAST
        if host.flags[place]:
            flags += 1
            windows = back + 1
            onset = host.ends[place] - stride
    if flags < TO_OPEN:
        return False
    host.open = True
    host.clean = 0
    host.onset = onset
    host.windows = windows
    host.flagged = flags
    return True
