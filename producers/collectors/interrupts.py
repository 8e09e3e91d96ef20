"""Interrupts by source and by core: /proc/interrupts.

Kernel: Documentation/filesystems/proc.rst, section 1.2. Columns are the cores that are online, by
the names in the header. Each number is 32 bits in the kernel and wraps; so every one has a rate of
its own before they are added up, and a core that comes or goes bends no sum.
"""

from __future__ import annotations

import re

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import WRAPS_32, Collector, Doubles, Field
from producers.sums import known_sum
from schemas.records import Channel, Kind, Subsystem

UNIT = "interrupts/s"
_TRIGGER = re.compile(r"(.*-)?(edge|level|fasteoi|event|virq|ipi|percpu)", re.IGNORECASE)


def plan(text: str) -> Draft:
    """Plan the file: a number for each source and core, added up along both."""
    draft = Draft()
    lines = list(numbered_lines(text))
    if not lines or not lines[0][1][0].startswith("CPU"):
        return draft
    cores = [name.lower() for name in lines[0][1]]
    names: dict[str, str] = {}  # of the sources in the table, by their label
    for at, words in lines[1:]:
        label = words[0].rstrip(":")
        if not words[0].endswith(":") or label in names or len(words) == 1:
            continue
        if len(words) <= len(cores):
            # ERR and MIS are counted once for the whole machine.
            channel = Channel("irq.source", label, Subsystem.CPU, UNIT, Kind.RATE)
            draft.channel(at + 1, channel, modulus=WRAPS_32)
            continue
        name = source_name(label, words[1 + len(cores) :])
        taken = set(names.values()) | {device for _, device in draft.channels}
        names[label] = f"{name}#{label}" if name in taken else name
        for i, core in enumerate(cores, start=1):
            draft.field(at + i, Field(f"{label} {name} {core}", True, modulus=WRAPS_32))
    cells = [i for i, key in enumerate(draft.fields) if key not in draft.direct]
    table = np.array(cells, np.intp).reshape(len(names), len(cores))

    def derive(rates: Doubles) -> Doubles:
        cell = rates[table]
        return np.concatenate((known_sum(cell, axis=1), known_sum(cell, axis=0)))

    draft.derived(
        [
            Channel(metric, device, Subsystem.CPU, UNIT, Kind.RATE)
            for metric, devices in (("irq.source", names.values()), ("irq.core", cores))
            for device in devices
        ],
        derive,
    )
    return draft


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
            TextFile(
                "proc/interrupts",
                plan,
                slow=True,
                remedy="Without it interrupts piled on one core are not seen. Some containers hide "
                "it: mount the host's /proc and name it with --proc-root.",
            ),
        ),
    )
