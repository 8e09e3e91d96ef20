"""Settings of the agent."""

from __future__ import annotations

import socket
from pathlib import Path

from pydantic import Field, field_validator

from schemas.settings import Section

SECOND_MS = 1000


class AgentSettings(Section):
    """What a host agent samples and how it sends it."""

    host: str = Field("", description="name of this host; empty: its hostname")
    interval_ms: int = Field(100, ge=10, le=1000, description="sampling interval, milliseconds")
    proc_root: Path = Field(Path("/proc"), description="where the kernel's proc is mounted")
    sys_root: Path = Field(
        Path("/sys"),
        description="where the kernel's sysfs is mounted; for `doctor` only: no collector reads"
        " it yet",
    )
    ticks_per_record: int = Field(
        10, ge=1, le=1000, description="ticks in a record, at most; it ends with the second anyway"
    )
    keep_minutes: float = Field(
        5, gt=0, le=1440, description="telemetry kept while the broker is away, minutes"
    )
    keep_mb: int = Field(
        64, ge=1, description="memory for it, MB; the oldest goes first when it is short"
    )
    stop_seconds: float = Field(
        5, ge=0, description="how long a stop waits for the broker, seconds"
    )
    metrics_port: int = Field(0, ge=0, le=65535, description="Prometheus port; 0 is off")
    metrics_host: str = Field("127.0.0.1", description="address of the Prometheus port")

    @field_validator("interval_ms")
    @classmethod
    def _fits_the_second(cls, value: int) -> int:
        # The worker's windows move on by a second: it rejects what does not fit in.
        if SECOND_MS % value:
            raise ValueError("it has to divide a second: 10, 20, 50, 100, ..., 1000")
        return value

    @property
    def host_name(self) -> str:
        """The name under which this host reports."""
        return self.host or socket.gethostname()
