"""Counting events of the cores through the kernel: perf_event_open(2), one event, one core.

Kernel: include/uapi/linux/perf_event.h; the numbers below are its. An event counts on one core,
whatever runs there, in user and kernel mode and in guests. Events in one group are counted at
the same times and read with one call. Reading the group of another core interrupts that core
(an interprocessor interrupt, one or two microseconds on bare metal, ten in a virtual machine):
what is read costs a call and an interrupt for each group and core, however many events it has.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

HARDWARE, SOFTWARE, RAW = 0, 1, 4
"""Values of `Event.type`; those of other PMUs are in ``sys/bus/event_source/devices/*/type``."""

ATTRIBUTE_BYTES = 128
READ_FORMAT = 0b1011
"""TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING and GROUP: how a reading looks, see `HEADER`."""

HEADER = 3
"""64-bit numbers before the counts: how many counts, nanoseconds enabled, nanoseconds running."""

_CLOSE_ON_EXEC = 8
_ENABLE = 0x2400
_CALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_SPARE_FILES = 512
"""Descriptors that are left for the rest of the agent."""


@dataclass(frozen=True, slots=True)
class Event:
    """What is counted: `type` says in whose terms `config` is."""

    name: str
    type: int
    config: int


class Kernel(Protocol):
    """The system calls that counting needs; tests have another. All raise OSError."""

    def reserve(self, files: int) -> None:
        """See that so many descriptors can be opened; EMFILE when they cannot."""

    def open(self, attribute: bytes, cpu: int, group: int) -> int:
        """Count on a core and return the descriptor; `group` is its leader's, or -1."""

    def enable(self, leader: int) -> None:
        """Let a group that is complete count."""

    def read(self, leader: int, into: memoryview) -> int:
        """Read a group and return the number of bytes."""

    def close(self, descriptor: int) -> None:
        """Stop counting."""


def attribute(event: Event, *, leads: bool) -> bytes:
    """Return the struct perf_event_attr of an event that excludes nothing.

    A leader waits to be enabled when its group is complete: on Linux 6.18 an event that joins a
    group of another PMU (``msr`` among software events) does not count if that runs already.
    """
    size, config = ATTRIBUTE_BYTES, event.config
    head = struct.pack("=IIQQQQQ", event.type, size, config, 0, 0, READ_FORMAT, int(leads))
    return head.ljust(ATTRIBUTE_BYTES, b"\0")


class SystemKernel:
    """The calls of this machine, through the C library's syscall(2)."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._number = _CALLS.get(platform.machine())

    def reserve(self, files: int) -> None:
        """Raise the limit of open files as far as it may be raised, when it is too low."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        need = files + _SPARE_FILES
        if soft == resource.RLIM_INFINITY or need <= soft:
            return
        if hard != resource.RLIM_INFINITY and need > hard:
            raise OSError(
                errno.EMFILE, f"{os.strerror(errno.EMFILE)}: {need} needed, {hard} allowed"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))

    def open(self, attribute: bytes, cpu: int, group: int) -> int:
        """Call perf_event_open for every process on a core."""
        if self._number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        c = ctypes.c_int
        descriptor: int = self._call(
            ctypes.c_long(self._number),
            ctypes.create_string_buffer(attribute, len(attribute)),
            *(c(-1), c(cpu), c(group), ctypes.c_ulong(_CLOSE_ON_EXEC)),
        )
        if descriptor < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return descriptor

    def enable(self, leader: int) -> None:
        """Enable the leader, and with it the others."""
        fcntl.ioctl(leader, _ENABLE, 0)

    def read(self, leader: int, into: memoryview) -> int:
        """Read into a buffer that is kept."""
        return os.readv(leader, (into,))

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        os.close(descriptor)


def whole_readings(
    table: NDArray[np.uint64], got: Sequence[int], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell which readings of groups are what they should be, shape ``(groups,)``.

    Parameters
    ----------
    table
        Shape ``(groups, HEADER + most counts)``: what the kernel wrote.
    got
        Bytes that it wrote for each; negative where it refused.
    sizes
        Counts that each should have.
    """
    bytes_got = np.fromiter(got, np.int64, len(sizes))
    whole: NDArray[np.bool_] = bytes_got == 8 * (HEADER + sizes)
    whole &= table[:, 0] == sizes.astype(np.uint64)
    return whole


def cpu_list(text: bytes) -> tuple[int, ...]:
    """Return ``(0, 1, 2, 5)`` for ``0-2,5``, as sysfs lists cores; empty for what is no list."""
    cpus: set[int] = set()
    try:
        for part in text.decode("ascii").strip().split(","):
            first, _, last = part.partition("-")
            low, high = int(first), int(last or first)
            if not 0 <= low <= high < 1 << 16:
                return ()
            cpus.update(range(low, high + 1))
    except ValueError:
        return ()
    return tuple(sorted(cpus))
