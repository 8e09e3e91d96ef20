"""The workload stands still: no traffic, idle cores, though the host is well.

A rank that is stopped, or that waits for another one, neither computes nor sends.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy
from models.diagnosis.traffic import LEAST_BYTES, sent_and_received

SILENT = 0.005
"""Of the usual traffic; a link that is capped still carries more."""
IDLE = 0.5
"""Of the usual busy time."""


def stalled_rank(case: Case) -> Cause | None:
    """Look for silence of network and cores together."""
    traffic, busy = sent_and_received(case), case.host("cpu.busy")
    if busy.value != busy.value:
        busy = case.total("cpu.busy")
    if not (traffic.falls(SILENT, LEAST_BYTES) and busy.falls(IDLE, 2.0)):
        return None
    return Cause(
        "stalled_rank",
        "cpu",
        "The workload stands still: it sends nothing and computes nothing.",
        0.9,
        (traffic.evidence, busy.evidence, case.host("cpu.procs_running").evidence),
        (
            Remedy("ps -eo pid,stat,wchan:30,comm | awk '$2 ~ /^[TD]/'"),
            Remedy("kill -CONT PID", changes_host=True),
        ),
    )
