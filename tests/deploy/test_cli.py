"""The command line: every command is there, and asking for help is quick."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from deploy.cli import COMMANDS, main

RECORDING = Path(__file__).parent.parent / "data" / "collapse.avro"
HEAVY = ("faust", "aiokafka", "sklearn", "numba", "numpy", "confluent_kafka", "pydantic", "rich")


def test_help_lists_every_command_and_imports_none() -> None:
    code = f"""
import sys
from click.testing import CliRunner
from deploy.cli import main
result = CliRunner().invoke(main, ["--help"])
assert result.exit_code == 0, result.output
print(result.output)
print("heavy:", [m for m in {HEAVY!r} if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"
    for name, entry in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert entry.help in done.stdout, "a help line is longer than the terminal"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    module, _, attribute = COMMANDS[name].place.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output


def test_a_command_that_does_not_exist_is_said() -> None:
    result = CliRunner().invoke(main, ["anomlies"])
    assert result.exit_code == 2
    assert "anomlies" in result.output


def test_config_prints_what_is_in_force_and_from_where() -> None:
    runner = CliRunner(env={"REVEAL_WORKER_TAKE": "123"})
    result = runner.invoke(main, ["config", "--brokers", "kafka:9092"])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert 'brokers = "kafka:9092" # --brokers' in lines
    assert "take = 123 # REVEAL_WORKER_TAKE" in lines
    assert "baseline_seconds = 600 # default" in lines
    assert {"[kafka]", "[worker]", "[view]"} <= set(lines)


def test_a_setting_that_cannot_be_is_one_line_and_exit_code_2() -> None:
    result = CliRunner().invoke(main, ["config", "--take", "many"])
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1
    assert "take" in result.output


@pytest.mark.parametrize(
    ("absent", "arguments"),
    [("faust", ["worker", "--brokers", "127.0.0.1:9"]), ("numba", ["replay", str(RECORDING)])],
)
def test_a_host_with_only_the_agent_is_told_what_to_install(
    absent: str, arguments: list[str]
) -> None:
    code = f"""
import sys
sys.modules[{absent!r}] = None
from deploy.cli import main
main({arguments!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"needs {absent}" in done.stderr
    assert "pip install 'reveal-telemetry[cluster]'" in done.stderr
