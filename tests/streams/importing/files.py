"""Files to import, and what a recording of them holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from schemas.records import Channel, Floats, Layout, Longs, Telemetry
from streams.importing.parts import Read, same_host
from streams.importing.recordings import Written, free_paths, write_host
from streams.recording import Container, Recording

START_S = 1_700_000_000
START_US = START_S * 1_000_000
INTERVAL_US = 100_000


@dataclass(frozen=True)
class Host:
    """A recording: times in microseconds, and values of shape ``(channels, times)``."""

    layout: Layout
    records: list[Telemetry]
    stamps: Longs
    values: Floats

    @property
    def ticks(self) -> list[int]:
        """Numbers of the ticks since `START_S`."""
        return [(us - START_US) // self.layout.interval_us for us in self.stamps.tolist()]

    def of(self, label: str) -> list[float]:
        """The values of a channel."""
        values: list[float] = self.values[self.labels.index(label)].tolist()
        return values

    def channel(self, label: str) -> Channel:
        return self.layout.channels[self.labels.index(label)]

    @property
    def labels(self) -> list[str]:
        return [channel.label for channel in self.layout.channels]


def recorded(path: Path) -> Host:
    """Read a recording of one host."""
    records = [record for record, _ in Recording(Container(path))]
    layout = records[0]
    assert isinstance(layout, Layout)
    telemetry = [r for r in records if isinstance(r, Telemetry)]
    assert len(telemetry) == len(records) - 1
    for seq, record in enumerate(telemetry):
        assert (record.host, record.layout) == (layout.host, layout.fingerprint)
        assert record.seq == seq
        assert record.values.shape == (len(layout.channels), len(record.timestamps))
        seconds = {us // 1_000_000 for us in record.timestamps.tolist()}
        assert len(seconds) == 1, "a record holds ticks of one second"
    stamps = np.concatenate([r.timestamps for r in telemetry])
    assert (np.diff(stamps) > 0).all()
    values = np.concatenate([r.values for r in telemetry], axis=1)
    return Host(layout, telemetry, stamps, values)


def written(
    reads: Iterable[Read], directory: Path, wanted_ms: int | None = None
) -> dict[str, tuple[Written, Host]]:
    """Write what was read, and read it back."""
    reads = list(reads)
    hosts = same_host([part for read in reads for part in read.parts])
    paths = free_paths(directory, list(hosts), force=True)
    try:
        done = {
            host: write_host(host, parts, paths[host], wanted_ms=wanted_ms, force=True)
            for host, parts in hosts.items()
        }
    finally:
        for read in reads:
            read.close()
    return {host: (one, recorded(one.path)) for host, one in done.items()}


def table(
    path: Path, names: Sequence[str], rows: Iterable[Sequence[object]], separator: str = ","
) -> Path:
    """Write a file of the paper's kind."""
    lines = [separator.join(["timestamp", *names])]
    lines += [separator.join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
