"""The worker's core without Faust: a plain confluent-kafka consumer around the same pipeline.

``python -m tests.bench.plain BASELINE_SECONDS BROKERS``.
"""

from __future__ import annotations

import signal
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.codec import encode
from schemas.topics import ANOMALIES, SCORES, TELEMETRY
from streams.config import WorkerSettings
from streams.core import new_pipeline
from streams.layouts import LayoutReader, Layouts
from streams.pipeline import Message
from tests.bench.fits import SharedFits


def main(baseline_seconds: int, brokers: str) -> None:
    """Run it until it is told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # and its fitting process with it
    settings = WorkerSettings.model_validate({"baseline_seconds": baseline_seconds})
    to_broker = {"bootstrap.servers": brokers, "log_level": 0}
    layouts = Layouts()
    LayoutReader(to_broker, layouts).start()
    pipeline = new_pipeline(settings, layouts, SharedFits())
    producer = Producer({**to_broker, "compression.type": "zstd", "linger.ms": 0})
    consumer = Consumer(
        {
            **to_broker,
            "group.id": "plain",
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 1000,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([TELEMETRY.name])
    while True:
        messages = []
        for m in consumer.consume(settings.take, settings.within_ms / 1000):
            partition, offset = m.partition(), m.offset()
            if m.error() is None and partition is not None and offset is not None:
                after = TopicPartition(TELEMETRY.name, partition, offset + 1)
                messages.append(Message(partition, offset, m.value() or b"", after))
        outcome = pipeline.process(messages, time.monotonic())
        for score in outcome.scores:
            producer.produce(SCORES.name, encode(score), score.host)
        for anomaly in outcome.anomalies:
            producer.produce(ANOMALIES.name, encode(anomaly), anomaly.host)
        producer.flush()
        if outcome.done:
            consumer.store_offsets(offsets=outcome.done)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
