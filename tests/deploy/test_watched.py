"""What is kept of a replay: scores, episodes and the windows around faults, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deploy.watched import Means, Watched
from models.evaluation import Account, Event
from schemas.records import (
    Anomaly,
    Cause,
    Channel,
    DetectorScore,
    EpisodeState,
    Features,
    Kind,
    Layout,
    Score,
    State,
    Subsystem,
    SubsystemShare,
)
from streams.pipeline import Outcome

S = 1_000_000
ANOMALY = Anomaly("a@10", "a", 7, 10 * S, 13 * S, EpisodeState.OPEN, 2.0, 3, 3, ("zscore",), (), ())
BUSY = Cause("cpu_contention", "cores are busy", 0.9, (), ())


def score(host: str, second: int, fused: float = 0.0, *, flagged: bool = False) -> Score:
    detectors = (DetectorScore("zscore", fused, 0.5, flagged),)
    return Score(host, 7, second * S, 30, 30, 1, State.ACTIVE, "", 1.0, detectors, fused, flagged)


def told(
    second: int, state: EpisodeState, *shares: tuple[Subsystem, float], cause: bool = False
) -> Anomaly:
    return replace(
        ANOMALY,
        latest=second * S,
        state=state,
        subsystems=tuple(SubsystemShare(name, share) for name, share in shares),
        causes=(BUSY, replace(BUSY, rule="other")) if cause else (),
    )


def outcome(scores: list[Score], anomalies: list[Anomaly]) -> Outcome:
    return Outcome([], scores, anomalies, [], [])


def test_accounts_are_the_records_of_an_episode() -> None:
    seen = Watched()
    cpu, memory, gpu = (Subsystem.CPU, 0.6), (Subsystem.MEMORY, 0.3), (Subsystem.GPU, 0.1)
    seen.take(outcome([score("a", 13)], [told(13, EpisodeState.OPEN, cpu)]))
    later = told(20, EpisodeState.ONGOING, memory, (Subsystem.CPU, 0.25), gpu, cause=True)
    seen.take(outcome([], [later, told(26, EpisodeState.CLOSED)]))
    (episode,) = seen.told()
    assert (episode.host, episode.onset_us, episode.opened_us) == ("a", 10 * S, 13 * S)
    assert episode.accounts == (
        Account(13 * S, "cpu", "", ()),
        Account(20 * S, "memory", "cpu_contention", ("cpu",)),
        Account(26 * S, "", "", ()),
    )
    assert seen.told_by_host() == {"a": {"a@10": episode}}


def test_an_episode_lasts_until_its_last_flagged_window() -> None:
    seen = Watched()
    flags = {11: True, 12: True, 13: True, 14: False, 15: True, 16: False, 17: False, 18: False}
    scores = [score("a", second, flagged=flag) for second, flag in flags.items()]
    seen.take(outcome([*scores, score("a", 25, flagged=True)], [told(13, EpisodeState.OPEN)]))
    # Still open: what was flagged at the very end is its own.
    assert seen.lasted("a@10") == (10 * S, 25 * S)
    seen.take(outcome([], [told(18, EpisodeState.CLOSED)]))
    assert seen.lasted("a@10") == (10 * S, 15 * S)


def test_what_ends_before_the_start_counts_for_nothing() -> None:
    seen = Watched(from_us=13 * S)
    closed = told(16, EpisodeState.CLOSED)
    seen.take(outcome([score("a", 13), score("a", 14)], [told(13, EpisodeState.OPEN), closed]))
    assert seen.hosts["a"].ends == [14 * S]
    assert seen.episodes == {}
    assert seen.windows == 1


def test_a_host_that_is_only_learned_is_not_judged() -> None:
    seen = Watched()
    seen.take(outcome([replace(score("a", 13), state=State.LEARNING, detectors=())], []))
    assert seen.hosts == {}
    assert seen.recorded == {"a"}
    assert seen.states == {"learning": 1}


def test_scores_are_ranked_where_a_fault_is_expected() -> None:
    seen = Watched()
    # Windows that end at 11 to 20 s; host a is odd in 13 to 15, and b sees something of it.
    odd = {13, 14, 15}
    for host, high in (("a", 5.0), ("b", 3.0)):
        scores = [score(host, s, high if s in odd else s / 100) for s in range(11, 21)]
        seen.take(outcome(scores, []))
    everywhere = Event("x", 0, "cpu", 12 * S, 15 * S)
    assert seen.ranking([everywhere])["auc_pr"] == 1
    # Asked of a alone, b's windows meanwhile are neither odd nor normal, and b has no area.
    assert seen.ranking([replace(everywhere, hosts=("a",))])["auc_pr"] == 1
    # Another fault of b, over windows that are not high: half of what is odd comes last.
    low = Event("y", 0, "cpu", 10 * S, 11 * S, hosts=("b",))
    found = seen.ranking([replace(everywhere, hosts=("a",)), low])["auc_pr"]
    assert found == pytest.approx((1 + 1 / 7) / 2)
    assert np.isnan(seen.ranking([])["auc_pr"])


def test_means_of_windows_around_faults() -> None:
    channels = tuple(Channel("m", d, Subsystem.CPU, "", Kind.GAUGE) for d in ("", "x"))
    means = Means([(5 * S, 8 * S), (20 * S, 21 * S)])
    means.learn(Layout("a", 7, "", "", S, channels))
    rows = {s: np.array([s, 10 * s, -1, -1, -1, -1, -1, -1], np.float32) for s in range(1, 30)}
    means.take(Features("a", 7, (s - 3) * S, s * S, 3, 3, row) for s, row in rows.items())
    ends, values = means.of("a", 7, "m", "x", 0, 30 * S)
    assert ends.tolist() == [6 * S, 7 * S, 8 * S, 21 * S]
    assert values.tolist() == [60, 70, 80, 210]
    ends, values = means.of("a", 7, "m", "", 6 * S, 8 * S)
    assert (ends.tolist(), values.tolist()) == ([7 * S, 8 * S], [7, 8])
    assert len(means.of("a", 7, "derived", "", 0, 30 * S)[0]) == 0
