"""Episodes held against events, counted by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.evaluation import (
    DAY_S,
    HOUR_S,
    MISSED,
    NO_CAUSE,
    UNNAMED,
    Account,
    Evaluation,
    Event,
    Told,
    evaluate,
)

S = 1_000_000
EVENTS = (
    Event("flood", 0, "network", 100 * S, 120 * S, 1.5),
    Event("flood", 1, "network", 200 * S, 220 * S, 1.01),
    Event("hog", 0, "memory", 300 * S, 320 * S),
)


def told(host: str, second: float, subsystem: str = "network", cause: str = "") -> Told:
    at = int(second * S)
    return Told(host, at - 3 * S, (Account(at, subsystem, cause),))


def then(told: Told, second: float, subsystem: str, cause: str = "") -> Told:
    later = Account(int(second * S), subsystem, cause)
    return replace(told, accounts=(*told.accounts, later))


def of(*episodes: Told, hosts: tuple[str, ...] = ("a",)) -> Evaluation:
    return evaluate(EVENTS, episodes, hosts, 1800.0 * len(hosts))


def test_what_is_found_late_or_never() -> None:
    done = of(told("a", 103), told("a", 312.5, "cpu"))
    assert (done.every.events, done.every.found, done.every.subsystem.last) == (2, 2, 1)
    assert done.every.delays_s == [3, 12.5]
    assert done.every.delay_p50_s == pytest.approx(7.75)
    assert (done.every.recall, done.every.subsystem.accuracy) == (1, 0.5)
    assert (done.free.events, done.free.found) == (1, 0)
    assert (done.episodes, done.false, done.precision) == (2, 0, 1)
    assert done.per_fault["flood", 1].events == 1
    assert done.per_fault["flood", 1].found == 0
    assert done.anywhere == 1


def test_an_episode_after_an_event_is_its_own_for_a_while_and_finds_nothing() -> None:
    done = of(told("a", 125), told("a", 131))
    assert (done.every.found, done.episodes, done.false) == (0, 2, 1)
    assert done.precision == 0.5
    assert done.false_every(HOUR_S) == 2
    assert done.false_every(DAY_S) == 48


def test_an_episode_that_began_in_an_event_and_was_told_in_its_grace_finds_it() -> None:
    done = of(told("a", 122.5), told("a", 331))  # the second began at 328, after the hog
    assert done.every.delays_s == [22.5]
    assert (done.every.found, done.false) == (1, 1)


def test_the_first_episode_finds_it_and_others_are_not_false() -> None:
    done = of(told("a", 115, "cpu"), told("a", 104), told("a", 118))
    assert done.every.delays_s == [4]
    assert done.every.subsystem.last == 1
    assert done.false == 0


def test_the_last_account_during_the_event_counts_and_the_first_apart() -> None:
    flood = then(then(told("a", 104, "cpu"), 110, "network", "flood"), 121, "storage", "writeback")
    hog = then(told("a", 303, "memory", "hog"), 310, "cpu", "contention")
    done = of(flood, hog)
    assert done.every.delays_s == [4, 3]
    assert (done.every.subsystem.judged, done.every.cause.judged) == (2, 2)
    assert (done.every.subsystem.last, done.every.cause.last) == (1, 1)  # the flood's
    assert (done.every.subsystem.at_open, done.every.cause.at_open) == (1, 1)  # the hog's
    assert done.every.cause.accuracy == done.every.cause.accuracy_at_open == 0.5


def test_a_subsystem_that_shares_the_blame_counts_apart() -> None:
    first = told("a", 104, "cpu")
    shared = replace(first, accounts=(replace(first.accounts[0], sharing=("network", "gpu")),))
    done = of(shared, told("a", 303, "memory"))
    assert done.every.subsystem.accuracy == 0.5
    assert done.every.shared_accuracy == 1
    assert of(first).every.shared_accuracy == 0


def test_causes_by_fault_with_what_is_missed_and_what_has_none() -> None:
    done = of(
        told("a", 104, cause="flood"),
        told("b", 104, cause="packet_loss"),
        told("b", 204),
        hosts=("a", "b"),
    )
    assert done.confusion == {
        "flood": Counter({"flood": 1, "packet_loss": 1, NO_CAUSE: 1, MISSED: 1}),
        "hog": Counter({MISSED: 2}),
    }
    assert done.every.cause.accuracy == 0.5  # the flood that cost nothing is not in it


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("memory_hog", "memory_exhaustion"),
        ("hugepages_preallocated", "hugepages"),
        ("timer_irq_storm", "interrupt_storm"),
        ("rank_stall", "stalled_rank"),
        ("udp_flood", "udp_flood"),
    ],
)
def test_the_rule_that_is_right_for_a_fault(fault: str, rule: str) -> None:
    event = Event(fault, 0, "cpu", 100 * S, 120 * S)
    done = evaluate([event], [told("a", 103, cause=rule)], ["a"], 60)
    assert done.every.cause.accuracy == 1
    assert done.confusion == {fault: Counter({rule: 1})}


def test_of_an_event_without_a_name_nothing_is_asked_but_to_be_found() -> None:
    done = evaluate([Event(UNNAMED, 0, "", 100 * S, 120 * S)], [told("a", 103)], ["a"], 60)
    assert done.every.recall == 1
    assert math.isnan(done.every.subsystem.accuracy)
    assert math.isnan(done.every.cause.accuracy)
    assert done.confusion == {}


def test_each_host_has_the_event() -> None:
    done = of(told("b", 101), told("a", 305, "memory"), hosts=("a", "b"))
    assert (done.every.events, done.every.found) == (4, 2)
    assert done.per_fault["flood", 0].found == 1
    assert done.f1 == pytest.approx(2 * 1 * 0.5 / 1.5)
    assert done.anywhere == 1


def test_an_event_of_one_host_is_asked_of_that_host_only() -> None:
    event = replace(EVENTS[0], hosts=("a",))
    done = evaluate([event], [told("b", 104), told("b", 140)], ["a", "b"], 3600)
    assert (done.every.events, done.every.found, done.anywhere) == (1, 0, 0)
    # What the neighbour tells meanwhile is neither right nor false; what it tells later is false.
    assert (done.episodes, done.elsewhere, done.false, done.precision) == (2, 1, 1, 0)


def test_nothing_at_all() -> None:
    done = of()
    assert done.every.recall == 0
    assert all(map(math.isnan, (done.precision, done.f1, done.every.delay_p50_s)))
    assert done.false_every(HOUR_S) == 0


seconds = st.integers(0, 400)


@given(st.lists(seconds, max_size=12), st.lists(seconds, max_size=12))
def test_counts_add_up(a: list[int], b: list[int]) -> None:
    episodes = [*(told("a", s + 0.5) for s in a), *(told("b", s + 0.5) for s in b)]
    done = of(*episodes, hosts=("a", "b"))
    tallies = done.per_fault.values()
    assert sum(t.events for t in tallies) == done.every.events + done.free.events == 6
    assert sum(t.found for t in tallies) == done.every.found + done.free.found
    assert sum(sum(row.values()) for row in done.confusion.values()) == 6
    assert done.false <= done.episodes == len(episodes)
    assert done.every.recall <= done.anywhere <= 1
    assert all(0 < d < 30 for t in tallies for d in t.delays_s)
