"""The collector of events over a stand-in kernel, and one reading of this machine."""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Mapping

import numpy as np
import pytest

from producers.collectors.perf import RETRY_NS, collectors
from producers.group import Group
from producers.perf.catalog import MODALIAS, PMUS, WATCHDOG, hardware, identify, pack
from producers.perf.channels import over_all_cores
from producers.perf.events import HARDWARE, RAW, Event
from producers.reading import MemoryReader, SystemReader
from producers.source import Collector, Options
from schemas.records import Kind
from tests.producers.fake_perf import FakeKernel, error

MS = 1_000_000
TICK = 100 * MS

SKYLAKE = b"cpu:type:x86,ven0000fam0006mod0055:feature:,0000,0001\n"
HASWELL = b"cpu:type:x86,ven0000fam0006mod003F:feature:,0000\n"
DENVERTON = b"cpu:type:x86,ven0000fam0006mod005F:feature:,0000\n"
ZEN2 = b"cpu:type:x86,ven0002fam0017mod0031:feature:,0000\n"
ZEN4 = b"cpu:type:x86,ven0002fam0019mod0011:feature:,0000\n"
ZEN5 = b"cpu:type:x86,ven0002fam001Amod0002:feature:,0000\n"
GRACE = b"cpu:type:aarch64:feature:,0000,0001\n"

ONLINE = "sys/devices/system/cpu/online"
MSR = {f"{PMUS}/msr/type": b"9\n"}


def files(cpu: bytes, online: bytes = b"0-1\n", **more: bytes) -> dict[str, bytes]:
    return {MODALIAS: cpu, ONLINE: online, **MSR} | {
        path.replace("__", "/"): text for path, text in more.items()
    }


def names(groups: list[list[Event]]) -> list[list[str]]:
    return [[event.name for event in group] for group in groups]


PACE = {
    # Cycles, instructions and so on a microsecond; type and config as the kernel's headers have.
    (0, 0): 3000,  # cycles
    (0, 1): 4500,  # instructions
    (0, 9): 2500,  # reference cycles
    (0, 4): 800,  # branches
    (0, 5): 16,  # branch misses
    (0, 2): 50,  # cache references
    (0, 3): 20,  # cache misses
    (4, 0x040004A3): 900,  # cycle_activity.stalls_total
    (4, 0x060006A3): 300,  # cycle_activity.stalls_l3_miss
    (4, 0x81D0): 1100,  # mem_inst_retired.all_loads
    (4, 0x82D0): 500,  # mem_inst_retired.all_stores
    (9, 0): 2400,  # msr/tsc/
    (1, 3): 12,  # context switches
    (1, 4): 2,
    (1, 5): 40,
    (1, 6): 1,
    (1, 11): 3,
}
FIXED = frozenset({(0, 0), (0, 1), (0, 9)})


def skylake(**more: object) -> FakeKernel:
    kernel = FakeKernel(pace=dict(PACE), fixed=FIXED)
    for name, value in more.items():
        setattr(kernel, name, value)
    return kernel


class Host:
    """The collector in a group, a tick after the other."""

    def __init__(self, kernel: FakeKernel, files: Mapping[str, bytes], perf: str = "total") -> None:
        self.kernel = kernel
        self.reader = MemoryReader(files)
        (self.collector,) = collectors(Options(perf), kernel)
        self.group = Group([self.collector], self.reader)
        self.at_ns = 5_000_000_000

    def tick(self, ns: int = TICK) -> dict[str, float]:
        self.kernel.run(ns)
        self.at_ns += ns
        values = self.group.collect(self.at_ns, whole=True).tolist()
        return dict(zip([c.label for c in self.group.channels], values, strict=True))

    @property
    def failures(self) -> int:
        return self.group.stats["perf"].failures.total()


def test_processors_by_their_name() -> None:
    assert identify(ZEN4).vendor == "amd"
    assert (identify(ZEN4).family, identify(ZEN4).model) == (0x19, 0x11)
    assert identify(SKYLAKE).vendor == "intel"
    assert identify(GRACE).vendor == "arm"
    for text in (b"", b"cpu:type:x86,ven000Afam0007mod003B:feature:", b"\xff", b"cpu:type:x86"):
        assert identify(text).vendor == ""


def test_groups_of_an_intel_processor() -> None:
    groups = hardware(MemoryReader(files(SKYLAKE)))
    assert names(groups) == [
        [
            *("cycles", "instructions", "reference_cycles", "branches", "branch_misses"),
            *("cache_references", "cache_misses", "tsc"),
        ],
        ["stalls_total", "stalls_l3_miss", "loads", "stores"],
    ]
    codes = {e.name: (e.type, e.config) for group in groups for e in group}
    # Event, unit mask and counter mask as in tools/perf/pmu-events/arch/x86/skylakex.
    assert codes["stalls_total"] == (RAW, 4 << 24 | 0x04 << 8 | 0xA3)
    assert codes["stalls_l3_miss"] == (RAW, 6 << 24 | 0x06 << 8 | 0xA3)
    assert codes["loads"] == (RAW, 0x81 << 8 | 0xD0)
    assert codes["stores"] == (RAW, 0x82 << 8 | 0xD0)
    assert codes["cycles"] == (HARDWARE, 0)
    assert codes["branch_misses"] == (HARDWARE, 5)
    assert codes["tsc"] == (9, 0)


def test_the_watchdog_takes_the_counter_of_the_cycles() -> None:
    reader = MemoryReader(files(SKYLAKE) | {WATCHDOG: b"1\n"})
    assert names(hardware(reader)) == [
        ["cycles", "instructions", "reference_cycles", "branches", "branch_misses", "tsc"],
        ["cache_references", "cache_misses", "stalls_total", "stalls_l3_miss"],
        ["loads", "stores"],
    ]


@pytest.mark.parametrize(
    ("cpu", "has", "lacks"),
    [
        (HASWELL, {"stalls_total", "loads"}, {"stalls_l3_miss", "stalls_memory"}),
        (DENVERTON, {"cycles"}, {"stalls_total", "stalls_l3_miss", "loads"}),
        (ZEN2, {"loads", "stores", "stalls_frontend"}, {"stalls_total", "stalls_l3_miss"}),
        (ZEN4, {"loads", "stalls_total", "stalls_memory"}, {"stalls_l3_miss"}),
        (ZEN5, {"loads", "stalls_total", "stalls_memory"}, {"stalls_l3_miss"}),
        (b"", {"cycles", "cache_misses"}, {"loads", "stalls_total"}),
    ],
)
def test_events_by_model(cpu: bytes, has: set[str], lacks: set[str]) -> None:
    found = {e.name for group in hardware(MemoryReader(files(cpu))) for e in group}
    assert has <= found
    assert not lacks & found


def test_codes_of_an_amd_processor() -> None:
    codes = {e.name: e.config for g in hardware(MemoryReader(files(ZEN4))) for e in g}
    # ls_dispatch 0x29: 1 loads, 2 stores, 4 both; ex_no_retire 0xd6: 0xa2 load_not_complete,
    # 1 empty, 2 not_complete, 8 other. tools/perf/pmu-events/arch/x86/amdzen4.
    assert codes["loads"] == 0x0529
    assert codes["stores"] == 0x0629
    assert codes["stalls_memory"] == 0xA2D6
    assert codes["stalls_total"] == 0x0BD6


def test_arm_events_are_those_that_sysfs_lists() -> None:
    events = {
        f"{PMUS}/armv8_pmuv3_0/events/{name}": text
        for name, text in {
            "ll_cache_rd": b"event=0x0036\n",
            "ll_cache_miss_rd": b"event=0x0037\n",
            "stall": b"event=0x003c\n",
            "stall_backend_mem": b"event=0x4005\n",
            "ld_retired": b"not an event\n",
        }.items()
    }
    groups = hardware(MemoryReader(files(GRACE) | events))
    codes = {e.name: (e.type, e.config) for group in groups for e in group}
    assert codes["cache_references"] == (RAW, 0x36)
    assert codes["cache_misses"] == (RAW, 0x37)
    assert codes["stalls_memory"] == (RAW, 0x4005)
    assert not {"loads", "stores"} & set(codes)
    # With half of the pair the ratio would be of two different caches.
    del events[f"{PMUS}/armv8_pmuv3_0/events/ll_cache_rd"]
    codes = {
        e.name: (e.type, e.config)
        for group in hardware(MemoryReader(files(GRACE) | events))
        for e in group
    }
    assert codes["cache_references"] == (HARDWARE, 2)
    assert codes["cache_misses"] == (HARDWARE, 3)


def test_families_stay_together() -> None:
    a, b, c, d, e = (Event(name, 4, 0) for name in "abcde")
    assert names(pack([[a, b], [c], [d, e]], set(), 3)) == [["a", "b", "c"], ["d", "e"]]
    assert names(pack([[a, b], [c], [d, e]], {"a", "b"}, 2)) == [["a", "b", "c"], ["d", "e"]]
    assert names(pack([[], [a, b, c]], set(), 2)) == [["a", "b", "c"]]
    assert pack([], set(), 4) == []


def test_totals_and_ratios() -> None:
    host = Host(skylake(busy={1: 3}), files(SKYLAKE))
    first = host.tick()
    assert all(math.isnan(v) for v in first.values())
    values = host.tick()
    # By hand: core 0 makes the pace, core 1 three times as much.
    assert values == pytest.approx(
        {
            "perf.cycles": 4 * 3000e6,
            "perf.instructions": 4 * 4500e6,
            "perf.reference_cycles": 4 * 2500e6,
            "perf.branches": 4 * 800e6,
            "perf.branch_misses": 4 * 16e6,
            "perf.cache_references": 4 * 50e6,
            "perf.cache_misses": 4 * 20e6,
            "perf.stalls_total": 4 * 900e6,
            "perf.stalls_l3_miss": 4 * 300e6,
            "perf.loads": 4 * 1100e6,
            "perf.stores": 4 * 500e6,
            "perf.ipc": 1.5,
            "perf.branch_miss_ratio": 2.0,
            "perf.cache_miss_ratio": 40.0,
            "perf.stall_ratio": 30.0,
            "perf.l3_miss_stall_ratio": 10.0,
            "perf.occupancy": 250.0,
            "perf.context_switches": 4 * 12e6,
            "perf.cpu_migrations": 4 * 2e6,
            "perf.minor_faults": 4 * 40e6,
            "perf.major_faults": 4 * 1e6,
            "perf.cgroup_switches": 4 * 3e6,
        },
        rel=1e-6,
    )
    assert host.failures == 0
    for channel in host.group.channels:
        assert re.fullmatch(r"perf\.[a-z0-9_]+", channel.metric)
        assert (channel.kind is Kind.RATE) == channel.unit.endswith("/s")


def test_what_is_absent_has_no_channel_and_is_noted() -> None:
    """An unknown model has no raw events; the kernel says that it has no stall events either."""
    host = Host(skylake(), files(b""))
    host.tick()
    source = host.collector.sources[0]
    assert not any("stall" in c.metric for c in host.group.channels)
    missing = "No such file or directory"
    assert getattr(source, "note", "") == (
        f"no stalls_backend: {missing}; no stalls_frontend: {missing}"
    )


def test_each_core() -> None:
    host = Host(skylake(busy={1: 3}), files(SKYLAKE), "per-core")
    host.tick()
    values = host.tick()
    total = Host(skylake(busy={1: 3}), files(SKYLAKE))
    total.tick()
    assert {k: v for k, v in values.items() if "[" not in k} == total.tick()
    assert values["perf.cycles[cpu0]"] == pytest.approx(3000e6)
    assert values["perf.cycles[cpu1]"] == pytest.approx(9000e6)
    assert values["perf.ipc[cpu1]"] == pytest.approx(1.5)
    assert values["perf.occupancy[cpu1]"] == pytest.approx(375)
    assert len(values) == 3 * 22
    assert len(set(values)) == len(values)


def test_off() -> None:
    kernel = skylake()
    assert collectors(Options("off"), kernel) == [Collector("perf")]
    assert not kernel.calls


def test_taking_turns_changes_nothing() -> None:
    """Two general counters for eight events: the rates are the same."""
    plenty, few = Host(skylake(), files(SKYLAKE)), Host(skylake(counters=2), files(SKYLAKE))
    for host in (plenty, few):
        host.tick()
    for _ in range(5):
        assert few.tick() == pytest.approx(plenty.tick(), rel=1e-6)


def test_without_a_pmu_there_are_software_events() -> None:
    pace = {event: n for event, n in PACE.items() if event[0] in (1, 9)}
    host = Host(FakeKernel(pace=pace), files(SKYLAKE))
    host.tick()
    values = host.tick()
    assert set(values) == {
        *("perf.context_switches", "perf.cpu_migrations", "perf.cgroup_switches"),
        *("perf.minor_faults", "perf.major_faults"),
    }
    assert values["perf.context_switches"] == pytest.approx(24e6)
    hard, soft, l3 = host.collector.sources
    assert hard.problem == "perf_event_open: No such file or directory"
    assert (soft.problem, l3.problem) == ("", "")
    # The time stamp alone is not kept open, and nothing is opened anew at every tick.
    assert {g.events[0][0] for g in host.kernel.groups.values()} == {1}
    opened = host.kernel.calls["open"]
    host.tick()
    assert host.kernel.calls["open"] == opened
    host.tick(RETRY_NS)
    assert host.kernel.calls["open"] > opened


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_without_permission_nothing_and_later_everything(code: int) -> None:
    host = Host(skylake(refuse_all=code), files(SKYLAKE))
    for _ in range(5):
        assert host.tick() == {}
    assert host.kernel.calls["open"] == 2  # one for each source
    for source in host.collector.sources[:2]:
        assert source.problem == f"perf_event_open: {error(code).strerror}"
        assert "CAP_PERFMON" in source.remedy
        assert 20 < len(source.remedy) < 300
    host.kernel.refuse_all = 0
    host.tick(RETRY_NS)
    assert len(host.tick()) == 22
    assert not any(math.isnan(v) for v in host.tick().values())


def test_no_descriptors_left() -> None:
    host = Host(skylake(limit=20), files(SKYLAKE))
    host.tick()
    values = host.tick()
    assert host.collector.sources[0].problem == "perf_event_open: Too many open files"
    assert values["perf.context_switches"] == pytest.approx(24e6)
    assert len(host.kernel.members) == 10


def test_a_core_that_cannot_be_read_costs_itself() -> None:
    """The others are exactly as without; the sums take their mean for it, the ratios theirs."""
    kernel = skylake(cpus={0, 1, 2})
    host = Host(kernel, files(SKYLAKE, b"0-2\n"), "per-core")
    whole = Host(skylake(cpus={0, 1, 2}), files(SKYLAKE, b"0-2\n"), "per-core")
    for both in (host, whole):
        both.tick()
        both.tick()
    channels = host.group.channels
    kernel.unreadable = {1}
    for _ in range(30):
        values, expected = host.tick(), whole.tick()
        assert host.group.channels is channels
        assert {k for k, v in values.items() if math.isnan(v)} == {
            k for k in values if k.endswith("[cpu1]")
        }
        own = {k for k in values if k.endswith(("[cpu0]", "[cpu2]"))}
        assert {k: values[k] for k in own} == {k: expected[k] for k in own}
        assert values["perf.cycles"] == pytest.approx(3 * 3000e6)
        assert values["perf.ipc"] == pytest.approx(1.5)
    kernel.unreadable = set()
    host.tick()
    assert host.tick() == pytest.approx(whole.tick())


def test_hotplug_without_a_spike() -> None:
    kernel = skylake(cpus={0, 1, 2})
    host = Host(kernel, files(SKYLAKE, b"0-2\n"))
    cores = Host(skylake(cpus={0, 1, 2}), files(SKYLAKE, b"0-2\n"), "per-core")
    for both in (host, cores):
        both.tick()
        both.tick()
    channels = host.group.channels
    for both in (host, cores):
        both.kernel.go_offline(1)
        both.reader.files = files(SKYLAKE, b"0,2\n")
    assert host.tick()["perf.cycles"] == pytest.approx(2 * 3000e6)
    values = cores.tick()
    assert not any(k.endswith("[cpu1]") for k in values)
    assert values["perf.cycles[cpu2]"] == pytest.approx(3000e6)
    for both in (host, cores):
        both.kernel.cpus.add(1)
        both.reader.files = files(SKYLAKE, b"0-2\n")
    # In the first tick the core is unknown, and taken to be as the others.
    assert host.tick()["perf.cycles"] == pytest.approx(3 * 3000e6)
    values = cores.tick()
    assert math.isnan(values["perf.cycles[cpu1]"])
    assert values["perf.cycles[cpu0]"] == pytest.approx(3000e6)
    for both in (host, cores):
        assert both.tick()["perf.cycles"] == pytest.approx(3 * 3000e6)
        assert both.failures == 0
    assert host.group.channels is channels


@pytest.mark.parametrize("text", [None, b"", b"nothing\n", b"4-1\n"])
def test_without_a_list_of_cores(text: bytes | None) -> None:
    host = Host(skylake(), files(SKYLAKE))
    host.tick()
    expected = host.tick()
    broken = files(SKYLAKE)
    if text is None:
        del broken[ONLINE]
    else:
        broken[ONLINE] = text
    host.reader.files = broken
    values = host.tick()
    assert set(values) == set(expected)
    assert all(math.isnan(v) for v in values.values())
    assert host.collector.sources[0].problem.startswith(f"{ONLINE}: ")
    host.reader.files = files(SKYLAKE)
    assert host.tick() == pytest.approx(expected)


def test_events_on_some_cores_only() -> None:
    """Cores of two kinds: the small ones lack an event."""
    kernel = skylake(cpus={0, 1})

    def open_some(attribute: bytes, cpu: int, group: int) -> int:
        if cpu == 1 and attribute[8:16] == (0x81D0).to_bytes(8, "little"):
            raise error(errno.ENOENT)
        return FakeKernel.open(kernel, attribute, cpu, group)

    kernel.open = open_some  # type: ignore[method-assign]
    host = Host(kernel, files(SKYLAKE), "per-core")
    host.tick()
    values = host.tick()
    assert values["perf.loads"] == pytest.approx(1100e6)
    assert values["perf.stores"] == pytest.approx(2 * 500e6)
    assert "perf.loads[cpu0]" in values
    assert "perf.loads[cpu1]" not in values
    assert not any(math.isnan(v) for v in values.values())


def test_amd_l3_is_counted_on_one_core_of_each() -> None:
    more = {f"{PMUS}/amd_l3/type": b"13\n", f"{PMUS}/amd_l3/cpumask": b"0,8\n"}
    pace = dict(PACE) | {(13, 0xFF04): 70, (13, 0x0104): 7}
    kernel = FakeKernel(pace=pace, cpus=set(range(16)))
    host = Host(kernel, files(ZEN4, b"0-15\n") | more)
    host.tick()
    values = host.tick()
    assert values["perf.l3_references"] == pytest.approx(2 * 70e6)
    assert values["perf.l3_misses"] == pytest.approx(2 * 7e6)
    assert values["perf.l3_miss_ratio"] == pytest.approx(10)


def test_sums_over_cores() -> None:
    nan = math.nan
    rates = np.array([[1.0, 10.0, nan, nan], [3.0, nan, nan, 5.0], [5.0, 30.0, 7.0, nan]])
    present = np.array([[True] * 4, [True] * 4, [True, True, True, False]])
    totals = over_all_cores(rates, present)
    # All known; one of three unknown; two of three unknown; one of the two that have it.
    np.testing.assert_array_equal(totals, [9.0, 60.0, nan, 10.0])


def test_closing_gives_everything_back() -> None:
    host = Host(skylake(), files(SKYLAKE))
    host.tick()
    host.collector.close()
    assert host.kernel.members == {}
    host.tick()
    assert not any(math.isnan(v) for v in host.tick().values())


def test_a_big_host_is_read_less_often() -> None:
    host = Host(skylake(cpus=set(range(48))), files(SKYLAKE, b"0-47\n"))
    host.tick()
    # /proc has switches and faults at every tick: a second is often enough for software events.
    assert [s.period_ns for s in host.collector.sources] == [0, 1000 * MS, 0]
    host = Host(skylake(cpus=set(range(256))), files(SKYLAKE, b"0-255\n"))
    host.tick()
    assert [s.period_ns for s in host.collector.sources] == [400 * MS, 1000 * MS, 0]


def test_this_machine() -> None:
    with SystemReader() as reader:
        (collector,) = collectors(Options("per-core"))
        group = Group([collector], reader)
        try:
            group.collect(1_000_000_000, whole=True)
            values = group.collect(1_100_000_000, whole=True)
            if all(source.problem for source in collector.sources[:2]):
                pytest.skip(f"not allowed here: {collector.sources[1].problem}")
            assert len(values) == len(group.channels) > 0
            known = values[~np.isnan(values)]
            assert known.size
            assert (known >= 0).all()
            assert group.stats["perf"].failures.total() == 0
        finally:
            collector.close()
