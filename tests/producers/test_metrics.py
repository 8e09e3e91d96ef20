from __future__ import annotations

import math
import socket
import urllib.request

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.stack import free_port
from producers.metrics import AgentMetrics
from schemas.errors import InvalidSettings
from tests.producers.hosts import SECOND_NS, Host


def scrape(text: str) -> dict[str, float]:
    """Samples by name and labels, as Prometheus reads them."""
    return {
        s.name + "".join(f"{{{v}}}" for v in s.labels.values()): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def samples(host: Host) -> dict[str, float]:
    metrics = AgentMetrics(host.agent, host="node1", version="0.1")
    return scrape(generate_latest(metrics.registry).decode())


def test_what_the_agent_counts_is_what_prometheus_reads() -> None:
    host = Host(1.0, 2.0)
    host.producers[0].obliging = True
    host.clock.oversleep_ns = 2_000_000
    host.ticks(20)
    host.clock.run(SECOND_NS)
    host.ticks(1)
    host.cpu_ns = 1_500_000_000
    host.publisher.dropped["too_old"] = 3
    got = samples(host)
    assert got["reveal_agent_info{node1}{0.1}"] == 1
    assert got["reveal_agent_channels"] == 11
    assert got["reveal_agent_interval_seconds"] == 0.1
    assert got["reveal_agent_ticks_total"] == 21
    assert got["reveal_agent_missed_ticks_total"] == 9
    assert got["reveal_agent_clock_steps_total"] == 0
    assert got["reveal_agent_jitter_seconds_count"] == 21
    assert got["reveal_agent_jitter_seconds_sum"] == pytest.approx(0.044)
    assert got["reveal_agent_jitter_max_seconds"] == pytest.approx(0.004)
    assert got["reveal_agent_tick_seconds_count"] == 21
    assert got["reveal_agent_cpu_seconds_total"] == 1.5
    assert got["reveal_agent_resident_memory_bytes"] > 1e6
    assert got["reveal_agent_collector_seconds_total{numbers}"] > 0
    assert got["reveal_agent_collector_errors_total{numbers}"] == 0
    assert got["reveal_agent_collector_cpu_seconds_total{numbers}"] == pytest.approx(
        host.sampler.stats["numbers"].cpu_ns / 1e9
    )
    assert got["reveal_agent_cpu_budget_ratio"] == 1
    assert math.isnan(got["reveal_agent_cpu_used_ratio"])
    assert got["reveal_agent_delivered_messages_total"] == 3
    assert got["reveal_agent_dropped_messages_total{too_old}"] == 3
    assert got["reveal_agent_dropped_messages_total{refused}"] == 0
    assert got["reveal_agent_queued_messages"] == len(host.publisher)
    assert got["reveal_agent_payload_bytes_total"] == sum(
        len(value) for _, value in host.producers[0].given
    )
    assert got["reveal_agent_producer_rebuilds_total"] == 0


def test_what_is_used_is_what_the_budget_sees() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True

    def spend(_: int) -> None:
        host.cpu_ns += 2_000_000  # of 100 ms

    host.ticks(400, spend)
    assert samples(host)["reveal_agent_cpu_used_ratio"] == pytest.approx(0.02, rel=0.02)


def test_failures_of_a_collector_are_counted() -> None:
    host = Host(1.0)
    host.ticks(1)
    host.numbers.error = OSError("gone")
    host.ticks(4)
    assert samples(host)["reveal_agent_collector_errors_total{numbers}"] == 4


def test_it_answers_on_its_port() -> None:
    host = Host(1.0)
    host.ticks(3)
    port = free_port()
    AgentMetrics(host.agent, host="node1", version="0.1").serve("127.0.0.1", port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    assert scrape(text)["reveal_agent_ticks_total"] == 3
    assert "# TYPE reveal_agent_ticks_total counter" in text


def test_a_port_that_is_taken_is_said_with_what_to_do() -> None:
    host = Host(1.0)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        with pytest.raises(InvalidSettings, match=f"127.0.0.1:{port}: .* --metrics-port"):
            AgentMetrics(host.agent, host="node1", version="0").serve("127.0.0.1", port)


def test_port_0_is_off() -> None:
    AgentMetrics(Host(1.0).agent, host="node1", version="0").serve("127.0.0.1", 0)
