"""The picture as a person reads it."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from deploy.health import Usage
from deploy.picture import Picture
from deploy.status import Part, PartState, Stack
from deploy.view import Screen, render
from schemas.records import EpisodeState, State
from tests.deploy.examples import SECOND, T0, anomaly, odd, score

NOW = T0 + 10 * SECOND


def stack() -> Stack:
    return Stack(
        brokers="127.0.0.1:40217",
        embedded=True,
        parts=(
            Part("broker", PartState.UP, 4711, Usage(0.004, 32_100_000)),
            Part("agent", PartState.UP, 4712, Usage(0.0123, 54_000_000), "958 channels"),
            Part("worker", PartState.STARTING, 4713, Usage(None, 210_000_000)),
        ),
        baseline_s=120,
        uptime_s=134,
        windows_per_s=1.0,
        lag_records=0,
        latency_p50_s=0.09,
        latency_p99_s=0.14,
    )


def text(picture: Picture, stack_: Stack | None = None, width: int = 80, height: int = 24) -> str:
    lines = render(stack_ or stack(), picture, NOW, width=width, height=height)
    return "\n".join(line.plain.rstrip() for line in lines)


def test_a_quiet_machine() -> None:
    picture = Picture()
    picture.apply(score("node01", NOW), NOW)
    assert text(picture) == (
        """\
reveal  embedded broker 127.0.0.1:40217  2 min 14 s  Ctrl-C stops

broker  up          pid 4711      0.4 % cpu     32 MB
agent   up          pid 4712      1.2 % cpu     54 MB  958 channels
worker  starting    pid 4713                   210 MB
flow    1.0 windows/s   lag 0 records   latency p50 90 ms, p99 140 ms

hosts  1
  node01  normal     score 0.1

open anomalies  0
  none"""
    )


def test_a_host_in_every_condition() -> None:
    picture = Picture()
    picture.apply(score("learns", NOW, state=State.LEARNING, progress=0.5), NOW)
    picture.apply(score("fits", NOW, state=State.LEARNING, progress=1.0), NOW)
    picture.apply(score("abstains", NOW, state=State.ABSTAINED, reason="17 of 30 samples"), NOW)
    picture.apply(score("silent", NOW), NOW - 40 * SECOND)
    picture.apply(score("odd", NOW, detectors=odd("z")), NOW)
    picture.apply(score("sick", NOW), NOW)
    picture.apply(anomaly("sick", NOW - 7 * SECOND), NOW)
    changed = {"state": State.RELEARNING, "progress": 0.5}
    picture.apply(score("changed", NOW, **changed), NOW)
    goes_on = {"state": State.LEARNING, "progress": 0.5, "reason": "learning goes on: cpu"}
    picture.apply(score("longer", NOW, **goes_on), NOW)
    drifts = {"state": State.DRIFTING, "progress": 0.25, "reason": "moved away"}
    picture.apply(score("drifts", NOW, **drifts), NOW)
    picture.apply(score("restless", NOW, reason="restless: disks"), NOW)
    half = "\N{FULL BLOCK}" * 12 + "\N{LIGHT SHADE}" * 12
    assert text(picture, width=100, height=40).splitlines()[7:18] == [
        (
            "hosts  10  1 anomaly  1 silent  1 abstained  3 learning  1 relearning  1 drifting"
            "  2 normal"
        ),
        "  sick      anomaly    storage 81 %, cpu 19 %",
        "  silent    silent     no window for 40 s",
        "  abstains  abstained  17 of 30 samples",
        f"  fits      learning   {chr(0x2588) * 24} 100 %  fitting the baseline",
        f"  learns    learning   {half}  50 %  1 min 00 s left",
        f"  longer    learning   {half}  50 %  learning goes on: cpu",
        f"  changed   relearning {half}  50 %  1 min 00 s left",
        "  drifts    drifting   score 0.1  25 % of a new baseline  moved away",
        "  odd       normal     score 0.1  odd to z",
        "  restless  normal     score 0.1  restless: disks",
    ]


def test_an_open_anomaly_with_its_causes() -> None:
    picture = Picture()
    picture.apply(score("node01", NOW), NOW)
    picture.apply(anomaly("node01", NOW - 7 * SECOND, lasted_s=3), NOW - 4 * SECOND)
    assert text(picture).splitlines()[10:] == [
        "open anomalies  1",
        "  node01  for 7 s, severity 8.4:  storage 81 %, cpu 19 %  (z, forest)",
        "    storage.write[sda]  1.9 GB/s  expected 0-12 MB/s",
        "    cpu.user[cpu3]          98 %  expected 0-12 %",
        "    memory.dirty          3.1 GB  expected 1-20 MB",
        "    cpu.forks               4k/s  expected 1-20/s",
    ]


def test_an_episode_without_news_says_so() -> None:
    picture = Picture()
    picture.apply(anomaly(onset=NOW - 60 * SECOND, lasted_s=20), NOW - 40 * SECOND)
    assert "no news for 40 s" in text(picture, width=120)


def test_closed_ones_stay_in_sight() -> None:
    picture = Picture()
    picture.apply(anomaly(onset=NOW - 90 * SECOND, lasted_s=21, state=EpisodeState.CLOSED), NOW)
    shown = text(picture, width=120).splitlines()
    assert shown[-2] == "closed  1"
    assert shown[-1].endswith(
        "  node01  21 s  severity 8.4  storage 81 %, cpu 19 %"
        "  storage.write[sda], cpu.user[cpu3], memory.dirty"
    )


def test_what_is_lost_is_in_sight() -> None:
    lossy = stack()
    lossy.trouble = ("12 ticks missed by the agent in the last minute",)
    assert "! 12 ticks missed by the agent in the last minute" in text(Picture(), lossy)


def test_the_worst_episodes_are_shown_and_none_jumps_when_it_worsens() -> None:
    picture = Picture()
    for i in range(20):
        picture.apply(anomaly(f"node{i:02}", T0 + i * SECOND, severity=float(100 - i)), NOW)
    before = [line for line in text(picture).splitlines() if ", severity" in line]
    assert before[0].startswith("  node00")
    assert "  and " in text(picture).splitlines()[-1]
    picture.apply(anomaly("node03", T0 + 3 * SECOND, 9, EpisodeState.ONGOING, severity=500.0), NOW)
    after = [line for line in text(picture).splitlines() if ", severity" in line]
    assert [line.split()[0] for line in after] == [line.split()[0] for line in before]


def test_before_anything_is_known() -> None:
    empty = Stack("", embedded=True, parts=tuple(map(Part, ("broker", "agent", "worker"))))
    shown = text(Picture(), empty)
    assert "worker  waiting" in shown
    assert "flow    nothing yet" in shown
    assert "  none yet" in shown


@settings(deadline=None)
@given(
    hosts=st.integers(0, 60),
    sick=st.integers(0, 30),
    closed=st.integers(0, 8),
    width=st.integers(20, 200),
    height=st.integers(16, 80),
)
def test_no_line_wraps_and_none_is_too_many(
    hosts: int, sick: int, closed: int, width: int, height: int
) -> None:
    picture = Picture()
    for i in range(closed):
        picture.apply(anomaly("zz", T0 - (100 - i) * SECOND, 1, EpisodeState.CLOSED), NOW)
    for i in range(hosts):
        picture.apply(score(f"host-with-a-rather-long-name-{i:03}", NOW), NOW)
    for i in range(sick):
        picture.apply(anomaly(f"host-with-a-rather-long-name-{i:03}", T0 + i), NOW)
    lines = render(stack(), picture, NOW, width=width, height=height)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)
    plain = [line.plain for line in lines]
    assert any(line.startswith("hosts") for line in plain)
    assert any(line.startswith("open anomalies") for line in plain)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_screen_fills_any_terminal(encoding: str) -> None:
    picture = Picture()
    picture.apply(score("node01", NOW, state=State.LEARNING, progress=0.5), NOW)
    picture.apply(anomaly("a-host", NOW), NOW)
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=out, width=40, height=18, force_terminal=True, color_system="standard")
    console.print(Screen(stack(), picture, NOW))
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    shown = out.buffer.getvalue().decode(encoding)
    assert ("####" in shown) == (encoding == "ascii")
    assert len(shown.splitlines()) <= 18
