"""Tables of what GPUs answer, for `tests.producers.fake_nvml`: made up, or said by nvidia-smi."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

DOUBLE, UNSIGNED, LONG_LONG = 0, 1, 3
"""nvmlValueType_t."""

ALL_LINKS = 0xFFFFFFFF
MIB = 2**20

Answers: TypeAlias = dict[tuple[Any, ...], Any]
Tree: TypeAlias = dict[str, Any]


@dataclass(slots=True, eq=False)
class Table:
    """What one device answers. A value that is callable is asked with the time in seconds.

    Attributes
    ----------
    answers
        By function and what is asked beside the handle. What is not there is not supported.
    fields
        By NVML_FI_DEV_* and scope: type and value.
    gpm
        By metric; None where there is no GPM.
    migs
        The MIG devices; None where there can be none.
    """

    uuid: str
    bus_id: str
    answers: Answers = field(default_factory=dict)
    fields: dict[tuple[int, int], tuple[int, Any]] = field(default_factory=dict)
    gpm: dict[int, Any] | None = None
    events: int = 0
    migs: list[Table] | None = None
    mig_uuid: str = ""
    instance: int | None = None


def h100(index: int) -> Table:
    """Return a busy GPU of the size of an H100, with NVLink and GPM."""

    def wave(low: float, high: float, period_s: float) -> Callable[[float], int]:
        return lambda s: round(
            low + (high - low) * (1 + math.sin(2 * math.pi * s / period_s + index)) / 2
        )

    def share(low: float, high: float, period_s: float) -> Callable[[float], float]:
        whole = wave(1000 * low, 1000 * high, period_s)
        return lambda s: whole(s) / 1000

    def grows(per_s: float) -> Callable[[float], int]:
        return lambda s: int(10**9 * (1 + index) + per_s * (1 + index / 10) * s)

    used = wave(60e9, 61e9, 60)
    total, reserved = 81559 * MIB, 479 * MIB
    util, memory_util = wave(90, 100, 3), wave(30, 60, 3)
    answers: Answers = {
        ("nvmlDeviceGetUtilizationRates",): lambda s: {"gpu": util(s), "memory": memory_util(s)},
        ("nvmlDeviceGetTemperature", 0): wave(58, 62, 40),
        ("nvmlDeviceGetMarginTemperature",): wave(24, 28, 40),
        ("nvmlDeviceGetPerformanceState",): 0,
        ("nvmlDeviceGetComputeRunningProcesses_v3",): [SimpleNamespace(pid=100 + index)],
        ("nvmlDeviceGetGraphicsRunningProcesses_v3",): [],
        ("nvmlDeviceGetPowerUsage",): wave(600_000, 690_000, 2),
        ("nvmlDeviceGetTotalEnergyConsumption",): grows(650_000),
        ("nvmlDeviceGetEnforcedPowerLimit",): 700_000,
        ("nvmlDeviceGetMemoryInfo",): lambda s: {
            "total": total,
            "used": used(s) + reserved,
            "free": total - used(s) - reserved,
        },
        ("nvmlDeviceGetMemoryInfo", 2): lambda s: {
            "total": total,
            "used": used(s),
            "free": total - used(s) - reserved,
            "reserved": reserved,
        },
        ("nvmlDeviceGetBAR1MemoryInfo",): {
            "bar1Total": 131072 * MIB,
            "bar1Used": 81080 * MIB,
            "bar1Free": 49992 * MIB,
        },
        ("nvmlDeviceGetClockInfo", 0): wave(1700, 1980, 5),
        ("nvmlDeviceGetClockInfo", 1): wave(1700, 1980, 5),
        ("nvmlDeviceGetClockInfo", 2): 2619,
        ("nvmlDeviceGetClockInfo", 3): wave(1400, 1545, 5),
        ("nvmlDeviceGetMaxClockInfo", 0): 1980,
        ("nvmlDeviceGetMaxClockInfo", 1): 1980,
        ("nvmlDeviceGetMaxClockInfo", 2): 2619,
        ("nvmlDeviceGetMaxClockInfo", 3): 1545,
        ("nvmlDeviceGetSupportedClocksEventReasons",): 0x1FF,
        ("nvmlDeviceGetCurrentClocksEventReasons",): lambda s: 0x4 if int(s + index) % 4 else 0,
        ("nvmlDeviceGetRemappedRows",): (0, 0, 0, 0),
        ("nvmlDeviceGetPcieReplayCounter",): 9,
        ("nvmlDeviceGetCurrPcieLinkGeneration",): 5,
        ("nvmlDeviceGetCurrPcieLinkWidth",): 16,
        ("nvmlDeviceGetMaxPcieLinkGeneration",): 5,
        ("nvmlDeviceGetMaxPcieLinkWidth",): 16,
    }
    for engine in ("Encoder", "Decoder", "Jpg", "Ofa"):
        answers[f"nvmlDeviceGet{engine}Utilization",] = [0, 167_000]
    for kind in (0, 1):
        for counter in (0, 1):
            answers["nvmlDeviceGetTotalEccErrors", kind, counter] = 0
            for place in (2, 7):
                answers["nvmlDeviceGetMemoryErrorCounter", kind, counter, place] = 0
    fields: dict[tuple[int, int], tuple[int, Any]] = {
        (82, 0): (UNSIGNED, wave(66, 70, 40)),
        (83, 0): (LONG_LONG, grows(650_000)),
        (186, 0): (UNSIGNED, wave(590_000, 700_000, 1)),
        (185, 2): (UNSIGNED, wave(80_000, 90_000, 2)),
        (197, 0): (LONG_LONG, grows(2e9)),
        (198, 0): (LONG_LONG, grows(3e9)),
        (138, ALL_LINKS): (LONG_LONG, grows(1e8)),
        (139, ALL_LINKS): (LONG_LONG, grows(1.1e8)),
    }
    fields |= {(n, 0): (LONG_LONG, 0) for n in (76, 169, 173, 174, 269, 270, 271)}
    fields[74, 0] = (LONG_LONG, grows(2e8))
    for link in range(18):
        fields[165, link] = (UNSIGNED, 1)
        fields |= {(n, link): (LONG_LONG, 0) for n in (161, 162, 163)}
    gpm: dict[int, Any] = {n: share(40, 90, 3) for n in (1, 2, 3, 5, 7, 10)}
    gpm |= {n: share(0, 5, 3) for n in (4, 6, 9, 11, 12, 13)}
    gpm |= {20: share(1800, 2000, 2), 21: share(2800, 3000, 2)}
    gpm |= {60: share(90_000, 110_000, 2), 61: share(90_000, 100_000, 2)}
    return Table(
        f"GPU-5e7a0000-0000-4000-8000-{index:012x}",
        f"00000000:{0x1B + 0x20 * index:02X}:00.0",
        *(answers, fields, gpm, 0x8 | 0x1 | 0x2 | 0x100 | 0x8000),
        migs=[],
    )


def section(path: Path, title: str) -> str:
    """Return the output under a title such as ``idle :: query (-q)``, from a capture."""
    text = path.read_text(encoding="utf-8")
    start = text.index(f"\n# {title}")
    bar = text.index("\n####", start)
    end = text.find("\n####", bar + 5)
    return text[bar:end].partition("\n")[2].partition("\n")[2]


def from_capture(path: Path, state: str) -> Table:
    """Return the table of a capture's GPU: what nvidia-smi shows as N/A is not supported.

    nvidia-smi shows neither counters of energy nor GPM, so these are not there either.
    """
    tree = _tree(section(path, f"{state} :: query (-q)"))
    rows = list(
        csv.reader(io.StringIO(section(path, f"{state} :: query-gpu")), skipinitialspace=True)
    )
    row = {name.split(" [")[0]: value for name, value in zip(rows[0], rows[1], strict=True)}
    name = next(key for key in tree if key.startswith("GPU 0"))
    gpu = tree[name]
    migs = [_mig(row["uuid"], n, gpu, m) for n, m in enumerate(gpu.get("MIG Device", []))]
    can_mig = row["mig.mode.current"] != "[N/A]"
    nvlinks = section(path, "capabilities :: nvlink -s").count(" GB/s")
    fields = _fields(gpu, row)
    fields |= {(165, link): (UNSIGNED, 1) for link in range(nvlinks)}
    return Table(
        *(row["uuid"], row["pci.bus_id"], _answers(gpu, row), fields),
        events=0x8 | (0x3 if row["ecc.mode.current"] == "Enabled" else 0),
        migs=migs if can_mig else None,
    )


def _mig(uuid: str, index: int, gpu: Tree, mig: Tree) -> Table:
    table = Table(uuid, "", _memory(mig, "Shared FB Memory Usage", "Shared BAR1 Memory"), gpm=None)
    table.mig_uuid = f"MIG-{index:08x}-0000-0000-0000-{index:012x}"
    table.instance = int(mig["GPU Instance ID"])
    errors = mig["ECC Errors"]["Volatile"]["SRAM Uncorrectable"]
    _put(table.answers, ("nvmlDeviceGetMemoryErrorCounter", 1, 0, 7), errors)
    inside = [p for p in gpu["Process ID"] if p["GPU instance ID"] == str(table.instance)]
    table.answers["nvmlDeviceGetComputeRunningProcesses_v3",] = inside
    return table


def _answers(gpu: Tree, row: Mapping[str, str]) -> Answers:
    answers = _memory(gpu, "FB Memory Usage", "BAR1 Memory Usage")
    use = gpu["Utilization"]
    if _number(use["GPU"]) is not None:
        rates = {"gpu": _number(use["GPU"]), "memory": _number(use["Memory"])}
        answers["nvmlDeviceGetUtilizationRates",] = rates
    for name, key in (("Encoder",) * 2, ("Decoder",) * 2, ("Jpg", "JPEG"), ("Ofa", "OFA")):
        if _number(use[key]) is not None:
            answers[f"nvmlDeviceGet{name}Utilization",] = [_number(use[key]), 167_000]
    heat = gpu["Temperature"]
    _put(answers, ("nvmlDeviceGetTemperature", 0), heat["GPU Current Temp"])
    _put(answers, ("nvmlDeviceGetMarginTemperature",), heat["GPU T.Limit Temp"])
    _put(answers, ("nvmlDeviceGetTemperatureThreshold", 3), heat.get("GPU Max Operating Temp", ""))
    _put(answers, ("nvmlDeviceGetFanSpeed",), gpu["Fan Speed"])
    _put(answers, ("nvmlDeviceGetPerformanceState",), gpu["Performance State"].strip("P"))
    power = gpu["GPU Power Readings"]
    _put(answers, ("nvmlDeviceGetPowerUsage",), power["Average Power Draw"], 1000)
    _put(answers, ("nvmlDeviceGetEnforcedPowerLimit",), power["Current Power Limit"], 1000)
    for number, clock in enumerate(("Graphics", "SM", "Memory", "Video")):
        _put(answers, ("nvmlDeviceGetClockInfo", number), gpu["Clocks"][clock])
        _put(answers, ("nvmlDeviceGetMaxClockInfo", number), gpu["Max Clocks"][clock])
    for name, key in (("Supported", "supported"), ("Current", "active")):
        mask = int(row[f"clocks_event_reasons.{key}"], 16)
        answers[f"nvmlDeviceGet{name}ClocksEventReasons",] = mask
    pci, link = gpu["PCI"], gpu["PCI"]["GPU Link Info"]
    _put(answers, ("nvmlDeviceGetPcieReplayCounter",), pci["Replays Since Reset"])
    _put(answers, ("nvmlDeviceGetPcieThroughput", 0), pci["Tx Throughput"])
    _put(answers, ("nvmlDeviceGetPcieThroughput", 1), pci["Rx Throughput"])
    for name, now in (("Curr", "Current"), ("Max", "Max")):
        generation = link["PCIe Generation"][now]
        _put(answers, (f"nvmlDeviceGet{name}PcieLinkGeneration",), generation)
        _put(answers, (f"nvmlDeviceGet{name}PcieLinkWidth",), link["Link Width"][now].strip("x"))
    places = {"l1_cache": 0, "l2_cache": 1, "dram": 2, "register_file": 3, "texture_memory": 4}
    places |= {"cbu": 6, "sram": 7}
    for kind, error in enumerate(("corrected", "uncorrected")):
        for counter, since in enumerate(("volatile", "aggregate")):
            total = ("nvmlDeviceGetTotalEccErrors", kind, counter)
            _put(answers, total, row[f"ecc.errors.{error}.{since}.total"])
            for place, number in places.items():
                one = ("nvmlDeviceGetMemoryErrorCounter", kind, counter, number)
                _put(answers, one, row[f"ecc.errors.{error}.{since}.{place}"])
    rows = [
        row[f"remapped_rows.{key}"]
        for key in ("correctable", "uncorrectable", "pending", "failure")
    ]
    if rows[0] != "[N/A]":
        answers["nvmlDeviceGetRemappedRows",] = [_number(value) for value in rows]
    if gpu["MIG Mode"]["Current"] != "Enabled":
        for key, kinds in (("Compute", ("C", "C+G")), ("Graphics", ("G", "C+G"))):
            found = [p for p in gpu["Process ID"] if p["Type"] in kinds]
            answers[f"nvmlDeviceGet{key}RunningProcesses_v3",] = found
    return answers


def _memory(tree: Tree, whole: str, bar1: str) -> Answers:
    numbers = {name: _number(value) for name, value in tree[whole].items()}
    used = {name.lower(): int(value) * MIB for name, value in numbers.items() if value is not None}
    window = {f"bar1{name}": int(_number(v) or 0) * MIB for name, v in tree[bar1].items()}
    return {("nvmlDeviceGetMemoryInfo", 2): used, ("nvmlDeviceGetBAR1MemoryInfo",): window}


def _fields(gpu: Tree, row: Mapping[str, str]) -> dict[tuple[int, int], tuple[int, Any]]:
    instant, average = "Instantaneous Power Draw", "Average Power Draw"
    texts = {
        (82, 0): (gpu["Temperature"]["Memory Current Temp"], 1),
        (186, 0): (gpu["GPU Power Readings"][instant], 1000),
        (186, 1): (gpu["Module Power Readings"][instant], 1000),
        (185, 2): (gpu.get("GPU Memory Power Readings", {}).get(average, ""), 1000),
        (29, 0): (row["retired_pages.single_bit_ecc.count"], 1),
        (30, 0): (row["retired_pages.double_bit.count"], 1),
        (31, 0): (row["retired_pages.pending"], 1),
    }
    names = {74: "sw_power_cap", 76: "sync_boost", 269: "sw_thermal_slowdown"}
    names |= {270: "hw_thermal_slowdown", 271: "hw_power_brake_slowdown"}
    for number, name in names.items():
        texts[number, 0] = (row[f"clocks_event_reasons_counters.{name}"], 1000)
    fields: dict[tuple[int, int], tuple[int, Any]] = {}
    for key, (text, scale) in texts.items():
        value = _number(text)
        if value is not None:
            fields[key] = (LONG_LONG if key[0] in names else UNSIGNED, value * scale)
    return fields


def _put(answers: Answers, key: tuple[Any, ...], text: str, scale: float = 1) -> None:
    number = _number(text)
    if number is not None:
        answers[key] = round(number * scale)


def _number(text: str) -> float | None:
    """Return the number of ``41 C``, ``16x``, ``No``; None for ``N/A`` and the like."""
    if text in {"Yes", "No"}:
        return float(text == "Yes")
    found = re.match(r"-?\d+(\.\d+)?\b", text)
    return float(found[0]) if found else None


def _tree(text: str) -> Tree:
    """Return what ``nvidia-smi -q`` prints, by its indents. What comes again is a list."""
    tree: Tree = {}
    above: list[tuple[int, Tree]] = [(-1, tree)]
    for indent, name, value in _lines(text):
        while above[-1][0] >= indent:
            above.pop()
        here = above[-1][1]
        if name in {"GPU instance ID", "Process ID", "Compute instance ID"}:
            # The members of a process stand beside each other, some of them further in.
            processes = above[1][1].setdefault("Process ID", [])
            if name == "GPU instance ID":
                processes.append({})
            processes[-1][name] = value
            if name == "Process ID":
                above.append((indent, processes[-1]))
        elif value is None:
            inner: Tree = {}
            if name == "MIG Device":
                here.setdefault(name, []).append(inner)
            else:
                here[name] = inner
            above.append((indent, inner))
            if name.startswith("GPU 0"):
                inner["Process ID"] = []
        elif name not in here:
            here[name] = value
            if name in {"HW Slowdown"}:
                above.append((indent, {}))
    return tree


def _lines(text: str) -> Iterator[tuple[int, str, str | None]]:
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("="):
            continue
        name, parted, value = stripped.partition(" : ")
        yield len(line) - len(line.lstrip()), name.strip(), value.strip() if parted else None


def names(tables: Sequence[Table]) -> list[str]:
    """Return the kernel's names of GPUs, as in /proc/driver/nvidia/gpus."""
    return [f"0000:{t.bus_id.lower().partition(':')[2]}" for t in tables]
