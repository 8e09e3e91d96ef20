"""Which hardware events to count on which processor, and how they fit its counters.

What the kernel has a name for on every processor (its generic events) is asked for by that name;
the kernel says ENOENT where the processor has no such event. What it has none for are raw events,
by vendor. Sources: tools/perf/pmu-events/arch in the kernel's tree, for Intel from Sandy Bridge
(``CYCLE_ACTIVITY``, ``MEM_INST_RETIRED`` and ``MEM_UOPS_RETIRED``), for AMD from Zen
(``ls_dispatch``, ``ex_no_retire``, ``l3_lookup_state``); drivers/perf/arm_pmuv3.c, where sysfs
lists the events that a core has.

The same name means the nearest thing that a processor counts:

==================== ================================ ============================ =============
event                Intel                            AMD                          Arm
==================== ================================ ============================ =============
cache references,    last-level cache                 L2 (the L3, which is of many last-level
misses                                                cores, is counted apart)     cache, reads
stalls, all          no execution                     nothing retired (Zen 4 on)   nothing sent
stalls, memory       --                               oldest waits for its load    backend waits
stalls, L3 miss      no execution, a load missed L3   --                           --
loads, stores        retired instructions             dispatched                   retired
==================== ================================ ============================ =============
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from producers.perf.events import HARDWARE, RAW, SOFTWARE, Event
from producers.reading import Reader

PMUS = "sys/bus/event_source/devices"
MODALIAS = "sys/devices/system/cpu/modalias"
WATCHDOG = "proc/sys/kernel/nmi_watchdog"

_X86_VENDORS = {0: "intel", 2: "amd", 9: "amd"}  # 9 is Hygon, a licensed Zen
_INTEL_L3_STALLS = {
    # Skylake to Emerald Rapids. Before, the same code meant any outstanding load.
    *(0x4E, 0x5E, 0x55, 0x8E, 0x9E, 0xA5, 0xA6, 0x66, 0x6A, 0x6C, 0x7D, 0x7E, 0xA7, 0x8C, 0x8D),
    *(0x8F, 0xCF),
}
_INTEL_SMALL = {
    # Atom, Xeon Phi: other codes.
    *(0x1C, 0x26, 0x27, 0x35, 0x36, 0x37, 0x4A, 0x4C, 0x4D, 0x5A, 0x5C, 0x5F, 0x7A, 0x86, 0x96),
    *(0x9C, 0x57, 0x85, 0xAF, 0xB6, 0xDD),
}
_INTEL_FIRST_WITH_THESE = 0x2A  # Sandy Bridge

_GENERIC = (
    (("cycles", 0), ("instructions", 1), ("reference_cycles", 9)),
    (("branches", 4), ("branch_misses", 5)),
    (("cache_references", 2), ("cache_misses", 3)),
    (("stalls_frontend", 7), ("stalls_backend", 8)),
)
_SOFTWARE = (
    ("context_switches", 3),
    ("cpu_migrations", 4),
    ("minor_faults", 5),
    ("major_faults", 6),
    ("cgroup_switches", 11),
)
_SOFTWARE_NOT_X86 = (("alignment_faults", 7), ("emulation_faults", 8))
"""Counted by the kernel of other architectures only; on x86 they stand at 0."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What a processor is: `vendor` is ``intel``, ``amd``, ``arm`` or empty."""

    vendor: str
    family: int = 0
    model: int = 0


def identify(modalias: bytes) -> Processor:
    """Return the processor for ``cpu:type:x86,ven0002fam0019mod0011:feature:...``."""
    found = re.match(rb"cpu:type:x86,ven([\dA-F]{4})fam([\dA-F]{4})mod([\dA-F]{4}):", modalias)
    if found:
        vendor, family, model = (int(number, 16) for number in found.groups())
        return Processor(_X86_VENDORS.get(vendor, ""), family, model)
    return Processor("arm" if modalias.startswith(b"cpu:type:aarch64:") else "")


def hardware(reader: Reader) -> list[list[Event]]:
    """Return the groups of hardware events for this machine's processor.

    The counter of the time stamp is in the first: what share of all cycles the cores ran.
    """
    text = reader.small(MODALIAS)
    cpu = identify(text) if isinstance(text, bytes) else Processor("")
    generic = [[Event(n, HARDWARE, config) for n, config in family] for family in _GENERIC]
    raw = _arm(reader) if cpu.vendor == "arm" else _x86(cpu)
    named = {event.name for family in raw for event in family}
    if cpu.vendor == "intel" and "stalls_total" in named:
        named |= {"stalls_frontend", "stalls_backend"}  # it knows neither, since Haswell
    families = [[e for e in family if e.name not in named] for family in generic] + raw
    # Cycles and the like have counters of their own, but the watchdog takes that of the cycles.
    watchdog = reader.small(WATCHDOG)
    watched = isinstance(watchdog, bytes) and watchdog.strip() == b"1"
    fixed = {"intel": {"cycles", "instructions", "reference_cycles"}, "arm": {"cycles"}}
    free = fixed.get(cpu.vendor, set()) - ({"cycles"} if watched else set())
    counters = 6 if cpu.vendor in ("amd", "arm") else 4
    if watched and cpu.vendor == "amd":
        counters -= 1
    groups = pack(families, free, counters)
    msr = pmu_type(reader, "msr")
    if msr is not None and groups:
        groups[0].append(Event("tsc", msr, 0))
    return groups


def software(reader: Reader) -> list[list[Event]]:
    """Return the group of events that the kernel counts itself."""
    text = reader.small(MODALIAS)
    x86 = isinstance(text, bytes) and text.startswith(b"cpu:type:x86,")
    events = _SOFTWARE if x86 else _SOFTWARE + _SOFTWARE_NOT_X86
    return [[Event(name, SOFTWARE, config) for name, config in events]]


def amd_l3(reader: Reader) -> list[list[Event]]:
    """Return the group for the L3 caches of an AMD processor; none where it has no such PMU."""
    pmu = pmu_type(reader, "amd_l3")
    if pmu is None:
        return []
    # l3_lookup_state: all requests, and those that missed. The kernel adds slices and threads.
    return [[Event("l3_references", pmu, 0xFF04), Event("l3_misses", pmu, 0x0104)]]


def pmu_type(reader: Reader, name: str) -> int | None:
    """Return the number by which a PMU is asked for."""
    text = reader.small(f"{PMUS}/{name}/type")
    return int(text) if isinstance(text, bytes) and text.strip().isdigit() else None


def pack(families: Iterable[Sequence[Event]], free: set[str], counters: int) -> list[list[Event]]:
    """Return groups that fit into so many counters; families, which are compared, stay together.

    Events in `free` have a counter of their own. First fit, in order.
    """
    groups: list[list[Event]] = []
    room: list[int] = []
    for family in families:
        need = sum(event.name not in free for event in family)
        for i, left in enumerate(room):
            if need <= left:
                groups[i] += family
                room[i] -= need
                break
        else:
            if family:
                groups.append(list(family))
                room.append(counters - need)
    return groups


def _x86(cpu: Processor) -> list[list[Event]]:
    stalls: list[Event] = []
    memory: list[Event] = []
    if cpu.vendor == "intel" and cpu.family == 6 and cpu.model >= _INTEL_FIRST_WITH_THESE:
        if cpu.model not in _INTEL_SMALL:
            stalls.append(_raw("stalls_total", 0xA3, 0x04, 4))
            memory += [_raw("loads", 0xD0, 0x81), _raw("stores", 0xD0, 0x82)]
        if cpu.model in _INTEL_L3_STALLS:
            stalls.append(_raw("stalls_l3_miss", 0xA3, 0x06, 6))
    elif cpu.vendor == "amd" and cpu.family >= 0x17:
        # Unit masks add up: 1 loads, 2 stores, 4 an operation that does both.
        memory += [_raw("loads", 0x29, 0x05), _raw("stores", 0x29, 0x06)]
        zen3 = cpu.family == 0x19 and (cpu.model < 0x10 or 0x20 <= cpu.model < 0x60)
        if cpu.family >= 0x19 and not zen3:
            # Empty, not complete, other; not 0x10, the other thread's turn.
            stalls += [_raw("stalls_total", 0xD6, 0x0B), _raw("stalls_memory", 0xD6, 0xA2)]
    return [stalls, memory]


def _raw(name: str, code: int, unit_mask: int, counter_mask: int = 0) -> Event:
    """Encode an event of x86: the counter mask counts cycles with so many at least."""
    return Event(name, RAW, counter_mask << 24 | unit_mask << 8 | code)


_ARM = (
    (("cache_references", "ll_cache_rd"), ("cache_misses", "ll_cache_miss_rd")),
    (("stalls_total", "stall"), ("stalls_memory", "stall_backend_mem")),
    (("loads", "ld_retired"), ("stores", "st_retired")),
)


def _arm(reader: Reader) -> list[list[Event]]:
    """Take what sysfs lists: a core that lacks an event counts 0 without a word."""
    names = reader.list(PMUS)
    pmus = [n for n in names if n.startswith("armv8_")] if isinstance(names, tuple) else []
    families: list[list[Event]] = []
    for family in _ARM if pmus else ():
        events = []
        for name, alias in family:
            text = reader.small(f"{PMUS}/{pmus[0]}/events/{alias}")
            found = re.match(rb"event=(0x[\da-f]+)\s*$", text) if isinstance(text, bytes) else None
            if found:
                events.append(Event(name, RAW, int(found[1], 16)))
        # The kernel's generic cache events are of the L1 here: both of these, or neither.
        families.append(events if len(events) == len(family) or "cache" not in family[0][0] else [])
    return families
