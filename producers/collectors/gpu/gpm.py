"""GPU performance monitoring of Hopper and later: what the SMs, tensor cores and memory did.

Calls: nvmlGpmQueryDeviceSupport, nvmlGpmSampleAlloc, nvmlGpmSampleGet (of a MIG device
nvmlGpmMigSampleGet: devices in one GPU instance share what it says), nvmlGpmMetricsGet of two
samples. Each value is the mean between two readings, so nothing in between is missed.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterable, Sequence

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import MIB, NAN, Call, GpuSource, Number
from producers.source import Collector

APART_NS = 50_000_000
"""Samples that are nearer tell nothing."""

FULL = 101.0
"""Percent: counters that are not read in one instant give a little more than all."""

MOST_MIB = 1e8
VERSION = 1
SAMPLES = 2
_METRIC = struct.Struct("=4xId24x")
"""nvmlGpmMetric_t: number, error, value, and three pointers to names."""


def _share(name: str) -> Number:
    return Number(f"gpu.{name}", "%", high=FULL)


def _bytes(name: str) -> Number:
    return Number(f"gpu.{name}", "B/s", high=MOST_MIB, scale=MIB, rate=True)


METRICS = {
    1: _share("graphics_active"),
    2: _share("sm_active"),
    3: _share("sm_occupancy"),
    4: _share("integer_active"),
    5: _share("tensor_active"),
    6: _share("tensor_dfma_active"),
    7: _share("tensor_hmma_active"),
    9: _share("tensor_imma_active"),
    10: _share("dram_active"),
    11: _share("fp64_active"),
    12: _share("fp32_active"),
    13: _share("fp16_active"),
    20: _bytes("gpm_pcie_tx_bytes"),
    21: _bytes("gpm_pcie_rx_bytes"),
    60: _bytes("gpm_nvlink_rx_bytes"),
    61: _bytes("gpm_nvlink_tx_bytes"),
    100: _bytes("gpm_c2c_tx_bytes"),
    101: _bytes("gpm_c2c_rx_bytes"),
}
"""Numbers by NVML_GPM_METRIC_*."""


class NotYetError(Exception):
    """What a device offers can only be told from a second sample."""


class _Samples:
    """The newest two samples of a device.

    The library keeps their memory. It is not given back: NVML is started anew at most a few
    times an hour, and to free what belonged to an earlier start is not known to be safe.
    """

    def __init__(self, nvml: Nvml, device: Device, session: Session) -> None:
        self.device = device
        self._nvml = nvml
        self._session = session
        self._pair = [nvml.nvmlGpmSampleAlloc() for _ in range(SAMPLES)]
        self._taken_ns = 0
        self._get = nvml.c_nvmlGpmMetricsGet_t()
        self._get.version = VERSION
        self.choose(list(METRICS))
        self.take()

    def is_due(self) -> bool:
        return self._session.clock_ns() - self._taken_ns >= APART_NS

    def take(self) -> None:
        self._pair.reverse()
        nvml, device = self._nvml, self.device
        if device.instance is None:
            nvml.nvmlGpmSampleGet(device.gpu, self._pair[1])
        else:
            nvml.nvmlGpmMigSampleGet(device.gpu, device.instance, self._pair[1])
        self._taken_ns = self._session.clock_ns()

    def choose(self, metrics: Sequence[int]) -> None:
        """Say which metrics are wanted from now on."""
        get = self._get
        get.numMetrics = len(metrics)
        for i, metric in enumerate(metrics):
            get.metrics[i].metricId = metric
        # The memory of those metrics: several times faster to unpack than to ask ctypes for.
        room = ctypes.c_char * (_METRIC.size * len(metrics))
        self._values = room.from_buffer(get, type(get).metrics.offset)

    def means(self) -> list[float]:
        """Return each metric between the two samples, infinite where there is none."""
        self._get.sample1, self._get.sample2 = self._pair
        self._nvml.nvmlGpmMetricsGet(self._get)
        return [
            value if error == 0 else math.inf for error, value in _METRIC.iter_unpack(self._values)
        ]


class Finder:
    """Finds the metrics of devices, each at the second look."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._samples: dict[str, _Samples] = {}
        self._metrics: dict[str, list[int]] = {}

    def __call__(self, nvml: Nvml, device: Device) -> Iterable[Call]:
        """Yield the metrics of a device.

        Raises
        ------
        NotYetError
            It is to be asked again a little later.
        """
        label = device.label
        samples = self._samples.get(label)
        if samples is None or samples.device is not device:
            if not nvml.nvmlGpmQueryDeviceSupport(device.gpu).isSupportedDevice:
                return
            samples = self._samples[label] = _Samples(nvml, device, self._session)
            if label not in self._metrics:
                raise NotYetError
        elif label not in self._metrics:
            if not samples.is_due():
                raise NotYetError
            samples.take()
            every = samples.means()
            self._metrics[label] = [
                m for m, value in zip(METRICS, every, strict=True) if math.isfinite(value)
            ]
        metrics = self._metrics[label]
        if metrics:
            samples.choose(metrics)
            yield Call(tuple(METRICS[m] for m in metrics), _Means(samples, len(metrics)))


class _Means:
    """Gives the means since the reading before, nothing at the first."""

    def __init__(self, samples: _Samples, count: int) -> None:
        self._samples = samples
        self._blank = [NAN] * count

    def __call__(self) -> list[float]:
        if not self._samples.is_due():
            return self._blank
        self._samples.take()
        return self._samples.means()


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector("gpu_gpm", (GpuSource(session, "gpm", Finder(session)),))
