"""`reveal anomalies`: lines for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition

from deploy.anomalies import json_line
from deploy.cli import main
from deploy.errors import NoBroker, NoTopic
from deploy.local import Broker
from deploy.reader import TopicReader
from deploy.rundir import ADDRESS, claimed
from schemas.codec import encode
from schemas.records import Anomaly, EpisodeState, Record
from schemas.topics import ANOMALIES, SCORES, Topic
from tests.deploy.examples import CHANNELS, SECOND, T0, anomaly, score

TIMEOUT_S = 20.0
EPISODE = [
    anomaly("node01", T0, 3),
    anomaly("node01", T0, 8, EpisodeState.ONGOING),
    anomaly("node01", T0, 20, EpisodeState.CLOSED),
]
OTHER = anomaly("node02", T0 + SECOND, 3)


def publish(broker: Broker, *records: Record | bytes, topic: Topic = ANOMALIES) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for record in records:
        value = record if isinstance(record, bytes) else encode(record)
        key = getattr(record, "host", "nobody")
        producer.produce(topic.name, value, key)
    assert producer.flush(TIMEOUT_S) == 0


def run(broker: Broker, *arguments: str) -> list[str]:
    result = CliRunner().invoke(main, ["anomalies", "--brokers", broker.bootstrap, *arguments])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_what_the_topic_holds_is_printed_in_the_order_of_time(broker: Broker) -> None:
    publish(broker, *EPISODE, OTHER)
    lines = run(broker)
    assert [line.split("  ")[1:3] for line in lines] == [
        ["node01", "opened"],
        ["node02", "opened"],
        ["node01", "closed after 20 s"],
    ]
    assert "storage 81 %, cpu 19 %  storage.write[sda] 1.9 GB/s (expected 0-12 MB/s)" in lines[0]


def test_an_empty_topic_is_no_lines(broker: Broker) -> None:
    assert run(broker) == []


def test_updates_are_printed_when_asked_for(broker: Broker) -> None:
    publish(broker, *EPISODE)
    assert len(run(broker)) == 2
    assert "ongoing for 8 s" in run(broker, "--updates")[1]


def test_json_has_every_record_and_reads_back(broker: Broker) -> None:
    publish(broker, *EPISODE)
    objects = [json.loads(line) for line in run(broker, "--json")]
    assert [o["state"] for o in objects] == ["open", "ongoing", "closed"]
    first = objects[0]
    assert (first["id"], first["host"], first["onset"]) == (EPISODE[0].id, "node01", T0)
    assert first["severity"] == 8.42, "a 32-bit float, not its 64-bit shadow"
    assert first["subsystems"][0] == {"subsystem": "storage", "share": 0.81}
    assert first["channels"][1]["metric"] == "cpu.user"
    assert first["channels"][1]["value"] == 98.0


def test_a_value_that_is_no_number_is_null() -> None:
    channel = dataclasses.replace(CHANNELS[0], expected_low=float("nan"), deviation=float("inf"))
    written = json.loads(json_line(anomaly(channels=(channel,))))["channels"][0]
    assert (written["expected_low"], written["deviation"]) == (None, None)


def test_what_cannot_be_read_is_counted(broker: Broker) -> None:
    publish(broker, b"noise", EPISODE[0])
    lines = run(broker)
    assert len(lines) == 2
    assert "1 message could not be read" in lines


class Following:
    """`reveal anomalies --follow` in a process."""

    def __init__(self, broker: Broker, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "deploy.cli", "anomalies", "--follow"),
                *("--brokers", broker.bootstrap, *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def error_line(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def close_pipe(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self, *, interrupt: bool = True) -> tuple[int, str]:
        if interrupt:
            self._process.send_signal(signal.SIGINT)
        assert self._process.stderr is not None
        errors = self._process.stderr.read()
        self._process.stderr.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._process.wait(TIMEOUT_S), errors


def test_follow_prints_what_comes_and_ends_quietly_on_ctrl_c(broker: Broker) -> None:
    publish(broker, EPISODE[0])
    following = Following(broker, "--since-start")
    assert "node01  opened" in following.line()
    publish(broker, OTHER)
    assert "node02  opened" in following.line()
    assert following.stop() == (0, "")


def test_follow_says_when_something_cannot_be_read(broker: Broker) -> None:
    publish(broker, b"noise", EPISODE[0])
    following = Following(broker, "--since-start")
    assert "node01  opened" in following.line()
    assert following.error_line() == "1 message could not be read\n"
    publish(broker, b"noise")
    assert following.error_line() == "1 message could not be read\n"
    publish(broker, OTHER)
    assert "node02  opened" in following.line()
    assert following.stop() == (0, "")


def test_a_closed_pipe_ends_it_quietly(broker: Broker) -> None:
    publish(broker, EPISODE[0])
    following = Following(broker, "--since-start")
    following.line()
    following.close_pipe()
    publish(broker, OTHER)
    assert following.stop(interrupt=False)[1] == ""


def test_the_stack_that_runs_here_is_found(broker: Broker, tmp_path: Path) -> None:
    publish(broker, OTHER)
    with claimed(tmp_path):
        (tmp_path / ADDRESS).write_text(broker.bootstrap)
        result = CliRunner().invoke(main, ["anomalies", "--run-dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "node02" in result.output


def test_without_brokers_it_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["anomalies", "--run-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert result.output == (
        "Error: no brokers: give --brokers host:port, or start everything with `reveal up`\n"
    )


def test_a_reader_names_a_broker_that_is_away() -> None:
    with pytest.raises(NoBroker, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        TopicReader("127.0.0.1:1", [SCORES], from_start=True, connect_s=0.3)


def test_a_reader_names_a_topic_that_is_missing_and_what_to_do(broker: Broker) -> None:
    with pytest.raises(NoTopic, match=r"no topic mine: run `reveal topics create --brokers 127"):
        TopicReader(broker.bootstrap, [SCORES, Topic("mine", "", 1, 1, "")], from_start=True)


def test_a_reader_sees_only_what_comes_unless_asked_for_all(broker: Broker) -> None:
    publish(broker, score("old"), topic=SCORES)
    with TopicReader(broker.bootstrap, [SCORES, ANOMALIES], from_start=False) as reader:
        seen: list[Record] = []
        i = 0
        while not seen:
            # Where the end is, is found out in the background: until then what comes is old.
            publish(broker, score("new", T0 + i * SECOND), topic=SCORES)
            i += 1
            seen += reader.read(0.2)
        assert {r.host for r in seen if not isinstance(r, Anomaly) and hasattr(r, "host")} == {
            "new"
        }
        assert reader.connected


def test_a_reader_whose_place_was_deleted_goes_on_with_the_oldest(broker: Broker) -> None:
    kept_bytes = 5 * 2**20  # of a partition, by the embedded broker
    publish(broker, *[b"x" * (kept_bytes // 8)] * 16, topic=SCORES)
    with TopicReader(broker.bootstrap, [SCORES], from_start=True) as reader:
        places = [TopicPartition(SCORES.name, p, 0) for p in range(SCORES.partitions)]
        reader._consumer.assign(places)
        end = time.monotonic() + TIMEOUT_S
        while not reader.invalid:
            reader.read(0.1)
            assert time.monotonic() < end


def test_a_reader_notices_that_the_broker_is_away_and_back(broker: Broker) -> None:
    with TopicReader(broker.bootstrap, [SCORES], from_start=True) as reader:
        broker.set_down()
        while reader.connected:
            reader.read(0.1)
        broker.set_up()
        publish(broker, score(), topic=SCORES)
        while not reader.connected:
            reader.read(0.1)
