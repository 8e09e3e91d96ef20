"""The memory of each NUMA node: /sys/devices/system/node/node*.

Kernel: drivers/base/node.c (meminfo and vmstat of a node), Documentation/admin-guide/numastat.rst
(numastat). A host of one node has nothing of this: /proc/meminfo and /proc/vmstat say the same.
Of meminfo and vmstat only what differs between nodes for a reason is taken, once each; huge pages
have a collector of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from producers.parsing import Draft, numbered_lines, snake_case
from producers.reading import Reader
from producers.source import Collector, Doubles
from producers.texts import Find, TextTree, within
from schemas.records import Channel, Kind, Subsystem

TOP = "sys/devices/system/node"
_KIB = 1024
_REMEDY = (
    "Without it {what} cannot be told by node. Mount the host's /sys and name it with --path.sys."
)

MEMINFO = {
    "MemTotal",
    "MemFree",
    "MemUsed",
    "Dirty",
    "Writeback",
    "FilePages",
    "Mapped",
    "AnonPages",
    "Shmem",
    "Mlocked",
    "KernelStack",
    "PageTables",
    "SReclaimable",
    "SUnreclaim",
    "AnonHugePages",
    "FileHugePages",
}
"""Lines of a node's meminfo that are taken."""

STORAGE_MEMINFO = {"Dirty", "Writeback"}

NUMASTAT = {
    "numa_hit": "hit",
    "numa_miss": "miss",
    "numa_foreign": "foreign",
    "interleave_hit": "interleave_hit",
    "local_node": "local",
    "other_node": "other",
}
"""Lines of numastat. `miss`: given here though another node was wanted; `foreign`: wanted here and
given elsewhere; `other`: given here to a task that ran on another node."""

VMSTAT_LEVELS = {
    "nr_free_pages",
    "nr_zone_inactive_anon",
    "nr_zone_active_anon",
    "nr_zone_inactive_file",
    "nr_zone_active_file",
    "nr_zone_unevictable",
}
VMSTAT_COUNTERS = {
    "workingset_refault_anon",
    "workingset_refault_file",
    "pgpromote_success",
    "pgdemote_kswapd",
    "pgdemote_direct",
    "nr_vmscan_write",
    "nr_dirtied",
    "nr_written",
}
STORAGE_VMSTAT = {"nr_vmscan_write", "nr_dirtied", "nr_written"}


def plan_meminfo(node: str, text: str) -> Draft:
    """Plan a node's meminfo: ``Node 0 MemFree:  8289476 kB``, bytes."""
    draft = Draft()
    for at, words in numbered_lines(text):
        name = words[2].removesuffix(":") if len(words) > 3 else ""
        if name in MEMINFO:
            subsystem = Subsystem.STORAGE if name in STORAGE_MEMINFO else Subsystem.MEMORY
            metric = f"numa.{snake_case(name)}"
            draft.channel(at + 3, Channel(metric, node, subsystem, "B", Kind.GAUGE), scale=_KIB)
        draft.watch(at + 1)  # the node's number
    return draft


def plan_numastat(node: str, text: str) -> Draft:
    """Plan a node's numastat: pages per second, and the share that went to other nodes' tasks."""
    draft = Draft()
    for at, words in numbered_lines(text):
        if len(words) == 2 and words[0] in NUMASTAT:
            draft.channel(at + 1, _channel(f"numa.{NUMASTAT[words[0]]}", node, "pages/s"))
    order = {key: i for i, key in enumerate(draft.fields)}
    shares = {
        f"numa.{part}_share": (f"numa.{part}[{node}]", f"numa.{rest}[{node}]")
        for part, rest in (("other", "local"), ("miss", "hit"))
    }
    shares = {share: both for share, both in shares.items() if set(both) <= set(order)}
    parts = np.array([order[part] for part, _ in shares.values()], np.intp)
    rests = np.array([order[rest] for _, rest in shares.values()], np.intp)
    draft.derived(
        [_channel(share, node, "%") for share in shares],
        lambda rates: share_of(rates[parts], rates[rests]),
        {f"{share}[{node}]": both for share, both in shares.items()},
    )
    return draft


def share_of(part: Doubles, rest: Doubles) -> Doubles:
    """Return what percentage `part` is of both together; 0 of nothing."""
    whole = part + rest
    return 100 * np.divide(part, whole, out=whole.copy(), where=whole != 0)


def plan_vmstat(node: str, text: str) -> Draft:
    """Plan a node's vmstat: pages that are free or on a list, reclaim, and moves between nodes."""
    draft = Draft()
    for at, words in numbered_lines(text):
        name = words[0]
        if len(words) != 2:
            continue
        if name in VMSTAT_LEVELS:
            channel = Channel(f"numa.{name}", node, Subsystem.MEMORY, "pages", Kind.GAUGE)
            draft.channel(at + 1, channel)
        elif name in VMSTAT_COUNTERS:
            subsystem = Subsystem.STORAGE if name in STORAGE_VMSTAT else Subsystem.MEMORY
            draft.channel(at + 1, Channel(f"numa.{name}", node, subsystem, "pages/s", Kind.RATE))
    return draft


def _channel(metric: str, node: str, unit: str) -> Channel:
    return Channel(metric, node, Subsystem.MEMORY, unit, Kind.RATE)


def of_each_node(name: str) -> Find:
    """Return a `Find` of one text of each node, where there are two nodes or more."""
    find = within(TOP, "node[0-9]*", name)

    def several(reader: Reader) -> Mapping[str, str] | str:
        found = find(reader)
        if not isinstance(found, str) and len(found) == 1:
            return "one node: the figures of the whole host are its own"
        return found

    return several


def collector() -> Collector:
    """Return a collector of NUMA nodes."""
    return Collector(
        "numa",
        tuple(
            TextTree(TOP, of_each_node(name), plan, page=True, remedy=_REMEDY.format(what=what))
            for name, plan, what in (
                ("meminfo", plan_meminfo, "memory use"),
                ("numastat", plan_numastat, "memory that is far from its core"),
                ("vmstat", plan_vmstat, "reclaim"),
            )
        ),
    )
