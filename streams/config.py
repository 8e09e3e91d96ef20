"""Settings of the worker."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from models.mode import Mode
from schemas.records import Subsystem
from schemas.settings import Section

LEAST_WINDOWS = 30
"""Windows that a baseline needs (`models.baseline`)."""


class WorkerSettings(Section):
    """What a worker computes and how it reads."""

    window_ms: int = Field(3000, gt=0, description="length of a window, milliseconds")
    stride_ms: int = Field(1000, gt=0, description="time between windows, milliseconds")
    lateness_ms: int = Field(
        1000, ge=0, description="how long a missing tick is waited for, milliseconds"
    )
    silence_s: float = Field(
        30.0,
        gt=0,
        description="a host unheard of for so long no longer holds back its partition, seconds",
    )
    min_share: float = Field(
        0.3,
        gt=0,
        le=1,
        description="share of its ticks that a window needs to be scored; to be learned from it "
        "needs 0.8",
    )
    baseline_seconds: int = Field(
        600, ge=30, description="how long a host is watched before it is judged, seconds"
    )
    baseline_limit: float = Field(
        3.0,
        ge=1,
        description="learning goes on while a host does new things, up to so many times "
        "baseline_seconds; 1 is never",
    )
    drift_seconds: int = Field(
        600,
        ge=0,
        description="a baseline is renewed when windows have been unusual, though not odd, for "
        "about so long, seconds; 0 is never",
    )
    workload_seconds: int = Field(
        120,
        ge=0,
        description="a steady change of all subsystems that lasts so long is another workload, "
        "which is learned anew, seconds; 0 is never",
    )
    keep_baselines: bool = Field(
        True, description="keep baselines on their topic, so that a worker's end loses none"
    )
    load_seconds: float = Field(
        30.0,
        gt=0,
        description="how long a worker waits at most for the baselines of partitions that it "
        "gets, seconds",
    )
    mode: Mode = Field(
        Mode.DEFAULT, description="detectors: our own (default), or the paper's pipeline (paper)"
    )
    false_alarms_per_day: float = Field(
        0.5,
        gt=0,
        le=1000,
        description="episodes without a cause that a host may open in a day",
    )
    prune: float | None = Field(
        None,
        gt=0,
        description="correlation from which on one channel stands for another; above 1 none does; "
        "0.5 in the paper's mode and none otherwise, unless it is given",
    )
    sensitivity: dict[str, float] = Field(
        default_factory=dict,
        description="by subsystem: 2 halves the threshold where that is the oddest, 0.5 doubles it",
    )
    seed: int = Field(0, ge=0, description="seed of the Isolation Forests")
    publish_features: bool = Field(
        False, description="publish every window's features (costs 2.5 times the CPU)"
    )
    group: str = Field("reveal-worker", description="Kafka consumer group")
    take: int = Field(500, gt=0, le=500, description="messages in a batch, at most")
    within_ms: int = Field(50, gt=0, description="how long a batch is collected, milliseconds")
    session_timeout_s: float = Field(
        10.0, gt=0, description="a worker unheard of for so long loses its partitions, seconds"
    )
    metrics_port: int = Field(0, ge=0, le=65535, description="Prometheus port; 0 is off")
    metrics_host: str = Field("127.0.0.1", description="address of the Prometheus port")

    @field_validator("sensitivity", mode="before")
    @classmethod
    def _as_pairs(cls, value: object) -> object:
        """Take ``network=2,storage=0.5`` as well, as flags and the environment have it."""
        if not isinstance(value, str):
            return value
        pairs = [item.partition("=") for item in value.split(",") if item.strip()]
        return {name.strip(): number for name, _, number in pairs}

    @field_validator("sensitivity")
    @classmethod
    def _of_subsystems(cls, value: dict[str, float]) -> dict[str, float]:
        known = [s.value for s in Subsystem if s is not Subsystem.AGENT]
        for name, number in value.items():
            if name not in known:
                raise ValueError(f"{name!r} is no subsystem: there are {', '.join(known)}")
            if not 0.0 < number < 100.0:
                raise ValueError(f"{name}={number:g} does not lie between 0 and 100")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.baseline_seconds * 1000 < LEAST_WINDOWS * self.stride_ms:
            raise ValueError(
                f"a baseline of {self.baseline_seconds} s has fewer than {LEAST_WINDOWS} windows "
                f"at a stride of {self.stride_ms} ms: raise baseline_seconds or lower stride_ms"
            )
        if self.window_ms < self.stride_ms:
            raise ValueError(
                f"window_ms has to be at least stride_ms, or ticks are in no window: "
                f"{self.window_ms} is less than {self.stride_ms}"
            )
        return self
