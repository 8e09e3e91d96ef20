"""Replay is the live core without Kafka: same features, same scores, and what it counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest

from schemas.codec import encode
from schemas.records import (
    Anomaly,
    Channel,
    EpisodeState,
    Features,
    Kind,
    Layout,
    Subsystem,
    Telemetry,
)
from streams.config import WorkerSettings
from streams.core import new_pipeline
from streams.fitting import InPlace
from streams.layouts import Layouts
from streams.pipeline import Message, Outcome
from streams.recording import Recorded
from streams.replay import Replay, warm_up

CHANNELS = tuple(
    Channel(f"{subsystem}.x", str(i), subsystem, "B/s", Kind.RATE)
    for subsystem in (Subsystem.CPU, Subsystem.NETWORK)
    for i in range(4)
)
START = 1_700_000_000
SETTINGS = WorkerSettings.model_validate({"baseline_seconds": 60})


def host(name: str, seconds: int, fault: range = range(0)) -> Iterator[Recorded]:
    """A layout and seconds of noise; during the fault the network is ten times faster."""
    layout = Layout(name, 1, "", "", 100_000, CHANNELS)
    yield Recorded(layout, encode(layout))
    random = np.random.default_rng(sum(name.encode()))
    for second in range(seconds):
        stamps = (START + second) * 1_000_000 + 100_000 * np.arange(10, dtype=np.int64)
        values = random.normal(1e8, 5e6, (len(CHANNELS), 10)).astype(np.float32)
        if second in fault:
            values[4:] *= 10
        record = Telemetry(name, 1, second, 100_000, stamps, values)
        yield Recorded(record, encode(record))


def side_by_side(*hosts: Iterator[Recorded]) -> Iterator[Recorded]:
    yield from chain.from_iterable(zip(*hosts, strict=True))


def run(
    recorded: Iterator[Recorded], *, keep_features: bool = False
) -> tuple[Replay, list[Outcome]]:
    replay = Replay(SETTINGS, keep_features=keep_features)
    return replay, list(replay.run(recorded))


def by_window(features: list[Features]) -> dict[tuple[str, int], bytes]:
    out = {(f.host, f.end): encode(f) for f in features}
    assert len(out) == len(features)
    return out


def anomalies(outcomes: list[Outcome]) -> list[Anomaly]:
    return [a for outcome in outcomes for a in outcome.anomalies]


def test_the_fault_is_found_on_its_host_and_nowhere_else() -> None:
    replay, outcomes = run(side_by_side(host("a", 200), host("b", 200, range(120, 140))))
    found = anomalies(outcomes)
    assert {a.host for a in found if a.flagged > 2} == {"b"}
    first = next(a for a in found if a.host == "b")
    assert first.state is EpisodeState.OPEN
    assert abs(first.onset / 1e6 - (START + 120)) <= 4
    assert first.subsystems[0].subsystem is Subsystem.NETWORK
    assert replay.summary.episodes == sum(a.state is EpisodeState.OPEN for a in found)


def test_the_summary_counts_what_came_out() -> None:
    replay, outcomes = run(side_by_side(host("a", 100), host("b", 100)))
    s = replay.summary
    assert (s.hosts, s.records) == (2, 200)
    assert s.recording_seconds == 100.0
    # A window of 3 s every second, from the first three seconds on.
    assert s.windows == 2 * 98
    assert s.windows == sum(len(o.scores) for o in outcomes)
    assert s.states["active"] == s.scored == s.windows - s.states["learning"]
    assert s.states["learning"] == 2 * 59, "the sixtieth window is judged by what it completes"


def test_time_is_the_whole_loop() -> None:
    ticks = iter([10.0, 12.5])
    replay = Replay(SETTINGS)
    assert replay.summary.times_real_time == 0.0
    list(replay.run(host("a", 50), lambda: next(ticks)))
    assert replay.summary.seconds == 2.5
    assert replay.summary.times_real_time == 20.0


def test_features_are_those_of_the_log_whatever_the_batches() -> None:
    recorded = list(side_by_side(host("a", 30), host("b", 30)))
    _, outcomes = run(iter(recorded), keep_features=True)
    replayed = by_window([f for o in outcomes for f in o.features])

    pipeline = new_pipeline(
        WorkerSettings.model_validate({"publish_features": True}), Layouts(), InPlace()
    )  # as a worker has it: two partitions or one, any batches
    live: list[Features] = []
    for offset, (record, message) in enumerate(recorded):
        if isinstance(record, Telemetry):
            live += pipeline.process([Message(0, offset, message, None)], 0.0).features
    assert by_window(live) == replayed
    assert len(replayed) == 2 * 28


def test_a_silent_host_costs_no_memory() -> None:
    replay = Replay(SETTINGS)
    outcomes = list(replay.run(chain(host("quiet", 1), host("a", 100))))
    assert sum(len(o.done) for o in outcomes) >= 97, "only its own records wait for it"


def test_telemetry_that_is_none_is_counted() -> None:
    bad = Recorded(next(r for r in host("a", 1) if isinstance(r.record, Telemetry)).record, b"junk")
    replay, _ = run(chain(host("a", 10), iter([bad])))
    assert replay.summary.rejected == 1
    assert replay.summary.windows == 8


def test_warm_up_compiles_and_says_how_long_it_took() -> None:
    assert warm_up(SETTINGS) > 0


@pytest.mark.parametrize("seconds", [0, 1])
def test_too_little_is_no_window(seconds: int) -> None:
    replay, outcomes = run(host("a", seconds))
    assert replay.summary.windows == 0
    assert replay.summary.recording_seconds == seconds
    assert anomalies(outcomes) == []
