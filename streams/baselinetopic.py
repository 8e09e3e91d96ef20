"""The baselines topic: written when a host has been learned, read when a partition is taken on.

Both go past Faust. What is written is no part of the stream's promise, so the stream waits for no
acknowledgement of it; what is read, it waits for, with a limit. A table of Faust's would read all
of it back at each start and call its own recovery done when it is not.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from schemas.topics import BASELINES
from streams.baselines import Assembly, to_messages
from streams.lives import News

BATCH = 100
SLICE_S = 0.2
TOO_MANY_TO_NAME = 10


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"reveal worker: {text}\n")


class BaselineReader:
    """Reads partitions of the topic to their end, each time from where it stopped before.

    Parameters
    ----------
    config
        Of the consumer: where the brokers are.
    patience_s
        How long one `load` takes at most.
    say
        Where to say what could not be read.

    Attributes
    ----------
    loaded, rejected
        Baselines read, and messages or baselines that could not be.
    cut_short
        Loads that took too long, or found no topic.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        patience_s: float,
        say: Callable[[str], None] = _to_stderr,
    ) -> None:
        self.loaded = self.rejected = self.cut_short = 0
        self._patience_s = patience_s
        self._say = say
        self._next: dict[int, int] = {}
        self._consumer = Consumer(
            {
                **config,
                "group.id": "reveal-baselines",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )

    def load(self, partitions: Iterable[int]) -> list[News]:
        """Return what partitions hold that was not read before. Blocks: not for an event loop."""
        wanted = set(partitions)
        deadline = time.monotonic() + self._patience_s
        before = self.rejected
        assembly = Assembly(self._reject)
        there = self._there(deadline)
        left = wanted & there
        if left:
            self._read(left, deadline, assembly)
        news = list(assembly.take())
        self.loaded += sum(n.learned is not None for n in news)
        if there and not wanted <= there:
            self._cut_short(len(wanted - there), "`reveal topics create` makes the topic")
        if left or not there:
            self._cut_short(len(left or wanted), f"not within {self._patience_s:g} s")
        if self.rejected - before > TOO_MANY_TO_NAME:
            self._say(f"{BASELINES.name}: {self.rejected - before} were passed over altogether")
        return news

    def _there(self, deadline: float) -> set[int]:
        """Return the partitions that the topic has; none if no broker answers in time."""
        while (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(KafkaException):  # it may come back
                topic = self._consumer.list_topics(BASELINES.name, left_s).topics[BASELINES.name]
                # One that is not there has no partitions, and -1 is none that could be wanted.
                return {*topic.partitions, -1}
        return set()

    def _read(self, left: set[int], deadline: float, assembly: Assembly) -> None:
        """Read partitions to their end, and take from `left` those that were."""
        self._consumer.assign(
            [
                TopicPartition(BASELINES.name, p, self._next.get(p, OFFSET_BEGINNING))
                for p in sorted(left)
            ]
        )
        while left and time.monotonic() < deadline:
            for message in self._consumer.consume(BATCH, SLICE_S):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if partition is None or offset is None:
                    continue
                if error is None:
                    self._next[partition] = offset + 1
                    assembly.add(message.key() or b"", message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)
        self._consumer.unassign()

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _cut_short(self, count: int, why: str) -> None:
        self.cut_short += 1
        self._say(
            f"{BASELINES.name}: {count} partitions could not be read ({why}): "
            "hosts whose baselines lie there are learned anew"
        )

    def _reject(self, what: str) -> None:
        self.rejected += 1
        if self.rejected <= TOO_MANY_TO_NAME:
            self._say(f"{BASELINES.name}: passed over {what}")


class BaselineWriter:
    """Sends baselines; one that the broker did not take is sent again until a newer one comes.

    Parameters
    ----------
    config
        Of the producer: where the brokers are.
    say
        Where to say what went wrong.

    Attributes
    ----------
    published, failed
        Messages that the broker has, and attempts that failed.
    """

    def __init__(
        self, config: Mapping[str, Any], *, say: Callable[[str], None] = _to_stderr
    ) -> None:
        self.published = self.failed = 0
        self._say = say
        self._again: dict[str, tuple[int, bytes | None]] = {}
        self._newest: dict[str, int] = {}
        self._turn = 0
        self._producer = Producer(
            {
                **config,
                "acks": "all",
                # In order, or an old version could come after a new one.
                "max.in.flight.requests.per.connection": 1,
                "compression.type": "none",  # it is already
            }
        )

    @property
    def waiting(self) -> int:
        """Messages that the broker has not acknowledged."""
        return len(self._producer) + len(self._again)

    def send(self, partition: int, news: News) -> None:
        """Send what was learned of a host, or that it holds no longer."""
        for key, value in to_messages(news):
            self._again.pop(key, None)
            self._turn += 1
            self._newest[key] = self._turn
            self._produce(partition, key, value)

    def poll(self) -> None:
        """See to what came back, and send again what did not arrive."""
        self._producer.poll(0)
        again, self._again = self._again, {}
        for key, (partition, value) in again.items():
            self._produce(partition, key, value)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the broker has everything; return whether it does."""
        return self._producer.flush(timeout_s) == 0 and not self._again

    def _produce(self, partition: int, key: str, value: bytes | None) -> None:
        turn = self._newest[key]

        def done(error: KafkaError | None, _message: Any) -> None:
            if error is None:
                self.published += 1
            elif self._newest[key] == turn:  # nothing newer under this key is on its way
                self._fail(partition, key, value, str(error))

        try:
            self._producer.produce(
                BASELINES.name, value, key, partition=partition, on_delivery=done
            )
        except BufferError as e:
            self._fail(partition, key, value, str(e))

    def _fail(self, partition: int, key: str, value: bytes | None, why: str) -> None:
        self.failed += 1
        self._again[key] = partition, value
        if self.failed <= TOO_MANY_TO_NAME:
            self._say(f"{BASELINES.name}: {key} not published yet: {why}")
