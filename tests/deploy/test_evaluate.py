"""`reveal evaluate` over a recording with a flood of UDP in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.cli import main
from tests.deploy.test_replay import FAULT_S, RAW, SHORT

FLOOD = {
    "fault": "udp_flood",
    "variant": 0,
    "subsystem": "network",
    "start_ns": int(FAULT_S * 1e9),
    "end_ns": int((FAULT_S + 13.1) * 1e9),
    "step_cost": 1.6,
}


def run(tmp_path: Path, labels: object, *options: str) -> Result:
    path = tmp_path / "labels.json"
    path.write_text(labels if isinstance(labels, str) else json.dumps(labels), encoding="utf-8")
    return CliRunner().invoke(main, ["evaluate", str(RAW), "--labels", str(path), *options])


def test_the_figures_of_a_fault_that_both_hosts_see(tmp_path: Path) -> None:
    before = {**FLOOD, "fault": "earlier", "start_ns": 1000, "end_ns": 9000}
    done = run(tmp_path, [FLOOD, before], "--json", *SHORT)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["hosts"], found["events"], found["event_recall"]) == (2, 2, 1)
    assert 0 < found["delay_p50_s"] <= 6
    assert found["subsystem_accuracy"] == 0.5  # rank1 sees only what it costs the cores
    assert (found["events_without_cost"], found["labels_left_out"]) == (0, 1)
    assert found["episodes"] >= 2
    assert found["false_episodes"] == found["episodes"] * (1 - found["precision"])
    per_day, per_hour = found["false_episodes_per_day"], found["false_episodes_per_hour"]
    assert per_day == pytest.approx(24 * per_hour)
    assert found["watched_seconds"] == 2 * (70 - 39)
    assert 0.8 < found["auc_pr"] <= 1
    assert 0.8 < found["vus_pr"] <= 1
    assert found["per_fault"] == {
        "udp_flood/0": {
            "events": 2,
            "found": 2,
            "right_subsystem": 1,
            "delay_p50_s": found["delay_p50_s"],
        }
    }


def test_the_text_says_the_same(tmp_path: Path) -> None:
    done = run(tmp_path, [FLOOD], *SHORT)
    assert done.exit_code == 0
    assert "2 of 2 events found (100 %)" in done.stdout
    assert "right subsystem first in 50 %" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("udp_flood/0")]
    assert line.split()[1:4] == ["2", "2", "1"]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("{", "labels.json is no JSON"),
        ("[]", "labels.json holds no list of labels"),
        ("[7]", "label 1 is not as it should be"),
        ([{**FLOOD, "start_ns": "soon"}], "label 1 is not as it should be"),
        ([FLOOD, {"fault": "x"}], "label 2 lacks 'subsystem'"),
        ([{**FLOOD, "end_ns": 5}], "label 1 (udp_flood) ends before it starts"),
        ([{**FLOOD, "start_ns": 1000, "end_ns": 9000}], "none of its 1 faults lies in the part of"),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: object, said: str) -> None:
    done = run(tmp_path, labels, *SHORT)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_recording_too_short_to_learn(tmp_path: Path) -> None:
    done = run(tmp_path, [FLOOD], "--baseline-seconds", "600")
    assert done.exit_code == 2
    assert "give a shorter --baseline-seconds" in done.stderr
