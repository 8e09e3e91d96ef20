"""Rings of ticks: all hosts with the same number of channels in one array."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.features import FEATURES, NO_TICK, window_features
from schemas.records import Floats, Longs


@dataclass(frozen=True, slots=True, eq=False)
class WindowBatch:
    """Closed windows of hosts that have the same number of channels, in closing order.

    `values` has shape ``(windows, len(FEATURES) * channels)``; `ends` is in microseconds.
    `clocks` says how often the host's clock had been set back by then: only windows of one
    clock follow each other.
    """

    channels: int
    hosts: tuple[str, ...]
    layouts: tuple[int, ...]
    clocks: tuple[int, ...]
    starts: Longs
    ends: Longs
    samples: Longs
    expected: Longs
    values: Floats

    def __len__(self) -> int:
        return len(self.hosts)


@dataclass(slots=True, eq=False)
class HostRing:
    """One host's place in the log. Tick numbers count intervals since the epoch.

    A stride need not be a whole number of ticks, a window is: so every window has the same number.
    """

    name: str
    layout: int
    interval_us: int
    length: int
    stride_us: int
    lateness: int
    group: RingGroup
    slot: int
    next_stride: int
    """The next window to close starts with this stride since the epoch."""
    next_end: int
    """The tick after its last."""
    newest: int
    clock: int
    unbroken: int
    """First tick of the run without holes that ends at `newest`."""
    holds: deque[tuple[int, Any]] = field(default_factory=deque)
    """What may be released once no open window starts before the tick beside it."""
    newest_hold: tuple[int, Any] | None = None
    """The newest record's; until when it is needed depends on where the next one begins."""
    behind: int = 0
    """Records in a row that lie wholly before the open windows."""
    pending: bool = False
    """A closed window of this host waits for its features."""

    def first_tick(self, stride: int) -> int:
        """Return the first tick at or after the start of a stride."""
        return -(-stride * self.stride_us // self.interval_us)

    def whole_stride(self, tick: int) -> int:
        """Return the first stride that starts at or after a tick."""
        return -(-tick * self.interval_us // self.stride_us)

    def next_start(self, tick: int) -> int:
        """Return the first tick of the first stride that starts at or after a tick."""
        return self.first_tick(self.whole_stride(tick))

    def stride_of(self, tick: int) -> int:
        """Return the stride that a tick is in."""
        return tick * self.interval_us // self.stride_us

    def go_to(self, stride: int) -> None:
        """Make the window that starts with this stride the next to close."""
        self.next_stride = stride
        self.next_end = self.first_tick(stride) + self.length


class RingGroup:
    """Rings of all hosts with the same number of channels and slots."""

    def __init__(self, channels: int, slots: int) -> None:
        self.channels = channels
        self.slots = slots
        self.rings = np.empty((0, slots, channels), np.float32)
        self.ticks = np.empty((0, slots), np.int64)
        self.free: list[int] = []
        self.closed: list[tuple[HostRing, int, int]] = []
        """Windows without features: the host, the tick after the last, the first stride."""

    def take_slot(self) -> int:
        """Return an empty ring's index; the arrays double when they are full."""
        if not self.free:
            old = len(self.rings)
            new = max(4, 2 * old)
            rings = np.empty((new, self.slots, self.channels), np.float32)
            ticks = np.full((new, self.slots), NO_TICK, np.int64)
            rings[:old] = self.rings
            ticks[:old] = self.ticks
            self.rings, self.ticks = rings, ticks
            self.free = list(range(new - 1, old - 1, -1))
        slot = self.free.pop()
        self.ticks[slot] = NO_TICK
        return slot

    def reduce(self) -> tuple[WindowBatch | None, int]:
        """Turn the closed windows into a batch of features; also return how many had no tick."""
        closed, self.closed = self.closed, []
        if not closed:
            return None, 0
        for host, _, _ in closed:
            host.pending = False
        count = len(closed)
        slots = np.fromiter((h.slot for h, _, _ in closed), np.int64, count)
        ends = np.fromiter((end for _, end, _ in closed), np.int64, count)
        lengths = np.fromiter((h.length for h, _, _ in closed), np.int64, count)
        intervals = np.fromiter((h.interval_us for h, _, _ in closed), np.int64, count)
        starts_us = np.fromiter((stride * h.stride_us for h, _, stride in closed), np.int64, count)
        values = np.empty((count, len(FEATURES) * self.channels), np.float32)
        samples = np.empty(count, np.int32)
        window_features(self.rings, self.ticks, slots, ends, lengths, values, samples)
        rows = np.flatnonzero(samples)
        if not len(rows):
            return None, count
        batch = WindowBatch(
            self.channels,
            tuple(closed[i][0].name for i in rows),
            tuple(closed[i][0].layout for i in rows),
            tuple(closed[i][0].clock for i in rows),
            starts_us[rows],
            (starts_us + lengths * intervals)[rows],
            samples.astype(np.int64)[rows],
            lengths[rows],
            values if len(rows) == count else values[rows],
        )
        return batch, count - len(rows)
