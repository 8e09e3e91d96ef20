"""Power by the processor's own energy counters: ``sys/class/powercap/intel-rapl:*``.

Kernel: Documentation/power/powercap/powercap.rst. Each domain has a `name` (``package-0``,
``dram``, ``core``, ``uncore``, ``psys``) and `energy_uj`, microjoules, which wraps at
`max_energy_range_uj`, every few minutes under load. AMD processors are under the same names. The
growth of the energy per second is the power in watts.

A domain of a package says only what it is (``intel-rapl:0:1`` is ``dram``); the package is the
domain above it. ``intel-rapl-mmio`` shows the same counters another way, and is passed over.
"""

from __future__ import annotations

import re

import numpy as np

from producers.parsing import snake_case
from producers.source import SECOND_NS, Collector, Doubles
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

DOMAINS = "sys/class/powercap"
_UJ_TO_J = 1e-6
_DOMAIN = re.compile(r"intel-rapl:(\w+)(?::(\w+))?")


def find(tree: TreeDraft) -> None:
    """Each domain's power, and that of all packages together."""
    packages: list[int] = []
    seen: set[tuple[str, str]] = set()
    for entry in tree.names(DOMAINS):
        match = _DOMAIN.fullmatch(entry)
        name = tree.text(f"{DOMAINS}/{entry}/name") if match else ""
        if match is None or not name:
            continue
        if match[2] is None:
            kind, device = _top(name)
        else:
            above = tree.text(f"{DOMAINS}/intel-rapl:{match[1]}/name")
            kind, device = snake_case(name), above or f"package-{match[1]}"
        wraps = tree.text(f"{DOMAINS}/{entry}/max_energy_range_uj")
        if not kind or (kind, device) in seen:
            continue
        at = tree.file(f"{DOMAINS}/{entry}/energy_uj")
        if at is None:
            continue
        seen.add((kind, device))
        if kind == "package":
            packages.append(len(tree.fields))
        tree.channel(
            at,
            _channel(kind, device),
            scale=_UJ_TO_J,
            modulus=float(wraps) if wraps.isdigit() else 0.0,
        )
    if packages:
        tree.derived([_channel("package", "")], lambda rates: _sum(rates[packages]))


def _top(name: str) -> tuple[str, str]:
    """Return kind and device of a domain that is below no other: a package, or the platform.

    Examples
    --------
    >>> _top("package-1"), _top("psys"), _top("package-0-die-1")
    (('package', 'package-1'), ('psys', ''), ('package', 'package-0-die-1'))
    """
    kind = snake_case(name)
    return ("package", name) if kind.startswith("package") else (kind, "")


def _channel(kind: str, device: str) -> Channel:
    subsystem = Subsystem.MEMORY if kind == "dram" else Subsystem.CPU
    return Channel(f"rapl.{kind}", device, subsystem, "W", Kind.RATE)


def _sum(rates: Doubles) -> Doubles:
    return np.array([rates.sum()])


def collector() -> Collector:
    """Return a collector of the processors' power."""
    return Collector(
        "rapl",
        (
            FileTree(
                DOMAINS,
                find,
                remedy="Without it the processors' power is unknown. Only root may read energy_uj: "
                "let the agent's service run as root, or set the files' group. Few virtual "
                "machines have it.",
                period_ns=SECOND_NS,
            ),
        ),
    )
