"""Array data sets as recordings, and what `reveal evaluate` says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.arrays import RECORD, WINDOW, ArrayRecording, InvalidArrays
from deploy.cli import main
from schemas.records import Layout, Telemetry
from streams.config import WorkerSettings

DATA = Path(__file__).parents[3] / "shared" / "data"


def save(path: Path, **changes: Any) -> Path:
    """Write 400 and 300 samples of 5 channels; 50 of the test split are 80 higher, and so named."""
    random = np.random.default_rng(3)
    arrays: dict[str, Any] = {
        "train": 20 + random.normal(size=(400, 5)),
        "test": 20 + random.normal(size=(300, 5)),
        "label": np.zeros(300, np.uint8),
    }
    arrays["test"][100:150] += 80
    arrays["label"][100:150] = 1
    arrays |= changes
    with path.open("wb") as file:
        np.savez(file, **{k: v for k, v in arrays.items() if v is not None})
    return path


def evaluate(path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["evaluate", str(path), *options])


def test_every_sample_of_the_test_split_is_judged_once(tmp_path: Path) -> None:
    done = evaluate(save(tmp_path / "m-1.npz"), "--json", "--sample-seconds", "300")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["watched_seconds"] == 300 * 300
    assert (found["events"], found["event_recall"]) == (1, 1)
    # Three odd windows open an episode; the first ends with the first odd sample.
    assert found["delay_p50_s"] == 3 * 300
    assert found["false_episodes"] == 0
    # The four windows after the last odd sample hold odd ones too.
    assert 0.8 < found["auc_pr"] < 1
    assert found["subsystem_accuracy"] is None
    assert found["cause_accuracy"] is None
    assert found["confusion"] == {}


def test_the_text_gives_no_accuracy_of_what_is_not_known(tmp_path: Path) -> None:
    done = evaluate(save(tmp_path / "m-1.npz"))
    assert done.exit_code == 0
    assert "1 of 1 events found (100 %), half of them within 3 min 00 s" in done.stdout
    assert "right subsystem first" not in done.stdout
    assert done.stdout.splitlines()[1].split()[1:5] == ["1", "1", "-", "-"]


def test_the_telemetry_is_the_arrays(tmp_path: Path) -> None:
    names = np.array(["a", "b", "c", "d", "e"])
    path = save(tmp_path / "m-1.npz", channels=names)
    records = [recorded.record for recorded in ArrayRecording(path, 60)]
    layout, ticks = records[0], [r for r in records if isinstance(r, Telemetry)]
    assert isinstance(layout, Layout)
    assert layout.host == "m-1"
    assert [c.metric for c in layout.channels] == list("abcde")
    assert len(ticks) == -(-700 // RECORD)
    with np.load(path) as arrays:
        samples = np.concatenate([arrays["train"], arrays["test"]]).astype(np.float32)
    assert np.array_equal(np.concatenate([t.values for t in ticks], axis=1).T, samples)
    stamps = np.concatenate([t.timestamps for t in ticks])
    assert np.array_equal(stamps, np.arange(700) * 60_000_000)


@given(st.lists(st.booleans(), min_size=300, max_size=300), st.integers(1, 600))
@settings(max_examples=20, deadline=None)
def test_events_are_the_runs_of_labels(
    tmp_path_factory: pytest.TempPathFactory, odd: list[bool], seconds: int
) -> None:
    path = tmp_path_factory.mktemp("arrays") / "m.npz"
    recording = ArrayRecording(save(path, label=np.array(odd)), seconds)
    found = np.zeros(300, np.bool_)
    for event in recording.events:
        first, end = ((us / 1e6 / seconds - 400) for us in (event.start_us, event.end_us))
        assert first == int(first)
        assert not found[max(int(first) - 1, 0) : int(end) + 1].any()  # no two of them touch
        found[int(first) : int(end)] = True
    assert found.tolist() == odd


def test_windows_are_of_samples_and_the_baseline_is_the_train_split(tmp_path: Path) -> None:
    given = WorkerSettings.model_validate({"seed": 4})
    used = ArrayRecording(save(tmp_path / "m.npz"), 10).settings(given)
    assert (used.stride_ms, used.window_ms) == (10_000, WINDOW * 10_000)
    assert used.baseline_seconds == (400 - WINDOW + 1) * 10
    assert used.seed == 4
    assert (used.baseline_limit, used.drift_seconds, used.workload_seconds) == (1, 0, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"label": None, "test": None}, "lacks test and label: it holds train"),
        ({"test": np.zeros((300, 4))}, "train has 5 channels and test has 4"),
        ({"test": np.zeros(300)}, "test has to be numbers of shape (samples, channels)"),
        ({"train": np.array([["x"]])}, "train has to be numbers of shape"),
        ({"label": np.zeros(299)}, "one number for each of the 300 samples of test"),
        ({"train": np.zeros((32, 5))}, "32 samples of train are too few to learn from"),
        ({"test": np.zeros((0, 5)), "label": np.zeros(0)}, "test has no samples"),
        ({"channels": np.array(["a", "a", "b", "c", "d"])}, "has to hold 5 different names"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArrays) as e:
        ArrayRecording(save(tmp_path / "m.npz", **changes), 60)
    assert str(e.value).startswith(f"{tmp_path / 'm.npz'}")
    assert said in str(e.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"notes", b"\x93NUMPY"])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.npz"
    path.write_bytes(content)
    done = evaluate(path)
    assert done.exit_code == 2
    assert "m.npz is no archive of plain NumPy arrays" in done.stderr


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez(path, train=np.array([{}], object))
    with pytest.raises(InvalidArrays, match="no archive of plain"):
        ArrayRecording(path, 60)


def test_a_file_that_is_not_there_and_options_that_do_not_go_with_arrays(tmp_path: Path) -> None:
    done = evaluate(tmp_path / "none.npz")
    assert done.exit_code == 2
    assert "none.npz cannot be read: No such file" in done.stderr
    path = save(tmp_path / "m.npz")
    for option in (("--stability",), ("--labels", "x.json")):
        done = evaluate(path, *option)
        assert done.exit_code == 2
        assert "has labels and windows of its own" in done.stderr


@pytest.mark.skipif(
    not (DATA / "asd").exists(), reason="needs ../shared/data/asd, servers' telemetry with labels"
)
def test_a_real_server(tmp_path: Path) -> None:
    done = evaluate(DATA / "asd" / "omi-9.npz", "--json", "--sample-seconds", "300")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    with np.load(DATA / "asd" / "omi-9.npz") as arrays:
        odd = np.diff(np.concatenate([[0], arrays["label"]]).astype(int)) == 1
        chance = float(arrays["label"].mean())
    assert found["events"] == odd.sum()
    assert found["watched_seconds"] == 4320 * 300
    assert found["vus_pr"] > chance
