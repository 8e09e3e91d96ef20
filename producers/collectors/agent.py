"""What the agent itself costs and loses, in the telemetry beside what it measures.

The figures are of the tick before: a tick cannot yet know its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from producers.part import CollectorStats
from producers.reading import Reader
from producers.source import EVERY_TICK, SECOND_NS, Collector, Field, Plan
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
    """

    path = ""
    remedy = ""
    period_ns = EVERY_TICK
    problem = ""
    bad_fields = 0

    def __init__(self) -> None:
        self.cpu_ns: float = NAN
        self.missed_ticks: float = NAN
        self.dropped: float = NAN
        self.payload_bytes: float = NAN
        self.queued: float = NAN
        self.jitter_us: float = NAN
        channels = (
            _channel("cpu", "%", Kind.RATE),
            _channel("missed_ticks", "/s", Kind.RATE),
            _channel("dropped", "/s", Kind.RATE),
            _channel("payload", "B/s", Kind.RATE),
            _channel("queued", "messages"),
            _channel("jitter", "us"),
        )
        self.plan = _plan(channels, {"agent.cpu": NS_TO_PERCENT})

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        """Return what was written."""
        return [
            *(self.cpu_ns, self.missed_ticks, self.dropped, self.payload_bytes),
            *(self.queued, self.jitter_us),
        ]


class CollectorCosts:
    """A source of what each collector takes, and how often it is read.

    Attributes
    ----------
    stats
        Those of the sampler, by collector's name: to be set once there is one.
    """

    path = ""
    remedy = ""
    period_ns = SECOND_NS
    problem = ""
    bad_fields = 0

    def __init__(self, collectors: Sequence[str]) -> None:
        self.stats: Mapping[str, CollectorStats] = {}
        self._names = tuple(collectors)
        self.plan = _plan(
            (
                *(_channel("collector_time", "ms/s", Kind.RATE, device=n) for n in self._names),
                *(_channel("collector_age", "ms", device=n) for n in self._names),
                *(_channel("collector_stretch", "times", device=n) for n in self._names),
            ),
            {"agent.collector_time": 1e3},
        )

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        """Return the seconds so far, the age of the oldest reading and the stretch of each."""
        if not self.stats:
            return self.plan.blank
        stats = [self.stats[name] for name in self._names]
        return [
            *(s.seconds for s in stats),
            *((mono_ns - s.read_ns) / 1e6 for s in stats),
            *(s.stretch for s in stats),
        ]


def collector(own: OwnCost, costs: CollectorCosts) -> Collector:
    """Return the collector of an agent's own cost."""
    return Collector("agent", (own, costs))


def _channel(name: str, unit: str, kind: Kind = Kind.GAUGE, *, device: str = "") -> Channel:
    return Channel(f"agent.{name}", device, Subsystem.AGENT, unit, kind)


def _plan(channels: tuple[Channel, ...], scale: Mapping[str, float]) -> Plan:
    return Plan(
        fields=tuple(
            Field(c.label, c.kind is Kind.RATE, scale.get(c.metric, 1.0)) for c in channels
        ),
        channels=channels,
        direct=tuple(range(len(channels))),
    )
