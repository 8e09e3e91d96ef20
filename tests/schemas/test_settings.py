from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pydantic import Field

from schemas.errors import InvalidSettings
from schemas.flags import print_settings, with_settings
from schemas.settings import Kafka, Resolved, Section, resolve


class Agent(Section):
    interval_ms: int = Field(100, gt=0, description="sampling interval, milliseconds")
    host: str = Field("", description="name of this host")
    keep_minutes: float = Field(5, gt=0, description="minutes kept")
    quiet: bool = Field(False, description="say less")
    root: Path = Field(Path("/proc"), description="where proc is")


SECTIONS: dict[str, type[Section]] = {"kafka": Kafka, "agent": Agent}


def origins(resolved: Resolved) -> dict[str, str]:
    return {f"{s.section}.{s.key}": s.origin for s in resolved.settings}


def write(folder: Path, text: str) -> Path:
    file = folder / "reveal.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_anything_the_defaults_are_in_force() -> None:
    resolved = resolve(SECTIONS, flags={}, environ={"PATH": "/bin", "HOME": "/"})
    assert resolved.get("agent", Agent) == Agent.model_validate({})
    assert set(origins(resolved).values()) == {"default"}
    assert [f"{s.section}.{s.key}" for s in resolved.settings] == [
        "kafka.brokers",
        "agent.interval_ms",
        "agent.host",
        "agent.keep_minutes",
        "agent.quiet",
        "agent.root",
    ]


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        '[agent]\ninterval_ms = 20\nhost = "file"\nkeep_minutes = 2\n[kafka]\nbrokers = "f:1"\n',
    )
    resolved = resolve(
        SECTIONS,
        flags={"agent": {"interval_ms": "50"}},
        environ={"REVEAL_AGENT_INTERVAL_MS": "40", "REVEAL_AGENT_HOST": "environment"},
        file=file,
    )
    agent = resolved.get("agent", Agent)
    assert agent.interval_ms == 50
    assert agent.host == "environment"
    assert agent.keep_minutes == 2
    assert agent.quiet is False
    assert resolved.get("kafka", Kafka).brokers == "f:1"
    assert origins(resolved) == {
        "kafka.brokers": str(file),
        "agent.interval_ms": "--interval-ms",
        "agent.host": "REVEAL_AGENT_HOST",
        "agent.keep_minutes": str(file),
        "agent.quiet": "default",
        "agent.root": "default",
    }


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, "[agent]\ninterval_ms = 20\n")
    resolved = resolve(SECTIONS, flags={}, environ={"REVEAL_CONFIG": str(file)})
    assert resolved.get("agent", Agent).interval_ms == 20
    other = write(tmp_path, "[agent]\ninterval_ms = 30\n")
    resolved = resolve(SECTIONS, flags={}, environ={"REVEAL_CONFIG": "/nowhere"}, file=other)
    assert resolved.get("agent", Agent).interval_ms == 30


@pytest.mark.parametrize("text", ["1", "true", "yes", "on"])
def test_text_becomes_the_type_of_the_key(text: str) -> None:
    environ = {"REVEAL_AGENT_QUIET": text, "REVEAL_AGENT_ROOT": "/host/proc"}
    agent = resolve(SECTIONS, flags={}, environ=environ).get("agent", Agent)
    assert agent.quiet is True
    assert agent.root == Path("/host/proc")


def test_what_belongs_to_another_program_is_skipped(tmp_path: Path) -> None:
    file = write(tmp_path, "[worker]\ntake = 7\n[view]\nx = 1\n[agent]\ninterval_ms = 20\n")
    environ = {"REVEAL_WORKER_TAKE": "7", "REVEAL_VIEW_ANYTHING": "x"}
    resolved = resolve(SECTIONS, flags={}, environ=environ, file=file)
    assert resolved.get("agent", Agent).interval_ms == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent]\ninterval_m = 1\n", "unknown key 'interval_m' in [agent]; did you mean interval"),
        ("[agnet]\ninterval_ms = 1\n", "unknown section [agnet]; did you mean agent?"),
        ("[agent]\nzzz = 1\n", "unknown key 'zzz' in [agent]; known: interval_ms, host, keep"),
        ("agent = 1\n", "agent is a section: write [agent] and keys below it"),
        ("interval_ms = 20\n", "unknown section [interval_ms]"),
        ("[agent\n", "is not TOML"),
        ("\xff", "is not TOML"),
    ],
)
def test_a_file_with_what_nobody_knows_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "reveal.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidSettings) as error:
        resolve(SECTIONS, flags={}, environ={}, file=file)
    assert str(file) in str(error.value)
    assert message in str(error.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"gone\.toml: No such file"):
        resolve(SECTIONS, flags={}, environ={}, file=tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("REVEAL_AGENT_INTERVAL", "REVEAL_AGENT_INTERVAL_MS"),
        ("REVEAL_AGNET_HOST", "REVEAL_AGENT_HOST"),
        ("REVEAL_BROKERS", "REVEAL_KAFKA_BROKERS"),
        ("REVEAL_CONFIGS", "REVEAL_CONFIG"),
        ("REVEAL_INTERVAL_MS", "REVEAL_AGENT_INTERVAL_MS"),
    ],
)
def test_an_unknown_variable_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        resolve(SECTIONS, flags={}, environ={name: "1"})
    assert str(error.value) == f"unknown environment variable {name}; did you mean {nearest}?"


@pytest.mark.parametrize(
    ("flags", "environ", "text", "message"),
    [
        (
            {"agent": {"interval_ms": "fast"}},
            {},
            "",
            "agent.interval_ms = 'fast' (from --interval-ms): Input should be a valid integer",
        ),
        (
            {},
            {"REVEAL_AGENT_INTERVAL_MS": "0"},
            "",
            "agent.interval_ms = '0' (from REVEAL_AGENT_INTERVAL_MS): Input should be greater",
        ),
        (
            {},
            {},
            "[agent]\nkeep_minutes = -1\n",
            "agent.keep_minutes = -1 (from {file}): Input should be greater than 0",
        ),
        (
            {},
            {},
            "[agent]\ninterval_ms = true\n",
            "agent.interval_ms = True (from {file}): a number is needed here",
        ),
        (
            {"kafka": {"brokers": "a:1,node"}},
            {},
            "",
            "kafka.brokers = 'a:1,node' (from --brokers): 'node' is no broker: write host:port",
        ),
    ],
)
def test_a_bad_value_is_said_with_where_it_came_from(
    tmp_path: Path,
    flags: dict[str, dict[str, str]],
    environ: dict[str, str],
    text: str,
    message: str,
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(InvalidSettings) as error:
        resolve(SECTIONS, flags=flags, environ=environ, file=file)
    assert message.replace("{file}", str(file)) in str(error.value)


def test_every_bad_value_is_named_at_once() -> None:
    environ = {"REVEAL_AGENT_INTERVAL_MS": "x", "REVEAL_AGENT_KEEP_MINUTES": "y"}
    with pytest.raises(InvalidSettings) as error:
        resolve(SECTIONS, flags={}, environ=environ)
    assert "agent.interval_ms = 'x'" in str(error.value)
    assert "; agent.keep_minutes = 'y'" in str(error.value)


@pytest.mark.parametrize(
    "brokers", ["node:9092", "a:1,b:65535", "10.0.0.1:9092", "[::1]:9092", "", " a:1 , b:2 "]
)
def test_brokers_are_hosts_with_ports(brokers: str) -> None:
    kafka = resolve(SECTIONS, flags={"kafka": {"brokers": brokers}}, environ={})
    assert kafka.get("kafka", Kafka).brokers == brokers.replace(" ", "")


@pytest.mark.parametrize(
    "brokers", ["node", "node:", ":9092", "a:1,", "a:0", "a:65536", "a:x", "PLAINTEXT//a:1"]
)
def test_anything_else_is_not_a_broker(brokers: str) -> None:
    with pytest.raises(InvalidSettings, match="write host:port"):
        resolve(SECTIONS, flags={"kafka": {"brokers": brokers}}, environ={})


def test_a_section_of_another_class_is_a_mistake_of_the_program() -> None:
    resolved = resolve(SECTIONS, flags={}, environ={})
    with pytest.raises(TypeError, match="section kafka is Kafka, not Agent"):
        resolved.get("kafka", Agent)


@click.command()
@with_settings(kafka=Kafka, agent=Agent)
def program(settings: Resolved) -> None:
    print_settings(settings)


def run(*args: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(program, args, env=env)
    return result.exit_code, result.output


def test_flags_of_a_command_are_its_settings(tmp_path: Path) -> None:
    file = write(tmp_path, '[agent]\nhost = "a \\"b\\""\n')
    code, output = run(
        *("--brokers", "node:9092", "--quiet", "--config", str(file)),
        env={"REVEAL_AGENT_KEEP_MINUTES": "1.5"},
    )
    assert code == 0
    rows = [tuple(part.strip() for part in line.split(" # ")) for line in output.splitlines()]
    assert rows == [
        ("[kafka]",),
        ('brokers = "node:9092"', "--brokers"),
        ("",),
        ("[agent]",),
        ("interval_ms = 100", "default"),
        ('host = "a \\"b\\""', str(file)),
        ("keep_minutes = 1.5", "REVEAL_AGENT_KEEP_MINUTES"),
        ("quiet = true", "--quiet"),
        ('root = "/proc"', "default"),
    ]


def test_what_is_printed_can_be_read_again(tmp_path: Path) -> None:
    _, output = run("--interval-ms", "50", "--host", 'back\\slash "quote"\ttab', "--no-quiet")
    file = write(tmp_path, output)
    agent = resolve(SECTIONS, flags={}, environ={}, file=file).get("agent", Agent)
    assert agent.interval_ms == 50
    assert agent.host == 'back\\slash "quote"\ttab'


def test_a_flag_at_its_default_still_wins() -> None:
    code, output = run("--interval-ms", "100", env={"REVEAL_AGENT_INTERVAL_MS": "50"})
    assert code == 0
    assert "interval_ms = 100" in output


def test_a_bad_setting_is_one_error_and_exit_code_2() -> None:
    code, output = run("--interval-ms", "0")
    assert code == 2
    assert "Error: agent.interval_ms = '0' (from --interval-ms): Input should be" in output
    assert "Traceback" not in output


def test_help_names_default_and_variable() -> None:
    _, output = run("--help")
    text = " ".join(output.split())
    assert "--interval-ms N sampling interval, milliseconds [default: 100] (or" in text
    assert "REVEAL_AGENT_INTERVAL_MS" in text
    assert "--quiet / --no-quiet" in text
    assert "--config FILE" in text
