"""Memory runs out: what is available falls, and what programs have taken grows as much.

Reclaim, swapping and pressure follow when hardly any is left (kernel, Documentation/accounting/
psi.rst for pressure).
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

LEAST_SHARE = 0.03
"""Of all memory, by which what is available has to be below the usual."""
PRESSURE = 5.0
"""Percent of the time that some task waits for memory."""


def memory_exhaustion(case: Case) -> Cause | None:
    """Look for memory taken by programs, or for tasks that wait for memory."""
    total, available = case.host("memory.mem_total"), case.host("memory.mem_available")
    anonymous = case.host("memory.anon_pages")
    gone = (available.low - available.value) / total.value
    taken = (anonymous.value - anonymous.high) / total.value
    pressure, oom = case.host("pressure.memory_some"), case.host("vmstat.oom_kill")
    waits = pressure.rises(2.0, PRESSURE) or oom.rises(1.0, 0.0)
    if not waits and not (gone > LEAST_SHARE and taken > 0.5 * gone):
        return None
    left = available.value / total.value
    return Cause(
        "memory_exhaustion",
        "memory",
        f"Programs take memory: {100 * left:.0f} % of it is left"
        + (", and tasks wait for it." if waits else "."),
        0.9 if waits else 0.75 + 0.2 * between(gone, LEAST_SHARE, 0.2),
        tuple(r.evidence for r in (available, anonymous, pressure) if r.value == r.value),
        (
            Remedy("ps -eo pid,rss,comm --sort=-rss | head"),
            Remedy("cat /proc/pressure/memory"),
        ),
    )
