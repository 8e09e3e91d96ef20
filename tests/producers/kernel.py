"""Kernel files for tests: our own recording, changed as a test needs it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from producers.collectors import ALL
from producers.group import Group
from producers.reading import MemoryReader
from producers.source import Collector

FIXTURES = Path(__file__).parents[1] / "fixtures" / "kernel"
BETWEEN_NS = 999_989_867
BETWEEN_S = BETWEEN_NS / 1e9
MEANS = re.compile(r"await|lustre_target\.in_flight")
"""Channels that are means of what happened since the reading before: unknown when nothing did."""


def files(which: str) -> dict[str, bytes]:
    """Return the files of the ``first`` or ``second`` reading, by path below the root."""
    root = FIXTURES / which
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


FIRST = files("first")
SECOND = files("second")


def collector(name: str) -> Collector:
    """Return a new collector of this name."""
    return next(made for make in ALL if (made := make()).name == name)


class Host:
    """Collectors over files in memory; every reading is a second after the one before."""

    def __init__(self, *names: str) -> None:
        self.reader = MemoryReader()
        every = [c for make in ALL for c in [make()] if not names or c.name in names]
        self.sources = [source for c in every for source in c.sources]
        self.group = Group(every, self.reader)
        self._at_ns = 5_000_000_000

    def read(self, files: dict[str, bytes], after_ns: int = BETWEEN_NS) -> dict[str, float]:
        """Return the values by label."""
        self.reader.files = files
        self._at_ns += after_ns
        values: NDArray[np.float32] = self.group.collect(self._at_ns, whole=True)
        assert len(values) == len(self.group.channels)
        assert np.isfinite(values[~np.isnan(values)]).all()
        labels = [c.label for c in self.group.channels]
        assert len(set(labels)) == len(labels)
        return dict(zip(labels, values.tolist(), strict=True))

    def twice(self) -> dict[str, float]:
        """Return the values of the second reading of the recording."""
        self.read(FIRST)
        return self.read(SECOND)

    @property
    def failures(self) -> int:
        """How often a source failed."""
        return sum(stats.failures.total() for stats in self.group.stats.values())

    @property
    def bad_fields(self) -> int:
        """How many numbers were none."""
        return sum(stats.bad_fields for stats in self.group.stats.values())
