"""Deferred work of the kernel by kind and by core: /proc/softirqs.

Kernel: Documentation/filesystems/proc.rst, section 1.2. Columns are all cores that could ever be
there. Each number is 32 bits in the kernel and wraps.
"""

from __future__ import annotations

import numpy as np

from producers.parsing import Draft, TextFile, core_columns, numbered_lines
from producers.source import WRAPS_32, Collector, Doubles, Field
from schemas.records import Channel, Kind, Subsystem

UNIT = "softirqs/s"
_SUBSYSTEMS = {
    "net_tx": Subsystem.NETWORK,
    "net_rx": Subsystem.NETWORK,
    "block": Subsystem.STORAGE,
    "irq_poll": Subsystem.STORAGE,
}


def plan(text: str) -> Draft:
    """Plan the file: a number for each kind and core, added up along both."""
    draft = Draft()
    lines = list(numbered_lines(text))
    cores = core_columns(lines[0][1]) if lines else []
    kinds: list[str] = []
    for at, words in lines[1:]:
        kind = words[0].removesuffix(":").lower()
        if not words[0].endswith(":") or len(words) != 1 + len(cores) or kind in kinds:
            continue
        kinds.append(kind)
        for i, core in enumerate(cores, start=1):
            draft.field(at + i, Field(f"{kind} {core}", True, modulus=WRAPS_32))
    shape = (len(kinds), len(cores))

    def derive(rates: Doubles) -> Doubles:
        cell = rates.reshape(shape)
        return np.concatenate((cell.sum(axis=1), cell.sum(axis=0)))

    by_kind = (
        Channel(f"softirq.{kind}", "", _SUBSYSTEMS.get(kind, Subsystem.CPU), UNIT, Kind.RATE)
        for kind in kinds
    )
    by_core = (Channel("softirq.core", core, Subsystem.CPU, UNIT, Kind.RATE) for core in cores)
    draft.derived([*by_kind, *by_core], derive)
    return draft


def collector() -> Collector:
    """Return a collector of softirqs."""
    return Collector(
        "softirqs",
        (
            TextFile(
                "proc/softirqs",
                plan,
                slow=True,
                remedy="Without it network work piled on one core is not seen. Mount the host's "
                "/proc and name it with --proc-root.",
            ),
        ),
    )
