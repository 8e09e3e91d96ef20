from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.clock import Grid, Tick
from tests.producers.fakes import FakeClock

MS = 1_000_000
START = 1_700_000_000_000 * MS
INTERVAL_US = 100_000


def take(grid: Grid, count: int) -> list[Tick]:
    ticks = []
    for _ in range(count):
        tick = grid.next_tick()
        assert tick is not None
        ticks.append(tick)
    return ticks


def stamps(ticks: list[Tick]) -> list[int]:
    """Milliseconds after START."""
    return [t.timestamp_us // 1000 - START // MS for t in ticks]


def test_ticks_are_multiples_of_the_interval_since_the_epoch() -> None:
    clock = FakeClock(START + 37 * MS)
    grid = Grid(INTERVAL_US, clock)
    assert stamps(take(grid, 3)) == [100, 200, 300]
    assert (grid.missed, grid.steps) == (0, 0)


def test_a_start_on_the_grid_is_a_tick() -> None:
    assert stamps(take(Grid(INTERVAL_US, FakeClock(START)), 2)) == [0, 100]


def test_jitter_is_the_time_after_the_grid_point_and_does_not_add_up() -> None:
    clock = FakeClock(START)
    clock.oversleep_ns = 3 * MS
    ticks = take(Grid(INTERVAL_US, clock), 50)
    assert stamps(ticks) == [100 * i for i in range(50)]
    assert {t.jitter_us for t in ticks} == {3000.0}
    assert [b.mono_ns - a.mono_ns for a, b in pairwise(ticks)] == [100 * MS] * 49


def test_the_time_that_sampling_takes_does_not_move_the_grid() -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    ticks = []
    for _ in range(4):
        ticks += take(grid, 1)
        clock.run(60 * MS)
    assert stamps(ticks) == [0, 100, 200, 300]


@pytest.mark.parametrize(
    ("busy_ms", "expected", "missed"),
    [
        (149, [0, 100], 0),  # within half an interval of its point: taken, with its jitter
        (151, [0, 200], 1),
        (249, [0, 200], 1),
        (251, [0, 300], 2),
        (1000, [0, 1000], 9),
        (38_000, [0, 38_000], 379),
    ],
)
def test_what_cannot_be_taken_near_its_time_is_missing(
    busy_ms: int, expected: list[int], missed: int
) -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    ticks = take(grid, 1)
    clock.run(busy_ms * MS)
    ticks += take(grid, 1)
    assert stamps(ticks) == expected
    assert grid.missed == missed
    assert grid.steps == 0


def test_a_late_tick_says_how_late_it_was() -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    take(grid, 1)
    clock.run(130 * MS)
    assert take(grid, 1)[0].jitter_us == 30_000


def test_oversleeping_past_half_an_interval_misses_the_tick() -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    take(grid, 1)

    def once(_: int) -> None:
        clock.oversleep_ns = 70 * MS if clock.waits == 2 else 0

    clock.on_wait = once
    assert stamps(take(grid, 2)) == [200, 300]
    assert grid.missed == 1


def test_waking_early_waits_again() -> None:
    clock = FakeClock(START + MS)
    grid = Grid(INTERVAL_US, clock)
    clock.oversleep_ns = -5 * MS

    def second(n: int) -> None:
        clock.oversleep_ns = -5 * MS if n == 1 else 0

    clock.on_wait = second
    assert take(grid, 1) == [Tick((START + 100 * MS) // 1000, 7_000_000_000 + 99 * MS, 0.0)]
    assert clock.waits == 2


@pytest.mark.parametrize("step_ms", [-3_600_000, -250, -60, 60, 250, 3_600_000])
def test_the_grid_follows_a_clock_that_is_set(step_ms: int) -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    take(grid, 3)
    clock.step(step_ms * MS)
    ticks = take(grid, 3)
    after = 200 + step_ms
    first = -(-after // 100) * 100
    assert stamps(ticks) == [first, first + 100, first + 200]
    assert grid.steps == 1
    assert grid.missed == 0  # no time went by
    assert all(t.jitter_us == 0 for t in ticks)


@pytest.mark.parametrize("step_ms", [-3_600_000, -250, -60, 60, 250, 3_600_000])
def test_a_clock_set_during_the_wait_is_noticed(step_ms: int) -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    take(grid, 3)
    clock.on_wait = lambda n: clock.step(step_ms * MS) if n == 4 else None
    first = take(grid, 1)[0]
    assert first.timestamp_us * 1000 == clock.wall_ns()
    assert first.timestamp_us % INTERVAL_US == 0
    assert grid.steps == 1
    assert grid.missed == 0


def test_a_small_correction_is_followed_without_a_step() -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    take(grid, 1)
    clock.step(20 * MS)
    ticks = take(grid, 2)
    assert stamps(ticks) == [100, 200]
    assert [t.jitter_us for t in ticks] == [0, 0]
    assert grid.steps == 0


def test_busy_time_around_a_step_is_still_missed() -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    take(grid, 1)
    clock.run(1000 * MS)
    clock.step(-3_600_000 * MS)
    take(grid, 1)
    assert grid.missed == 9


def test_losing_the_processor_between_two_clock_reads_is_not_a_step() -> None:
    clock = FakeClock(START)
    grid = Grid(INTERVAL_US, clock)
    take(grid, 2)
    reads = 0
    wall = clock.wall_ns

    def preempted() -> int:
        nonlocal reads
        reads += 1
        now = wall()
        if reads == 1:
            clock.run(80 * MS)  # after the wall clock was read, before the other one is
        return now

    clock.wall_ns = preempted  # type: ignore[method-assign]
    take(grid, 2)
    assert grid.steps == 0


def test_a_stop_ends_the_ticks() -> None:
    grid = Grid(INTERVAL_US, FakeClock(START, waits=2))
    assert len(take(grid, 2)) == 2
    assert grid.next_tick() is None


@given(
    interval_us=st.sampled_from([10_000, 100_000, 250_000, 1_000_000, 5_000_000]),
    start_us=st.integers(0, 10**16),
    busy_us=st.lists(st.integers(0, 3_000_000), max_size=30),
    oversleep_us=st.integers(0, 4_000),
)
def test_every_due_tick_is_taken_or_missed(
    interval_us: int, start_us: int, busy_us: list[int], oversleep_us: int
) -> None:
    clock = FakeClock(1000 * start_us)
    clock.oversleep_ns = 1000 * oversleep_us
    grid = Grid(interval_us, clock)
    ticks = take(grid, 1)
    for busy in busy_us:
        clock.run(1000 * busy)
        ticks += take(grid, 1)
    times = [t.timestamp_us for t in ticks]
    assert all(t % interval_us == 0 for t in times)
    assert times == sorted(set(times))
    assert len(times) + grid.missed == (times[-1] - times[0]) // interval_us + 1
    assert all(0 <= t.jitter_us <= interval_us / 2 for t in ticks)
    assert grid.steps == 0


PROGRAM = """
import sys
from producers.clock import Grid, SystemClock
clock = SystemClock()
grid = Grid(10_000, clock)
print(grid.next_tick().timestamp_us % 10_000, flush=True)
print(clock.wait_until(clock.mono_ns() + int(float(sys.argv[1]) * 1e9)), flush=True)
print(grid.next_tick() is None, flush=True)
"""


def program(wait_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(wait_s)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "0\n"
    return child


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_of_the_system_clock_and_all_later_ones(
    stop: signal.Signals,
) -> None:
    with program(60) as child:
        os.kill(child.pid, stop)
        assert child.communicate(timeout=20)[0] == "False\nTrue\n"
        assert child.returncode == 0


def test_being_suspended_is_no_stop() -> None:
    with program(0.1) as child:
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(0.3)  # longer than it waits
        os.kill(child.pid, signal.SIGCONT)
        assert child.communicate(timeout=20)[0] == "True\nFalse\n"


def test_the_system_clock_keeps_time() -> None:
    # In a child: a process has one place for what it does with signals.
    code = (
        "import time; from producers.clock import SystemClock; c = SystemClock();"
        "due = c.mono_ns() + 20_000_000; assert c.wait_until(due); assert c.mono_ns() >= due;"
        "assert abs(c.wall_ns() - time.time_ns()) < 10**9"
    )
    started = time.monotonic()
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert time.monotonic() - started >= 0.02
