"""Block devices: /proc/diskstats (Documentation/admin-guide/iostats.rst).

Whole disks only: a partition's I/O is its disk's, and a loop or RAM disk's is the disk's or
memory's behind it.
"""

from __future__ import annotations

import re
from collections import Counter

from producers.collector import Reading, SourceFile
from producers.metric import Metric
from producers.parsing import NumberReader, Planned, Words
from producers.reading import Reader
from schemas.records import Subsystem

SECTOR = 512.0
FIELDS: tuple[tuple[str, str, float], ...] = (
    ("reads", "1/s", 1),
    ("reads_merged", "1/s", 1),
    ("read_bytes", "bytes/s", SECTOR),
    ("read_time", "ms/s", 1),
    ("writes", "1/s", 1),
    ("writes_merged", "1/s", 1),
    ("write_bytes", "bytes/s", SECTOR),
    ("write_time", "ms/s", 1),
    ("in_flight", "requests", 1),
    ("busy", "percent", 0.1),
    ("queue_time", "ms/s", 1),
    ("discards", "1/s", 1),
    ("discards_merged", "1/s", 1),
    ("discard_bytes", "bytes/s", SECTOR),
    ("discard_time", "ms/s", 1),
    ("flushes", "1/s", 1),
    ("flush_time", "ms/s", 1),
)
GAUGES = frozenset(("in_flight",))
_VIRTUAL = re.compile(r"(loop|ram|zram|fd|sr)\d+$")
_PARTITION = re.compile(r"((?:sd|vd|xvd|hd)[a-z]+)\d+$|((?:nvme\d+n|mmcblk|md|nbd)\d+)p\d+$")


class Disks:
    """Requests, bytes, time and queue of every whole disk."""

    name = "diskstats"
    sources = (SourceFile("proc/diskstats", "I/O of every disk", "mount /proc"),)

    def __init__(self) -> None:
        self._numbers = NumberReader(self._plan)

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._numbers.broken

    def read(self, reader: Reader) -> Reading:
        """Read the counters of every whole disk."""
        numbers = self._numbers.read(reader.read("proc/diskstats"))
        return Reading(self._numbers.metrics, numbers)

    @staticmethod
    def _plan(lines: list[tuple[int, Words]]) -> Planned:
        names = {w[2].decode(errors="replace") for _, w in lines if len(w) > 3}
        planned: Planned = []
        for at, words in lines:
            if len(words) < 4:
                continue
            device = words[2].decode(errors="replace")
            part = _PARTITION.match(device)
            if _VIRTUAL.match(device) or (part and (part[1] or part[2]) in names):
                continue
            for i, (field, unit, scale) in enumerate(FIELDS[: len(words) - 3]):
                metric = Metric(
                    f"disk.{field}", device, Subsystem.STORAGE, unit, field not in GAUGES, scale
                )
                planned.append((metric, at + 3 + i))
        return planned
