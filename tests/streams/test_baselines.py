"""Baselines as messages, and the topic that keeps them, on the embedded broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from deploy.local import Broker
from models.baseline import Tuning
from schemas import records
from schemas.codec import decode_as, encode
from schemas.topics import BASELINES
from streams import baselines
from streams.baselines import Assembly, to_messages
from streams.baselinetopic import BaselineReader, BaselineWriter
from streams.fitting import Learned, learn
from streams.lives import News
from tests.models.hosts import table, windows

BOUND_S = 30.0
TABLE = table(4)
Messages = list[tuple[str, bytes | None]]


@cache
def learned(version: int = 1, note: str = "") -> Learned:
    rows = windows(TABLE, 60, seed=version)
    return learn(rows, TABLE, seed=0, version=version, note=note, keep=True, tuning=Tuning())


def news(host: str = "a", layout: int = -5, version: int = 1) -> News:
    return News(host, layout, learned(version))


def assembled(messages: Messages) -> tuple[dict[tuple[str, int], Learned | None], list[str]]:
    rejected: list[str] = []
    assembly = Assembly(rejected.append)
    for key, value in messages:
        assembly.add(key.encode(), value)
    return {(n.host, n.layout): n.learned for n in assembly.take()}, rejected


def version_of(found: dict[tuple[str, int], Learned | None], host: str = "a") -> int | None:
    got = found.get((host, -5))
    return None if got is None else got.version


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces so small that every baseline has several; return how many the first one has."""
    size = len(learned().data)
    monkeypatch.setattr(baselines, "PIECE", size // 3)
    return -(-size // (size // 3))


# ---- messages ---------------------------------------------------------------------------------


def test_a_baseline_comes_back_as_it_was() -> None:
    want = learned(7, "restless")
    ((key, value),) = to_messages(News("node:1", -5, want))
    assert key == "node:1:-5"
    record = decode_as(records.Baseline, value or b"")
    assert (record.version, record.windows, record.part, record.parts) == (7, 60, 0, 1)
    found, rejected = assembled([(key, value)])
    got = found["node:1", -5]
    assert got is not None
    assert (got.version, got.note) == (7, "restless")
    assert got.baseline.to_bytes() == want.data
    np.testing.assert_array_equal(got.usual.low, want.usual.low)
    np.testing.assert_array_equal(got.usual.high, want.usual.high)
    assert rejected == []


def test_a_large_one_is_cut_and_put_together_in_any_order(cut_small: int) -> None:
    messages = to_messages(news())
    assert [key for key, _ in messages] == ["a:-5", *(f"a:-5/{n}" for n in range(1, cut_small))]
    assert len(messages) > 2
    for order in (messages, messages[::-1]):
        found, rejected = assembled(order)
        got = found["a", -5]
        assert got is not None
        assert got.baseline.to_bytes() == learned().data
        assert rejected == []


def test_a_message_is_small_enough_for_any_broker() -> None:
    many = 10_000
    ones = np.ones(many, np.float32)
    usual = replace(learned().usual, low=ones, high=ones)
    huge = replace(learned(), data=bytes(3 * baselines.PIECE), usual=usual)
    sizes = [len(key) + len(value or b"") for key, value in to_messages(News("h" * 253, 1, huge))]
    assert len(sizes) == 3
    assert max(sizes) < 1_000_000, "librdkafka's message.max.bytes; Kafka's is 1,048,588"


def test_the_newest_version_counts_in_whatever_order_they_lie() -> None:
    old, new = to_messages(news(version=1)), to_messages(news(version=2))
    for messages in (old + new, new + old):
        assert version_of(assembled(messages)[0]) == 2


def test_one_with_a_part_missing_gives_way_to_the_version_before(cut_small: int) -> None:
    old, new = to_messages(news(version=1)), to_messages(news(version=2))
    found, rejected = assembled(old + new[:-1])
    assert version_of(found) == 1
    assert len(rejected) == 1
    assert "version 2" in rejected[0]
    assert "parts are there" in rejected[0]


def test_what_is_taken_back_is_no_baseline_until_there_is_another() -> None:
    taken_back = to_messages(News("a", -5, None))
    assert taken_back == [("a:-5", None)]
    found, _ = assembled(to_messages(news()) + taken_back)
    assert found == {("a", -5): None}
    found, _ = assembled(to_messages(news()) + taken_back + to_messages(news(version=2)))
    assert version_of(found) == 2


def test_parts_of_a_baseline_that_was_taken_back_are_nobodys(cut_small: int) -> None:
    (_, *rest) = to_messages(news())
    assert assembled(rest) == ({}, [])


def altered(**changes: Any) -> Messages:
    ((key, value),) = to_messages(news(version=2))
    return [(key, encode(replace(decode_as(records.Baseline, value or b""), **changes)))]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([("a:-5", b"junk")], "message 'a:-5': 4 bytes are too few"),
        ([("\udcff", b"\0\0\0\0\1" + bytes(9))], "Confluent wire format"),
        (altered(data=b"PK not an archive"), "baseline of 'a', layout -5, version 2: not a"),
        (altered(data=learned(2).data[:-9]), "not a baseline"),
        (altered(version=3), "version 3: it holds version 2"),
        (altered(low=np.zeros(3, np.float32), high=np.zeros(3, np.float32)), "3 ranges for 16"),
    ],
)
def test_what_is_none_is_named_and_passed_over(messages: Messages, said: str) -> None:
    rejected: list[str] = []
    assembly = Assembly(rejected.append)
    for key, value in to_messages(news(version=1)) + messages + to_messages(news("b")):
        assembly.add(key.encode("utf-8", "surrogateescape"), value)
    found = {(n.host, n.layout): n.learned for n in assembly.take()}
    assert (version_of(found), version_of(found, "b")) == (1, 1)
    assert len(rejected) == 1
    assert said in rejected[0]


def test_foreign_keys_without_a_value_are_nothing() -> None:
    assert assembled([("", None), ("a", None), ("a:b", None), ("a:-5/1", None)]) == ({}, [])


# ---- the topic ----------------------------------------------------------------------------------


@pytest.fixture
def config(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "log_level": 0}


@pytest.fixture
def reader(config: dict[str, Any]) -> Iterator[BaselineReader]:
    reader = BaselineReader(config, patience_s=BOUND_S)
    yield reader
    reader.close()


def found_by(reader: BaselineReader, *partitions: int) -> dict[str, int | None]:
    loaded = reader.load(partitions)
    return {n.host: n.learned.version if n.learned else None for n in loaded}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline


def test_what_was_published_is_loaded_with_its_partition_and_once(
    config: dict[str, Any], reader: BaselineReader
) -> None:
    writer = BaselineWriter(config)
    writer.send(3, news("a"))
    writer.send(3, news("b"))
    writer.send(9, news("c"))
    assert writer.flush(BOUND_S)
    assert (writer.published, writer.failed, writer.waiting) == (3, 0, 0)
    assert found_by(reader, 3) == {"a": 1, "b": 1}
    assert found_by(reader, 0, 1, 2) == {}
    assert found_by(reader, 3, 9) == {"c": 1}, "what was read before is not read again"
    writer.send(3, news("b", version=2))
    writer.send(3, News("a", -5, None))
    assert writer.flush(BOUND_S)
    assert found_by(reader, *range(BASELINES.partitions)) == {"a": None, "b": 2}
    assert (reader.loaded, reader.rejected, reader.cut_short) == (4, 0, 0)


def test_junk_on_the_topic_is_counted_and_named(config: dict[str, Any]) -> None:
    said: list[str] = []
    reader = BaselineReader(config, patience_s=BOUND_S, say=said.append)
    junk = Producer(config)
    for n in range(25):
        junk.produce(BASELINES.name, b"junk", f"x{n}", partition=4)
    assert junk.flush(BOUND_S) == 0
    writer = BaselineWriter(config)
    writer.send(4, news())
    assert writer.flush(BOUND_S)
    assert found_by(reader, 4) == {"a": 1}
    assert reader.rejected == 25
    assert "'x0'" in said[0]
    assert len(said) == 11, "ten by name, then how many"
    assert "25" in said[-1]
    reader.close()


def test_a_baseline_of_several_megabytes_takes_several_messages(
    config: dict[str, Any], reader: BaselineReader, cut_small: int
) -> None:
    writer = BaselineWriter(config)
    writer.send(2, news())
    assert writer.flush(BOUND_S)
    assert writer.published == cut_small
    assert found_by(reader, 2) == {"a": 1}


def test_without_the_topic_or_a_broker_a_load_ends_and_says_so(config: dict[str, Any]) -> None:
    said: list[str] = []
    reader = BaselineReader(config, patience_s=BOUND_S, say=said.append)
    assert reader.load([BASELINES.partitions + 7]) == []
    assert reader.cut_short == 1
    assert "reveal topics create" in said[0]
    reader.close()
    nobody = {**config, "bootstrap.servers": "127.0.0.1:1"}
    reader = BaselineReader(nobody, patience_s=0.3, say=said.append)
    assert reader.load([0, 1]) == []
    assert "2 partitions could not be read (not within 0.3 s)" in said[1]
    reader.close()


def test_what_the_broker_does_not_take_is_sent_again_unless_newer_came(
    broker: Broker, config: dict[str, Any], reader: BaselineReader
) -> None:
    said: list[str] = []
    writer = BaselineWriter({**config, "message.timeout.ms": 300}, say=said.append)

    def polled(condition: Callable[[], bool]) -> Callable[[], bool]:
        def holds() -> bool:
            writer.poll()
            return condition()

        return holds

    broker.set_down()
    writer.send(1, news("a"))
    writer.send(1, news("b"))
    until(polled(lambda: writer.failed >= 2))
    writer.send(1, news("b", version=2))
    broker.set_up()
    until(polled(lambda: writer.waiting == 0))
    assert found_by(reader, 1) == {"a": 1, "b": 2}
    assert "a:-5 not published yet" in said[0]
