"""Likely causes of an odd window: small rules over a host's channels, each with its evidence.

A rule needs a signature of its own, not a deviation alone, so that none speaks on a normal window.
What is a symptom of another rule's cause is told with less confidence than that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from models.diagnosis.affinity_one_core import affinity_one_core
from models.diagnosis.bandwidth_cap import bandwidth_cap
from models.diagnosis.case import Case, Cause, Reading, Remedy
from models.diagnosis.context_switch_storm import context_switch_storm
from models.diagnosis.cpu_contention import cpu_contention
from models.diagnosis.gpu_fault import ecc, pcie_link, xid
from models.diagnosis.gpu_throttle import gpu_power_throttle, gpu_thermal_throttle
from models.diagnosis.hugepages import hugepages
from models.diagnosis.interrupt_storm import interrupt_storm
from models.diagnosis.irq_imbalance import irq_imbalance
from models.diagnosis.memory_bandwidth import memory_bandwidth
from models.diagnosis.memory_exhaustion import memory_exhaustion
from models.diagnosis.metadata_storm import metadata_storm
from models.diagnosis.numa_remote import numa_remote
from models.diagnosis.packet_loss import packet_loss
from models.diagnosis.page_fault_storm import page_fault_storm
from models.diagnosis.single_queue_pair import single_queue_pair
from models.diagnosis.stalled_rank import stalled_rank
from models.diagnosis.udp_flood import udp_flood
from models.diagnosis.writeback_burst import writeback_burst

__all__ = ["RULES", "Case", "Cause", "Reading", "Remedy", "diagnose"]

log = logging.getLogger(__name__)

Rule = Callable[[Case], Cause | None]

RULES: dict[str, Rule] = {
    "xid": xid,
    "ecc": ecc,
    "pcie_link": pcie_link,
    "gpu_thermal_throttle": gpu_thermal_throttle,
    "gpu_power_throttle": gpu_power_throttle,
    "hugepages": hugepages,
    "memory_exhaustion": memory_exhaustion,
    "page_fault_storm": page_fault_storm,
    "memory_bandwidth": memory_bandwidth,
    "numa_remote": numa_remote,
    "writeback_burst": writeback_burst,
    "metadata_storm": metadata_storm,
    "udp_flood": udp_flood,
    "packet_loss": packet_loss,
    "bandwidth_cap": bandwidth_cap,
    "single_queue_pair": single_queue_pair,
    "stalled_rank": stalled_rank,
    "affinity_one_core": affinity_one_core,
    "context_switch_storm": context_switch_storm,
    "interrupt_storm": interrupt_storm,
    "irq_imbalance": irq_imbalance,
    "cpu_contention": cpu_contention,
}
"""By the names that causes carry. Of equal confidence, the earlier is told first."""


def diagnose(case: Case) -> tuple[Cause, ...]:
    """Return the likely causes of a window, the most confident first.

    A rule that fails costs its own answer only, and is logged: an odd value must not take the
    scoring of a host down.
    """
    found = []
    for name, rule in RULES.items():
        try:
            cause = rule(case)
        except Exception:
            log.exception("rule %s failed", name)
            continue
        if cause is not None:
            found.append(cause)
    return tuple(sorted(found, key=lambda cause: -cause.confidence))
