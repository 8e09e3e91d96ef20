"""How the parts are and how the data flow through them, from what they say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from deploy.health import Recent, Usage
from deploy.wording import count_of

UNREADABLE = "unreadable"
"""What the view itself counts: messages that it could not read."""
LOSSES = (
    ("agent", "reveal_agent_missed_ticks_total", "tick", "missed by the agent"),
    ("agent", "reveal_agent_dropped_messages_total", "record", "dropped by the agent"),
    ("agent", "reveal_agent_collector_errors_total", "reading", "failed"),
    ("agent", "reveal_agent_collector_bad_fields_total", "field", "left empty, not being numbers"),
    ("worker", "reveal_worker_dropped_ticks_total", "tick", "dropped by the worker"),
    ("worker", "reveal_worker_skipped_records_total", "record", "left the log unread"),
    ("worker", "reveal_worker_dead_letters_total", "message", "unreadable: see reveal.deadletter"),
    ("view", UNREADABLE, "message", "unreadable and not shown here"),
)
"""Counters that are worth a line when they move: part, metric, what of it, what befell it."""
AGENT_TICKS = "reveal_agent_ticks_total"


class PartState(StrEnum):
    """What a part of the stack is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "not reached"


@dataclass(slots=True)
class Part:
    """One part of the stack, as it is shown."""

    name: str
    state: PartState = PartState.WAITING
    pid: int | None = None
    usage: Usage | None = None
    note: str = ""


@dataclass(slots=True)
class Stack:
    """The parts, and how the data flow through them. What is not known is None."""

    brokers: str
    embedded: bool
    parts: tuple[Part, ...]
    baseline_s: float | None = None
    uptime_s: float = 0.0
    windows_per_s: float | None = None
    lag_records: float | None = None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    trouble: tuple[str, ...] = ()
    """What was lost in the last minute, each in a few words."""
    windows: float = 0.0
    losses: tuple[str, ...] = ()
    """What was lost since the start."""


def describe(stack: Stack, *, agent: Recent, worker: Recent, view: Recent) -> None:
    """Put what the parts, and the view of them, count into the picture."""
    stack.windows_per_s = worker.rate("reveal_worker_windows_total")
    stack.lag_records = worker.latest("reveal_worker_lag_records")
    stack.latency_p50_s = worker.quantile("reveal_worker_latency_seconds", 0.50)
    stack.latency_p99_s = worker.quantile("reveal_worker_latency_seconds", 0.99)
    stack.windows = worker.latest("reveal_worker_windows_total") or 0.0
    of = {"agent": agent, "worker": worker, "view": view}
    stack.trouble = tuple(
        f"{count_of(lost, thing)} {fate} in the last minute"
        for name, metric, thing, fate in LOSSES
        if (lost := of[name].grown(metric))
    )
    stack.losses = tuple(
        f"{count_of(lost, thing)} {fate}"
        for name, metric, thing, fate in LOSSES
        if (lost := of[name].latest(metric) or 0.0)
    )
    channels, ticks_per_s = agent.latest("reveal_agent_channels"), agent.rate(AGENT_TICKS)
    if channels is not None and ticks_per_s is not None:
        for part in stack.parts:
            if part.name == "agent":
                part.note = f"{channels:.0f} channels at {ticks_per_s:.1f}/s"
