"""Counts of each protocol: /proc/net/snmp, netstat, snmp6, xfrm_stat, tls_stat.

Kernel: Documentation/networking/snmp_counter.rst (snmp, netstat; RFC 1213 and 4293),
xfrm_proc.rst, tls.rst. Columns are found by their names: kernels insert and move them. Of a line
that has not a number for each name nobody can say which is missing: all its channels are unknown
(their place is that of the line's label, which is no number).

What the kernel lists only once it has happened (ICMP by type number) is left out: every new type
would be another layout, and the types that mean something have a name in Icmp and Icmp6 too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines, snake_case
from producers.source import FIFTH_SECOND_NS, SECOND_NS, Doubles
from schemas.records import Channel, Kind, Subsystem

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
    "UdpLite": "udp_lite",
    "TcpExt": "tcp_ext",
    "IpExt": "ip_ext",
}
"""Groups of snmp and netstat that are taken."""

NAMED = {
    "UdpLite6": "udp_lite6",
    "Icmp6": "icmp6",
    "Udp6": "udp6",
    "Ip6": "ip6",
    "Xfrm": "xfrm",
    "Tls": "tls",
}
"""How the names begin in files that have one a line."""

PACKETS = {
    "ip": ("ip.in_receives", "ip.out_requests"),
    "icmp": ("icmp.in_msgs", "icmp.out_msgs"),
    "tcp": ("tcp.in_segs", "tcp.out_segs"),
    "udp": ("udp.in_datagrams", "udp.out_datagrams"),
    "udp_lite": ("udp_lite.in_datagrams", "udp_lite.out_datagrams"),
    "ip6": ("ip6.in_receives", "ip6.out_requests"),
    "icmp6": ("icmp6.in_msgs", "icmp6.out_msgs"),
    "udp6": ("udp6.in_datagrams", "udp6.out_datagrams"),
}
"""What ``protocol.packets`` of each protocol adds up: what came in, and what went out."""

_TYPES = re.compile(rb"^Icmp6(?:In|Out)Type\d+\s+\S+\n", re.MULTILINE)


def _channel(metric: str, unit: str, kind: Kind = Kind.RATE, device: str = "") -> Channel:
    return Channel(metric, device, Subsystem.NETWORK, unit, kind)


def _unit(name: str) -> str:
    if name.endswith("Octets"):
        return "B/s"
    return "segments/s" if name.endswith("Segs") else "/s"


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
    _compare(draft)
    return draft


def plan_by_line(text: str) -> Draft:
    """Plan /proc/net/snmp6, xfrm_stat or tls_stat: a name and a number in each line."""
    draft = Draft()
    for at, words in numbered_lines(text):
        if len(words) != len(("name", "number")):
            continue
        begin = next((begin for begin in NAMED if words[0].startswith(begin)), "")
        name = words[0].removeprefix(begin)
        if not begin or not name:
            continue
        metric = f"{NAMED[begin]}.{snake_case(name)}"
        if name.startswith("Curr"):
            draft.channel(at + 1, _channel(metric, "connections", Kind.GAUGE))
        else:
            draft.channel(at + 1, _channel(metric, _unit(name)))
    _compare(draft)
    return draft


def _compare(draft: Draft) -> None:
    """Add what is made of several columns, where they are there."""
    order = {key: i for i, key in enumerate(draft.fields)}
    ratios: Mapping[str, tuple[str, ...]] = {}
    both = {p: names for p, names in PACKETS.items() if all(n in order for n in names)}
    ways = np.array([[order[name] for name in names] for names in both.values()], np.intp)
    channels = [_channel("protocol.packets", "packets/s", device=protocol) for protocol in both]
    sent, again = order.get("tcp.out_segs"), order.get("tcp.retrans_segs")
    if sent is not None and again is not None:
        channels.append(_channel("tcp.retrans_share", "%"))
        ratios = {"tcp.retrans_share": ("tcp.out_segs", "tcp.retrans_segs")}

    def derive(rates: Doubles) -> Doubles:
        packets: Doubles = rates[ways].sum(axis=1) if len(ways) else np.empty(0)
        if sent is None or again is None:
            return packets
        return np.append(packets, retransmitted(rates[sent], rates[again]))

    if channels:
        draft.derived(channels, derive, ratios)


def retransmitted(sent: float, again: float) -> float:
    """Return the share of TCP segments that went out a second time, percent; 0 when none went.

    OutSegs counts only new data: tcp_transmit_skb() leaves retransmissions out of it. Where
    nothing was sent, nothing was sent again: at ten readings a second a host that is quiet would
    else be unknown half of the time.
    """
    total = sent + again
    return 100 * again / total if total else 0.0


def without_mptcp(text: bytes) -> bytes:
    """Cut the group of /proc/net/netstat that nobody reads, a third of it."""
    start = text.find(b"\nMPTcpExt:")
    return text if start < 0 else text[: start + 1]


def without_types(text: bytes) -> bytes:
    """Cut ICMP by type number, both lines of IcmpMsg, out of /proc/net/snmp."""
    start = text.find(b"\nIcmpMsg:")
    if start < 0:
        return text
    names = text.find(b"\n", start + 1)
    end = text.find(b"\n", names + 1)
    if names < 0 or end < 0 or not text.startswith(b"IcmpMsg:", names + 1):
        return text
    return text[:start] + text[end:]


def without_types6(text: bytes) -> bytes:
    """Cut ICMPv6 by type number out of /proc/net/snmp6."""
    return _TYPES.sub(b"", text)


def fast(remedy: str) -> tuple[TextFile, ...]:
    """Return the sources that are read five times a second.

    They have hundreds of counters, and a burst of retransmissions lasts longer than 200 ms: that
    is the least timeout of TCP.
    """
    return (
        TextFile(
            "proc/net/snmp",
            plan_by_header,
            prepare=without_types,
            period_ns=FIFTH_SECOND_NS,
            remedy=remedy.format(what="TCP retransmission"),
        ),
        TextFile(
            "proc/net/netstat",
            plan_by_header,
            prepare=without_mptcp,
            period_ns=FIFTH_SECOND_NS,
            remedy=remedy.format(what="why TCP retransmits"),
        ),
    )


def slow(remedy: str) -> tuple[TextFile, ...]:
    """Return the sources that are read once a second."""
    return (
        TextFile(
            "proc/net/snmp6",
            plan_by_line,
            prepare=without_types6,
            period_ns=SECOND_NS,
            remedy=remedy.format(what="IPv6"),
        ),
        TextFile(
            "proc/net/xfrm_stat",
            plan_by_line,
            period_ns=SECOND_NS,
            remedy="Without it errors of IPsec cannot be seen. Kernels built with its statistics "
            "have it.",
        ),
        TextFile(
            "proc/net/tls_stat",
            plan_by_line,
            period_ns=SECOND_NS,
            remedy="Without it TLS in the kernel cannot be seen. It is there when the module tls "
            "is loaded.",
        ),
    )
