"""State of network links: /sys/class/net.

Kernel: Documentation/ABI/testing/sysfs-class-net, networking/operstates.rst, bonding.rst. The
loopback has no link, and interfaces that come and go with containers (see `interfaces.FOLDED`)
none that anybody looks at.
"""

from __future__ import annotations

from producers.collectors.interfaces import folded_into
from producers.source import SECOND_NS, TEN_SECONDS_NS, Collector
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

PATH = "sys/class/net"

WORDS = {
    b"up": 1,
    b"down": 0,
    b"lowerlayerdown": 0,
    b"notpresent": 0,
    b"dormant": 0,
    b"testing": 0,
    b"going down": 0,
    b"going back": 0,
    b"full": 1,
    b"half": 0,
}
"""What operstate, duplex and a bond's mii_status say. Others, as ``unknown``, are no number."""

STATE = {
    "operstate": ("link.up", "bool", Kind.GAUGE, 1.0),
    "carrier_changes": ("link.carrier_changes", "/s", Kind.RATE, 1.0),
    "carrier_up_count": ("link.carrier_up", "/s", Kind.RATE, 1.0),
    "carrier_down_count": ("link.carrier_down", "/s", Kind.RATE, 1.0),
}
"""Files that the kernel answers from memory: metric, unit, kind, scale."""

MEGABIT = 1e6 / 8
SETTINGS = {
    "speed": ("link.speed", "B/s", Kind.GAUGE, MEGABIT),
    "duplex": ("link.full_duplex", "bool", Kind.GAUGE, 1.0),
    "mtu": ("link.mtu", "B", Kind.GAUGE, 1.0),
    "tx_queue_len": ("link.tx_queue_len", "packets", Kind.GAUGE, 1.0),
}
"""Files that hardly ever change, and of which the first two ask the card."""

_NAN = float("nan")


def number(content: bytes) -> float:
    """Return the number or the known word that is a file's text; NaN for -1 and unknown words.

    Raises
    ------
    ValueError
        It is something else.
    """
    text = content.strip()
    if text.isdigit():
        return int(text)
    if text in WORDS:
        return WORDS[text]
    if text in {b"-1", b"unknown"}:
        return _NAN
    raise ValueError(f"{text[:40]!r} says nothing of a link")


def _links(tree: TreeDraft) -> list[str]:
    return [name for name in tree.names(PATH) if name != "lo" and not folded_into(name)]


def _find(tree: TreeDraft, files: dict[str, tuple[str, str, Kind, float]]) -> None:
    for name in _links(tree):
        for file, (metric, unit, kind, scale) in files.items():
            at = tree.file(f"{PATH}/{name}/{file}")
            if at is not None:
                tree.channel(at, Channel(metric, name, Subsystem.NETWORK, unit, kind), scale=scale)


def find_state(tree: TreeDraft) -> None:
    """Find which links are up, how often that changed, and which legs of a bond are up."""
    _find(tree, STATE)
    for bond in _links(tree):
        for leg in tree.names(f"{PATH}/{bond}"):
            # lower_eth0; kernels before 3.18 wrote slave_eth0.
            mark, _, name = leg.partition("_")
            if mark in {"lower", "slave"} and name:
                at = tree.file(f"{PATH}/{bond}/{leg}/bonding_slave/mii_status")
                if at is not None:
                    channel = Channel(
                        "link.bond_up", f"{bond}/{name}", Subsystem.NETWORK, "bool", Kind.GAUGE
                    )
                    tree.channel(at, channel)


def find_settings(tree: TreeDraft) -> None:
    """Find speed, duplex, and the sizes that were set."""
    _find(tree, SETTINGS)


_REMEDY = (
    "Without it links that go down or come up slower are not seen. In a container, run the agent "
    "in the host's network namespace, with the host's /sys."
)


def collector() -> Collector:
    """Return a collector of what the kernel knows by itself, once a second."""
    tree = FileTree(PATH, find_state, remedy=_REMEDY, period_ns=SECOND_NS, number=number)
    return Collector("link", (tree,))


def settings_collector() -> Collector:
    """Return a collector of what hardly ever changes, and costs more."""
    tree = FileTree(
        PATH,
        find_settings,
        remedy=_REMEDY,
        period_ns=TEN_SECONDS_NS,
        number=number,
    )
    return Collector("link_settings", (tree,))
