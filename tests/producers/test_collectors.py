"""What the collectors make of a real recording, computed here from the raw text, by hand."""

from __future__ import annotations

import math

import pytest

from producers.collectors.interrupts import source_name
from producers.parsing import snake_case
from schemas.records import Channel, Kind, Subsystem
from tests.producers.kernel import BETWEEN_S, FIRST, MEANS, SECOND, Host


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


@pytest.fixture(scope="module")
def values(host: Host) -> dict[str, float]:
    return host.twice()


def rate(before: float, after: float, scale: float = 1.0) -> float:
    return (after - before) * scale / BETWEEN_S


# Numbers as they stand in tests/fixtures/kernel/{first,second}/proc.
BY_HAND = {
    # A tick is 10 ms: so many in a second are so many percent of a core, half for two cores.
    "cpu.user": rate(359904, 359996) / 2,
    "cpu.user[cpu0]": rate(156077, 156122),
    "cpu.user[cpu1]": rate(203826, 203873),
    "cpu.system": rate(58981, 59004) / 2,
    "cpu.idle[cpu1]": rate(453406, 453446),
    "cpu.iowait[cpu1]": rate(1389, 1390),
    # User 47, system 10, idle 40, iowait 1; and on both cores 92, 23, 82, 0, and softirq 2.
    "cpu.busy[cpu1]": 100 * (47 + 10) / (47 + 10 + 40 + 1),
    "cpu.busy": 100 * (92 + 23 + 2) / (92 + 23 + 82 + 2),
    "cpu.context_switches": rate(28224671, 28226802),
    "cpu.procs_running": 1,
    "irq.source[virtio1-req.0]": rate(426086, 426092),
    "irq.source[LOC]": rate(2641625, 2642683) + rate(2547170, 2548311),
    "irq.source[TLB]": rate(54337, 54339),
    "irq.source[ERR]": 0,
    "irq.core[cpu0]": rate(2641625, 2642683) + rate(665783, 665807) + rate(2140261, 2140379),
    "softirq.net_rx": rate(6857899, 6859414) + rate(5869681, 5871269),
    "softirq.block": rate(426070, 426076),
    "softirq.core[cpu0]": rate(333059 + 6857899 + 454035 + 685451 + 337394, 333103 + 6859414)
    + rate(0, 454123 + 686231 + 337399),
    "memory.mem_total": 24684092 * 1024,
    "memory.huge_pages_total": 0,
    "memory.in_use": (24684092 - 23670212) * 1024,
    "vmstat.pgpgin": rate(9692769, 9692785, 1024),
    "vmstat.pgfault": rate(53290831, 53295039),
    "vmstat.nr_dirty": 0,
    "pressure.io_some": rate(16646809, 16649251, 1e-4),
    "pressure.io_full": rate(12671650, 12674035, 1e-4),
    "net.rx_bytes[v0]": rate(4479489474, 4551848500),
    "net.tx_packets[v0]": rate(107433, 109155),
    "net.rx_bytes[lo]": 0,
    "tcp.curr_estab": 4,
    "tcp.out_segs": rate(3126485, 3176967),
    "tcp.retrans_segs": rate(2382, 2547),
    "tcp.retrans_share": 100 * (2547 - 2382) / (3176967 - 3126485 + 2547 - 2382),
    "softnet.processed": rate(0x006B49B3 + 0x005C2D1D, 0x006B500E + 0x005C3401),
    "softnet.time_squeeze": 0,
    "disk.reads[vda]": rate(299682, 299684),
    "disk.read_bytes[vda]": rate(19385538, 19385570, 512),
    "disk.writes[vda]": rate(240359, 240376),
    "disk.write_bytes[vda]": rate(31971440, 31984848, 512),
    "disk.write_bytes": rate(31971440, 31984848, 512),
    "disk.in_flight[vda]": 0,
    "disk.busy[vda]": rate(40516, 40520) / 10,
    "disk.queue[vda]": rate(271671, 271709) / 1000,
    "disk.read_await[vda]": 0 / 2,
    "disk.write_await[vda]": (88741 - 88704) / (240376 - 240359),
    "disk.discards[vda]": rate(33346, 33347),
    "disk.flushes[vda]": rate(66152, 66153),
}


@pytest.mark.parametrize("label", BY_HAND)
def test_a_value_is_what_the_text_says(label: str, values: dict[str, float]) -> None:
    assert values[label] == pytest.approx(BY_HAND[label], rel=1e-5), label


def test_nothing_is_unknown_in_the_second_reading(values: dict[str, float]) -> None:
    assert [label for label, value in values.items() if math.isnan(value)] == []


def test_rates_are_unknown_and_levels_known_in_the_first() -> None:
    host = Host()
    values = host.read(FIRST)
    gauges = {c.label for c in host.group.channels if c.kind is Kind.GAUGE}
    # What is made of rates is none.
    levels = {label for label in gauges - {"softnet.imbalance"} if not MEANS.search(label)}
    assert {label for label, value in values.items() if not math.isnan(value)} == levels


def test_every_number_of_meminfo_and_vmstat_is_there(values: dict[str, float]) -> None:
    for path, prefix, scale in (("proc/meminfo", "memory.", 1024), ("proc/vmstat", "vmstat.", 1)):
        for line in SECOND[path].decode().splitlines():
            name, number, *unit = line.replace(":", "").split()
            label = prefix + snake_case(name)
            channel_scale = 1024 if unit == ["kB"] else 1
            assert label in values, line
            if prefix == "memory.":
                expected = int(number) * channel_scale
                assert values[label] == pytest.approx(expected, rel=1e-6), (line, scale)


def test_every_column_of_snmp_and_netstat_is_there(values: dict[str, float]) -> None:
    """No two columns of these kernels share a name of ours."""
    lines = (SECOND["proc/net/snmp"] + SECOND["proc/net/netstat"]).decode().splitlines()
    names = [line.split() for line in lines[::2]]
    expected = sum(len(words) - 1 for words in names if words[0] not in {"UdpLite:", "MPTcpExt:"})
    settings = 2 + 4  # Ip Forwarding, DefaultTTL; Tcp RtoAlgorithm, RtoMin, RtoMax, MaxConn
    prefixes = ("ip.", "icmp.", "tcp.", "udp.", "tcp_ext.", "ip_ext.")
    found = [label for label in values if label.startswith(prefixes)]
    assert len(found) == expected - settings + 1  # and tcp.retrans_share


def test_which_numbers_of_vmstat_are_levels(host: Host, values: dict[str, float]) -> None:
    assert values
    kinds = {c.metric: c.kind for c in host.group.channels if c.metric.startswith("vmstat.")}
    counted = (
        "nr_dirtied",
        "nr_written",
        "nr_vmscan_write",
        "pgfault",
        "numa_hit",
        "thp_split_pmd",
    )
    for name in counted:
        assert kinds[f"vmstat.{name}"] is Kind.RATE, name
    for name in ("nr_free_pages", "nr_dirty", "nr_slab_reclaimable", "workingset_nodes"):
        assert kinds[f"vmstat.{name}"] is Kind.GAUGE, name


def test_stacks_are_in_kib() -> None:
    """mm/vmstat.c has two numbers that count no pages; not every kernel has the second."""
    host = Host("memory")
    text = b"nr_free_pages 5\nnr_kernel_stack 3008\nnr_shadow_call_stack 752\n"
    values = host.read({"proc/vmstat": text})
    assert channel(host, "vmstat.nr_free_pages").unit == "pages"
    for name, expected in (("nr_kernel_stack", 3008), ("nr_shadow_call_stack", 752)):
        assert channel(host, f"vmstat.{name}").unit == "KiB"
        assert values[f"vmstat.{name}"] == expected


@pytest.mark.parametrize(
    ("label", "subsystem"),
    [
        ("memory.dirty", Subsystem.STORAGE),
        ("memory.writeback", Subsystem.STORAGE),
        ("vmstat.nr_writeback", Subsystem.STORAGE),
        ("memory.mem_free", Subsystem.MEMORY),
        ("pressure.cpu_some", Subsystem.CPU),
        ("pressure.memory_full", Subsystem.MEMORY),
        ("pressure.io_some", Subsystem.STORAGE),
        ("softirq.net_rx", Subsystem.NETWORK),
        ("softirq.block", Subsystem.STORAGE),
        ("softirq.timer", Subsystem.CPU),
        ("cpu.iowait", Subsystem.STORAGE),
        ("cpu.user[cpu1]", Subsystem.CPU),
        ("tcp_ext.timeouts", Subsystem.NETWORK),
    ],
)
def test_a_channel_blames_its_subsystem(
    label: str, subsystem: Subsystem, host: Host, values: dict[str, float]
) -> None:
    assert label in values
    assert channel(host, label).subsystem is subsystem


def channel(host: Host, label: str) -> Channel:
    return next(c for c in host.group.channels if c.label == label)


def meminfo(**changes: int) -> bytes:
    lines = FIRST["proc/meminfo"].decode().splitlines()
    text = [
        f"{name}: {changes.get(name, int(rest.split()[0]))}" + (" kB" if "kB" in rest else "")
        for name, rest in (line.split(":") for line in lines)
    ]
    return "\n".join(text).encode() + b"\n"


def test_free_huge_pages_are_not_in_use() -> None:
    """A pool of 1,000 huge pages is taken out of MemAvailable; none of it is given out."""
    before = Host("memory").read({"proc/meminfo": meminfo(MemAvailable=9_000_000)})
    pool = {"HugePages_Total": 1000, "HugePages_Free": 1000, "Hugetlb": 1000 * 2048}
    after = Host("memory").read(
        {"proc/meminfo": meminfo(MemAvailable=9_000_000 - 1000 * 2048, **pool)}
    )
    assert after["memory.in_use"] == before["memory.in_use"] == (24684092 - 9_000_000) * 1024


def test_huge_pages_given_out_are_in_use() -> None:
    pool = {"HugePages_Total": 1000, "HugePages_Free": 600, "Hugetlb": 1000 * 2048}
    values = Host("memory").read(
        {"proc/meminfo": meminfo(MemAvailable=9_000_000 - 1000 * 2048, **pool)}
    )
    in_use = (24684092 - 9_000_000 + 400 * 2048) * 1024
    assert values["memory.in_use"] == pytest.approx(in_use, rel=1e-7)


def test_huge_pages_without_hugetlb_line() -> None:
    """Kernels before 4.18 have no Hugetlb line: the pool of the default size is what is known."""
    text = meminfo(MemAvailable=9_000_000, HugePages_Total=10, HugePages_Free=10)
    text = b"".join(line for line in text.splitlines(True) if not line.startswith(b"Hugetlb"))
    values = Host("memory").read({"proc/meminfo": text})
    assert values["memory.in_use"] == pytest.approx((24684092 - 9_000_000 - 20480) * 1024, rel=1e-7)


SNMP = b"""\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens CurrEstab InSegs OutSegs RetransSegs
Tcp: 1 200 120000 -1 %d 4 %d %d %d
"""
REORDERED = b"""\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn RetransSegs ActiveOpens NewThing OutSegs InSegs CurrEstab
Tcp: 1 200 120000 -1 %d %d 7 %d %d 4
"""


def test_columns_of_snmp_are_found_by_name() -> None:
    """After an upgrade of the kernel the columns moved, and one is new."""
    host = Host("network")
    host.read({"proc/net/snmp": SNMP % (1, 100, 200, 5)}, 10**9)
    values = host.read({"proc/net/snmp": SNMP % (2, 110, 220, 6)}, 10**9)
    expected = {"tcp.active_opens": 1, "tcp.in_segs": 10, "tcp.out_segs": 20, "tcp.retrans_segs": 1}
    assert {k: values[k] for k in expected} == expected
    for n in range(2):
        moved = REORDERED % (7 + n, 3 + n, 240 + 20 * n, 120 + 10 * n)
        values = host.read({"proc/net/snmp": moved}, 10**9)
        assert {k: values[k] for k in expected} == expected
    assert math.isnan(values["tcp.new_thing"])
    values = host.read({"proc/net/snmp": REORDERED % (9, 5, 280, 140)}, 10**9)
    assert values["tcp.new_thing"] == 0


def test_retransmissions_of_nothing_are_none() -> None:
    host = Host("network")
    host.read({"proc/net/snmp": SNMP % (1, 100, 200, 5)})
    assert host.read({"proc/net/snmp": SNMP % (1, 100, 200, 5)})["tcp.retrans_share"] == 0


def test_interface_names_and_numbers_may_touch() -> None:
    """Kernels before 2.6.39 write no blank after the colon of a long number."""
    head = FIRST["proc/net/dev"].splitlines(True)[:2]
    text = b"".join(head) + b"  eth0:%d 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n"
    host = Host("network")
    host.read({"proc/net/dev": text % 4_000_000_000}, 10**9)
    values = host.read({"proc/net/dev": text % 4_000_000_500}, 10**9)
    assert values["net.rx_bytes[eth0]"] == 500
    assert values["net.tx_compressed[eth0]"] == 0


INTERRUPTS = b"""\
           CPU0       CPU2       CPU3
  9:        %d          0          5  IR-IO-APIC   9-fasteoi   acpi
 16:         10         20         30  IR-IO-APIC-fasteoi   ehci_hcd:usb1, mmc0
 27:          1          1          1     GICv3  27 Level     arch_timer
LOC:        100        200        %d   Local timer interrupts
ERR:          7
"""


def test_interrupts_with_a_core_offline() -> None:
    """The header names the cores that are online: column three is cpu3."""
    host = Host("interrupts")
    host.read({"proc/interrupts": INTERRUPTS % (1, 300)}, 10**9)
    values = host.read({"proc/interrupts": INTERRUPTS % (5, 390)}, 10**9)
    assert values == {
        "irq.source[acpi]": 4,
        "irq.source[ehci_hcd:usb1+mmc0]": 0,
        "irq.source[arch_timer]": 0,
        "irq.source[LOC]": 90,
        "irq.source[ERR]": 0,
        "irq.core[cpu0]": 4,
        "irq.core[cpu2]": 0,
        "irq.core[cpu3]": 90,
        "irq.imbalance": pytest.approx(100 * (90 / ((4 + 0 + 90) / 3) - 1)),
    }


def test_one_core_wraps_and_the_sums_do_not_notice() -> None:
    """The kernel counts interrupts in 32 bits."""
    host = Host("interrupts")
    for n in range(3):
        host.read({"proc/interrupts": INTERRUPTS % (1, 2**32 - 400 + 100 * n)}, 10**9)
    values = host.read({"proc/interrupts": INTERRUPTS % (1, 50)}, 10**9)
    assert values["irq.source[LOC]"] == 250
    assert values["irq.core[cpu3]"] == 250


@pytest.mark.parametrize(
    ("label", "description", "name"),
    [
        ("24", "IO-APIC 5-edge ACPI:Ged", "ACPI:Ged"),
        ("43", "IR-PCI-MSI-edge ahci", "ahci"),
        ("130", "IR-PCI-MSIX-0000:c1:00.0 12-edge mlx5_comp12@pci:0000:c1:00.0", None),
        ("10", "GICv3 27 Level arch_timer", "arch_timer"),
        ("70", "xen-dyn -event eth0", "eth0"),
        ("16", "IR-IO-APIC-fasteoi ehci_hcd:usb1, mmc0", "ehci_hcd:usb1+mmc0"),
        ("99", "PCI-MSI 7-edge", "irq99"),
        ("LOC", "Local timer interrupts", "LOC"),
    ],
)
def test_the_name_of_an_interrupt(label: str, description: str, name: str | None) -> None:
    expected = name if name is not None else description.split()[-1]
    assert source_name(label, description.split()) == expected


def disk(name: str, reads: int, *, minor: int = 0) -> bytes:
    return b"   8 %7d %s %d 0 %d 0 0 0 0 0 0 0 0\n" % (minor, name.encode(), reads, 8 * reads)


def test_partitions_of_a_disk_that_is_there_are_left_out() -> None:
    text = b"".join(
        disk(name, 1)
        for name in ("sda", "sda1", "sdb3", "nvme0n1", "nvme0n1p2", "mmcblk0", "mmcblk0p1", "dm-0")
    )
    values = Host("storage").read({"proc/diskstats": text})
    devices = {label[len("disk.reads[") : -1] for label in values if "disk.reads[" in label}
    assert devices == {"sda", "sdb3", "nvme0n1", "mmcblk0", "dm-0"}


def test_the_host_counts_what_is_stacked_once() -> None:
    host = Host("storage")
    host.read({"proc/diskstats": disk("sda", 10) + disk("sdb", 20) + disk("dm-0", 30)}, 10**9)
    values = host.read(
        {"proc/diskstats": disk("sda", 15) + disk("sdb", 21) + disk("dm-0", 36)}, 10**9
    )
    assert values["disk.reads[dm-0]"] == 6
    assert values["disk.reads"] == 6
    assert values["disk.read_bytes"] == 6 * 8 * 512


def test_a_loop_device_comes_when_it_does_something() -> None:
    host = Host("storage")
    idle = disk("sda", 10) + disk("loop0", 0) + disk("zram0", 0)
    values = host.read({"proc/diskstats": idle})
    assert "disk.reads[loop0]" not in values
    busy = [disk("sda", 10) + disk("loop0", n) + disk("zram0", 0) for n in (5, 6, 7)]
    for text in busy[:2]:
        values = host.read({"proc/diskstats": text}, 10**9)
    values = host.read({"proc/diskstats": busy[2]}, 10**9)
    assert values["disk.reads[loop0]"] == 1
    assert values["disk.reads[sda]"] == 0
    assert "disk.reads[zram0]" not in values


def test_a_wait_of_no_request_is_unknown() -> None:
    host = Host("storage")
    host.read({"proc/diskstats": disk("sda", 10)})
    values = host.read({"proc/diskstats": disk("sda", 12)})
    assert values["disk.read_await[sda]"] == 0
    assert math.isnan(values["disk.write_await[sda]"])


def test_softnet_of_an_old_kernel_has_fewer_columns() -> None:
    text = b"%08x %08x 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n"
    host = Host("network")
    host.read({"proc/net/softnet_stat": text % (16, 0) + text % (32, 1)}, 10**9)
    values = host.read({"proc/net/softnet_stat": text % (26, 0) + text % (42, 3)}, 10**9)
    assert values == {
        "softnet.processed": 20,
        "softnet.dropped": 2,
        "softnet.time_squeeze": 0,
        "softnet.imbalance": 0,
    }
