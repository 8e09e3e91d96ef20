"""Interrupts per source and per core: /proc/interrupts.

Documentation/filesystems/proc.rst, section 1.2. The file grows with cores times sources and is
slow to read on large hosts: over `LARGE_BYTES` it is read once a second.
"""

from __future__ import annotations

from collections import Counter

from producers.collector import Reading, SourceFile
from producers.collectors.matrix import CountMatrix
from producers.parsing import Words
from producers.reading import Reader

LARGE_BYTES = 65536
LARGE_EVERY = 10
"""Ticks between two reads of a large file."""


class Interrupts:
    """Sums over cores for each source, and over sources for each core."""

    name = "interrupts"
    sources = (SourceFile("proc/interrupts", "interrupts per source and core", "mount /proc"),)

    def __init__(self) -> None:
        self._matrix = CountMatrix("irq", _name)
        self._last: Reading | None = None
        self._wait = 0

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._matrix.broken

    def read(self, reader: Reader) -> Reading:
        """Read the table, or hold the last one while a large one waits for its turn."""
        if self._wait > 0 and self._last is not None:
            self._wait -= 1
            return self._last
        text = reader.read("proc/interrupts")
        self._wait = LARGE_EVERY - 1 if len(text) > LARGE_BYTES else 0
        self._last = self._matrix.read(text)
        return self._last


def _name(row: Words, counts: int) -> str:
    """Return ``virtio3-rx`` for a device's line, ``LOC`` for an architecture's."""
    label = row[0].decode(errors="replace").rstrip(":")
    if not label.isdigit() or len(row) <= counts + 1:
        return label
    return row[-1].split()[-1].decode(errors="replace")
