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
    "utilization.ofa": ("ofa_utilization", "%"),
    "memory.total": ("memory_total", "MiB"),
    "memory.used": ("memory_used", "MiB"),
    "memory.free": ("memory_free", "MiB"),
    "memory.reserved": ("memory_reserved", "MiB"),
    "temperature.gpu": ("temperature", "C"),
    "temperature.memory": ("memory_temperature", "C"),
    "power.draw": ("power", "W"),
    "power.limit": ("power_limit", "W"),
    "enforced.power.limit": ("enforced_power_limit", "W"),
    "clocks.current.graphics": ("graphics_clock", "MHz"),
    "clocks.current.sm": ("sm_clock", "MHz"),
    "clocks.current.memory": ("memory_clock", "MHz"),
    "clocks.current.video": ("video_clock", "MHz"),
    "fan.speed": ("fan", "%"),
    "pcie.link.gen.current": ("pcie_link_generation", ""),
    "pcie.link.width.current": ("pcie_link_width", "lanes"),
    "pstate": ("performance_state", ""),
}
"""By field: the metric after ``gpu.``, and the field's unit where the file does not say one."""

SHORT = {
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
}
"""Other names of fields."""

_REASONS = re.compile(r"clocks_(?:throttle|event)_reasons(_counters)?\.(.+)")


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
    metric, default = FIELDS.get(name, ("", ""))
    scale, unit = base_unit(unit or default)
    ours, how = bool(metric), How.LEVEL
    if reasons := _REASONS.fullmatch(name):
        metric = f"throttle_{clean(reasons[2])}"
        if reasons[1]:
            metric, how, scale, unit = f"{metric}_time", How.TOTAL, scale * 100 / 1e6, "%"
    elif name.startswith("ecc.errors."):
        _, _, which, life, *place = name.split(".")
        metric = "_".join(("ecc", which, life, *map(clean, place)))
    kind = Kind.GAUGE if how is How.LEVEL else Kind.RATE
    channel = Channel(f"gpu.{metric or clean(name)}", device, Subsystem.GPU, unit, kind)
    return Meaning(channel, scale, how, ours)
