"""Deferred work of the kernel by kind and by core: /proc/softirqs.

Kernel: Documentation/filesystems/proc.rst, section 1.2. Columns are all cores that could ever be
there. Each number is 32 bits in the kernel and wraps; `producers.counter_table` says how they
are added up. Packets that one core has to receive alone are the classic bottleneck of a fast
network: so that row is looked at core by core.
"""

from __future__ import annotations

import numpy as np

from producers.counter_table import CounterTable
from producers.imbalance import imbalance
from producers.parsing import Draft
from producers.source import Collector, Doubles, Field
from producers.table import Table
from schemas.records import Channel, Kind, Subsystem

UNIT = "softirqs/s"
_SUBSYSTEMS = {
    "net_tx": Subsystem.NETWORK,
    "net_rx": Subsystem.NETWORK,
    "block": Subsystem.STORAGE,
    "irq_poll": Subsystem.STORAGE,
}
_RECEIVING = b"NET_RX"


def plan(table: Table) -> Draft:
    """Plan the file: the sum of each kind, and that of each core; and how uneven these are."""
    draft = Draft()
    for i, row in enumerate(table.rows):
        kind = row.label.decode("ascii", "replace").lower()
        subsystem = _SUBSYSTEMS.get(kind, Subsystem.CPU)
        draft.channel(i, Channel(f"softirq.{kind}", "", subsystem, UNIT, Kind.RATE))
    first, n = len(draft.fields), len(table.cores)
    for i, core in enumerate(table.cores):
        channel = Channel("softirq.core", core, Subsystem.CPU, UNIT, Kind.RATE)
        draft.channel(table.at_core(i), channel)
    for i, core in enumerate(table.cores if table.apart else ()):
        draft.field(table.at_cells(0) + i, Field(f"net_rx {core}", True))
    keys = tuple(draft.fields)
    cores, receiving = keys[first : first + n], keys[first + n :]
    channels = [_share("softirq.imbalance", Subsystem.CPU)]
    ratios = {"softirq.imbalance": cores}
    if receiving:
        channels.append(_share("softirq.net_rx_imbalance", Subsystem.NETWORK))
        ratios["softirq.net_rx_imbalance"] = receiving

    def derive(rates: Doubles) -> Doubles:
        by_core, by_receiver = rates[first : first + n], rates[first + n :]
        both = (by_core, by_receiver) if receiving else (by_core,)
        return np.array([imbalance(each) for each in both])

    draft.derived(channels, derive, ratios)
    return draft


def _share(metric: str, subsystem: Subsystem) -> Channel:
    return Channel(metric, "", subsystem, "%", Kind.RATE)


def collector() -> Collector:
    """Return a collector of softirqs."""
    return Collector(
        "softirqs",
        (
            CounterTable(
                "proc/softirqs",
                plan,
                apart=(_RECEIVING,),
                described=False,
                remedy="Without it network work piled on one core is not seen. Mount the host's "
                "/proc and name it with --path.proc.",
            ),
        ),
    )
