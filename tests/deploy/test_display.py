"""The picture in lines, for logs and pipes."""

from __future__ import annotations

from deploy.display import status_line, summary
from deploy.health import Usage
from deploy.picture import Picture
from deploy.status import Part, PartState, Stack
from schemas.records import EpisodeState, State
from tests.deploy.examples import SECOND, T0, anomaly, score


def test_the_status_is_one_line() -> None:
    picture = Picture()
    picture.apply(score("a", state=State.LEARNING, progress=0.54), T0)
    picture.apply(score("b", state=State.LEARNING, progress=0.12), T0 - 60 * SECOND)
    picture.apply(score("c"), T0)
    picture.apply(score("d"), T0)
    picture.apply(anomaly("c"), T0)
    stack = Stack(
        "b:1",
        embedded=True,
        parts=(Part("broker"), Part("agent", PartState.UP, 7, Usage(0.012, 54_000_000))),
        windows_per_s=4.0,
        lag_records=2,
        latency_p50_s=0.09,
        latency_p99_s=0.14,
        trouble=("1 tick missed",),
    )
    assert status_line(stack, picture, T0) == (
        "status: 4.0 windows/s, lag 2 records, latency p50 90 ms, p99 140 ms;"
        " agent 1.2 % cpu 54 MB; a learning 54%, b silent, c anomaly, and 1 more host;"
        " 1 open anomaly; 1 tick missed"
    )


def test_before_anything_came() -> None:
    stack = Stack("", embedded=True, parts=(Part("broker"),))
    assert status_line(stack, Picture(), T0) == "status: no windows yet; 0 open anomalies"
    assert summary(stack, Picture(), "/run") == ["stopped after 0 s; logs in /run"]


def test_the_summary_has_every_episode_by_onset_and_what_was_lost() -> None:
    picture = Picture()
    picture.apply(anomaly("late", T0 + 9 * SECOND, channels=()), T0)
    picture.apply(anomaly("early", T0, 20, EpisodeState.CLOSED, channels=()), T0)
    stack = Stack(
        *("b:1", True, ()), uptime_s=134, windows=120, losses=("2 ticks missed by the agent",)
    )
    lines = summary(stack, picture, "/run")
    assert lines[0] == "stopped after 2 min 14 s: 120 windows, 2 episodes; logs in /run"
    assert lines[1] == "  2 ticks missed by the agent"
    assert "early  closed after 20 s" in lines[2]
    assert "late  opened" in lines[3]
