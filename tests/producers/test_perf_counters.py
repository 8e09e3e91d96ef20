"""Groups of events over a stand-in kernel: what comes out is what the cores really did."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.perf.counters import (
    CALLS_PER_SECOND,
    STALE_READS,
    STUCK_READS,
    Counters,
    period_ns,
)
from producers.perf.events import Event
from tests.producers.fake_perf import TURN_NS, FakeKernel

MS = 1_000_000
TICK = 100 * MS
A, B, C, D = (Event(name, 4, config) for config, name in enumerate("abcd"))
SOFT = Event("soft", 1, 3)
PACE = {(4, 0): 1000, (4, 1): 300, (4, 2): 7, (4, 3): 2000, (1, 3): 5}
RATES = {e.name: PACE[e.type, e.config] * 1e6 for e in (A, B, C, D, SOFT)}


def counted(kernel: FakeKernel, *groups: list[Event], cpus: tuple[int, ...] = (0, 1)) -> Counters:
    counters = Counters(kernel, groups)
    counters.follow(cpus)
    return counters


def tick(kernel: FakeKernel, counters: Counters, ns: int = TICK) -> np.ndarray:
    kernel.run(ns)
    return counters.rates()


def test_the_first_reading_has_no_rate() -> None:
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A, B], [SOFT])
    assert counters.calls == 4
    assert np.isnan(counters.rates()).all()
    rates = tick(kernel, counters)
    assert rates.tolist() == [[1e9, 3e8, 5e6]] * 2
    assert kernel.calls["read"] == 8


def test_each_core_has_its_own_rates() -> None:
    kernel = FakeKernel(PACE, busy={1: 3})
    counters = counted(kernel, [A], [SOFT])
    counters.rates()
    assert tick(kernel, counters).tolist() == [[1e9, 5e6], [3e9, 15e6]]


def test_groups_that_take_turns_are_scaled() -> None:
    """Three groups of two on two counters: each runs a third of the time."""
    kernel = FakeKernel(PACE, counters=2)
    counters = counted(kernel, [A, B], [C, D], [Event("e", 4, 0), Event("f", 4, 1)])
    counters.rates()
    for _ in range(5):
        rates = tick(kernel, counters)
        assert rates == pytest.approx(np.array([[1e9, 3e8, 7e6, 2e9, 1e9, 3e8]] * 2))
    assert {g.running for g in kernel.groups.values()} <= {160 * MS, 164 * MS, 168 * MS, 172 * MS}
    assert {g.enabled for g in kernel.groups.values()} == {500 * MS}


def test_the_growth_is_scaled_not_the_total() -> None:
    """After a change of pace, the rate is the new one at once, and never below 0."""
    kernel = FakeKernel(dict(PACE), counters=2)
    counters = counted(kernel, [A, B], [C, D])
    counters.rates()
    for _ in range(20):
        tick(kernel, counters)
    kernel.pace[4, 0] = 10
    assert tick(kernel, counters)[:, 0] == pytest.approx([1e7, 1e7])


def test_what_did_not_run_in_between_has_no_rate() -> None:
    """And the next rate is the mean over the time in which it ran."""
    kernel = FakeKernel(PACE, counters=2)
    counters = counted(kernel, [A, B], [C, D], cpus=(0,))
    counters.rates()
    tick(kernel, counters)
    one = tick(kernel, counters, TURN_NS)[0]
    assert np.isnan(one).tolist() in ([True, True, False, False], [False, False, True, True])
    other = tick(kernel, counters, TURN_NS)[0]
    assert np.isnan(other).tolist() == [not missing for missing in np.isnan(one)]
    assert np.where(np.isnan(one), other, one) == pytest.approx([1e9, 3e8, 7e6, 2e9])


def test_a_group_that_the_watchdog_starves_is_split() -> None:
    kernel = FakeKernel(PACE, counters=4, taken=1)
    counters = counted(kernel, [A, B, C, D], [SOFT])
    counters.rates()
    for _ in range(STUCK_READS):
        rates = tick(kernel, counters)
        assert np.isnan(rates[:, :4]).all()
        assert rates[:, 4].tolist() == [5e6, 5e6]
        if counters.split:
            break
    assert counters.split == [("a", "b", "c", "d")]
    assert np.isnan(tick(kernel, counters)[:, :4]).all()
    expected = np.array([[1e9, 3e8, 7e6, 2e9, 5e6]] * 2)
    for _ in range(STUCK_READS + 5):
        rates = tick(kernel, counters)
        assert rates == pytest.approx(expected)
    assert counters.calls == 6


def test_one_that_never_runs_stays_unknown() -> None:
    kernel = FakeKernel(PACE, counters=2, taken=2)
    counters = counted(kernel, [A, B], [SOFT], cpus=(0,))
    for _ in range(3 * STUCK_READS):
        rates = tick(kernel, counters)
    assert np.isnan(rates[0]).tolist() == [True, True, False]
    assert counters.calls == 3  # a group cannot be split further than into its events


def test_a_group_too_large_for_the_hardware_becomes_several() -> None:
    kernel = FakeKernel(PACE, counters=2)
    counters = counted(kernel, [A, B, C, D])
    counters.rates()
    assert counters.calls == 4
    assert counters.refused == {}
    assert tick(kernel, counters) == pytest.approx(np.array([[1e9, 3e8, 7e6, 2e9]] * 2))


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.EBUSY])
@pytest.mark.parametrize("absent", [0, 1, 2])
def test_an_event_that_is_not_there_costs_itself(code: int, absent: int) -> None:
    kernel = FakeKernel(PACE, refuse={(4, absent): code})
    counters = counted(kernel, [A, B, C], [SOFT])
    assert counters.calls == 4
    assert counters.problem == ""
    assert list(counters.refused) == ["abc"[absent]]
    counters.rates()
    expected = [1e9, 3e8, 7e6, 5e6]
    expected[absent] = np.nan
    for _ in range(3):
        rates = tick(kernel, counters)
        np.testing.assert_array_equal(rates, [expected] * 2)
    assert counters.present.tolist() == [[i != absent for i in range(4)]] * 2


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.ENOSYS, errno.ENOMEM])
def test_no_permission(code: int) -> None:
    kernel = FakeKernel(PACE, refuse_all=code)
    counters = counted(kernel, [A, B], [SOFT])
    assert counters.problem.startswith("perf_event_open: ")
    assert counters.cpus == ()
    assert counters.rates().shape == (0, 3)
    assert kernel.calls["open"] == 1  # it is not asked for every event of every core
    kernel.refuse_all = 0
    counters.follow((0, 1))
    assert counters.cpus == ()
    counters.try_again()
    counters.follow((0, 1))
    assert counters.problem == ""
    counters.rates()
    assert tick(kernel, counters).tolist() == [[1e9, 3e8, 5e6]] * 2


@pytest.mark.parametrize("limit", [5, 3])
def test_no_descriptors_left(limit: int) -> None:
    """Told before or while opening: then all are given back, for the rest of the agent."""
    kernel = FakeKernel(PACE, limit=limit)
    if limit == 3:
        kernel.foresees = False
    counters = counted(kernel, [A, B], [SOFT])
    assert counters.problem == "perf_event_open: Too many open files"
    assert kernel.members == {}
    assert counters.rates().size == 0


def test_a_core_that_cannot_be_read() -> None:
    """The other is exactly as without; the core goes on when it can be read again."""
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A, B], [SOFT])
    counters.rates()
    tick(kernel, counters)
    kernel.unreadable = {1}
    for _ in range(STALE_READS - 1):
        rates = tick(kernel, counters)
        assert rates[0].tolist() == [1e9, 3e8, 5e6]
        assert np.isnan(rates[1]).all()
    kernel.unreadable = set()
    assert tick(kernel, counters).tolist() == [[1e9, 3e8, 5e6]] * 2
    assert kernel.calls["open"] == 6


def test_a_core_that_cannot_be_read_at_first() -> None:
    """Its first reading that succeeds has no rate either."""
    kernel = FakeKernel(PACE, unreadable={1})
    counters = counted(kernel, [A, B], [SOFT])
    counters.rates()
    kernel.unreadable = set()
    rates = tick(kernel, counters)
    assert rates[0].tolist() == [1e9, 3e8, 5e6]
    assert np.isnan(rates[1]).all()
    assert tick(kernel, counters).tolist() == [[1e9, 3e8, 5e6]] * 2


def test_a_core_that_cannot_be_read_for_long_is_opened_anew() -> None:
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A, B], [SOFT])
    counters.rates()
    kernel.unreadable = {1}
    for _ in range(3 * STALE_READS):
        assert tick(kernel, counters)[0].tolist() in (
            [1e9, 3e8, 5e6],
            pytest.approx([np.nan] * 3, nan_ok=True),
        )
    assert 6 < kernel.calls["open"] <= 6 + 3 * 3
    assert len(kernel.members) == 6
    kernel.unreadable = set()
    counters.rates()
    assert tick(kernel, counters).tolist() == [[1e9, 3e8, 5e6]] * 2


def test_a_core_goes_and_comes_back() -> None:
    kernel = FakeKernel(PACE, cpus={0, 1, 2})
    counters = counted(kernel, [A], [SOFT], cpus=(0, 1, 2))
    counters.rates()
    tick(kernel, counters)
    kernel.go_offline(1)
    counters.follow((0, 2))
    assert counters.cpus == (0, 2)
    assert tick(kernel, counters).tolist() == [[1e9, 5e6]] * 2  # no gap for the others
    kernel.cpus.add(1)
    counters.follow((0, 1, 2))
    rates = tick(kernel, counters)
    assert rates[[0, 2]].tolist() == [[1e9, 5e6]] * 2
    assert np.isnan(rates[1]).all()
    assert tick(kernel, counters).tolist() == [[1e9, 5e6]] * 3
    assert len(kernel.members) == 6


def test_a_core_that_went_and_came_unseen_is_opened_anew() -> None:
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A, SOFT])
    counters.rates()
    tick(kernel, counters)
    kernel.go_offline(1)
    kernel.cpus.add(1)
    for _ in range(STALE_READS):
        rates = tick(kernel, counters)
        assert np.isnan(rates[1]).all()
    tick(kernel, counters)
    assert tick(kernel, counters).tolist() == [[1e9, 5e6]] * 2


def test_a_core_that_is_offline_from_the_start_is_tried_again() -> None:
    kernel = FakeKernel(PACE, cpus={0})
    counters = counted(kernel, [A])
    assert list(counters.cpus) == [0]
    assert counters.problem == ""
    opened = kernel.calls["open"]
    counters.follow((0, 1))
    assert kernel.calls["open"] == opened
    kernel.cpus.add(1)
    counters.try_again()
    counters.follow((0, 1))
    assert list(counters.cpus) == [0, 1]


def test_the_last_core_goes() -> None:
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A])
    kernel.cpus = set()
    counters.follow(())
    assert counters.rates().shape == (0, 1)
    assert "no core" in counters.problem
    assert kernel.members == {}


def test_counts_beyond_64_bits() -> None:
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A])
    for group in kernel.groups.values():
        group.counts[0] = 2**64 - 1000
    counters.rates()
    assert tick(kernel, counters).tolist() == [[1e9], [1e9]]
    assert counters.bad_counts == 0


@pytest.mark.parametrize("jump", [-(10**6), 2**55, -(2**40)])
def test_a_count_that_jumps_is_unknown_once(jump: int) -> None:
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A, B])
    counters.rates()
    tick(kernel, counters)
    next(iter(kernel.groups.values())).counts[0] += jump - 10**8
    rates = tick(kernel, counters)
    assert np.isnan(rates).tolist() == [[True, False], [False, False]]
    assert counters.bad_counts == 1
    assert tick(kernel, counters).tolist() == [[1e9, 3e8]] * 2


def test_close_gives_everything_back() -> None:
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A, B], [SOFT])
    counters.close()
    assert kernel.members == {}
    counters.follow((0, 1))
    assert len(kernel.members) == 6


@settings(deadline=None, max_examples=200)
@given(
    readings=st.lists(
        st.binary(max_size=80)
        | st.lists(st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 1]), max_size=8).map(
            lambda numbers: b"".join(n.to_bytes(8, "little") for n in numbers)
        ),
        max_size=30,
    )
)
def test_whatever_the_kernel_writes(readings: list[bytes]) -> None:
    """Nothing raises, the other core is as it was, and afterwards this one is too."""
    kernel = FakeKernel(PACE)
    counters = counted(kernel, [A, B], [SOFT])
    counters.rates()
    for content in readings:
        kernel.garbage = {1: content}
        rates = tick(kernel, counters)
        assert rates.shape == (2, 3)
        assert rates[0].tolist() == [1e9, 3e8, 5e6]
        assert not (rates[1] < 0).any()
        assert not (rates[1] > 1e12).any()
    kernel.garbage = {}
    for _ in range(3):
        rates = tick(kernel, counters)
    assert rates.tolist() == [[1e9, 3e8, 5e6]] * 2


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_short_way_and_the_careful_one_agree(data: st.DataObject) -> None:
    """The short one is for when all is well; without it the rates are the same."""
    kernels = FakeKernel(dict(PACE), counters=3), FakeKernel(dict(PACE), counters=3)
    short, careful = (counted(k, [A, B], [C, D, Event("no", 4, 9)], [SOFT]) for k in kernels)
    careful._as_ever = lambda *_: None  # type: ignore[method-assign]
    for _ in range(data.draw(st.integers(2, 8))):
        turns = data.draw(st.integers(0, 12))
        event = data.draw(st.sampled_from(sorted(PACE)))
        pace = data.draw(st.integers(0, 10**4))
        broken = data.draw(st.sampled_from([set(), set(), {0}, {1}]))
        for kernel in kernels:
            kernel.pace[event] = pace
            kernel.unreadable = broken
            kernel.run(turns * TURN_NS)
        np.testing.assert_array_equal(short.rates(), careful.rates())


def test_big_hosts_are_read_less_often() -> None:
    assert period_ns(0) == period_ns(3 * 48) == 0
    for calls in (151, 3 * 96, 3 * 256):
        period = period_ns(calls)
        assert period % (100 * MS) == 0
        assert calls * 1e9 / period <= CALLS_PER_SECOND
        assert calls * 1e9 / (period - 100 * MS) > CALLS_PER_SECOND
    assert period_ns(10**5) == 1000 * MS
