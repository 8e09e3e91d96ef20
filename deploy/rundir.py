"""Where a stack keeps its logs, and how another command finds the broker of one that runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from schemas.errors import InvalidSettings
from schemas.settings import Kafka, Section

ADDRESS = "broker.address"
LOCK = "lock"


class ViewSettings(Section):
    """Where `reveal up` keeps its files, and how patient it is."""

    run_dir: str = Field(
        "", description="logs of the stack; empty: $XDG_STATE_HOME/reveal or ~/.local/state/reveal"
    )
    start_timeout_s: float = Field(
        60, gt=0, description="how long a part may take to be ready, seconds"
    )

    @property
    def directory(self) -> Path:
        """The run directory."""
        if self.run_dir:
            return Path(self.run_dir)
        # The XDG base directory specification: a relative path there is invalid.
        state = os.environ.get("XDG_STATE_HOME", "")
        base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
        return base / "reveal"


@contextmanager
def claimed(directory: Path) -> Iterator[Path]:
    """Hold a run directory for one stack; the kernel lets go of it when the process ends.

    Raises
    ------
    InvalidSettings
        Another stack has it, or it cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise InvalidSettings(
            f"run directory {directory}: {e.strerror}; name another with --run-dir"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidSettings(
                f"`reveal up` is running already in {directory}: stop it, or give this one a"
                " directory of its own with --run-dir"
            ) from None
        (directory / ADDRESS).unlink(missing_ok=True)
        try:
            yield directory
        finally:
            (directory / ADDRESS).unlink(missing_ok=True)
    finally:
        os.close(lock)


def find_brokers(kafka: Kafka, view: ViewSettings) -> str:
    """Return the brokers that the settings name, else those of the stack that runs here.

    Raises
    ------
    InvalidSettings
        Neither is there.
    """
    if kafka.brokers:
        return kafka.brokers
    address = view.directory / ADDRESS
    if _is_held(view.directory / LOCK) and address.exists():
        return address.read_text(encoding="utf-8").strip()
    raise InvalidSettings(
        "no brokers: give --brokers host:port, or start everything with `reveal up`"
    )


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
