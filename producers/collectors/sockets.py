"""Sockets by protocol, and the memory they hold: /proc/net/sockstat, sockstat6, protocols.

Kernel: net/ipv4/proc.c, net/ipv6/proc.c, net/core/sock.c. The lists of single sockets (tcp, udp,
unix) are left out: they grow with the load, a hundred bytes for each connection.
"""

from __future__ import annotations

from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import FIFTH_SECOND_NS, SECOND_NS
from schemas.records import Channel, Kind, Subsystem


def _channel(metric: str, unit: str, device: str = "") -> Channel:
    return Channel(metric, device, Subsystem.NETWORK, unit, Kind.GAUGE)


def plan_sockstat(text: str) -> Draft:
    """Plan /proc/net/sockstat and sockstat6: names and numbers in turn after each protocol."""
    draft = Draft()
    for at, words in numbered_lines(text):
        prefix = words[0].removesuffix(":").lower()
        for i in range(1, len(words) - 1, 2):
            name = words[i]
            unit = {"mem": "pages", "memory": "B"}.get(name, "sockets")
            metric = f"sockets.{name}" if prefix == "sockets" else f"sockets.{prefix}_{name}"
            draft.channel(at + i + 1, _channel(metric, unit))
    return draft


def first_columns(text: bytes) -> bytes:
    """Keep the first four columns of /proc/net/protocols: protocol, size, sockets, memory.

    Of a row that lacks a word nobody can say which: it keeps its name alone.
    """
    rows = [line.split() for line in text.split(b"\n")]
    width = len(rows[0])
    return b"\n".join([b" ".join(row[:4] if len(row) == width else row[:1]) for row in rows])


def plan_protocols(text: str) -> Draft:
    """Plan /proc/net/protocols, its first columns: open sockets, and pages that they hold.

    Memory is counted for a protocol as a whole, so TCP and TCPv6 say the same; -1 where it is not
    counted at all.
    """
    draft = Draft()
    header: list[str] = []
    for at, words in numbered_lines(text):
        if not header:
            header = words
            continue
        whole = len(words) == len(header)
        for i, name in enumerate(header):
            if name == "sockets":
                channel = _channel("protocol.sockets", "sockets", words[0])
                draft.channel(at + i if whole else at, channel)
            elif name == "memory" and not (whole and words[i] == "-1"):
                channel = _channel("protocol.memory", "pages", words[0])
                draft.channel(at + i if whole else at, channel)
    return draft


def fast(remedy: str) -> tuple[TextFile, ...]:
    """Return what is read five times a second."""
    text = remedy.format(what="socket memory")
    source = TextFile("proc/net/sockstat", plan_sockstat, period_ns=FIFTH_SECOND_NS, remedy=text)
    return (source,)


def slow(remedy: str) -> tuple[TextFile, ...]:
    """Return what is read once a second."""
    return (
        TextFile(
            "proc/net/sockstat6",
            plan_sockstat,
            period_ns=SECOND_NS,
            remedy=remedy.format(what="open sockets of IPv6"),
        ),
        TextFile(
            "proc/net/protocols",
            plan_protocols,
            prepare=first_columns,
            period_ns=SECOND_NS,
            remedy=remedy.format(what="open sockets by protocol"),
        ),
    )
