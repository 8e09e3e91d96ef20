"""Packets are lost on the way, told apart from the workload's own retransmits.

Bursts of a workload overflow queues now and then, so a host has retransmits of its own: they are
held against its own usual rate. A sender sees recoveries by SACK and lost retransmits; a receiver
sees segments arrive out of order, behind a hole. Duplicates that the receiver reports (DSACK) as
fast as retransmits grow mean that nothing was lost, only late (RFC 2883).
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

RECOVERIES = 2.0, 5.0
"""Times the usual, and per second."""
RETRANSMITS = 1.5, 20.0
SHARE = 2.0, 1.0
"""Times the usual, and percent of the segments sent."""
TIMEOUTS = 2.0, 1.0
HOLES = 2.5, 20.0
DROPS = 3.0, 5.0
SPURIOUS = 0.7
"""Of the retransmits above the usual: so many duplicates mean reordering, not loss."""
DROPPED = (
    *("net.rx_drop", "net.rx_fifo", "net.rx_frame", "net.rx_errs", "net.tx_drop", "net.tx_errs"),
    *("softnet.dropped", "infiniband.xmit_discards", "infiniband.symbol_error"),
)


def packet_loss(case: Case) -> Cause | None:
    """Look for recoveries at the sender, holes at the receiver, and drops that are counted."""
    resent, recovered = case.host("tcp.retrans_segs"), case.host("tcp_ext.sack_recovery")
    holes, timeouts = case.host("tcp_ext.ofo_queue"), case.host("tcp_ext.timeouts")
    share, again = case.host("tcp.retrans_share"), case.host("tcp_ext.lost_retransmit")
    duplicates = case.host("tcp_ext.dsack_recv_segs")
    drops = [r for m in DROPPED for r in (case.host(m),) if r.rises(*DROPS)]
    # Where loss slows traffic down, there is less to send again: the share still tells.
    many = resent.rises(*RETRANSMITS) or share.rises(*SHARE)
    mended = recovered.rises(*RECOVERIES) or timeouts.rises(*TIMEOUTS) or again.rises(*RECOVERIES)
    sender = many and mended
    receiver = holes.rises(*HOLES)
    doubled = max(0.0, duplicates.value - duplicates.high)
    late = doubled > max(0.0, SPURIOUS * (resent.value - resent.high))
    if not drops and not receiver and (not sender or late):
        return None
    where = "on the way out" if sender else "on the way in" if receiver else "at an interface"
    worst = max(recovered.times if sender else 0, holes.times if receiver else 0)
    return Cause(
        "packet_loss",
        "network",
        f"Packets are lost {where}, more than the workload's own retransmits.",
        (0.9 if drops else 0.75) + 0.08 * between(worst, 2, 10),
        tuple(
            r.evidence
            for r in (resent, share, recovered, holes, timeouts, *drops[:3])
            if r.value > 0
        ),
        (
            Remedy("nstat -az TcpRetransSegs TcpExtTCPSackRecovery TcpExtTCPOFOQueue"),
            Remedy("ss -ti | grep -B1 retrans"),
            Remedy("ip -s link; ethtool -S IFACE | grep -iE 'drop|err|discard' | grep -v ': 0'"),
            Remedy("iptables -vnL; tc -s qdisc show"),
        ),
    )
