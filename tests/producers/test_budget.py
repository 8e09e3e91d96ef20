"""What the agent may cost: a made-up host whose collectors cost what they are read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.budget import (
    LOOK_NS,
    LOOKS,
    MOST_STRETCH,
    SECOND_NS,
    WARM_NS,
    Budget,
    allowed_percent,
    interval_ns,
)
from producers.part import CollectorStats
from producers.source import TEN_SECONDS_NS, Collector
from tests.producers.hosts import Numbers


class Machine:
    """`costs` are percent of a core at a stretch of 1, `fixed` what the agent takes besides."""

    def __init__(self, allowed: float, fixed: float = 0.0, **costs: float) -> None:
        self.budget = Budget(allowed)
        self.stats = {name: CollectorStats() for name in costs}
        self.costs = costs
        self.fixed = fixed
        self.mono_ns = 5 * SECOND_NS
        self.cpu_ns = 0.0
        self.budget.look(self.mono_ns, 0, self.stats)
        self.mono_ns += WARM_NS
        self.budget.look(self.mono_ns, 0, self.stats)

    @property
    def percent(self) -> float:
        return self.fixed + sum(c / self.stats[n].stretch for n, c in self.costs.items())

    @property
    def stretch(self) -> dict[str, int]:
        return {name: s.stretch for name, s in self.stats.items()}

    def look(self, times: int = 1) -> list[str]:
        said = []
        for _ in range(times):
            self.cpu_ns += self.percent / 100 * LOOK_NS
            for name, s in self.stats.items():
                s.cpu_ns += round(self.costs[name] / s.stretch / 100 * LOOK_NS)
            self.mono_ns += LOOK_NS
            said += self.budget.look(self.mono_ns, int(self.cpu_ns), self.stats)
        return said


def test_what_is_allowed() -> None:
    assert allowed_percent(1, 48) == 48
    assert allowed_percent(1, 2) == 2
    assert allowed_percent(0.1, 4) == 1


def test_within_the_budget_nothing_changes() -> None:
    machine = Machine(2.0, 0.5, cpu=0.4, gpu=0.9)
    assert machine.look(20) == []
    assert machine.stretch == {"cpu": 1, "gpu": 1}
    assert machine.budget.used == pytest.approx(1.8)


def test_the_costliest_is_read_more_rarely_and_it_is_said() -> None:
    machine = Machine(2.0, 0.5, cpu=0.4, interrupts=6.0)
    (line,) = machine.look(LOOKS)
    assert line == (
        "took 6.90 % of a core over 60 s, 2.00 are allowed; "
        "reads interrupts every 0.8 s instead of 0.1"
    )
    assert machine.stretch == {"cpu": 1, "interrupts": 8}
    assert machine.percent < 2
    assert machine.look(30) == []
    assert machine.stretch == {"cpu": 1, "interrupts": 8}


def test_what_became_cheap_comes_back() -> None:
    machine = Machine(2.0, 0.5, cpu=0.4, interrupts=6.0)
    machine.look(LOOKS)
    machine.costs["interrupts"] = 0.2
    assert machine.look(3) == ["took 1.00 % of a core; reads interrupts every 0.1 s again"]
    assert machine.stretch == {"cpu": 1, "interrupts": 1}


def test_what_saves_most_is_named_and_the_rest_counted() -> None:
    machine = Machine(1.0, 0.5, **{f"c{n}": float(n) for n in range(1, 9)})
    (line,) = machine.look(LOOKS)
    names = line.removeprefix(
        "took 36.50 % of a core over 60 s, 1.00 are allowed; reads "
    ).removesuffix("; nothing left to read more rarely: raise --budget-percent")
    *named, more = names.split(", ")
    assert [n.partition(" ")[0] for n in named] == ["c8", "c7", "c6", "c5", "c4"]
    assert more == "3 more (agent.collector_stretch)"


class Seconds:
    """A budget that is shown the clock once a second, as after a tick."""

    def __init__(self, allowed: float) -> None:
        self.budget = Budget(allowed)
        self.stats = {"cpu": CollectorStats(), "disks": CollectorStats()}
        self.second = 0
        self.cpu_ns = 0
        self.said: list[tuple[int, str]] = []

    def take(self, percent: float, seconds: int) -> None:
        """Let all cost be that of reading disks, whatever the stretch."""
        for _ in range(seconds):
            self.second += 1
            self.cpu_ns += round(percent / 100 * SECOND_NS)
            self.stats["disks"].cpu_ns += round(percent / 100 * SECOND_NS)
            lines = self.budget.look(self.second * SECOND_NS, self.cpu_ns, self.stats)
            self.said += [(self.second, line) for line in lines]


@pytest.mark.parametrize("at", range(40, 140, 7))
def test_a_burst_changes_nothing(at: int) -> None:
    """A core for three seconds, on a host of two: twice what a minute may sum up to."""
    seconds = Seconds(allowed_percent(1, 2))
    seconds.take(1.5, at)
    seconds.take(100, 3)
    seconds.take(1.5, 300)
    assert seconds.said == []
    assert seconds.stats["disks"].stretch == 1


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_what_lasts_is_acted_on_within_two_minutes(at: int) -> None:
    seconds = Seconds(allowed_percent(1, 2))
    seconds.take(1.5, at)
    seconds.take(2.5, 120)
    assert seconds.stats["disks"].stretch > 1
    assert len(seconds.said) >= 1


def test_what_is_read_rarely_is_judged_by_what_it_takes_in_the_mean() -> None:
    """Otherwise it would come back in each look in which it was not read."""
    budget = Budget(4.0)
    budget.wanted_ns = lambda _: TEN_SECONDS_NS
    stats = {"disks": CollectorStats(), "cpu": CollectorStats()}
    cpu_ns, read_ns, said = 0, 0, []
    for second in range(1, 7200):
        mono_ns = second * SECOND_NS
        cpu_ns += SECOND_NS // 100
        stats["cpu"].cpu_ns += SECOND_NS // 100
        if mono_ns >= read_ns:  # two seconds each time
            read_ns = mono_ns + stats["disks"].stretch * TEN_SECONDS_NS
            cpu_ns += 2 * SECOND_NS
            stats["disks"].cpu_ns += 2 * SECOND_NS
        said += [(second, line) for line in budget.look(mono_ns, cpu_ns, stats)]
    (at, line), *more = said
    assert at < 120
    assert line.endswith("reads disks every 80 s instead of 10")
    assert not more
    assert {name: s.stretch for name, s in stats.items()} == {"disks": 8, "cpu": 1}
    assert budget.used == pytest.approx(1 + 200 / 80, abs=0.5)


def test_a_collector_is_read_as_often_as_its_fastest_source() -> None:
    class Odd(Numbers):
        @property
        def period_ns(self) -> int:  # type: ignore[override]
            raise ValueError("odd")

    fast, slow = Numbers(), Numbers()
    slow.period_ns = TEN_SECONDS_NS
    tick_ns = SECOND_NS // 10
    assert interval_ns(Collector("both", (slow, fast)), tick_ns) == tick_ns
    assert interval_ns(Collector("slow", (slow, Odd())), tick_ns) == TEN_SECONDS_NS
    assert interval_ns(Collector("none", (Odd(),)), tick_ns) == tick_ns


def test_when_nothing_helps_it_is_said_once() -> None:
    machine = Machine(1.0, 3.0, cpu=0.4)
    said = machine.look(10)
    (line,) = said
    assert line == (
        "took 3.40 % of a core over 60 s, 1.00 are allowed; reads cpu every 6.4 s instead of 0.1; "
        "nothing left to read more rarely: raise --budget-percent"
    )
    assert machine.stretch == {"cpu": MOST_STRETCH}
    machine.fixed = 0.2
    assert machine.look(20)[-1].endswith("reads cpu every 0.1 s again")


def test_what_a_start_costs_is_not_judged() -> None:
    budget = Budget(1.0)
    stats = {"cpu": CollectorStats(cpu_ns=3 * SECOND_NS)}
    for second in range(1, 30):
        cpu_ns = min(second, 9) * SECOND_NS  # a core for nine seconds
        assert budget.look(second * SECOND_NS, cpu_ns, stats) == []
    assert math.isnan(budget.used)
    assert stats["cpu"].stretch == 1


def test_what_waits_is_not_what_costs() -> None:
    """A GPU collector that waits for its driver takes time, and no CPU."""
    machine = Machine(2.0, 0.5, cpu=0.4, gpu=0.2, interrupts=2.0)
    for _ in range(2 * LOOKS):
        machine.stats["gpu"].seconds += 20
        machine.look()
    assert machine.stretch == {"cpu": 1, "gpu": 1, "interrupts": 4}


def test_whichever_fits_comes_back() -> None:
    """Although what was stretched last does not fit yet."""
    machine = Machine(4.0, 0.0, first=8.0)
    machine.look(LOOKS)
    machine.stats["last"], machine.costs["last"] = CollectorStats(), 12.0
    machine.look(4)
    assert machine.stretch["first"] > 1
    assert machine.stretch["last"] > machine.stretch["first"]
    machine.costs["first"] = 0.1
    machine.look(10)
    assert machine.stretch["first"] == 1
    assert machine.stretch["last"] > 1
    assert machine.percent <= 4.0


@given(
    allowed=st.floats(0.5, 50),
    fixed=st.floats(0, 0.4),
    costs=st.lists(st.floats(0, 30), min_size=1, max_size=12),
)
def test_whatever_the_costs_it_settles_within_the_budget(
    allowed: float, fixed: float, costs: list[float]
) -> None:
    machine = Machine(allowed, fixed, **{f"c{i}": c for i, c in enumerate(costs)})
    machine.look(2 * LOOKS)
    least = fixed + sum(costs) / MOST_STRETCH
    assert machine.percent <= max(allowed, least) * 1.02
    # It settles: once there is no room for one to come back, nothing changes any more.
    machine.look(200)
    settled = machine.stretch
    machine.look(20)
    assert machine.stretch == settled
    assert machine.percent <= max(allowed, least) * 1.02
