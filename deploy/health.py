"""How the parts are: their Prometheus endpoints, scraped, and what the kernel says of them."""

from __future__ import annotations

import http.client
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import psutil
from prometheus_client.parser import text_string_to_metric_families

SCRAPE_TIMEOUT_S = 0.5
RATE_S = 30.0
QUANTILES_S = 60.0
USAGE_S = 5.0

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
"""Values of one scrape by sample name and labels."""


def scrape(port: int, host: str = "127.0.0.1") -> Samples | None:
    """Return what a Prometheus endpoint says; None when it does not answer."""
    # Not urllib: it would ask the proxy that the environment may name.
    connection = http.client.HTTPConnection(host, port, timeout=SCRAPE_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            return None
        return parse(response.read().decode())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def parse(text: str) -> Samples:
    """Return the samples of a page in Prometheus' text format."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(samples: Samples, name: str) -> float | None:
    """Return the sum of a metric over its labels; None when it is not there."""
    values = [value for (sample, _), value in samples.items() if sample == name]
    return sum(values) if values else None


def buckets(samples: Samples, name: str) -> dict[float, float]:
    """Return a histogram's cumulative counts by upper bound."""
    return {
        float(dict(labels)["le"]): value
        for (sample, labels), value in samples.items()
        if sample == f"{name}_bucket"
    }


def quantile(counts: Mapping[float, float], q: float) -> float | None:
    """Return a quantile of a cumulative histogram, linear within a bucket.

    The same as Prometheus' ``histogram_quantile``. None when nothing was counted; the highest
    finite bound when it lies above that.
    """
    bounds = sorted(counts)
    if not bounds or counts[bounds[-1]] <= 0:
        return None
    rank = q * counts[bounds[-1]]
    below_bound = below_count = 0.0
    for bound in bounds:
        count = counts[bound]
        if count >= rank and count > below_count:
            if bound == float("inf"):
                return below_bound
            return below_bound + (bound - below_bound) * (rank - below_count) / (
                count - below_count
            )
        below_bound, below_count = bound, count
    return None


class Recent:
    """Scrapes of the last minute: rates and quantiles come from how they differ."""

    def __init__(self) -> None:
        self._scrapes: deque[tuple[float, Samples]] = deque()

    def add(self, at_s: float, samples: Samples) -> None:
        """Take in a scrape of a monotonic time."""
        self._scrapes.append((at_s, samples))
        while len(self._scrapes) > 2 and self._scrapes[1][0] <= at_s - QUANTILES_S:
            self._scrapes.popleft()

    @property
    def answered(self) -> bool:
        """Whether there was any scrape yet."""
        return bool(self._scrapes)

    def latest(self, name: str) -> float | None:
        """Return the newest value of a metric, summed over its labels."""
        return total(self._scrapes[-1][1], name) if self._scrapes else None

    def grown(self, name: str) -> float:
        """Return by how much a counter has grown in the last minute."""
        if not self._scrapes:
            return 0.0
        newest = total(self._scrapes[-1][1], name) or 0.0
        return max(0.0, newest - (total(self._scrapes[0][1], name) or 0.0))

    def rate(self, name: str) -> float | None:
        """Return a counter's growth per second over the last `RATE_S` seconds."""
        if len(self._scrapes) < 2:
            return None
        now, newest = self._scrapes[-1]
        then, oldest = next(s for s in self._scrapes if s[0] >= now - RATE_S)
        if then == now:
            then, oldest = self._scrapes[-2]
        end = total(newest, name)
        if end is None:
            return None
        return max(0.0, end - (total(oldest, name) or 0.0)) / (now - then)

    def quantile(self, name: str, q: float) -> float | None:
        """Return a quantile of a histogram over the last minute."""
        if not self._scrapes:
            return None
        newest = buckets(self._scrapes[-1][1], name)
        oldest = buckets(self._scrapes[0][1], name) if len(self._scrapes) > 1 else {}
        return quantile({b: max(0.0, n - oldest.get(b, 0.0)) for b, n in newest.items()}, q)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process and those it started cost: share of one core, and resident bytes."""

    cpu: float | None
    rss_bytes: int


class Meter:
    """Measures one process over the last seconds: the kernel counts in ticks of 10 ms."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._before: deque[tuple[float, float]] = deque()

    def measure(self, at_s: float) -> Usage | None:
        """Return the cost over the last `USAGE_S` seconds; None when the process is gone."""
        seconds, rss = 0.0, 0
        try:
            family = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return None
        for process in family:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    seconds += times.user + times.system
                    rss += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self._before.append((at_s, seconds))
        while len(self._before) > 2 and self._before[1][0] <= at_s - USAGE_S:
            self._before.popleft()
        then, spent = self._before[0]
        if at_s <= then:
            return Usage(None, rss)
        # A child that ended takes its past with it: then the sum can fall.
        return Usage(max(0.0, seconds - spent) / (at_s - then), rss)
