"""What each host's values mean, read from the layouts topic in the background."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from schemas.codec import decode_as
from schemas.errors import InvalidRecord
from schemas.records import Channel, Layout
from schemas.topics import LAYOUTS


class Layouts:
    """Every layout seen, by host and fingerprint.

    Attributes
    ----------
    rejected
        Messages of the topic that were not layouts.
    """

    def __init__(self, layouts: Mapping[tuple[str, int], Layout] | None = None) -> None:
        self._layouts = dict(layouts or {})
        self.rejected = 0
        self._channels: dict[int, tuple[Channel, ...]] = {}

    def add(self, layout: Layout) -> None:
        """Remember a layout."""
        # Hosts of a kind have the same channels. A copy for each of a thousand hosts is a million
        # objects, and half a second in which the garbage collector looks through them.
        same = self._channels.setdefault(layout.fingerprint, layout.channels)
        if same is not layout.channels and same == layout.channels:
            layout = replace(layout, channels=same)
        self._layouts[layout.host, layout.fingerprint] = layout

    def get(self, host: str, fingerprint: int) -> Layout | None:
        """Return a layout, or None while it has not been seen."""
        return self._layouts.get((host, fingerprint))


class LayoutReader:
    """Follows the layouts topic from its beginning, outside of any consumer group.

    Every worker needs every layout, whichever partitions it has, so this is not the group's
    business.
    """

    def __init__(self, config: Mapping[str, Any], layouts: Layouts) -> None:
        self._layouts = layouts
        self._stop = threading.Event()
        self._consumer = Consumer(
            {**config, "group.id": "reveal-layouts", "enable.auto.commit": False}
        )
        self._thread = threading.Thread(target=self._run, name="layouts", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._consumer.assign(
            [TopicPartition(LAYOUTS.name, p, OFFSET_BEGINNING) for p in range(LAYOUTS.partitions)]
        )
        self._thread.start()

    def stop(self) -> None:
        """End the reading and close the connection."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error():
                continue  # librdkafka reconnects by itself
            try:
                self._layouts.add(decode_as(Layout, message.value() or b""))
            except InvalidRecord:
                self._layouts.rejected += 1
