"""Episodes held against events, counted by hand."""

from __future__ import annotations

import math

import pytest

from models.evaluation import DAY_S, HOUR_S, Evaluation, Event, Told, evaluate

S = 1_000_000
EVENTS = (
    Event("flood", 0, "network", 100 * S, 120 * S, 1.5),
    Event("flood", 1, "network", 200 * S, 220 * S, 1.01),
    Event("hog", 0, "memory", 300 * S, 320 * S),
)


def told(host: str, second: float, subsystem: str = "network") -> Told:
    return Told(host, int(second * S), subsystem)


def of(*episodes: Told, hosts: tuple[str, ...] = ("a",)) -> Evaluation:
    return evaluate(EVENTS, episodes, hosts, 1800.0 * len(hosts))


def test_what_is_found_late_or_never() -> None:
    done = of(told("a", 103), told("a", 312.5, "cpu"))
    assert (done.every.events, done.every.found, done.every.right_subsystem) == (2, 2, 1)
    assert done.every.delays_s == [3, 12.5]
    assert done.every.delay_p50_s == pytest.approx(7.75)
    assert (done.every.recall, done.every.subsystem_accuracy) == (1, 0.5)
    assert (done.free.events, done.free.found) == (1, 0)
    assert (done.episodes, done.false, done.precision) == (2, 0, 1)
    assert done.per_fault["flood", 1].events == 1
    assert done.per_fault["flood", 1].found == 0


def test_an_episode_after_an_event_is_its_own_for_a_while_and_finds_nothing() -> None:
    done = of(told("a", 125), told("a", 131))
    assert (done.every.found, done.episodes, done.false) == (0, 2, 1)
    assert done.precision == 0.5
    assert done.false_every(HOUR_S) == 2
    assert done.false_every(DAY_S) == 48


def test_the_first_episode_finds_it_and_others_are_not_false() -> None:
    done = of(told("a", 115, "cpu"), told("a", 104), told("a", 118))
    assert done.every.delays_s == [4]
    assert done.every.right_subsystem == 1
    assert done.false == 0


def test_each_host_has_the_event() -> None:
    done = of(told("b", 101), told("a", 305, "memory"), hosts=("a", "b"))
    assert (done.every.events, done.every.found) == (4, 2)
    assert done.per_fault["flood", 0].found == 1
    assert done.f1 == pytest.approx(2 * 1 * 0.5 / 1.5)


def test_nothing_at_all() -> None:
    done = of()
    assert done.every.recall == 0
    assert all(map(math.isnan, (done.precision, done.f1, done.every.delay_p50_s)))
    assert done.false_every(HOUR_S) == 0
