"""Settings of the agent."""

from __future__ import annotations

import socket
from pathlib import Path

from pydantic import Field, field_validator

from schemas.flags import also
from schemas.settings import Section

WINDOW_MS = 3000
PERF = ("total", "per-core", "off")


class AgentSettings(Section):
    """What a host agent samples and how it sends it."""

    host: str = Field("", description="name of this host; empty: its hostname")
    interval_ms: int = Field(100, ge=10, le=3000, description="sampling interval, milliseconds")
    proc_root: Path = Field(
        Path("/proc"),
        description="where the kernel's proc is mounted",
        json_schema_extra=also("--path.proc"),
    )
    sys_root: Path = Field(
        Path("/sys"),
        description="where the kernel's sysfs is mounted",
        json_schema_extra=also("--path.sys"),
    )
    without: str = Field(
        "", description="collectors to leave out, by name, separated by commas: perf,ethtool"
    )
    perf: str = Field(
        "total", description="hardware counters summed over cores (total), per-core, or off"
    )
    budget_percent: float = Field(
        1.0,
        gt=0,
        le=100,
        description="CPU that the agent may take, percent of the host's; one percent of one "
        "core it may take in any case",
    )
    ticks_per_record: int = Field(
        10, ge=1, le=1000, description="ticks in a record, at most; it ends with the second anyway"
    )
    keep_minutes: float = Field(
        10, gt=0, le=1440, description="telemetry kept while the broker is away, minutes"
    )
    keep_mb: int = Field(
        64,
        ge=1,
        description="memory for it, MB, compressed; the oldest goes first when it is short",
    )
    stop_seconds: float = Field(
        5, ge=0, description="how long a stop waits for the broker, seconds"
    )
    metrics_port: int = Field(0, ge=0, le=65535, description="Prometheus port; 0 is off")
    metrics_host: str = Field("127.0.0.1", description="address of the Prometheus port")

    @field_validator("interval_ms")
    @classmethod
    def _fits_the_window(cls, value: int) -> int:
        # Every window of the worker has to have the same number of ticks: it rejects others.
        if WINDOW_MS % value:
            raise ValueError(f"it has to divide {WINDOW_MS} ms: 10, 20, 50, 100, 200, 600, 1000")
        return value

    @field_validator("perf")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in PERF:
            raise ValueError(f"it is one of {', '.join(PERF)}")
        return value

    @property
    def left_out(self) -> frozenset[str]:
        """The names in `without`."""
        return frozenset(filter(None, map(str.strip, self.without.split(","))))

    @property
    def host_name(self) -> str:
        """The name under which this host reports."""
        return self.host or socket.gethostname()
