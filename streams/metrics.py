"""What the worker says of itself, for Prometheus and for the live view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

if TYPE_CHECKING:
    from streams.layouts import Layouts
    from streams.pipeline import Pipeline

LATENCY_BUCKETS_S = (
    *(0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3),
    *(0.4, 0.5, 0.75, 1, 2, 5, 10, 30, 60, 300),
)


class WorkerMetrics:
    """One worker's counters. `refresh` copies in what the core counts by itself."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.records = Counter("reveal_worker_records", "Telemetry records read", registry=r)
        self.windows = Counter("reveal_worker_windows", "Windows scored", ["state"], registry=r)
        self.anomalies = Counter(
            "reveal_worker_anomalies", "Episode events published", ["state"], registry=r
        )
        self.dead_letters = Counter(
            "reveal_worker_dead_letters", "Messages that could not be read", registry=r
        )
        self.latency = Histogram(
            "reveal_worker_latency_seconds",
            "From the last tick of a window to its score being published",
            buckets=LATENCY_BUCKETS_S,
            registry=r,
        )
        self.batch = Histogram(
            "reveal_worker_batch_seconds", "Computing one batch of records", registry=r
        )
        self.lag = Gauge("reveal_worker_lag_records", "Records in the log not yet read", registry=r)
        self.partitions = Gauge("reveal_worker_partitions", "Partitions assigned", registry=r)
        self.hosts = Gauge("reveal_worker_hosts", "Hosts with open windows", registry=r)
        self.unhealthy = Counter(
            "reveal_worker_group_errors", "Errors of the consumer group healed", registry=r
        )
        self._dropped = Counter(
            "reveal_worker_dropped_ticks", "Ticks that went into no window", ["reason"], registry=r
        )
        self._missing = Gauge("reveal_worker_missing_ticks", "Ticks that never came", registry=r)
        self._empty = Counter(
            "reveal_worker_empty_windows", "Windows without a tick: not published", registry=r
        )
        self._rewinds = Counter(
            "reveal_worker_rewinds", "Partitions read again from an earlier place", registry=r
        )
        self._skipped = Counter(
            "reveal_worker_skipped_records", "Records that the log jumped over", registry=r
        )
        self._bad_layouts = Counter(
            "reveal_worker_rejected_layouts", "Messages that were not layouts", registry=r
        )
        self._baselines = Counter(
            "reveal_worker_baselines",
            "Baselines loaded, published and rejected, attempts to publish that failed, and loads "
            "cut short",
            ["what"],
            registry=r,
        )
        self._seen: dict[object, float] = {}

    def serve(self, host: str, port: int) -> None:
        """Answer Prometheus on `host`:`port`; 0 is off."""
        if port:
            start_http_server(port, host, self.registry)

    def refresh(self, pipeline: Pipeline, layouts: Layouts) -> None:
        """Take over the core's own counts."""
        windows = pipeline.windows
        self.hosts.set(len(windows))
        self._missing.set(windows.missing)
        self._advance(self._empty, "empty", windows.empty)
        self._advance(self._rewinds, "rewinds", pipeline.rewinds)
        self._advance(self._skipped, "skipped", pipeline.skipped)
        self._advance(self._bad_layouts, "layouts", layouts.rejected)
        self._advance_each(self._dropped, windows.dropped, "dropped")

    def refresh_baselines(self, counts: Mapping[str, int]) -> None:
        """Take over what was counted of baselines, by what happened to them."""
        self._advance_each(self._baselines, counts, "baselines")

    def _advance(self, counter: Counter, key: object, total: float) -> None:
        counter.inc(total - self._seen.get(key, 0))
        self._seen[key] = total

    def _advance_each(self, counter: Counter, totals: Mapping[str, int], name: str) -> None:
        for label, total in totals.items():
            self._advance(counter.labels(label), (name, label), total)
