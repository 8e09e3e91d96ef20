"""Messages that have not arrived yet, by topic: those that wait, and those that are on their way.

Within a topic order stays. Between topics the oldest goes first, and nothing of one is held up by
another's trouble.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace

PACK_LEVEL = 1
"""Of zlib, which every Python has: 0.3 ms for a second of 700 channels, and higher gains little."""


@dataclass(frozen=True, slots=True)
class Message:
    """`data` is the message, or with `packed` the same compressed. `number` counts all of them."""

    number: int
    topic: str
    key: str
    data: bytes
    born_ns: int
    packed: bool = False

    @property
    def value(self) -> bytes:
        """The message as it is sent."""
        return zlib.decompress(self.data) if self.packed else self.data

    def pack(self) -> Message:
        """Return it compressed."""
        return replace(self, data=zlib.compress(self.data, PACK_LEVEL), packed=True)


@dataclass(slots=True, eq=False)
class Lane:
    """What one topic has.

    Attributes
    ----------
    waiting
        Oldest first.
    out
        On their way, by number, with the time at which they left; in that order.
    trouble
        Why nothing of it gets through; empty while it does.
    """

    topic: str
    waiting: deque[Message] = field(default_factory=deque)
    out: dict[int, tuple[Message, int]] = field(default_factory=dict)
    trouble: str = ""

    def out_since(self) -> int | None:
        """Return when the first left of those that are on their way."""
        return next(iter(self.out.values()))[1] if self.out else None


class Backlog:
    """The lanes of all topics.

    Attributes
    ----------
    waiting, out
        Messages in all lanes.
    waiting_bytes
        What those that wait take in memory.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.waiting_bytes = 0
        self.out = 0
        self._lanes: dict[str, Lane] = {}

    def lane(self, topic: str) -> Lane:
        """Return the lane of a topic."""
        found = self._lanes.get(topic)
        if found is None:
            found = self._lanes[topic] = Lane(topic)
        return found

    @property
    def lanes(self) -> Collection[Lane]:
        """All of them."""
        return self._lanes.values()

    def add(self, message: Message) -> None:
        """Let a new message wait."""
        self.lane(message.topic).waiting.append(message)
        self.waiting += 1
        self.waiting_bytes += len(message.data)

    def oldest(self, except_for: Collection[Lane] = ()) -> Lane | None:
        """Return the lane of the oldest message that waits."""
        lanes = [lane for lane in self.lanes if lane.waiting and lane not in except_for]
        return min(lanes, key=lambda lane: lane.waiting[0].number, default=None)

    def pop(self, lane: Lane) -> Message:
        """Take out the oldest that waits in a lane."""
        message = lane.waiting.popleft()
        self.waiting -= 1
        self.waiting_bytes -= len(message.data)
        return message

    def leave(self, lane: Lane, mono_ns: int) -> None:
        """Send the oldest that waits in a lane on its way."""
        message = self.pop(lane)
        lane.out[message.number] = message, mono_ns
        self.out += 1

    def end(self, message: Message) -> None:
        """Forget one that was on its way."""
        del self.lane(message.topic).out[message.number]
        self.out -= 1

    def call_back(self) -> None:
        """Let all that are on their way wait again, before all others of their topics."""
        for lane in self.lanes:
            messages = [message for message, _ in lane.out.values()]
            lane.out.clear()
            lane.waiting.extendleft(reversed(messages))
            self.waiting += len(messages)
            self.waiting_bytes += sum(len(message.data) for message in messages)
        self.out = 0

    def pack(self) -> None:
        """Compress what came since the last time, and still waits."""
        for lane in self.lanes:
            for i in range(len(lane.waiting) - 1, -1, -1):
                message = lane.waiting[i]
                if message.packed:
                    break
                lane.waiting[i] = packed = message.pack()
                self.waiting_bytes += len(packed.data) - len(message.data)

    def drop_old(self, born_ns: int) -> int:
        """Drop those that wait and were made before `born_ns`; return how many."""
        before = self.waiting
        for lane in self.lanes:
            while lane.waiting and lane.waiting[0].born_ns < born_ns:
                self.pop(lane)
        return before - self.waiting

    def make_room(self, most_bytes: int) -> int:
        """Drop the oldest that wait until the rest takes no more; return how many."""
        before = self.waiting
        while self.waiting_bytes > most_bytes and (lane := self.oldest()):
            self.pop(lane)
        return before - self.waiting
