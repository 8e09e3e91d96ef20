"""The traffic of a host's interfaces together, as several rules need it."""

from __future__ import annotations

from models.diagnosis.case import Case, Reading

LEAST_BYTES = 1e5
"""Bytes per second: a host that usually sends less has no traffic to speak of."""


def sent_and_received(case: Case) -> Reading:
    """Return bytes per second of all interfaces but loopback, and of InfiniBand, both ways."""
    metrics = ("net.rx_bytes", "net.tx_bytes", "infiniband.rcv_bytes", "infiniband.xmit_bytes")
    parts = [case.total(m, besides=(f"{m}[lo]",)) for m in metrics]
    known = [p for p in parts if p.value == p.value]
    return Reading(
        "network traffic",
        "B/s",
        sum(p.value for p in known),
        sum(p.low for p in known),
        sum(p.high for p in known),
    )
