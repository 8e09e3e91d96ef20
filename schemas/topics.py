"""Every topic: what its key is, how it is spread, how long it is kept.

Partitions are a multiple of any sensible number of workers. All topics that carry a host's
records have the same count and, but for baselines, the host as key, so one host is one partition
everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 16
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `retention_ms` is None where the newest record per key is kept for good."""

    name: str
    key: str
    partitions: int
    retention_ms: int | None
    purpose: str

    @property
    def cleanup_policy(self) -> str:
        """Kafka's ``cleanup.policy``."""
        return "compact" if self.retention_ms is None else "delete"

    def config(self) -> dict[str, str]:
        """Kafka's topic settings."""
        config = {"cleanup.policy": self.cleanup_policy}
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        return config


TELEMETRY = Topic("reveal.telemetry", "host", PARTITIONS, DAY_MS, "ticks of every host")
LAYOUTS = Topic("reveal.layouts", "host:fingerprint", 1, None, "what each value means")
FEATURES = Topic("reveal.features", "host", PARTITIONS, DAY_MS, "windows, when asked for")
SCORES = Topic("reveal.scores", "host", PARTITIONS, 7 * DAY_MS, "how odd each window is")
ANOMALIES = Topic("reveal.anomalies", "host", PARTITIONS, 90 * DAY_MS, "episodes")
BASELINES = Topic(
    "reveal.baselines", "host:fingerprint", PARTITIONS, None, "what is normal on each host"
)
"""In the partition that the host's telemetry is in, whatever the key says: who gets the one loads
the other. A baseline too large for a message is cut: its further parts have ``/1`` and on added."""
DEADLETTER = Topic("reveal.deadletter", "topic:partition", 1, 7 * DAY_MS, "what could not be read")

TOPICS = (TELEMETRY, LAYOUTS, FEATURES, SCORES, ANOMALIES, BASELINES, DEADLETTER)
