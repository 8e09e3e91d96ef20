"""Time lost waiting for cores, memory, disks and interrupts: /proc/pressure.

Kernel: Documentation/accounting/psi.rst. `some`: at least one task waits; `full`: all that are
not idle wait at once. The totals are microseconds, so their rate is a share of time; the kernel's
own averages over 10 s and more would only be a slower copy of it. A whole host cannot be full for
want of cores: that line is always 0, or not there, and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import FIFTH_SECOND_NS, Collector
from schemas.records import Channel, Kind, Subsystem

SUBSYSTEMS = {
    "cpu": Subsystem.CPU,
    "memory": Subsystem.MEMORY,
    "io": Subsystem.STORAGE,
    "irq": Subsystem.CPU,
}
_US_TO_PERCENT = 100 / 1e6
_BLANKS = bytes.maketrans(b"=.", b"  ")
_REMEDY = (
    "Without it stalls for {name} are seen only by their effects. The kernel needs CONFIG_PSI and, "
    "where it is off by default, psi=1 on its command line."
)


def plan(name: str, text: str) -> Draft:
    """Plan one file of /proc/pressure, parted at the equals signs."""
    return plan_stalls("pressure", name, "", text, ("some",) if name == "cpu" else ("some", "full"))


def plan_stalls(part: str, name: str, device: str, text: str, lines: Sequence[str]) -> Draft:
    """Plan the `lines` of a file about the resource `name`, parted at the equals signs."""
    draft = Draft()
    for at, words in numbered_lines(text):
        if words[0] in lines and "total" in words[:-1]:
            metric = f"{part}.{name}_{words[0]}"
            draft.channel(
                at + words.index("total") + 1,
                Channel(metric, device, SUBSYSTEMS[name], "%", Kind.RATE),
                scale=_US_TO_PERCENT,
            )
    return draft


def parted(text: bytes) -> bytes:
    """Part names from numbers, and the averages at their points: what is all digits may change."""
    return text.translate(_BLANKS)


def collector() -> Collector:
    """Return a collector of pressure."""
    return Collector(
        "pressure",
        tuple(
            TextFile(
                f"proc/pressure/{name}",
                partial(plan, name),
                prepare=parted,
                # The kernel adds up all cores and their groups for each reader.
                period_ns=FIFTH_SECOND_NS,
                remedy=_REMEDY.format(name=name),
            )
            for name in SUBSYSTEMS
        ),
    )
