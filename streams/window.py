"""Event-time windows: ticks of many hosts in, rows of features out.

A window is ``[end - 3 s, end)`` on the clock grid, one every second, per host (paper, section
on windowing; both lengths are settings). Ticks live in rings, one per host, all hosts with the
same number of channels in one array. A window closes when its last tick is there and none is
missing, so packing adds no delay; with a tick missing it waits for `lateness` more ticks and
then closes with what it has.

The first window of a host starts at the first whole stride at or after its first tick. So a
worker that re-reads the log from a tick that was not yet acknowledged builds exactly the
windows that are still owed, and never half a window.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from models.features import write_ticks
from schemas.errors import InvalidRecord
from schemas.records import Floats, Telemetry
from streams.rings import HostRing, RingGroup, WindowBatch

T = TypeVar("T")

SET_BACK = 3
"""Records in a row that lie wholly in the past: they are not late, the clock was set back."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Lengths in microseconds; `lateness_us` is how long a hole in a window is waited for."""

    length_us: int = 3_000_000
    stride_us: int = 1_000_000
    lateness_us: int = 1_000_000


class Windows(Generic[T]):
    """Ring buffers of every host, and the windows that close in them.

    `T` is whatever the caller wants back once a record is no longer needed, for example the
    Kafka offset to acknowledge.

    Attributes
    ----------
    dropped
        Ticks that went into no window, or not into all of theirs, by reason: ``late``,
        ``duplicate``, ``layout`` (it changed), ``clock`` (it was set back).
    missing
        Ticks that have not come, less those that came late but in time.
    empty
        Windows without a single tick: they are not published.
    """

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.dropped: Counter[str] = Counter()
        self.missing = 0
        self.empty = 0
        self._hosts: dict[str, HostRing] = {}
        self._groups: dict[tuple[int, int], RingGroup] = {}
        self._clocks: Counter[str] = Counter()
        self._batches: list[WindowBatch] = []
        self._released: list[T] = []

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, record: Telemetry, token: T) -> None:
        """Take in a record; the windows that it closes wait for `take`.

        Raises
        ------
        InvalidRecord
            Its ticks are not on the clock grid, or the grid does not fit the windows'.
        """
        channels, count = record.values.shape
        stamps: list[int] = record.timestamps.tolist()
        interval = record.interval_us
        first, start = stamps[0] // interval, stamps[0]
        in_a_row = stamps == list(range(start, start + count * interval, interval))
        if start % interval or not (in_a_row or all(s % interval == 0 for s in stamps)):
            raise InvalidRecord(f"{record.host!r} sends ticks off the grid of {interval} us")
        if self.spec.length_us % interval:
            raise InvalidRecord(
                f"{record.host!r} samples every {interval} us, which does not divide the "
                f"{self.spec.length_us} us of a window"
            )
        host = self._hosts.get(record.host)
        if host is not None and (
            host.layout != record.layout
            or host.interval_us != interval
            or host.group.channels != channels
        ):
            self._count_open("layout", host)
            self.forget(record.host)
            host = None
        if host is not None and self._is_set_back(host, stamps[-1] // interval):
            self._clocks[record.host] += 1
            self._count_open("clock", host)
            self.forget(record.host)
            host = None
        if host is None:
            host = self._admit(record, channels, first)
        if host.newest_hold is not None:
            # A worker that starts again at this record builds no window that starts before it.
            # With ticks missing in between, such windows can be open: the record before stays.
            needed, before = host.newest_hold
            host.holds.append((max(needed, host.next_start(first)), before))
        if in_a_row:
            last = self._add_run(host, record.values, first, count)
        else:
            last = self._add_scattered(host, record.values, stamps)
        host.newest_hold = host.next_start(last + 1), token
        self._release(host)

    def take(self) -> tuple[list[WindowBatch], list[T]]:
        """Return the windows that have closed, and the tokens that nothing needs any more.

        A token is released with the windows it was held for: publish them, then acknowledge.
        """
        for group in self._groups.values():
            self._reduce(group)
        batches, self._batches = self._batches, []
        released, self._released = self._released, []
        return batches, released

    def forget(self, name: str) -> list[T]:
        """Drop a host's ticks and open windows; return the tokens held for it.

        For a layout that changes, or a log that is read again from an earlier place. The
        tokens are also handed out by the next `take`.
        """
        host = self._hosts.pop(name, None)
        if host is None:
            return []
        self._reduce(host.group)
        host.group.free.append(host.slot)
        if host.newest_hold is not None:
            host.holds.append(host.newest_hold)
        held = [token for _, token in host.holds]
        self._released.extend(held)
        return held

    def names(self) -> list[str]:
        """Return the hosts that have a ring."""
        return list(self._hosts)

    def _admit(self, record: Telemetry, channels: int, first: int) -> HostRing:
        spec, interval = self.spec, record.interval_us
        length = spec.length_us // interval
        lateness = spec.lateness_us // interval
        slots = length + lateness + -(-spec.stride_us // interval) + 1
        group = self._groups.get((channels, slots))
        if group is None:
            group = self._groups[channels, slots] = RingGroup(channels, slots)
        host: HostRing = HostRing(
            record.host,
            record.layout,
            interval,
            length,
            spec.stride_us,
            lateness,
            group,
            group.take_slot(),
            next_stride=0,
            next_end=0,
            newest=first - 1,
            clock=self._clocks[record.host],
            unbroken=first,
        )
        host.go_to(host.whole_stride(first))
        self._hosts[record.host] = host
        return host

    def _add_run(self, host: HostRing, values: Floats, first: int, count: int) -> int:
        """Add ticks without holes between them; return the last one's number."""
        if first <= host.newest:
            stamps = [(first + i) * host.interval_us for i in range(count)]
            return self._add_scattered(host, values, stamps)
        group, column = host.group, 0
        while column < count:
            tick = first + column
            # One stride at a time, so that a long record never overtakes its own windows.
            size = min(count - column, host.first_tick(host.stride_of(tick) + 1) - tick)
            if tick > host.newest + 1:
                self._close(host, tick - 1)
                self._skip_empty(host, tick)
                self.missing += tick - host.newest - 1
                host.unbroken = tick
            if host.pending:
                self._reduce(group)  # before the ring is written again
            write_ticks(group.rings[host.slot], group.ticks[host.slot], values, column, size, tick)
            host.newest = tick + size - 1
            self._close(host, host.newest)
            column += size
        return first + count - 1

    def _add_scattered(self, host: HostRing, values: Floats, stamps: list[int]) -> int:
        """Add ticks one by one: late, repeated or out of order."""
        last = host.next_end - host.length - 1
        for column, stamp in enumerate(stamps):
            tick = stamp // host.interval_us
            if tick > host.newest:
                one = np.ascontiguousarray(values[:, column : column + 1])
                last = max(last, self._add_run(host, one, tick, 1))
            elif self._add_late(host, values, column, tick):
                last = max(last, tick)
        return last

    def _is_set_back(self, host: HostRing, last: int) -> bool:
        """Return whether the host's clock was set back, by the last tick of a record.

        One record from far in the past came late. Several in a row come from a clock that now
        says so, and would be dropped until it has caught up.
        """
        if last >= host.next_end - host.length - host.lateness:
            host.behind = 0
            return False
        host.behind += 1
        return host.behind >= SET_BACK

    def _count_open(self, reason: str, host: HostRing) -> None:
        """Count the ticks of windows that will not close."""
        ticks = host.group.ticks[host.slot]
        self.dropped[reason] += int((ticks >= host.next_end - host.length).sum())

    def _add_late(self, host: HostRing, values: Floats, column: int, tick: int) -> bool:
        group = host.group
        if group.ticks[host.slot, tick % group.slots] == tick:
            self.dropped["duplicate"] += 1
            return False
        if tick < host.next_end - host.length:
            self.dropped["late"] += 1
            return False
        if host.pending:
            self._reduce(group)
        write_ticks(group.rings[host.slot], group.ticks[host.slot], values, column, 1, tick)
        self.missing -= 1
        ticks = group.ticks[host.slot]
        host.unbroken = host.newest
        while ticks[(host.unbroken - 1) % group.slots] == host.unbroken - 1:
            host.unbroken -= 1
        self._close(host, host.newest)
        return True

    def _close(self, host: HostRing, newest: int) -> None:
        """Close the windows that are whole, or that have waited long enough by tick `newest`."""
        while True:
            last = host.next_end - 1
            if not self._is_whole(host) and last + host.lateness > newest:
                break
            if host.next_end - host.length > host.newest:
                break  # not a tick in it: `_skip_empty` finds where to go on
            host.group.closed.append((host, host.next_end, host.next_stride))
            host.pending = True
            host.go_to(host.next_stride + 1)
        self._release(host)

    def _is_whole(self, host: HostRing) -> bool:
        """Return whether no tick of the next window to close is missing."""
        start, end = host.next_end - host.length, host.next_end
        if end - 1 > host.newest:
            return False
        if host.unbroken <= start:
            return True
        # There is a hole before `unbroken`: in this window, or behind it.
        wanted = np.arange(start, end)
        ticks = host.group.ticks[host.slot]
        return bool((ticks[wanted % host.group.slots] == wanted).all())

    def _skip_empty(self, host: HostRing, tick: int) -> None:
        """After a gap, go on with the first window that a tick can still come for."""
        if host.next_end - host.length > host.newest:
            # The first that ends after the newest tick that is not waited for any more.
            stride = host.stride_of(tick - host.lateness - host.length) + 1
            if stride > host.next_stride:
                self.empty += stride - host.next_stride
                host.go_to(stride)

    def _release(self, host: HostRing) -> None:
        holds = host.holds
        begin = host.next_end - host.length
        while holds and holds[0][0] <= begin:
            self._released.append(holds.popleft()[1])

    def _reduce(self, group: RingGroup) -> None:
        """Compute the features of a group's closed windows."""
        batch, empty = group.reduce()
        self.empty += empty
        if batch is not None:
            self._batches.append(batch)
