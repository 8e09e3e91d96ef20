"""The life of one host's baseline: learning, active, drifting, relearning.

    learning ──enough, nothing new──▶ active ◀──a newer version──┐
        ▲                              │  ▲                      │
        │                     drifts   ▼  │ it passed            │
    (another layout)               drifting ──enough calm windows┘
                                       │
    relearning ◀──all subsystems changed, for good── active, drifting
        └────────enough, nothing new──▶ active

**Learning** takes `Rules.wanted` windows, and goes on while its newest fifth does what the rest
never did (`models.novelty`): a checkpoint seen once is not yet known as a habit. At `Rules.most` it
ends all the same, and the host is said to be restless.

**Drifting**: still judged by the old baseline, while a new one is learned from calm windows. One
that is flagged or shares ticks with one that is, or that is in an open episode or within `GUARD`
windows of it, is never learned from.

**Relearning**: an episode of `Rules.lasting_us` in which every subsystem has left its usual range,
and what it came to is steady, is no fault but another workload. What is normal now is learned from
the windows after that was found; until then none is judged. One subsystem alone, however long it
is odd, stays an episode.

Memory of a host with F features and C channels: nothing while it is active, `LEARNED` * F float32
or `MEMORY` at most while it learns, `RENEWED` * F while it drifts, `WATCHED` * C in an episode.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from models.novelty import Part, all_changed, new_in, parts, still_moving
from models.thin import Thin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.channels import ChannelTable
    from models.novelty import Usual

LEARNED = 300
"""Windows that are kept of those learned from, at least: beyond, every other one goes."""
MEMORY = 4_000_000
"""Bytes of them that a host may take in any case, so that few channels keep more windows."""
RENEWED = 300
APART = 3
"""Of three windows of 3 s at a stride of 1 s, one shares no tick with the next one kept."""
LEAST = 30
"""Windows that a baseline needs (`models.baseline`)."""
PLENTY = 120
"""Windows that are kept in any case before calm ones are thinned out."""
GUARD = 5
"""Windows before and after an episode not learned from: a fault begins before it shows."""
SHARED = APART - 1
"""Windows on each side that share ticks with a window."""
WATCHED = 60
"""Windows of an episode that are looked at, spread over `Rules.lasting_us`."""
LOOKS = 10
"""Times that an episode is looked at in `Rules.lasting_us`, once it has lasted so long."""
STEPS = 5
"""Learning that goes on does so by this part of `Rules.wanted`."""
LONG_US = 3_600_000_000
"""An episode that is still one after so long is said to be a long one."""


class Stage(StrEnum):
    """Where a baseline is in its life."""

    LEARNING = "learning"
    ACTIVE = "active"
    DRIFTING = "drifting"
    RELEARNING = "relearning"


@dataclass(frozen=True, slots=True)
class Rules:
    """When a life moves on. Times in microseconds.

    `wanted` and `most` are windows to learn from, at least and at most; `lasting_us` is how long
    a change of all subsystems lasts that is a new workload, 0 for never.
    """

    stride_us: int
    wanted: int
    most: int
    lasting_us: int


class Finding(StrEnum):
    """What a look at a long episode finds."""

    WORKLOAD = "workload"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Look:
    """A finding, and how much of each subsystem has left its usual range."""

    finding: Finding
    parts: tuple[Part, ...]


class Life:
    """One host under one layout.

    Parameters
    ----------
    rules
        When it moves on.
    width
        Scored features of a row; a row may be longer.

    Attributes
    ----------
    stage
        Where it is.
    reason
        What there is to say of it: why learning goes on or failed, that it drifts or is restless.
    fitting
        A baseline is being made of what was learned; more is not learned meanwhile.
    failed
        The last attempt to learn came to nothing, and why is in `reason`.
    every
        Of how many windows one is among those that were handed out last.
    """

    __slots__ = (
        *("stage", "reason", "fitting", "failed", "note", "every"),
        *("_rules", "_width", "_store", "_due", "_pending", "_odd", "_drifted"),
        *("_recent", "_watched", "_told_long"),
    )

    def __init__(self, rules: Rules, width: int) -> None:
        self._rules = rules
        self._width = width
        self._told_long = False
        self.every = 1
        self._begin(Stage.LEARNING)

    def _begin(self, stage: Stage) -> None:
        self.stage = stage
        self.reason = self.note = ""
        self.fitting = self.failed = False
        self._store: Thin | None = None
        self._due = self._rules.wanted
        self._pending: deque[NDArray[np.float32]] = deque()
        self._odd = self._drifted = 0
        self.calm_again()

    @property
    def judged(self) -> bool:
        """Whether there is a baseline to judge by."""
        return self.stage in (Stage.ACTIVE, Stage.DRIFTING)

    @property
    def progress(self) -> float:
        """Share of what is wanted that has been learned, 0 to 1; 1 while nothing is."""
        if self.fitting or self.stage is Stage.ACTIVE:
            return 1.0
        if self._store is None:
            return 0.0
        if self.stage is Stage.DRIFTING:
            return min(1.0, self._drifted / self._rules.wanted)
        return min(1.0, self._store.seen / self._due)

    # ---- learning -----------------------------------------------------------------------------

    def learn(self, row: NDArray[np.float32]) -> bool:
        """Take a window while there is no baseline; return whether it is time for `enough`."""
        if self.fitting:
            return False
        if self._store is None:
            most = max(LEARNED, MEMORY // (4 * self._width))
            self._store = Thin(self._width, most)
        if self._store.seen < self._due:
            self._store.add(row)
        return self._store.seen >= self._due

    def enough(self, channels: ChannelTable) -> NDArray[np.float32] | None:
        """Return the windows to learn from, or None while learning has to go on.

        Whoever gets them makes a baseline of them and calls `fitted` or `could_not`.
        """
        store = self._store
        if store is None:
            raise ValueError("nothing has been learned")
        new = new_in(store.rows, channels)
        self.failed = False
        self.note = self.reason = ""
        if new:
            seconds = store.seen * self._rules.stride_us / 1e6
            what = ", ".join(new)
            if store.seen < self._rules.most:
                self._due = min(self._rules.most, store.seen + max(1, self._rules.wanted // STEPS))
                self.reason = f"learning goes on: {what} did what was not seen before"
                return None
            self.note = f"restless: after {seconds:.0f} s of learning, {what} still did new things"
        self.fitting = True
        self._store = None
        self.every = store.every
        return store.rows

    def wait(self, reason: str) -> None:
        """Note that what was learned cannot be used yet, and why."""
        self.reason, self.failed = reason, True

    def fitted(self, note: str) -> None:
        """Judge by a new baseline from now on; `note` is what is to be said of it, if anything."""
        self._begin(Stage.ACTIVE)
        self.note = self.reason = note

    def could_not(self, reason: str) -> None:
        """Note that no baseline came of it: one that there was stays, and learning starts over."""
        self.fitting = False
        self._store = None
        self._due = self._rules.wanted
        if not self.judged:
            self.reason, self.failed = reason, True

    # ---- drifting -----------------------------------------------------------------------------

    def drift(self, drifts: bool) -> None:
        """Note that the host has begun to drift, or no longer does."""
        if drifts and self.stage is Stage.ACTIVE:
            self.stage = Stage.DRIFTING
            self.reason = "its windows have long been among the oddest that were learned"
        elif not drifts and self.stage is Stage.DRIFTING and not self.fitting:
            self.stage, self.reason = Stage.ACTIVE, self.note
            self._store = None
            self._pending.clear()

    def renew(
        self, row: NDArray[np.float32], *, flagged: bool, episode: bool
    ) -> NDArray[np.float32] | None:
        """Take a window while drifting; return those to learn from when there are enough.

        That is when it has drifted for as long as is learned, half of that calm at least.
        `flagged` and `episode` say whether it is odd, and whether it is in an open episode.
        """
        if self.fitting:
            return None
        wanted = self._rules.wanted
        if self._store is None:
            self._store = Thin(self._width, RENEWED, max(1, min(APART, wanted // PLENTY)))
            self._drifted = 0
        self._drifted += 1
        if flagged or episode:
            for _ in range(min(len(self._pending), GUARD if episode else SHARED)):
                self._pending.pop()
            self._odd = max(self._odd - 1, GUARD if episode else SHARED)
            return None
        if self._odd:
            self._odd -= 1
            return None
        self._pending.append(row[: self._width].copy())
        if len(self._pending) <= GUARD:
            return None
        store = self._store
        store.add(self._pending.popleft())
        if self._drifted < wanted or store.seen < max(LEAST, wanted // 2):
            return None
        self._store = None
        self._pending.clear()
        self.fitting = True
        self.every = store.every
        return store.rows

    # ---- episodes and workloads -----------------------------------------------------------------

    def watch(
        self,
        row: NDArray[np.float32],
        usual: Usual,
        channels: ChannelTable,
        *,
        onset_us: int,
        end_us: int,
    ) -> Look | None:
        """Take a window of an open episode; return what there is to say of it, if anything.

        After `Finding.WORKLOAD` the host is relearning: its episode is over.
        """
        lasting = self._rules.lasting_us
        long = not self._told_long and end_us - onset_us >= LONG_US
        if lasting and self._watch(row, len(channels), lasting):
            recent = np.stack(self._recent)
            found = parts(recent, usual, channels)
            if all_changed(found) and not still_moving(recent, channels):
                self._begin(Stage.RELEARNING)
                return Look(Finding.WORKLOAD, found)
            if long:
                self._told_long = True
                return Look(Finding.LONG, found)
        return None

    def _watch(self, row: NDArray[np.float32], channels: int, lasting_us: int) -> bool:
        """Keep the window if it is its turn; return whether it is time to look."""
        every = max(1, lasting_us // (WATCHED * self._rules.stride_us))
        self._watched += 1
        if self._watched % every:
            return False
        most = max(1, min(WATCHED, lasting_us // self._rules.stride_us))
        self._recent.append(row[:channels].copy())
        while len(self._recent) > most:
            self._recent.popleft()
        return len(self._recent) == most and self._watched // every % max(1, most // LOOKS) == 0

    def calm_again(self) -> None:
        """Note that no episode is open."""
        self._recent: deque[NDArray[np.float32]] = deque()
        self._watched = 0
        self._told_long = False

    def change(self) -> None:
        """Begin to relearn, because what was known no longer holds."""
        self._begin(Stage.RELEARNING)
