"""Memory of another NUMA node: pages that were meant for one node come from another.

The counters are the kernel's (Documentation/admin-guide/numastat.rst): ``numa_miss`` is memory that
a node gave though another was preferred, ``other_node`` memory that was given to a task that runs
elsewhere.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

SHARE, ABOVE = 10.0, 5.0
"""Percent of allocations, and points above the usual."""
METRICS = ("numa.miss_share", "numa.other_share", "vmstat.numa_miss_share")


def numa_remote(case: Case) -> Cause | None:
    """Look for the node with the largest share of memory for others."""
    if len(case.devices("numa.mem_total")) == 1:
        return None
    found = [r for m in METRICS for r in (*case.devices(m), case.device(m, ""))]
    found = [r for r in found if r.value > max(SHARE, r.high + ABOVE)]
    if not found:
        return None
    worst = max(found, key=lambda r: r.value)
    return Cause(
        "numa_remote",
        "memory",
        "Tasks get memory of another NUMA node: every access crosses the link between sockets.",
        0.7 + 0.25 * between(worst.value, SHARE, 60),
        (worst.evidence, *(r.evidence for r in case.devices("numa.mem_free")[:4])),
        (
            Remedy("numastat -n; numastat -p PID"),
            Remedy("numactl --cpunodebind=N --membind=N COMMAND", changes_host=True),
        ),
    )
