"""How memory is used and what the kernel does to find some: /proc/meminfo, /proc/vmstat.

Kernel: Documentation/filesystems/proc.rst (meminfo), mm/vmstat.c and include/linux/mmzone.h
(vmstat). Dirty and writeback pages wait for a disk: their channels speak of storage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from producers.collectors.hugepages import SIZES, page_bytes
from producers.parsing import Draft, TextFile, numbered_lines, snake_case
from producers.reading import Reader
from producers.source import FIFTH_SECOND_NS, SECOND_NS, Collector, Doubles, Field
from schemas.records import Channel, Kind, Subsystem

_KIB = 1024
_REMEDY = "Without it {what} cannot be seen. Mount the host's /proc and name it with --path.proc."

STORAGE_MEMINFO = {"Dirty", "Writeback", "WritebackTmp", "NFS_Unstable"}

STORAGE_VMSTAT = {
    "nr_dirty",
    "nr_writeback",
    "nr_writeback_temp",
    "nr_zone_write_pending",
    "nr_unstable",
    "nr_dirtied",
    "nr_written",
    "nr_throttled_written",
    "nr_vmscan_write",
    "pgpgin",
    "pgpgout",
}

COUNTED_NR = {
    "nr_dirtied",
    "nr_written",
    "nr_throttled_written",
    "nr_vmscan_write",
    "nr_vmscan_immediate_reclaim",
    "nr_foll_pin_acquired",
    "nr_foll_pin_released",
    "nr_tlb_remote_flush",
    "nr_tlb_remote_flush_received",
    "nr_tlb_local_flush_all",
    "nr_tlb_local_flush_one",
}
"""Names in vmstat that begin like a number of pages but only grow."""

LEVELS = {"workingset_nodes"}
"""Names in vmstat that are levels without beginning with ``nr_``."""

LEVEL_UNITS = {
    "nr_kernel_stack": "KiB",
    "nr_shadow_call_stack": "KiB",
    "nr_shadow_call_stack_bytes": "B",
    "nr_indirectly_reclaimable": "B",
    "nr_anon_transparent_hugepages": "hugepages",
    "nr_shmem_hugepages": "hugepages",
    "nr_shmem_pmdmapped": "hugepages",
    "nr_file_hugepages": "hugepages",
    "nr_file_pmdmapped": "hugepages",
}
"""Levels in vmstat that do not count pages of the usual size."""

OTHER_SIZES = "OtherHugePages:"
"""Begins the line that we put after those of meminfo: KiB in pools of huge pages that have another
size than the default, and KiB of these that are given out."""


def plan_meminfo(text: str) -> Draft:
    """Plan /proc/meminfo: every line in bytes or pages, and the memory in use."""
    draft = Draft()
    for at, words in numbered_lines(text):
        if words[0] == OTHER_SIZES:
            draft.field(at + 1, Field("others_total", False, _KIB))
            draft.field(at + 2, Field("others_used", False, _KIB))
            continue
        if len(words) < 2 or not words[0].endswith(":"):
            continue
        name = words[0].removesuffix(":")
        subsystem = Subsystem.STORAGE if name in STORAGE_MEMINFO else Subsystem.MEMORY
        unit, scale = ("B", _KIB) if words[-1] == "kB" else ("pages", 1)
        draft.channel(
            at + 1,  # where the number is missing this is "kB": not a number, and counted
            Channel(f"memory.{snake_case(name)}", "", subsystem, unit, Kind.GAUGE),
            scale=scale,
        )
    place = {key: i for i, key in enumerate(draft.fields)}
    needed = ("mem_total", "mem_available")
    if all(f"memory.{name}" in place for name in needed):
        in_use = Channel("memory.in_use", "", Subsystem.MEMORY, "B", Kind.GAUGE)
        draft.derived([in_use], lambda levels: memory_in_use(levels, place))
    return draft


def memory_in_use(levels: Doubles, place: dict[str, int]) -> Doubles:
    """Return the bytes that programs and the kernel hold.

    What is set aside for huge pages is not available to others and yet in use by nobody, so all
    of it is taken off, and the huge pages that are given out are put back.
    """

    def level(key: str) -> float:
        at = place.get(key)
        return 0.0 if at is None else float(levels[at])

    page = level("memory.hugepagesize")
    if "memory.hugetlb" in place:
        set_aside = level("memory.hugetlb")
    else:
        set_aside = level("memory.huge_pages_total") * page + level("others_total")
    given_out = (level("memory.huge_pages_total") - level("memory.huge_pages_free")) * page
    given_out += level("others_used")
    taken = level("memory.mem_total") - level("memory.mem_available")
    return np.array([taken - set_aside + given_out])


class Meminfo(TextFile):
    """/proc/meminfo, which says of huge pages of the default size alone how many are given out.

    Those of other sizes are looked up in /sys once a second, and put in a line of our own.
    """

    def __init__(self) -> None:
        super().__init__(
            *("proc/meminfo", plan_meminfo),
            # What moves fast in it, /proc/vmstat has at every tick in pages.
            period_ns=FIFTH_SECOND_NS,
            remedy=_REMEDY.format(what="memory use"),
        )
        self._looked_ns: int | None = None
        self._others = b""

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Read and parse the file and our line."""
        text = reader.read(self.path)
        if not isinstance(text, bytes):
            self.problem = f"{self.path}: {text.reason}"
            return self.plan.blank
        if self._looked_ns is None or not 0 <= mono_ns - self._looked_ns < SECOND_NS:
            self._looked_ns = mono_ns
            self._others = other_sizes(reader, text)
        return self.parse(text + self._others if text.endswith(b"\n") else text)


def other_sizes(reader: Reader, meminfo: bytes) -> bytes:
    """Return the line about huge pages of other sizes; nothing where there are none."""
    default = re.search(rb"^Hugepagesize:\s+(\d{1,12}) kB$", meminfo, re.MULTILINE)
    names = reader.list(SIZES)
    if default is None or not isinstance(names, tuple):
        return b""
    sizes = {name: page_bytes(name) // _KIB for name in names}
    others = {name: kib for name, kib in sizes.items() if kib not in {0, int(default[1])}}
    if not others:
        return b""
    total = used = 0
    try:
        for name, kib in others.items():
            pages = _pages(reader, f"{SIZES}/{name}/nr_hugepages")
            total += kib * pages
            used += kib * (pages - _pages(reader, f"{SIZES}/{name}/free_hugepages"))
    except ValueError:
        return f"{OTHER_SIZES} unknown unknown\n".encode()
    return f"{OTHER_SIZES} {total} {max(used, 0)}\n".encode()


def _pages(reader: Reader, path: str) -> int:
    content = reader.small(path)
    digits = content.strip() if isinstance(content, bytes) else b""
    if not re.fullmatch(rb"\d{1,15}", digits):
        raise ValueError(f"{path} has no number of pages")
    return int(digits)


def plan_vmstat(text: str) -> Draft:
    """Plan /proc/vmstat: numbers of pages are levels, everything else is counted.

    Of pages that went to another node than was wanted there is a share too.
    """
    draft = Draft()
    for at, words in numbered_lines(text):
        if len(words) != 2:
            continue
        name = words[0]
        level = (name.startswith("nr_") and name not in COUNTED_NR) or name in LEVELS
        unit, scale = (LEVEL_UNITS.get(name, "pages") if level else "/s"), 1
        if name in {"pgpgin", "pgpgout"}:
            unit, scale = "B/s", _KIB  # counted in KiB, whatever their names say
        subsystem = Subsystem.STORAGE if name in STORAGE_VMSTAT else Subsystem.MEMORY
        kind = Kind.GAUGE if level else Kind.RATE
        channel = Channel(f"vmstat.{name}", "", subsystem, unit, kind)
        draft.channel(at + 1, channel, scale=scale)
    order = {key: i for i, key in enumerate(draft.fields)}
    missed, hit = order.get("vmstat.numa_miss"), order.get("vmstat.numa_hit")
    if missed is not None and hit is not None:
        channel = Channel("vmstat.numa_miss_share", "", Subsystem.MEMORY, "%", Kind.RATE)
        draft.derived(
            [channel],
            lambda rates: np.array([share(float(rates[missed]), float(rates[hit]))]),
            {channel.label: ("vmstat.numa_miss", "vmstat.numa_hit")},
        )
    return draft


def share(part: float, rest: float) -> float:
    """Return what percentage `part` is of both together; 0 of nothing."""
    return 100 * part / (part + rest) if part + rest else 0.0


def collector() -> Collector:
    """Return a collector of memory."""
    return Collector(
        "memory",
        (
            Meminfo(),
            TextFile("proc/vmstat", plan_vmstat, remedy=_REMEDY.format(what="paging and reclaim")),
        ),
    )
