"""The worker as a process on the embedded broker: killed, parked by its group, fed with junk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from deploy.local import Broker
from schemas.codec import decode_as, encode
from schemas.records import (
    Baseline,
    Channel,
    DeadLetter,
    Features,
    Kind,
    Layout,
    Score,
    State,
    Subsystem,
    Telemetry,
)
from schemas.topics import BASELINES, DEADLETTER, FEATURES, LAYOUTS, SCORES, TELEMETRY, Topic
from streams.pipeline import Message, Pipeline
from streams.window import WindowSpec

BOUND_S = 40.0
"""What has not happened by then never will."""
GROUP = "reveal-test"
INTERVAL = 100_000
SECOND = 1_000_000
ORIGIN = 1_700_000_000 * SECOND
CHANNELS = 12

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
UNKNOWN_MEMBER, INVALID_SESSION_TIMEOUT, REBALANCING, NOT_AUTHORIZED = 25, 26, 27, 30

RUN = """
import json, sys
from schemas.settings import Kafka
from streams import faust_app
from streams.config import WorkerSettings
from streams.worker import run
faust_app.NO_GROUP_S = float(sys.argv[3])
run(Kafka(brokers=sys.argv[1]), WorkerSettings(**json.loads(sys.argv[2])))
"""


class Worker:
    """One worker process; its group is told of a death after `session_timeout_s`."""

    def __init__(
        self, broker: Broker, log: Path, *, no_group_s: float = 30.0, **settings: Any
    ) -> None:
        given = {"group": GROUP, "session_timeout_s": 1.0, **settings}
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, broker.bootstrap, json.dumps(given), str(no_group_s)],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it as power loss would, and its fitting process with it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(BOUND_S)
        self._log.close()


@pytest.fixture
def start(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start workers that are gone after the test; what they printed is shown if it fails."""
    workers: list[Worker] = []
    log = tmp_path / "workers.log"

    def start(**settings: Any) -> Worker:
        workers.append(Worker(broker, log, **settings))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
    sys.stdout.write(log.read_text(errors="replace") if log.exists() else "")


class Reader:
    """Reads whole topics, outside of any group."""

    def __init__(self, broker: Broker, *topics: Topic) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [TopicPartition(t.name, p, 0) for t in topics for p in range(t.partitions)]
        )

    def read(self, until: Callable[[], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield topic and value of messages until a condition holds; fail when it never does."""
        deadline = time.monotonic() + BOUND_S
        while not until():
            assert time.monotonic() < deadline, f"not within {BOUND_S:.0f} s"
            for message in self._consumer.consume(500, 0.05):
                topic, value = message.topic(), message.value()
                if message.error() is None and topic is not None and value is not None:
                    yield topic, value

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def reader(broker: Broker) -> Iterator[Reader]:
    reader = Reader(broker, FEATURES, SCORES, BASELINES, DEADLETTER)
    yield reader
    reader.close()


def record(host: int, second: int, *, holes: bool = False) -> Telemetry:
    """One second of a host, always the same; with `holes`, ticks are missing now and then."""
    rng = np.random.default_rng((host, second))
    ticks = np.arange(10)
    if holes and rng.random() < 0.2:
        at = rng.integers(0, 10)
        ticks = ticks[(ticks < at) | (ticks > at + rng.integers(0, 9))]
    values = rng.normal(100 * host, 1 + host, (CHANNELS, len(ticks))).astype(np.float32)
    stamps = ORIGIN + second * SECOND + ticks * INTERVAL
    return Telemetry(f"node-{host:02}", 7, second, INTERVAL, stamps, values)


class Hosts:
    """Hosts that send as fast as they can; every second is kept as it was sent."""

    def __init__(self, broker: Broker) -> None:
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random", "log_level": 0}
        )
        self.sent: list[bytes] = []

    def send(
        self,
        hosts: Iterable[int],
        seconds: Iterable[int],
        *,
        partition: int = -1,
        holes: bool = False,
    ) -> None:
        """Send every second of every host; return when the broker has them."""
        numbers = [*hosts]
        for second in seconds:
            for host in numbers:
                telemetry = record(host, second, holes=holes)
                if len(telemetry.timestamps):
                    self.send_raw(encode(telemetry), telemetry.host, partition)
        self.flush()

    def send_layouts(self, hosts: Iterable[int]) -> None:
        """Say what the channels of hosts are."""
        channels = tuple(
            Channel(f"m{c}", "", list(Subsystem)[c % 3], "/s", Kind.RATE) for c in range(CHANNELS)
        )
        for host in hosts:
            layout = Layout(f"node-{host:02}", 7, "", "", INTERVAL, channels)
            self._producer.produce(LAYOUTS.name, encode(layout), f"{layout.host}:7")
        self.flush()

    def send_raw(self, data: bytes | None, key: str, partition: int = -1) -> None:
        self._producer.produce(TELEMETRY.name, data, key, partition=partition)
        self.sent.append(data or b"")

    def flush(self) -> None:
        assert self._producer.flush(BOUND_S) == 0

    def undisturbed(self) -> dict[tuple[str, int], bytes]:
        """Windows by host and end, as a worker builds them that nothing ever happens to."""
        pipeline = Pipeline(WindowSpec(), None, keep_features=True)
        log = [Message(0, i, data, i) for i, data in enumerate(self.sent)]
        return {(f.host, f.end): encode(f) for f in pipeline.process(log, 0.0).features}


@pytest.fixture
def hosts(broker: Broker) -> Hosts:
    return Hosts(broker)


def committed(broker: Broker) -> int:
    """Return how many records of the telemetry topic the group has committed."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition(TELEMETRY.name, p) for p in range(TELEMETRY.partitions)]
        # A partition without a commit has a negative offset.
        return sum(max(0, p.offset) for p in consumer.committed(places, timeout=BOUND_S))
    finally:
        consumer.close()


def test_killed_in_mid_stream_no_window_is_lost_and_every_copy_is_the_same(
    broker: Broker, start: Callable[..., Worker], reader: Reader, hosts: Hosts
) -> None:
    copies: dict[tuple[str, int], list[bytes]] = {}
    scored: set[tuple[str, int]] = set()
    kills = 2

    def read(until: Callable[[], bool]) -> None:
        for topic, value in reader.read(until):
            if topic == FEATURES.name:
                f = decode_as(Features, value)
                copies.setdefault((f.host, f.end), []).append(value)
            elif topic == SCORES.name:
                s = decode_as(Score, value)
                scored.add((s.host, s.end))

    def newest() -> int:
        return max(((end - ORIGIN) // SECOND for _, end in copies), default=0)

    for turn in range(kills):
        begin = 40 * turn
        worker = start(publish_features=True)
        before = committed(broker)
        hosts.send(range(20), range(begin, begin + 20), holes=True)
        read(lambda before=before: committed(broker) > before)  # type: ignore[misc]
        # Now in the middle of something: published, not all of it acknowledged, not committed.
        hosts.send(range(20), range(begin + 20, begin + 40), holes=True)
        read(lambda begin=begin: newest() > begin + 20)  # type: ignore[misc]
        worker.kill()
    start(publish_features=True)
    hosts.send(range(20), range(40 * kills, 40 * kills + 10), holes=True)
    expected = hosts.undisturbed()
    assert len(expected) > 1500
    read(lambda: copies.keys() >= expected.keys() and scored >= expected.keys())
    assert copies.keys() == expected.keys()
    assert scored == expected.keys()
    assert sum(map(len, copies.values())) > len(copies), "no kill came in between"
    for window, values in copies.items():
        assert set(values) == {expected[window]}, window


@pytest.mark.parametrize(
    "errors",
    [
        {JOIN_GROUP: [NOT_AUTHORIZED, INVALID_SESSION_TIMEOUT]},
        {JOIN_GROUP: [UNKNOWN_MEMBER], SYNC_GROUP: [NOT_AUTHORIZED, REBALANCING]},
    ],
    ids=["join", "sync"],
)
def test_a_group_error_does_not_park_the_worker(
    errors: dict[int, list[int]],
    broker: Broker,
    start: Callable[..., Worker],
    reader: Reader,
    hosts: Hosts,
) -> None:
    scores: set[int] = set()

    def read(until: Callable[[], bool]) -> None:
        scores.update(
            (decode_as(Score, value).end - ORIGIN) // SECOND
            for topic, value in reader.read(until)
            if topic == SCORES.name
        )

    for api, codes in errors.items():
        broker.push_request_errors(api, *codes)
    worker = start()
    hosts.send([1], range(4))

    def ended() -> bool:
        return worker.process.poll() is not None

    read(lambda: 4 in scores or ended())
    if ended():
        assert worker.process.returncode != 0
        worker = start()
        read(lambda: 4 in scores)
    # And again while it works: it is thrown out of its group and meets them as it comes back.
    for api, codes in errors.items():
        broker.push_request_errors(api, *codes)
    broker.push_request_errors(HEARTBEAT, UNKNOWN_MEMBER)
    hosts.send([1], range(4, 8))
    read(lambda: 8 in scores or ended())
    if ended():
        assert worker.process.returncode != 0
        start()
        read(lambda: 8 in scores)
    assert scores == {3, 4, 5, 6, 7, 8}


def test_a_worker_that_gets_into_no_group_exits(
    broker: Broker, start: Callable[..., Worker], hosts: Hosts
) -> None:
    broker.push_request_errors(JOIN_GROUP, *[NOT_AUTHORIZED] * 500)
    worker = start(no_group_s=2.0)
    hosts.send([1], range(4))
    assert worker.process.wait(BOUND_S) == 1


def test_what_cannot_be_read_is_kept_with_its_reason_and_the_stream_goes_on(
    start: Callable[..., Worker], reader: Reader, hosts: Hosts
) -> None:
    cut = encode(record(1, 2))[:-7]
    hosts.send([1], range(2), partition=5)
    hosts.send_raw(b"not avro at all", "node-01", partition=5)
    hosts.send_raw(cut, "node-01", partition=5)
    hosts.send_raw(None, "node-01", partition=5)
    hosts.send_raw(b"\x00" * 12, "x", partition=5)
    hosts.send([1], range(2, 6), partition=5)
    worker = start()
    letters: list[DeadLetter] = []
    ends: set[int] = set()
    for topic, value in reader.read(lambda: len(letters) >= 4 and len(ends) >= 4):
        if topic == DEADLETTER.name:
            letters.append(decode_as(DeadLetter, value))
        elif topic == SCORES.name:
            ends.add((decode_as(Score, value).end - ORIGIN) // SECOND)
    assert ends == {3, 4, 5, 6}
    assert [(m.topic, m.partition, m.offset, m.data) for m in letters] == [
        (TELEMETRY.name, 5, 2, b"not avro at all"),
        (TELEMETRY.name, 5, 3, cut),
        (TELEMETRY.name, 5, 4, b""),
        (TELEMETRY.name, 5, 5, b"\x00" * 12),
    ]
    for letter, reason in zip(
        letters, ("c3 01", "Telemetry of", "too few", "Confluent"), strict=True
    ):
        assert reason in letter.reason
    assert worker.process.poll() is None


def test_a_silent_host_does_not_hold_back_the_committed_offset(
    broker: Broker, start: Callable[..., Worker], reader: Reader, hosts: Hosts
) -> None:
    hosts.send([1], [0], partition=3)  # and then nothing more of this one
    hosts.send([2], range(8), partition=3)
    start(silence_s=2.0)
    seen: set[int] = set()
    for topic, value in reader.read(lambda: 8 in seen):
        if topic == SCORES.name:
            seen.add((decode_as(Score, value).end - ORIGIN) // SECOND)
    deadline = time.monotonic() + BOUND_S
    while committed(broker) < 7:
        assert time.monotonic() < deadline


def test_told_to_stop_it_ends_cleanly_with_everything_it_started(
    start: Callable[..., Worker], reader: Reader, hosts: Hosts
) -> None:
    hosts.send([1], range(4))
    worker = start()
    scores: list[bytes] = []
    for topic, value in reader.read(lambda: len(scores) >= 2):
        if topic == SCORES.name:
            scores.append(value)
    family = psutil.Process(worker.process.pid).children(recursive=True)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(BOUND_S) == 0
    _, alive = psutil.wait_procs(family, BOUND_S)
    assert alive == []


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_what_was_learned_is_there_for_whoever_comes_next(
    end: signal.Signals,
    broker: Broker,
    start: Callable[..., Worker],
    reader: Reader,
    hosts: Hosts,
    tmp_path: Path,
) -> None:
    numbers = range(1, 6)
    names = {f"node-{n:02}" for n in numbers}
    hosts.send_layouts(numbers)
    first = start(baseline_seconds=30)
    hosts.send(numbers, range(45))
    scores: dict[tuple[str, int], list[Score]] = {}
    kept: dict[str, Baseline] = {}

    def read(until: Callable[[], bool]) -> None:
        for topic, value in reader.read(until):
            if topic == SCORES.name:
                s = decode_as(Score, value)
                scores.setdefault((s.host, (s.end - ORIGIN) // SECOND), []).append(s)
            elif topic == BASELINES.name and first.process.poll() is None:
                b = decode_as(Baseline, value)
                kept[b.host] = b

    second = 45
    while kept.keys() < names:  # it is fitted aside, and taken over with a later window
        hosts.send(numbers, [second])
        second += 1
        read(lambda: all((name, second) in scores for name in names))  # noqa: B023
    active = {h: s.baseline for (h, _), (s, *_) in scores.items() if s.state is State.ACTIVE}
    assert active == {name: kept[name].version for name in names}
    first.process.send_signal(end)
    first.process.wait(BOUND_S)
    # What is no baseline, in the very partitions that are read next, is passed over.
    junk = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    torn = kept["node-01"].data[:-50]
    version = kept["node-01"].version + 1
    channels = np.zeros(CHANNELS, np.float32)
    later = Baseline("node-01", 7, version, 30, "", channels, channels, 0, 1, torn)
    for p in range(BASELINES.partitions):
        junk.produce(BASELINES.name, encode(later), "node-01:7", partition=p)
    junk.produce(BASELINES.name, b"not avro", "x:1", partition=0)
    assert junk.flush(BOUND_S) == 0

    scores.clear()
    start(baseline_seconds=30)
    hosts.send(numbers, range(second, second + 5))
    read(lambda: all((name, second + 5) in scores for name in names))
    again = [s for copies in scores.values() for s in copies]
    assert {s.state for s in again} == {State.ACTIVE}
    assert {(s.host, s.baseline) for s in again} == set(active.items())
    said = (tmp_path / "workers.log").read_text()
    assert "passed over message 'x:1': 8 bytes are too few" in said
    assert f"passed over baseline of 'node-01', layout 7, version {version}: not a baseline" in said
