from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from deploy.local import Broker
from producers.publisher import (
    IN_FLIGHT_MESSAGES,
    MESSAGE_BYTES,
    STALL_NS,
    TRIES,
    Publisher,
    producer_config,
)
from schemas.codec import decode_as, encode
from schemas.records import Record, Telemetry
from schemas.topics import LAYOUTS, TELEMETRY, Topic
from tests.producers.fakes import FakeProducer
from tests.producers.kafka import read_topic

PRODUCE = 0
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
TOPIC_AUTHORIZATION_FAILED = 29
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS


def telemetry(seq: int, channels: int = 3) -> Telemetry:
    values = np.full((channels, 1), seq, np.float32)
    return Telemetry("node1", 7, seq, 100_000, np.array([seq * 100_000]), values)


def noise(seq: int, channels: int) -> Telemetry:
    """Telemetry that no compression makes smaller."""
    bits = np.random.default_rng(seq).integers(0, 2**32, (channels, 1), np.uint32)
    return Telemetry("node1", 7, seq, 100_000, np.array([seq * 100_000]), bits.view(np.float32))


def make(bootstrap: str, *, keep_ns: int = 5 * MINUTE_NS, keep_bytes: int = 1 << 26) -> Publisher:
    return Publisher(bootstrap, "test", keep_ns=keep_ns, keep_bytes=keep_bytes)


def poll_until(publisher: Publisher, done: Callable[[], bool], patience_s: float = 30) -> None:
    until = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < until, f"{len(publisher)} left, trouble: {publisher.trouble}"
        publisher.poll()
        time.sleep(0.01)


def seqs(found: list[tuple[str, Record]]) -> list[int]:
    return [r.seq for _, r in found if isinstance(r, Telemetry)]


def test_what_is_published_arrives_in_order_and_whole(broker: Broker) -> None:
    publisher = make(broker.bootstrap)
    for seq in range(50):
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
        publisher.poll()
    assert publisher.close(20) == 0
    assert publisher.delivered == 50
    assert not publisher.dropped
    found = read_topic(broker.bootstrap, TELEMETRY)
    assert [key for key, _ in found] == ["node1"] * 50
    assert seqs(found) == list(range(50))
    record = found[7][1]
    assert isinstance(record, Telemetry)
    assert record.values.tolist() == [[7.0]] * 3


def test_a_broker_that_is_away_costs_nothing_that_is_kept(broker: Broker) -> None:
    publisher = make(broker.bootstrap)
    for seq in range(3):
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
    poll_until(publisher, lambda: publisher.delivered == 3)
    broker.set_down()
    for seq in range(3, 400):  # more than librdkafka is given at a time
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
        publisher.poll()
    poll_until(publisher, lambda: publisher.trouble != "")
    assert len(publisher) == 397
    broker.set_up()
    poll_until(publisher, lambda: publisher.delivered == 400)
    assert publisher.trouble == ""
    assert publisher.close(5) == 0
    assert not publisher.dropped
    assert seqs(read_topic(broker.bootstrap, TELEMETRY)) == list(range(400))


def test_a_partition_without_its_broker_holds_up_no_other_topic() -> None:
    with Broker(2) as broker:
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        topics = metadata.list_topics(timeout=20).topics
        leaders = {p: m.leader for p, m in topics[TELEMETRY.name].partitions.items()}
        (other,) = {m.leader for m in topics[LAYOUTS.name].partitions.values()}
        host = next(h for h in map(str, range(1000)) if leaders[partition(h)] != other)
        publisher = make(broker.bootstrap)
        publisher.publish(TELEMETRY, host, telemetry(0))
        publisher.publish(LAYOUTS, host, telemetry(0))
        poll_until(publisher, lambda: publisher.delivered == 2)
        broker.set_down(leaders[partition(host)])
        for seq in range(1, 100):
            publisher.publish(TELEMETRY, host, telemetry(seq))
            publisher.poll()
        for seq in range(1, 50):
            publisher.publish(LAYOUTS, host, telemetry(seq))
        poll_until(publisher, lambda: publisher.delivered == 51)
        assert seqs(read_topic(broker.bootstrap, LAYOUTS)) == list(range(50))
        assert len(publisher) == 99
        broker.set_up(leaders[partition(host)])
        poll_until(publisher, lambda: len(publisher) == 0)
        assert seqs(read_topic(broker.bootstrap, TELEMETRY)) == list(range(100))
        assert not publisher.dropped
        publisher.close(5)


def test_of_a_long_absence_the_newest_is_kept_and_the_rest_counted(broker: Broker) -> None:
    publisher = make(broker.bootstrap, keep_ns=1_500_000_000)
    publisher.publish(TELEMETRY, "node1", telemetry(0))
    poll_until(publisher, lambda: publisher.delivered == 1)
    broker.set_down()
    for seq in range(1, 6):
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
    poll_until(publisher, lambda: publisher.dropped["too_old"] == 5)
    assert "refused" in publisher.trouble or "down" in publisher.trouble
    for seq in range(6, 9):
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
    broker.set_up()
    poll_until(publisher, lambda: len(publisher) == 0)
    publisher.publish(TELEMETRY, "node1", telemetry(9))
    assert publisher.close(20) == 0
    got = seqs(read_topic(broker.bootstrap, TELEMETRY))
    assert got == sorted(set(got))
    assert got[0] == 0
    assert got[-1] == 9
    assert not set(got) & set(range(1, 6))
    assert len(got) == publisher.delivered == 10 - publisher.dropped["too_old"]


def test_a_fatal_error_costs_the_producer_and_no_record(broker: Broker) -> None:
    publisher = make(broker.bootstrap)
    publisher.publish(TELEMETRY, "node1", telemetry(0))
    poll_until(publisher, lambda: publisher.delivered == 1)
    broker.push_request_errors(PRODUCE, OUT_OF_ORDER_SEQUENCE_NUMBER)
    for seq in range(1, 30):
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
    poll_until(publisher, lambda: publisher.rebuilt == 1)
    for seq in range(30, 40):
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
    assert publisher.close(20) == 0
    assert not publisher.dropped
    assert seqs(read_topic(broker.bootstrap, TELEMETRY)) == list(range(40))


def test_what_the_broker_refuses_is_counted_and_said(broker: Broker) -> None:
    publisher = make(broker.bootstrap)
    publisher.publish(LAYOUTS, "node1:7", telemetry(0))
    poll_until(publisher, lambda: publisher.delivered == 1)
    broker.push_request_errors(PRODUCE, TOPIC_AUTHORIZATION_FAILED)
    publisher.publish(TELEMETRY, "node1", telemetry(1))
    poll_until(publisher, lambda: publisher.dropped["refused"] == 1)
    assert "authorization failed" in publisher.trouble
    assert publisher.close(20) == 0
    assert seqs(read_topic(broker.bootstrap, TELEMETRY)) == []


def test_a_stop_without_a_broker_is_bounded_and_counts_what_is_left() -> None:
    publisher = make("127.0.0.1:1")
    for seq in range(300):
        publisher.publish(TELEMETRY, "node1", telemetry(seq))
        publisher.poll()
    assert publisher.close(0.2) == 300
    assert publisher.dropped == {"shutdown": 300}
    assert publisher.delivered == 0


def test_a_message_that_no_broker_takes_does_not_block_the_others(broker: Broker) -> None:
    publisher = make(broker.bootstrap)
    publisher.publish(TELEMETRY, "node1", telemetry(0, channels=MESSAGE_BYTES // 4 + 1))
    publisher.publish(TELEMETRY, "node1", telemetry(1))
    assert publisher.close(20) == 0
    assert publisher.dropped == {"refused": 1}
    assert seqs(read_topic(broker.bootstrap, TELEMETRY)) == [1]


class Bench:
    """A publisher on fake producers and a fake clock."""

    def __init__(self, *, keep_ns: int = MINUTE_NS, keep_bytes: int = 1 << 20) -> None:
        self.producers: list[FakeProducer] = []
        self.room = 4
        self.now = 0
        self.publisher = Publisher(
            "unused:1",
            "test",
            keep_ns=keep_ns,
            keep_bytes=keep_bytes,
            make_producer=self.build,
            mono_ns=lambda: self.now,
        )

    def build(self, config: dict[str, Any]) -> FakeProducer:
        producer = FakeProducer(config)
        producer.room = self.room
        self.producers.append(producer)
        return producer

    def publish(self, *seqs: int) -> None:
        for seq in seqs:
            self.publisher.publish(TELEMETRY, "node1", telemetry(seq))
            self.publisher.poll()

    def took(self) -> list[int]:
        return [decode_as(Telemetry, v).seq for p in self.producers for v in p.took]


def test_a_full_queue_makes_the_newest_wait_and_drops_nothing() -> None:
    bench = Bench()
    bench.publish(*range(10))
    assert len(bench.publisher) == 10
    while bench.producers[0].waiting:
        bench.producers[0].acknowledge(3)
        bench.publisher.poll()
    assert bench.took() == list(range(10))
    assert not bench.publisher.dropped
    assert len(bench.publisher) == 0


def test_the_backlog_drops_what_is_older_than_it_keeps() -> None:
    bench = Bench(keep_ns=MINUTE_NS)
    for second in range(100):
        bench.now = second * 1_000_000_000
        bench.publish(second)
    # Four are librdkafka's, which times out by itself; of the others the last minute is kept.
    assert bench.publisher.dropped == {"too_old": 35}
    while bench.producers[0].waiting:
        bench.producers[0].acknowledge(4)
        bench.publisher.poll()
    assert bench.took() == [0, 1, 2, 3, *range(39, 100)]


def test_the_backlog_drops_the_oldest_when_memory_is_short() -> None:
    bench = Bench(keep_bytes=5_000)
    bench.publish(*range(4))
    for seq in range(4, 24):
        bench.publisher.publish(TELEMETRY, "node1", noise(seq, channels=250))
        bench.publisher.poll()
    assert bench.publisher.dropped == {"no_room": 16}
    while bench.producers[0].waiting:
        bench.producers[0].acknowledge(4)
        bench.publisher.poll()
    assert bench.took() == [0, 1, 2, 3, 20, 21, 22, 23]


def test_a_topic_that_is_stuck_holds_up_no_other() -> None:
    """Its partition has no leader: it is never acknowledged, and nothing says why."""
    bench = Bench(keep_ns=10 * MINUTE_NS)
    bench.room = 32
    bench.publisher._rebuild()
    producer = bench.producers[-1]
    for second in range(300):
        bench.now = second * SECOND_NS
        if second == 100:
            producer.config["error_cb"](KafkaError(KafkaError._TRANSPORT, "one of three is down"))
        if second % 60 == 0:
            bench.publisher.publish(LAYOUTS, "node1:7", telemetry(1000 + second))
        bench.publish(second)
        # Only telemetry is acknowledged.
        stuck = [w for w in producer.waiting if decode_as(Telemetry, w[0]).seq >= 1000]
        producer.waiting = [w for w in producer.waiting if w not in stuck]
        producer.acknowledge(len(producer.waiting))
        producer.waiting = stuck
    assert bench.took() == list(range(300))
    assert bench.publisher.delivered == 300
    assert not bench.publisher.dropped
    assert len(bench.publisher) == 5  # layouts
    producer.acknowledge(5)
    bench.publisher.poll()
    producer.acknowledge(5)
    assert bench.took()[300:] == [1000, 1060, 1120, 1180, 1240]
    assert len(bench.publisher) == 0


class Topics:
    """A publisher on a fake producer that acknowledges each topic by itself."""

    def __init__(self, *, keep_ns: int = 10 * MINUTE_NS) -> None:
        self.bench = Bench(keep_ns=keep_ns)
        self.bench.room = 10_000
        self.bench.publisher._rebuild()
        self.publisher = self.bench.publisher
        self.born: dict[int, int] = {}
        self.took: dict[str, list[int]] = {TELEMETRY.name: [], LAYOUTS.name: []}

    @property
    def producer(self) -> FakeProducer:
        return self.bench.producers[-1]

    def publish(self, topic: Topic) -> int:
        """Publish a record, and return its number."""
        seq = len(self.born)
        self.born[seq] = self.bench.now
        # By its host a waiting message tells its topic.
        record = telemetry(seq)
        record = Telemetry(topic.name, 7, seq, record.interval_us, record.timestamps, record.values)
        self.publisher.publish(topic, "node1", record)
        self.publisher.poll()
        return seq

    def out(self, topic: Topic) -> list[int]:
        """What librdkafka holds of a topic, by number."""
        records = [decode_as(Telemetry, value) for value, _ in self.producer.waiting]
        return [r.seq for r in records if r.host == topic.name]

    def answer(self, topic: Topic, count: int = 10_000, error: int | None = None) -> None:
        """Acknowledge the oldest of a topic, or refuse them."""
        done: list[tuple[int, Callable[[KafkaError | None, None], None]]] = []
        rest = []
        for value, callback in self.producer.waiting:
            record = decode_as(Telemetry, value)
            if record.host == topic.name and len(done) < count:
                done.append((record.seq, callback))
            else:
                rest.append((value, callback))
        self.producer.waiting = rest
        for seq, callback in done:
            if error is None:
                self.took[topic.name].append(seq)
            callback(None if error is None else KafkaError(error), None)


def test_a_topic_that_nobody_acknowledges_takes_no_room_from_others_and_is_named() -> None:
    """Its partition has no leader, which librdkafka does not call an error."""
    topics = Topics()
    layouts = []
    for second in range(300):
        topics.bench.now = second * SECOND_NS
        topics.publish(TELEMETRY)
        if second % 10 == 0:
            layouts.append(topics.publish(LAYOUTS))
        topics.answer(LAYOUTS)
        topics.publisher.poll()
        stalled = second * SECOND_NS >= STALL_NS
        said = f"no broker acknowledges {TELEMETRY.name}" if stalled else ""
        assert topics.publisher.trouble == said
        assert len(topics.out(TELEMETRY)) == min(second + 1, 10)
    assert topics.took[LAYOUTS.name] == layouts
    assert len(topics.publisher) == 300
    while topics.producer.waiting:
        topics.answer(TELEMETRY)
        topics.publisher.poll()
    assert topics.publisher.trouble == ""
    assert topics.took[TELEMETRY.name] == sorted(set(range(330)) - set(layouts))
    assert not topics.publisher.dropped


def test_a_burst_of_one_topic_leaves_room_for_another() -> None:
    topics = Topics()
    burst = [topics.publish(TELEMETRY) for _ in range(2 * IN_FLIGHT_MESSAGES)]
    layout = topics.publish(LAYOUTS)
    assert topics.out(TELEMETRY) == burst[:IN_FLIGHT_MESSAGES]
    assert topics.out(LAYOUTS) == [layout]


def test_a_full_queue_for_one_topic_is_none_for_another() -> None:
    topics = Topics()
    produce = topics.producer.produce

    def full(topic: str, *rest: Any, **named: Any) -> None:
        if topic == LAYOUTS.name:
            raise BufferError("Local: Queue full")
        produce(topic, *rest, **named)

    topics.producer.produce = full  # type: ignore[method-assign]
    layout, record = topics.publish(LAYOUTS), topics.publish(TELEMETRY)
    assert topics.out(TELEMETRY) == [record]
    topics.producer.produce = produce  # type: ignore[method-assign]
    topics.publisher.poll()
    assert topics.out(LAYOUTS) == [layout]


def test_a_refused_topic_is_in_trouble_until_it_gets_through_itself() -> None:
    topics = Topics()
    topics.publish(LAYOUTS)
    topics.answer(LAYOUTS, error=TOPIC_AUTHORIZATION_FAILED)
    topics.publish(TELEMETRY)
    topics.answer(TELEMETRY)
    assert topics.publisher.trouble == f"{LAYOUTS.name}: Broker: Topic authorization failed"
    assert topics.publisher.dropped == {"refused": 1}
    topics.publish(LAYOUTS)
    topics.answer(LAYOUTS)
    assert topics.publisher.trouble == ""


def test_what_became_too_old_before_a_poll_is_not_handed_over() -> None:
    """The process was stopped for a while, or the producer had to be replaced."""
    topics = Topics(keep_ns=MINUTE_NS)
    old = topics.publish(TELEMETRY)
    topics.publisher._fatal = True
    topics.bench.now = MINUTE_NS + 1
    new = topics.publish(TELEMETRY)
    assert topics.publisher.rebuilt == 2
    assert topics.out(TELEMETRY) == [new] != [old]
    assert topics.publisher.dropped == {"too_old": 1}


@pytest.mark.parametrize("said", [True, False])
def test_how_old_what_arrives_can_be(said: bool) -> None:
    """Whatever the length of the absence; librdkafka gives up a message after `keep`."""
    keep = 600
    for away in (30, 601, 890, 1300, 1799, 2500):
        topics = Topics(keep_ns=keep * SECOND_NS)
        handed: dict[int, int] = {}
        if said:
            topics.producer.config["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "down"))
        for second in range(away):
            topics.bench.now = second * SECOND_NS
            out = topics.out(TELEMETRY)
            late = sum(handed.setdefault(n, second) + keep <= second for n in out)
            topics.answer(TELEMETRY, late, KafkaError._MSG_TIMED_OUT)
            topics.publish(TELEMETRY)
        while topics.producer.waiting:
            topics.answer(TELEMETRY)
            topics.publisher.poll()
        took = topics.took[TELEMETRY.name]
        assert took == sorted(took)
        # All of the newest ten minutes; of what is older no more than librdkafka held.
        assert took[-keep:] == list(range(away))[-keep:]
        now = away - 1
        older = [seq for seq in took if now - seq > keep]
        assert len(older) <= (TRIES if said else IN_FLIGHT_MESSAGES)
        assert all(now - seq <= 2 * keep for seq in older)
        assert topics.publisher.dropped.total() == away - len(took)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.booleans(), st.integers(1, 40)),
            st.tuples(st.just("answer"), st.booleans(), st.integers(1, 40)),
            st.tuples(st.just("time out"), st.booleans(), st.integers(1, 40)),
            st.tuples(st.just("refuse"), st.booleans(), st.just(1)),
            st.tuples(st.just("wait"), st.booleans(), st.integers(1, 90)),
            st.tuples(st.just("down"), st.booleans(), st.just(1)),
            st.tuples(st.just("fatal"), st.booleans(), st.just(1)),
        ),
        max_size=60,
    )
)
def test_whatever_happens_each_topic_stays_in_order_and_all_is_counted(
    steps: list[tuple[str, bool, int]],
) -> None:
    topics = Topics(keep_ns=MINUTE_NS)
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "down")
    for what, flag, count in steps:
        topic = TELEMETRY if flag else LAYOUTS
        match what:
            case "publish":
                for _ in range(count):
                    topics.publish(topic)
            case "answer":
                topics.answer(topic, count)
            case "time out":
                topics.answer(topic, count, KafkaError._MSG_TIMED_OUT)
            case "refuse":
                topics.answer(topic, count, TOPIC_AUTHORIZATION_FAILED)
            case "wait":
                topics.bench.now += count * SECOND_NS
            case "down":
                topics.producer.config["error_cb"](down)
            case "fatal":
                topics.producer.config["error_cb"](fatal())
        topics.publisher.poll()
        for took in topics.took.values():
            assert took == sorted(set(took))
        delivered = sum(map(len, topics.took.values()))
        assert topics.publisher.delivered == delivered
        left = len(topics.publisher) + topics.publisher.dropped.total()
        assert delivered + left == len(topics.born)
        assert max(len(topics.out(t)) for t in (TELEMETRY, LAYOUTS)) <= IN_FLIGHT_MESSAGES


def test_what_has_to_wait_is_kept_compressed_and_arrives_as_it_was() -> None:
    bench = Bench(keep_bytes=20_000)
    sent = [noise(0, 10), *(telemetry(seq, channels=5_000) for seq in range(1, 60)), noise(60, 500)]
    for record in sent:  # 59 times 20 kB
        bench.publisher.publish(TELEMETRY, "node1", record)
        bench.publisher.poll()
    assert not bench.publisher.dropped
    assert bench.publisher.payload_bytes > 1_000_000
    while bench.producers[0].waiting:
        bench.producers[0].acknowledge(3)
        bench.publisher.poll()
    assert bench.producers[0].took == [encode(record) for record in sent]


def test_ten_minutes_without_a_broker_are_kept_in_order_and_the_rest_counted() -> None:
    """A record a second for half an hour, the broker away for a quarter of it.

    The producer gives up what it holds after ten minutes, as librdkafka does.
    """
    away, back, end, keep = 100, 1000, 1800, 600
    bench = Bench(keep_ns=keep * SECOND_NS)
    producer = bench.producers[0]
    producer.room = 1000
    handed: dict[int, int] = {}
    for tick in range(10 * end):
        bench.now = tick * SECOND_NS // 10
        if tick == 10 * away:
            producer.config["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "down"))
        if 10 * away <= tick < 10 * back:
            for value, _ in list(producer.waiting):
                if bench.now - handed[decode_as(Telemetry, value).seq] >= keep * SECOND_NS:
                    producer.acknowledge(1, KafkaError(KafkaError._MSG_TIMED_OUT))
        else:
            producer.acknowledge(len(producer.waiting))
        if tick % 10 == 0:
            bench.publisher.publish(TELEMETRY, "node1", telemetry(tick // 10))
        bench.publisher.poll()
        for value, _ in producer.waiting:
            handed.setdefault(decode_as(Telemetry, value).seq, bench.now)
    producer.acknowledge(len(producer.waiting))
    # The two that librdkafka tried with timed out after ten minutes, and two more took their
    # place; of the others all from the last ten minutes before the return are there.
    tried = [away + 2, away + 3]
    assert bench.took() == [*range(away), *tried, *range(back - keep, end)]
    assert bench.publisher.dropped == {"too_old": back - away - keep - len(tried)}
    assert bench.publisher.delivered == len(bench.took())
    assert len(bench.publisher) == 0


def test_a_timeout_in_librdkafka_counts_as_too_old() -> None:
    bench = Bench()
    bench.publish(0, 1)
    bench.producers[0].acknowledge(2, KafkaError(KafkaError._MSG_TIMED_OUT))
    assert bench.publisher.dropped == {"too_old": 2}
    assert len(bench.publisher) == 0


def fatal() -> KafkaError:
    return KafkaError(KafkaError._FATAL, "out of step", fatal=True)


def test_after_a_fatal_error_what_was_in_flight_goes_first() -> None:
    bench = Bench()
    bench.publish(*range(7))
    bench.producers[0].acknowledge(1)
    bench.producers[0].acknowledge(1, fatal())
    bench.publisher.poll()
    assert bench.producers[0].purged
    new = bench.producers[1]
    assert [decode_as(Telemetry, v).seq for v, _ in new.waiting] == [1, 2]
    new.acknowledge(1)
    bench.publisher.poll()
    assert [decode_as(Telemetry, v).seq for v, _ in new.waiting] == [2, 3, 4, 5]
    while new.waiting:
        new.acknowledge(2)
        bench.publisher.poll()
    assert bench.took() == list(range(7))
    assert not bench.publisher.dropped
    assert bench.publisher.rebuilt == 1


def test_what_is_sent_again_counts_for_the_memory_bound() -> None:
    bench = Bench(keep_bytes=3_500)
    for seq in range(4):
        bench.publisher.publish(TELEMETRY, "node1", noise(seq, channels=250))
        bench.publisher.poll()
    bench.room = 0
    bench.producers[0].acknowledge(1, fatal())
    bench.publisher.poll()
    assert bench.publisher.dropped == {"no_room": 1}
    bench.producers[1].room = 4
    bench.publisher.poll()
    while bench.producers[1].waiting:
        bench.producers[1].acknowledge(4)
        bench.publisher.poll()
    assert bench.took() == [1, 2, 3]


def test_a_fatal_error_in_produce_keeps_the_message() -> None:
    bench = Bench()
    bench.producers[0].raises = KafkaException(fatal())
    bench.publish(0)
    bench.publisher.poll()
    bench.producers[1].acknowledge(1)
    assert bench.took() == [0]
    assert bench.publisher.rebuilt == 1


def test_producers_are_not_built_in_a_storm() -> None:
    bench = Bench()
    bench.room = 0
    for tick in range(100):  # ten seconds of ticks
        bench.now = tick * 100_000_000
        bench.producers[-1].raises = KafkaException(fatal())
        bench.publish(tick)
    assert bench.publisher.rebuilt == 2
    assert bench.publisher.trouble == "out of step"
    assert len(bench.publisher) == 100


def test_a_plain_refusal_of_librdkafka_is_counted() -> None:
    bench = Bench()
    bench.producers[0].raises = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    bench.publish(0)
    assert bench.publisher.dropped == {"refused": 1}
    assert len(bench.publisher) == 0


def test_the_producer_is_idempotent_ordered_and_spreads_keys_like_java() -> None:
    config = producer_config("a:1,b:2", "reveal-agent-node1", 300_000)
    assert config["bootstrap.servers"] == "a:1,b:2"
    assert config["enable.idempotence"] is True
    assert config["compression.type"] == "zstd"
    assert config["partitioner"] == "murmur2_random"
    assert config["message.timeout.ms"] == 300_000


def test_payload_is_counted_before_compression() -> None:
    bench = Bench()
    bench.publish(0)
    assert bench.publisher.payload_bytes == len(bench.producers[0].waiting[0][0])


@pytest.mark.parametrize("host", ["node1", "gpu-0042.cluster"])
def test_a_host_is_one_partition(broker: Broker, host: str) -> None:
    """Java's murmur2 of the key, by Kafka's own formula, names the partition."""
    publisher = make(broker.bootstrap)
    publisher.publish(TELEMETRY, host, telemetry(0))
    assert publisher.close(20) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "log_level": 0})
    at = TopicPartition(TELEMETRY.name, partition(host))
    _, high = consumer.get_watermark_offsets(at, 20)
    consumer.close()
    assert high == 1


def partition(host: str) -> int:
    return (murmur2(host.encode()) & 0x7FFFFFFF) % TELEMETRY.partitions


def murmur2(data: bytes) -> int:
    """Kafka's ``org.apache.kafka.common.utils.Utils.murmur2``."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_the_trouble_is_the_error_that_says_why() -> None:
    bench = Bench()
    callback = bench.producers[0].config["error_cb"]
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    callback(down)
    assert bench.publisher.trouble == "1/1 brokers are down"
    text = "a:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    callback(KafkaError(KafkaError._TRANSPORT, f"{text} (after 0ms in state CONNECT)"))
    callback(down)
    assert bench.publisher.trouble == "Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
