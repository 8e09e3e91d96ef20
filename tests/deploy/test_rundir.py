"""One stack a run directory, and its broker is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.rundir import ADDRESS, ViewSettings, claimed, find_brokers
from schemas.errors import InvalidSettings
from schemas.settings import Kafka


def test_a_directory_is_for_one_stack(tmp_path: Path) -> None:
    with claimed(tmp_path / "new" / "run") as directory:
        assert directory.is_dir()
        with (
            pytest.raises(InvalidSettings, match=r"running already.*--run-dir"),
            claimed(directory),
        ):
            pass
    with claimed(directory):
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match="file/run"), claimed(tmp_path / "file" / "run"):
        pass


def test_brokers_that_are_named_stand_over_those_that_run(tmp_path: Path) -> None:
    view = ViewSettings.model_validate({"run_dir": str(tmp_path)})
    with claimed(tmp_path):
        (tmp_path / ADDRESS).write_text("127.0.0.1:4711\n")
        assert find_brokers(Kafka.model_validate({}), view) == "127.0.0.1:4711"
        assert find_brokers(Kafka(brokers="kafka:9092"), view) == "kafka:9092"


def test_an_address_that_a_crash_left_behind_is_not_believed(tmp_path: Path) -> None:
    view = ViewSettings.model_validate({"run_dir": str(tmp_path)})
    (tmp_path / "lock").touch()
    (tmp_path / ADDRESS).write_text("127.0.0.1:4711\n")
    with pytest.raises(InvalidSettings, match="no brokers: give --brokers"):
        find_brokers(Kafka.model_validate({}), view)
    with claimed(tmp_path):
        assert not (tmp_path / ADDRESS).exists()


def test_by_default_it_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert ViewSettings.model_validate({}).directory == tmp_path / "reveal"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/invalid")
    assert ViewSettings.model_validate({}).directory == Path("/home/someone/.local/state/reveal")
