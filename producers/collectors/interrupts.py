"""Interrupts by source and by core: /proc/interrupts.

Kernel: Documentation/filesystems/proc.rst, section 1.2. Columns are the cores that are online, by
the names in the header. Each number is 32 bits in the kernel and wraps;
`producers.counter_table` says how they are added up.
"""

from __future__ import annotations

import re

import numpy as np

from producers.counter_table import CounterTable
from producers.imbalance import imbalance
from producers.parsing import Draft
from producers.source import WRAPS_32, Collector
from producers.table import Table
from schemas.records import Channel, Kind, Subsystem

UNIT = "interrupts/s"
_TRIGGER = re.compile(r"(.*-)?(edge|level|fasteoi|event|virq|ipi|percpu)", re.IGNORECASE)


def plan(table: Table) -> Draft:
    """Plan the file: the sum of each source, and that of each core; and how uneven these are."""
    draft = Draft()
    names: list[str] = []
    for row in table.rows:
        label = _text(row.label)
        name = source_name(label, _text(row.description).split())
        while name in names:
            name += f"#{label}"
        names.append(name)
    for i, (row_label, _) in enumerate(table.once):
        label = _text(row_label)
        if label not in names:
            draft.channel(table.at_once(i), _channel("irq.source", label), modulus=WRAPS_32)
    for i, name in enumerate(names):
        draft.channel(i, _channel("irq.source", name))
    first = len(draft.fields)
    for i, core in enumerate(table.cores):
        draft.channel(table.at_core(i), _channel("irq.core", core))
    cores = tuple(draft.fields)[first:]
    draft.derived(
        [Channel("irq.imbalance", "", Subsystem.CPU, "%", Kind.RATE)],
        lambda rates: np.array([imbalance(rates[first:])]),
        {"irq.imbalance": cores},
    )
    return draft


def _text(token: bytes) -> str:
    return token.decode("ascii", "replace")


def _channel(metric: str, device: str) -> Channel:
    return Channel(metric, device, Subsystem.CPU, UNIT, Kind.RATE)


def source_name(label: str, description: list[str]) -> str:
    """Return the driver's name for a numbered interrupt, the kernel's own (LOC, RES) for others.

    Examples
    --------
    >>> source_name("36", ["PCI-MSIX-0000:00:02.0", "1-edge", "virtio1-req.0"])
    'virtio1-req.0'
    >>> source_name("LOC", ["Local", "timer", "interrupts"])
    'LOC'
    """
    if not label.isdigit():
        return label
    for i, word in enumerate(description):
        if _TRIGGER.fullmatch(word):
            description = description[i + 1 :]
            break
    return "+".join(word.rstrip(",") for word in description) or f"irq{label}"


def collector() -> Collector:
    """Return a collector of interrupts."""
    return Collector(
        "interrupts",
        (
            CounterTable(
                "proc/interrupts",
                plan,
                remedy="Without it interrupts piled on one core are not seen. Some containers hide "
                "it: mount the host's /proc and name it with --path.proc.",
            ),
        ),
    )
