"""GPUs that run slower than they could: too hot, or at the limit of their power.

NVML's reasons (nvml.h, nvmlClocksEventReason*): the hardware's and the driver's thermal slowdown,
power brake, and the software power cap.
"""

from __future__ import annotations

from models.diagnosis.case import Case, Cause, Reading, Remedy, between

HELD = 0.2
"""Share of the window's samples in which a reason is given."""
TIME = 10.0
"""Percent of the time, where the driver counts it."""
HOT = ("hw_thermal_slowdown", "sw_thermal_slowdown")
POWER = ("hw_power_brake", "sw_power_cap")


def gpu_thermal_throttle(case: Case) -> Cause | None:
    """Look for GPUs that are held back by heat."""
    found = _held(case, HOT)
    if not found:
        return None
    device = _device(found[0])
    heat = case.device("gpu.temperature", device), case.device("gpu.memory_temperature", device)
    clock = case.device("gpu.sm_clock", device)
    return Cause(
        "gpu_thermal_throttle",
        "gpu",
        f"GPU {device} is too hot and slows down ({len({_device(r) for r in found})} of the host's "
        "GPUs).",
        0.9,
        tuple(r.evidence for r in (found[0], *heat, clock) if r.value == r.value),
        (
            Remedy(f"nvidia-smi -i {device} -q -d TEMPERATURE,PERFORMANCE,CLOCK"),
            Remedy("ipmitool sdr type fan"),
        ),
    )


def gpu_power_throttle(case: Case) -> Cause | None:
    """Look for GPUs that are held back by their power limit, where they usually are not."""
    found = _held(case, POWER)
    if not found:
        return None
    device = _device(found[0])
    power, limit = case.device("gpu.power", device), case.device("gpu.power_limit", device)
    lowered = limit.falls(0.99)
    return Cause(
        "gpu_power_throttle",
        "gpu",
        f"GPU {device} runs at the limit of its power and slows down"
        + (": the limit was lowered." if lowered else "."),
        0.75 + 0.15 * lowered + 0.05 * between(found[0].value, 0, 1),
        tuple(
            r.evidence
            for r in (found[0], power, limit, case.device("gpu.sm_clock", device))
            if r.value == r.value
        ),
        (
            Remedy(f"nvidia-smi -i {device} -q -d POWER,PERFORMANCE"),
            Remedy(f"nvidia-smi -i {device} -pl WATTS", changes_host=True),
        ),
    )


def _held(case: Case, reasons: tuple[str, ...]) -> list[Reading]:
    """Return reasons that hold, and usually do not, the strongest first."""
    flags = [r for name in reasons for r in case.devices(f"gpu.throttle_{name}")]
    times = [r for name in reasons for r in case.devices(f"gpu.throttled_{name}")]
    found = [r for r in flags if r.value > max(HELD, r.high + HELD)]
    found += [r for r in times if r.value > max(TIME, r.high + TIME)]
    return sorted(found, key=lambda r: -r.value)


def _device(reading: Reading) -> str:
    return reading.label.partition("[")[2].removesuffix("]")
