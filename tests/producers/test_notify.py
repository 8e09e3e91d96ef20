from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest

from deploy.local import Broker
from producers.notify import Notifier
from tests.producers.hosts import SECOND_NS, Host

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]
UNIT = files("deploy").joinpath("systemd", "reveal-agent.service").read_text(encoding="utf-8")


class Manager:
    """What systemd does: a datagram socket, and an environment that names it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1))
        self.socket.settimeout(PATIENCE_S)

    def heard(self) -> list[list[str]]:
        """Every message that has come, as lines."""
        found = []
        self.socket.setblocking(False)
        while True:
            try:
                found.append(self.socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return found

    def next(self) -> list[str]:
        """Wait for the next message."""
        self.socket.settimeout(PATIENCE_S)
        return self.socket.recv(4096).decode().split("\n")

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    with closing(Manager(f"@{path}" if request.param == "abstract" else path)) as manager:
        yield manager


def well() -> str:
    return "all is well"


def test_the_first_beat_says_ready_and_each_half_of_the_watchdogs_time_has_one(
    manager: Manager,
) -> None:
    with closing(Notifier(manager.address, 4 * SECOND_NS)) as notifier:
        assert manager.heard() == []
        for tick in range(101):
            notifier.beat(tick * SECOND_NS // 10, well)
    first, *others = manager.heard()
    assert first == ["STATUS=all is well", "WATCHDOG=1", "READY=1"]
    assert others == [["STATUS=all is well", "WATCHDOG=1"]] * 5


def test_without_a_watchdog_there_is_a_word_every_ten_seconds(manager: Manager) -> None:
    with closing(Notifier(manager.address)) as notifier:
        for tick in range(301):
            notifier.beat(tick * SECOND_NS // 10, well)
        notifier.stopping()
    assert manager.heard() == [
        ["STATUS=all is well", "READY=1"],
        *[["STATUS=all is well"]] * 3,
        ["STOPPING=1", "STATUS=sending what is left"],
    ]


def test_a_status_is_one_line(manager: Manager) -> None:
    with closing(Notifier(manager.address)) as notifier:
        notifier.beat(0, lambda: "first\nWATCHDOG=trigger\n")
    assert manager.heard() == [["STATUS=first WATCHDOG=trigger", "READY=1"]]


def test_ready_is_said_until_it_is_heard(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with closing(Notifier(path, 20 * SECOND_NS)) as notifier:
        for second in range(3):
            notifier.beat(second * SECOND_NS, well)
        with closing(Manager(path)) as manager:
            notifier.beat(3 * SECOND_NS, well)
            assert manager.heard() == [["STATUS=all is well", "WATCHDOG=1", "READY=1"]]


@pytest.mark.parametrize("address", ["", "@", "/", "/nowhere/notify", "vsock:2:9", "x" * 300])
def test_a_socket_that_leads_nowhere_does_no_harm(address: str) -> None:
    with closing(Notifier(address, SECOND_NS)) as notifier:
        for second in range(5):
            notifier.beat(second * SECOND_NS, well)
        notifier.stopping()


def test_a_manager_that_does_not_read_holds_nothing_up(manager: Manager) -> None:
    with closing(Notifier(manager.address, 2)) as notifier:
        for second in range(10_000):  # more than any queue has room for
            notifier.beat(second * SECOND_NS, well)
        heard = manager.heard()
        assert 0 < len(heard) < 10_000
        notifier.beat(20_000 * SECOND_NS, well)
    assert manager.heard() == [["STATUS=all is well", "WATCHDOG=1"]]


@pytest.mark.parametrize(
    ("microseconds", "pid", "on"),
    [
        ("2000000", None, True),
        ("2000000", str(os.getpid()), True),
        ("2000000", "1", False),
        ("0", None, False),
        ("", None, False),
        ("soon", None, False),
        ("-5", None, False),
        ("9" * 5000, None, False),
        (None, None, False),
    ],
)
def test_the_environment_says_whom_to_tell_and_keeps_nothing_for_children(
    manager: Manager, microseconds: str | None, pid: str | None, on: bool
) -> None:
    given = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": microseconds, "WATCHDOG_PID": pid}
    environ = {"HOME": "/", **{k: v for k, v in given.items() if v is not None}}
    with closing(Notifier.from_environment(environ)) as notifier:
        assert environ == {"HOME": "/"}
        notifier.beat(0, well)
        notifier.beat(SECOND_NS - 1, well)
        notifier.beat(SECOND_NS, well)
    heard = manager.heard()
    assert [("WATCHDOG=1" in words) for words in heard] == ([True, True] if on else [False])


def test_the_agent_beats_with_its_ticks_and_says_how_it_goes(manager: Manager) -> None:
    host = Host(1.0, 2.0, waits=25)
    with closing(Notifier(manager.address, 2 * SECOND_NS)) as notifier:
        host.agent._notifier = notifier
        host.producers[0].obliging = True
        host.ticks(1)
        channels = host.agent.channels
        status = f"STATUS={channels} channels; 0 ticks missed; 0 messages dropped"
        assert manager.heard() == [[status, "WATCHDOG=1", "READY=1"]]
        host.clock.run(10 * SECOND_NS)  # the machine gave it no time: no ticks, no word
        assert manager.heard() == []
        host.agent.run(None, 5)
    *beats, last = manager.heard()
    status = f"STATUS={channels} channels; 99 ticks missed; 0 messages dropped"
    assert beats == [[status, "WATCHDOG=1"]] * 3
    assert last == ["STOPPING=1", "STATUS=sending what is left"]


def test_an_agent_that_cannot_send_says_why() -> None:
    host = Host(1.0)
    host.publisher._trouble = "Connection refused"
    host.publisher.dropped["too_old"] = 3
    host.ticks(1)
    assert host.agent._status() == (
        f"{host.agent.channels} channels; 0 ticks missed; 3 messages dropped; "
        "not sending: Connection refused; messages waiting: 1"
    )


def test_the_program_tells_its_manager(broker: Broker, manager: Manager) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("REVEAL_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "producers", "run", "--brokers", broker.bootstrap],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**environ, "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"},
    )
    try:
        first, second = manager.next(), manager.next()
        process.send_signal(signal.SIGTERM)
        until = time.monotonic() + PATIENCE_S
        while (last := manager.next())[0] != "STOPPING=1":
            assert time.monotonic() < until
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, said
    assert re.fullmatch(r"STATUS=\d+ channels; \d+ ticks missed; 0 messages dropped", first[0])
    assert first[1:] == ["WATCHDOG=1", "READY=1"]
    assert second[1:] == ["WATCHDOG=1"]
    assert last == ["STOPPING=1", "STATUS=sending what is left"]


def settings(name: str) -> list[str]:
    """A setting's values in the unit, in order."""
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def test_the_unit_waits_to_be_told_and_says_what_each_capability_is_for() -> None:
    assert settings("Type") == ["notify"]
    assert settings("WatchdogSec")
    assert settings("Restart") == ["on-failure"]
    (ambient,), (bounding,) = settings("AmbientCapabilities"), settings("CapabilityBoundingSet")
    assert ambient == bounding
    for capability in ambient.split():
        assert re.search(rf"^#   {capability} +\S+", UNIT, re.MULTILINE), capability


def test_the_unit_keeps_open_what_the_agent_reads() -> None:
    closing_them = ("ProtectKernelLogs", "PrivateDevices", "PrivateUsers", "PrivateNetwork")
    assert [name for name in closing_them if settings(name)] == []
    (calls,) = settings("SystemCallFilter")
    assert "perf_event_open" in calls.split()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "reveal-agent.service"
    (command,) = settings("ExecStart")
    unit.write_text(UNIT.replace(command.split()[0], sys.executable), encoding="utf-8")
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    # It looks at the machine's own units, too: only what is said of this one counts.
    said = [line for line in found.stderr.splitlines() if unit.name in line]
    assert (found.returncode, said) == (0, [])
