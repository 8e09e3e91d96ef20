"""Recordings made for a test: steady hosts, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from schemas.codec import encode
from schemas.records import Channel, Kind, Layout, Subsystem, Telemetry, layout_fingerprint
from streams.recording import ContainerWriter

START_S = 1_800_000_000
"""When every recording begins, seconds since the epoch."""
SECOND_US = 1_000_000
CHANNELS = tuple(
    Channel(f"{name}.load", str(i), name, "%", Kind.RATE)
    for name in (Subsystem.CPU, Subsystem.NETWORK)
    for i in range(6)
)


def record(
    path: Path,
    seconds: int,
    faults: Mapping[str, Sequence[tuple[float, float, Subsystem]]],
    channels: tuple[Channel, ...] = CHANNELS,
    height: float = 60.0,
) -> Path:
    """Write ticks of hosts at 10 Hz, noise about 20, and `height` more in a subsystem's faults.

    `faults` has begin and end of each in seconds from `START_S`, by host.
    """
    random = np.random.default_rng(7)
    with ContainerWriter(path) as writer:
        for host, spells in faults.items():
            name = layout_fingerprint(channels, SECOND_US // 10)
            layout = Layout(host, name, "", "", SECOND_US // 10, channels)
            writer.add(Layout, encode(layout))
            for second in range(seconds):
                at = second + np.arange(10) / 10
                values = 20 + random.normal(size=(len(channels), 10))
                for begin, end, subsystem in spells:
                    rows = np.array([c.subsystem is subsystem for c in channels])
                    values[np.ix_(rows, (at >= begin) & (at < end))] += height
                stamps = ((START_S + second) * 10 + np.arange(10, dtype=np.int64)) * 100_000
                ticks = values.astype(np.float32)
                telemetry = Telemetry(host, name, second, layout.interval_us, stamps, ticks)
                writer.add(Telemetry, encode(telemetry))
    return path


def label(
    fault: str, begin: float, end: float, subsystem: str, **more: object
) -> dict[str, object]:
    """Return a label in seconds from `START_S`."""
    return {
        "fault": fault,
        "subsystem": subsystem,
        "start_ns": int((START_S + begin) * 1e9),
        "end_ns": int((START_S + end) * 1e9),
        **more,
    }
