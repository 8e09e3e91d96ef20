"""What GPUs there are, and the MIG devices in them.

Calls: nvmlDeviceGetCount_v2, nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetUUID,
nvmlDeviceGetPciInfo_v3, nvmlDeviceGetMigMode, nvmlDeviceGetMaxMigDeviceCount,
nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetGpuInstanceId.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from producers.collectors.gpu.nvml import Nvml


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A GPU, or a MIG device in it.

    Attributes
    ----------
    label
        The device of its channels: ``GPU-<uuid>``, ``GPU-<uuid>/MIG-<uuid>``.
    uuid
        Of the GPU; the same for all MIG devices in it.
    bus_id
        Of the GPU, as the kernel writes it: ``0000:3b:00.0``.
    handle, gpu
        NVML's handles of the device and of its GPU.
    instance
        Number of the GPU instance that a MIG device is in; None for a whole GPU.
    """

    label: str
    uuid: str
    bus_id: str
    handle: Any
    gpu: Any
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What NVML has; `count` includes GPUs that cannot be reached."""

    nvml: Nvml
    count: int
    devices: tuple[Device, ...]
    unreachable: int


def find_devices(nvml: Nvml) -> Found:
    """Return the devices that can be reached now."""
    count = nvml.nvmlDeviceGetCount()
    devices: list[Device] = []
    unreachable = 0
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = as_text(nvml.nvmlDeviceGetUUID(handle))
            bus_id = kernel_bus_id(as_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        except Exception:
            unreachable += 1
            continue
        if any(device.uuid == uuid for device in devices):
            continue  # two of one name could not be told apart
        devices.append(Device(uuid, uuid, bus_id, handle, handle))
        devices += _mig_devices(nvml, uuid, bus_id, handle)
    return Found(nvml, count, tuple(devices), unreachable)


def _mig_devices(nvml: Nvml, uuid: str, bus_id: str, handle: Any) -> Iterable[Device]:
    try:
        current = nvml.nvmlDeviceGetMigMode(handle)[0]
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except Exception:
        return  # it is no such GPU
    for index in range(most):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            label = f"{uuid}/{as_text(nvml.nvmlDeviceGetUUID(mig))}"
            instance = nvml.nvmlDeviceGetGpuInstanceId(mig)
        except Exception:  # noqa: S112  # places without a device: NVMLError_NotFound
            continue
        yield Device(label, uuid, bus_id, mig, handle, instance)


def kernel_bus_id(bus_id: str) -> str:
    """Return ``0000:3b:00.0`` for NVML's ``00000000:3B:00.0``."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:] if domain[:-4].strip('0') == '' else domain}:{rest}"


def as_text(value: str | bytes) -> str:
    """Return a name as text: which of the two `pynvml` gives depends on its version."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
