"""`reveal evaluate` over a recording with a flood of UDP in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.cli import main
from schemas.records import Subsystem
from tests.deploy.made import label, record
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
    assert found["event_recall_any_host"] == 1
    # rank1 sees packets in its machine's softirqs that are none of its own.
    assert found["subsystem_accuracy"] == found["cause_accuracy"] == 1
    assert 0 <= found["subsystem_accuracy_at_open"] <= 1
    assert 0 <= found["cause_accuracy_at_open"] <= 1
    assert found["subsystem_accuracy"] <= found["subsystem_accuracy_shared"] <= 1
    assert found["missing_ticks"] == 0
    assert not any(found["dropped"].values())
    assert (found["events_without_cost"], found["labels_left_out"]) == (0, 1)
    assert found["episodes"] >= 2
    assert found["false_episodes"] == found["episodes"] * (1 - found["precision"])
    per_day, per_hour = found["false_episodes_per_day"], found["false_episodes_per_hour"]
    assert per_day == pytest.approx(24 * per_hour)
    assert found["watched_seconds"] == 2 * (70 - 39)
    assert 0.8 < found["auc_pr"] <= 1
    assert 0.8 < found["vus_pr"] <= 1
    fault = found["per_fault"]["udp_flood/0"]
    assert (fault["events"], fault["found"], fault["right_subsystem"]) == (2, 2, 2)
    assert fault["delay_p50_s"] == found["delay_p50_s"]
    assert fault["right_cause"] == found["confusion"]["udp_flood"].get("udp_flood", 0)
    assert sum(found["confusion"]["udp_flood"].values()) == 2
    assert "missed" not in found["confusion"]["udp_flood"]


def test_a_fault_of_one_host_is_asked_of_that_host(tmp_path: Path) -> None:
    done = run(tmp_path, [{**FLOOD, "hosts": ["rank0"]}], "--json", *SHORT)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["events"], found["event_recall"], found["subsystem_accuracy"]) == (1, 1, 1)
    assert found["episodes_elsewhere"] >= 1  # rank1's, which the flood costs its cores
    assert found["hosts"] == 2
    assert 0.8 < found["auc_pr"] <= 1


def test_the_text_says_the_same(tmp_path: Path) -> None:
    done = run(tmp_path, [FLOOD], *SHORT)
    assert done.exit_code == 0
    assert "2 of 2 events found (100 %)" in done.stdout
    assert "right subsystem first in 100 %" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("udp_flood/0")]
    assert line.split()[1:4] == ["2", "2", "2"]
    assert "on at least one host 100 %" in done.stdout
    assert "cause named first" in done.stdout


def test_a_name_in_labels_neither_styles_nor_steers_the_terminal(tmp_path: Path) -> None:
    done = run(tmp_path, [{**FLOOD, "fault": "[red]f\x1b[31m"}], *SHORT)
    assert done.exit_code == 0
    assert "[red]f\N{REPLACEMENT CHARACTER}[31m/0" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("{", "labels.json is no JSON"),
        ("[]", "labels.json holds no list of labels"),
        ("[7]", "label 1 is not as it should be"),
        ([{**FLOOD, "start_ns": "soon"}], "label 1 is not as it should be"),
        ([FLOOD, {"fault": "x"}], "label 2 lacks 'subsystem'"),
        ([{**FLOOD, "hosts": "rank0"}], "label 1 is not as it should be: its hosts are 'rank0'"),
        ([{**FLOOD, "hosts": []}], "its list of hosts is empty: leave it out"),
        (
            [FLOOD, {**FLOOD, "hosts": ["rank7"]}],
            "label 2 (udp_flood) is of host 'rank7', which the recording has not; it has 'rank0'",
        ),
        ([{**FLOOD, "start_ns": 1e400}], "label 1 is not as it should be"),
        ([{**FLOOD, "end_ns": 5}], "label 1 (udp_flood) ends before it starts"),
        ([{**FLOOD, "start_ns": 1000, "end_ns": 9000}], "none of its 1 faults lies in the part of"),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: object, said: str) -> None:
    done = run(tmp_path, labels, *SHORT)
    assert done.exit_code == 2
    assert said in done.stderr


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    cut, labels = tmp_path / "cut.avro", tmp_path / "labels.json"
    cut.write_bytes(RAW.read_bytes()[:-40_000])
    labels.write_text(json.dumps([FLOOD]))
    done = CliRunner().invoke(main, ["evaluate", str(cut), "--labels", str(labels), *SHORT])
    assert f"of {cut.stat().st_size:,} bytes could not be read: " in done.stderr


def test_a_recording_too_short_to_learn(tmp_path: Path) -> None:
    done = run(tmp_path, [FLOOD], "--baseline-seconds", "600")
    assert done.exit_code == 2
    assert "give a shorter --baseline-seconds" in done.stderr


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hosts and two faults; the second one's other host has none."""
    path = tmp_path_factory.mktemp("made") / "made.avro"
    cpu, network = (90.0, 110.0, Subsystem.CPU), (140.0, 160.0, Subsystem.NETWORK)
    return record(path, 190, {"a": [cpu, network], "b": [cpu]})


def test_windows_of_other_lengths_find_the_same(steady: Path) -> None:
    options = ["--stability", "--baseline-seconds", "60"]
    done = CliRunner().invoke(main, ["evaluate", str(steady), *options, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["stability"]
    assert set(found) == {"default_fine", "default_coarse"}
    for pair in found.values():
        # All found the three spells of 20 s, to within a window at either end.
        assert pair["default_intervals"] == pair["other_intervals"] == pair["hits"] == 3
        assert pair["hit_rate"] == 1
        assert 18 / 27 <= pair["median_iou"] <= 1
    done = CliRunner().invoke(main, ["evaluate", str(steady), *options])
    assert done.exit_code == 0
    assert "our windows of 3 s every 1 s held against others:" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("fine: 1.5 s every")]
    assert line.split()[6:9] == ["3", "3", "3"]


def test_a_baseline_too_short_for_wider_windows(steady: Path) -> None:
    done = CliRunner().invoke(main, ["evaluate", str(steady), "--stability", *SHORT])
    assert done.exit_code == 2
    assert "windows of 5000 ms every 2000 ms: a baseline of 40 s has fewer than" in done.stderr


def test_hosts_of_a_recording_with_faults_of_their_own(steady: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.json"
    busy, flood = label("busy", 90, 110, "cpu"), label("flood", 140, 160, "network", hosts=["a"])
    labels.write_text(json.dumps([busy, flood]))
    arguments = ["evaluate", str(steady), "--labels", str(labels), "--baseline-seconds", "60"]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["events"], found["event_recall"], found["false_episodes"]) == (3, 1, 0)
    assert found["subsystem_accuracy"] == 1
    assert found["per_fault"]["flood/0"]["events"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--labels FILE says what was wrong"),
        (("--stability", "--html", "x.html"), "--labels FILE says what was wrong"),
        (("--force",), "--force goes with --html"),
        (("--labels", "x.json", "--sample-seconds", "5"), "--sample-seconds goes with an array"),
    ],
)
def test_options_that_do_not_go_together(options: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, ["evaluate", str(RAW), *options])
    assert done.exit_code == 2
    assert said in done.stderr
