"""What the kernel says is wrong: /dev/kmsg, from the moment on that it is opened.

Kernel: Documentation/ABI/testing/dev-kmsg. One read gives one record,
``level,number,microseconds,flags;text``. Only records of the kernel itself count: anybody who may
write to the file can have it say anything, but not in the kernel's name.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from producers.reading import Reader
from producers.source import FIFTH_SECOND_NS, SECOND_NS, Collector, Field, Options, Plan
from schemas.records import Channel, Kind, Subsystem

PATH = "dev/kmsg"
RECORD_BYTES = 16384
"""More than a record has; less is an error (EINVAL)."""

MOST = 256
"""Records that are taken at one reading; the others wait for the next."""

RETRY_NS = 10 * SECOND_NS
ERROR, WARNING = 3, 4
"""Levels, as in syslog(2): the lower the worse."""

REMEDY = (
    "Without it OOM kills, machine checks, hung tasks, I/O errors and XIDs in the kernel's log are "
    "not seen. Run the agent as root or with CAP_SYSLOG; in a container, pass /dev/kmsg in."
)


@dataclass(frozen=True, slots=True)
class Message:
    """A record of the kernel."""

    level: int
    text: str


class Log(Protocol):
    """Where records come from."""

    def take(self) -> bytes:
        """Return the next record.

        Raises
        ------
        BlockingIOError
            There is none yet.
        BrokenPipeError
            Some were overwritten before they were read; the next call goes on after them.
        OSError
            It cannot be read any more.
        """

    def close(self) -> None:
        """Let go of it."""


class SystemLog:
    """/dev/kmsg from its end on."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def take(self) -> bytes:
        """Return the next record."""
        return os.read(self._descriptor, RECORD_BYTES)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


class Tail:
    """What is new in the log at each reading.

    Attributes
    ----------
    is_open
        Whether it could be opened.
    problem
        Why it cannot be read; empty when it can.
    lost
        How often records were overwritten before they were read.
    bad
        Records that were none.
    """

    def __init__(self, open_log: Callable[[], Log] = SystemLog) -> None:
        self.is_open = False
        self.problem = ""
        self.lost = 0
        self.bad = 0
        self._open_log = open_log
        self._log: Log | None = None
        self._retry_ns: int | None = None

    def read(self, mono_ns: int) -> list[Message]:
        """Return the kernel's new messages, in order."""
        log = self._log
        if log is None:
            if self._retry_ns is not None and mono_ns < self._retry_ns:
                return []
            try:
                log = self._log = self._open_log()
            except OSError as e:
                self._failed(e, mono_ns)
                return []
            self.is_open, self.problem = True, ""
        messages: list[Message] = []
        for _ in range(MOST):
            try:
                record = log.take()
            except BlockingIOError:
                break
            except BrokenPipeError:
                self.lost += 1
                continue
            except OSError as e:
                log.close()
                self._failed(e, mono_ns)
                break
            if not record:
                break
            message = parse(record)
            if message is not None:
                messages.append(message)
            elif b";" not in record:
                self.bad += 1
        return messages

    def _failed(self, error: OSError, mono_ns: int) -> None:
        self._log = None
        self._retry_ns = mono_ns + RETRY_NS
        self.problem = f"{PATH}: {error.strerror or type(error).__name__}"


def parse(record: bytes) -> Message | None:
    """Return the message of a record, None for what is no record of the kernel."""
    head, parted, rest = record.partition(b";")
    number = head.partition(b",")[0]
    if not parted or not number.isdigit() or len(number) > len("2147483647"):
        return None
    facility, level = divmod(int(number), 8)
    if facility:
        return None
    # After the text come lines of properties, each indented.
    return Message(level, rest.partition(b"\n")[0].decode("utf-8", "replace"))


COUNTED = (
    ("oom_kills", Subsystem.MEMORY, r"out of memory: Killed process \d"),
    ("machine_checks", Subsystem.CPU, r"mce: .*(Machine check events logged|\[Hardware Error\])"),
    ("memory_errors", Subsystem.MEMORY, r"EDAC .*\b\d+ [CU]E\b|Memory failure: "),
    ("hardware_errors", Subsystem.CPU, r"\[Hardware Error\]"),
    ("hung_tasks", Subsystem.CPU, r"blocked for more than \d+ seconds"),
    (
        "lockups",
        Subsystem.CPU,
        r"(soft|hard) lockup|rcu.* detected (expedited )?stalls|self-detected",
    ),
    ("pcie_errors", Subsystem.CPU, r"PCIe Bus Error|\bAER: .*error|pcieport .*DPC: "),
    ("gpu_xids", Subsystem.GPU, r"NVRM: Xid "),
    ("link_downs", Subsystem.NETWORK, r"\blink (is )?(down|lost)\b|Lost carrier"),
    ("network_timeouts", Subsystem.NETWORK, r"NETDEV WATCHDOG|transmit queue \d+ timed out"),
    (
        "io_errors",
        Subsystem.STORAGE,
        r"I/O error|critical (medium|target) error|nvme\d*: I/O (tag )?\d+ .*timeout|rejecting I/O",
    ),
    (
        "file_system_errors",
        Subsystem.STORAGE,
        r"(EXT4|BTRFS|F2FS)[- ].*error|XFS .*(corruption|shut)|Remounting filesystem read-only",
    ),
    (
        "remote_file_errors",
        Subsystem.STORAGE,
        r"nfs: server .* not responding|LustreError",
    ),
)
"""What is counted in the channels ``kernel.<name>``, each message by the first that fits."""

_PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, _, pattern in COUNTED)
_ANY = re.compile("|".join(f"(?:{pattern})" for _, _, pattern in COUNTED), re.IGNORECASE)


def kind_of(text: str) -> str:
    """Return what a message is about, empty when it is about nothing that is counted."""
    if not _ANY.search(text):
        return ""
    return next(name for name, pattern in _PATTERNS if pattern.search(text))


class KernelLog:
    """A source of counts of what the kernel's log says; no channels where it cannot be read."""

    path = PATH
    remedy = REMEDY
    period_ns = FIFTH_SECOND_NS

    def __init__(self, tail: Tail) -> None:
        self.problem = ""
        self.plan = Plan()
        self._tail = tail
        self._counts = dict.fromkeys(
            (*(name for name, _, _ in COUNTED), "errors", "warnings", "messages_lost"), 0
        )

    @property
    def bad_fields(self) -> int:
        """Records that were none."""
        return self._tail.bad

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        """Return how many messages of each kind there were since the log was opened."""
        tail, counts = self._tail, self._counts
        messages = tail.read(mono_ns)
        self.problem = tail.problem
        if tail.is_open and not self.plan.fields:
            self.plan = _plan()
        for message in messages:
            kind = kind_of(message.text)
            if kind:
                counts[kind] += 1
            if message.level <= ERROR:
                counts["errors"] += 1
            elif message.level == WARNING:
                counts["warnings"] += 1
        counts["messages_lost"] = tail.lost
        return self.plan.blank if tail.problem else list(counts.values())


def _plan() -> Plan:
    subsystems = {name: subsystem for name, subsystem, _ in COUNTED}
    subsystems |= {"errors": Subsystem.CPU, "warnings": Subsystem.CPU}
    subsystems |= {"messages_lost": Subsystem.AGENT}
    channels = tuple(
        Channel(f"kernel.{name}", "", subsystem, "messages/s", Kind.RATE)
        for name, subsystem in subsystems.items()
    )
    fields = tuple(Field(channel.label, counter=True) for channel in channels)
    return Plan(fields, channels, tuple(range(len(fields))))


def collectors(options: Options) -> tuple[Collector, ...]:  # noqa: ARG001
    """Return the collector of the kernel's log."""
    return (Collector("kmsg", (KernelLog(Tail()),)),)
