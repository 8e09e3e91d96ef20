"""Registers of each core, read through ``/dev/cpu/*/msr``: the way without a perf ``msr`` PMU.

Kernel: arch/x86/kernel/msr.c, module `msr`; reading needs CAP_SYS_RAWIO. A read of eight bytes at
the register's number is a system call, and an interrupt of the core.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from producers.perf.counters import HIGHEST_RATE
from producers.source import Doubles


class Registers(Protocol):
    """The system calls that reading registers needs; tests have another. All raise OSError."""

    def open(self, cpu: int) -> int:
        """Return a descriptor for a core's registers."""

    def read(self, descriptor: int, register: int) -> bytes:
        """Return the eight bytes of a register."""

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""


class SystemRegisters:
    """The registers of this machine."""

    def __init__(self, root: Path = Path("/dev/cpu")) -> None:
        self._root = root

    def open(self, cpu: int) -> int:
        """Open the core's file."""
        return os.open(self._root / str(cpu) / "msr", os.O_RDONLY | os.O_CLOEXEC)

    def read(self, descriptor: int, register: int) -> bytes:
        """Read one register."""
        return os.pread(descriptor, 8, register)

    def close(self, descriptor: int) -> None:
        """Close the file."""
        os.close(descriptor)


class RegisterRates:
    """Growth of some registers of some cores.

    Attributes
    ----------
    names
        Of the registers.
    cpus
        Whose registers are read.
    problem
        Why none is read; empty when some is.
    bad_counts
        Registers that went back or jumped, since the start.

    Parameters
    ----------
    registers
        By name: number, and bits after which it wraps to 0. One that a core refuses at the start
        is unknown.
    """

    def __init__(
        self,
        files: Registers,
        registers: dict[str, tuple[int, int]],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.names = tuple(registers)
        self.cpus: tuple[int, ...] = ()
        self.problem = ""
        self.bad_counts = 0
        self._files = files
        self._clock_ns = clock_ns
        self._numbers = [number for number, _ in registers.values()]
        self._masks = np.array([(1 << bits) - 1 for _, bits in registers.values()], np.uint64)
        self._asked: tuple[int, ...] = ()
        self._open: dict[int, tuple[int, list[bool]]] = {}
        self._last: dict[int, tuple[int, NDArray[np.uint64], NDArray[np.bool_]]] = {}

    @property
    def present(self) -> NDArray[np.bool_]:
        """Shape ``(cpus, registers)``: whether this core gives this register."""
        works = [self._open[cpu][1] for cpu in self.cpus]
        return np.array(works, np.bool_).reshape(len(works), len(self.names))

    @property
    def calls(self) -> int:
        """How many calls a reading takes."""
        return sum(sum(works) for _, works in self._open.values())

    def follow(self, cpus: tuple[int, ...]) -> None:
        """Read these cores from now on."""
        if cpus == self._asked:
            return
        self._asked = cpus
        self.problem = ""
        for cpu in set(self._open) - set(cpus):
            self._forget(cpu)
        for cpu in cpus:
            if cpu not in self._open:
                try:
                    descriptor = self._files.open(cpu)
                except OSError as e:
                    self.problem = self.problem or f"/dev/cpu/{cpu}/msr: {e.strerror}"
                    continue
                works = [self._one(descriptor, number) is not None for number in self._numbers]
                self._open[cpu] = (descriptor, works)
        self.cpus = tuple(cpu for cpu in cpus if cpu in self._open)
        if self.cpus:
            self.problem = ""

    def try_again(self) -> None:
        """Let the next `follow` open what could not be opened."""
        if len(self.cpus) < len(self._asked):
            self._asked = ()

    def close(self) -> None:
        """Close every file."""
        for cpu in list(self._open):
            self._forget(cpu)
        self.cpus = self._asked = ()

    def rates(self) -> Doubles:
        """Read everything once and return rates per second, shape ``(cpus, registers)``.

        NaN where a register was not read now and before.
        """
        rates = np.full((len(self.cpus), len(self.names)), np.nan)
        for i, cpu in enumerate(self.cpus):
            descriptor, works = self._open[cpu]
            now_ns = self._clock_ns()
            read = [
                self._one(descriptor, number) if work else None
                for number, work in zip(self._numbers, works, strict=True)
            ]
            known = np.array([value is not None for value in read])
            now = np.array([value or 0 for value in read], np.uint64)
            if cpu in self._last:
                then_ns, then, was_known = self._last[cpu]
                growth = ((now - then) & self._masks).astype(np.float64)
                if now_ns > then_ns:
                    growth *= 1e9 / (now_ns - then_ns)
                    wild = known & was_known & (growth > HIGHEST_RATE)
                    self.bad_counts += int(np.count_nonzero(wild))
                    rates[i] = np.where(known & was_known & ~wild, growth, np.nan)
            self._last[cpu] = (now_ns, now, known)
        return rates

    def _one(self, descriptor: int, number: int) -> int | None:
        try:
            content = self._files.read(descriptor, number)
        except OSError:
            return None
        return int.from_bytes(content, "little") if len(content) == 8 else None

    def _forget(self, cpu: int) -> None:
        with contextlib.suppress(OSError):
            self._files.close(self._open.pop(cpu)[0])
        self._last.pop(cpu, None)
