"""Power and energy.

Calls: nvmlDeviceGetPowerUsage (since Ampere the mean of the last second),
nvmlDeviceGetEnforcedPowerLimit, and fields: NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION (since the driver
was loaded; nvmlDeviceGetTotalEnergyConsumption where there is no such field),
NVML_FI_DEV_POWER_INSTANT and NVML_FI_DEV_POWER_AVERAGE with the scopes of the GPU, the module (with
its CPU, where there is one) and the memory. All in mW and mJ.
"""

from __future__ import annotations

from collections.abc import Iterable

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.fields import field_call
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import TOTAL_MOST, Call, GpuSource, Number, single
from producers.source import TEN_SECONDS_NS, Collector

MOST_MW = 20_000e3
"""More than any module draws."""

TOTAL_ENERGY, AVERAGE, INSTANT = 83, 185, 186
GPU_SCOPE, MODULE_SCOPE, MEMORY_SCOPE = 0, 1, 2


def _watts(metric: str) -> Number:
    return Number(metric, "W", high=MOST_MW, scale=1e-3)


POWER = _watts("gpu.power")
LIMIT = _watts("gpu.power_limit")
ENERGY = Number("gpu.energy", "J/s", high=TOTAL_MOST, counter=True, scale=1e-3)
PARTS = (
    (ENERGY, TOTAL_ENERGY, GPU_SCOPE),
    (_watts("gpu.power_instant"), INSTANT, GPU_SCOPE),
    (_watts("gpu.module_power"), INSTANT, MODULE_SCOPE),
    (_watts("gpu.memory_power"), AVERAGE, MEMORY_SCOPE),
)


def find_power(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield a GPU's power: no MIG device has its own."""
    if device.instance is None:
        yield single(POWER, nvml.nvmlDeviceGetPowerUsage, device.handle)


def find_parts(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield energy, the power of this instant, and that of module and memory, in one call.

    The rate of the energy misses no peak between two readings.
    """
    if device.instance is None:
        yield from field_call(nvml, device.handle, PARTS)


def find_energy(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the energy where it is no field."""
    if device.instance is None and not list(field_call(nvml, device.handle, PARTS[:1])):
        yield single(ENERGY, nvml.nvmlDeviceGetTotalEnergyConsumption, device.handle)


def find_limit(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the limit in force."""
    if device.instance is None:
        yield single(LIMIT, nvml.nvmlDeviceGetEnforcedPowerLimit, device.handle)


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector(
        "gpu_power",
        (
            GpuSource(session, "power", find_power),
            GpuSource(session, "power_parts", find_parts),
            GpuSource(session, "energy", find_energy),
            GpuSource(session, "power_limit", find_limit, period_ns=TEN_SECONDS_NS),
        ),
    )
