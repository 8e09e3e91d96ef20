"""The top of the tree of control groups: what its few large branches wait for, and hold.

Kernel: Documentation/admin-guide/cgroup-v2.rst (``*.pressure``, ``memory.current``,
``memory.events``, ``pids.current``) and cgroup-v1. A device is a branch directly below the root,
as ``system.slice`` or ``kubepods``: all services, all containers. Never what is below them: that
is the workloads' own, and comes and goes with them. The root itself has /proc/pressure.

Pressure is in the unified tree alone, which may be mounted beside the controllers of version 1;
some vendors' kernels have it in version 1's ``cpuacct`` too. ``cpu.stat`` and ``memory.stat`` are
not read: they make the kernel add up all cores and all groups below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from producers.collectors.pressure import SUBSYSTEMS, parted, plan_stalls
from producers.parsing import Draft, numbered_lines
from producers.reading import Reader
from producers.source import Collector
from producers.texts import Find, TextTree
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

TOP = "sys/fs/cgroup"
_PRESSURE_TOPS = (TOP, f"{TOP}/unified", f"{TOP}/cpuacct")
_LIMIT = 16
_REMEDY = (
    "Without it nobody can tell which of services, users and containers {what}. Mount the host's "
    "/sys/fs/cgroup below the directory that --path.sys names."
)

BRANCHES = {
    "buildkit",
    "docker",
    "ecstasks",
    "garden",
    "kubepods",
    "libpod_parent",
    "lxc",
    "machine",
    "podruntime",
    "slurm",
    "system",
    "user",
}
"""Branches that are no slices of systemd."""

LEVELS = (
    # Metric, subsystem, unit, file, version 1's controller and file.
    ("memory", Subsystem.MEMORY, "B", "memory.current", "memory", "memory.usage_in_bytes"),
    ("tasks", Subsystem.CPU, "tasks", "pids.current", "pids", "pids.current"),
)

EVENTS = {
    "high": "memory_high",
    "max": "memory_max",
    "oom": "oom",
    "oom_kill": "oom_kill",
}
"""Lines of memory.events: how often a branch met its soft and its hard limit, found no memory,
and lost a task to that."""


def branches(names: Iterable[str]) -> list[str]:
    """Return those names in a directory that are large branches, at most 16."""
    slices = (name for name in names if name.endswith(".slice") or name in BRANCHES)
    return [name for name in slices if name.isascii()][:_LIMIT]


def in_first(tops: tuple[str, ...], file: str) -> Find:
    """Return a `Find` of a file of each branch, below the first of `tops` that has it."""

    def find(reader: Reader) -> Mapping[str, str] | str:
        for top in tops:
            names = reader.list(top)
            there = branches(names) if isinstance(names, tuple) else []
            found = {name: f"{top}/{name}/{file}" for name in there}
            if any(isinstance(reader.small(path), bytes) for path in found.values()):
                return found
        return f"no branch of it has {file}"

    return find


def plan_pressure(name: str, branch: str, text: str) -> Draft:
    """Plan one ``*.pressure`` of a branch."""
    return plan_stalls("cgroup", name, branch, text, ("some", "full"))


def plan_events(branch: str, text: str) -> Draft:
    """Plan the memory.events of a branch, which are those of all groups below it too."""
    draft = Draft()
    for at, words in numbered_lines(text):
        if len(words) == 2 and words[0] in EVENTS:
            metric = f"cgroup.{EVENTS[words[0]]}"
            draft.channel(at + 1, Channel(metric, branch, Subsystem.MEMORY, "/s", Kind.RATE))
    return draft


def find_levels(tree: TreeDraft) -> None:
    """Find what each branch holds, in version 2 or 1."""
    for metric, subsystem, unit, file, controller, old in LEVELS:
        for name, top in ((file, TOP), (file, f"{TOP}/unified"), (old, f"{TOP}/{controller}")):
            places = [(b, tree.file(f"{top}/{b}/{name}")) for b in branches(tree.names(top))]
            if any(at is not None for _, at in places):
                for branch, at in places:
                    if at is not None:
                        channel = Channel(f"cgroup.{metric}", branch, subsystem, unit, Kind.GAUGE)
                        tree.channel(at, channel)
                break


def collector() -> Collector:
    """Return a collector of control groups."""
    waits = [
        TextTree(
            TOP,
            in_first(_PRESSURE_TOPS, f"{name}.pressure"),
            partial(plan_pressure, name),
            prepare=parted,
            page=True,
            remedy=_REMEDY.format(what=f"wait for {name}"),
        )
        for name in SUBSYSTEMS
    ]
    events = TextTree(
        TOP,
        in_first((TOP, f"{TOP}/unified"), "memory.events"),
        plan_events,
        page=True,
        remedy=_REMEDY.format(what="meet their limits of memory"),
    )
    levels = FileTree(TOP, find_levels, remedy=_REMEDY.format(what="hold the memory"))
    return Collector("cgroup", (*waits, events, levels))
