"""`reveal replay`: the same outcome as live, from either kind of recording, and back to Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, TopicPartition

from deploy.into_topics import TopicWriter
from deploy.local import Broker
from deploy.raw import RawRecording
from deploy.record import RecordedTopics, record_until
from deploy.replay import replay
from schemas.codec import decode_as, encode
from schemas.records import Features, Layout, Telemetry
from schemas.topics import FEATURES
from streams.record import Recorder
from streams.recording import Container, ContainerWriter, Recorded, Recording

DATA = Path(__file__).parent.parent / "data"
RAW = DATA / "udp_flood.avro"
FAULT_S = 1_796_086_582.6
BOUND_S = 60.0
SHORT = ("--baseline-seconds", "40")


def reveal_replay(path: Path, *options: str) -> Result:
    return CliRunner().invoke(replay, [str(path), *options])


def lines(done: Result) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The anomalies and the summary."""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[-1].pop("summary") is True
    return found[:-1], found[-1]


def features_of(path: Path) -> dict[tuple[str, int], bytes]:
    """The features of a file by window, as they travel."""
    with path.open("rb") as file:
        records: Any = list(fastavro.reader(file))
    found = {}
    for r in records:
        values = np.array(r.pop("values"), np.float32)
        found[r["host"], r["end"]] = encode(Features(**r, values=values))
    assert len(found) == len(records)
    return found


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw recording as a recording of telemetry."""
    path = tmp_path_factory.mktemp("telemetry") / "telemetry.avro"
    with ContainerWriter(path) as writer:
        for record, message in RawRecording(Container(RAW)):
            writer.add(type(record), message)
    return path


def test_a_fault_in_a_raw_recording_is_found_within_seconds_and_blames_the_network() -> None:
    done = reveal_replay(RAW, "--json", *SHORT)
    assert done.exit_code == 0
    anomalies, summary = lines(done)
    opened = [a for a in anomalies if a["state"] == "open"]
    first = {a["host"]: a for a in reversed(opened) if a["onset"] / 1e6 > FAULT_S - 3}
    assert set(first) == {"rank0", "rank1"}
    for anomaly in first.values():
        assert anomaly["latest"] / 1e6 - FAULT_S <= 6
    # The flood is on rank0's own loopback; rank1 sees packets of another namespace in softirqs.
    assert first["rank0"]["subsystems"][0]["subsystem"] == "network"
    assert "lo" in {c["device"] for c in first["rank0"]["channels"]}
    assert first["rank1"]["subsystems"][0]["subsystem"] == "network"
    assert {a["causes"][0]["rule"] for a in first.values()} == {"udp_flood"}
    assert "another network namespace" in first["rank1"]["causes"][0]["summary"]
    assert summary["episodes"] == len(opened)
    assert summary["hosts"] == 2
    assert summary["records"] == 2 * 72
    assert summary["windows"] == 2 * 70 == sum(summary["states"].values())
    assert summary["scored"] == summary["states"]["active"] == 2 * 70 - 2 * 39
    assert summary["recording_seconds"] == 72.0
    assert summary["times_real_time"] == pytest.approx(72 / summary["seconds"], rel=0.02)
    assert summary["still_open"] == 0
    assert not any(summary["dropped"].values())
    assert summary["lost_bytes"] == 0


def test_the_text_is_what_anomalies_prints_and_the_throughput() -> None:
    done = reveal_replay(RAW, *SHORT)
    assert done.exit_code == 0
    opened = [line for line in done.stdout.splitlines() if "  rank0  opened  " in line]
    assert opened
    assert "episodes in 140 windows" in done.stdout
    assert "1 min 12 s of telemetry in" in done.stdout
    assert "times real time" in done.stdout
    assert "ongoing" not in done.stdout
    assert len(reveal_replay(RAW, "--updates", *SHORT).stdout) > len(done.stdout)


def test_a_recording_of_the_telemetry_gives_the_same_bytes(tmp_path: Path, telemetry: Path) -> None:
    raw = reveal_replay(RAW, "--features", str(tmp_path / "raw.avro"), "--json", *SHORT)
    recorded = reveal_replay(telemetry, "--features", str(tmp_path / "tel.avro"), "--json", *SHORT)
    assert raw.exit_code == recorded.exit_code == 0
    found = features_of(tmp_path / "raw.avro")
    assert found == features_of(tmp_path / "tel.avro")
    assert len(found) == 140
    assert lines(raw)[0] == lines(recorded)[0]


def test_only_the_first_seconds(telemetry: Path) -> None:
    for path in (RAW, telemetry):
        _, summary = lines(reveal_replay(path, "--json", "--limit-seconds", "20"))
        assert summary["recording_seconds"] == pytest.approx(20.0, abs=0.9)
        assert summary["windows"] == pytest.approx(2 * 18, abs=2)


def test_a_cut_recording_is_replayed_as_far_as_it_is_whole(tmp_path: Path) -> None:
    cut = tmp_path / "cut.avro"
    cut.write_bytes(RAW.read_bytes()[:-40_000])
    done = reveal_replay(cut, "--json")
    assert done.exit_code == 1
    _, summary = lines(done)
    assert 0 < summary["windows"] < 140
    assert f"{summary['lost_bytes']:,} of {cut.stat().st_size:,} bytes could not" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "is empty"), (b"# notes\n", "is not an Avro container file")]
)
def test_what_is_no_recording_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.avro").write_bytes(content)
    done = reveal_replay(tmp_path / "x.avro")
    assert done.exit_code == 2
    assert f"x.avro {said}" in done.stderr
    assert done.stdout == ""


def test_a_recording_without_telemetry_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.avro"
    with ContainerWriter(path):
        pass
    done = reveal_replay(path)
    assert done.exit_code == 2
    assert "x.avro holds no telemetry" in done.stderr


def test_a_file_that_is_not_there_and_a_speed_without_topics_are_errors(tmp_path: Path) -> None:
    done = reveal_replay(tmp_path / "none.avro")
    assert done.exit_code == 2
    assert "none.avro cannot be read: No such file" in done.stderr
    assert "--into-topics" in reveal_replay(RAW, "--speed", "2").stderr
    assert "--json" in reveal_replay(RAW, "--into-topics", "--json").stderr
    assert "--brokers goes with --into-topics" in reveal_replay(RAW, "--brokers", "b:1").stderr
    for options in ((), ("--into-topics",)):
        assert "--force goes with --features" in reveal_replay(RAW, "--force", *options).stderr


def record_all(broker: Broker, path: Path, records: int) -> None:
    stop = threading.Event()
    topics = RecordedTopics(broker.bootstrap, from_start=True)
    with ContainerWriter(path) as writer:
        recorder = Recorder(writer)

        def look() -> None:
            if recorder.records.total() >= records:
                stop.set()

        record_until(topics, recorder, writer, stop=stop, seconds=BOUND_S, on_progress=look)
    topics.close()
    assert recorder.records.total() == records


def test_what_goes_into_the_topics_is_what_was_recorded(
    broker: Broker, tmp_path: Path, telemetry: Path
) -> None:
    done = reveal_replay(telemetry, "--into-topics", "--brokers", broker.bootstrap)
    assert done.exit_code == 0, done.stderr
    assert "published 144 records and 2 layouts, 146 delivered" in done.stdout
    record_all(broker, tmp_path / "again.avro", 144)

    def by_host(path: Path) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {}
        for record, message in Recording(Container(path)):
            found.setdefault(record.host, []).append(message)
        return found

    assert by_host(tmp_path / "again.avro") == by_host(telemetry)


@pytest.fixture
def worker(broker: Broker, tmp_path: Path) -> Iterator[None]:
    """A live worker that publishes features."""
    log = tmp_path / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "deploy.cli", "worker", "--brokers", broker.bootstrap),
                *("--publish-features", "--baseline-seconds", "40"),
            ],
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=tmp_path,
        )
        yield
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    sys.stdout.write(log.read_text(errors="replace"))


@pytest.mark.usefixtures("worker")
def test_live_and_replay_give_the_same_bytes(broker: Broker, tmp_path: Path) -> None:
    """Raw files into the topics; a worker and a recorder read them; the recording is replayed."""
    done = reveal_replay(RAW, "--into-topics", "--brokers", broker.bootstrap)
    assert done.exit_code == 0, done.stderr
    live = read_features(broker, 140)
    record_all(broker, tmp_path / "live.avro", 144)
    again = tmp_path / "features.avro"
    assert reveal_replay(tmp_path / "live.avro", "--features", str(again)).exit_code == 0
    assert live == features_of(again)


def read_features(broker: Broker, count: int) -> dict[tuple[str, int], bytes]:
    """Read so many windows from the features topic; copies have to be the same."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(FEATURES.name, p, 0) for p in range(FEATURES.partitions)])
    found: dict[tuple[str, int], bytes] = {}
    try:
        for _ in range(int(BOUND_S / 0.1)):
            for message in consumer.consume(500, 0.1):
                data = message.value()
                if message.error() is None and data is not None:
                    features = decode_as(Features, data)
                    window = features.host, features.end
                    assert found.setdefault(window, data) == data
            if len(found) == count:
                return found
    finally:
        consumer.close()
    pytest.fail(f"{len(found)} of {count} windows within {BOUND_S:.0f} s")


class Clock:
    """A clock that only waiting moves, and the event that is waited on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.stop = threading.Event()
        monkeypatch.setattr(self.stop, "wait", self.wait)

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.stop.is_set()


def seconds_of(host: str, seconds: Sequence[int]) -> Iterator[Recorded]:
    layout = Layout(host, 7, "", "", 100_000, ())
    yield Recorded(layout, encode(layout))
    for second in seconds:
        stamps = 1_000_000 * second + 100_000 * np.arange(10, dtype=np.int64)
        record = Telemetry(host, 7, second, 100_000, stamps, np.zeros((0, 10), np.float32))
        yield Recorded(record, encode(record))


@pytest.mark.parametrize(("speed", "expected"), [(1.0, [0, 1, 2, 6]), (4.0, [0, 0.25, 0.5, 1.5])])
def test_the_speed_is_of_the_recordings_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, speed: float, expected: list[float]
) -> None:
    clock = Clock(monkeypatch)
    writer = TopicWriter(broker.bootstrap)
    sent: list[float] = []
    produce: Callable[..., None] = writer._produce

    def noting(topic: str, key: str, message: bytes) -> None:
        if key == "a":
            sent.append(clock.now - 100.0)
        produce(topic, key, message)

    monkeypatch.setattr(writer, "_produce", noting)
    writer.publish(
        seconds_of("a", [3, 4, 5, 9]),
        speed=speed,
        stop=clock.stop,
        on_progress=lambda: None,
        clock=clock,
    )
    writer.close()
    assert sent == pytest.approx(expected)
    assert writer.published.delivered == 5
    assert writer.published.lag_s == pytest.approx(0)


def test_a_stop_ends_the_wait(broker: Broker) -> None:
    stop = threading.Event()
    writer = TopicWriter(broker.bootstrap)
    writer.publish(
        seconds_of("a", [0, 1_000_000]),
        speed=1.0,
        stop=stop,
        on_progress=lambda: stop.set() if writer.published.records else None,
    )
    writer.close()
    assert writer.published.records == 1
    assert writer.published.delivered == 2
