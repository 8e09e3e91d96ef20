"""A stand-in for the kernel's perf events: cores with few counters, groups that take turns.

What it does as the kernel does: a group counts only while all of its events are on their core's
counters, groups that do not fit at once rotate, a group that could never fit is refused (unless
it is the watchdog that takes the counter: that the kernel does not foresee), software events
always count, and enabled and running times go by per group.
"""

from __future__ import annotations

import errno
import os
import struct
from collections import Counter
from dataclasses import dataclass, field

TURN_NS = 4_000_000


@dataclass(eq=False)
class FakeGroup:
    cpu: int
    events: list[tuple[int, int]]
    counts: list[int]
    on: bool = False
    enabled: int = 0
    running: int = 0
    lost: bool = False


def error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@dataclass
class FakeKernel:
    """Cores that make `pace` of each event a microsecond, by type and config.

    Attributes
    ----------
    cpus
        Those that are online.
    counters, taken
        General counters of a core, and how many of them the watchdog holds.
    fixed
        Hardware events that have a counter of their own.
    refuse
        What opening an event gives instead, by type and config.
    limit, foresees
        Descriptors there are, and whether `reserve` knows.
    unreadable
        Cores on which reading fails.
    garbage
        What a core's readings are instead.
    busy
        By core: so many times the pace, but for the time stamp.
    """

    pace: dict[tuple[int, int], int] = field(default_factory=dict)
    cpus: set[int] = field(default_factory=lambda: {0, 1})
    counters: int = 4
    taken: int = 0
    fixed: frozenset[tuple[int, int]] = frozenset()
    software: frozenset[int] = frozenset({1, 9})
    refuse: dict[tuple[int, int], int] = field(default_factory=dict)
    refuse_all: int = 0
    limit: int = 10**6
    foresees: bool = True
    unreadable: set[int] = field(default_factory=set)
    garbage: dict[int, bytes] = field(default_factory=dict)
    busy: dict[int, int] = field(default_factory=dict)
    groups: dict[int, FakeGroup] = field(default_factory=dict)
    members: dict[int, FakeGroup] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    _next: int = 100
    _turn: int = 0

    def reserve(self, files: int) -> None:
        if self.foresees and files > self.limit:
            raise error(errno.EMFILE)

    def open(self, attribute: bytes, cpu: int, group: int) -> int:
        self.calls["open"] += 1
        kind, size, config, period, _, read_format, flags = struct.unpack_from(
            "=IIQQQQQ", attribute
        )
        assert size == len(attribute) == 128
        assert read_format == 1 | 2 | 8
        assert period == 0
        assert flags == (1 if group < 0 else 0)
        event = (kind, config)
        if self.refuse_all:
            raise error(self.refuse_all)
        if cpu not in self.cpus:
            raise error(errno.ENODEV)
        if event in self.refuse:
            raise error(self.refuse[event])
        if event not in self.pace:
            raise error(errno.EINVAL if kind == 9 else errno.ENOENT)
        if len(self.members) >= self.limit:
            raise error(errno.EMFILE)
        found = self.groups[group] if group >= 0 else FakeGroup(cpu, [], [])
        assert found.cpu == cpu
        if self.need([*found.events, event]) > self.counters:
            raise error(errno.EINVAL)
        found.events.append(event)
        found.counts.append(0)
        self._next += 1
        if group < 0:
            self.groups[self._next] = found
        self.members[self._next] = found
        return self._next

    def enable(self, leader: int) -> None:
        self.groups[leader].on = True

    def read(self, leader: int, into: memoryview) -> int:
        self.calls["read"] += 1
        group = self.groups[leader]
        if group.cpu in self.unreadable:
            raise error(errno.ENXIO)
        if group.cpu in self.garbage:
            content = self.garbage[group.cpu]
        else:
            numbers = [len(group.counts), group.enabled, group.running, *group.counts]
            content = b"".join((n % 2**64).to_bytes(8, "little") for n in numbers)
            assert len(content) <= len(into)
        content = content[: len(into)]
        into[: len(content)] = content
        return len(content)

    def close(self, descriptor: int) -> None:
        self.calls["close"] += 1
        self.members.pop(descriptor)
        self.groups.pop(descriptor, None)

    def need(self, events: list[tuple[int, int]]) -> int:
        return sum(e[0] not in self.software and e not in self.fixed for e in events)

    def run(self, ns: int) -> None:
        """Let time pass, a turn at a time."""
        assert ns % TURN_NS == 0
        for _ in range(ns // TURN_NS):
            self._turn += 1
            for cpu in self.cpus:
                self._run_turn(cpu)

    def _run_turn(self, cpu: int) -> None:
        groups = [g for g in self.groups.values() if g.cpu == cpu and g.on and not g.lost]
        soft = [g for g in groups if self.need(g.events) == 0 and not self.hard(g)]
        hard = [g for g in groups if g not in soft]
        shift = self._turn % len(hard) if hard else 0
        free, left = set(self.fixed), self.counters - self.taken
        running = list(soft)
        for group in hard[shift:] + hard[:shift]:
            own = [e for e in group.events if e in self.fixed]
            if self.need(group.events) <= left and free >= set(own):
                left -= self.need(group.events)
                free -= set(own)
                running.append(group)
            else:
                break  # the kernel stops at the first that does not fit
        for group in groups:
            group.enabled += TURN_NS
        for group in running:
            group.running += TURN_NS
            for i, event in enumerate(group.events):
                share = 1 if event == (9, 0) else self.busy.get(cpu, 1)
                group.counts[i] += share * self.pace[event] * TURN_NS // 1000

    def hard(self, group: FakeGroup) -> bool:
        return any(e[0] not in self.software for e in group.events)

    def go_offline(self, cpu: int) -> None:
        """Take a core away: its groups never count again, and reading them gives what was."""
        self.cpus.discard(cpu)
        for group in self.groups.values():
            if group.cpu == cpu:
                group.lost = True
