"""Memory of GPUs and of the MIG devices in them.

Calls: nvmlDeviceGetMemoryInfo_v2, which tells what the driver keeps for itself from what is used
(nvmlDeviceGetMemoryInfo, which does not, before driver 510), nvmlDeviceGetBAR1MemoryInfo (what
peers and the host see of it).
"""

from __future__ import annotations

from collections.abc import Iterable

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.nvml import Nvml, is_absent
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import Call, GpuSource, Number
from producers.source import SECOND_NS, Collector

MOST_BYTES = 2.0**50
VERSION_2 = 0x02000028
"""nvmlMemory_v2: the size of its structure, and 2 in the top byte."""


def _bytes(metric: str) -> Number:
    return Number(metric, "B", high=MOST_BYTES)


MEMORY = (
    _bytes("gpu.memory_used"),
    _bytes("gpu.memory_free"),
    _bytes("gpu.memory_total"),
)
RESERVED = _bytes("gpu.memory_reserved")
BAR1 = (_bytes("gpu.bar1_used"), _bytes("gpu.bar1_free"), _bytes("gpu.bar1_total"))


def find_memory(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield a device's memory."""
    get, handle = nvml.nvmlDeviceGetMemoryInfo, device.handle

    def ask() -> tuple[float, ...]:
        memory = get(handle, VERSION_2)
        return memory.used, memory.free, memory.total, memory.reserved

    def ask_old() -> tuple[float, ...]:
        memory = get(handle)
        return memory.used, memory.free, memory.total

    try:
        get(handle, VERSION_2)
    except Exception as e:
        if not is_absent(e):
            raise
        yield Call(MEMORY, ask_old)
    else:
        yield Call((*MEMORY, RESERVED), ask)


def find_bar1(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the window of a device's memory on the PCIe bus."""
    get, handle = nvml.nvmlDeviceGetBAR1MemoryInfo, device.handle

    def ask() -> tuple[float, ...]:
        memory = get(handle)
        return memory.bar1Used, memory.bar1Free, memory.bar1Total

    yield Call(BAR1, ask)


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector(
        "gpu_memory",
        (
            GpuSource(session, "memory", find_memory),
            GpuSource(session, "bar1", find_bar1, period_ns=SECOND_NS),
        ),
    )
