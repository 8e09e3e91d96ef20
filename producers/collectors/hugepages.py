"""Huge pages of each size: /sys/kernel/mm/hugepages, and the same for each NUMA node.

Kernel: Documentation/admin-guide/mm/hugetlbpage.rst. /proc/meminfo has only those of the default
size. A device is a size, ``2MiB``, or a node and a size, ``node0/2MiB``. Pages in use are those
of the pool that are not free; of the free ones, `reserved` are promised to somebody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from producers.collectors.numa import TOP as NODES
from producers.source import TEN_SECONDS_NS, Collector, Doubles
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

SIZES = "sys/kernel/mm/hugepages"
_KIB = 1024
_FILES = {
    "total": "nr_hugepages",
    "free": "free_hugepages",
    "reserved": "resv_hugepages",
    "surplus": "surplus_hugepages",
}
"""A node has no count of reserved pages."""

_REMEDY = (
    "Without it huge pages of other sizes than the default are seen nowhere{where}. Mount the "
    "host's /sys and name it with --path.sys."
)


def page_bytes(directory: str) -> int:
    """Return the size of the pages that a directory is about, 0 where it is about none."""
    named = re.fullmatch(r"hugepages-(\d{1,12})kB", directory)
    return int(named[1]) * _KIB if named else 0


def size_name(size: int) -> str:
    """Return ``2MiB`` for 2097152 bytes."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return f"{size // _KIB}KiB"


def find_sizes(tree: TreeDraft) -> None:
    """Find the sizes that the whole host has."""
    _add(tree, "hugepages.", [("", SIZES)])


def find_nodes(tree: TreeDraft) -> None:
    """Find what each node has of each size, where there are two nodes or more."""
    nodes = [name for name in tree.names(NODES) if re.fullmatch(r"node\d+", name)]
    if len(nodes) > 1:
        _add(tree, "hugepages.node_", [(f"{n}/", f"{NODES}/{n}/hugepages") for n in nodes])


def _add(tree: TreeDraft, name: str, tops: Sequence[tuple[str, str]]) -> None:
    used: list[tuple[Channel, str, str]] = []
    for prefix, top in tops:
        for directory in tree.names(top):
            size = page_bytes(directory)
            device = prefix + size_name(size)
            for part, file in _FILES.items() if size else ():
                at = tree.file(f"{top}/{directory}/{file}")
                if at is not None:
                    tree.channel(at, _channel(f"{name}{part}", device), scale=size)
            both = f"{name}total[{device}]", f"{name}free[{device}]"
            if size and set(both) <= set(tree.fields):
                used.append((_channel(f"{name}used", device), *both))
    order = {key: i for i, key in enumerate(tree.fields)}
    totals = np.array([order[total] for _, total, _ in used], np.intp)
    frees = np.array([order[free] for _, _, free in used], np.intp)
    if used:
        tree.derived([c for c, _, _ in used], partial(_used, totals, frees))


def _used(totals: NDArray[np.intp], frees: NDArray[np.intp], levels: Doubles) -> Doubles:
    used: Doubles = levels[totals] - levels[frees]
    return used


def _channel(metric: str, device: str) -> Channel:
    return Channel(metric, device, Subsystem.MEMORY, "B", Kind.GAUGE)


def collector() -> Collector:
    """Return a collector of huge pages."""
    return Collector(
        "hugepages",
        (
            FileTree(SIZES, find_sizes, remedy=_REMEDY.format(where="")),
            FileTree(
                NODES,
                find_nodes,
                remedy=_REMEDY.format(where=", and none by node"),
                period_ns=TEN_SECONDS_NS,
            ),
        ),
    )
