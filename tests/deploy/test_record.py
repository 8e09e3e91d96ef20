"""`reveal record` on the embedded broker: what is on the topics is in the file, whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from deploy.errors import NoBroker
from deploy.local import Broker
from deploy.reader import partition_counts
from deploy.record import RecordedTopics, record, record_until
from schemas.codec import encode
from schemas.records import Channel, Kind, Layout, Subsystem, Telemetry
from schemas.topics import LAYOUTS, TELEMETRY, Topic
from streams.record import Recorder
from streams.recording import Container, ContainerWriter, Recording

TIMEOUT_S = 30.0
COMMAND = [sys.executable, "-m", "deploy.cli", "record"]


def layout(host: str) -> Layout:
    channel = Channel("cpu.user", "cpu0", Subsystem.CPU, "%", Kind.RATE)
    return Layout(host, 7, "", "", 100_000, (channel,))


def telemetry(host: str, second: int) -> Telemetry:
    stamps = 1_000_000 * second + 100_000 * np.arange(10, dtype=np.int64)
    return Telemetry(host, 7, second, 100_000, stamps, np.full((1, 10), second, np.float32))


class Sender:
    """Sends messages and waits for the broker to have them."""

    def __init__(self, broker: Broker) -> None:
        self._producer: Any = Producer({"bootstrap.servers": broker.bootstrap})

    def send(self, topic: Topic, host: str, *messages: bytes) -> None:
        for message in messages:
            self._producer.produce(topic.name, message, host)
        assert self._producer.flush(TIMEOUT_S) == 0

    def layout(self, host: str) -> None:
        self.send(LAYOUTS, host, encode(layout(host)))

    def seconds(self, host: str, *seconds: int) -> None:
        self.send(TELEMETRY, host, *(encode(telemetry(host, s)) for s in seconds))


@pytest.fixture
def sender(broker: Broker) -> Sender:
    return Sender(broker)


def found(path: Path) -> list[tuple[str, int | None]]:
    return [
        (r.host, int(r.timestamps[0]) // 1_000_000 if isinstance(r, Telemetry) else None)
        for r, _ in Recording(Container(path))
    ]


def record_some(topics: RecordedTopics, path: Path, enough: Callable[[Recorder], bool]) -> Recorder:
    """Record until there is enough."""
    stop = threading.Event()
    with ContainerWriter(path) as writer:
        recorder = Recorder(writer)

        def look() -> None:
            if enough(recorder):
                stop.set()

        record_until(topics, recorder, writer, stop=stop, seconds=TIMEOUT_S, on_progress=look)
    topics.close()
    return recorder


def test_what_is_sent_after_its_start_is_recorded_with_its_layout(
    broker: Broker, sender: Sender, tmp_path: Path
) -> None:
    sender.layout("a")
    sender.layout("silent")
    sender.seconds("a", 1, 2)
    topics = RecordedTopics(broker.bootstrap, from_start=False)
    sender.seconds("a", 3, 4)  # before a single message was taken
    recorder = record_some(topics, tmp_path / "out.avro", lambda r: r.records["a"] == 2)
    assert found(tmp_path / "out.avro") == [("a", None), ("a", 3), ("a", 4)]
    assert recorder.layouts == 1


def test_from_the_start_what_the_topic_holds(
    broker: Broker, sender: Sender, tmp_path: Path
) -> None:
    for host in "abc":
        sender.seconds(host, *range(20))
        sender.layout(host)
    topics = RecordedTopics(broker.bootstrap, from_start=True)
    record_some(topics, tmp_path / "out.avro", lambda r: r.records.total() == 60)
    recorded = found(tmp_path / "out.avro")
    for host in "abc":
        mine = [second for h, second in recorded if h == host]
        assert mine == [None, *range(20)]


def test_what_was_deleted_before_it_was_read_is_counted(
    broker: Broker, sender: Sender, tmp_path: Path
) -> None:
    """The embedded broker keeps 5 MB of a partition."""
    topics = RecordedTopics(broker.bootstrap, from_start=False)
    sender.layout("a")
    sender.send(TELEMETRY, "a", *[b"x" * 500_000] * 30)
    sender.seconds("a", 1)
    recorder = record_some(topics, tmp_path / "out.avro", lambda r: r.records["a"] == 1)
    assert len(topics.gone) == 1
    assert topics.gone.total() + recorder.rejected == 30
    assert topics.gone.total() > 10


class GoneTopics(RecordedTopics):
    def close(self) -> None:
        self.gone.update({3: 1200, 7: 1})
        self.trouble = "all brokers down"
        super().close()


def test_the_report_says_what_was_deleted_and_what_kept_messages_from_coming(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.record.RecordedTopics", GoneTopics)
    said = reveal_record(tmp_path / "out.avro", broker.bootstrap, "--seconds", "0").stderr
    assert "at the end nothing came: all brokers down\n" in said
    assert (
        "the broker deleted messages before they were read: "
        "1,200 of partition 3, 1 of partition 7\n" in said
    )


def test_a_layout_that_comes_later_is_waited_for(
    broker: Broker, sender: Sender, tmp_path: Path
) -> None:
    sender.seconds("a", 1)
    topics = RecordedTopics(broker.bootstrap, from_start=True)
    sent = False

    def enough(recorder: Recorder) -> bool:
        nonlocal sent
        if not sent and recorder._waiting:
            sender.layout("a")
            sent = True
        return recorder.records.total() == 1

    record_some(topics, tmp_path / "out.avro", enough)
    assert found(tmp_path / "out.avro") == [("a", None), ("a", 1)]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_whole_file(
    broker: Broker, sender: Sender, tmp_path: Path, stop: signal.Signals
) -> None:
    out = tmp_path / "out.avro"
    sender.layout("a")
    sender.seconds("a", *range(5))
    sender.send(TELEMETRY, "a", b"junk")
    process = subprocess.Popen(
        [*COMMAND, str(out), "--brokers", broker.bootstrap, "--from-start"],
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = tmp_path / "out.avro.partial"
    wait_until(lambda: partial.exists() and len(readable(partial)) == 6)
    os.kill(process.pid, stop)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert found(out) == [("a", None), *(("a", n) for n in range(5))]
    assert not partial.exists()
    assert "5 records, 1 host, 1 layout" in errors
    assert "1 messages were left out" in errors


def readable(path: Path) -> list[tuple[str, int | None]]:
    try:
        return found(path)
    except ValueError:
        return []


def wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("it did not come")


def reveal_record(out: Path, brokers: str, *options: str) -> Result:
    return CliRunner().invoke(record, [str(out), "--brokers", brokers, *options])


def test_no_broker_is_one_line_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = partial(partition_counts, timeout_s=0.3)
    monkeypatch.setattr("deploy.record.partition_counts", brief)
    done = reveal_record(tmp_path / "out.avro", "127.0.0.1:1")
    assert done.exit_code == 2
    assert "no Kafka broker answers at 127.0.0.1:1" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_leaves_while_it_is_asked_is_said(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.record.CONNECT_S", 0.3)
    counts = {LAYOUTS.name: 1, TELEMETRY.name: 16}
    monkeypatch.setattr("deploy.record.partition_counts", lambda *_: counts)
    broker.set_down()
    with pytest.raises(NoBroker, match=broker.bootstrap):
        RecordedTopics(broker.bootstrap, from_start=False)


def test_nothing_that_came_is_said_and_the_file_is_whole(broker: Broker, tmp_path: Path) -> None:
    out = tmp_path / "out.avro"
    done = reveal_record(out, broker.bootstrap, "--seconds", "0.2")
    assert done.exit_code == 1
    assert "nothing came" in done.stderr
    assert found(out) == []


def test_a_file_that_is_there_is_not_replaced(broker: Broker, tmp_path: Path) -> None:
    out = tmp_path / "out.avro"
    out.write_text("precious")
    done = reveal_record(out, broker.bootstrap)
    assert done.exit_code == 2
    assert "--force" in done.stderr
    assert out.read_text() == "precious"
    assert reveal_record(out, broker.bootstrap, "--seconds", "0.2", "--force").exit_code == 1
    assert found(out) == []
