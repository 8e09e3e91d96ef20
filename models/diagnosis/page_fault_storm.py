"""A storm of page faults: programs map and touch pages all the time, and keep none.

Faults rise far above the usual while the memory that is taken does not: taking memory faults as
well, once a page (kernel, mm/memory.c, counted as ``pgfault`` in /proc/vmstat).
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between
from models.diagnosis.memory_exhaustion import LEAST_SHARE

TIMES = 1.5
LEAST = 10_000.0
"""Faults per second."""


def page_fault_storm(case: Case) -> Cause | None:
    """Look for faults without growth."""
    faults, major = case.host("vmstat.pgfault"), case.host("vmstat.pgmajfault")
    total, available = case.host("memory.mem_total"), case.host("memory.mem_available")
    if not faults.rises(TIMES, LEAST):
        return None
    if available.low - available.value > LEAST_SHARE * total.value:
        return None
    system = case.host("cpu.system")
    return Cause(
        "page_fault_storm",
        "memory",
        "Programs fault in pages far more often than usual: the kernel is busy with mapping them.",
        0.8 + 0.15 * between(faults.times, TIMES, 10),
        (faults.evidence, major.evidence, system.evidence),
        (
            Remedy("perf trace -a -F all --no-syscalls -- sleep 2 2>&1 | head -50"),
            Remedy("ps -eo pid,min_flt,maj_flt,comm --sort=-min_flt | head"),
        ),
    )
