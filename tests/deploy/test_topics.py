"""The topics on a cluster: listed, compared, created."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException

from deploy import topics
from deploy.cli import main
from deploy.local import Broker
from schemas.topics import LAYOUTS, SCORES, TELEMETRY, TOPICS


class Metadata:
    """What a cluster says of its topics."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.topics = {name: self.Topic(count) for name, count in counts.items()}

    class Topic:
        error = None

        def __init__(self, partitions: int) -> None:
            self.partitions = dict.fromkeys(range(partitions))


class Cluster:
    """A stand-in for AdminClient: the embedded broker takes no admin calls."""

    def __init__(self, counts: dict[str, int], errors: dict[str, int] | None = None) -> None:
        self._counts = counts
        self._errors = errors or {}
        self.asked: dict[str, Any] = {}

    def list_topics(self, timeout: float) -> Metadata:  # noqa: ARG002
        return Metadata(self._counts)

    def create_topics(
        self,
        new: list[Any],
        request_timeout: float,  # noqa: ARG002
    ) -> dict[str, Future[None]]:
        futures = {}
        for topic in new:
            self.asked[topic.topic] = topic
            futures[topic.topic] = future = Future[None]()
            if topic.topic in self._errors:
                error = KafkaError(self._errors[topic.topic], "said the cluster")
                future.set_exception(KafkaException(error))
            else:
                future.set_result(None)
        return futures


def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(topics, "_admin", lambda _: cluster)
    result = CliRunner().invoke(main, ["topics", *arguments, "--brokers", "kafka:9092"])
    return result.exit_code, result.output


def test_missing_topics_are_created_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({SCORES.name: 8, LAYOUTS.name: 1, "theirs": 3})
    code, output = run(cluster, monkeypatch, "create", "--replication-factor", "3")
    assert code == 0, output
    assert set(cluster.asked) == {t.name for t in TOPICS} - {SCORES.name, LAYOUTS.name}
    telemetry = cluster.asked[TELEMETRY.name]
    assert (telemetry.num_partitions, telemetry.replication_factor) == (16, 3)
    assert telemetry.config == {"cleanup.policy": "delete", "retention.ms": "86400000"}
    lines = output.splitlines()
    assert f"{TELEMETRY.name}: created, 16 partitions, 1 day" in lines
    assert f"{SCORES.name}: there with 8 partitions, not 16" in lines
    assert f"{LAYOUTS.name}: there already" in lines


def test_by_default_the_brokers_choose_the_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({})
    assert run(cluster, monkeypatch, "create")[0] == 0
    assert {t.replication_factor for t in cluster.asked.values()} == {-1}


def test_a_topic_that_somebody_else_creates_meanwhile_is_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({}, {SCORES.name: KafkaError.TOPIC_ALREADY_EXISTS})
    assert run(cluster, monkeypatch, "create")[0] == 0


def test_what_cannot_be_created_is_said_and_the_exit_code_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({}, {SCORES.name: KafkaError.TOPIC_AUTHORIZATION_FAILED})
    code, output = run(cluster, monkeypatch, "create")
    assert code == 2
    assert f"{SCORES.name}: said the cluster" in output
    assert f"1 of {len(TOPICS)} topics could not be created" in output


def test_the_topics_of_a_broker_are_listed(broker: Broker) -> None:
    result = CliRunner().invoke(main, ["topics", "list", "--brokers", broker.bootstrap])
    assert result.exit_code == 0, result.output
    assert result.output.count("as it should be") == len(TOPICS)


def test_a_broker_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.3)
    result = CliRunner().invoke(main, ["topics", "list", "--brokers", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert "no Kafka broker answers at 127.0.0.1:1" in result.output
