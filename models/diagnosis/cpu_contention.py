"""Other programs take the cores: more tasks want to run than there are cores.

Time in user mode rises, tasks wait for a core (pressure, run queue), and the workload's own traffic
falls behind. Kernel time that rises instead is another matter, which other rules know.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

USER = 1.15
SYSTEM = 2.5
"""Times the usual kernel time, from which on it is the kernel that is busy."""
WAITS = 1.25
IDLE = 0.7


def crowded(case: Case) -> bool:
    """Return whether cores are short: more user time, less idle time, and tasks that wait."""
    user, nice = case.host("cpu.user"), case.host("cpu.nice")
    if not (user.rises(USER, 5.0) or nice.rises(2.0, 5.0)):
        return False
    if case.host("cpu.system").rises(SYSTEM, 15.0) or not case.host("cpu.idle").falls(IDLE):
        return False
    waits = case.host("pressure.cpu_some")
    if waits.value == waits.value:
        return waits.rises(WAITS, 5.0)
    return case.host("cpu.procs_running").rises(1.1, 1.0)


def cpu_contention(case: Case) -> Cause | None:
    """Look for cores that are short."""
    if not crowded(case):
        return None
    user, idle = case.host("cpu.user"), case.host("cpu.idle")
    waits, running = case.host("pressure.cpu_some"), case.host("cpu.procs_running")
    return Cause(
        "cpu_contention",
        "cpu",
        "Other programs take the cores: tasks wait for one.",
        0.6 + 0.08 * between(waits.times, WAITS, 4),
        tuple(r.evidence for r in (user, idle, waits, running) if r.value == r.value),
        (
            Remedy("ps -eo pid,psr,pcpu,comm --sort=-pcpu | head"),
            Remedy("cat /proc/pressure/cpu"),
            Remedy("renice -n 19 -p PID", changes_host=True),
        ),
    )
