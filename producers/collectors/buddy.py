"""How torn free memory is: /proc/buddyinfo.

Kernel: mm/vmstat.c (frag_show): of each zone, how many free blocks there are of 1, 2, 4, ... pages.
A huge page of 2 MiB needs a block of 512 pages of 4 KiB; what is free in smaller blocks has to be
moved together first, for which programs wait. A device is a NUMA node, all its zones together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import SECOND_NS, Collector, Doubles, Field
from schemas.records import Channel, Kind, Subsystem

HUGE_ORDER = 9
_HEAD = 4
"""Words before the counts: ``Node 0, zone Normal``."""

_MOST_ORDERS = 20
"""A kernel has 11, or 14 with pages of 64 KiB."""


def plan(text: str) -> Draft:
    """Plan the file."""
    draft = Draft()
    zones = list(numbered_lines(text))
    if not all(_is_zone(words) for _, words in zones):
        return draft  # a node's sum would lack one
    width = max((len(words) for _, words in zones), default=0)
    nodes: dict[str, list[str]] = {}
    for at, words in zones:
        node = f"node{words[1].rstrip(',')}"
        # Where a count is missing nobody can say which: all have the place of the zone's name.
        whole = len(words) == width
        for order in range(width - _HEAD):
            key = f"{node} {words[_HEAD - 1]} {order}"
            draft.field(at + (_HEAD + order if whole else _HEAD - 1), Field(key, False))
            nodes.setdefault(node, []).append(key)
    if nodes:
        places = {key: i for i, key in enumerate(draft.fields)}
        orders = width - _HEAD
        tables = [
            np.array([places[key] for key in dict.fromkeys(keys)], np.intp).reshape(-1, orders)
            for keys in nodes.values()
        ]
        draft.derived(
            [c for node in nodes for c in _channels(node)], partial(_derived, tables, orders)
        )
    return draft


def _is_zone(words: Sequence[str]) -> bool:
    """Return whether a line is about a zone, with counts of no more orders than there can be."""
    return (
        _HEAD < len(words) <= _HEAD + _MOST_ORDERS
        and words[0] == "Node"
        and words[1].rstrip(",").isdigit()
        and words[2] == "zone"
    )


def _derived(tables: list[NDArray[np.intp]], orders: int, counts: Doubles) -> Doubles:
    pages = 2.0 ** np.arange(orders)
    return np.array([v for at in tables for v in torn(counts[at].sum(axis=0) * pages)])


def torn(free: Doubles) -> tuple[float, float]:
    """Return the free pages and which percentage of them is in blocks too small for a huge page.

    `free` has shape ``(orders,)``. Of no free pages none is.
    """
    total, small = float(free.sum()), float(free[:HUGE_ORDER].sum())
    return total, 100 * small / total if total else 0.0


def _channels(node: str) -> tuple[Channel, Channel]:
    return (
        Channel("buddy.free", node, Subsystem.MEMORY, "pages", Kind.GAUGE),
        Channel("buddy.torn", node, Subsystem.MEMORY, "%", Kind.GAUGE),
    )


def collector() -> Collector:
    """Return a collector of free blocks of memory."""
    return Collector(
        "buddy",
        (
            TextFile(
                "proc/buddyinfo",
                plan,
                period_ns=SECOND_NS,
                remedy="Without it fragmentation is seen only by the compaction that it costs. "
                "Mount the host's /proc and name it with --path.proc.",
            ),
        ),
    )
