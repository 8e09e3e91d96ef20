"""What was published, read back."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from schemas.codec import decode
from schemas.records import Record
from schemas.topics import Topic


def read_topic(bootstrap: str, topic: Topic, *, patience_s: float = 20) -> list[tuple[str, Record]]:
    """Return key and record of every message now in `topic`, by partition and in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "fetch.wait.max.ms": 20,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[tuple[int, str, Record]] = []
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic.name, p, 0) for p in range(topic.partitions)])
        until = time.monotonic() + patience_s
        while len(ended) < topic.partitions and time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is None:
                continue
            partition, key, value = message.partition(), message.key(), message.value()
            assert partition is not None
            if message.error():
                ended.add(partition)  # the end of a partition comes as an error
            else:
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                found.append((partition, key.decode(), decode(value)))
    finally:
        consumer.close()
    assert len(ended) == topic.partitions, f"read {len(ended)} of {topic.partitions} partitions"
    found.sort(key=lambda item: item[0])
    return [(key, record) for _, key, record in found]
