"""Clocks, and why they are not higher.

Calls: nvmlDeviceGetClockInfo, nvmlDeviceGetMaxClockInfo, nvmlDeviceGetCurrentClocksEventReasons
and nvmlDeviceGetSupportedClocksEventReasons (...ClocksThrottleReasons before driver 535), and
fields NVML_FI_DEV_CLOCKS_EVENT_REASON_*, which count the nanoseconds that a reason held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.fields import field_call
from producers.collectors.gpu.nvml import Nvml, is_absent
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import TOTAL_MOST, Call, GpuSource, Number, single
from producers.source import SECOND_NS, TEN_SECONDS_NS, Collector

MOST_MHZ = 100_000.0
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
FAST = {"sm": 1, "memory": 2}
"""Clocks that say at once when work is slowed down. That of graphics goes with that of the SMs."""

REASONS = {
    "idle": 0x1,
    "clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake": 0x80,
    "display_clock_setting": 0x100,
    "board_limit": 0x200,
    "reliability": 0x400,
}
"""Bits of the mask, by the name in the channel ``gpu.throttle_<name>``."""

NS_TO_PERCENT = 100 / 1e9
THROTTLED = {
    "sw_power_cap": 74,
    "sync_boost": 76,
    "sw_thermal_slowdown": 269,
    "hw_thermal_slowdown": 270,
    "hw_power_brake": 271,
}
"""Fields, by the name in the channel ``gpu.throttled_<name>``: a share of the time."""


def find_fast(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the clocks of SMs and memory."""
    return _clocks(nvml, device, FAST)


def find_slow(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the other clocks."""
    return _clocks(nvml, device, {n: clock for n, clock in CLOCKS.items() if n not in FAST})


def _clocks(nvml: Nvml, device: Device, clocks: Mapping[str, int]) -> Iterable[Call]:
    if device.instance is None:
        for name, clock in clocks.items():
            number = Number(f"gpu.{name}_clock", "MHz", high=MOST_MHZ)
            yield single(number, nvml.nvmlDeviceGetClockInfo, device.handle, clock)


def find_most(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield how high the clocks may go."""
    if device.instance is None:
        for name, clock in CLOCKS.items():
            number = Number(f"gpu.{name}_clock_max", "MHz", high=MOST_MHZ)
            yield single(number, nvml.nvmlDeviceGetMaxClockInfo, device.handle, clock)


def find_reasons(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield a channel of 0 and 1 for each reason that the GPU can give."""
    if device.instance is not None:
        return
    handle = device.handle
    get: Callable[[Any], int]
    try:
        get = nvml.nvmlDeviceGetCurrentClocksEventReasons
        supported = nvml.nvmlDeviceGetSupportedClocksEventReasons(handle)
    except Exception as e:
        if not is_absent(e):
            raise
        get = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        supported = nvml.nvmlDeviceGetSupportedClocksThrottleReasons(handle)
    here = {name: bit for name, bit in REASONS.items() if bit & supported}
    bits = tuple(here.values())
    most = max((*bits, 1)) * 2

    def ask() -> list[float]:
        mask = get(handle)
        # All bits set is no answer: each is then out of its bounds.
        return [mask if mask >= most << 16 else float(mask & bit > 0) for bit in bits]

    yield Call(tuple(Number(f"gpu.throttle_{name}", "0/1", high=1.0) for name in here), ask)


def find_throttled(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the share of the time that a reason held: nothing between two readings is missed."""
    if device.instance is None:
        numbers = [
            Number(f"gpu.throttled_{name}", "%", high=TOTAL_MOST, counter=True, scale=NS_TO_PERCENT)
            for name in THROTTLED
        ]
        wanted = zip(numbers, THROTTLED.values(), (0,) * len(numbers), strict=True)
        yield from field_call(nvml, device.handle, wanted)


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector(
        "gpu_clocks",
        (
            GpuSource(session, "clocks", find_fast),
            GpuSource(session, "clocks_other", find_slow, period_ns=SECOND_NS),
            GpuSource(session, "clock_reasons", find_reasons),
            GpuSource(session, "throttled", find_throttled, period_ns=SECOND_NS),
            GpuSource(session, "clocks_max", find_most, period_ns=TEN_SECONDS_NS),
        ),
    )
