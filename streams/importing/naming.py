"""What the columns of the paper's files mean here: channel, scale, and how they count.

A metric that means the same as one of the agent's has its name, unit and kind. Every other keeps
its own name, cleaned, after the name of its group: ``turbostat.pkg_watt``. Kernel counters that
are only nearly the same keep their own: ``rx_dropped`` of an interface does not hold what
/proc/net/dev adds to its ``drop``.

What is counted becomes a rate. perf and turbostat count from one row to the next, groups that end
with ``_diff`` too; of the other counters of the kernel the column itself must tell.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from schemas.records import Channel, Kind, Subsystem
from streams.importing.columns import CORE_GROUPS, MEMORY_GROUPS, Column
from streams.importing.gpu_names import field_meaning
from streams.importing.meaning import How, Meaning, base_unit, clean


class Ours(NamedTuple):
    """A metric of the agent."""

    metric: str
    unit: str
    scale: float = 1
    how: How = How.EITHER
    kind: Kind = Kind.RATE
    part: Subsystem | None = None
    """Where it is not that of the group."""


_CPU, _MEMORY, _NETWORK, _STORAGE = (
    Subsystem.CPU,
    Subsystem.MEMORY,
    Subsystem.NETWORK,
    Subsystem.STORAGE,
)


def _event(name: str, unit: str = "/s", part: Subsystem = Subsystem.CPU) -> Ours:
    return Ours(f"perf.{name}", unit, how=How.PER_SAMPLE, part=part)


PERF = {
    "ipc": Ours("perf.ipc", "instructions/cycle", how=How.LEVEL, kind=Kind.GAUGE),
    "cycles": _event("cycles", "cycles/s"),
    "cpu_cycles": _event("cycles", "cycles/s"),
    "ref_cycles": _event("reference_cycles", "cycles/s"),
    "instructions": _event("instructions", "instructions/s"),
    "branches": _event("branches"),
    "branch_instructions": _event("branches"),
    "branch_misses": _event("branch_misses"),
    "cache_references": _event("cache_references", part=_MEMORY),
    "cache_misses": _event("cache_misses", part=_MEMORY),
    "context_switches": _event("context_switches"),
    "cpu_migrations": _event("cpu_migrations"),
    "minor_faults": _event("minor_faults", part=_MEMORY),
    "major_faults": _event("major_faults", part=_MEMORY),
    "stalls_total": _event("stalls_total"),
    "stalls_l3_miss": _event("stalls_l3_miss", part=_MEMORY),
}
"""Names of ``perf list``, and of the events of Intel's processors that the paper has."""


def _gauge(metric: str, unit: str) -> Ours:
    return Ours(metric, unit, how=How.LEVEL, kind=Kind.GAUGE)


TURBOSTAT = {
    "busy_percent": _gauge("cpu.c0_residency", "%"),
    "bzy_mhz": _gauge("cpu.frequency_busy", "MHz"),
    "avg_mhz": _gauge("cpu.frequency_average", "MHz"),
}
TURBOSTAT_CORE = {"irq": Ours("irq.core", "interrupts/s", how=How.PER_SAMPLE)}
"""What is so of one core only."""
_IDLE_STATE = re.compile(r"(poll|c\d+[a-z]*)_percent")
_ENTRIES = re.compile(r"poll|c\d+[a-z]*")

INTERFACE = {
    "rx_bytes": Ours("net.rx_bytes", "B/s"),
    "rx_packets": Ours("net.rx_packets", "packets/s"),
    "rx_errors": Ours("net.rx_errs", "/s"),
    "rx_fifo_errors": Ours("net.rx_fifo", "/s"),
    "rx_compressed": Ours("net.rx_compressed", "/s"),
    "multicast": Ours("net.rx_multicast", "/s"),
    "tx_bytes": Ours("net.tx_bytes", "B/s"),
    "tx_packets": Ours("net.tx_packets", "packets/s"),
    "tx_errors": Ours("net.tx_errs", "/s"),
    "tx_dropped": Ours("net.tx_drop", "/s"),
    "tx_fifo_errors": Ours("net.tx_fifo", "/s"),
    "tx_compressed": Ours("net.tx_compressed", "/s"),
    "collisions": Ours("net.tx_colls", "/s"),
}
"""Kernel: Documentation/ABI/testing/sysfs-class-net-statistics, net/core/net-procfs.c."""

RETRANSMITS = {
    "retrans_segs": Ours("tcp.retrans_segs", "segments/s"),
    "tcp_lost_retransmit": Ours("tcp_ext.lost_retransmit", "/s"),
    "tcp_fast_retrans": Ours("tcp_ext.fast_retrans", "/s"),
    "tcp_slow_start_retrans": Ours("tcp_ext.slow_start_retrans", "/s"),
    "tcp_syn_retrans": Ours("tcp_ext.syn_retrans", "/s"),
    "tcp_retrans_fail": Ours("tcp_ext.retrans_fail", "/s"),
    "tcp_timeouts": Ours("tcp_ext.timeouts", "/s"),
}

DISK = {
    "reads_completed": Ours("disk.reads", "requests/s"),
    "reads_completed_successfully": Ours("disk.reads", "requests/s"),
    "reads_merged": Ours("disk.reads_merged", "requests/s"),
    "sectors_read": Ours("disk.read_bytes", "B/s", 512),
    "time_spent_reading_ms": Ours("disk.read_time", "ms/s"),
    "writes_completed": Ours("disk.writes", "requests/s"),
    "writes_merged": Ours("disk.writes_merged", "requests/s"),
    "sectors_written": Ours("disk.write_bytes", "B/s", 512),
    "time_spent_writing_ms": Ours("disk.write_time", "ms/s"),
    "i_os_currently_in_progress": Ours(
        "disk.in_flight", "requests", how=How.LEVEL, kind=Kind.GAUGE
    ),
    "time_spent_doing_i_os_ms": Ours("disk.busy", "%", 100 / 1e3),
    "weighted_time_spent_doing_i_os_ms": Ours("disk.queue", "requests", 1 / 1e3),
    "discards_completed_successfully": Ours("disk.discards", "requests/s"),
    "discards_merged": Ours("disk.discards_merged", "requests/s"),
    "sectors_discarded": Ours("disk.discard_bytes", "B/s", 512),
    "time_spent_discarding": Ours("disk.discard_time", "ms/s"),
    "flush_requests_completed_successfully": Ours("disk.flushes", "requests/s"),
    "time_spent_flushing": Ours("disk.flush_time", "ms/s"),
}
"""Names as in Documentation/admin-guide/iostats.rst."""

GROUPS: dict[str, tuple[Subsystem, dict[str, Ours], How]] = {
    "perf": (_CPU, PERF, How.PER_SAMPLE),
    "turbostat": (_CPU, TURBOSTAT, How.PER_SAMPLE),
    "storage": (_STORAGE, DISK, How.EITHER),
    "network_inter_stat": (_NETWORK, INTERFACE, How.EITHER),
    "network_tcp_retrans": (_NETWORK, RETRANSMITS, How.EITHER),
    "network_protocol_counts": (_NETWORK, {}, How.LEVEL),
}
"""By group: the part of the host, metrics that are ours, and how what counts does so."""

COUNTED_UNITS = {"count", "bytes", "ms", "us", "ns", "s", "sectors", "packets", "j"}
"""Units of what is counted, in lower case; with others (MHz, W, %, -) a column is a level."""

WAITS_FOR_DISK = {"dirty", "writeback", "writeback_tmp", "nfs_unstable"}
"""Lines of meminfo that speak of storage."""

_WORDS = {"gpu": Subsystem.GPU, "net": _NETWORK, "mem": _MEMORY, "disk": _STORAGE, "io": _STORAGE}


def meaning(column: Column) -> Meaning:
    """Return what a column is here."""
    if column.group.lower().startswith("gpu"):
        return field_meaning(column.metric, column.unit, column.instance)
    group, metric = clean(column.group), clean(column.metric)
    if group in MEMORY_GROUPS:
        return _memory(column, metric)
    subsystem, table, counts = GROUPS.get(group, (_subsystem(group), {}, How.LEVEL))
    if group in CORE_GROUPS and column.instance.isdigit():
        # A number is a core, as the kernel numbers them.
        column = replace(column, instance=f"cpu{column.instance}")
    if group == "turbostat":
        table = {**table, **_turbostat(metric, column.instance)}
    ours = table.get(metric)
    if ours is not None:
        how = How.PER_SAMPLE if column.differences and ours.how is not How.LEVEL else ours.how
        part = ours.part or subsystem
        channel = Channel(ours.metric, column.instance, part, ours.unit, ours.kind)
        return Meaning(channel, ours.scale, how, ours=True)
    counted = column.unit.lower() in COUNTED_UNITS
    how = How.PER_SAMPLE if column.differences else counts if counted else How.LEVEL
    return _own(column, f"{group}.{metric}", subsystem, how)


def _turbostat(metric: str, core: str) -> dict[str, Ours]:
    """Return what turbostat takes from the kernel, as the agent does, under names it makes."""
    if core.startswith("cpu"):
        found = dict(TURBOSTAT_CORE)
    elif not core and _ENTRIES.fullmatch(metric):
        # Of the whole machine: the sum over its cores.
        found = {metric: Ours(f"cpuidle.{metric}_entries", "/s", how=How.PER_SAMPLE)}
    else:
        found = {}
    if state := _IDLE_STATE.fullmatch(metric):
        found[metric] = Ours(f"cpuidle.{state[1]}", "%", how=How.LEVEL)
    return found


def own_name(column: Column) -> Meaning:
    """Return what a column is when another has its name already: never one of the agent's."""
    found = meaning(column)
    group = f"{clean(column.group)}_diff" if column.differences else clean(column.group)
    channel = replace(found.channel, metric=f"{group}.{clean(column.metric)}")
    return replace(found, channel=channel, ours=False)


def _memory(column: Column, metric: str) -> Meaning:
    subsystem = _STORAGE if metric in WAITS_FOR_DISK else _MEMORY
    if column.differences:
        return _own(column, f"memory.{metric}_change", subsystem, How.PER_SAMPLE)
    # Those of huge pages are counted, whatever unit a table gives to all lines of meminfo.
    in_bytes = column.unit.lower() == "kb" and not metric.startswith("huge_pages_")
    scale, unit = base_unit(column.unit) if in_bytes else (1, "pages")
    channel = Channel(f"memory.{metric}", column.instance, subsystem, unit, Kind.GAUGE)
    return Meaning(channel, scale, How.LEVEL, ours=not column.instance)


def _own(column: Column, metric: str, subsystem: Subsystem, how: How) -> Meaning:
    scale, unit = base_unit(column.unit)
    if how is How.LEVEL:
        return Meaning(
            Channel(metric, column.instance, subsystem, unit, Kind.GAUGE), scale, how, ours=False
        )
    channel = Channel(metric, column.instance, subsystem, f"{unit}/s", Kind.RATE)
    return Meaning(channel, scale, how, ours=False)


def _subsystem(group: str) -> Subsystem:
    """Return the part of the host that an unknown group speaks of, by its name."""
    return next((part for word, part in _WORDS.items() if word in group), _CPU)
