"""Records to Kafka: in order, bounded, and never in the way of sampling.

Messages wait in a backlog of our own and are handed to librdkafka a few at a time. While the
broker is away the backlog keeps the newest minutes and drops, counted, the oldest; when it comes
back everything kept goes out in order. librdkafka alone would keep the oldest and refuse the
newest when its queue is full; so while nothing gets through it is given two messages of each topic
to try with, and a topic that no broker has a leader for holds up no other. (It counts their time
anew, so those tries can be up to twice as old as what is kept.) What has to wait is compressed, to
a third or less. A fatal producer error costs nothing but the producer: what was not acknowledged
is sent again by a new one (a reader may see such a record twice).
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from schemas.codec import encode
from schemas.records import Record
from schemas.topics import Topic

IN_FLIGHT_MESSAGES = 32
"""What librdkafka is given at a time. At ten ticks a second, 320 seconds are caught up in one."""
TRIES = 2
"""What it is given of a topic while nothing gets through: the rest is kept here, and the newest of
it."""
IN_FLIGHT_KBYTES = 16 * 1024
MESSAGE_BYTES = 8 * 1024 * 1024
IDLE_POLLS = 10
"""While nothing is on its way, librdkafka is asked what is new at every tenth poll."""
FLUSH_STEP_S = 0.05
PACK_LEVEL = 1
"""Of zlib, which every Python has: 0.3 ms for a second of 700 channels, and higher gains little."""
REBUILD_NS = 5_000_000_000
"""At least so long between two producers: what is fatal can be so again at once."""

_CONNECTION = re.compile(r"^\S+/(?:bootstrap|\d+): ")
_STATE = re.compile(r" \(after \d+ms in state \w+.*\)$")


@dataclass(frozen=True, slots=True)
class _Message:
    """`data` is the message, or with `packed` the same compressed."""

    number: int
    topic: str
    key: str
    data: bytes
    born_ns: int
    packed: bool = False

    @property
    def value(self) -> bytes:
        return zlib.decompress(self.data) if self.packed else self.data

    def pack(self) -> _Message:
        return replace(self, data=zlib.compress(self.data, PACK_LEVEL), packed=True)


def producer_config(brokers: str, client_id: str, keep_ms: int) -> dict[str, Any]:
    """Return librdkafka's settings; `keep_ms` is how long a message may wait."""
    return {
        "bootstrap.servers": brokers,
        "client.id": client_id,
        "enable.idempotence": True,
        "compression.type": "zstd",
        # The partition of a key is the same as from Java clients (librdkafka#4510).
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "message.timeout.ms": keep_ms,
        "message.max.bytes": MESSAGE_BYTES,
        "queue.buffering.max.messages": IN_FLIGHT_MESSAGES,
        "queue.buffering.max.kbytes": IN_FLIGHT_KBYTES,
        "reconnect.backoff.max.ms": 2000,
        # What goes wrong comes through the callbacks; its own log has a line per attempt.
        "log_level": 0,
        "logger": logging.Logger("librdkafka", logging.CRITICAL + 1),
    }


def in_short(error: KafkaError) -> str:
    """Return what an error says, without librdkafka's name for the connection and its state."""
    return _STATE.sub("", _CONNECTION.sub("", error.str()))


class Publisher:
    """Sends one host's records. Nothing here waits, except `close`.

    Parameters
    ----------
    brokers, client_id
        For librdkafka.
    keep_ns, keep_bytes
        What the backlog keeps while the broker is away: the newest, up to both. The bytes are
        those that it takes in memory.
    make_producer, mono_ns
        For tests: what makes a producer from its settings, and the clock.

    Attributes
    ----------
    delivered
        Messages that the broker acknowledged.
    dropped
        Messages given up, by reason: ``too_old``, ``no_room``, ``refused``, ``shutdown``.
    rebuilt
        Producers replaced after a fatal error.
    payload_bytes
        Bytes of all messages, before compression.
    trouble
        What keeps messages from going out, in Kafka's words; empty while they go out.
    """

    def __init__(
        self,
        brokers: str,
        client_id: str,
        *,
        keep_ns: int,
        keep_bytes: int,
        make_producer: Callable[[dict[str, Any]], Any] = Producer,
        mono_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.delivered = 0
        self.dropped: Counter[str] = Counter()
        self.rebuilt = 0
        self.payload_bytes = 0
        self.trouble = ""
        self._keep_ns = keep_ns
        self._keep_bytes = keep_bytes
        self._make_producer = make_producer
        self._mono_ns = mono_ns
        self._config = producer_config(brokers, client_id, max(1, keep_ns // 1_000_000))
        self._backlog: dict[str, deque[_Message]] = {}
        self._backlog_bytes = 0
        self._waiting = 0  # messages in the backlog
        self._polls = 0
        self._in_flight: dict[int, _Message] = {}
        self._out: Counter[str] = Counter()  # of these, by topic
        self._number = 0
        self._fatal = False
        self._rebuild_ns = 0
        self._producer = self._build()

    def __len__(self) -> int:
        """Messages that are not acknowledged yet."""
        return self._waiting + len(self._in_flight)

    def publish(self, topic: Topic, key: str, record: Record) -> None:
        """Queue a record; it goes out with this or a later `poll`."""
        value = encode(record)
        message = _Message(self._number, topic.name, key, value, self._mono_ns())
        self._backlog.setdefault(topic.name, deque()).append(message)
        self._number += 1
        self._waiting += 1
        self._backlog_bytes += len(value)
        self.payload_bytes += len(value)

    def poll(self) -> None:
        """Move what can move: call once a tick."""
        self._polls += 1
        if self._in_flight or self._waiting or self._polls % IDLE_POLLS == 0:
            self._serve(0)
        if self._waiting:
            self._hand_over()
            self._pack()
            self._trim()

    def close(self, timeout_s: float) -> int:
        """Wait for the acknowledgements, `timeout_s` at most; return how many never came."""
        until = self._mono_ns() + int(timeout_s * 1e9)
        self.poll()
        while len(self) and self._mono_ns() < until:
            self._serve(FLUSH_STEP_S)
            self.poll()
        left = len(self)
        if left:
            self.dropped["shutdown"] += left
        old, self._producer = self._producer, None
        self._retire(old)
        return left

    def _serve(self, timeout_s: float) -> None:
        """Let the callbacks run, and replace a producer that has failed for good."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as e:  # that is how a fatal error arrives
            self._note(e.args[0])
        if self._fatal and self._mono_ns() >= self._rebuild_ns:
            self._rebuild()

    def _hand_over(self) -> None:
        """Give librdkafka what it has room for, in the order in which it was published."""
        held: set[str] = set()
        while queue := self._oldest(except_for=held):
            message = queue[0]
            if self.trouble and self._out[message.topic] >= TRIES:
                held.add(message.topic)
                continue
            try:
                self._producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    on_delivery=partial(self._on_delivery, self._producer, message),
                )
            except BufferError:
                return  # no room until something is acknowledged
            except KafkaException as e:
                if self._note(e.args[0]):
                    return
                self.dropped["refused"] += 1
            else:
                self._in_flight[message.number] = message
                self._out[message.topic] += 1
            self._pop(queue)

    def _oldest(self, except_for: Collection[str] = ()) -> deque[_Message] | None:
        """Return the topic's backlog that has the oldest message of all."""
        queues = [q for topic, q in self._backlog.items() if q and topic not in except_for]
        return min(queues, key=lambda q: q[0].number, default=None)

    def _pack(self) -> None:
        """Compress what came since the last time and has to wait."""
        for queue in self._backlog.values():
            for i in range(len(queue) - 1, -1, -1):
                message = queue[i]
                if message.packed:
                    break
                queue[i] = packed = message.pack()
                self._backlog_bytes += len(packed.data) - len(message.data)

    def _trim(self) -> None:
        """Drop what is too old, and the oldest while there is too much."""
        oldest_ns = self._mono_ns() - self._keep_ns
        for queue in self._backlog.values():
            while queue and queue[0].born_ns < oldest_ns:
                self._pop(queue)
                self.dropped["too_old"] += 1
        while self._backlog_bytes > self._keep_bytes and (oldest := self._oldest()):
            self._pop(oldest)
            self.dropped["no_room"] += 1

    def _pop(self, queue: deque[_Message]) -> None:
        self._backlog_bytes -= len(queue.popleft().data)
        self._waiting -= 1

    def _note(self, error: KafkaError) -> bool:
        """Remember an error; return whether the producer is of no use any more."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.trouble:
            self.trouble = in_short(error)  # the one that says why, where there is one
        self._fatal = self._fatal or error.fatal() or error.code() == KafkaError._FATAL
        return self._fatal

    def _on_delivery(
        self, producer: Any, message: _Message, error: KafkaError | None, _: object
    ) -> None:
        if producer is not self._producer:
            return  # of a producer that has been given up: its messages go out again
        if error is None:
            self.delivered += 1
            self.trouble = ""
        elif error.code() == KafkaError._MSG_TIMED_OUT:
            self.dropped["too_old"] += 1  # the trouble is why it waited, not that it did
        elif self._note(error):
            return  # stays in flight: `_rebuild` sends it again
        else:
            self.dropped["refused"] += 1
        del self._in_flight[message.number]
        self._out[message.topic] -= 1

    def _build(self) -> Any:
        return self._make_producer({**self._config, "error_cb": self._note})

    def _rebuild(self) -> None:
        """Replace the producer; what it had not delivered goes to the front of the backlog."""
        old = self._producer
        self._producer = self._build()
        self._retire(old)
        again = [*self._in_flight.values()]  # in the order in which they were handed over
        self._in_flight.clear()
        self._out.clear()
        for message in reversed(again):
            self._backlog.setdefault(message.topic, deque()).appendleft(message)
        self._waiting += len(again)
        self._backlog_bytes += sum(len(message.data) for message in again)
        self._fatal = False
        self._rebuild_ns = self._mono_ns() + REBUILD_NS
        self.rebuilt += 1

    @staticmethod
    def _retire(producer: Any) -> None:
        """Make a producer forget its messages, so that nothing waits for it to end."""
        producer.purge()
        with contextlib.suppress(KafkaException):  # its fatal error, once more
            producer.poll(0)
