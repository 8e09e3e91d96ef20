"""`reveal up` as a user runs it, with small programs in place of agent and worker."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deploy.local import Broker
from deploy.stack import worker_command
from deploy.up import baseline_for_worker
from tests.deploy.test_children import TIMEOUT_S, await_true, gone

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `reveal up` in plain lines; the worker is in a mood."""
    started = []

    def run(mood: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.deploy.parts", mood),
                *("--run-dir", str(tmp_path), *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "DIE_FILE": str(tmp_path / "die")},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Return what is printed up to a line with `text`."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"no {text!r} in {''.join(lines)}{process.communicate()[1]}")


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, output, errors


def pids(output: str) -> list[int]:
    return sorted({int(pid) for pid in re.findall(r"pid (\d+)", output)})


def moves(output: str) -> list[str]:
    """Return what the parts did, in order: ``worker up``."""
    return re.findall(r"((?:broker|agent|worker) [a-z]+), pid", output)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_starts_in_order_shows_what_happens_and_stops_the_other_way_round(
    start: Start, stop: signal.Signals
) -> None:
    process = start("well")
    output = read_until(process, "opened")
    assert "storage.write[sda] 1.9 GB/s (expected 0-12 MB/s)" in output
    children = pids(output)
    assert len(children) == 3
    process.send_signal(stop)
    code, rest, errors = finish(process)
    assert (code, errors) == (0, "")
    assert moves(output + rest) == [
        *("broker starting", "broker up", "agent starting", "agent up"),
        *("worker starting", "worker up", "worker stopping", "worker stopped"),
        *("agent stopping", "agent stopped", "broker stopping", "broker stopped"),
    ]
    assert "1 window, 1 episode; logs in" in rest
    assert all(map(gone, children))


def test_a_worker_that_dies_is_named_and_everything_else_stops(
    start: Start, tmp_path: Path
) -> None:
    process = start("dies")
    output = read_until(process, "worker up")
    (tmp_path / "die").touch()
    code, rest, errors = finish(process)
    assert code == 1
    assert errors == (
        "Error: the worker ended by itself with exit code 3;"
        f" the last lines of {tmp_path / 'worker.log'}:\n"
        "  worker says hello\n  worker: the baseline is gone\n"
    )
    assert "worker failed" in rest
    assert all(map(gone, pids(output)))


def test_a_broker_that_is_killed_is_named(start: Start) -> None:
    process = start("well")
    output = read_until(process, "worker up")
    broker = int(re.findall(r"broker up, pid (\d+)", output)[0])
    os.kill(broker, signal.SIGKILL)
    code, _, errors = finish(process)
    assert code == 1
    assert "the broker was killed by SIGKILL" in errors
    assert all(map(gone, pids(output)))


def test_a_part_that_is_not_ready_in_time_is_named(start: Start) -> None:
    code, output, errors = finish(start("well", "--start-timeout-s", "0.001"))
    assert code == 1
    assert errors.startswith("Error: the broker was not ready after 0.001 s")
    assert all(map(gone, pids(output)))


def test_a_second_ctrl_c_does_not_wait(start: Start) -> None:
    process = start("stubborn")
    output = read_until(process, "worker up")
    process.send_signal(signal.SIGINT)
    rest = read_until(process, "worker stopping")
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 0
    assert all(map(gone, pids(output + rest)))


def test_no_orphan_is_left_when_it_is_killed(start: Start) -> None:
    process = start("stubborn")
    children = pids(read_until(process, "worker up"))
    assert len(children) == 3
    assert not any(map(gone, children))
    process.kill()
    await_true(lambda: all(map(gone, children)), "an orphan is left")


def test_it_ends_after_so_many_seconds(start: Start) -> None:
    code, output, errors = finish(start("well", "--seconds", "0"))
    assert (code, errors) == (0, "")
    assert "worker up" in output


def test_a_kafka_that_is_named_is_used_and_left_running(start: Start, broker: Broker) -> None:
    process = start("well", "--brokers", broker.bootstrap)
    output = read_until(process, "opened")
    assert "broker up\n" in output
    assert len(pids(output)) == 2
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 0
    broker.create_topic("still-there", 1)


def test_a_kafka_that_is_not_there_is_one_line(start: Start) -> None:
    code, output, errors = finish(start("hasty", "--brokers", "127.0.0.1:1"))
    assert code == 2
    assert errors.startswith("Error: no Kafka broker answers at 127.0.0.1:1: ")
    assert len(errors.splitlines()) == 1
    assert "broker starting" in output
    assert pids(output) == [], "nothing is started without a broker"


def test_ctrl_c_ends_the_wait_for_a_kafka(start: Start) -> None:
    process = start("well", "--brokers", "127.0.0.1:1")
    read_until(process, "broker starting")
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 0


def test_a_directory_is_for_one_stack(start: Start) -> None:
    read_until(start("well"), "broker up")
    code, _, errors = finish(start("well"))
    assert code == 2
    assert errors.startswith("Error: `reveal up` is running already")
    assert len(errors.splitlines()) == 1


def test_the_baseline_is_two_minutes_unless_somebody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert baseline_for_worker(None, None) == 120
    assert baseline_for_worker(45, None) == 45
    file = tmp_path / "reveal.toml"
    file.write_text("[worker]\nbaseline_seconds = 90\n")
    assert baseline_for_worker(None, file) is None, "the worker reads the file itself"
    assert baseline_for_worker(45, file) == 45
    monkeypatch.setenv("REVEAL_WORKER_BASELINE_SECONDS", "77")
    assert baseline_for_worker(None, None) is None


def test_the_worker_is_told_its_baseline() -> None:
    assert worker_command("b:1", 7, 120)[-2:] == ["--baseline-seconds", "120"]
    assert "--baseline-seconds" not in worker_command("b:1", 7, None)


def test_children_get_the_settings_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "reveal.toml"
    file.write_text("")
    process = start("well", "--config", str(file))
    output = read_until(process, "worker up")
    for pid in pids(output):
        assert psutil.Process(pid).environ()["REVEAL_CONFIG"] == str(file)


def test_on_a_terminal_it_is_a_screen_and_the_terminal_is_restored(tmp_path: Path) -> None:
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.deploy.parts", "well", "--run-dir", str(tmp_path)],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    )
    os.close(its_end)
    seen = b""
    asked = False
    try:
        while True:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
            if not asked and b"open anomalies" in seen and b"expected 0-12 MB/s" in seen:
                asked = True
                process.send_signal(signal.SIGINT)
    finally:
        if not asked:
            process.kill()
        code = process.wait()
        os.close(terminal)
    assert code == 0
    enter, leave = b"\x1b[?1049h", b"\x1b[?1049l"
    assert seen.count(enter) == seen.count(leave) == 1
    hide_cursor, show_cursor = b"\x1b[?25l", b"\x1b[?25h"
    assert seen.rindex(show_cursor) > seen.rindex(hide_cursor)
    assert b"stopped after" in seen[seen.index(leave) :]
