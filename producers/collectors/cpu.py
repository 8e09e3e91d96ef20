"""CPU time per core and state, context switches, run queue: /proc/stat, /proc/loadavg.

Documentation/filesystems/proc.rst, section 1.7. Times are in USER_HZ, 10 ms each, so at 100 ms
a core's share moves in steps of 10 percent.
"""

from __future__ import annotations

import os
from collections import Counter

from producers.collector import Reading, SourceFile
from producers.metric import Metric
from producers.parsing import NumberReader, Planned, Words
from producers.reading import Reader
from schemas.records import Subsystem

STATES = (
    *("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"),
    *("guest", "guest_nice"),
)
PLAIN = {
    b"ctxt": ("cpu.context_switches", True),
    b"processes": ("cpu.forks", True),
    b"procs_running": ("cpu.procs_running", False),
    b"procs_blocked": ("cpu.procs_blocked", False),
}


class Cpu:
    """Shares are percent of one core; those without a device are percent of the machine."""

    name = "cpu"
    sources = (SourceFile("proc/stat", "CPU time", "mount /proc, or give --proc-root its place"),)

    def __init__(self, user_hz: float | None = None) -> None:
        self._user_hz = user_hz or float(os.sysconf("SC_CLK_TCK"))
        self._numbers = NumberReader(self._plan)

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._numbers.broken

    def read(self, reader: Reader) -> Reading:
        """Read /proc/stat without its line of interrupts, which is long and read elsewhere."""
        text = reader.read("proc/stat")
        begin = text.find(b"\nintr ")
        if begin >= 0:
            end = text.find(b"\n", begin + 1)
            text = text[:begin] + (text[end:] if end >= 0 else b"")
        numbers = self._numbers.read(text)
        return Reading(self._numbers.metrics, numbers)

    def _plan(self, lines: list[tuple[int, Words]]) -> Planned:
        cores = sum(w[0][:3] == b"cpu" and len(w[0]) > 3 for _, w in lines)
        planned: Planned = []
        for at, words in lines:
            label = words[0]
            if label[:3] == b"cpu":
                device = label.decode() if len(label) > 3 else ""
                share = 100.0 / self._user_hz / (1 if device else max(cores, 1))
                for i, state in enumerate(STATES[: len(words) - 1]):
                    metric = Metric(
                        f"cpu.{state}", device, Subsystem.CPU, "percent", counter=True, scale=share
                    )
                    planned.append((metric, at + 1 + i))
            elif label in PLAIN and len(words) > 1:
                name, counter = PLAIN[label]
                unit = "1/s" if counter else "tasks"
                planned.append((Metric(name, "", Subsystem.CPU, unit, counter), at + 1))
        return planned
