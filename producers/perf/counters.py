"""Groups of events on every core, read together and turned into rates.

The rate of an event is what it grew by, over the time in which it was counted, both since the
reading before. When there are more groups than the hardware has counters, the kernel takes turns,
and this is the same as scaling the growth by time enabled over time running: an estimate for the
whole time. Totals are never scaled: an estimate of a total may go back. A group that did not run
at all in between has no rate.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from producers.perf.events import HEADER, Event, Kernel, attribute, whole_readings
from producers.source import EVERY_TICK, Doubles

log = logging.getLogger(__name__)

STUCK_READS = 20
"""A group that never ran in so many readings asks for more counters than there are."""

STALE_READS = 10
"""A group whose time stood still, or that cannot be read, so many times is opened anew."""

CALLS_PER_SECOND = 1500
"""Each interrupts a core. Three groups on 48 cores are read at every tick of 100 ms."""

HIGHEST_RATE = 1e12
"""Per second and core. Nothing counts faster; a counter that was overwritten seems to."""

_STEP_NS = 100_000_000
_LONGEST_NS = 10 * _STEP_NS
_FATAL = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSYS}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_NANOSECONDS = 1e9


def period_ns(calls: int) -> int:
    """Return how long a reading may serve that takes so many calls: every tick, or up to 1 s."""
    steps = -(-calls * 1_000_000_000 // (CALLS_PER_SECOND * _STEP_NS))
    return EVERY_TICK if steps <= 1 else min(steps * _STEP_NS, _LONGEST_NS)


@dataclass(slots=True, eq=False)
class _Row:
    """A group that is open on a core: descriptors, the leader's first, and what they count."""

    cpu: int
    descriptors: list[int]
    columns: list[int]


class Counters:
    """Events, counted on some cores.

    Attributes
    ----------
    events
        All of them, group by group.
    cpus
        Where they are counted.
    present
        Shape ``(cpus, events)``: whether this core has this event.
    problem
        Why nothing is counted; empty when something is.
    refused
        By the event's name: what the kernel said to those that no core has.
    split
        Names of the events of each group that had to be split.
    bad_counts
        Counts that went back or jumped, since the start.
    """

    def __init__(self, kernel: Kernel, groups: Iterable[Sequence[Event]]) -> None:
        self._kernel = kernel
        groups = [list(group) for group in groups if group]
        self.events = tuple(event for group in groups for event in group)
        column = iter(range(len(self.events)))
        self._groups = [[next(column) for _ in group] for group in groups]
        self.cpus: tuple[int, ...] = ()
        self.problem = ""
        self.refused: dict[str, str] = {}
        self.split: list[tuple[str, ...]] = []
        self.bad_counts = 0
        self._asked: tuple[int, ...] = ()
        self._rows: list[_Row] = []
        self._leading = [attribute(event, leads=True) for event in self.events]
        self._joining = [attribute(event, leads=False) for event in self.events]
        self._seen: NDArray[np.bool_] = np.zeros((0, 0), np.bool_)
        self._last: NDArray[np.uint64] = np.zeros((0, 0, HEADER), np.uint64)
        self._stale: NDArray[np.int64] = np.zeros(0, np.int64)
        self._stuck: NDArray[np.int64] = np.zeros(0, np.int64)
        self._first: tuple[NDArray[np.intp], NDArray[np.intp]]
        self._lay_out(())

    @property
    def names(self) -> tuple[str, ...]:
        """Of the events."""
        return tuple(event.name for event in self.events)

    @property
    def calls(self) -> int:
        """How many calls a reading takes: one for each group and core."""
        return len(self._rows)

    def follow(self, cpus: tuple[int, ...]) -> None:
        """Count on these cores from now on. What is counted on a core already goes on."""
        if cpus == self._asked:
            return
        self._asked = cpus
        self.problem = ""
        self._close([row for row in self._rows if row.cpu not in cpus])
        open_already = {row.cpu for row in self._rows}
        try:
            self._kernel.reserve(len(cpus) * len(self.events))
            for cpu in cpus:
                if cpu not in open_already:
                    for columns in self._groups:
                        self._open(cpu, columns)
        except OSError as e:
            # All or nothing: the rest of the agent needs descriptors and memory too.
            self._close(list(self._rows))
            self.problem = f"perf_event_open: {e.strerror}"
        self._lay_out(cpus)

    def try_again(self) -> None:
        """Let the next `follow` open what could not be opened."""
        if len(self.cpus) < len(self._asked) or self.problem:
            self._asked = ()

    def close(self) -> None:
        """Stop counting. `follow` starts again."""
        self._close(list(self._rows))
        self._asked = ()
        self._lay_out(())

    def rates(self) -> Doubles:
        """Read everything once and return rates per second, shape ``(cpus, events)``.

        NaN where an event was not read now and before, or did not run in between. `cpus` may
        have changed after it.
        """
        read = self._kernel.read
        got = []
        for descriptor, view in self._reads:
            try:
                got.append(read(descriptor, view))
            except OSError:
                got.append(-1)
        now = self._table.take(self._places)
        growth = (now - self._last).view(np.int64)  # modulo 2^64
        rates = self._as_ever(got, growth)
        if rates is None:
            rates = self._careful(got, now, growth)
        else:
            self._last = now
        return rates

    def _as_ever(self, got: list[int], growth: NDArray[np.int64]) -> Doubles | None:
        """Return the rates when every group was read before and ran since; else None."""
        if not self._settled or got != self._bytes or self._table[:, 0].tolist() != self._counts:
            return None
        ran = growth[..., 2]
        if growth.min() < 0 or not ran.all():
            return None
        rates: Doubles = growth[..., 0] / ran
        rates *= _NANOSECONDS
        if rates.max() > HIGHEST_RATE:
            return None
        if not self._complete:
            rates[~self.present] = np.nan
        return rates

    def _careful(
        self, got: list[int], now: NDArray[np.uint64], growth: NDArray[np.int64]
    ) -> Doubles:
        whole = whole_readings(self._table, got, np.array(self._counts, np.int64))
        valid = whole[self._row] & self.present
        counted, ran = growth[..., 0], growth[..., 2]
        known = valid & self._seen
        good = known & (ran > 0) & (counted >= 0)
        rates = np.full(good.shape, np.nan)
        np.divide(counted, ran, out=rates, where=good)
        rates *= _NANOSECONDS
        wild = rates > HIGHEST_RATE
        rates[wild] = np.nan
        self.bad_counts += int(np.count_nonzero(wild | (known & ((counted < 0) | (ran < 0)))))
        # Time goes on in a group that is on its core, whether it runs or waits for its turn.
        alive = whole & ((growth[..., 1] > 0) | ~self._seen)[self._first]
        self._last[valid] = now[valid]
        self._seen |= valid
        self._stale = np.where(alive, 0, self._stale + 1)
        self._stuck = np.where(alive & (self._table[:, 2] == 0), self._stuck + 1, 0)
        # While a group is in doubt every reading comes here, and counts.
        self._settled = (
            bool(self._seen[self.present].all()) and not (self._stale | self._stuck).any()
        )
        if (self._stale >= STALE_READS).any() or (self._stuck >= STUCK_READS).any():
            self._mend()
        return rates

    def _mend(self) -> None:
        """Open anew what stands still, and split what never ran."""
        rows = list(self._rows)
        stale, stuck = self._stale >= STALE_READS, self._stuck >= STUCK_READS
        for at, row in enumerate(rows):
            if stale[at]:
                self._again(row, [row.columns])
            elif stuck[at] and len(row.columns) > 1:
                names = tuple(self.events[column].name for column in row.columns)
                if names not in self.split:
                    self.split.append(names)
                    log.info("perf: split, it never got its counters: %s", ", ".join(names))
                half = (len(row.columns) + 1) // 2
                self._again(row, [row.columns[:half], row.columns[half:]])
        self._lay_out(self.cpus)

    def _again(self, row: _Row, groups: list[list[int]]) -> None:
        self._close([row])
        try:
            for columns in groups:
                self._open(row.cpu, columns)
        except OSError as e:
            log.warning("perf: cpu%d is not counted: %s", row.cpu, e.strerror)

    def _open(self, cpu: int, columns: Sequence[int]) -> None:
        """Open a group on a core; where it is too large for the hardware, as several.

        Raises
        ------
        OSError
            Nothing can be opened, here or elsewhere.
        """
        opened: list[_Row] = []
        row: _Row | None = None
        for column in columns:
            try:
                joined, descriptor = self._join(cpu, column, row)
            except OSError as e:
                if e.errno in _FATAL or (e.errno in _FORBIDDEN and not self._rows):
                    raise
                name = self.events[column].name
                self.refused.setdefault(name, e.strerror or type(e).__name__)
                continue
            if joined is None:
                joined = _Row(cpu, [], [])
                opened.append(joined)
                self._rows.append(joined)
            row = joined
            row.descriptors.append(descriptor)
            row.columns.append(column)
        for row in opened:
            self._kernel.enable(row.descriptors[0])

    def _join(self, cpu: int, column: int, row: _Row | None) -> tuple[_Row | None, int]:
        """Open an event in a group; where it does not fit, alone: then the group is None."""
        if row is not None:
            try:
                return row, self._kernel.open(self._joining[column], cpu, row.descriptors[0])
            except OSError as e:
                if e.errno != errno.EINVAL:
                    raise
        return None, self._kernel.open(self._leading[column], cpu, -1)

    def _close(self, rows: Iterable[_Row]) -> None:
        place = {cpu: i for i, cpu in enumerate(self.cpus)}
        for row in rows:
            self._rows.remove(row)
            if row.cpu in place:
                self._seen[place[row.cpu], row.columns] = False
            for descriptor in reversed(row.descriptors):
                with contextlib.suppress(OSError):
                    self._kernel.close(descriptor)

    def _lay_out(self, cpus: Iterable[int]) -> None:
        """Find the place of every count, and keep what is known of cores that stay."""
        counted = {row.cpu for row in self._rows}
        cpus = tuple(cpu for cpu in cpus if cpu in counted)
        was = {cpu: i for i, cpu in enumerate(self.cpus)}
        place = {cpu: i for i, cpu in enumerate(cpus)}
        shape = (len(cpus), len(self.events))
        seen, last = np.zeros(shape, np.bool_), np.zeros((*shape, HEADER), np.uint64)
        for cpu, i in place.items():
            if cpu in was:
                seen[i], last[i] = self._seen[was[cpu]], self._last[was[cpu]]
        self._seen, self._last, self.cpus = seen, last, cpus
        self._rows.sort(key=lambda row: (row.cpu, row.columns))
        self._counts = [len(row.columns) for row in self._rows]
        self._bytes = [8 * (HEADER + count) for count in self._counts]
        width = HEADER + max(self._counts, default=0)
        self._table = np.zeros((len(self._rows), width), np.uint64)
        self.present = np.zeros(shape, np.bool_)
        # An event that is absent points at the first group; nobody looks.
        self._row = np.zeros(shape, np.intp)
        self._places = np.tile(np.array([HEADER, 1, 2], np.intp), (*shape, 1))
        for at, row in enumerate(self._rows):
            i = place[row.cpu]
            self.present[i, row.columns] = True
            self._row[i, row.columns] = at
            self._places[i, row.columns, 0] = at * width + HEADER + np.arange(len(row.columns))
            self._places[i, row.columns, 1:] = at * width + np.array([1, 2])
        self._complete = bool(self.present.all())
        self._settled = False
        self._first = (
            np.array([place[row.cpu] for row in self._rows], np.intp),
            np.array([row.columns[0] for row in self._rows], np.intp),
        )
        self._reads = [
            (row.descriptors[0], line[: HEADER + count].data.cast("B"))
            for row, line, count in zip(self._rows, self._table, self._counts, strict=True)
        ]
        self._stale = np.zeros(len(self._rows), np.int64)
        self._stuck = np.zeros(len(self._rows), np.int64)
        for column in np.flatnonzero(self.present.any(axis=0)):
            self.refused.pop(self.events[column].name, None)
        if not self._rows and not self.problem:
            reasons = sorted(set(self.refused.values())) or ["no core"]
            self.problem = f"perf_event_open: {', '.join(reasons)}"
