"""A storm of context switches: tasks that wake each other or give way all the time."""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

TIMES, LEAST = 8.0, 50_000.0
"""Switches per second. A core can do some hundred thousand."""
PACKETS = 5.0
"""Times the usual received packets, from which on the switches come from them."""


def context_switch_storm(case: Case) -> Cause | None:
    """Look for switches that neither packets nor disks explain."""
    switches = case.host("cpu.context_switches")
    if not switches.rises(TIMES, LEAST) or case.host("softirq.net_rx").rises(PACKETS, 10_000.0):
        return None
    if case.host("disk.busy").rises(2.0, 50.0):
        return None
    system, waits = case.host("cpu.system"), case.host("pressure.cpu_some")
    return Cause(
        "context_switch_storm",
        "cpu",
        "Tasks switch so often that the cores are busy with switching.",
        0.8 + 0.15 * between(switches.times, TIMES, 50),
        tuple(r.evidence for r in (switches, system, waits) if r.value == r.value),
        (Remedy("pidstat -w 1 3"), Remedy("perf sched record -- sleep 2 && perf sched latency")),
    )
