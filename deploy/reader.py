"""Follows topics of ours, all partitions, outside of any consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from deploy.errors import NoBroker, NoTopic
from schemas.codec import decode
from schemas.errors import InvalidRecord
from schemas.records import Record
from schemas.topics import Topic

BATCH = 500
CONNECT_S = 10.0
SLICE_S = 0.5


class TopicReader:
    """Reads the records of some topics, in order per partition.

    Parameters
    ----------
    brokers
        ``host:port`` of one or more brokers, comma-separated.
    topics
        What to read.
    from_start
        Whether to begin with what is there already.
    connect_s
        How long to wait for a broker.

    Attributes
    ----------
    invalid
        Messages that were none of ours; they are passed over.
    connected
        False while no broker answers.

    Raises
    ------
    NoBroker
        None answers.
    NoTopic
        A topic does not exist.
    """

    def __init__(
        self,
        brokers: str,
        topics: Iterable[Topic],
        *,
        from_start: bool,
        connect_s: float = CONNECT_S,
    ) -> None:
        self.invalid = 0
        self.connected = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "reveal-view",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                # What is next may have been deleted: go on with the oldest, not at the end.
                "auto.offset.reset": "earliest",
                # What it would log is said by `NoBroker` and `connected`.
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        try:
            self._partitions = [
                TopicPartition(topic, partition, OFFSET_BEGINNING if from_start else OFFSET_END)
                for topic, count in partition_counts(
                    self._consumer, brokers, topics, connect_s
                ).items()
                for partition in range(count)
            ]
            # Before anything is fetched: a fetch that waits holds up what is asked after it.
            self._ends = self._find_ends() if from_start else {}
        except KafkaException as e:
            self._consumer.close()
            raise NoBroker(f"the broker at {brokers} went away: {e.args[0].str()}") from None
        except BaseException:
            self._consumer.close()
            raise
        self._consumer.assign(self._partitions)

    def read(self, timeout_s: float) -> list[Record]:
        """Return what has come; wait `timeout_s` seconds for the first record of it."""
        return self._decoded(self._messages(timeout_s))

    def read_to_end(self) -> Iterator[Record]:
        """Yield what was in the topics when this reader was made from their start, then stop."""
        left = dict(self._ends)
        while left:
            messages = self._messages(SLICE_S)
            yield from self._decoded(messages)
            for position in self._consumer.position(list(map(_bare, left))):
                key = position.topic, position.partition
                if position.offset >= left.get(key, 0):
                    left.pop(key, None)
            if not self.connected and not messages:
                raise NoBroker("the broker went away before everything was read")

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _messages(self, timeout_s: float) -> list[Any]:
        # Asked for a batch at once, the client would wait until it is full.
        first = self._consumer.consume(1, timeout_s)
        return [*first, *self._consumer.consume(BATCH, 0.0)] if first else []

    def _find_ends(self) -> dict[tuple[str, int], int]:
        """Return where the partitions that hold anything end."""
        ends = {}
        for p in self._partitions:
            low, high = self._consumer.get_watermark_offsets(
                _bare((p.topic, p.partition)), CONNECT_S
            )
            if high > low:
                ends[p.topic, p.partition] = high
        return ends

    def _decoded(self, messages: Iterable[Any]) -> list[Record]:
        records = []
        for message in messages:
            if message.error() is not None:
                continue  # what matters of it comes to `_on_error`
            self.connected = True
            try:
                records.append(decode(message.value() or b""))
            except InvalidRecord:
                self.invalid += 1
        return records

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.connected = False


def partition_counts(
    client: Any, brokers: str, topics: Iterable[Topic], timeout_s: float = CONNECT_S
) -> dict[str, int]:
    """Ask the cluster how many partitions each topic has; see `TopicReader` for the errors."""
    try:
        known = client.list_topics(timeout=timeout_s).topics
    except KafkaException as e:
        raise NoBroker(f"no Kafka broker answers at {brokers}: {e.args[0].str()}") from None
    wanted = [topic.name for topic in topics]
    missing = [name for name in wanted if name not in known or known[name].error is not None]
    if missing:
        raise NoTopic(
            f"{brokers} has no topic {', '.join(missing)}:"
            f" run `reveal topics create --brokers {brokers}`"
        )
    return {name: len(known[name].partitions) for name in wanted}


def _bare(key: tuple[str, int]) -> TopicPartition:
    return TopicPartition(*key)
