"""The agent: once a tick, sample, pack, hand to Kafka, and note what that cost.

Everything that happens in a tick is in `Agent.tick`, in order. Time, the source of samples and
the way out are arguments.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from producers.budget import Budget, interval_ns
from producers.clock import Clock, Grid, Tick
from producers.collectors.agent import OwnCost
from producers.notify import Notifier
from producers.packing import Packer
from producers.publisher import Publisher
from producers.report import Report
from producers.sampler import Sampler
from producers.source import Collector
from schemas.records import Layout, Telemetry
from schemas.topics import LAYOUTS, TELEMETRY

SECOND_NS = 1_000_000_000
ANNOUNCE_NS = 60 * SECOND_NS
"""A layout is sent again so often, for readers that come later."""
WARM_TICKS = 20


@dataclass(slots=True)
class Spread:
    """Count, sum and greatest of what every tick measures, in seconds."""

    count: int = 0
    total: float = 0.0
    greatest: float = 0.0

    def add(self, value: float) -> None:
        """Take in one value."""
        self.count += 1
        self.total += value
        self.greatest = max(self.greatest, value)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to. `dropped` are messages that never reached the broker."""

    ticks: int
    missed: int
    channels: int
    delivered: int
    dropped: int
    cpu_percent: float

    def __str__(self) -> str:
        return (
            f"{self.ticks} ticks of {self.channels} channels, {self.missed} missed; "
            f"{self.delivered} messages delivered, {self.dropped} dropped; "
            f"{self.cpu_percent:.2f} % of a core"
        )


class Agent:
    """One host's agent.

    Parameters
    ----------
    collectors
        What `own` times, in its order.
    sampler
        Samples them, and `own`.
    say
        Takes a line for the person who runs it: what goes wrong, at most once a minute.
    cpu_ns
        CPU time of this process, nanoseconds.
    notifier
        Hears after every tick that it was taken; by default nobody does.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        grid: Grid,
        collectors: Sequence[Collector],
        sampler: Sampler,
        packer: Packer,
        publisher: Publisher,
        own: OwnCost,
        budget: Budget,
        say: Callable[[str], None],
        cpu_ns: Callable[[], int],
        notifier: Notifier | None = None,
    ) -> None:
        self.grid = grid
        self.sampler = sampler
        self.stats = {c.name: sampler.stats[c.name] for c in collectors}
        self._say = say
        self.publisher = publisher
        self.own = own
        self.budget = budget
        named = {c.name: c for c in collectors}
        budget.wanted_ns = lambda name: interval_ns(named[name], 1000 * grid.interval_us)
        self.ticks = 0
        self.newest_ns = 0
        self.channels = 0
        self.jitter = Spread()
        self.work = Spread()
        self._clock = clock
        self._packer = packer
        self._report = Report(grid, collectors, sampler, publisher, say)
        self._cpu_ns = cpu_ns
        self._notifier = notifier or Notifier()
        self._layout: Layout | None = None
        self._announce_ns = 0

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the process so far, all its threads."""
        return self._cpu_ns() / 1e9

    def prepare(self) -> list[str]:
        """Sample once, so that the first tick is quick and has rates; return what is absent."""
        self.channels = len(self.sampler.sample(self._clock.mono_ns()).layout.channels)
        return self._report.absent()

    def run(self, seconds: float | None, stop_seconds: float) -> Summary:
        """Sample until a signal comes or `seconds` are over; send what is left, and return."""
        started, cpu = self._clock.mono_ns(), self._cpu_ns()
        end = None if seconds is None else started + int(seconds * SECOND_NS)
        while (tick := self.grid.next_tick()) is not None:
            if end is not None and tick.mono_ns >= end:
                break
            self.tick(tick)
        self._notifier.stopping()
        for record in self._packer.flush():
            self._send(record)
        self.publisher.close(stop_seconds)
        wall = max(1, self._clock.mono_ns() - started)
        return Summary(
            ticks=self.ticks,
            missed=self.grid.missed,
            channels=self.channels,
            delivered=self.publisher.delivered,
            dropped=self.publisher.dropped.total(),
            cpu_percent=100 * (self._cpu_ns() - cpu) / wall,
        )

    def tick(self, tick: Tick) -> None:
        """Do everything that one tick needs."""
        sample = self.sampler.sample(tick.mono_ns)
        if sample.layout is not self._layout or tick.mono_ns >= self._announce_ns:
            self._announce(sample.layout, tick.mono_ns)
        for record in self._packer.add(tick.timestamp_us, sample.layout, sample.values):
            self._send(record)
        self.publisher.poll()
        self.ticks += 1
        self.newest_ns = tick.mono_ns
        if self.ticks == WARM_TICKS:
            # What is there by now stays: the garbage collector need not look at it again.
            gc.collect()
            gc.freeze()
        self._note(tick)

    def _announce(self, layout: Layout, mono_ns: int) -> None:
        self.publisher.publish(LAYOUTS, f"{layout.host}:{layout.fingerprint}", layout)
        self._layout = layout
        self._announce_ns = mono_ns + ANNOUNCE_NS
        self.channels = len(layout.channels)

    def _send(self, record: Telemetry) -> None:
        self.publisher.publish(TELEMETRY, record.host, record)

    def _note(self, tick: Tick) -> None:
        """Write down the tick's own cost, for the next one to report."""
        own, publisher = self.own, self.publisher
        self.jitter.add(tick.jitter_us / 1e6)
        self.work.add((self._clock.mono_ns() - tick.mono_ns) / 1e9)
        cpu_ns = self._cpu_ns()
        own.cpu_ns = cpu_ns
        own.jitter_us = tick.jitter_us
        own.missed_ticks = self.grid.missed
        own.queued = len(publisher)
        own.dropped = publisher.dropped.total()
        own.payload_bytes = publisher.payload_bytes
        self._report.look(tick.mono_ns)
        for line in self.budget.look(tick.mono_ns, cpu_ns, self.stats):
            self._say(line)
        self._notifier.beat(tick.mono_ns, self._status)

    def _status(self) -> str:
        """Say in a line how it goes."""
        publisher = self.publisher
        parts = [
            f"{self.channels} channels",
            f"{self.grid.missed} ticks missed",
            f"{publisher.dropped.total()} messages dropped",
        ]
        if publisher.trouble:
            parts.append(f"not sending: {publisher.trouble}; messages waiting: {len(publisher)}")
        return "; ".join(parts)
