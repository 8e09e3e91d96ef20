from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from deploy.local import Broker
from deploy.stack import free_port
from producers.__main__ import main
from schemas.records import Layout, Telemetry
from schemas.topics import LAYOUTS, TELEMETRY
from tests.producers.kafka import read_topic

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]


def invoke(*args: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, args, env=env)


@contextmanager
def agent(*args: str) -> Iterator[subprocess.Popen[str]]:
    """``reveal-agent run`` in a process of its own; killed if it is still there at the end."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("REVEAL_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "producers", "run", "--host", "node1", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environ,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end; what it said, line by line."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert out == ""
    return err.splitlines()


def records(broker: Broker) -> list[Telemetry]:
    return [r for _, r in read_topic(broker.bootstrap, TELEMETRY) if isinstance(r, Telemetry)]


def wait_for_records(broker: Broker, count: int, after_us: int = 0) -> list[Telemetry]:
    until = time.monotonic() + PATIENCE_S
    while True:
        found = records(broker)
        if len([r for r in found if r.timestamps[-1] > after_us]) >= count:
            return found
        assert time.monotonic() < until, f"{len(found)} records"


def test_a_run_sends_this_machine_tick_by_tick(broker: Broker) -> None:
    with agent("--brokers", broker.bootstrap, "--seconds", "2.5") as process:
        said = end(process)
    start = rf"reveal-agent: node1: \d+ channels every 100 ms to {broker.bootstrap}(; absent: .*)*"
    assert re.fullmatch(start, said[0])
    assert re.fullmatch(
        r"reveal-agent: \d+ ticks of \d+ channels, \d+ missed; "
        r"\d+ messages delivered, 0 dropped; \d+\.\d\d % of a core",
        said[-1],
    )
    layouts = [r for _, r in read_topic(broker.bootstrap, LAYOUTS) if isinstance(r, Layout)]
    known = {layout.fingerprint: layout for layout in layouts}
    found = records(broker)
    stamps = np.concatenate([r.timestamps for r in found])
    assert (stamps % 100_000 == 0).all()
    assert (np.diff(stamps) > 0).all()
    assert len(stamps) == int(said[-1].split()[1])
    for record in found:
        layout = known[record.layout]
        assert record.values.shape == (len(layout.channels), len(record.timestamps))
    labels = [c.label for c in known[found[-1].layout].channels]
    idle = found[-1].values[labels.index("cpu.idle")]
    free = found[-1].values[labels.index("memory.mem_free")]
    assert ((idle >= 0) & (idle <= 110)).all()
    assert (free > 1e6).all()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_everything_sent(broker: Broker, stop: signal.Signals) -> None:
    with agent("--brokers", broker.bootstrap, "--ticks-per-record", "1") as process:
        wait_for_records(broker, 3)
        process.send_signal(stop)
        said = end(process)
    ticks = int(said[-1].split()[1])
    assert "0 dropped" in said[-1]
    assert len(records(broker)) == ticks


def test_a_signal_in_mid_second_cuts_the_record_and_sends_it(broker: Broker) -> None:
    with agent("--brokers", broker.bootstrap) as process:
        wait_for_records(broker, 2)
        process.send_signal(signal.SIGTERM)
        said = end(process)
    found = records(broker)
    ticks = int(said[-1].split()[1])
    assert "0 dropped" in said[-1]
    assert sum(len(r.timestamps) for r in found) == ticks
    assert [r.seq for r in found] == list(range(len(found)))


def test_without_a_broker_it_samples_and_stops_when_told() -> None:
    with agent("--brokers", "127.0.0.1:1", "--stop-seconds", "0.1") as process:
        assert process.stderr is not None
        trouble = next(line for line in process.stderr if "not sending" in line)
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read().splitlines()
        assert process.wait(PATIENCE_S) == 0
    assert ": Connect to ipv4#127.0.0.1:1 failed: Connection refused; messages waiting" in trouble
    assert re.search(r"; 0 messages delivered, [1-9]\d* dropped;", said[-1])


def test_a_broker_that_goes_and_comes_back_gets_every_tick_in_order(broker: Broker) -> None:
    with agent("--brokers", broker.bootstrap) as process:
        last = wait_for_records(broker, 1)[-1]
        broker.set_down()
        # As long as it takes for three records to wait: their seconds pass on the clock.
        while time.time() * 1e6 < last.timestamps[-1] + 3.5e6:
            time.sleep(0.05)
        broker.set_up()
        returned_us = int(time.time() * 1e6)
        wait_for_records(broker, 1, after_us=returned_us)
        process.send_signal(signal.SIGTERM)
        said = end(process)
    found = records(broker)
    assert [r.seq for r in found] == list(range(len(found)))
    stamps = np.concatenate([r.timestamps for r in found])
    missed = int(re.search(r"(\d+) missed", said[-1]).group(1))  # type: ignore[union-attr]
    assert (np.diff(stamps) > 0).all()
    assert len(stamps) == (stamps[-1] - stamps[0]) // 100_000 + 1 - missed
    assert "0 dropped" in said[-1]


def test_it_answers_prometheus_while_it_runs(broker: Broker) -> None:
    port = free_port()
    with agent("--brokers", broker.bootstrap, "--metrics-port", str(port)) as process:
        wait_for_records(broker, 1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        end(process)
    assert re.search(r'^reveal_agent_info\{host="node1",version="[\d.]+"\} 1\.0$', text, re.M)
    assert re.search(r"^reveal_agent_ticks_total [1-9]", text, re.M)
    assert re.search(r'^reveal_agent_collector_seconds_total\{collector="cpu"\} ', text, re.M)


def test_a_run_without_brokers_says_what_to_do() -> None:
    result = invoke("run", env={"REVEAL_KAFKA_BROKERS": ""})
    assert result.exit_code == 2
    assert "no broker to send to: give --brokers host:port" in result.output
    assert "reveal up" in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--interval-ms", "70"), "it has to divide 3000 ms: 10, 20, 50, 100, 200, 600, 1000"),
        (("--perf", "all"), "it is one of total, per-core, off"),
        (("--interval-ms", "6000"), "less than or equal to 3000"),
        (("--interval-ms", "5"), "greater than or equal to 10"),
        (("--brokers", "node"), "'node' is no broker: write host:port"),
        (("--ticks-per-record", "0"), "greater than or equal to 1"),
    ],
)
def test_a_setting_that_cannot_be_is_one_clear_error(args: tuple[str, ...], message: str) -> None:
    result = invoke("run", *args)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("interval_ms", [10, 20, 50, 100, 125, 250, 600, 1000, 3000])
def test_intervals_that_fit_the_window(interval_ms: int) -> None:
    result = invoke("config", "--interval-ms", str(interval_ms))
    assert f"interval_ms = {interval_ms}" in result.output


@pytest.mark.parametrize("flag", ["--proc-root", "--path.proc"])
def test_roots_by_the_names_of_other_exporters(flag: str, tmp_path: Path) -> None:
    result = invoke("config", flag, str(tmp_path), "--path.sys", "/host/sys")
    assert f'proc_root = "{tmp_path}"' in result.output
    assert 'sys_root = "/host/sys"' in result.output


def test_config_says_where_each_value_came_from() -> None:
    result = invoke("config", "--host", "node7", env={"REVEAL_AGENT_KEEP_MINUTES": "2"})
    lines = dict(line.split(" # ") for line in result.output.splitlines() if " # " in line)
    origins = {key.strip(): origin for key, origin in lines.items()}
    assert origins['host = "node7"'] == "--host"
    assert origins["keep_minutes = 2.0"] == "REVEAL_AGENT_KEEP_MINUTES"
    assert origins['proc_root = "/proc"'] == "default"


def test_list_names_every_channel_with_a_value() -> None:
    result = invoke("list", "--host", "node1")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["metric", "device", "subsystem", "value", "unit", "kind"]
    total = int(re.match(r"(\d+) channels of node1: ", lines[-1]).group(1))  # type: ignore[union-attr]
    assert total == len(lines) - 3
    names = {line.split()[0] for line in lines[1:-2]}
    assert {"cpu.user", "memory.mem_free", "net.rx_bytes", "disk.busy"} - names <= {"disk.busy"}
    user = next(line for line in lines if line.startswith("cpu.user ")).split()
    assert 0 <= float(user[2]) <= 110


def test_list_as_json_with_the_agents_own() -> None:
    result = invoke("list", "--all", "--json")
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    by_name = {(o["metric"], o["device"]): o for o in objects}
    assert by_name["memory.mem_total", ""]["value"] > 1e8
    assert by_name["agent.cpu", ""]["value"] > 0
    assert by_name["agent.collector_time", "cpu"]["unit"] == "ms/s"


def test_list_of_an_empty_root_is_short_and_says_what_is_absent(tmp_path: Path) -> None:
    result = invoke("list", "--proc-root", str(tmp_path), "--sys-root", str(tmp_path))
    assert result.exit_code == 0
    assert "absent: proc/stat" in result.stderr
    assert "doctor" in result.stderr


def test_doctor_fails_where_what_is_essential_is_missing(tmp_path: Path) -> None:
    result = invoke("doctor", "--proc-root", str(tmp_path))
    assert result.exit_code == 1
    assert "FAILED   proc/stat" in result.output
    assert result.output.splitlines()[-1].startswith("Not fit to run: proc/stat")


def test_doctor_as_json() -> None:
    result = invoke("doctor", "--json", "--host", "node1")
    assert result.exit_code == 0
    findings = [json.loads(line) for line in result.output.splitlines()]
    names = {f["what"]: f for f in findings}
    assert names["host name"]["well"] is True
    assert names["host name"]["found"] == "node1"


def test_version_and_help() -> None:
    assert re.fullmatch(r"reveal-agent, version [\d.]+\n", invoke("--version").output)
    assert "doctor" in invoke("-h").output
