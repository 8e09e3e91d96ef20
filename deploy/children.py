"""The programs that make up the stack, each a child process with a log file of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from deploy.errors import PartFailed

LOG_LINES = 12
LOG_TAIL_BYTES = 16_384
POLL_S = 0.1


class Child:
    """One program. It is in a session of its own, so that Ctrl-C reaches only its parent.

    Parameters
    ----------
    name
        What people call it: ``worker``.
    command
        Program and arguments.
    log
        File for its output; what was in it is replaced.
    stop_s
        How long it may take to stop when asked.
    environ
        Variables beside those of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        stop_s: float,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        self.stop_s = stop_s
        self.environ = dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. It is killed when this process ends, however that happens."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: a `deploy.py` where the user happens to be is not ours.
                [sys.executable, "-P", "-m", "deploy.tether", str(os.getpid()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Otherwise the last words of a crash stay in a buffer.
                env={**os.environ, **self.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def pid(self) -> int | None:
        """Its process id; None before it was started."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs or was never started."""
        return None if self._process is None else self._process.poll()

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Ask it to stop, wait, and kill what is left; at once when `hurry` says so."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            return
        self._process.terminate()
        end = time.monotonic() + self.stop_s
        while self._process.poll() is None and time.monotonic() < end and not hurry():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
        # What it started is in its group and goes with it.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self) -> list[str]:
        """Return the last lines of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-LOG_LINES:]


def check(child: Child) -> None:
    """Raise `PartFailed` if a child has ended by itself."""
    code = child.exit_code
    if code is None:
        return
    if code < 0:
        try:
            how = f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            how = f"was killed by signal {-code}"
    else:
        how = f"ended by itself with exit code {code}"
    raise PartFailed(_report(child, how))


def not_ready(child: Child, timeout_s: float) -> PartFailed:
    """Return the error of a child that runs but is not ready in time."""
    return PartFailed(_report(child, f"was not ready after {timeout_s:g} s"))


def _report(child: Child, how: str) -> str:
    words = child.last_words()
    if not words:
        return f"the {child.name} {how}; its log is empty: {child.log}"
    lines = "\n".join(f"  {line}" for line in words)
    return f"the {child.name} {how}; the last lines of {child.log}:\n{lines}"
