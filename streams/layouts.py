"""What each host's values mean, read from the layouts topic in the background."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from schemas.codec import decode_as
from schemas.errors import InvalidRecord
from schemas.records import Channel, Layout
from schemas.topics import LAYOUTS

KEPT = 4
"""Layouts remembered of each host: its devices come and go, and each time it gets another."""


class Layouts:
    """The newest layouts of every host, by fingerprint.

    Attributes
    ----------
    rejected
        Messages of the topic that were not layouts.
    """

    def __init__(self) -> None:
        self._layouts: dict[str, dict[int, Layout]] = {}
        self.rejected = 0
        self._channels: dict[int, tuple[Channel, ...]] = {}

    def add(self, layout: Layout) -> None:
        """Remember a layout."""
        # Hosts of a kind have the same channels. A copy for each of a thousand hosts is a million
        # objects, and half a second in which the garbage collector looks through them.
        same = self._channels.setdefault(layout.fingerprint, layout.channels)
        if same is not layout.channels and same == layout.channels:
            layout = replace(layout, channels=same)
        known = self._layouts.setdefault(layout.host, {})
        known.pop(layout.fingerprint, None)
        known[layout.fingerprint] = layout
        while len(known) > KEPT:
            del known[next(iter(known))]

    def get(self, host: str, fingerprint: int) -> Layout | None:
        """Return a layout, or None while it has not been seen."""
        return self._layouts.get(host, {}).get(fingerprint)


class LayoutReader:
    """Follows the layouts topic from its beginning, outside of any consumer group.

    Every worker needs every layout, whichever partitions it has, so this is not the group's
    business.
    """

    def __init__(self, config: Mapping[str, Any], layouts: Layouts) -> None:
        self._layouts = layouts
        self._consumer = Consumer(
            {
                **config,
                "group.id": "reveal-layouts",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        self._unread = set(range(LAYOUTS.partitions))
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="layouts", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._consumer.assign(
            [TopicPartition(LAYOUTS.name, p, OFFSET_BEGINNING) for p in range(LAYOUTS.partitions)]
        )
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until what was in the topic has been read, or it is not there; return whether."""
        return self._caught_up.wait(timeout_s)

    def _run(self) -> None:
        while True:  # a daemon thread: it ends with the process
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            if error is not None:  # librdkafka reconnects by itself
                if error.code() == KafkaError._PARTITION_EOF and partition is not None:
                    self._unread.discard(partition)
                if not self._unread or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._caught_up.set()
                continue
            try:
                self._layouts.add(decode_as(Layout, message.value() or b""))
            except InvalidRecord:
                self._layouts.rejected += 1
