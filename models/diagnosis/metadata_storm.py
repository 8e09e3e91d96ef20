"""A storm of metadata: files made, renamed and removed, or synchronised one by one.

Names and inodes fill slabs that only the kernel sees, and are freed after a grace period of RCU, so
that system time, slabs and RCU rise together while hardly any data are written (kernel,
fs/dcache.c). A storm of syncs shows in flushes of the disk with little behind each.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

SLAB = 1.005
"""Times the usual high end."""
SYSTEM, LEAST_SYSTEM = 1.5, 15.0
RCU, LEAST_RCU = 3.0, 100.0
FLUSHES, LEAST_FLUSHES = 10.0, 50.0
SMALL = 2e7
"""Bytes written per second: with more, it is the data that count."""


def metadata_storm(case: Case) -> Cause | None:
    """Look for slabs, RCU and system time, or for flushes without data."""
    system, rcu = case.host("cpu.system"), case.host("softirq.rcu")
    slab, entries = case.host("memory.s_reclaimable"), case.host("files.dentries")
    written, flushes = case.host("disk.write_bytes"), case.host("disk.flushes")
    if flushes.value != flushes.value:
        flushes = case.top("disk.flushes")
    names = slab.rises(SLAB) or entries.rises(1.02)
    busy = system.rises(SYSTEM, LEAST_SYSTEM) and rcu.rises(RCU, LEAST_RCU)
    synced = flushes.rises(FLUSHES, LEAST_FLUSHES) and written.value < SMALL
    if not (names and busy) and not synced:
        return None
    readings = (flushes, written) if synced else (slab, entries, rcu, system)
    return Cause(
        "metadata_storm",
        "storage",
        "Files are synchronised one by one, with little behind each."
        if synced
        else "Files are made, renamed or removed at a rate that keeps the kernel busy.",
        0.8 + 0.1 * between(flushes.times if synced else rcu.times, 3, 30),
        tuple(r.evidence for r in readings if r.value == r.value),
        (
            Remedy("perf top -a -g --stdio 2>/dev/null | head -40"),
            Remedy("slabtop -o -s c | head -15"),
            Remedy("df -i"),
        ),
    )
