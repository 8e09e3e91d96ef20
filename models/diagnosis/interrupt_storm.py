"""An interrupt source that fires without end: timers, a device, a stuck line.

Interrupts between cores (rescheduling, function calls, TLB) follow from other work and are left
out. /proc/interrupts names the sources.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

TIMES, LEAST = 4.0, 5_000.0
"""Interrupts per second."""
FOLLOW = {f"irq.source[{name}]" for name in ("RES", "CAL", "TLB", "IWI", "RTR", "PMI", "NMI")}
PACKETS = 3.0


def interrupt_storm(case: Case) -> Cause | None:
    """Look for the source that rises most."""
    found = [r for r in case.devices("irq.source") if r.label not in FOLLOW]
    storms = [r for r in found if r.rises(TIMES, LEAST)]
    if not storms:
        return None
    # A card's interrupts follow packets, a disk's follow requests.
    if case.host("softirq.net_rx").rises(PACKETS, 10_000.0):
        return None
    if case.host("pressure.io_some").rises(2.0, 3.0) or case.top("disk.busy").rises(2.0, 10.0):
        return None
    worst = max(storms, key=lambda r: r.value)
    system = case.host("cpu.system")
    return Cause(
        "interrupt_storm",
        "cpu",
        f"{worst.label.removeprefix('irq.source')} interrupts far more often than usual.",
        0.8 + 0.15 * between(worst.times, TIMES, 20),
        (worst.evidence, case.top("irq.core").evidence, system.evidence),
        (
            Remedy("watch -n1 -d cat /proc/interrupts"),
            Remedy("perf record -a -e timer:hrtimer_start -- sleep 1 && perf report --stdio"),
        ),
    )
