"""Records to Kafka: in order, bounded, and never in the way of sampling.

Messages wait in a backlog of our own and are handed to librdkafka a few at a time. While the
broker is away the backlog keeps the newest minutes and drops, counted, the oldest; when it comes
back everything kept goes out in order. librdkafka alone would keep the oldest and refuse the
newest when its queue is full; so it is given a few messages of each topic at a time, and two to
try with while nothing gets through. Each topic has its own share: one whose partition has no
leader, said or not, holds up no other.

How old can what arrives be? Nothing is handed over that is older than what is kept (``keep_ns``),
and librdkafka gives up after as long again, for it has no time limit of a single message. So what
is delivered is never older than twice ``keep_ns``; and what is older than ``keep_ns`` is no more
than librdkafka held of a topic at once: `TRIES`, or `IN_FLIGHT_MESSAGES` where nobody said that
there is trouble. To take these back would cost the order, or a record within ``keep_ns``.

What has to wait is compressed, to a third or less. A fatal producer error costs nothing but the
producer: what was not acknowledged is sent again by a new one (a reader may see such a record
twice).
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from producers.backlog import Backlog, Lane, Message
from schemas.codec import encode
from schemas.records import Record
from schemas.topics import Topic

IN_FLIGHT_MESSAGES = 32
"""What librdkafka is given of a topic at a time. At ten ticks a second, 320 seconds are caught up
in one."""
TRIES = 2
"""What it is given of a topic while nothing gets through: the rest is kept here, and the newest of
it."""
QUEUE_MESSAGES = 32 * IN_FLIGHT_MESSAGES
"""What it takes of all topics: more than we give it, so that none finds it full of others."""
IN_FLIGHT_KBYTES = 16 * 1024
MESSAGE_BYTES = 8 * 1024 * 1024
IDLE_POLLS = 10
"""While nothing is on its way, librdkafka is asked what is new at every tenth poll."""
FLUSH_STEP_S = 0.05
REASONS = ("too_old", "no_room", "refused", "shutdown")
"""Why messages are given up."""
STALL_NS = 10_000_000_000
"""A topic whose messages are on their way for so long is in trouble, although nothing says so."""
REBUILD_NS = 5_000_000_000
"""At least so long between two producers: what is fatal can be so again at once."""

_CONNECTION = re.compile(r"^\S+/(?:bootstrap|\d+): ")
_STATE = re.compile(r" \(after \d+ms in state \w+.*\)$")


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
        "queue.buffering.max.messages": QUEUE_MESSAGES,
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
        self._keep_ns = keep_ns
        self._keep_bytes = keep_bytes
        self._make_producer = make_producer
        self._mono_ns = mono_ns
        self._config = producer_config(brokers, client_id, max(1, keep_ns // 1_000_000))
        self._backlog = Backlog()
        self._trouble = ""  # of no single topic
        self._polls = 0
        self._number = 0
        self._fatal = False
        self._rebuild_ns = 0
        self._producer = self._build()

    def __len__(self) -> int:
        """Messages that are not acknowledged yet."""
        return self._backlog.waiting + self._backlog.out

    @property
    def trouble(self) -> str:
        """What keeps messages from going out, in Kafka's words; empty while all topics go out."""
        return self._trouble or next((x.trouble for x in self._backlog.lanes if x.trouble), "")

    def publish(self, topic: Topic, key: str, record: Record) -> None:
        """Queue a record; it goes out with this or a later `poll`."""
        value = encode(record)
        self._backlog.add(Message(self._number, topic.name, key, value, self._mono_ns()))
        self._number += 1
        self.payload_bytes += len(value)

    def poll(self) -> None:
        """Move what can move: call once a tick."""
        self._polls += 1
        backlog = self._backlog
        if backlog.out or backlog.waiting or self._polls % IDLE_POLLS == 0:
            self._serve(0)
        if backlog.out:
            self._look_for_stalls()
        if backlog.waiting:
            self._drop("too_old", backlog.drop_old(self._mono_ns() - self._keep_ns))
            self._hand_over()
            backlog.pack()
            self._drop("no_room", backlog.make_room(self._keep_bytes))

    def close(self, timeout_s: float) -> int:
        """Wait for the acknowledgements, `timeout_s` at most; return how many never came."""
        until = self._mono_ns() + int(timeout_s * 1e9)
        self.poll()
        while len(self) and self._mono_ns() < until:
            self._serve(FLUSH_STEP_S)
            self.poll()
        left = len(self)
        self._drop("shutdown", left)
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

    def _look_for_stalls(self) -> None:
        """Notice topics that nobody acknowledges: a partition without a leader is no error."""
        stalled_ns = self._mono_ns() - STALL_NS
        for lane in self._backlog.lanes:
            since_ns = lane.out_since()
            if since_ns is not None and since_ns <= stalled_ns and not lane.trouble:
                lane.trouble = f"no broker acknowledges {lane.topic}"

    def _hand_over(self) -> None:
        """Give librdkafka what it has room for, in the order in which it was published."""
        held: list[Lane] = []
        while lane := self._backlog.oldest(except_for=held):
            most = TRIES if self._trouble or lane.trouble else IN_FLIGHT_MESSAGES
            if len(lane.out) >= most:
                held.append(lane)
                continue
            message = lane.waiting[0]
            try:
                self._producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    on_delivery=partial(self._on_delivery, self._producer, message),
                )
            except BufferError:  # no room until something is acknowledged; for a smaller one, maybe
                held.append(lane)
            except KafkaException as e:
                if self._refused(lane, e.args[0]):
                    return
                self._backlog.pop(lane)
                self._drop("refused")
            else:
                self._backlog.leave(lane, self._mono_ns())

    def _drop(self, reason: str, count: int = 1) -> None:
        if count:
            self.dropped[reason] += count

    def _note(self, error: KafkaError) -> None:
        """Remember an error of the producer, or of all its connections."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._trouble:
            self._trouble = in_short(error)  # the one that says why, where there is one
        self._fatal = self._fatal or error.fatal() or error.code() == KafkaError._FATAL

    def _refused(self, lane: Lane, error: KafkaError) -> bool:
        """Remember why a message was not taken; return whether it was the producer's fault."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._note(error)
        else:
            lane.trouble = f"{lane.topic}: {in_short(error)}"
        return self._fatal

    def _on_delivery(
        self, producer: Any, message: Message, error: KafkaError | None, _: object
    ) -> None:
        if producer is not self._producer:
            return  # of a producer that has been given up: its messages go out again
        lane = self._backlog.lane(message.topic)
        if error is None:
            self.delivered += 1
            self._trouble = lane.trouble = ""
        elif error.code() == KafkaError._MSG_TIMED_OUT:
            self._drop("too_old")  # the trouble is why it waited, not that it did
        elif self._refused(lane, error):
            return  # stays on its way: `_rebuild` sends it again
        else:
            self._drop("refused")
        self._backlog.end(message)

    def _build(self) -> Any:
        return self._make_producer({**self._config, "error_cb": self._note})

    def _rebuild(self) -> None:
        """Replace the producer; what it had not delivered goes to the front of the backlog."""
        old = self._producer
        self._producer = self._build()
        self._retire(old)
        self._backlog.call_back()
        self._fatal = False
        self._rebuild_ns = self._mono_ns() + REBUILD_NS
        self.rebuilt += 1

    @staticmethod
    def _retire(producer: Any) -> None:
        """Make a producer forget its messages, so that nothing waits for it to end."""
        producer.purge()
        with contextlib.suppress(KafkaException):  # its fatal error, once more
            producer.poll(0)
