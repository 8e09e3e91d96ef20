"""One port carries what several should: NCCL on a single queue pair or interface.

With several ports of InfiniBand or RoCE up, traffic that used to spread over them goes through one,
at its limit, while the others idle (the paper's fault; NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_HCA).
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Remedy, between

ONE, REST = 0.85, 0.65
"""Share of the traffic that one port has, and that it usually has at most."""
LEAST_BYTES = 1e8
"""Per second, all ports together."""


def single_queue_pair(case: Case) -> Cause | None:
    """Look for one port with nearly all traffic, where usually several share it."""
    ports = [r for r in case.devices("infiniband.xmit_bytes") if r.value == r.value]
    whole, usual = sum(r.value for r in ports), sum(r.low + r.high for r in ports)
    if len(ports) < 2 or not (whole > LEAST_BYTES and usual > 2 * LEAST_BYTES):
        return None
    worst = max(ports, key=lambda r: r.value)
    share, before = worst.value / whole, (worst.low + worst.high) / usual
    if not (share > ONE and before < REST):
        return None
    idle = min((r for r in ports if r is not worst), key=lambda r: r.value)
    waits = case.device(
        "infiniband.xmit_wait", worst.label.removeprefix("infiniband.xmit_bytes[")[:-1]
    )
    return Cause(
        "single_queue_pair",
        "network",
        f"One port of {len(ports)} carries {100 * share:.0f} % of the traffic, usually "
        f"{100 * before:.0f} %: collectives run over a single queue pair or interface.",
        0.7 + 0.2 * between(share, ONE, 1.0),
        tuple(r.evidence for r in (worst, idle, waits) if r.value == r.value),
        (
            Remedy("rdma res show qp; ibv_devinfo | grep -E 'hca_id|state'"),
            Remedy("export NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=1", True),
        ),
    )
