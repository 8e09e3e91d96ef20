"""Messages of the telemetry and layouts topics to a recording that can be replayed.

A recording has each layout before the telemetry that needs it. The two come on different topics,
so a host whose layout has not been read yet waits a little.
"""

from __future__ import annotations

from collections import Counter

from schemas.codec import decode
from schemas.errors import InvalidRecord
from schemas.records import Layout, Telemetry
from streams.recording import ContainerWriter

WAITING_RECORDS = 64
"""So many records of a host wait for its layout; then they are written without."""

Key = tuple[str, int]
"""Host and layout fingerprint."""


class Recorder:
    """Puts messages into a recording, in an order that can be replayed.

    Attributes
    ----------
    records
        Telemetry records of each host, written.
    layouts
        Layouts written.
    rejected
        Messages that are neither, and in `reason` what the last one was.
    missing
        Hosts and layouts that telemetry speaks of and that have not been seen.
    """

    def __init__(self, writer: ContainerWriter) -> None:
        self.records: Counter[str] = Counter()
        self.layouts = 0
        self.rejected = 0
        self.reason = ""
        self.missing: set[Key] = set()
        self._writer = writer
        self._known: dict[Key, bytes] = {}
        self._written: set[Key] = set()
        self._waiting: dict[str, list[tuple[Key, bytes]]] = {}

    def add(self, message: bytes) -> None:
        """Take in a message of either topic."""
        try:
            record = decode(message)
        except InvalidRecord as e:
            self._reject(str(e))
            return
        if isinstance(record, Layout):
            self._add_layout((record.host, record.fingerprint), message)
        elif isinstance(record, Telemetry):
            self._add_telemetry((record.host, record.layout), message)
        else:
            self._reject(f"{type(record).__name__} is neither telemetry nor a layout")

    def finish(self) -> None:
        """Write what still waits, without its layout."""
        for host in list(self._waiting):
            self._give_up(host)

    def _reject(self, reason: str) -> None:
        self.rejected += 1
        self.reason = reason

    def _add_layout(self, key: Key, message: bytes) -> None:
        self._known[key] = message
        if key in self.missing:
            self._has_layout(key)
        waiting = self._waiting.pop(key[0], [])
        for at, (needed, data) in enumerate(waiting):
            if not self._has_layout(needed):
                self._waiting[key[0]] = waiting[at:]
                break
            self._write(needed, data)

    def _add_telemetry(self, key: Key, message: bytes) -> None:
        waiting = self._waiting.get(key[0])
        if waiting is None:
            if self._has_layout(key) or key in self.missing:
                self._write(key, message)
                return
            waiting = self._waiting[key[0]] = []
        waiting.append((key, message))
        if len(waiting) >= WAITING_RECORDS:
            self._give_up(key[0])

    def _give_up(self, host: str) -> None:
        for key, data in self._waiting.pop(host):
            if not self._has_layout(key):
                self.missing.add(key)
            self._write(key, data)

    def _has_layout(self, key: Key) -> bool:
        """Return whether the layout is in the recording; write it if it is known."""
        if key in self._written:
            return True
        if key not in self._known:
            return False
        self._writer.add(Layout, self._known[key])
        self._written.add(key)
        self.missing.discard(key)
        self.layouts += 1
        return True

    def _write(self, key: Key, message: bytes) -> None:
        self._writer.add(Telemetry, message)
        self.records[key[0]] += 1
