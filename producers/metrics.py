"""What the agent says of itself to Prometheus, read off when somebody asks: a tick pays nothing."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from producers.publisher import REASONS
from schemas.errors import InvalidSettings

if TYPE_CHECKING:
    from producers.agent import Agent, Spread
    from producers.part import CollectorStats

PREFIX = "reveal_agent"


class AgentMetrics(Collector):
    """The figures of one agent, in a registry of their own."""

    def __init__(self, agent: Agent, *, host: str, version: str) -> None:
        self._agent = agent
        self._labels = {"host": host, "version": version}
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def serve(self, address: str, port: int) -> None:
        """Answer Prometheus on `address`:`port`; 0 is off.

        Raises
        ------
        InvalidSettings
            The address cannot be had.
        """
        if not port:
            return
        try:
            start_http_server(port, address, self.registry)
        except OSError as e:
            raise InvalidSettings(
                f"Prometheus port {address}:{port}: {e.strerror}; "
                "choose another with --metrics-port, or none with 0"
            ) from e

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, as it is now."""
        agent, grid, publisher = self._agent, self._agent.grid, self._agent.publisher
        budget = agent.budget
        info = GaugeMetricFamily(
            f"{PREFIX}_info", "The agent and its host; always 1", labels=list(self._labels)
        )
        info.add_metric(list(self._labels.values()), 1)
        yield info
        yield _gauge("channels", "Numbers in a tick", agent.channels)
        yield _gauge("interval_seconds", "Time between two ticks", grid.interval_us / 1e6)
        yield _counter("ticks", "Ticks taken", agent.ticks)
        yield _counter("missed_ticks", "Ticks that were due and not taken", grid.missed)
        yield _counter("clock_steps", "Times the wall clock was set", grid.steps)
        yield _summary("jitter_seconds", "From a tick's time to its being taken", agent.jitter)
        yield _gauge("jitter_max_seconds", "Greatest jitter since the start", agent.jitter.greatest)
        yield _summary("tick_seconds", "Sampling, packing and handing over one tick", agent.work)
        yield _counter("cpu_seconds", "CPU time of the agent, all threads", agent.cpu_seconds)
        yield _gauge("resident_memory_bytes", "Memory of the agent", _resident_bytes())
        stats = agent.sampler.stats
        yield _counters(
            *("collector_seconds", "Time spent in a collector", "collector"),
            {name: s.seconds for name, s in stats.items()},
        )
        yield _counters(
            *(
                "collector_cpu_seconds",
                "CPU time of a collector, the budget's measure",
                "collector",
            ),
            {name: s.cpu_ns / 1e9 for name, s in stats.items()},
        )
        yield _counters(
            *("collector_errors", "Readings that failed", "collector"),
            {name: s.failures.total() for name, s in stats.items()},
        )
        yield _counters(
            *("collector_bad_fields", "Fields that were no numbers", "collector"),
            {name: s.bad_fields for name, s in stats.items()},
        )
        yield _counters(
            *("counter_events", "Counters of the host that did not just grow", "event"),
            agent.sampler.events,
        )
        yield _gauges(
            *("collector_stretch", "Times more rarely than it wants a collector is read", stats),
            lambda s: s.stretch,
        )
        yield _gauges(
            *("collector_age_seconds", "Age of its oldest reading in the newest tick", stats),
            lambda s: max(0, agent.newest_ns - s.read_ns) / 1e9,
        )
        yield _gauge("cpu_budget_ratio", "CPU it may take, of one core", budget.allowed / 100)
        yield _gauge(
            "cpu_used_ratio", "CPU that it takes, as the budget sees it", budget.used / 100
        )
        yield _gauge("queued_messages", "Messages not acknowledged yet", len(publisher))
        yield _counter("delivered_messages", "Messages acknowledged", publisher.delivered)
        yield _counters(
            *("dropped_messages", "Messages given up", "reason"),
            # From the start: of what appears with its first loss Prometheus sees no increase.
            dict.fromkeys(REASONS, 0) | dict(publisher.dropped),
        )
        yield _counter(
            *("payload_bytes", "Bytes of messages made, before compression"),
            publisher.payload_bytes,
        )
        yield _counter("producer_rebuilds", "Producers replaced", publisher.rebuilt)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value)


def _gauges(
    name: str, text: str, stats: Mapping[str, CollectorStats], of: Callable[[CollectorStats], float]
) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["collector"])
    for key, s in stats.items():
        family.add_metric([key], of(s))
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for key, value in dict(values).items():  # a copy: the agent goes on counting meanwhile
        family.add_metric([key], value)
    return family


def _summary(name: str, text: str, spread: Spread) -> Metric:
    return SummaryMetricFamily(f"{PREFIX}_{name}", text, spread.count, spread.total)


def _resident_bytes() -> int:
    """Return this process's resident memory (proc(5), /proc/pid/statm)."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()
