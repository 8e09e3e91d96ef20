"""Records that several tests need."""

from __future__ import annotations

import dataclasses
from typing import Any

from schemas.records import (
    Anomaly,
    BlamedChannel,
    DetectorScore,
    EpisodeState,
    Score,
    State,
    Subsystem,
    SubsystemShare,
)

SECOND = 1_000_000
T0 = 1_790_000_000 * SECOND

CHANNELS = (
    BlamedChannel(
        "storage.write", "sda", Subsystem.STORAGE, "bytes/s", 1.9e9, 0.0, 12e6, 31.0, 0.5
    ),
    BlamedChannel("cpu.user", "cpu3", Subsystem.CPU, "percent", 98.0, 0.0, 12.0, 20.0, 0.3),
    BlamedChannel("memory.dirty", "", Subsystem.MEMORY, "bytes", 3.1e9, 1e6, 2e7, 9.0, 0.1),
    BlamedChannel("cpu.forks", "", Subsystem.CPU, "1/s", 4000.0, 1.0, 20.0, 5.0, 0.1),
)


def score(host: str = "node01", end: int = T0, **changes: Any) -> Score:
    return dataclasses.replace(
        Score(host, 1, end, 30, 30, 5, State.ACTIVE, "", 1.0, (), 0.1, flagged=False), **changes
    )


def odd(*detectors: str) -> tuple[DetectorScore, ...]:
    return tuple(DetectorScore(name, 9.0, 0.001, flagged=True) for name in detectors)


def anomaly(
    host: str = "node01",
    onset: int = T0,
    lasted_s: int = 3,
    state: EpisodeState = EpisodeState.OPEN,
    **changes: Any,
) -> Anomaly:
    shares = (
        SubsystemShare(Subsystem.STORAGE, 0.81),
        SubsystemShare(Subsystem.CPU, 0.188),
        SubsystemShare(Subsystem.NETWORK, 0.002),
    )
    return dataclasses.replace(
        Anomaly(
            id=f"{host}:{onset}",
            host=host,
            layout=1,
            onset=onset,
            latest=onset + lasted_s * SECOND,
            state=state,
            severity=8.42,
            windows=lasted_s,
            flagged=3,
            detectors=("z", "forest"),
            subsystems=shares,
            channels=CHANNELS,
        ),
        **changes,
    )
