"""The embedded broker speaks Kafka, does as it is told, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from deploy import mockcluster
from deploy.errors import NoEmbeddedBroker
from deploy.local import Broker
from deploy.local import broker as run_broker
from schemas.topics import TOPICS

TIMEOUT_S = 15.0


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000})
    producer.produce(topic, value, partition=0, on_delivery=lambda e, _: failed.append(e))
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == [None]


def consume(bootstrap: str, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def partitions(bootstrap: str) -> dict[str, int]:
    metadata = Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def test_it_has_every_topic_with_its_partitions(broker: Broker) -> None:
    assert partitions(broker.bootstrap) == {t.name: t.partitions for t in TOPICS}


def test_what_is_produced_can_be_consumed(broker: Broker) -> None:
    produce(broker.bootstrap, TOPICS[0].name, b"tick")
    assert consume(broker.bootstrap, TOPICS[0].name) == b"tick"


def test_a_broker_that_is_down_answers_nobody_and_comes_back_with_what_it_held(
    broker: Broker,
) -> None:
    produce(broker.bootstrap, TOPICS[0].name, b"before")
    broker.set_down()
    with pytest.raises(KafkaException):
        Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=0.3)
    broker.set_up()
    assert consume(broker.bootstrap, TOPICS[0].name) == b"before"


def test_request_errors_reach_the_client(broker: Broker) -> None:
    metadata_api, leader_not_available = 3, 5
    broker.push_request_errors(metadata_api, *[leader_not_available] * 3)
    produce(broker.bootstrap, TOPICS[0].name, b"after the errors")


def test_a_cluster_of_three_has_three_addresses() -> None:
    with Broker(3) as cluster:
        assert len(set(cluster.bootstrap.split(","))) == 3


def test_a_topic_can_be_added(broker: Broker) -> None:
    broker.create_topic("mine", 5)
    assert partitions(broker.bootstrap)["mine"] == 5
    with pytest.raises(NoEmbeddedBroker, match=r"mine.*already exists"):
        broker.create_topic("mine", 5)


def test_a_broker_that_is_not_there_is_named(broker: Broker) -> None:
    with pytest.raises(NoEmbeddedBroker, match="broker 7 down"):
        broker.set_down(7)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(stop: signal.Signals, tmp_path: Path) -> None:
    address = tmp_path / "address"
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.local", "--address-file", str(address)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    printed = process.stdout.readline()
    assert partitions(printed.strip())
    os.kill(process.pid, stop)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors) == (0, "")
    assert address.read_text() == printed


def test_an_address_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    address = tmp_path / "missing" / "address"
    done = subprocess.run(
        [sys.executable, "-m", "deploy.local", "--address-file", str(address)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"Error: --address-file {address}: No such file or directory\n"


def test_a_cluster_has_at_least_one_broker() -> None:
    done = CliRunner().invoke(run_broker, ["--nodes", "0"])
    assert done.exit_code == 2
    assert "'--nodes': 0 is not in the range x>=1" in done.output


def test_it_ends_with_its_input(broker: Broker) -> None:
    process = broker._process
    assert process is not None
    broker.stop()
    assert process.returncode == 0


def test_no_library_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Spec:
        origin = str(tmp_path / "confluent_kafka" / "__init__.py")

    monkeypatch.setattr("importlib.util.find_spec", lambda _: Spec)
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)
    with pytest.raises(NoEmbeddedBroker, match=r"confluent_kafka\.libs.*--brokers host:port"):
        mockcluster.load_library()


def test_a_library_without_a_mock_cluster_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mockcluster, "find_library", lambda: "libc.so.6")
    with pytest.raises(NoEmbeddedBroker, match="rd_kafka_conf_new"):
        mockcluster.load_library()
