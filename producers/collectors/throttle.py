"""Cores slowed down because they are too hot: ``sys/devices/system/cpu/cpu*/thermal_throttle``.

Kernel: drivers/thermal/intel/therm_throt.c. Counts and times (milliseconds) since boot, of Intel
processors. The sensor of a core is seen by all its threads and that of a package by all its
cores, and each of them counts: so one thread of a core and one core of a package are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from producers.collectors.cpuidle import CORES, core_names
from producers.source import SECOND_NS, Collector, Doubles, Field
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

_MS_TO_PERCENT = 0.1


def find_packages(tree: TreeDraft) -> None:
    """Each package: how often it was too hot, and for what share of the time."""
    seen: set[str] = set()
    for core in core_names(tree):
        package = _topology(tree, core, "physical_package_id")
        if package in seen:
            continue
        at = _file(tree, core, "package_throttle_count")
        if at is None:
            continue
        seen.add(package)
        name = f"package{package}" if package else core
        tree.channel(at, _channel("throttle.package_events", name, "/s"))
        at = _file(tree, core, "package_throttle_total_time_ms")
        if at is not None:
            channel = _channel("throttle.package_time", name, "%")
            tree.channel(at, channel, scale=_MS_TO_PERCENT)


def find_cores(tree: TreeDraft) -> None:
    """Each core by its first thread: how often it was too hot; and all of them together."""
    seen: set[tuple[str, str]] = set()
    events: list[int] = []
    times: list[int] = []
    for core in core_names(tree):
        package, number = (_topology(tree, core, f) for f in ("physical_package_id", "core_id"))
        if number and (package, number) in seen:
            continue
        at = _file(tree, core, "core_throttle_count")
        if at is None:
            continue
        seen.add((package, number))
        events.append(len(tree.fields))
        tree.channel(at, _channel("throttle.core_events", core, "/s"))
        at = _file(tree, core, "core_throttle_total_time_ms")
        if at is not None:
            times.append(len(tree.fields))
            tree.field(at, Field(f"time {core}", True, _MS_TO_PERCENT))
    channels = [_channel("throttle.core_events", "", "/s")] * bool(events)
    channels += [_channel("throttle.core_time", "", "%")] * bool(times)
    if channels:
        tree.derived(channels, lambda rates: _totals(rates, events, times))


def _totals(rates: Doubles, events: Sequence[int], times: Sequence[int]) -> Doubles:
    """Return the cores' events together, and the mean of their times where these are known."""
    totals = [rates[events].sum()]
    if times:
        totals.append(rates[times].mean())
    return np.array(totals)


def _topology(tree: TreeDraft, core: str, name: str) -> str:
    return tree.text(f"{CORES}/{core}/topology/{name}")


def _file(tree: TreeDraft, core: str, name: str) -> int | None:
    return tree.file(f"{CORES}/{core}/thermal_throttle/{name}")


def _channel(metric: str, device: str, unit: str) -> Channel:
    return Channel(metric, device, Subsystem.CPU, unit, Kind.RATE)


def collector() -> Collector:
    """Return a collector of thermal throttling."""
    return Collector(
        "throttle",
        (
            FileTree(
                CORES,
                find_packages,
                remedy="Without it a package that is slowed down by heat is not seen. Only Intel "
                "processors have it, and virtual machines do not.",
            ),
            FileTree(
                CORES,
                find_cores,
                remedy="Without it a core that is slowed down by heat is not seen. Only Intel "
                "processors have it, and virtual machines do not.",
                period_ns=SECOND_NS,
            ),
        ),
    )
