"""What sources of GPUs ask in one tick, they ask in one go: it is cheaper, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

from producers.collectors.gpu.lanes import Inline, Job, Threads
from producers.source import Source
from tests.producers import nvml_tables
from tests.producers.fake_nvml import UNKNOWN, FakeNvml
from tests.producers.gpus import GpuHost

T = TypeVar("T")
POWER = "nvmlDeviceGetPowerUsage"


def uuid(index: int) -> str:
    return nvml_tables.h100(index).uuid


class Counting:
    """Counts jobs, and how many steps each had."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._lanes = Inline()

    def run(self, job: Job[T], patience_s: float) -> bool:
        done = self._lanes.run(job, patience_s)
        self.steps.append(len(job.results))
        return done


def alone(fake: FakeNvml) -> GpuHost:
    """Return a host of which each source asks for itself."""
    host = GpuHost(fake)
    host.session.due = lambda sources: None  # type: ignore[method-assign]  # noqa: ARG005
    return host


def test_a_tick_is_one_job() -> None:
    lanes = Counting()
    host = GpuHost(FakeNvml.h100s(4), lanes=lanes)
    host.settle()
    host.tick(20)
    per_tick = []
    for _ in range(100):
        lanes.steps.clear()
        host.tick()
        per_tick.append(list(lanes.steps))
    # Nine sources for each of four GPUs, and the events of all.
    assert all(9 * 4 + 1 in steps for steps in per_tick)
    assert min(map(len, per_tick)) == 1
    # What is read once a second asks for itself, as it may take longer.
    assert sum(map(len, per_tick)) < 100 * (1 + 20 / 10 + 10 / 100)


def spoil(fake: FakeNvml, tick: int) -> None:
    """Let this and that happen to the GPUs."""
    if tick == 20:
        fake.fail(POWER, UNKNOWN, uuid(1))
    if tick == 40:
        fake.mend()
    if tick == 50:
        fake.report(uuid(0), 0x8, 79)
    if tick == 60:
        fake.lost.add(uuid(2))
    if tick == 160:
        fake.lost.clear()
    if tick == 330:
        del fake.tables[1]
    if tick == 500:
        fake.tables.insert(1, nvml_tables.h100(1))


def test_values_are_those_of_sources_that_ask_for_themselves() -> None:
    together, apart = GpuHost(FakeNvml.h100s(3)), alone(FakeNvml.h100s(3))
    for tick in range(600):
        values = []
        for host in (together, apart):
            spoil(host.fake, tick)
            host.kernel_sees(host.fake)
            values.append(host.tick())
        first, second = values
        assert first.keys() == second.keys()
        np.testing.assert_array_equal([*first.values()], [*second.values()])
    assert together.failures == apart.failures
    assert together.bad_fields >= apart.bad_fields > 0  # a lost GPU is asked by all, once
    assert together.fake.calls["nvmlInit"] == apart.fake.calls["nvmlInit"] > 2


class HungError(BaseException):
    """A call does not come back."""


class Stopping:
    """Does jobs on the spot up to a call that hangs. That job is never done."""

    def __init__(self) -> None:
        self.hung: list[Job[Any]] = []

    def run(self, job: Job[T], patience_s: float) -> bool:  # noqa: ARG002 - it waits for nobody
        try:
            job.run()
        except HungError:
            self.hung.append(job)
            return False
        return True


def hanging(fake: FakeNvml, function: str, when: Callable[[], bool], of: str) -> None:
    """Let a function hang, of one GPU."""
    call = getattr(fake, function)

    def maybe(handle: Any) -> Any:
        if when() and fake.nvmlDeviceGetUUID(handle) == of:
            raise HungError
        return call(handle)

    setattr(fake, function, maybe)


def test_a_hang_costs_what_comes_after_it_of_that_gpu() -> None:
    """What was asked before has its values; other GPUs have all; it hangs once."""
    fake, lanes, hangs = FakeNvml.h100s(3), Stopping(), [False]
    hanging(fake, POWER, lambda: hangs[0], uuid(1))
    host = GpuHost(fake, lanes=lanes, only=["gpu", "gpu_power", "gpu_memory"])
    host.tick(20)
    channels = host.group.channels
    hangs[0] = True
    values = host.tick()
    unknown = {label for label, value in values.items() if math.isnan(value)}
    assert f"gpu.utilization[{uuid(1)}]" not in unknown  # asked before
    assert {f"gpu.power[{uuid(1)}]", f"gpu.memory_used[{uuid(1)}]"} <= unknown
    assert all(uuid(1) in label for label in unknown)
    values = host.tick(3, whole=True)
    assert {label for label in values if math.isnan(values[label])} == {
        label for label in values if uuid(1) in label
    }
    assert len(lanes.hung) == 1
    hangs[0] = False
    lanes.hung[0].done = True
    assert not any(map(math.isnan, host.tick(3, whole=True).values()))
    assert host.group.channels is channels


def test_each_collector_pays_for_its_own_calls() -> None:
    """Not the one that asks for all."""
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.settle()
    fake.slow(POWER, 20_000)
    before = {name: stats.seconds for name, stats in host.group.stats.items()}
    host.tick(100)
    spent = {name: s.seconds - before[name] for name, s in host.group.stats.items()}
    assert spent.pop("gpu_power") == pytest.approx(100 * 2 * 20e-6)
    assert spent == pytest.approx(dict.fromkeys(spent, 0.0), abs=1e-9)


def test_cpu_time_of_the_thread_is_parted_among_collectors() -> None:
    host = GpuHost(FakeNvml.h100s(2), lanes=Threads())
    host.settle()
    host.fake.slow(POWER, 20_000)
    sources = {s.path: s for c in host.collectors for s in c.sources}
    before = {path: getattr(s, "elsewhere_ns", 0) for path, s in sources.items()}
    host.tick(100)
    spent = {path: getattr(s, "elsewhere_ns", 0) - before[path] for path, s in sources.items()}
    # By the fake clock only power takes any time.
    assert spent["nvml/power"] > 0
    assert spent["nvml/memory"] == 0


def test_what_costs_more_asks_for_itself() -> None:
    """Else all others would wait with it, and be taken for hung together."""
    lanes, fake = Counting(), FakeNvml.h100s(2)
    host = GpuHost(fake, lanes=lanes)
    host.settle()
    fake.slow(POWER, 3_000_000)
    host.tick(200)
    lanes.steps.clear()
    host.tick(100)
    assert max(lanes.steps) == 8 * 2 + 1


def test_a_source_that_is_read_without_a_group_asks_for_itself() -> None:
    host = GpuHost(FakeNvml.h100s(1))
    host.settle()
    (power,) = [s for c in host.collectors for s in c.sources if s.path == "nvml/power"]
    host.session.due([power])
    first = power.read(host.reader, host.fake.now_ns)
    assert len(first) == len(power.plan.fields) > 0
    host.fake.now_ns += 10**9
    assert list(power.read(host.reader, host.fake.now_ns)) != list(first)


def test_what_was_given_for_one_tick_is_not_taken_in_another() -> None:
    host = GpuHost(FakeNvml.h100s(1))
    host.settle()
    power, memory = (
        s for c in host.collectors for s in c.sources if s.path in {"nvml/power", "nvml/memory"}
    )
    both: Sequence[Source] = (power, memory)
    host.session.due(both)
    power.read(host.reader, host.fake.now_ns)  # and memory's answer waits
    host.fake.now_ns += 10**9
    host.session.due(both)
    calls = host.fake.calls["nvmlDeviceGetMemoryInfo"]
    memory.read(host.reader, host.fake.now_ns)
    assert host.fake.calls["nvmlDeviceGetMemoryInfo"] == calls + 1
