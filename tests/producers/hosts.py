"""A small host whose numbers a test sets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Producer

from producers.agent import Agent
from producers.budget import Budget
from producers.clock import Grid
from producers.collectors.agent import CollectorCosts, OwnCost
from producers.collectors.agent import collector as own_collector
from producers.packing import Packer
from producers.publisher import Publisher
from producers.reading import MemoryReader, Reader
from producers.sampler import Sampler
from producers.source import EVERY_TICK, Collector, Field, Plan
from schemas.records import Channel, Kind, Subsystem
from tests.producers.fakes import FakeClock, FakeProducer

START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
INTERVAL_US = 100_000


class Numbers:
    """A source of levels: assign `levels` to change them, their count to change the layout."""

    path = "proc/numbers"
    remedy = "Without it there are no numbers."
    period_ns = EVERY_TICK

    def __init__(self, *levels: float) -> None:
        self.problem = ""
        self.bad_fields = 0
        self.levels: Sequence[float] = levels
        self.error: Exception | None = None
        self.plan = Plan()

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        if self.error is not None:
            raise self.error
        if len(self.levels) != len(self.plan.fields):
            names = [f"n{i}" for i in range(len(self.levels))]
            self.plan = Plan(
                tuple(Field(name, counter=False) for name in names),
                tuple(Channel(f"test.{n}", "", Subsystem.CPU, "", Kind.GAUGE) for n in names),
                tuple(range(len(names))),
            )
        return list(self.levels)


class Host:
    """An agent over `Numbers`, on a fake clock; to a fake producer unless brokers are named."""

    def __init__(
        self,
        *levels: float,
        brokers: str = "",
        interval_us: int = INTERVAL_US,
        ticks_per_record: int = 10,
        waits: int = 10**9,
    ) -> None:
        self.numbers = Numbers(*levels)
        self.clock = FakeClock(START_NS, waits=waits)
        self.producers: list[FakeProducer] = []
        self.said: list[str] = []
        self.cpu_ns = 0
        collectors = [Collector("numbers", (self.numbers,))]
        self.own, costs = OwnCost(), CollectorCosts(["numbers"])
        self.grid = Grid(interval_us, self.clock)
        self.publisher = Publisher(
            brokers or "unused:1",
            "test",
            keep_ns=300 * SECOND_NS,
            keep_bytes=1 << 26,
            make_producer=Producer if brokers else self.build,
            mono_ns=time.monotonic_ns if brokers else self.clock.mono_ns,
        )
        self.sampler = Sampler(
            [*collectors, own_collector(self.own, costs)],
            MemoryReader(),
            host="node1",
            interval_us=interval_us,
            agent_version="0",
            boot_id="boot",
        )
        costs.stats = self.sampler.stats
        self.agent = Agent(
            clock=self.clock,
            grid=self.grid,
            collectors=collectors,
            sampler=self.sampler,
            packer=Packer(ticks_per_record),
            publisher=self.publisher,
            own=self.own,
            budget=Budget(100.0),
            say=self.said.append,
            cpu_ns=lambda: self.cpu_ns,
        )

    def build(self, config: dict[str, Any]) -> FakeProducer:
        producer = FakeProducer(config)
        producer.room = 10**9
        self.producers.append(producer)
        return producer

    def ticks(self, count: int, before: Callable[[int], None] = lambda _: None) -> None:
        """Take `count` ticks, each after ``before(number)``."""
        for number in range(count):
            before(number)
            tick = self.grid.next_tick()
            assert tick is not None
            self.agent.tick(tick)
