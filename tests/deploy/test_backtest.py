"""`reveal backtest`: what changed settings would have done to the episodes of a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deploy.cli import main
from schemas.records import Subsystem
from streams.config import WorkerSettings
from tests.deploy.made import START_S, label, record

BASELINE = ("--baseline-seconds", "40")


def run(recording: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["backtest", str(recording), *options])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Host a has two faults, host b the first of them."""
    cpu, network = (60.0, 80.0, Subsystem.CPU), (140.0, 160.0, Subsystem.NETWORK)
    path = tmp_path_factory.mktemp("made") / "made.avro"
    return record(path, 180, {"a": [cpu, network], "b": [cpu]})


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.json"
    faults = [label("busy", 60, 80, "cpu"), label("flood", 140, 160, "network", hosts=["a"])]
    path.write_text(json.dumps(faults))
    return path


def figures(recording: Path, *options: str) -> dict[str, Any]:
    done = run(recording, "--json", *options)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_longer_baseline_misses_what_happens_while_it_is_learned(
    made: Path, labels: Path
) -> None:
    found = figures(made, *BASELINE, "--labels", str(labels), "--set", "baseline_seconds=100")
    assert found["set"] == {"baseline_seconds": {"before": 40, "after": 100}}
    assert found["counts"] == {
        "kept": 1,
        "new": 0,
        "gone": 2,
        "split": 0,
        "merged": 0,
        "regrouped": 0,
    }
    first, second, third = found["changes"]
    assert [first["host"], second["host"], third["host"]] == ["a", "b", "a"]
    for gone in (first, second):
        assert gone["kind"] == "gone"
        assert gone["learning"]
        assert gone["after"] == []
        (spell,) = gone["before"]
        assert spell["subsystem"] == "cpu"
        assert START_S + 58 <= spell["onset"] / 1e6 <= START_S + 61
        assert START_S + 80 <= spell["end"] / 1e6 <= START_S + 84
        assert spell["onset"] < spell["opened"] < spell["end"]
    assert (third["kind"], third["learning"]) == ("kept", False)
    # The later one is the same fault for both; the first is in the part that only one watched.
    assert found["before"]["events"] == 3
    assert found["after"]["events"] == 1
    assert {(f["fault"], f["host"]) for f in found["faults_lost"]} == {
        ("busy/0", "a"),
        ("busy/0", "b"),
    }
    assert found["faults_gained"] == []


def test_the_other_way_round_it_is_the_opposite(made: Path) -> None:
    there = figures(made, *BASELINE, "--set", "baseline_seconds=100")
    back = figures(made, "--baseline-seconds", "100", "--set", "baseline-seconds = 40")
    assert (back["counts"]["new"], back["counts"]["gone"]) == (2, 0)
    for one, other in zip(there["changes"], back["changes"], strict=True):
        assert (one["before"], one["after"]) == (other["after"], other["before"])
        assert one["learning"] == other["learning"]
    assert "faults_lost" not in back


def test_the_text_says_what_becomes_of_each(made: Path, labels: Path) -> None:
    changes = ("--labels", str(labels), "--set", "baseline_seconds=100")
    done = run(made, *BASELINE, *changes)
    assert done.exit_code == 0, done.output
    assert "baseline_seconds: 40 -> 100" in done.stdout
    gone = [line.split() for line in done.stdout.splitlines() if "gone, still learning" in line]
    assert [(line[0], line[3], line[4]) for line in gone] == [("a", "cpu", "-"), ("b", "cpu", "-")]
    assert "3 episodes before, 1 after: 1 kept, 2 gone" in done.stdout
    assert "missed now: busy/0 on a" in done.stdout
    (recall,) = [line for line in done.stdout.splitlines() if line.startswith("faults found")]
    assert recall.split("  ")[-1].strip() == "1 of 1 (100 %)"


def test_what_stays_as_it_is_is_shown_when_asked_for(made: Path) -> None:
    done = run(made, *BASELINE, "--set", "take=100")
    assert done.exit_code == 0, done.output
    assert "every episode stays as it is" in done.stdout
    assert "3 episodes before, 3 after: 3 kept" in done.stdout
    done = run(made, *BASELINE, "--set", "take=100", "--all")
    kept = [line for line in done.stdout.splitlines() if line.rstrip().endswith("  kept")]
    assert [line.split()[0] for line in kept] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (("window",), "--set window: write key=value, such as window_ms=1500"),
        (("windw_ms=1500",), "there is no setting 'windw_ms'; did you mean window_ms? There are:"),
        (("zzz=1",), f"There are: {', '.join(WorkerSettings.model_fields)}"),
        (("seed=1", "seed=2"), "--set seed=2: seed is set to 1 already"),
        (("seed=x",), "--set: seed = 'x': Input should be a valid integer"),
        (("min_share=2",), "min_share = '2': Input should be less than or equal to 1"),
        (("window_ms=200",), "window_ms has to be at least stride_ms"),
        (("seed=0",), "--set: seed=0 is in force already: there is nothing to compare"),
    ],
)
def test_settings_that_there_are_not(made: Path, pairs: tuple[str, ...], said: str) -> None:
    done = run(made, *(part for pair in pairs for part in ("--set", pair)))
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_nothing_to_change_and_nothing_to_read(made: Path, tmp_path: Path) -> None:
    assert "Missing option '--set'" in run(made).stderr
    done = run(tmp_path / "none.avro", "--set", "seed=1")
    assert done.exit_code == 2
    assert "none.avro cannot be read" in done.stderr
    done = run(made, *BASELINE, "--set", "baseline_seconds=900")
    assert done.exit_code == 2
    assert "no host was learned within it with baseline_seconds = 900" in done.stderr
