"""What nvidia-smi's query fields are called here: the same metrics as the agent's GPU collector.

Source: ``nvidia-smi --help-query-gpu``. A field that has no line in the table keeps its own name,
cleaned, after ``gpu.``.
"""

from __future__ import annotations

import re

from schemas.records import Channel, Kind, Subsystem
from streams.importing.meaning import How, Meaning, base_unit, clean

FIELDS: dict[str, tuple[str, str]] = {
    "utilization.gpu": ("utilization", "%"),
    "utilization.memory": ("memory_utilization", "%"),
    "utilization.encoder": ("encoder_utilization", "%"),
    "utilization.decoder": ("decoder_utilization", "%"),
    "utilization.jpeg": ("jpeg_utilization", "%"),
    "utilization.ofa": ("optical_flow_utilization", "%"),
    "memory.total": ("memory_total", "MiB"),
    "memory.used": ("memory_used", "MiB"),
    "memory.free": ("memory_free", "MiB"),
    "memory.reserved": ("memory_reserved", "MiB"),
    "temperature.gpu": ("temperature", "C"),
    "temperature.gpu.tlimit": ("temperature_margin", "C"),
    "temperature.memory": ("memory_temperature", "C"),
    "power.draw": ("power", "W"),
    "power.draw.instant": ("power_instant", "W"),
    "enforced.power.limit": ("power_limit", "W"),
    "module.power.draw.instant": ("module_power", "W"),
    "clocks.current.graphics": ("graphics_clock", "MHz"),
    "clocks.current.sm": ("sm_clock", "MHz"),
    "clocks.current.memory": ("memory_clock", "MHz"),
    "clocks.current.video": ("video_clock", "MHz"),
    "clocks.max.graphics": ("graphics_clock_max", "MHz"),
    "clocks.max.sm": ("sm_clock_max", "MHz"),
    "clocks.max.memory": ("memory_clock_max", "MHz"),
    "fan.speed": ("fan", "%"),
    "pstate": ("performance_state", "state"),
    "pcie.link.gen.current": ("pcie_link_generation", "gen"),
    "pcie.link.gen.max": ("pcie_link_generation_max", "gen"),
    "pcie.link.width.current": ("pcie_link_width", "lanes"),
    "pcie.link.width.max": ("pcie_link_width_max", "lanes"),
    "remapped_rows.correctable": ("remapped_rows_corrected", "rows"),
    "remapped_rows.uncorrectable": ("remapped_rows_uncorrected", "rows"),
    "remapped_rows.pending": ("remapped_rows_pending", "0/1"),
    "remapped_rows.failure": ("remapped_rows_failure", "0/1"),
    "retired_pages.single_bit_ecc.count": ("retired_pages_single_bit", "pages"),
    "retired_pages.double_bit.count": ("retired_pages_double_bit", "pages"),
    "retired_pages.pending": ("retired_pages_pending", "0/1"),
}
"""The agent's metric after ``gpu.`` by field, and its unit where the file does not say one."""

SHORT = {
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
}
"""Other names of fields."""

APART = {"power.limit": "power_limit_wanted", "power.draw.average": "power_average"}
"""Fields whose own name would be one of the agent's, or near it, with another meaning."""

REASONS = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake",
}
"""Reasons why clocks are not higher, as the agent calls them."""

LOCATIONS = {"dram", "sram", "l1_cache", "l2_cache", "register_file", "texture_memory", "cbu"}
"""Where memory errors are, of which the agent has a metric of the same name."""

_REASON = re.compile(r"clocks_(?:throttle|event)_reasons(_counters)?\.(.+)")
_ERRORS = re.compile(r"ecc\.errors\.(un)?corrected\.(volatile|aggregate)\.(.+)")


def field_meaning(name: str, unit: str, device: str) -> Meaning:
    """Return what a query field is called here.

    Parameters
    ----------
    name
        The field, ``utilization.gpu``.
    unit
        As the file says it; empty when it does not.
    device
        The GPU.
    """
    name = name.lower()
    name = SHORT.get(name, name)
    if reason := _REASON.fullmatch(name):
        known = REASONS.get(reason[2])
        metric = known or clean(reason[2])
        if reason[1]:
            # Microseconds so far, of which the rate is a share of the time.
            return _total(f"gpu.throttled_{metric}", device, "%", 100 / 1e6, ours=bool(known))
        return _level(f"gpu.throttle_{metric}", device, "0/1", 1, ours=bool(known))
    if errors := _ERRORS.fullmatch(name):
        which = "uncorrected" if errors[1] else "corrected"
        metric = which if errors[3] == "total" else f"{which}_{clean(errors[3])}"
        ours = errors[3] in {"total", *LOCATIONS}
        if errors[2] == "volatile":
            return _total(f"gpu.ecc_{metric}", device, "errors/s", 1, ours=ours)
        return _level(f"gpu.ecc_aggregate_{metric}", device, "errors", 1, ours=ours)
    metric, default = FIELDS.get(name, ("", ""))
    scale, base = base_unit(unit)
    if not base:
        scale, base = base_unit(default)
    own = APART.get(name) or clean(name)
    return _level(f"gpu.{metric or own}", device, base, scale, ours=bool(metric))


def _level(metric: str, device: str, unit: str, scale: float, *, ours: bool) -> Meaning:
    channel = Channel(metric, device, Subsystem.GPU, unit, Kind.GAUGE)
    return Meaning(channel, scale, How.LEVEL, ours)


def _total(metric: str, device: str, unit: str, scale: float, *, ours: bool) -> Meaning:
    channel = Channel(metric, device, Subsystem.GPU, unit, Kind.RATE)
    return Meaning(channel, scale, How.TOTAL, ours)
