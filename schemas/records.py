"""The records that travel between the parts, one class per schema in this folder.

Times are integers, microseconds since the epoch. Arrays are NumPy arrays that nobody may
write to: they can be views of the message they came in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Longs: TypeAlias = NDArray[np.int64]


class Subsystem(StrEnum):
    """Part of a host that a channel speaks of."""

    CPU = "cpu"
    GPU = "gpu"
    MEMORY = "memory"
    NETWORK = "network"
    STORAGE = "storage"
    AGENT = "agent"
    """What the agent says of itself: recorded, never scored."""


class Kind(StrEnum):
    """Whether a value is a level or the speed at which a counter moves (per second)."""

    GAUGE = "gauge"
    RATE = "rate"


class State(StrEnum):
    """What a score can say of its window."""

    LEARNING = "learning"
    ACTIVE = "active"
    ABSTAINED = "abstained"
    DRIFTING = "drifting"
    """Scored, but the host moves away from its baseline."""
    RELEARNING = "relearning"
    """The workload changed: what is normal now is being learned."""


class Level(StrEnum):
    """Severity of an episode in a word, the least first."""

    MINOR = "minor"
    MAJOR = "major"
    CRITICAL = "critical"


class EpisodeState(StrEnum):
    """Life of an episode."""

    OPEN = "open"
    ONGOING = "ongoing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Channel:
    """One value of every tick. `device` is empty where the metric is the whole host's."""

    metric: str
    device: str
    subsystem: Subsystem
    unit: str
    kind: Kind

    @property
    def label(self) -> str:
        """The name that people read, for example ``cpu.user[cpu3]``."""
        return f"{self.metric}[{self.device}]" if self.device else self.metric


@dataclass(frozen=True, slots=True)
class Layout:
    """What each value of a host's telemetry means."""

    host: str
    fingerprint: int
    agent_version: str
    boot_id: str
    interval_us: int
    channels: tuple[Channel, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """Consecutive ticks of one host.

    `timestamps` has shape ``(ticks,)``; `values` has shape ``(channels, ticks)``,
    NaN where a value was not available.
    """

    host: str
    layout: int
    seq: int
    interval_us: int
    timestamps: Longs
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What one window looked like. `values` has shape ``(features * channels,)``, feature-major."""

    host: str
    layout: int
    start: int
    end: int
    samples: int
    expected: int
    values: Floats


@dataclass(frozen=True, slots=True)
class DetectorScore:
    """One detector's word on a window."""

    detector: str
    score: float
    p_value: float
    flagged: bool


@dataclass(frozen=True, slots=True)
class Score:
    """How odd one window is."""

    host: str
    layout: int
    end: int
    samples: int
    expected: int
    baseline: int
    state: State
    reason: str
    progress: float
    detectors: tuple[DetectorScore, ...]
    fused: float
    flagged: bool


@dataclass(frozen=True, slots=True)
class SubsystemShare:
    """How much of a deviation one subsystem carries."""

    subsystem: Subsystem
    share: float


@dataclass(frozen=True, slots=True)
class BlamedChannel:
    """A channel that contributes to an episode, in its own unit."""

    metric: str
    device: str
    subsystem: Subsystem
    unit: str
    value: float
    expected_low: float
    expected_high: float
    deviation: float
    share: float
    statistic: str = "mean"
    stands_for: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name that people read, for example ``cpu.user[cpu3]``."""
        return f"{self.metric}[{self.device}]" if self.device else self.metric


@dataclass(frozen=True, slots=True)
class Remedy:
    """A command that shows or mends a cause, as typed on the host."""

    command: str
    changes_host: bool


@dataclass(frozen=True, slots=True)
class Cause:
    """What is likely to be behind an episode: what speaks for it, and what to do."""

    rule: str
    summary: str
    confidence: float
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One episode of one host, as it stood after window `latest`."""

    id: str
    host: str
    layout: int
    onset: int
    latest: int
    state: EpisodeState
    severity: float
    windows: int
    flagged: int
    detectors: tuple[str, ...]
    subsystems: tuple[SubsystemShare, ...]
    channels: tuple[BlamedChannel, ...]
    level: Level = Level.MAJOR
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """What is normal on one host under one layout, or part `part` of the `parts` of it.

    `low` and `high`, shape ``(channels,)``, are where each channel usually is, in its unit; only
    part 0 has them. `data` is a piece of what `models.archive` writes.
    """

    host: str
    layout: int
    version: int
    windows: int
    note: str
    low: Floats
    high: Floats
    part: int
    parts: int
    data: bytes


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be read."""

    topic: str
    partition: int
    offset: int
    reason: str
    data: bytes


Record: TypeAlias = Layout | Telemetry | Features | Score | Anomaly | Baseline | DeadLetter


def layout_fingerprint(channels: Sequence[Channel], interval_us: int) -> int:
    """Return the signed 64-bit name of a set of channels, the same on every host and release."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(str(interval_us).encode())
    for c in channels:
        digest.update(f"\n{c.metric}\t{c.device}\t{c.subsystem}\t{c.unit}\t{c.kind}".encode())
    return int.from_bytes(digest.digest(), "little", signed=True)
