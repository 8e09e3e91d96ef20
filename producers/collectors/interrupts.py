"""Interrupts by source and by core: /proc/interrupts.

Kernel: Documentation/filesystems/proc.rst, section 1.2. Columns are the cores that are online, by
the names in the header. Each number is 32 bits in the kernel and wraps; so every one has a rate of
its own before they are added up, and a core that comes or goes bends no sum.
"""

from __future__ import annotations

import re

import numpy as np

from producers.parsing import Draft, TextFile, core_columns, numbered_lines
from producers.source import WRAPS_32, Collector, Doubles, Field
from schemas.records import Channel, Kind, Subsystem

UNIT = "interrupts/s"
_TRIGGER = re.compile(r"(.*-)?(edge|level|fasteoi|event|virq|ipi|percpu)", re.IGNORECASE)


def plan(text: str) -> Draft:
    """Plan the file: a number for each source and core, added up along both."""
    draft = Draft()
    lines = list(numbered_lines(text))
    cores = core_columns(lines[0][1]) if lines else []
    if not cores:
        return draft
    names: dict[str, str] = {}  # of the rows of the table, by their label
    once: dict[str, int] = {}
    for at, words in lines[1:]:
        label = words[0].removesuffix(":")
        if label == words[0] or label in names or len(words) == 1:
            continue
        if len(words) <= len(cores):
            # ERR and MIS are counted once for the whole machine; anything else is torn.
            if len(words) == len(("ERR:", "0")):
                once.setdefault(label, at + 1)
            continue
        name = source_name(label, words[1 + len(cores) :])
        # Where the description begins too early a number is missing, and nobody can say which:
        # then all of the row are unknown, their place is that of the label.
        whole = words[len(cores)].isdigit()
        for i, core in enumerate(cores, start=1):
            place = at + i if whole else at
            draft.field(place, Field(f"{label} {name} {core}", True, modulus=WRAPS_32))
        while name in names.values():
            name += f"#{label}"
        names[label] = name
    shape = (len(names), len(cores))

    def derive(rates: Doubles) -> Doubles:
        cell = rates[: shape[0] * shape[1]].reshape(shape)
        return np.concatenate((cell.sum(axis=1), cell.sum(axis=0)))

    for label, at in once.items():
        if label not in names.values():
            draft.channel(at, _channel("irq.source", label), modulus=WRAPS_32)
    draft.derived(
        [
            *(_channel("irq.source", name) for name in names.values()),
            *(_channel("irq.core", core) for core in cores),
        ],
        derive,
    )
    return draft


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
            TextFile(
                "proc/interrupts",
                plan,
                slow=True,
                remedy="Without it interrupts piled on one core are not seen. Some containers hide "
                "it: mount the host's /proc and name it with --proc-root.",
            ),
        ),
    )
