"""Softirqs per kind and per core: /proc/softirqs (Documentation/filesystems/proc.rst, 1.7)."""

from __future__ import annotations

from collections import Counter

from producers.collector import Reading, SourceFile
from producers.collectors.matrix import CountMatrix
from producers.reading import Reader


class Softirqs:
    """Sums over cores for each kind, and over kinds for each core."""

    name = "softirqs"
    sources = (SourceFile("proc/softirqs", "softirqs per kind and core", "mount /proc"),)

    def __init__(self) -> None:
        self._matrix = CountMatrix(
            "softirq", lambda row, _: row[0].decode(errors="replace").rstrip(":").lower()
        )

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._matrix.broken

    def read(self, reader: Reader) -> Reading:
        """Read the table."""
        return self._matrix.read(reader.read("proc/softirqs"))
