"""Interfaces, protocols and sockets of one network namespace: /proc/net.

Kernel: Documentation/networking/statistics.rst (dev), snmp_counter.rst (snmp, netstat),
net/core/net-procfs.c (softnet_stat). Columns are found by their names in the headers: kernels
insert and move them. Of a line that has not a number for each name nobody can say which is missing:
all its channels are unknown (their place is that of the line's label, which is no number).
"""

from __future__ import annotations

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines, snake_case
from producers.source import WRAPS_32, Collector, Field
from schemas.records import Channel, Kind, Subsystem

_REMEDY = (
    "Without it {what} cannot be seen. In a container, run the agent in the host's network "
    "namespace (hostNetwork, --network host)."
)

SETTINGS = {
    "Ip": {"Forwarding", "DefaultTTL"},
    "Tcp": {"RtoAlgorithm", "RtoMin", "RtoMax", "MaxConn"},
}
"""Columns of snmp that somebody set."""

LEVELS = {("Tcp", "CurrEstab")}
"""Columns of snmp that go up and down."""

PROTOCOLS = {
    "Ip": "ip",
    "Icmp": "icmp",
    "Tcp": "tcp",
    "Udp": "udp",
    "TcpExt": "tcp_ext",
    "IpExt": "ip_ext",
}
"""Groups of snmp and netstat that are taken."""

SOFTNET = {0: "processed", 1: "dropped", 2: "time_squeeze", 9: "received_rps", 10: "flow_limit"}
"""Columns of softnet_stat by number: it has no header."""

_SOFTNET_CORE = 12


def _channel(metric: str, unit: str, kind: Kind = Kind.RATE, device: str = "") -> Channel:
    return Channel(metric, device, Subsystem.NETWORK, unit, kind)


def plan_dev(text: str) -> Draft:
    """Plan /proc/net/dev, its bars and colons parted: the header names the columns twice."""
    draft = Draft()
    columns: list[str] = []
    for at, words in numbered_lines(text):
        if words[0] == "face":
            halves = " ".join(words[1:]).strip("| ").partition("|")[::2]
            columns = [
                f"net.{side}_{name}"
                for side, half in zip(("rx", "tx"), halves, strict=True)
                for name in half.replace("|", " ").split()
            ]
        elif words[0].endswith(":"):
            device = words[0].removesuffix(":")
            whole = len(words) - 1 == len(columns)
            for i, metric in enumerate(columns, start=1):
                unit = {"bytes": "B/s", "packets": "packets/s"}.get(metric.split("_")[-1], "/s")
                channel = _channel(metric, unit, device=device)
                draft.channel(at + i if whole else at, channel, modulus=WRAPS_32)
    return draft


def parted(text: bytes) -> bytes:
    """Part what /proc/net/dev may write together: ``face |bytes``, ``eth0:1234``."""
    return text.replace(b"|", b" | ").replace(b":", b": ")


def plan_by_header(text: str) -> Draft:
    """Plan /proc/net/snmp or netstat: a line of names, then a line of numbers."""
    draft = Draft()
    names: list[str] = []
    for at, words in numbered_lines(text):
        group = words[0].removesuffix(":")
        if not names or names[0] != words[0]:
            names = words
            continue
        prefix = PROTOCOLS.get(group)
        if prefix is not None:
            whole = len(words) == len(names)
            for i, name in enumerate(names[1:], start=1):
                if name in SETTINGS.get(group, ()):
                    continue
                place = at + i if whole else at
                # TCPTimeouts of TcpExt is tcp_ext.timeouts.
                short = name[3:] if group == "TcpExt" and name[:3].upper() == "TCP" else name
                metric = f"{prefix}.{snake_case(short)}"
                if (group, name) in LEVELS:
                    draft.channel(place, _channel(metric, "connections", Kind.GAUGE))
                else:
                    draft.channel(place, _channel(metric, _unit(name)))
        names = []
    order = {key: i for i, key in enumerate(draft.fields)}
    sent, again = order.get("tcp.out_segs"), order.get("tcp.retrans_segs")
    if sent is not None and again is not None:
        draft.derived(
            [_channel("tcp.retrans_share", "%")],
            lambda rates: np.array([retransmitted(rates[sent], rates[again])]),
            {"tcp.retrans_share": ("tcp.out_segs", "tcp.retrans_segs")},
        )
    return draft


def _unit(name: str) -> str:
    if name.endswith("Octets"):
        return "B/s"
    return "segments/s" if name.endswith("Segs") else "/s"


def retransmitted(sent: float, again: float) -> float:
    """Return the share of TCP segments that went out a second time, percent; 0 when none went.

    OutSegs counts only new data: tcp_transmit_skb() leaves retransmissions out of it.
    """
    total = sent + again
    return 100 * again / total if total else 0.0


def without_mptcp(text: bytes) -> bytes:
    """Cut the group of /proc/net/netstat that nobody reads, a third of it."""
    start = text.find(b"\nMPTcpExt:")
    return text if start < 0 else text[: start + 1]


def plan_sockstat(text: str) -> Draft:
    """Plan /proc/net/sockstat: names and numbers in turn after each protocol."""
    draft = Draft()
    for at, words in numbered_lines(text):
        prefix = words[0].removesuffix(":").lower()
        for i in range(1, len(words) - 1, 2):
            name = words[i]
            unit = {"mem": "pages", "memory": "B"}.get(name, "sockets")
            metric = f"sockets.{name}" if prefix == "sockets" else f"sockets.{prefix}_{name}"
            draft.channel(at + i + 1, _channel(metric, unit, Kind.GAUGE))
    return draft


def plan_softnet(text: str) -> Draft:
    """Plan /proc/net/softnet_stat: a line for each core that is online, added up."""
    draft = Draft()
    lines = list(numbered_lines(text))
    width = max((len(words) for _, words in lines), default=0)
    columns = [c for c in SOFTNET if c < width]
    cores: set[str] = set()
    for row, (at, words) in enumerate(lines):
        if len(words) < width:
            continue  # nobody can say which number is missing
        core = str(row)
        if width > _SOFTNET_CORE:
            core = words[_SOFTNET_CORE]
            draft.watch(at + _SOFTNET_CORE)
        if core not in cores:
            cores.add(core)
            for c in columns:
                draft.field(at + c, Field(f"{core} {SOFTNET[c]}", True, modulus=WRAPS_32))
    if columns:
        shape = (len(cores), len(columns))
        draft.derived(
            [_channel(f"softnet.{SOFTNET[c]}", "packets/s") for c in columns],
            lambda rates: rates.reshape(shape).sum(axis=0),
        )
    return draft


def _hexadecimal(token: bytes) -> float:
    return int(token, 16)


def collector() -> Collector:
    """Return a collector of one network namespace."""
    return Collector(
        "network",
        (
            TextFile(
                "proc/net/dev", plan_dev, prepare=parted, remedy=_REMEDY.format(what="traffic")
            ),
            TextFile(
                "proc/net/snmp",
                plan_by_header,
                remedy=_REMEDY.format(what="TCP retransmission"),
            ),
            TextFile(
                "proc/net/netstat",
                plan_by_header,
                prepare=without_mptcp,
                remedy=_REMEDY.format(what="why TCP retransmits"),
            ),
            TextFile(
                "proc/net/sockstat", plan_sockstat, remedy=_REMEDY.format(what="socket memory")
            ),
            TextFile(
                "proc/net/softnet_stat",
                plan_softnet,
                number=_hexadecimal,
                remedy=_REMEDY.format(what="packets dropped before the stack"),
            ),
        ),
    )
