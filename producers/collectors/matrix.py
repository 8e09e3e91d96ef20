"""Tables of counts with a column per CPU: /proc/interrupts and /proc/softirqs have this form.

A row a source, a column a CPU that is online; what is published is the sum of each row and of
each column, which is what an imbalance shows in, without rows times columns of channels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from producers.collector import Reading
from producers.metric import Metric
from producers.parsing import LARGEST, Words
from schemas.records import Subsystem

RowName = Callable[[Words, int], str]
"""Gets the words of a row and how many counts it has; returns the device's name."""


class CountMatrix:
    """Sums of rows ``{prefix}.source`` and of columns ``{prefix}.core``."""

    def __init__(self, prefix: str, row_name: RowName) -> None:
        self._prefix = prefix
        self._row_name = row_name
        self._labels: list[bytes] = []
        self._sizes: list[int] = []
        self._cpus: list[bytes] = []
        self._metrics: tuple[Metric, ...] = ()
        self._full = np.empty(0, np.bool_)
        self.broken: Counter[str] = Counter()

    def read(self, text: bytes) -> Reading:
        """Return the sums; columns are found by the header at every read."""
        head, _, body = text.partition(b"\n")
        cpus = head.split()
        count = len(cpus)
        rows = [line.split(None, count + 1) for line in body.splitlines()]
        rows = [row for row in rows if len(row) > 1 and row[0].endswith(b":")]
        labels = [row[0] for row in rows]
        cells = [row[1 : count + 1] for row in rows]
        sizes = [len(c) for c in cells]
        if (labels, sizes, cpus) != (self._labels, self._sizes, self._cpus):
            self._rename(labels, sizes, rows, cpus)
        full = self._full
        table = self._numbers([c for c, f in zip(cells, full, strict=True) if f], labels)
        sums = np.empty(len(rows))
        if len(table):
            sums[full] = table.sum(1)
        for i in np.flatnonzero(~full):
            # ERR and MIS have one count; a row cut short has what is there.
            sums[i] = self._numbers([cells[i]], [labels[i]]).sum()
        columns = table.sum(0) if len(table) else np.full(count, np.nan)
        return Reading(self._metrics, np.concatenate([sums, columns]))

    def _numbers(self, cells: list[list[bytes]], labels: list[bytes]) -> NDArray[np.float64]:
        try:
            table = np.array([list(map(float, row)) for row in cells])
        except ValueError:
            table = np.array([[self._number(word) for word in row] for row in cells])
        bad = ~((table >= 0) & (table < LARGEST))
        if bad.any():
            table[bad] = np.nan
            for i in np.flatnonzero(bad.any(1)):
                self.broken[f"{self._prefix}.source[{labels[i].decode(errors='replace')}]"] += 1
        return table

    @staticmethod
    def _number(word: bytes) -> float:
        try:
            return float(word)
        except ValueError:
            return np.nan

    def _rename(
        self, labels: list[bytes], sizes: list[int], rows: list[Words], cpus: list[bytes]
    ) -> None:
        self._labels, self._sizes, self._cpus = labels, sizes, cpus
        names = [self._row_name(row, size) for row, size in zip(rows, sizes, strict=True)]
        seen = Counter(names)
        metrics = []
        for label, name in zip(labels, names, strict=True):
            if seen[name] > 1:
                name = f"{name}#{label.decode(errors='replace').rstrip(':')}"
            metrics.append(self._metric("source", name))
        metrics += [self._metric("core", cpu.decode(errors="replace").lower()) for cpu in cpus]
        self._full = np.array([s == len(cpus) for s in sizes], np.bool_)
        if tuple(metrics) != self._metrics:
            self._metrics = tuple(metrics)

    def _metric(self, what: str, device: str) -> Metric:
        return Metric(f"{self._prefix}.{what}", device, Subsystem.CPU, "1/s", counter=True)
