"""How deep the cores sleep: residency of the idle states, and how often they are entered.

Kernel: Documentation/admin-guide/pm/cpuidle.rst; ``sys/devices/system/cpu/cpu*/cpuidle/state*``
with `name`, `time` (microseconds in the state since boot) and `usage` (times it was asked for).

The kernel adds a sleep to `time` when the core wakes. So a core that slept for four seconds shows
nothing in three of them and 400 % in the fourth; the mean over time is right.

Reading costs a system call for each core and state. Times are read once a second, and the number
of entries, which says less, every ten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from producers.parsing import snake_case
from producers.source import SECOND_NS, Collector, Doubles, Field
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

CORES = "sys/devices/system/cpu"
_CORE = re.compile(r"cpu\d+")
_STATE = re.compile(r"state\d+")
_US_TO_PERCENT = 1e-4


def states(tree: TreeDraft) -> Iterator[tuple[str, str, str]]:
    """Yield core, name and folder of each idle state: ``("cpu0", "c1e", ".../state2")``."""
    names: dict[str, str] = {}  # by state0, state1: as a rule the same on every core
    shorts: dict[str, str] = {}
    for core in core_names(tree):
        cpuidle = f"{CORES}/{core}/cpuidle"
        seen: set[str] = set()
        for state in tree.names(cpuidle):
            if not _STATE.fullmatch(state):
                continue
            folder = f"{cpuidle}/{state}"
            text = tree.text(f"{folder}/name")
            name = shorts.get(text) or shorts.setdefault(text, snake_case(text))
            # A name that is unreadable now is what it was on another core.
            name = name or names.get(state, state)
            if name in seen:
                name = f"{name}_{state}"
            seen.add(name)
            names.setdefault(state, name)
            yield core, name, folder


def core_names(tree: TreeDraft) -> list[str]:
    """Return ``cpu0``, ``cpu1`` and so on, as far as the machine has them."""
    cores = [name for name in tree.names(CORES) if _CORE.fullmatch(name)]
    return sorted(cores, key=lambda name: int(name.removeprefix("cpu")))


def find_times(tree: TreeDraft) -> None:
    """Each core's share of time in each state, and their mean over the cores."""
    rows: dict[str, list[int]] = {}
    cores: set[str] = set()
    for core, name, folder in states(tree):
        at = tree.file(f"{folder}/time")
        if at is not None:
            rows.setdefault(name, []).append(len(tree.fields))
            cores.add(core)
            channel = Channel(f"cpuidle.{name}", core, Subsystem.CPU, "%", Kind.RATE)
            tree.channel(at, channel, scale=_US_TO_PERCENT)
    _sums(tree, rows, [f"cpuidle.{name}" for name in rows], "%", 1 / max(1, len(cores)))


def find_entries(tree: TreeDraft) -> None:
    """How often each state is entered, on all cores together."""
    rows: dict[str, list[int]] = {}
    for core, name, folder in states(tree):
        at = tree.file(f"{folder}/usage")
        if at is not None:
            rows.setdefault(name, []).append(len(tree.fields))
            tree.field(at, Field(f"{name} {core}", True))
    _sums(tree, rows, [f"cpuidle.{name}_entries" for name in rows], "/s", 1.0)


def _sums(
    tree: TreeDraft, rows: dict[str, list[int]], metrics: list[str], unit: str, scale: float
) -> None:
    """Add up some fields for each metric, in one pass."""
    if not rows:
        return
    places: NDArray[np.intp] = np.concatenate([np.array(row, np.intp) for row in rows.values()])
    starts = np.cumsum([0, *(len(row) for row in rows.values())])[:-1]

    def derive(rates: Doubles) -> Doubles:
        sums: Doubles = np.add.reduceat(rates[places], starts)
        return sums * scale

    tree.derived((Channel(m, "", Subsystem.CPU, unit, Kind.RATE) for m in metrics), derive)


def collector() -> Collector:
    """Return a collector of the cores' idle states."""
    return Collector(
        "cpuidle",
        (
            FileTree(
                CORES,
                find_times,
                remedy="Without it nobody sees how deep the cores sleep. Machines without "
                "a cpuidle driver have none; the share of idle time is in /proc/stat.",
            ),
            FileTree(
                CORES,
                find_entries,
                remedy="Without it nobody sees how often the cores fall asleep. Machines "
                "without a cpuidle driver have none.",
                period_ns=SECOND_NS,
            ),
        ),
    )
