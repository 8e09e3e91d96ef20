"""How memory is used and what the kernel does to find some: /proc/meminfo, /proc/vmstat.

Kernel: Documentation/filesystems/proc.rst (meminfo), mm/vmstat.c and include/linux/mmzone.h
(vmstat). Dirty and writeback pages wait for a disk: their channels speak of storage.
"""

from __future__ import annotations

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines, snake_case
from producers.source import Collector, Doubles
from schemas.records import Channel, Kind, Subsystem

_KIB = 1024
_REMEDY = "Without it {what} cannot be seen. Mount the host's /proc and name it with --proc-root."

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


def plan_meminfo(text: str) -> Draft:
    """Plan /proc/meminfo: every line in bytes or pages, and the memory in use."""
    draft = Draft()
    for at, words in numbered_lines(text):
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
    of it is taken off, and the huge pages of the default size that are given out are put back.
    (meminfo does not say how many of the other sizes are.)
    """

    def level(name: str) -> float:
        at = place.get(f"memory.{name}")
        return 0.0 if at is None else float(levels[at])

    page = level("hugepagesize")
    reserved = level("hugetlb" if "memory.hugetlb" in place else "huge_pages_total")
    if "memory.hugetlb" not in place:
        reserved *= page
    given_out = (level("huge_pages_total") - level("huge_pages_free")) * page
    return np.array([level("mem_total") - level("mem_available") - reserved + given_out])


def plan_vmstat(text: str) -> Draft:
    """Plan /proc/vmstat: numbers of pages are levels, everything else is counted."""
    draft = Draft()
    for at, words in numbered_lines(text):
        if len(words) != 2:
            continue
        name = words[0]
        level = (name.startswith("nr_") and name not in COUNTED_NR) or name in LEVELS
        unit, scale = ("pages" if level else "/s"), 1
        if name in {"nr_kernel_stack", "nr_shadow_call_stack"}:
            unit = "KiB"
        if name in {"pgpgin", "pgpgout"}:
            unit, scale = "B/s", _KIB  # counted in KiB, whatever their names say
        subsystem = Subsystem.STORAGE if name in STORAGE_VMSTAT else Subsystem.MEMORY
        kind = Kind.GAUGE if level else Kind.RATE
        channel = Channel(f"vmstat.{name}", "", subsystem, unit, kind)
        draft.channel(at + 1, channel, scale=scale)
    return draft


def collector() -> Collector:
    """Return a collector of memory."""
    return Collector(
        "memory",
        (
            TextFile("proc/meminfo", plan_meminfo, remedy=_REMEDY.format(what="memory use")),
            TextFile("proc/vmstat", plan_vmstat, remedy=_REMEDY.format(what="paging and reclaim")),
        ),
    )
