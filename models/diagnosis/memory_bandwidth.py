"""The memory bus is full: cores are busy and wait for memory.

With hardware counters: misses of the last cache rise and instructions per cycle fall. Without them
(most virtual machines) all that shows is another program that computes over buffers of hundreds
of MB, which is told with less confidence: it may as well be after the cores.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between
from models.diagnosis.cpu_contention import crowded

MISSES = 1.5
"""Times the usual."""
IPC = 0.8
BUFFERS = 2.0**27
"""Bytes of anonymous memory above the usual."""
MOST_SHARE, MOST = 0.03, 8e9
"""Of all memory, and bytes: more than that is no buffer to stream over."""


def memory_bandwidth(case: Case) -> Cause | None:
    """Look for cache misses with slow cores, or for busy cores with large new buffers."""
    misses, ipc = case.host("perf.l3_misses"), case.host("perf.ipc")
    if not misses.value > 0:
        misses = case.host("perf.cache_misses")
    show = (Remedy("perf stat -a -e LLC-load-misses,LLC-store-misses,instructions,cycles sleep 5"),)
    if misses.rises(MISSES, 1e6) and ipc.falls(IPC):
        stalls = case.host("perf.l3_miss_stall_ratio")
        return Cause(
            "memory_bandwidth",
            "memory",
            "Cores wait for memory: the last cache misses far more often than usual.",
            0.75 + 0.2 * between(misses.times, MISSES, 5),
            tuple(r.evidence for r in (misses, ipc, stalls) if r.value == r.value),
            (*show, Remedy("ps -eLo pid,psr,pcpu,rss,comm --sort=-pcpu | head")),
        )
    if misses.value == misses.value or not crowded(case):
        return None
    buffers, total = case.host("memory.anon_pages"), case.host("memory.mem_total")
    grown = buffers.value - buffers.high
    if not BUFFERS < grown < min(MOST, MOST_SHARE * total.value):
        return None
    return Cause(
        "memory_bandwidth",
        "memory",
        "Another program computes over large buffers: it takes cores and, in all likelihood, "
        "bandwidth of the memory. Hardware counters would tell, but this host shows none.",
        0.7,
        (buffers.evidence, case.host("cpu.user").evidence),
        (*show, Remedy("ps -eLo pid,psr,pcpu,rss,comm --sort=-pcpu | head")),
    )
