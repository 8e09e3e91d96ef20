"""Ticks to records: the ticks of one second travel together.

A record is cut when it is full, where a second ends (a window closes there, so packing adds no
delay), when the layout changes and when time goes back. Values are written straight into one
array that is kept, channel-major as they travel, and rounded when the record is cut.
"""

from __future__ import annotations

import numpy as np

from producers.precision import rate_rows, rounded
from schemas.records import Floats, Layout, Telemetry

SECOND_US = 1_000_000


class Packer:
    """Packs one host's ticks. `seq` is the number of the next record."""

    def __init__(self, ticks_per_record: int) -> None:
        if ticks_per_record < 1:
            raise ValueError(f"{ticks_per_record} ticks in a record")
        self.ticks_per_record = ticks_per_record
        self.seq = 0
        self._layout: Layout | None = None
        self._values = np.empty((0, ticks_per_record), np.float32)
        self._rates = np.empty((0, 1), np.bool_)
        self._timestamps = np.zeros(ticks_per_record, np.int64)
        self._count = 0

    def __len__(self) -> int:
        """Ticks that wait for their record to be cut."""
        return self._count

    def add(self, timestamp_us: int, layout: Layout, values: Floats) -> tuple[Telemetry, ...]:
        """Take in one tick; return the records that it cuts, oldest first.

        Parameters
        ----------
        timestamp_us
            Grid time of the tick.
        layout, values
            What was sampled; `values` has shape ``(channels,)`` and is copied.
        """
        done: tuple[Telemetry, ...] = ()
        if self._count:
            newest = int(self._timestamps[self._count - 1])
            if (
                layout is not self._layout
                or timestamp_us <= newest
                or timestamp_us // SECOND_US != newest // SECOND_US
            ):
                done = self.flush()
        if layout is not self._layout:
            self._layout = layout
            self._values = np.empty((len(layout.channels), self.ticks_per_record), np.float32)
            self._rates = rate_rows(layout)
        self._values[:, self._count] = values
        self._timestamps[self._count] = timestamp_us
        self._count += 1
        second_ends = (timestamp_us + layout.interval_us) // SECOND_US != timestamp_us // SECOND_US
        if second_ends or self._count == self.ticks_per_record:
            done += self.flush()
        return done

    def flush(self) -> tuple[Telemetry, ...]:
        """Cut the record now; nothing when it is empty."""
        if self._layout is None or not self._count:
            return ()
        count, self._count = self._count, 0
        record = Telemetry(
            host=self._layout.host,
            layout=self._layout.fingerprint,
            seq=self.seq,
            interval_us=self._layout.interval_us,
            timestamps=self._timestamps[:count].copy(),
            values=rounded(self._values[:, :count], self._rates),
        )
        self.seq += 1
        return (record,)
