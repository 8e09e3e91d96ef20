"""Settings of the worker."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from schemas.settings import Section

LEAST_WINDOWS = 30
"""Windows that a baseline needs (`models.baseline`)."""
MOST_OVERLAP = 3
"""Windows that may share a tick: thresholds are taken from windows that share none."""


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
        0.8, gt=0, le=1, description="share of its ticks that a window needs to be scored"
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

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.baseline_seconds * 1000 < LEAST_WINDOWS * self.stride_ms:
            raise ValueError(
                f"a baseline of {self.baseline_seconds} s has fewer than {LEAST_WINDOWS} windows "
                f"at a stride of {self.stride_ms} ms: raise baseline_seconds or lower stride_ms"
            )
        if not self.stride_ms <= self.window_ms <= MOST_OVERLAP * self.stride_ms:
            raise ValueError(
                f"window_ms has to lie between stride_ms and {MOST_OVERLAP} times stride_ms: "
                f"{self.window_ms} does not at a stride of {self.stride_ms} ms"
            )
        return self
