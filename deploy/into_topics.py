"""A recording back into its topics: layouts first, then telemetry in time order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from deploy.errors import NoBroker
from deploy.reader import partition_counts
from producers.publisher import producer_config
from schemas.records import Layout
from schemas.topics import LAYOUTS, TELEMETRY
from streams.recording import Recorded

KEEP_MS = 30_000
"""How long a message waits for a broker that is away."""
POLL_S = 0.1


@dataclass(slots=True, eq=False)
class Published:
    """What went out so far.

    `lag_s` is how far behind its time the newest record went out, at the speed asked for.
    """

    records: int = 0
    layouts: int = 0
    delivered: int = 0
    failed: int = 0
    trouble: str = ""
    first_us: int = 0
    newest_us: int = 0
    lag_s: float = 0.0


class TopicWriter:
    """Publishes recorded messages as an agent would: same bytes, same keys, same partitions.

    Their timestamps are the recording's; Kafka's own are the time of publishing, so that the
    broker's retention does not delete them at once.

    Raises
    ------
    NoBroker
        None answers.
    NoTopic
        One of the topics does not exist.
    """

    def __init__(self, brokers: str) -> None:
        self.published = Published()
        config = producer_config(brokers, "reveal-replay", KEEP_MS)
        self._producer: Any = Producer({**config, "error_cb": self._on_error})
        partition_counts(self._producer, brokers, (LAYOUTS, TELEMETRY))

    def publish(
        self,
        recorded: Iterable[Recorded],
        *,
        speed: float | None,
        stop: threading.Event,
        on_progress: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Publish until the end or `stop`, `speed` times as fast as it was recorded.

        Without a speed: as fast as the broker takes it.
        """
        done = self.published
        began = clock()
        for record, message in recorded:
            if isinstance(record, Layout):
                key = f"{record.host}:{record.fingerprint}"
                self._produce(LAYOUTS.name, key, message)
                done.layouts += 1
                continue
            newest = int(record.timestamps[-1])
            if not done.records:
                # A worker that is to score has the layouts when the first record comes.
                self._producer.flush(KEEP_MS / 1000)
                began, done.first_us = clock(), newest
            if speed is not None:
                due = began + (newest - done.first_us) / 1e6 / speed
                while (left := due - clock()) > 0 and not stop.is_set():
                    self._producer.poll(0)
                    on_progress()
                    stop.wait(min(left, POLL_S))
                done.lag_s = max(0.0, clock() - due)
            if stop.is_set():
                break
            self._produce(TELEMETRY.name, record.host, message)
            done.records += 1
            done.newest_us = newest
            on_progress()

    def close(self) -> None:
        """Wait until everything was delivered or given up."""
        self._producer.flush()

    def _produce(self, topic: str, key: str, message: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, message, key, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(POLL_S)
            except KafkaException as e:
                raise NoBroker(f"the broker refuses: {e.args[0].str()}") from None
            else:
                self._producer.poll(0)
                return

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.published.delivered += 1
        else:
            self.published.failed += 1
            self.published.trouble = error.str()

    def _on_error(self, error: KafkaError) -> None:
        self.published.trouble = error.str()
