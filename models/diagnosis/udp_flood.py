"""A flood of datagrams: far more UDP than the host ever sees, in it or through its machine.

In a network namespace the protocol's counters are its own, while softirqs are the whole machine's:
packets that only they show are another namespace's.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

TIMES, LEAST = 5.0, 2_000.0
"""Datagrams per second."""
ELSEWHERE = 5.0, 10_000.0
"""Packets per second in softirqs, that no interface of this namespace has seen."""


def udp_flood(case: Case) -> Cause | None:
    """Look for datagrams, or for packets of another namespace."""
    got, sent = case.host("udp.in_datagrams"), case.host("udp.out_datagrams")
    full = case.host("udp.rcvbuf_errors")
    served = case.host("softirq.net_rx")
    if got.rises(TIMES, LEAST) or sent.rises(TIMES, LEAST) or full.rises(TIMES, LEAST):
        return Cause(
            "udp_flood",
            "network",
            "Datagrams come or go at a rate that this host never sees.",
            0.9 + 0.05 * (full.value > LEAST),
            (got.evidence, sent.evidence, full.evidence, served.evidence),
            (
                Remedy("ss -uanp"),
                Remedy("tcpdump -ni any udp -c 50"),
                Remedy("nstat -az UdpInDatagrams UdpRcvbufErrors"),
            ),
        )
    own = case.host("net.rx_packets"), case.host("tcp.in_segs")
    if served.rises(*ELSEWHERE) and not any(r.rises(2.0, 1_000.0) for r in own):
        return Cause(
            "udp_flood",
            "network",
            "This machine serves a flood of packets that none of this host's interfaces see: it is "
            "in another network namespace, and takes the cores' time.",
            0.75 + 0.1 * between(served.times, 5, 50),
            (served.evidence, case.host("softnet.processed").evidence),
            (Remedy("lsns -t net"), Remedy("nsenter -t PID -n ss -uanp")),
        )
    return None
