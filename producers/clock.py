"""When to sample: ticks on the clock grid.

A tick is due at every multiple of the interval since the epoch, so that the ticks of all hosts
align. One that cannot be taken within half an interval is missing, not late. Deadlines are
absolute on the monotonic clock and computed anew from the wall clock for each tick, so that
nothing drifts; when somebody sets the wall clock, the grid follows it and the step is counted.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

_STOPS = (signal.SIGINT, signal.SIGTERM)
_READ_TRIES = 5
_READ_TOGETHER_NS = 200_000


class Clock(Protocol):
    """Time, as an argument."""

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch; somebody may set it."""

    def mono_ns(self) -> int:
        """Nanoseconds of a clock that nobody sets."""

    def wait_until(self, mono_ns: int) -> bool:
        """Wait for `mono_ns` of the monotonic clock; False when asked to stop."""


class SystemClock:
    """The machine's clocks. A stop is SIGINT or SIGTERM, looked at only while waiting.

    A signal does no more than make a pipe readable, on which `wait_until` waits: nothing is cut
    off in the middle of a tick. (sigtimedwait(2) would do, but Python reports a signal when a
    SIGSTOP outlasts it.) Make it once, in the main thread.
    """

    def __init__(self, stops: Iterable[signal.Signals] = _STOPS) -> None:
        self._stopped, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for stop in stops:
            signal.signal(stop, lambda *_: None)

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def mono_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def wait_until(self, mono_ns: int) -> bool:
        """Wait; False when a signal asked to stop."""
        left = max(0, mono_ns - time.monotonic_ns())
        return not select.select([self._stopped], [], [], left / 1e9)[0]


@dataclass(frozen=True, slots=True)
class Tick:
    """One sampling instant.

    `timestamp_us` is the grid point; `mono_ns` is when we were there, `jitter_us` after it.
    """

    timestamp_us: int
    mono_ns: int
    jitter_us: float


class Grid:
    """The ticks of one agent.

    Attributes
    ----------
    missed
        Ticks that were due and not taken: the machine or the agent was too busy.
    steps
        Times the wall clock was set by more than half an interval.
    """

    def __init__(self, interval_us: int, clock: Clock) -> None:
        if interval_us <= 0:
            raise ValueError(f"an interval of {interval_us} us")
        self.interval_us = interval_us
        self.missed = 0
        self.steps = 0
        self._clock = clock
        self._interval_ns = 1000 * interval_us
        self._tolerance_ns = self._interval_ns // 2
        self._offset_ns: int | None = None  # of the wall clock from the monotonic one
        self._last_ns: int | None = None  # grid point of the newest tick since the clock was set
        self._last_mono_ns: int | None = None  # when that grid point was

    def next_tick(self) -> Tick | None:
        """Wait for the next tick and return it; None when asked to stop."""
        while True:
            mono, wall = self._now()
            due = self._grid_point(wall)
            if self._last_ns is not None:
                due = max(
                    self._last_ns + self._interval_ns, self._grid_point(wall - self._tolerance_ns)
                )
            # Also when it is due already: this is where signals are seen.
            if not self._clock.wait_until(mono + due - wall):
                return None
            mono, wall = self._now()
            # Else we woke too early, or too late, or the clock was set meanwhile: align anew.
            if 0 <= wall - due <= self._tolerance_ns:
                return self._take(due, mono, wall)

    def _grid_point(self, wall: int) -> int:
        """Return the first grid point that is not before `wall`."""
        return -(-wall // self._interval_ns) * self._interval_ns

    def _take(self, due: int, mono: int, wall: int) -> Tick:
        due_mono = mono - (wall - due)
        if self._last_mono_ns is not None:
            # By the clock that nobody sets. Where the other one was, the gap is no whole number
            # of intervals, and the part of one is the step's.
            slack = 0 if self._last_ns is None else self._tolerance_ns
            gap = (due_mono - self._last_mono_ns + slack) // self._interval_ns
            self.missed += max(0, gap - 1)
        self._last_ns = due
        self._last_mono_ns = due_mono
        return Tick(due // 1000, mono, (wall - due) / 1000)

    def _now(self) -> tuple[int, int]:
        """Read both clocks at one instant; notice when the wall clock was set."""
        clock = self._clock
        for _ in range(_READ_TRIES):
            before = clock.mono_ns()
            wall = clock.wall_ns()
            mono = clock.mono_ns()
            if mono - before < _READ_TOGETHER_NS:
                break  # else we lost the processor in between: the two do not belong together
        offset = wall - mono
        if self._offset_ns is not None and abs(offset - self._offset_ns) > self._tolerance_ns:
            self.steps += 1
            self._last_ns = None
        self._offset_ns = offset
        return mono, wall
