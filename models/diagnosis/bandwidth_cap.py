"""The network carries less than the workload asks for: a rate limit, a slower link, a full path.

Traffic falls to a part of the usual and goes on evenly, cores idle, and nothing is lost: segments
queue before the limit (softirqs of sending, socket buffers) instead of being retransmitted.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Reading, Remedy, between
from models.diagnosis.stalled_rank import SILENT
from models.diagnosis.traffic import LEAST_BYTES, sent_and_received

CAPPED = 0.5
IDLE = 0.7
QUEUED = 2.0, 50.0


def bandwidth_cap(case: Case) -> Cause | None:
    """Look for less traffic and idle cores without loss."""
    traffic, busy = sent_and_received(case), case.host("cpu.busy")
    if busy.value != busy.value:
        busy = case.total("cpu.busy")
    if not traffic.falls(CAPPED, LEAST_BYTES) or traffic.falls(SILENT, LEAST_BYTES):
        return None
    lost = case.host("tcp.retrans_segs").rises(1.5, 20.0) or case.host("tcp.retrans_share").rises(
        2.0, 1.0
    )
    queued, speed = case.host("softirq.net_tx"), _slowest(case)
    slower = speed.falls(0.99)
    certain = queued.rises(*QUEUED) or slower
    # A limit whose queue is full drops packets as well. Workers that poll for their data keep cores
    # busy: then the queue or the link has to tell.
    if not certain and (lost or not busy.falls(IDLE, 2.0)):
        return None
    return Cause(
        "bandwidth_cap",
        "network",
        "The network carries a part of the usual, evenly and without loss: a rate limit or a "
        "slower link, which the workload waits for.",
        (0.85 if certain else 0.65) + 0.1 * between(traffic.low / traffic.value, 2, 10),
        tuple(
            r.evidence
            for r in (traffic, busy, queued, *((speed,) if slower else ()))
            if r.value == r.value
        ),
        (
            Remedy("tc -s qdisc show"),
            Remedy("ss -tin | grep -o 'send [^ ]*\\|pacing_rate [^ ]*' | sort | head"),
            Remedy("ethtool IFACE | grep -i speed"),
            Remedy("tc qdisc del dev IFACE root", changes_host=True),
        ),
    )


def _slowest(case: Case) -> Reading:
    """Return the link or port whose speed is furthest below the usual."""
    links = [r for m in ("link.speed", "infiniband.rate") for r in case.devices(m)]
    links = [r for r in links if r.value == r.value]
    return min(links, key=lambda r: r.value / max(r.low, 1.0), default=case.host("link.speed"))
