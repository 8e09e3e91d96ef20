"""The scoring stage: from learning to episodes, on windows made by hand."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest

from models.features import FEATURES
from models.mode import DETECTORS, Mode
from schemas.records import (
    Anomaly,
    Channel,
    EpisodeState,
    Kind,
    Layout,
    Score,
    State,
    Subsystem,
)
from streams.episode import UPDATE_US
from streams.fitting import InPlace
from streams.layouts import Layouts
from streams.rings import WindowBatch
from streams.score import Scoring

SECOND = 1_000_000
CHANNELS = 40
CPU = 16  # the first channels are the CPU's, the rest memory's
BASELINE = 60
LAYOUT = 7


def layout(host: str, fingerprint: int = LAYOUT) -> Layout:
    channels = tuple(
        Channel(f"m{c}", "", Subsystem.CPU if c < CPU else Subsystem.MEMORY, "%", Kind.RATE)
        for c in range(CHANNELS)
    )
    return Layout(host, fingerprint, "", "", 100_000, channels)


def batch(
    rows: list[tuple[str, int]],
    *,
    lift: float = 0.0,
    samples: int = 30,
    fingerprint: int = LAYOUT,
    clock: int = 0,
    known: int = CHANNELS,
) -> WindowBatch:
    """Windows by host and second: noise around 20, `lift` more on every CPU channel."""
    values = np.empty((len(rows), len(FEATURES) * CHANNELS), np.float32)
    for i, (host, end) in enumerate(rows):
        rng = np.random.default_rng([sum(host.encode()), end])
        mean = 20 + rng.normal(0, 3, CHANNELS)
        mean[:CPU] += lift
        std = np.abs(rng.normal(4, 1, CHANNELS))
        values[i] = np.concatenate([mean, std, mean - std, mean + std])
    values.reshape(len(rows), -1, CHANNELS)[:, :, known:] = np.nan
    ends = np.array([end for _, end in rows], np.int64) * SECOND
    count = len(rows)
    return WindowBatch(
        channels=CHANNELS,
        hosts=tuple(host for host, _ in rows),
        layouts=(fingerprint,) * count,
        clocks=(clock,) * count,
        starts=ends - 3 * SECOND,
        ends=ends,
        samples=np.full(count, samples),
        expected=np.full(count, 30),
        values=values,
    )


def scoring(*hosts: str, executor: Executor | None = None) -> Scoring:
    layouts = Layouts()
    for host in hosts:
        layouts.add(layout(host))
        layouts.add(layout(host, LAYOUT + 1))
    return Scoring(layouts, executor or InPlace(), baseline_us=BASELINE * SECOND)


def run(stage: Scoring, seconds: range, **kwargs: Any) -> tuple[list[Score], list[Anomaly]]:
    scores: list[Score] = []
    anomalies: list[Anomaly] = []
    for end in seconds:
        some_scores, some_anomalies = stage.score(batch([("a", end)], **kwargs))
        scores += some_scores
        anomalies += some_anomalies
    return scores, anomalies


def test_a_host_learns_then_is_judged_by_its_own_baseline() -> None:
    stage = scoring("a")
    scores, anomalies = run(stage, range(1, BASELINE + 21))
    learning = scores[: BASELINE - 1]
    assert [s.state for s in learning] == [State.LEARNING] * (BASELINE - 1)
    assert [s.progress for s in learning] == [n / BASELINE for n in range(1, BASELINE)]
    assert {s.baseline for s in learning} == {0}
    active = scores[BASELINE - 1 :]
    assert {s.state for s in active} == {State.ACTIVE}
    assert {s.baseline for s in active} == {BASELINE * SECOND}
    assert {d.detector for d in active[0].detectors} == {*DETECTORS[Mode.DEFAULT]}
    assert all(0 < d.p_value <= 1 for s in active for d in s.detectors)
    assert anomalies == []


def test_an_episode_opens_on_the_third_odd_window_blames_what_moved_and_closes() -> None:
    stage = scoring("a")
    scores, _ = run(stage, range(1, BASELINE + 21))
    onset = BASELINE + 20
    assert not any(s.flagged for s in scores[-5:])
    scores, opened = run(stage, range(onset + 1, onset + 4), lift=60.0)
    assert [s.flagged for s in scores] == [True] * 3
    (event,) = opened
    assert event.state is EpisodeState.OPEN
    assert event.id == f"a@{event.onset}"
    assert event.onset == onset * SECOND
    assert event.latest == (onset + 3) * SECOND
    assert (event.windows, event.flagged) == (3, 3)
    assert event.subsystems[0].subsystem is Subsystem.CPU
    assert event.subsystems[0].share > 0.8
    assert sum(s.share for s in event.subsystems) == pytest.approx(1)
    assert len(event.channels) == 10
    for blamed in event.channels:
        assert blamed.subsystem is Subsystem.CPU
        assert blamed.value > 60
        assert blamed.expected_low < 20 < blamed.expected_high < 60
        assert blamed.deviation > 5
    _, closed = run(stage, range(onset + 4, onset + 12))
    assert [a.state for a in closed] == [EpisodeState.CLOSED]
    assert closed[0].id == event.id
    assert closed[0].channels == event.channels


def test_an_episode_that_goes_on_is_updated_at_intervals_and_when_it_gets_worse() -> None:
    stage = scoring("a")
    run(stage, range(1, BASELINE + 1))
    _, steady = run(stage, range(BASELINE + 1, BASELINE + 30), lift=40.0)
    updates = [a for a in steady if a.state is EpisodeState.ONGOING]
    assert 29 * SECOND // UPDATE_US - 2 <= len(updates) <= 29 * SECOND // UPDATE_US + 3
    _, worse = run(stage, range(BASELINE + 30, BASELINE + 31), lift=4e5)
    assert [a.state for a in worse] == [EpisodeState.ONGOING]
    assert worse[0].severity > 1.2 * updates[-1].severity
    assert {a.id for a in [*steady, *worse]} == {steady[0].id}


def test_a_window_with_too_few_ticks_is_marked_and_neither_scored_nor_learned_from() -> None:
    stage = scoring("a")
    scores, _ = run(stage, range(1, 11), samples=23)
    assert {(s.state, s.reason) for s in scores} == {(State.ABSTAINED, "23 of 30 samples")}
    scores, _ = run(stage, range(11, 12))
    assert scores[0].progress == 1 / BASELINE
    run(stage, range(12, 11 + BASELINE))
    scores, anomalies = run(stage, range(11 + BASELINE, 20 + BASELINE), samples=8, lift=60.0)
    assert {(s.state, s.reason) for s in scores} == {(State.ABSTAINED, "8 of 30 samples")}
    assert anomalies == []


def test_a_starved_host_is_judged_by_the_few_ticks_it_has() -> None:
    stage = scoring("a")
    run(stage, range(1, BASELINE + 1))
    scores, anomalies = run(stage, range(BASELINE + 1, BASELINE + 6), samples=9, lift=60.0)
    assert {s.state for s in scores} == {State.ACTIVE}
    assert anomalies[0].state is EpisodeState.OPEN


def test_a_window_is_scored_once() -> None:
    stage = scoring("a")
    run(stage, range(1, 20))
    assert run(stage, range(15, 20)) == ([], [])
    assert len(run(stage, range(15, 22))[0]) == 2


def test_hosts_in_one_batch_are_scored_as_if_alone() -> None:
    together, alone = scoring("a", "b"), scoring("a", "b")
    got: list[Score] = []
    want: list[Score] = []
    for end in range(1, BASELINE + 20, 2):
        rows = [("a", end), ("b", end), ("a", end + 1), ("b", end + 1)]
        got += together.score(batch(rows))[0]
        for row in rows:
            want += alone.score(batch([row]))[0]
    assert sorted(got, key=lambda s: (s.host, s.end)) == sorted(want, key=lambda s: (s.host, s.end))


def test_constant_data_is_not_learned_from_and_the_reason_is_given() -> None:
    stage = scoring("a")
    still = batch([("a", 1)])
    scores: list[Score] = []
    for end in range(1, BASELINE + 5):
        ends = np.array([end * SECOND])
        same = WindowBatch(
            *(still.channels, still.hosts, still.layouts, still.clocks, ends - 3 * SECOND, ends),
            *(still.samples, still.expected, still.values),
        )
        scores += stage.score(same)[0]
    assert scores[-1].state is State.ABSTAINED
    assert "moved" in scores[-1].reason
    assert scores[-1].progress < 0.2


def test_an_unknown_layout_is_waited_for() -> None:
    layouts = Layouts()
    stage = Scoring(layouts, InPlace(), baseline_us=BASELINE * SECOND)
    scores, _ = run(stage, range(1, BASELINE + 3))
    assert scores[-1].state is State.ABSTAINED
    assert scores[-1].reason == "its layout has not been seen yet"
    layouts.add(layout("a"))
    scores, _ = run(stage, range(BASELINE + 3, BASELINE + 5))
    assert scores[-1].state is State.ACTIVE


def test_another_layout_closes_what_is_open_and_learns_anew() -> None:
    stage = scoring("a")
    run(stage, range(1, BASELINE + 1))
    _, opened = run(stage, range(BASELINE + 1, BASELINE + 5), lift=60.0)
    scores, events = run(stage, range(BASELINE + 5, BASELINE + 6), fingerprint=LAYOUT + 1)
    assert [(a.id, a.state) for a in events] == [(opened[0].id, EpisodeState.CLOSED)]
    assert scores[0].state is State.LEARNING
    assert scores[0].progress == 1 / BASELINE


def test_a_clock_that_was_set_back_starts_another_count() -> None:
    stage = scoring("a")
    run(stage, range(1, BASELINE + 11))
    assert run(stage, range(5, 15)) == ([], [])
    scores, _ = run(stage, range(5, 15), clock=1)
    assert [s.end // SECOND for s in scores] == list(range(5, 15))


def test_a_window_without_values_is_not_normal() -> None:
    stage = scoring("a")
    run(stage, range(1, BASELINE + 1))
    _, opened = run(stage, range(BASELINE + 1, BASELINE + 5), lift=60.0)
    for known in (0, 31):
        scores, events = run(stage, range(BASELINE + 5 + known, BASELINE + 15 + known), known=known)
        assert {s.state for s in scores} == {State.ABSTAINED}
        assert {s.reason for s in scores} == {f"{known} of 40 channels have a value"}
        assert events == [], "what cannot be seen closes nothing"
    scores, _ = run(stage, range(BASELINE + 60, BASELINE + 62), known=32)
    assert {s.state for s in scores} == {State.ACTIVE}
    assert opened


def test_telemetry_that_changes_its_channels_under_one_layout_starts_anew() -> None:
    stage = scoring("a")
    run(stage, range(1, BASELINE + 1))
    wide = batch([("a", BASELINE + 1)])
    narrow = WindowBatch(
        *(CHANNELS // 2, wide.hosts, wide.layouts, wide.clocks, wide.starts, wide.ends),
        *(wide.samples, wide.expected, wide.values[:, : len(FEATURES) * CHANNELS // 2]),
    )
    (score,), _ = stage.score(narrow)
    assert (score.state, score.progress) == (State.LEARNING, 1 / BASELINE)


class Later(Executor):
    """Keeps what is submitted until it is told to finish."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Any, tuple[Any, ...], dict[str, Any]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, fn, args, kwargs))
        return future

    def finish(self) -> None:
        for future, fn, args, kwargs in self.jobs:
            future.set_result(fn(*args, **kwargs))
        self.jobs.clear()


def test_windows_go_on_while_a_baseline_is_fitted() -> None:
    later = Later()
    stage = scoring("a", executor=later)
    scores, _ = run(stage, range(1, BASELINE + 5))
    assert len(later.jobs) == 1
    assert {(s.state, s.progress) for s in scores[BASELINE:]} == {(State.LEARNING, 1.0)}
    later.finish()
    scores, _ = run(stage, range(BASELINE + 5, BASELINE + 7))
    assert {s.state for s in scores} == {State.ACTIVE}


def test_a_layout_that_does_not_fit_the_telemetry_is_a_reason_not_a_crash() -> None:
    layouts = Layouts()
    short = layout("a")
    layouts.add(Layout("a", LAYOUT, "", "", 100_000, short.channels[:-1]))
    stage = Scoring(layouts, InPlace(), baseline_us=BASELINE * SECOND)
    scores, _ = run(stage, range(1, BASELINE + 3))
    assert scores[-1].state is State.ABSTAINED
    assert scores[-1].reason == f"its layout has {CHANNELS - 1} channels, its telemetry {CHANNELS}"


def test_a_fit_that_fails_is_a_reason_not_a_crash() -> None:
    later = Later()
    stage = scoring("a", executor=later)
    run(stage, range(1, BASELINE + 1))
    later.jobs[0][0].set_exception(ZeroDivisionError("no luck"))
    scores, _ = run(stage, range(BASELINE + 1, BASELINE + 2))
    assert scores[0].state is State.ABSTAINED
    assert "no luck" in scores[0].reason
    assert scores[0].progress == 1 / BASELINE


def test_a_host_that_is_forgotten_closes_its_episode_and_starts_anew() -> None:
    stage = scoring("a")
    run(stage, range(1, BASELINE + 1))
    _, opened = run(stage, range(BASELINE + 1, BASELINE + 5), lift=60.0)
    assert [(a.id, a.state) for a in stage.forget("a")] == [(opened[0].id, EpisodeState.CLOSED)]
    assert stage.forget("a") == []
    scores, _ = run(stage, range(BASELINE + 5, BASELINE + 6))
    assert scores[0].progress == 1 / BASELINE
