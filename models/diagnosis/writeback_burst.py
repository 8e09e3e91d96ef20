"""Disks are busy writing: far more bytes than usual, and tasks wait for them."""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

TIMES = 4.0
LEAST = 2e7
"""Bytes per second: a disk that writes less is not busy with it."""
WAITS = 10.0
"""Percent of the time that some task waits for disks."""


def writeback_burst(case: Case) -> Cause | None:
    """Look for bytes written."""
    written = case.host("disk.write_bytes")
    pressure, dirty = case.host("pressure.io_some"), case.host("memory.dirty")
    if not written.rises(TIMES, LEAST):
        return None
    busy = case.top("disk.busy")
    waits = pressure.rises(2.0, WAITS)
    return Cause(
        "writeback_burst",
        "storage",
        "Disks are busy writing" + (", and tasks wait for them." if waits else "."),
        0.75 + 0.1 * waits + 0.1 * between(written.times, TIMES, 20),
        tuple(r.evidence for r in (written, busy, pressure, dirty) if r.value == r.value),
        (
            Remedy("iostat -x 1 3"),
            Remedy("pidstat -d 1 3"),
            Remedy("sysctl vm.dirty_background_bytes vm.dirty_bytes"),
        ),
    )
