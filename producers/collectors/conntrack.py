"""Tables of the network that fill up: tracked connections and neighbours.

Kernel: Documentation/networking/nf_conntrack-sysctl.rst, net/netfilter/nf_conntrack_standalone.c,
net/core/neighbour.c. A table of connections that is full drops the first packet of every new one;
one of neighbours that is full, packets to hosts that are not in it. The files below proc/net/stat
have a header and a line for each core, hexadecimal, 32 bits that wrap. Columns are found by name.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines, snake_case
from producers.source import SECOND_NS, WRAPS_32, Collector, Doubles, Field
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

_SYSCTL = "proc/sys/net/netfilter"
_NEIGHBOURS = "Without it a full table of neighbours cannot be seen. "
_NAMESPACE = (
    "In a container, run the agent in the host's network namespace (hostNetwork, --network host)."
)


def _channel(metric: str, unit: str, kind: Kind) -> Channel:
    return Channel(metric, "", Subsystem.NETWORK, unit, kind)


def find(tree: TreeDraft) -> None:
    """Find how many connections are tracked and how many may be; ``conntrack.used`` is the share.

    The kernel counts new ones before it drops them, so the share may be a little above 100.
    """
    count = tree.file(f"{_SYSCTL}/nf_conntrack_count")
    limit = tree.file(f"{_SYSCTL}/nf_conntrack_max")
    if count is not None:
        tree.channel(count, _channel("conntrack.entries", "connections", Kind.GAUGE))
    if limit is not None:
        tree.channel(limit, _channel("conntrack.limit", "connections", Kind.GAUGE))
    if count is not None and limit is not None:
        tree.derived([_channel("conntrack.used", "%", Kind.GAUGE)], used)


def used(levels: Doubles) -> Doubles:
    """Return the share of the table that is taken, percent; NaN where it has no limit."""
    entries, limit = levels
    return np.array([100 * entries / limit if limit > 0 else np.nan])


def plan_table(text: str, *, prefix: str, unit: str) -> Draft:
    """Plan a file with a line for each core, added up; all lines have the same `entries`."""
    draft = Draft()
    lines = list(numbered_lines(text))
    names = [snake_case(word) for word in lines[0][1]] if lines else []
    if "entries" not in names or len(set(names)) < len(names):
        return draft
    rows = lines[1:]
    for row, (at, words) in enumerate(rows):
        # A row does not say whose it is: with one less, nobody knows which is missing.
        core = f"{row} of {len(rows)}"
        whole = len(words) == len(names)
        for i, name in enumerate(names):
            counter = name != "entries"
            modulus = WRAPS_32 if counter else 0.0
            # A row that lacks a number is unknown: its place is that of a name.
            draft.field(at + i if whole else i, Field(f"{core} {name}", counter, modulus=modulus))
    if not rows:
        return draft
    shape = (len(rows), len(names))
    entries = names.index("entries")

    def derive(rates: Doubles) -> Doubles:
        table = rates.reshape(shape)
        total: Doubles = table.sum(axis=0)
        total[entries] = table[0, entries]
        return total

    draft.derived(
        [
            _channel(f"{prefix}.{name}", "/s", Kind.RATE)
            if name != "entries"
            else _channel(f"{prefix}.{name}", unit, Kind.GAUGE)
            for name in names
        ],
        derive,
    )
    return draft


def _hexadecimal(token: bytes) -> float:
    return int(token, 16)


def _table(name: str, prefix: str, unit: str, remedy: str) -> TextFile:
    return TextFile(
        f"proc/net/stat/{name}",
        partial(plan_table, prefix=prefix, unit=unit),
        number=_hexadecimal,
        period_ns=SECOND_NS,
        remedy=remedy,
    )


def collector() -> Collector:
    """Return a collector of one network namespace."""
    return Collector(
        "conntrack",
        (
            FileTree(
                _SYSCTL,
                find,
                remedy="Without it a full table of connections cannot be seen. It is there when "
                f"the module nf_conntrack is loaded. {_NAMESPACE}",
            ),
            _table(
                "nf_conntrack",
                "conntrack_stat",
                "connections",
                "Without it connections that could not be tracked are not seen. It is there when "
                "the kernel has CONFIG_NF_CONNTRACK_PROCFS.",
            ),
            _table("arp_cache", "arp", "neighbours", _NEIGHBOURS + _NAMESPACE),
            _table("ndisc_cache", "ndisc", "neighbours", _NEIGHBOURS + _NAMESPACE),
        ),
    )
