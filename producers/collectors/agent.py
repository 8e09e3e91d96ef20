"""What the agent itself costs and loses, in the telemetry beside what it measures.

The figures are of the tick before: a tick cannot yet know its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from producers.collector import Reading, SourceFile
from producers.metric import Metric
from producers.reading import Reader
from schemas.records import Subsystem

PERCENT_OF_NS = 100 / 1e9


class OwnCost:
    """The agent writes these down after each tick; reading them costs no system call.

    Attributes
    ----------
    cpu_ns
        CPU time of the process so far, all its threads, librdkafka's too.
    jitter_us
        From the grid point to the moment of sampling, in the last tick.
    missed_ticks, dropped, payload_bytes
        So far: ticks that were due and not taken, messages given up, bytes sent (before
        compression).
    queued
        Messages not acknowledged yet.
    collector_seconds
        Time spent so far, by collector.
    """

    name = "agent"
    sources: tuple[SourceFile, ...] = ()

    def __init__(self, collectors: Sequence[str]) -> None:
        self.cpu_ns = 0
        self.jitter_us = 0.0
        self.missed_ticks = 0
        self.queued = 0
        self.dropped = 0
        self.payload_bytes = 0
        self.collector_seconds: Mapping[str, float] = {}
        self.broken: Counter[str] = Counter()
        self._collectors = tuple(collectors)
        self._seconds = np.full(len(collectors), np.nan)
        self._metrics = (
            _metric("cpu", "percent", counter=True, scale=PERCENT_OF_NS),
            _metric("missed_ticks", "1/s", counter=True),
            _metric("dropped", "1/s", counter=True),
            _metric("payload", "bytes/s", counter=True),
            _metric("queued", "messages"),
            _metric("jitter", "us"),
            *(_metric("collector_time", "us", device=name) for name in collectors),
        )

    def read(self, reader: Reader) -> Reading:  # noqa: ARG002 - there is no file to read
        """Return what was written down; times of collectors since the read before."""
        seconds = np.array([self.collector_seconds.get(n, np.nan) for n in self._collectors])
        spent = 1e6 * (seconds - self._seconds)
        self._seconds = seconds
        figures = (
            *(self.cpu_ns, self.missed_ticks, self.dropped, self.payload_bytes),
            *(self.queued, self.jitter_us),
        )
        return Reading(self._metrics, np.concatenate([np.array(figures, np.float64), spent]))


def _metric(
    name: str, unit: str, *, device: str = "", counter: bool = False, scale: float = 1.0
) -> Metric:
    return Metric(f"agent.{name}", device, Subsystem.AGENT, unit, counter, scale)
