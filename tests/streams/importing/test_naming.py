"""What columns of the paper's files are called here, held against the agent's own channels."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.collectors import ALL
from producers.collectors.frequency import plan_for
from producers.parsing import snake_case
from producers.perf.channels import shape_and_plan
from producers.perf.events import Event
from producers.reading import MemoryReader
from producers.sampler import Sampler
from schemas.records import Channel, Kind, Subsystem
from streams.importing.columns import Column, columns
from streams.importing.meaning import How, Meaning, clean
from streams.importing.naming import DISK, INTERFACE, PERF, RETRANSMITS, meaning, own_name
from tests.producers.bighost import BigHost


@functools.cache
def agents() -> dict[str, Channel]:
    """The channels of the agent on a large host, one for each metric."""
    sampler = Sampler(
        [make() for make in ALL],
        MemoryReader(BigHost().files()),
        host="big",
        interval_us=100_000,
        agent_version="",
        boot_id="",
    )
    return {c.metric: c for c in sampler.sample(0).layout.channels}


def column(name: str, *hosts: str) -> Column:
    (found,) = columns([name], hosts)
    assert found is not None
    return found


def named(name: str) -> Meaning:
    return meaning(column(name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Perf:IPC.htc-g004[-]", Column("htc-g004", "Perf", "IPC", "", "-", False)),
        (
            "Turbostat:Busy%.-.htc-g004[%]",
            Column("htc-g004", "Turbostat", "Busy%", "", "%", False),
        ),
        (
            "Turbostat:IRQ.17.nserver08[count]",
            Column("nserver08", "Turbostat", "IRQ", "17", "count", False),
        ),
        (
            "GPU: utilization.gpu.0.htc-g004[%]",
            Column("htc-g004", "GPU", "utilization.gpu", "0", "%", False),
        ),
        (
            "GPU: ecc.errors.corrected.volatile.dram.0.htc-g004[count]",
            Column("htc-g004", "GPU", "ecc.errors.corrected.volatile.dram", "0", "count", False),
        ),
        (
            "Meminfo_diff:MemAvailable.nserver07[kB]",
            Column("nserver07", "Meminfo", "MemAvailable", "", "kB", True),
        ),
        (
            "Storage:time_spent_reading_(ms).htc-g003[ms]",
            Column("htc-g003", "Storage", "time_spent_reading_(ms)", "", "ms", False),
        ),
        (
            "NetworkInterStat_diff:rx_bytes.eth0.100.htc-g004[Bytes]",
            Column("htc-g004", "NetworkInterStat", "rx_bytes", "eth0.100", "Bytes", True),
        ),
        ("X:y.h", Column("h", "X", "y", "", "", False)),
    ],
)
def test_a_name_says_group_metric_instance_host_and_unit(name: str, expected: Column) -> None:
    assert column(name) == expected


@pytest.mark.parametrize(
    "name", ["", "timestamp", "Perf", "Perf:", "Perf:IPC", ":IPC.h", "Perf:.h[-]", "Perf:IPC.[-]"]
)
def test_other_names_are_none(name: str) -> None:
    assert columns([name]) == [None]


def test_a_host_with_dots_is_known_by_its_columns_of_memory() -> None:
    found = columns(
        [
            "Perf:IPC.node1.example.org[-]",
            "GPU: utilization.gpu.0.node1.example.org[%]",
            "NetworkInterStat_diff:rx_bytes.eth0.100.node2.example.org[Bytes]",
            "Memory:MemTotal.node1.example.org[kB]",
            "Meminfo_diff:MemFree.-.node2.example.org[kB]",
        ]
    )
    assert [(c.host, c.metric, c.instance) for c in found if c is not None] == [
        ("node1.example.org", "IPC", ""),
        ("node1.example.org", "utilization.gpu", "0"),
        ("node2.example.org", "rx_bytes", "eth0.100"),
        ("node1.example.org", "MemTotal", ""),
        ("node2.example.org", "MemFree", ""),
    ]


def test_a_host_with_dots_is_known_when_the_user_says_so() -> None:
    assert column("Perf:IPC.a.b.c[-]").host == "c"
    found = column("Perf:IPC.a.b.c[-]", "b.c", "a.b.c")
    assert (found.host, found.metric, found.instance) == ("a.b.c", "IPC", "")
    assert column("Perf:IPC.other[-]", "a.b.c").host == "other"


@settings(deadline=None)
@given(st.text(max_size=40), st.text("aA:.[]-_%0 ", max_size=20))
def test_any_name_is_a_column_or_none(text: str, likely: str) -> None:
    for name in (text, likely, f"Perf:{text}", f"GPU: {likely}", f"Memory:{likely}"):
        (found,) = columns([name])
        if found is not None:
            assert found.host
            for one in (meaning(found), own_name(found)):
                assert one.channel.metric.count(".") == 1
                assert one.scale > 0


@pytest.mark.parametrize(
    ("name", "label", "unit", "scale", "how"),
    [
        ("Memory:MemTotal.h[kB]", "memory.mem_total", "B", 1024, How.LEVEL),
        ("Memory:Active(anon).h[kB]", "memory.active_anon", "B", 1024, How.LEVEL),
        ("Memory:HugePages_Total.h[count]", "memory.huge_pages_total", "pages", 1, How.LEVEL),
        (
            "NetworkInterStat_diff:rx_bytes.ib0.h[Bytes]",
            "net.rx_bytes[ib0]",
            "B/s",
            1,
            How.PER_SAMPLE,
        ),
        ("NetworkInterStat:tx_errors.ib0.h[count]", "net.tx_errs[ib0]", "/s", 1, How.EITHER),
        ("Storage:sectors_read.sda.h[count]", "disk.read_bytes[sda]", "B/s", 512, How.EITHER),
        (
            "Storage_diff:reads_completed.sda.h[count]",
            "disk.reads[sda]",
            "requests/s",
            1,
            How.PER_SAMPLE,
        ),
        ("Storage:I/Os_currently_in_progress.h[count]", "disk.in_flight", "requests", 1, How.LEVEL),
        ("Storage:time_spent_reading_(ms).h[ms]", "disk.read_time", "ms/s", 1, How.EITHER),
        (
            "NetworkTCPRetrans_diff:RetransSegs.h[count]",
            "tcp.retrans_segs",
            "segments/s",
            1,
            How.PER_SAMPLE,
        ),
        (
            "NetworkTCPRetrans_diff:TCPLostRetransmit.h[count]",
            "tcp_ext.lost_retransmit",
            "/s",
            1,
            How.PER_SAMPLE,
        ),
        ("Turbostat:IRQ.17.h[count]", "irq.core[cpu17]", "interrupts/s", 1, How.PER_SAMPLE),
        ("Turbostat:C1E%.3.h[%]", "cpuidle.c1e[cpu3]", "%", 1, How.LEVEL),
        ("Turbostat:POLL%.-.h[%]", "cpuidle.poll", "%", 1, How.LEVEL),
        ("Turbostat:C6.-.h[count]", "cpuidle.c6_entries", "/s", 1, How.PER_SAMPLE),
    ],
)
def test_what_means_the_same_has_the_agents_name_unit_and_kind(
    name: str, label: str, unit: str, scale: float, how: How
) -> None:
    found = named(name)
    assert (found.channel.label, found.channel.unit) == (label, unit)
    assert (found.scale, found.how, found.ours) == (scale, how, True)
    agent = agents()[found.channel.metric]
    assert (found.channel.unit, found.channel.kind) == (agent.unit, agent.kind)
    assert found.channel.subsystem is agent.subsystem


def test_what_turbostat_reads_of_the_cores_clocks_has_the_agents_names() -> None:
    agent = {(c.metric, c.device): c for c in plan_for([17], smi=False).channels}
    for name in ("Busy%", "Bzy_MHz", "Avg_MHz"):
        for core, device in (("-", ""), ("17", "cpu17")):
            found = named(f"Turbostat:{name}.{core}.h[%]")
            assert found.channel == agent[found.channel.metric, device]
            assert (found.scale, found.how, found.ours) == (1, How.LEVEL, True)


def test_events_of_perf_have_the_agents_names() -> None:
    events = [Event(m.metric.removeprefix("perf."), 0, 0) for m in PERF.values()]
    _, plan = shape_and_plan(events, [0], np.ones((1, len(events)), np.bool_), per_core=False)
    agent = {c.metric: c for c in plan.channels}
    for name in PERF:
        found = named(f"Perf:{name}.h[count]")
        assert found.channel == agent[found.channel.metric]
        assert found.how is (How.LEVEL if name == "ipc" else How.PER_SAMPLE)
    assert named("Perf:Branch_Misses.h[count]").channel.metric == "perf.branch_misses"


@pytest.mark.parametrize("table", [DISK, INTERFACE, RETRANSMITS])
def test_every_name_of_the_tables_is_one_of_the_agents(table: dict[str, object]) -> None:
    groups = {
        id(DISK): "Storage",
        id(INTERFACE): "NetworkInterStat",
        id(RETRANSMITS): "NetworkTCPRetrans",
    }
    for metric in table:
        found = named(f"{groups[id(table)]}:{metric}.h[count]")
        agent = agents()[found.channel.metric]
        assert found.ours
        assert (found.channel.unit, found.channel.kind) == (agent.unit, agent.kind)
        assert found.channel.subsystem is agent.subsystem


def test_lines_of_meminfo_have_the_agents_names() -> None:
    text = BigHost().files()["proc/meminfo"].decode()
    for line in text.splitlines():
        name, rest = line.split(":")
        unit = "kB" if rest.endswith("kB") else "count"
        found = named(f"Memory:{name}.h[{unit}]")
        agent = agents()[found.channel.metric]
        assert (found.channel, found.ours) == (agent, True)


@pytest.mark.parametrize(
    ("name", "label", "unit", "kind", "part", "how"),
    [
        (
            "Meminfo_diff:MemAvailable.h[kB]",
            "memory.mem_available_change",
            "B/s",
            Kind.RATE,
            Subsystem.MEMORY,
            How.PER_SAMPLE,
        ),
        (
            "Turbostat:IRQ.-.h[count]",
            "turbostat.irq",
            "/s",
            Kind.RATE,
            Subsystem.CPU,
            How.PER_SAMPLE,
        ),
        (
            "Turbostat:PkgWatt.-.h[W]",
            "turbostat.pkg_watt",
            "W",
            Kind.GAUGE,
            Subsystem.CPU,
            How.LEVEL,
        ),
        (
            "Turbostat:CPU%c1.3.h[%]",
            "turbostat.cpu_percent_c1[cpu3]",
            "%",
            Kind.GAUGE,
            Subsystem.CPU,
            How.LEVEL,
        ),
        (
            "Turbostat:C1.3.h[count]",
            "turbostat.c1[cpu3]",
            "/s",
            Kind.RATE,
            Subsystem.CPU,
            How.PER_SAMPLE,
        ),
        (
            "NetworkProtocolCounts:TCP.h[count]",
            "network_protocol_counts.tcp",
            "",
            Kind.GAUGE,
            Subsystem.NETWORK,
            How.LEVEL,
        ),
        (
            "NetworkInterStat_diff:rx_dropped.ib0.h[count]",
            "network_inter_stat.rx_dropped[ib0]",
            "/s",
            Kind.RATE,
            Subsystem.NETWORK,
            How.PER_SAMPLE,
        ),
        (
            "Perf:Odd_Event.h[count]",
            "perf.odd_event",
            "/s",
            Kind.RATE,
            Subsystem.CPU,
            How.PER_SAMPLE,
        ),
        ("Weather:Wind.h[m/s]", "weather.wind", "m/s", Kind.GAUGE, Subsystem.CPU, How.LEVEL),
        ("NetSomething:x.h[kB]", "net_something.x", "B", Kind.GAUGE, Subsystem.NETWORK, How.LEVEL),
    ],
)
def test_the_rest_keeps_its_own_name(
    name: str, label: str, unit: str, kind: Kind, part: Subsystem, how: How
) -> None:
    found = named(name)
    channel = found.channel
    assert (channel.label, channel.unit, channel.kind) == (label, unit, kind)
    assert (channel.subsystem, found.how, found.ours) == (part, how, False)
    assert channel.metric not in agents()


@settings(deadline=None)
@given(st.text("abcXYZ019_()", max_size=12))
def test_names_are_cleaned_as_the_agent_cleans_those_of_the_kernel(name: str) -> None:
    assert clean(name) == snake_case(name)


def test_a_core_is_named_as_the_agent_names_it() -> None:
    assert named("Perf:IPC.3.h[-]").channel.device == "cpu3"
    assert named("Turbostat:Busy%.12.h[%]").channel.device == "cpu12"
    assert named("GPU: utilization.gpu.0.h[%]").channel.device == "0"
    assert named("Perf:IPC.-.h[-]").channel.device == ""


def test_huge_pages_are_counted_whatever_the_unit_of_the_table() -> None:
    for unit in ("kB", "count", ""):
        found = named(f"Memory:HugePages_Free.h[{unit}]")
        assert (found.channel.metric, found.channel.unit) == ("memory.huge_pages_free", "pages")
        assert found.scale == 1
