"""Engines for video and pictures.

Calls: nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization,
nvmlDeviceGetJpgUtilization, nvmlDeviceGetOfaUtilization (optical flow): the share of NVML's own
sampling period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import PERCENT_MOST, Call, GpuSource, Number
from producers.source import SECOND_NS, Collector

ENGINES = {"encoder": "Encoder", "decoder": "Decoder", "jpeg": "Jpg", "optical_flow": "Ofa"}
"""The name in NVML's function, by that in the channel."""


def find_engines(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the utilisation of each engine that a GPU has."""
    if device.instance is None:
        for name, engine in ENGINES.items():
            get = getattr(nvml, f"nvmlDeviceGet{engine}Utilization", None)
            if get is not None:
                number = Number(f"gpu.{name}_utilization", "%", high=PERCENT_MOST)
                yield Call((number,), _first(get, device.handle))


def _first(get: Callable[[Any], Sequence[int]], handle: Any) -> Callable[[], Sequence[float]]:
    # The second number is how long the share was taken over.
    return lambda: get(handle)[:1]


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector("gpu_codec", (GpuSource(session, "codec", find_engines, period_ns=SECOND_NS),))
