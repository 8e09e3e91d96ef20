"""Episodes: when single odd windows become something to tell, and when that is over.

An episode opens when three of the last five windows of a host are flagged. It closes after three
windows in a row that are not: "three of five" both ways would be no hysteresis at all, since
three clean of five is the same as not three flagged of five. A window that was not scored counts
neither way; after a long hole the flags before it no longer count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAST = 5
TO_OPEN = 3
TO_CLOSE = 3
FORGET_US = 15_000_000
"""A hole this long between two windows ends the count of flags. An open episode goes on."""

STATES = ("open", "ongoing", "closed")
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
        ("severity", np.float64),
        ("starts", np.int64, LAST),
        ("flags", np.int8, LAST),
        ("fused", np.float64, LAST),
    ]
)
_EVENT = np.dtype(
    [
        ("row", np.int64),
        ("state", np.int64),
        ("onset", np.int64),
        ("windows", np.int64),
        ("flagged", np.int64),
        ("severity", np.float64),
    ]
)


@dataclass(frozen=True, slots=True)
class EpisodeEvent:
    """What one window did to an episode.

    `index` is the row in the batch; -1 when the episode was ended from outside. `state` is
    ``"open"``, ``"ongoing"`` or ``"closed"``. `onset` is the start of the first flagged window
    that led to the episode and `latest` the end of the newest window, in microseconds. `windows`
    counts the scored windows since the onset, `flagged` those of them that were flagged, and
    `severity` is their highest fused score.
    """

    index: int
    slot: int
    state: str
    onset: int
    latest: int
    windows: int
    flagged: int
    severity: float


class EpisodeBank:
    """Episodes of many hosts, by slot."""

    def __init__(self) -> None:
        self._hosts = np.zeros(0, _HOST)

    def step(
        self,
        slots: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        flagged: NDArray[np.bool_],
        fused: NDArray[np.float64],
    ) -> list[EpisodeEvent]:
        """Take scored windows, those of one slot in order of time; all shapes ``(n,)``.

        Returns
        -------
        list of EpisodeEvent
            In order of the rows. An open episode has one for every window.
        """
        if len(slots) == 0:
            return []
        self._make_room(int(slots.max()))
        events = np.empty(len(slots), _EVENT)
        count = _step(self._hosts, slots, starts, ends, flagged, fused, events)
        return [
            EpisodeEvent(
                index=row,
                slot=int(slots[row]),
                state=STATES[state],
                onset=onset,
                latest=int(ends[row]),
                windows=windows,
                flagged=flags,
                severity=severity,
            )
            for row, state, onset, windows, flags, severity in events[:count].tolist()
        ]

    def close(self, slot: int) -> EpisodeEvent | None:
        """End what is open, for a host that is judged anew or no longer; forget its windows."""
        if slot >= len(self._hosts):
            return None
        host = self._hosts[slot].copy()
        self.reset(slot)
        if not host["open"]:
            return None
        return EpisodeEvent(
            index=-1,
            slot=slot,
            state=STATES[_CLOSED],
            onset=int(host["onset"]),
            latest=int(host["latest"]),
            windows=int(host["windows"]),
            flagged=int(host["flagged"]),
            severity=float(host["severity"]),
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
    hosts, slots, starts, ends, flagged, fused, events
):
    count = 0
    for row in range(len(slots)):
        host = hosts[slots[row]]
        flag = flagged[row]
        if not host.open and starts[row] - host.latest > FORGET_US:
            host.seen = 0
        place = host.seen % LAST
        host.starts[place] = starts[row]
        host.flags[place] = flag
        host.fused[place] = fused[row]
        host.seen += 1
        host.latest = ends[row]
        if host.open:
            state = _ONGOING
            host.windows += 1
            host.flagged += flag
            host.severity = max(host.severity, fused[row])
            host.clean = 0 if flag else host.clean + 1
            if host.clean == TO_CLOSE:
                state = _CLOSED
                host.open = False
                host.seen = 0
        elif flag and _opens(host):
            state = _OPEN
        else:
            continue
        event = events[count]
        event.row = row
        event.state = state
        event.onset = host.onset
        event.windows = host.windows
        event.flagged = host.flagged
        event.severity = host.severity
        count += 1
    return count


@njit(nogil=True, cache=True)
def _opens(host):  # type: ignore[no-untyped-def]  # compiled
    """Open an episode if enough of the last windows are flagged; say whether."""
    windows = flags = 0
    severity = 0.0
    onset = 0
    for back in range(min(host.seen, LAST)):
        place = (host.seen - 1 - back) % LAST
        if host.flags[place]:
            flags += 1
            windows = back + 1
            onset = host.starts[place]
            severity = max(severity, host.fused[place])

    if flags < TO_OPEN:
        return False
    host.open = True
    host.clean = 0
    host.onset = onset
    host.windows = windows
    host.flagged = flags
    host.severity = severity
    return True
