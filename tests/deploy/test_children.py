"""Children start, stop, die and are buried; none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deploy.children import Child, check, not_ready
from deploy.errors import PartFailed
from deploy.local import Broker
from deploy.stack import agent_command, broker_command, worker_command

TIMEOUT_S = 20.0


def await_true(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Start a child that runs a piece of Python, and wait until it says ``ready``."""
    children = []

    def start(code: str, *, ready: bool = True, stop_s: float = 5.0) -> Child:
        child = Child(
            "worker",
            [sys.executable, "-c", code],
            tmp_path / "worker.log",
            stop_s=stop_s,
            environ={"WHO": "me"},
        )
        children.append(child)
        child.start()
        if ready:
            await_true(lambda: "ready" in " ".join(child.last_words()), "never ready")
        return child

    yield start
    for child in children:
        child.stop(hurry=lambda: True)


Make = Callable[..., Child]
SLEEP = "print('ready'); import time; time.sleep(600)"


def test_a_child_has_a_session_and_variables_of_its_own(make: Make) -> None:
    child = make(
        "import os; print('ready', os.getsid(0) == os.getpid(), os.environ['WHO']);" + SLEEP
    )
    assert child.last_words()[0] == "ready True me"
    assert child.pid is not None
    assert child.exit_code is None
    check(child)


def test_a_child_that_is_asked_stops_with_its_own_exit_code(make: Make) -> None:
    child = make("import signal, sys; signal.signal(15, lambda *_: sys.exit(7));" + SLEEP)
    child.stop()
    assert child.exit_code == 7


def test_a_child_that_does_not_listen_is_killed_with_what_it_started(make: Make) -> None:
    child = make(
        "import signal, subprocess, sys; signal.signal(15, signal.SIG_IGN);"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print(p.pid, flush=True);" + SLEEP,
        stop_s=0.2,
    )
    grandchild = int(child.last_words()[0])
    child.stop()
    assert child.exit_code == -signal.SIGKILL
    await_true(lambda: gone(grandchild), "the grandchild lives on")


def test_in_a_hurry_nobody_waits(make: Make) -> None:
    child = make("import signal; signal.signal(15, signal.SIG_IGN);" + SLEEP, stop_s=600)
    child.stop(hurry=lambda: True)
    assert child.exit_code == -signal.SIGKILL


def test_a_child_that_fails_is_named_with_its_last_words(make: Make) -> None:
    child = make("print('ready'); print('no disk left', flush=True); raise SystemExit(3)")
    await_true(lambda: child.exit_code is not None, "it lives on")
    with pytest.raises(PartFailed) as failed:
        check(child)
    assert str(failed.value) == (
        f"the worker ended by itself with exit code 3; the last lines of {child.log}:\n"
        "  ready\n  no disk left"
    )


def test_a_child_that_is_killed_is_told_from_one_that_ends(make: Make) -> None:
    child = make("import os; os.kill(os.getpid(), 9)", ready=False)
    await_true(lambda: child.exit_code is not None, "it lives on")
    with pytest.raises(PartFailed, match="the worker was killed by SIGKILL; its log is empty"):
        check(child)


def test_only_the_last_lines_of_a_long_log_are_shown(make: Make) -> None:
    child = make("for i in range(20000): print('line', i)\n" + SLEEP)
    words = child.last_words()
    assert words[-2:] == ["line 19999", "ready"]
    assert len(words) == 12
    assert "was not ready after 60 s" in str(not_ready(child, 60))


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    child = Child("agent", ["no-such-program"], tmp_path / "agent.log", stop_s=5)
    child.start()
    await_true(lambda: child.exit_code is not None, "it lives on")
    assert child.last_words() == ["no-such-program: No such file or directory"]


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import sys, time
from pathlib import Path
from deploy.children import Child
child = Child("x", [sys.executable, "-c", {SLEEP!r}], Path({str(tmp_path / "log")!r}), stop_s=5)
child.start()
while not child.last_words(): time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(600)
""",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    parent.kill()
    parent.communicate()
    await_true(lambda: gone(pid), "an orphan is left")


@pytest.fixture
def hostile_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a directory with modules of the user's own that bear our names."""
    for name in ("schemas", "deploy", "producers"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the user')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_parts_start_beside_modules_of_the_same_names(hostile_directory: Path) -> None:
    address = hostile_directory / "address"
    commands = {
        "broker": broker_command(address),
        "agent": [*agent_command("b:1", 7), "--help"],
        "worker": [*worker_command("b:1", 7, None), "--help"],
    }
    children = {
        name: Child(name, command, hostile_directory / f"{name}.log", stop_s=5)
        for name, command in commands.items()
    }
    try:
        for child in children.values():
            child.start()
        await_true(
            lambda: address.exists() or children["broker"].exit_code is not None, "no broker"
        )
        check(children["broker"])
        await_true(
            lambda: all(children[n].exit_code is not None for n in ("agent", "worker")), "no help"
        )
        for name in ("agent", "worker"):
            assert children[name].exit_code == 0, children[name].last_words()
    finally:
        for child in children.values():
            child.stop(hurry=lambda: True)


@pytest.mark.usefixtures("hostile_directory")
def test_a_broker_starts_beside_modules_of_the_same_names() -> None:
    with Broker() as broker:
        broker.create_topic("mine", 1)


def test_a_child_that_comes_too_late_does_not_start() -> None:
    not_our_parent = os.getpid() + 1
    done = subprocess.run(
        [sys.executable, "-m", "deploy.tether", str(not_our_parent), "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "the parent process is gone\n")
