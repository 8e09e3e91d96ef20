"""Stand-ins for what a test must control: time, and a broker that does as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException


class FakeClock:
    """A clock that moves only when it is waited for, told to, or stepped.

    `oversleep_ns` is added to every wait; `on_wait` runs in the middle of each, with the number
    of waits so far, and may move the clock itself. It asks to stop after `waits` waits.
    """

    def __init__(self, wall_ns: int, *, mono_ns: int = 7_000_000_000, waits: int = 10**9) -> None:
        self.wall = wall_ns
        self.mono = mono_ns
        self.waits_left = waits
        self.waits = 0
        self.oversleep_ns = 0
        self.on_wait: Callable[[int], None] = lambda _: None

    def wall_ns(self) -> int:
        return self.wall

    def mono_ns(self) -> int:
        return self.mono

    def wait_until(self, mono_ns: int) -> bool:
        if self.waits_left == 0:
            return False
        self.waits_left -= 1
        self.waits += 1
        self.on_wait(self.waits)
        self.run(max(0, mono_ns - self.mono) + self.oversleep_ns)
        return True

    def run(self, ns: int) -> None:
        """Let time pass."""
        self.wall += ns
        self.mono += ns

    def step(self, ns: int) -> None:
        """Set the wall clock."""
        self.wall += ns


class FakeProducer:
    """A broker that acknowledges when it is told to, or, `obliging`, with the next poll."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.room = 4
        self.waiting: list[tuple[bytes, Callable[[KafkaError | None, None], None]]] = []
        self.took: list[bytes] = []
        self.given: list[tuple[str, bytes]] = []
        self.obliging = False
        self.purged = False
        self.raises: KafkaException | None = None

    def produce(self, topic: str, value: bytes, _key: str, on_delivery: Any) -> None:
        if self.raises is not None:
            raise self.raises
        if len(self.waiting) == self.room:
            raise BufferError("Local: Queue full")
        self.given.append((topic, value))
        self.waiting.append((value, on_delivery))

    def acknowledge(self, count: int, error: KafkaError | None = None) -> None:
        done, self.waiting = self.waiting[:count], self.waiting[count:]
        for value, callback in done:
            if error is None:
                self.took.append(value)
            callback(error, None)

    def poll(self, _timeout_s: float) -> int:
        if self.obliging:
            self.acknowledge(len(self.waiting))
        return 0

    def purge(self) -> None:
        self.purged = True
        self.acknowledge(len(self.waiting), KafkaError(KafkaError._PURGE_QUEUE))
