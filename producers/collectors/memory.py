"""Memory: /proc/meminfo (levels) and /proc/vmstat (levels in pages, and events).

Documentation/filesystems/proc.rst, sections 1.4 and "meminfo"; mm/vmstat.c for what counts up.
Dirty and writeback pages are on their way to a disk, so they belong to storage.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from producers.collector import Reading, SourceFile
from producers.metric import Metric
from producers.parsing import NumberReader, Planned, Words
from producers.reading import Reader
from schemas.records import Subsystem

KIB = 1024.0
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STORAGE = re.compile(r"dirt|writeback|written|^pgpg(in|out)$|vmscan_write")

NR_COUNTERS = frozenset(
    (
        *("nr_dirtied", "nr_written", "nr_throttled_written", "nr_vmscan_write"),
        *("nr_vmscan_immediate_reclaim", "nr_foll_pin_acquired", "nr_foll_pin_released"),
    )
)
"""Names that begin like levels but count up."""
ADDRESS_SPACE = frozenset((b"VmallocTotal",))
"""Not memory: how much of it could be addressed."""
OTHER_GAUGES = frozenset(("workingset_nodes",))


class Meminfo:
    """Levels in bytes, and `memory.used`, which never counts free hugepages as used."""

    name = "meminfo"
    sources = (SourceFile("proc/meminfo", "memory levels", "mount /proc"),)
    _USED = Metric("memory.used", "", Subsystem.MEMORY, "bytes", counter=False)
    _NOT_USED = ("mem_free", "buffers", "cached", "s_reclaimable")

    def __init__(self) -> None:
        self._numbers = NumberReader(self._plan, separators=b":")
        self._planned: tuple[Metric, ...] = ()
        self._metrics: tuple[Metric, ...] = ()
        self._places: dict[str, int] = {}

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._numbers.broken

    def read(self, reader: Reader) -> Reading:
        """Read the levels and add the one that is derived."""
        numbers = self._numbers.read(reader.read("proc/meminfo"))
        if self._numbers.metrics is not self._planned:
            self._planned = self._numbers.metrics
            self._metrics = (*self._planned, self._USED)
            self._places = {m.name.split(".")[1]: i for i, m in enumerate(self._planned)}
        return Reading(self._metrics, np.append(numbers, self._used(numbers) * KIB))

    def _used(self, kib: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        places = self._places
        if "mem_total" not in places:
            return float("nan")
        used = float(kib[places["mem_total"]])
        for name in self._NOT_USED:
            if name in places:
                used -= float(kib[places[name]])
        if "huge_pages_free" in places and "hugepagesize" in places:
            used -= float(kib[places["huge_pages_free"]] * kib[places["hugepagesize"]])
        return used

    @staticmethod
    def _plan(lines: list[tuple[int, Words]]) -> Planned:
        planned: Planned = []
        for at, words in lines:
            if len(words) < 2 or words[0] in ADDRESS_SPACE:
                continue
            name = _CAMEL.sub("_", words[0].decode(errors="replace")).lower()
            name = name.replace("(", "_").replace(")", "").replace("__", "_")
            storage = _STORAGE.search(name) is not None
            kib = len(words) > 2 and words[2] == b"kB"
            metric = Metric(
                f"memory.{name}",
                "",
                Subsystem.STORAGE if storage else Subsystem.MEMORY,
                "bytes" if kib else "pages",
                counter=False,
                scale=KIB if kib else 1.0,
            )
            planned.append((metric, at + 1))
        return planned


class Vmstat:
    """Levels in pages and events per second, under the kernel's names."""

    name = "vmstat"
    sources = (SourceFile("proc/vmstat", "faults, reclaim, compaction", "mount /proc"),)

    def __init__(self) -> None:
        self._numbers = NumberReader(self._plan)

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        return self._numbers.broken

    def read(self, reader: Reader) -> Reading:
        """Read levels and events."""
        numbers = self._numbers.read(reader.read("proc/vmstat"))
        return Reading(self._numbers.metrics, numbers)

    @staticmethod
    def _plan(lines: list[tuple[int, Words]]) -> Planned:
        planned: Planned = []
        for at, words in lines:
            if len(words) < 2:
                continue
            name = words[0].decode(errors="replace")
            level = name in OTHER_GAUGES or (name.startswith("nr_") and name not in NR_COUNTERS)
            storage = _STORAGE.search(name) is not None
            metric = Metric(
                f"vmstat.{name}",
                "",
                Subsystem.STORAGE if storage else Subsystem.MEMORY,
                "pages" if level else "1/s",
                counter=not level,
            )
            planned.append((metric, at + 1))
        return planned
