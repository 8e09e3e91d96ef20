"""What everybody looks at first: utilisation, temperatures, fan, performance state, processes.

Calls: nvmlDeviceGetUtilizationRates (the share of the driver's last sampling period, 1/6 s to 1 s,
in which a kernel ran, or memory was read or written), nvmlDeviceGetTemperature,
nvmlDeviceGetMarginTemperature (to the temperature where the GPU slows down; where there is none,
the threshold NVML_TEMPERATURE_THRESHOLD_GPU_MAX less the temperature), field
NVML_FI_DEV_MEMORY_TEMP, nvmlDeviceGetFanSpeed, nvmlDeviceGetPerformanceState,
nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses_v3.
"""

from __future__ import annotations

from collections.abc import Iterable

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.fields import field_call
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import (
    PERCENT_MOST,
    Call,
    GpuSource,
    Number,
    single,
)
from producers.source import SECOND_NS, Collector

COLDEST, HOTTEST = -50.0, 200.0
GPU_SENSOR = 0
GPU_MAX_THRESHOLD = 3
MEMORY_TEMP = 82

UTILIZATION = (
    Number("gpu.utilization", "%", high=PERCENT_MOST),
    Number("gpu.memory_utilization", "%", high=PERCENT_MOST),
)
TEMPERATURE = Number("gpu.temperature", "degC", COLDEST, HOTTEST)
MARGIN = Number("gpu.temperature_margin", "degC", -HOTTEST, HOTTEST)
MEMORY_TEMPERATURE = Number("gpu.memory_temperature", "degC", COLDEST, HOTTEST)
FAN = Number("gpu.fan", "%", high=200.0)
"""Of its usual maximum: a fan may turn faster."""
STATE = Number("gpu.performance_state", "state", high=15.0)
COMPUTE = Number("gpu.compute_processes", "processes")
GRAPHICS = Number("gpu.graphics_processes", "processes")


def find_utilization(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield what a whole GPU has: a MIG device has no utilisation of its own."""
    get, handle = nvml.nvmlDeviceGetUtilizationRates, device.handle

    def ask() -> tuple[float, float]:
        rates = get(handle)
        return rates.gpu, rates.memory

    if device.instance is None:
        yield Call(UTILIZATION, ask)


def find_temperature(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the temperatures that there are sensors for."""
    handle = device.handle
    if device.instance is not None:
        return
    yield single(TEMPERATURE, nvml.nvmlDeviceGetTemperature, handle, GPU_SENSOR)
    yield from _margin(nvml, device)
    yield from field_call(nvml, handle, [(MEMORY_TEMPERATURE, MEMORY_TEMP, 0)])


def _margin(nvml: Nvml, device: Device) -> Iterable[Call]:
    handle = device.handle
    try:
        nvml.nvmlDeviceGetMarginTemperature(handle)
    except Exception:
        get = nvml.nvmlDeviceGetTemperature

        def left() -> float:
            limit = (
                limits[0]
                if limits
                else nvml.nvmlDeviceGetTemperatureThreshold(handle, GPU_MAX_THRESHOLD)
            )
            limits[:] = [limit]
            return limit - get(handle, GPU_SENSOR)

        limits: list[int] = []  # it never changes
        yield single(MARGIN, left)
    else:
        yield single(MARGIN, nvml.nvmlDeviceGetMarginTemperature, handle)


def find_state(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the performance state, 0 the fastest, and the fan's speed."""
    if device.instance is None:
        yield single(STATE, nvml.nvmlDeviceGetPerformanceState, device.handle)
        yield single(FAN, nvml.nvmlDeviceGetFanSpeed, device.handle)


def find_processes(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield how many processes use a device, and nothing else about them."""
    handle = device.handle
    compute = nvml.nvmlDeviceGetComputeRunningProcesses_v3
    graphics = nvml.nvmlDeviceGetGraphicsRunningProcesses_v3
    yield single(COMPUTE, lambda: len(compute(handle)))
    if device.instance is None:
        yield single(GRAPHICS, lambda: len(graphics(handle)))


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector(
        "gpu",
        (
            GpuSource(session, "utilization", find_utilization),
            GpuSource(session, "temperature", find_temperature, period_ns=SECOND_NS),
            GpuSource(session, "state", find_state, period_ns=SECOND_NS),
            GpuSource(session, "processes", find_processes, period_ns=SECOND_NS),
        ),
    )
