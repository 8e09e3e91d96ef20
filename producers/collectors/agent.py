"""What the agent itself costs and loses, in the telemetry beside what it measures.

The figures are of the tick before: a tick cannot yet know its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from producers.reading import Reader
from producers.source import EVERY_TICK, Collector, Field, Plan
from schemas.records import Channel, Kind, Subsystem

NS_TO_PERCENT = 100 / 1e9
NAN = float("nan")


class OwnCost:
    """A source that the agent itself writes, after each tick: reading it costs no system call.

    Attributes
    ----------
    cpu_ns
        CPU time of the process so far, all its threads, librdkafka's too.
    missed_ticks, dropped, payload_bytes
        So far: ticks that were due and not taken, messages given up, bytes of messages made,
        before compression.
    queued
        Messages not acknowledged yet.
    jitter_us
        From the grid point to the moment of sampling.
    collector_us
        Time that each collector took, in the order of `collectors`.
    age_ms, stretch
        How old each one's oldest reading was, and how many times rarer than it wants it is read.
    """

    path = ""
    remedy = ""
    period_ns = EVERY_TICK
    problem = ""
    bad_fields = 0

    def __init__(self, collectors: Sequence[str]) -> None:
        self.cpu_ns: float = NAN
        self.missed_ticks: float = NAN
        self.dropped: float = NAN
        self.payload_bytes: float = NAN
        self.queued: float = NAN
        self.jitter_us: float = NAN
        self.collector_us: Sequence[float] = (NAN,) * len(collectors)
        self.age_ms: Sequence[float] = (NAN,) * len(collectors)
        self.stretch: Sequence[float] = (NAN,) * len(collectors)
        channels = (
            _channel("cpu", "%", Kind.RATE),
            _channel("missed_ticks", "/s", Kind.RATE),
            _channel("dropped", "/s", Kind.RATE),
            _channel("payload", "B/s", Kind.RATE),
            _channel("queued", "messages"),
            _channel("jitter", "us"),
            *(_channel("collector_time", "us", device=name) for name in collectors),
            *(_channel("collector_age", "ms", device=name) for name in collectors),
            *(_channel("collector_stretch", "times", device=name) for name in collectors),
        )
        scale = {"agent.cpu": NS_TO_PERCENT}
        self.plan = Plan(
            fields=tuple(
                Field(c.label, c.kind is Kind.RATE, scale.get(c.metric, 1.0)) for c in channels
            ),
            channels=channels,
            direct=tuple(range(len(channels))),
        )

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        """Return what was written."""
        return [
            *(self.cpu_ns, self.missed_ticks, self.dropped, self.payload_bytes),
            *(self.queued, self.jitter_us),
            *self.collector_us,
            *self.age_ms,
            *self.stretch,
        ]


def collector(own: OwnCost) -> Collector:
    """Return the collector of an agent's own cost."""
    return Collector("agent", (own,))


def _channel(name: str, unit: str, kind: Kind = Kind.GAUGE, *, device: str = "") -> Channel:
    return Channel(f"agent.{name}", device, Subsystem.AGENT, unit, kind)
