"""What the sensor chips measure: ``sys/class/hwmon/hwmon*``.

Kernel: Documentation/hwmon/sysfs-interface.rst. Temperatures in millidegrees, voltages in
millivolts, currents in milliamperes, power in microwatts, energy in microjoules, fans in
revolutions per minute. Many chips measure when they are asked, over a slow bus or by a command to
a disk: so power is read once a second, all else every ten.

The kernel numbers the chips as it finds them. A sensor is called by where the chip is, or its
name, and by its label: ``coretemp.1/core_3``, ``nvme.0000:41:00.0/composite``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from producers.collectors.thermal import millidegrees
from producers.parsing import snake_case
from producers.source import SECOND_NS, TEN_SECONDS_NS, Collector, Field
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

CHIPS = "sys/class/hwmon"
_SENSOR = re.compile(r"(temp|fan|in|curr|power|energy|humidity)(\d+)_(input|average)")
_ALARM = re.compile(r"(temp|fan|in|curr|power)\d+(_\w+)?_alarm")
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

QUANTITIES = {
    # Metric, unit and what makes it of the file's number.
    "temp": ("hwmon.temperature", "degC", 1e-3),
    "fan": ("hwmon.fan", "rpm", 1.0),
    "in": ("hwmon.voltage", "V", 1e-3),
    "curr": ("hwmon.current", "A", 1e-3),
    "humidity": ("hwmon.humidity", "%", 1e-3),
    "power": ("hwmon.power", "W", 1e-6),
    "energy": ("hwmon.energy_power", "W", 1e-6),  # a counter: its rate is a power
}
_PARTS = (
    # Names of chips begin so; all others are of the processors and their board.
    (("nvme", "drivetemp"), Subsystem.STORAGE),
    (("amdgpu", "radeon", "nouveau", "nvidia", "i915", "xe"), Subsystem.GPU),
    (("mlx", "i40e", "ice", "ixgbe", "igb", "bnxt", "tg3", "r8169", "cxgb4"), Subsystem.NETWORK),
    (("mt7", "iwlwifi", "ath1", "rtw", "eth", "sfp", "enp", "eno"), Subsystem.NETWORK),
    (("jc42", "spd5118", "ddr"), Subsystem.MEMORY),
)


@dataclass(frozen=True, slots=True)
class Chip:
    """A sensor chip: the folder of its files, what it is called, and what it speaks of."""

    folder: str
    device: str
    subsystem: Subsystem


def chips(tree: TreeDraft) -> list[Chip]:
    """Return the chips by number, no two with one name."""
    found: list[tuple[str, str, str]] = []
    at_bus: dict[str, str] | None = None
    for entry in sorted(tree.names(CHIPS), key=_number):
        folder = f"{CHIPS}/{entry}"
        name = tree.text(f"{folder}/name")
        if not name and (name := tree.text(f"{folder}/device/name")):
            folder += "/device"  # as drivers did before kernel 3.13
        name = name or entry
        place = _pci_address(tree, entry)
        if not place:
            if at_bus is None:
                at_bus = bus_places(tree)
            place = at_bus.get(entry, "")
        device = place if place.startswith(name) else f"{name}.{place}" if place else name
        found.append((folder, name, device))
    often = Counter(device for _, _, device in found)
    nth: Counter[str] = Counter()
    every = []
    for folder, name, device in found:
        nth[device] += 1
        device_here = device if often[device] == 1 else f"{device}#{nth[device]}"
        every.append(Chip(folder, device_here, subsystem_of(name)))
    return every


def subsystem_of(name: str) -> Subsystem:
    """Return what a chip of this name speaks of."""
    for prefixes, subsystem in _PARTS:
        if name.startswith(prefixes):
            return subsystem
    return Subsystem.CPU


def _pci_address(tree: TreeDraft, entry: str) -> str:
    device = f"{CHIPS}/{entry}/device"
    match = re.search(r"^PCI_SLOT_NAME=(\S+)", tree.text(f"{device}/uevent"), re.MULTILINE)
    if match:
        return match[1]
    address = tree.text(f"{device}/address")  # of an NVMe controller
    return address if _PCI.fullmatch(address) else ""


def bus_places(tree: TreeDraft) -> dict[str, str]:
    """Return where chips are that are no PCI devices: ``{"hwmon3": "coretemp.0"}``."""
    places: dict[str, str] = {}
    for devices in ("sys/devices/platform", "sys/bus/i2c/devices"):
        for device in tree.names(devices):
            for entry in tree.names(f"{devices}/{device}/hwmon"):
                places.setdefault(entry, device)
    return places


def sensors(tree: TreeDraft, *kinds: str) -> Iterator[tuple[str, str, Channel]]:
    """Yield quantity, file and channel of each sensor of some kinds."""
    for chip in chips(tree):
        names = tree.names(chip.folder)
        matches = sorted(
            (m for m in map(_SENSOR.fullmatch, names) if m and m[1] in kinds),
            key=lambda m: (m[1], int(m[2])),
        )
        labels: list[tuple[re.Match[str], str]] = []
        for m in matches:
            kind, number, reading = m[1], m[2], m[3]
            if reading == "average" and f"{kind}{number}_input" in names:
                continue
            text = tree.text(f"{chip.folder}/{kind}{number}_label")
            labels.append((m, snake_case(text) or f"{kind}{number}"))
        often = Counter((m[1], label) for m, label in labels)
        for m, label in labels:
            kind = m[1]
            own = label if often[kind, label] == 1 else f"{label}#{m[2]}"
            metric, unit, _ = QUANTITIES[kind]
            how = Kind.RATE if kind == "energy" else Kind.GAUGE
            channel = Channel(metric, f"{chip.device}/{own}", chip.subsystem, unit, how)
            yield kind, f"{chip.folder}/{m[0]}", channel


def _find(tree: TreeDraft, *kinds: str) -> None:
    for kind, path, channel in sensors(tree, *kinds):
        at = tree.file(path)
        if at is not None:
            tree.channel(at, channel, scale=QUANTITIES[kind][2])


def find_temperatures(tree: TreeDraft) -> None:
    """All temperatures."""
    _find(tree, "temp")


def find_power(tree: TreeDraft) -> None:
    """Power, also where a chip counts energy."""
    _find(tree, "power", "energy")


def find_others(tree: TreeDraft) -> None:
    """Fans, voltages and currents; and of each chip, how many alarms are on."""
    _find(tree, "fan", "in", "curr", "humidity")
    alarms: dict[Chip, list[int]] = {}
    for chip in chips(tree):
        for name in tree.names(chip.folder):
            at = tree.file(f"{chip.folder}/{name}") if _ALARM.fullmatch(name) else None
            if at is not None:
                alarms.setdefault(chip, []).append(len(tree.fields))
                tree.field(at, _alarm(chip, name))
    if alarms:
        places = list(alarms.values())
        tree.derived(
            [
                Channel("hwmon.alarms", chip.device, chip.subsystem, "alarms", Kind.GAUGE)
                for chip in alarms
            ],
            lambda levels: np.array([levels[at].sum() for at in places]),
        )


def _alarm(chip: Chip, name: str) -> Field:
    return Field(f"{chip.device} {name}", counter=False)


def _number(entry: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", entry)
    return (int(digits) if digits else -1, entry)


def collector() -> Collector:
    """Return a collector of the sensor chips."""
    return Collector(
        "hwmon",
        (
            FileTree(
                CHIPS,
                find_temperatures,
                number=millidegrees,
                remedy="Without it overheating is not seen. Load the drivers of the sensor chips "
                "(sensors-detect names them); virtual machines have none.",
                period_ns=TEN_SECONDS_NS,
            ),
            FileTree(
                CHIPS,
                find_power,
                remedy="Without it the power that chips measure is unknown. Few boards have it.",
                period_ns=SECOND_NS,
            ),
            FileTree(
                CHIPS,
                find_others,
                remedy="Without it fans that stop and voltages that sag are not seen. Load the "
                "drivers of the sensor chips; virtual machines have none.",
                period_ns=TEN_SECONDS_NS,
            ),
        ),
    )
