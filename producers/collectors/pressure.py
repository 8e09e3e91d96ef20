"""Pressure stall information: the share of time that tasks wait for CPU, memory, I/O or IRQs.

Documentation/accounting/psi.rst. What is read is `total`, microseconds of stall since boot: its
rate is exact at any interval, while the averages are smoothed over ten seconds and more.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from producers.collector import Reading, SourceFile
from producers.metric import Metric
from producers.parsing import NumberReader, Planned, Planner, Words
from producers.reading import Reader
from schemas.records import Subsystem

RESOURCES = {
    "cpu": Subsystem.CPU,
    "memory": Subsystem.MEMORY,
    "io": Subsystem.STORAGE,
    "irq": Subsystem.CPU,
}
_REMEDY = "boot with psi=1, on a kernel built with CONFIG_PSI (4.20 or later; irq: 6.1)"
PERCENT = 100 / 1e6


class Pressure:
    """Percent of time in which some, or all, tasks were stalled."""

    name = "pressure"
    sources = tuple(
        SourceFile(f"proc/pressure/{r}", f"time that tasks wait for {r}", _REMEDY)
        for r in RESOURCES
    )

    def __init__(self) -> None:
        self._numbers = {r: NumberReader(_planner(r), separators=b"=") for r in RESOURCES}
        self._parts: tuple[tuple[Metric, ...], ...] = ()
        self._metrics: tuple[Metric, ...] = ()

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return sum((n.broken for n in self._numbers.values()), Counter())

    def read(self, reader: Reader) -> Reading:
        """Read each resource that is there; OSError when none is."""
        parts: list[tuple[Metric, ...]] = []
        values: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
        error: OSError | None = None
        for resource, numbers in self._numbers.items():
            try:
                values.append(numbers.read(reader.read(f"proc/pressure/{resource}")))
            except OSError as e:
                error = e
                values.append(np.full(len(numbers.metrics), np.nan))
            parts.append(numbers.metrics)
        if error is not None and not any(map(len, parts)):
            raise error
        if tuple(parts) != self._parts:
            self._parts = tuple(parts)
            self._metrics = tuple(m for part in parts for m in part)
        return Reading(self._metrics, np.concatenate(values))


def _planner(resource: str) -> Planner:
    def plan(lines: list[tuple[int, Words]]) -> Planned:
        planned: Planned = []
        for at, words in lines:
            if b"total" in words[:-1] and words[0] in (b"some", b"full"):
                metric = Metric(
                    f"pressure.{resource}_{words[0].decode()}",
                    "",
                    RESOURCES[resource],
                    "percent",
                    counter=True,
                    scale=PERCENT,
                )
                planned.append((metric, at + words.index(b"total") + 1))
        return planned

    return plan
