"""The life of baselines in the scoring stage: simulated hosts whose workload drifts and changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.features import FEATURES
from models.lifecycle import GUARD
from schemas.records import (
    Anomaly,
    Channel,
    EpisodeState,
    Kind,
    Layout,
    Level,
    Score,
    State,
    Subsystem,
)
from streams.baselines import Assembly, to_messages
from streams.fitting import InPlace
from streams.layouts import Layouts
from streams.lives import News
from streams.rings import WindowBatch
from streams.score import Scoring

SECOND = 1_000_000
PER = 10
PARTS = (Subsystem.CPU, Subsystem.MEMORY, Subsystem.NETWORK, Subsystem.STORAGE)
CHANNELS = PER * len(PARTS)
STORAGE = slice(3 * PER, 4 * PER)
BASELINE = 60
LASTING = 60
LAYOUT = 7
Means = NDArray[np.float64]


def layout(host: str = "a", fingerprint: int = LAYOUT) -> Layout:
    channels = tuple(
        Channel(f"m{c}", "", PARTS[c // PER], "/s", Kind.RATE) for c in range(CHANNELS)
    )
    return Layout(host, fingerprint, "", "", 100_000, channels)


def window(second: int, shape: Callable[[int, Means], None] | None) -> NDArray[np.float32]:
    rng = np.random.default_rng(second)
    mean = rng.normal(1000, 100, CHANNELS)
    if shape is not None:
        shape(second, mean)
    std = np.abs(rng.normal(50, 10, CHANNELS))
    return np.concatenate([mean, std, mean - std, mean + std]).astype(np.float32)


def batch(
    second: int,
    shape: Callable[[int, Means], None] | None = None,
    *,
    host: str = "a",
    fingerprint: int = LAYOUT,
    samples: int = 30,
) -> WindowBatch:
    end = np.array([second * SECOND])
    return WindowBatch(
        channels=CHANNELS,
        hosts=(host,),
        layouts=(fingerprint,),
        clocks=(0,),
        starts=end - 3 * SECOND,
        ends=end,
        samples=np.array([samples]),
        expected=np.array([30]),
        values=window(second, shape)[None],
    )


class Fits(InPlace):
    """Fits at once, and remembers the seconds of the windows that each fit was given."""

    def __init__(self, shape: Callable[[int, Means], None] | None = None) -> None:
        self.shape = shape
        self.seconds: list[list[int]] = []
        self.known: dict[bytes, int] = {}

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.seconds.append([self.known[row[:CHANNELS].tobytes()] for row in args[0]])
        return super().submit(fn, *args, **kwargs)


class Run:
    """One host through the scoring stage."""

    def __init__(self, shape: Callable[[int, Means], None] | None = None, **settings: Any) -> None:
        layouts = Layouts()
        for fingerprint in (LAYOUT, LAYOUT + 1):
            layouts.add(layout(fingerprint=fingerprint))
        self.fits = Fits()
        given = {"baseline_us": BASELINE * SECOND, "workload_us": LASTING * SECOND, **settings}
        self.stage = Scoring(layouts, self.fits, keep=True, **given)
        self.shape = shape
        self.scores: list[Score] = []
        self.anomalies: list[Anomaly] = []

    def until(self, end: int, *, fingerprint: int = LAYOUT) -> None:
        """Go on to a second; a second gives the same window in every run."""
        first = self.scores[-1].end // SECOND + 1 if self.scores else 1
        for second in range(first, end + 1):
            b = batch(second, self.shape, fingerprint=fingerprint)
            self.fits.known[b.values[0, :CHANNELS].tobytes()] = second
            scores, anomalies = self.stage.score(b)
            self.scores += scores
            self.anomalies += anomalies

    def states(self) -> list[tuple[State, int]]:
        """States with the first second of each run of them."""
        out: list[tuple[State, int]] = []
        for s in self.scores:
            if not out or out[-1][0] is not s.state:
                out.append((s.state, s.end // SECOND))
        return out


def after(second: int, what: slice, factor: float) -> Callable[[int, Means], None]:
    def shape(now: int, mean: Means) -> None:
        if now > second:
            mean[what] *= factor

    return shape


def test_another_workload_is_told_once_learned_anew_and_quiet_afterwards() -> None:
    change = 100
    run = Run(after(change, slice(None), 3.0))
    run.until(600)
    opened, *updates, closed = run.anomalies
    assert opened.state is EpisodeState.OPEN
    assert opened.onset == change * SECOND
    assert {a.state for a in updates} <= {EpisodeState.ONGOING}
    assert {a.id for a in run.anomalies} == {opened.id}
    assert (closed.state, closed.level) == (EpisodeState.CLOSED, Level.MINOR)
    (cause,) = closed.causes
    assert cause.rule == "workload_changed"
    assert cause.confidence == 1.0
    assert len(cause.evidence) == len(PARTS)
    assert cause.evidence[0].startswith("cpu: 10 of 10 channels")
    assert not any(a.causes for a in [opened, *updates])
    said = closed.latest // SECOND
    assert LASTING <= said - change <= LASTING + 20
    assert run.states() == [
        (State.LEARNING, 1),
        (State.ACTIVE, BASELINE),
        (State.RELEARNING, said + 1),
        (State.ACTIVE, said + BASELINE),
    ]
    relearning = [s for s in run.scores if s.state is State.RELEARNING]
    assert {s.baseline for s in relearning} == {0}
    assert relearning[-1].progress > 0.95
    assert not any(s.detectors for s in relearning)
    assert run.fits.seconds[1] == list(range(said + 1, said + BASELINE + 1))
    first, gone, second = run.stage.take_news()
    assert first.learned is not None
    assert gone.learned is None
    assert second.learned is not None
    assert second.learned.version > first.learned.version


@pytest.mark.parametrize("part", range(len(PARTS)))
def test_a_fault_in_one_subsystem_stays_an_episode_however_long(part: int) -> None:
    run = Run(after(100, slice(part * PER, (part + 1) * PER), 5.0))
    run.until(600)
    assert [a.state for a in run.anomalies].count(EpisodeState.OPEN) == 1
    assert EpisodeState.CLOSED not in {a.state for a in run.anomalies}
    assert run.states() == [(State.LEARNING, 1), (State.ACTIVE, BASELINE)]
    assert run.anomalies[-1].latest > 590 * SECOND
    assert len(run.fits.seconds) == 1


def test_a_fault_that_outlasts_an_hour_is_told_as_such() -> None:
    run = Run(after(100, slice(0, PER), 5.0))
    run.until(3900)
    told = [a for a in run.anomalies if a.causes]
    assert told
    assert 3600 <= told[0].latest // SECOND - 100 <= 3620
    assert all(a.causes[0].rule == "lasting" for a in told)
    assert told[0].causes[0].evidence[0].startswith("cpu: 10 of 10 channels")
    assert told == run.anomalies[-len(told) :], "every update says so from then on"
    assert run.states() == [(State.LEARNING, 1), (State.ACTIVE, BASELINE)]


def test_checkpoints_are_learned_as_normal_though_the_first_comes_late() -> None:
    def shape(now: int, mean: Means) -> None:
        if now % 100 >= 92:
            mean[STORAGE] *= 4

    run = Run(shape, baseline_us=100 * SECOND)
    run.until(900)
    longer = [s for s in run.scores if s.state is State.LEARNING and s.reason]
    assert {s.reason for s in longer} == {"learning goes on: storage did what was not seen before"}
    assert [s for s, _ in run.states()] == [State.LEARNING, State.ACTIVE]
    assert 120 <= run.states()[1][1] <= 140
    assert {92, 99} <= set(run.fits.seconds[0])
    assert run.anomalies == []
    without = Run(shape, baseline_us=90 * SECOND, baseline_limit=1.0)
    without.until(900)
    assert without.anomalies, "had it not been learned, it would have been told"


def test_a_slow_drift_renews_the_baseline_and_raises_no_storm() -> None:
    def shape(now: int, mean: Means) -> None:
        mean += 0.2 * max(0, now - 100)  # of a deviation of 100: five in the end

    run = Run(shape, drift_us=60 * SECOND)
    run.until(2600)
    versions = sorted({s.baseline for s in run.scores if s.detectors})
    assert len(versions) >= 3
    drifting = [s for s in run.scores if s.state is State.DRIFTING]
    assert all(s.detectors and s.reason for s in drifting)
    assert {State.LEARNING, State.ACTIVE, State.DRIFTING} == {s.state for s in run.scores}
    assert [s.state for s in run.scores[BASELINE - 1 :]].count(State.LEARNING) == 0
    storm = Run(shape, drift_us=0)
    storm.until(2600)

    def odd(r: Run) -> int:
        return sum(s.flagged for s in r.scores)

    assert odd(run) < 60
    assert odd(storm) > 5 * odd(run)
    # Not more often than a baseline takes to learn and a drift to be seen.
    assert np.diff(versions).min() > BASELINE * SECOND


def test_what_was_odd_never_trains() -> None:
    def shape(now: int, mean: Means) -> None:
        mean += 0.2 * max(0, now - 100)
        if now > 100 and now % 90 < 6:
            mean[:PER] *= 6  # a fault now and then

    run = Run(shape, drift_us=60 * SECOND)
    run.until(2600)
    assert len(run.fits.seconds) >= 2
    flags = {s.end // SECOND for s in run.scores if s.flagged}
    assert len(flags) > 100
    never = {n + d for n in flags for d in (-2, -1, 0, 1, 2)}
    ended = [a for a in run.anomalies if a.state is EpisodeState.CLOSED]
    assert ended
    for a in ended:
        never |= set(range(a.onset // SECOND + 1 - GUARD, a.latest // SECOND + 1 + GUARD))
    for trained in run.fits.seconds[1:]:
        assert not never & set(trained)


def test_a_window_that_is_half_empty_is_judged_and_does_not_train() -> None:
    def shape(now: int, mean: Means) -> None:
        mean += 0.2 * max(0, now - 100)

    run = Run(shape, drift_us=60 * SECOND)
    while not run.scores or run.scores[-1].state is not State.DRIFTING:
        run.until(len(run.scores) + 1)
    begin = len(run.scores)
    fits = len(run.fits.seconds)
    for second in range(begin + 1, begin + 200):
        (score,), _ = run.stage.score(batch(second, shape, samples=15))
        assert score.detectors
    assert len(run.fits.seconds) == fits


# ---- baselines that come from elsewhere -------------------------------------------------------


def carried(news: list[News]) -> list[News]:
    """News as they come back from a topic."""
    rejected: list[str] = []
    assembly = Assembly(rejected.append)
    for n in news:
        for key, value in to_messages(n):
            assembly.add(key.encode(), value)
    back = list(assembly.take())
    assert rejected == []
    return back


def test_another_worker_judges_at_once_and_the_same() -> None:
    first = Run()
    first.until(BASELINE + 20)
    second = Run()
    for news in carried(first.stage.take_news()):
        second.stage.offer(news)
    second.until(BASELINE + 20)
    assert {s.state for s in second.scores} == {State.ACTIVE}
    assert second.scores[BASELINE - 1 :] == first.scores[BASELINE - 1 :]
    assert second.fits.seconds == []
    assert second.stage.take_news() == [], "what was loaded is not published again"


def test_the_bytes_for_the_topic_are_handed_out_and_not_kept() -> None:
    run = Run()
    run.until(BASELINE)
    (news,) = run.stage.take_news()
    assert news.learned is not None
    assert news.learned.data == news.learned.baseline.to_bytes()
    kept = run.stage._hosts["a"].learned
    assert kept is not None
    assert kept.data == b""


def test_a_layout_that_comes_back_is_judged_by_its_own_baseline() -> None:
    run = Run()
    run.until(BASELINE + 5)
    mine = run.scores[-1].baseline
    run.until(BASELINE + 10, fingerprint=LAYOUT + 1)
    assert run.scores[-1].state is State.LEARNING
    run.until(BASELINE + 15)
    assert [(s.state, s.baseline) for s in run.scores[-5:]] == [(State.ACTIVE, mine)] * 5


def test_the_newer_version_wins_whichever_comes_first() -> None:
    early, late = Run(), Run(after(0, slice(None), 1.0))
    early.until(BASELINE)
    late.shape = None
    late.scores.append(early.scores[0])
    late.until(BASELINE + 10)  # learned from later windows
    (old,), (new,) = early.stage.take_news(), late.stage.take_news()
    assert old.learned is not None
    assert new.learned is not None
    assert new.learned.version > old.learned.version
    for order in ((old, new), (new, old)):
        run = Run()
        for news in order:
            run.stage.offer(news)
        run.until(3)
        assert {s.baseline for s in run.scores} == {new.learned.version}
        run = Run()
        run.until(3)
        for news in order:
            run.stage.offer(news)  # to a host that is learning, and then to one that is judged
            run.until(run.scores[-1].end // SECOND + 1)
        assert run.scores[-1].baseline == new.learned.version


def test_a_baseline_waits_for_its_layout() -> None:
    first = Run()
    first.until(BASELINE)
    layouts = Layouts()
    stage = Scoring(layouts, InPlace(), baseline_us=BASELINE * SECOND)
    for news in first.stage.take_news():
        stage.offer(news)
    (score,), _ = stage.score(batch(100))
    assert (score.state, score.reason) == (State.ABSTAINED, "its layout has not been seen yet")
    layouts.add(layout())
    (score,), _ = stage.score(batch(101))
    assert score.state is State.ACTIVE


def test_a_baseline_of_other_rows_is_counted_and_not_used() -> None:
    first = Run()
    first.until(BASELINE)
    (news,) = first.stage.take_news()
    run = Run()
    run.stage.offer(news)
    b = batch(1)
    half = CHANNELS // 2
    narrow = WindowBatch(
        *(half, b.hosts, b.layouts, b.clocks, b.starts, b.ends, b.samples, b.expected),
        b.values[:, : half * len(FEATURES)],
    )
    (score,), _ = run.stage.score(narrow)
    assert score.state is not State.ACTIVE
    assert run.stage.misfits == 1


def test_a_baseline_that_was_taken_back_is_no_longer_judged_by() -> None:
    run = Run()
    run.until(BASELINE)
    run.stage.offer(News("a", LAYOUT, None))
    run.until(BASELINE + 5)
    assert run.scores[-1].state is State.RELEARNING
    fresh = Run()
    for news in run.stage.take_news():
        fresh.stage.offer(news)
    fresh.stage.offer(News("a", LAYOUT, None))
    fresh.until(1)
    assert fresh.scores[0].state is State.LEARNING


def test_a_host_that_is_forgotten_is_learned_anew() -> None:
    run = Run()
    run.until(BASELINE)
    run.stage.forget("a")
    run.until(BASELINE + 1)
    assert run.scores[-1].state is State.LEARNING
