"""Scrapes become rates and quantiles; processes are measured."""

from __future__ import annotations

import os

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.exposition import generate_latest

from deploy.health import Meter, Recent, Samples, buckets, parse, quantile, scrape, total
from deploy.stack import free_port

BUCKETS = (0.1, 0.2, 0.4)


class Exporter:
    """A page with the kinds of metrics that ours have."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.windows = Counter("windows", "x", ["state"], registry=self.registry)
        self.lag = Gauge("lag", "x", registry=self.registry)
        self.latency = Histogram("latency", "x", buckets=BUCKETS, registry=self.registry)

    def page(self) -> Samples:
        return parse(generate_latest(self.registry).decode())


def test_a_page_is_read_and_summed_over_labels() -> None:
    exporter = Exporter()
    exporter.windows.labels("active").inc(3)
    exporter.windows.labels("learning").inc(4)
    exporter.lag.set(12)
    page = exporter.page()
    assert total(page, "windows_total") == 7
    assert total(page, "lag") == 12
    assert total(page, "nothing") is None


@pytest.mark.parametrize(
    ("counts", "q", "value"),
    [
        # 10 observations spread evenly below 0.1: the median is in the middle.
        ({0.1: 10, 0.2: 10, float("inf"): 10}, 0.5, 0.05),
        # 8 below 0.1, 2 between 0.1 and 0.2: 90 % lies half way into the second bucket.
        ({0.1: 8, 0.2: 10, float("inf"): 10}, 0.9, 0.15),
        # More than half lies above every bound: the highest finite one is all that is known.
        ({0.1: 1, 0.2: 2, float("inf"): 10}, 0.5, 0.2),
        ({0.1: 0, 0.2: 0, float("inf"): 0}, 0.5, None),
        ({}, 0.5, None),
    ],
)
def test_quantile(counts: dict[float, float], q: float, value: float | None) -> None:
    assert quantile(counts, q) == (None if value is None else pytest.approx(value))


def test_the_rate_is_of_the_last_half_minute() -> None:
    exporter, recent = Exporter(), Recent()
    assert recent.rate("windows_total") is None
    for second in range(51):
        # 1 a second at first, 5 a second from the 20th on.
        exporter.windows.labels("active").inc(1 if second <= 20 else 5)
        recent.add(float(second), exporter.page())
    assert recent.rate("windows_total") == pytest.approx(5)
    assert recent.latest("windows_total") == 21 + 150
    assert recent.grown("windows_total") == 20 + 150


def test_a_rate_of_two_scrapes_far_apart_is_of_both() -> None:
    exporter, recent = Exporter(), Recent()
    recent.add(0.0, exporter.page())
    exporter.windows.labels("active").inc(60)
    recent.add(30.0, exporter.page())
    assert recent.rate("windows_total") == pytest.approx(2)


def test_quantiles_are_of_the_last_minute_only() -> None:
    exporter, recent = Exporter(), Recent()
    for _ in range(100):
        exporter.latency.observe(0.35)
    recent.add(0.0, exporter.page())
    assert recent.quantile("latency", 0.5) == pytest.approx(0.3), "nothing else is known yet"
    for _ in range(10):
        exporter.latency.observe(0.05)
    recent.add(30.0, exporter.page())
    assert recent.quantile("latency", 0.5) == pytest.approx(0.05)
    recent.add(61.0, exporter.page())
    assert recent.quantile("latency", 0.5) == pytest.approx(0.05), "the scrape before the minute"
    recent.add(91.0, exporter.page())
    assert recent.quantile("latency", 0.5) is None, "nothing was observed in the last minute"
    assert buckets(exporter.page(), "latency")[float("inf")] == 110


def test_an_endpoint_is_scraped_and_a_closed_one_is_none() -> None:
    exporter = Exporter()
    exporter.lag.set(3)
    port = free_port()
    assert scrape(port) is None
    server, thread = start_http_server(port, "127.0.0.1", exporter.registry)
    try:
        page = scrape(port)
        assert page is not None
        assert total(page, "lag") == 3
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_process_is_measured() -> None:
    meter = Meter(os.getpid())
    first = meter.measure(0.0)
    assert first is not None
    assert first.cpu is None
    assert first.rss_bytes > 1_000_000
    second = meter.measure(1e9)
    assert second is not None
    assert second.cpu == pytest.approx(0, abs=1e-3)
