"""Tasks wait for one core while others idle: an affinity mask, a cpuset, or a pinned thread pool.

Pressure says that tasks wait for a core, and yet there is idle time (kernel, Documentation/
accounting/psi.rst; sched_setaffinity(2)).
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

WAITS, LEAST_WAITS = 2.0, 25.0
FULL, SPARE = 65.0, 40.0
"""Percent that the busiest core is busy, and that the others are, on average, at most. The busiest
is not full where the workload itself stops and goes."""


def affinity_one_core(case: Case) -> Cause | None:
    """Look for waiting beside idle cores."""
    waits = case.host("pressure.cpu_some")
    cores = sorted(case.devices("cpu.busy"), key=lambda r: -r.value)
    if len(cores) < 2 or not waits.rises(WAITS, LEAST_WAITS):
        return None
    full, others = cores[0], cores[1:]
    spare = sum(r.value for r in others) / len(others)
    usual = sum(r.low for r in others) / len(others)
    if not (full.value > FULL and spare < min(SPARE, 0.7 * usual)):
        return None
    return Cause(
        "affinity_one_core",
        "cpu",
        f"Tasks wait for {full.label.removeprefix('cpu.busy')} while other cores idle: they are "
        "bound to it.",
        0.85 + 0.1 * between(full.value - spare, 40, 90),
        (waits.evidence, full.evidence, min(others, key=lambda r: r.value).evidence),
        (
            Remedy("for p in $(pgrep -f .); do taskset -cp $p; done 2>/dev/null | sort -k6 | head"),
            Remedy("taskset -acp 0-$(($(nproc)-1)) PID", changes_host=True),
        ),
    )
