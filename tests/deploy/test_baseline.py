"""What a baseline is made of, printed."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from deploy.cli import main
from tests.deploy.test_replay import RAW


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["baseline", str(RAW), "--baseline-seconds", "40", *options])


def test_every_channel_is_accounted_for() -> None:
    done = run("--json", "--prune", "0.5")
    assert done.exit_code == 0, done.output
    hosts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [host["host"] for host in hosts] == ["rank0", "rank1"]
    for host in hosts:
        kept = host["representatives"]
        pruned = [label for others in kept.values() for label in others]
        assert len(set(pruned)) == len(pruned)
        assert not set(pruned) & set(kept)
        moving = len(kept) + len(pruned)
        assert moving + host["constant_or_absent"] + host["not_scored"] == host["channels"]
        assert len(pruned) > len(kept), "most channels of a host move together at 0.5"
        assert list(host["thresholds"])[:2] == ["zscore", "ridge"]


def test_unless_it_is_asked_for_all_stand_for_themselves() -> None:
    done = run()
    assert done.exit_code == 0
    assert "rank0: version " in done.stdout
    assert " and 0 more" in done.stdout
    assert "stands for" not in done.stdout


def test_the_paper_prunes_and_says_whom() -> None:
    done = run("--mode", "paper")
    assert done.exit_code == 0
    assert "mode paper" in done.stdout
    assert " stands for " in done.stdout
    assert "mahalanobis" in done.stdout


def test_a_recording_too_short_says_so() -> None:
    path = Path(RAW)
    done = CliRunner().invoke(main, ["baseline", str(path), "--baseline-seconds", "900"])
    assert done.exit_code != 0
    assert "give a shorter --baseline-seconds" in done.stderr
