"""One core serves the interrupts of the network while others idle.

A core that spends its time in softirqs drops packets and delays whatever runs on it (the paper's
fault of IRQ imbalance). Which core serves which line is for irqbalance or /proc/irq/*/smp_affinity.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

SERVES = 25.0
"""Percent of one core in softirqs and interrupts, from which on it matters."""
SHARE = 0.8
"""Of all cores' time in softirqs, that one has."""


def irq_imbalance(case: Case) -> Cause | None:
    """Look for one core with all the softirqs, where usually it does not have them."""
    cores = case.devices("cpu.softirq")
    whole = sum(r.value for r in cores)
    if len(cores) < 2 or not whole > 0:
        return None
    worst = max(cores, key=lambda r: r.value)
    imbalance = case.host("softirq.net_rx_imbalance")
    if not (worst.rises(2.0, SERVES) and worst.value > SHARE * whole):
        return None
    if not imbalance.value > imbalance.high + 10:
        return None
    core = worst.label.removeprefix("cpu.softirq[").removesuffix("]")
    squeeze = case.host("softnet.time_squeeze")
    return Cause(
        "irq_imbalance",
        "cpu",
        f"{core} serves nearly all network interrupts, and has little time for anything else.",
        0.65 + 0.25 * between(worst.value, SERVES, 90),
        (worst.evidence, imbalance.evidence, squeeze.evidence),
        (
            Remedy("grep . /proc/irq/*/smp_affinity_list; systemctl is-active irqbalance"),
            Remedy("systemctl start irqbalance", changes_host=True),
        ),
    )
