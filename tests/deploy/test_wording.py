"""Anomalies and times in words."""

from __future__ import annotations

import dataclasses

import pytest

from deploy.wording import (
    anomaly_line,
    cause_lines,
    count_of,
    duration,
    printable,
    subsystem_shares,
)
from schemas.records import Cause, EpisodeState, Remedy
from tests.deploy.examples import CHANNELS, anomaly


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_one_thing_is_one_thing() -> None:
    assert (count_of(1, "tick"), count_of(0, "tick"), count_of(2.0, "tick")) == (
        *("1 tick", "0 ticks", "2 ticks"),
    )


def test_shares_that_round_to_nothing_are_left_out() -> None:
    assert subsystem_shares(anomaly()) == "storage 81 %, cpu 19 %"


def test_a_line_says_what_where_and_why() -> None:
    assert anomaly_line(anomaly(), channels=2) == (
        "node01  opened  major, severity 8.4  storage 81 %, cpu 19 %"
        "  storage.write[sda] 1.9 GB/s (expected 0-12 MB/s);"
        " cpu.user[cpu3] 98 % (expected 0-12 %)"
    )
    closed = anomaly(lasted_s=65, state=EpisodeState.CLOSED, channels=())
    assert anomaly_line(closed) == (
        "node01  closed after 1 min 05 s  major, severity 8.4  storage 81 %, cpu 19 %"
    )
    ongoing = anomaly(lasted_s=5, state=EpisodeState.ONGOING, channels=(), subsystems=())
    assert anomaly_line(ongoing) == "node01  ongoing for 5 s  major, severity 8.4"


def test_text_from_elsewhere_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\nc\u202e") == "a\ufffd[2Jb\ufffdc\ufffd"
    evil = dataclasses.replace(CHANNELS[0], device="\x1b[31m")
    assert "\x1b" not in anomaly_line(anomaly(host="\x1b]0;x\x07", channels=(evil,)))


LOSS = Cause(
    rule="packet_loss",
    summary="Packets are lost.",
    confidence=0.781,
    evidence=("tcp.retrans_segs 1.08 k segments/s, usually 0.3 to 547",),
    remedies=(Remedy("ss -ti", changes_host=False), Remedy("ip link set x up", changes_host=True)),
)


def test_causes_are_told_with_evidence_and_what_to_type() -> None:
    told = anomaly(causes=(LOSS,))
    assert "  likely packet_loss 78 %  " in anomaly_line(told)
    assert cause_lines(told) == [
        "  78 % packet_loss: Packets are lost.",
        "      tcp.retrans_segs 1.08 k segments/s, usually 0.3 to 547",
        "    $ ss -ti  # shows",
        "    $ ip link set x up  # changes the host",
    ]
    evil = anomaly(causes=(dataclasses.replace(LOSS, evidence=("\x1b[31m",)),))
    assert not any("\x1b" in line for line in cause_lines(evil))
