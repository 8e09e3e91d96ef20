"""Temperatures of the thermal zones: ``sys/class/thermal/thermal_zone*``.

Kernel: Documentation/driver-api/thermal/sysfs-api.rst; `type` is a name, `temp` millidegrees. On
many ARM machines these are the only temperatures; on others they are beside those of `hwmon`.
"""

from __future__ import annotations

import re
from collections import Counter

from producers.source import TEN_SECONDS_NS, Collector
from producers.tree import FileTree, TreeDraft, whole_number
from schemas.records import Channel, Kind, Subsystem

ZONES = "sys/class/thermal"
COLDEST, HOTTEST = -100_000, 200_000
"""Millidegrees between which a sensor is believed."""

NO_SENSOR = frozenset({-128_000, -127_000, 127_000, 127_500, 127_750, 127_875})
"""What chips show where nothing is connected: the ends of their scales of 8 bits and more."""


def millidegrees(content: bytes) -> float:
    """Return the temperature that is all of a file's text.

    Raises
    ------
    ValueError
        It is no number, or none that a sensor measures: ``-128000`` or ``65261850``.
    """
    number = whole_number(content)
    if not COLDEST < number < HOTTEST or number in NO_SENSOR:
        raise ValueError(f"no sensor is at {number} millidegrees")
    return number


def find(tree: TreeDraft) -> None:
    """Each zone by its type; where two have one, the number of the zone tells them apart."""
    zones = sorted((n for n in tree.names(ZONES) if re.fullmatch(r"thermal_zone\d+", n)), key=_last)
    types = {zone: tree.text(f"{ZONES}/{zone}/type") or zone for zone in zones}
    often = Counter(types.values())
    for zone, kind in types.items():
        at = tree.file(f"{ZONES}/{zone}/temp")
        if at is not None:
            device = kind if often[kind] == 1 else f"{kind}#{_last(zone)}"
            channel = Channel("thermal.zone", device, Subsystem.CPU, "degC", Kind.GAUGE)
            tree.channel(at, channel, scale=1e-3)


def _last(zone: str) -> int:
    return int(zone.removeprefix("thermal_zone"))


def collector() -> Collector:
    """Return a collector of the thermal zones."""
    return Collector(
        "thermal",
        (
            FileTree(
                ZONES,
                find,
                number=millidegrees,
                remedy="Without it the firmware's own view of heat is missing. Virtual machines "
                "have none.",
                period_ns=TEN_SECONDS_NS,
            ),
        ),
    )
