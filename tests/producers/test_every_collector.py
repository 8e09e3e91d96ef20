"""The contract, held against every collector in the table.

A new collector is tested by being in `ALL`. Where it reads a file that our recording lacks, its
text goes into `tests/fixtures/kernel`, as two readings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producers.collectors import ALL, MACHINE, NAMESPACE
from producers.group import Group
from producers.reading import SystemReader, Unreadable
from producers.source import Collector
from schemas.records import Kind
from tests.producers.archives import archive
from tests.producers.kernel import FIRST, MEANS, SECOND, Host

SECOND_NS = 10**9
NAMES = [make().name for make in ALL]
FILES = sorted({source.path for make in ALL for source in make().sources})
RECORDED = [path for path in FILES if path in FIRST]
IN_TREES = sorted(p for p in FIRST if any(p.startswith(f"{tree}/") for tree in FILES))
NUMBERS_IN_TREES = [p for p in IN_TREES if re.fullmatch(rb"-?\d+\n?", FIRST[p])]
NOT_RECORDED = {"proc/pressure/irq"}
"""What our recording's kernel does not have, and no other file stands for."""

every_collector = pytest.mark.parametrize("make", ALL, ids=NAMES)
every_file = pytest.mark.parametrize("path", RECORDED)
every_small_file = pytest.mark.parametrize("path", IN_TREES)
every_small_number = pytest.mark.parametrize("path", NUMBERS_IN_TREES)


def owner(path: str) -> str:
    """Return the collector that reads a file, or has it in a tree."""
    return next(
        c.name
        for make in ALL
        for c in [make()]
        if any(path == s.path or path.startswith(f"{s.path}/") for s in c.sources)
    )


def owners(path: str) -> list[str]:
    """Return all collectors that have a small file in a tree."""
    return [
        c.name
        for make in ALL
        for c in [make()]
        if any(path.startswith(f"{s.path}/") for s in c.sources)
    ]


def cut(text: bytes, lines: int) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:lines])


def same(a: dict[str, float], b: dict[str, float]) -> bool:
    """Compare bit by bit, with NaN equal to NaN."""
    return a.keys() == b.keys() and all(
        v == b[k] or (math.isnan(v) and math.isnan(b[k])) for k, v in a.items()
    )


def wrong(values: dict[str, float], whole: dict[str, float]) -> list[str]:
    """Return what is neither unknown nor right."""
    return [
        label for label, value in values.items() if not math.isnan(value) and value != whole[label]
    ]


def test_the_table() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(ALL) == {*MACHINE, *NAMESPACE}
    missing = {f for f in FILES if f not in FIRST and not any(p.startswith(f"{f}/") for p in FIRST)}
    assert missing <= NOT_RECORDED
    assert set(FIRST) == set(SECOND)


@every_collector
def test_it_says_what_it_reads_and_what_to_do_without(make: Callable[[], Collector]) -> None:
    for source in make().sources:
        assert source.path.startswith(("proc/", "sys/"))
        assert 20 < len(source.remedy) < 300
        assert source.remedy.endswith(".")


@every_collector
def test_its_channels_are_named_in_one_way(make: Callable[[], Collector]) -> None:
    host = Host(make().name)
    host.twice()
    assert host.group.channels
    for c in host.group.channels:
        assert re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", c.metric), c
        assert c.unit, c
        assert (
            c.unit == "%"
            or (c.unit == "W" and c.kind is Kind.RATE)  # joules per second
            or (c.kind is Kind.RATE) == c.unit.endswith("/s")
            or c.metric
            in {
                "disk.queue",  # the rate of a sum of times is a mean number
                "link.speed",
                "infiniband.rate",
            }
        ), c


@every_collector
def test_no_rate_is_older_than_a_second(make: Callable[[], Collector]) -> None:
    """A rate that is kept for ten seconds keeps an episode open for ten seconds too long."""
    host = Host(make().name)
    host.twice()
    for source in host.sources:
        if any(c.kind is Kind.RATE for c in source.plan.channels):
            assert source.period_ns <= SECOND_NS, source.path


@every_collector
def test_two_of_it_share_nothing(make: Callable[[], Collector]) -> None:
    name = make().name
    expected = Host(name).twice()
    first, second = Host(name), Host(name)
    first.read(FIRST)
    second.read({})
    assert same(first.read(SECOND), expected)


@every_collector
def test_nothing_is_wrong_with_the_recording(make: Callable[[], Collector]) -> None:
    host = Host(make().name)
    host.read(FIRST)
    channels = host.group.channels
    host.read(SECOND)
    host.read(SECOND)
    assert host.group.channels is channels
    assert host.failures == host.bad_fields == 0


@every_collector
def test_this_machine(make: Callable[[], Collector]) -> None:
    collector = make()
    with SystemReader() as reader:
        group = Group([collector], reader)
        for n in range(4):
            values = group.collect(n * SECOND_NS)
            assert len(values) == len(group.channels)
        there = [s for s in collector.sources if isinstance(reader.read(s.path), bytes)]
    if not any(source.plan.fields for source in collector.sources):
        pytest.skip(f"none of {[s.path for s in collector.sources]} is here")
    assert all(source.plan.fields for source in there)
    assert group.stats[collector.name].failures == {}


@every_collector
def test_without_its_files_it_has_no_channels(make: Callable[[], Collector]) -> None:
    host = Host(make().name)
    assert host.read({}) == {}
    assert host.failures == 0


@every_file
def test_without_one_file_the_others_are_there(path: str) -> None:
    name = owner(path)
    whole = Host(name).twice()
    host = Host(name)
    host.read({p: t for p, t in FIRST.items() if p != path})
    rest = host.read({p: t for p, t in SECOND.items() if p != path})
    assert set(rest) < set(whole)
    assert same(rest, {label: whole[label] for label in rest})


@every_file
def test_a_file_that_goes_and_comes_back(path: str) -> None:
    """Its channels are unknown meanwhile, and go on from the last good reading."""
    host = Host(owner(path))
    host.read(FIRST)
    channels = host.group.channels
    gone = host.read({p: t for p, t in SECOND.items() if p != path})
    back = host.read(SECOND)
    assert host.group.channels is channels
    assert any(math.isnan(v) for v in gone.values())
    assert host.failures == 1
    whole = Host(owner(path)).twice()
    kinds = {c.label: c for c in channels}
    for label, value in back.items():
        # Counters of this file grew over two seconds, levels and ratios are as they were.
        doubled = math.isnan(gone[label]) and kinds[label].kind is Kind.RATE
        if doubled and not re.search("share|imbalance|cpu.busy", label):
            assert value == pytest.approx(whole[label] / 2, rel=1e-5), label
        elif math.isnan(gone[label]):
            assert value == pytest.approx(whole[label], rel=1e-5, nan_ok=True), label


@every_file
@pytest.mark.parametrize("text", [b"", b"\n", b"\x00" * 5000, b"<html>no</html>\n"])
def test_a_file_that_is_none(path: str, text: bytes) -> None:
    host = Host(owner(path))
    without = host.read({path: text})
    assert without == {}
    host.read(FIRST)
    channels = host.group.channels
    for _ in range(3):
        values = host.read(SECOND | {path: text})
        assert host.group.channels is channels
        assert any(math.isnan(v) for v in values.values())


@every_file
def test_cut_at_every_line(path: str) -> None:
    """What is left is right, what is lost is unknown, and the layout stays."""
    name = owner(path)
    lines = len(SECOND[path].splitlines())
    whole = Host(name).twice()
    for n in range(lines):
        host = Host(name)
        host.read(FIRST)
        channels = host.group.channels
        values = host.read(SECOND | {path: cut(SECOND[path], n)})
        assert host.group.channels is channels
        assert wrong(values, whole) == [], n
        host.read(SECOND)
        assert host.group.channels is channels
        fresh = Host(name)
        fresh.read({path: cut(FIRST[path], n)})
        assert set(fresh.read({path: cut(SECOND[path], n)})) <= set(whole)


@every_file
def test_cut_in_mid_line(path: str) -> None:
    """Half a number is not taken for a whole one."""
    name = owner(path)
    text = SECOND[path]
    whole = Host(name).twice()
    for at in range(0, len(text), max(1, len(text) // 40)):
        host = Host(name)
        host.read(FIRST)
        values = host.read(SECOND | {path: text[:at]})
        assert wrong(values, whole) == [], at


ONE_NUMBER = {
    # A number in the second reading, and the channels in which it stands.
    "proc/1/mountstats": (
        rb"(?<= )52965376(?= )",
        {"nfs.write_bytes[filer1:/export/data]", "nfs.write_bytes"},
    ),
    "proc/buddyinfo": (rb"\b822\b", {"buddy.free[node1]", "buddy.torn[node1]"}),
    "proc/diskstats": (rb"240376", {"disk.writes[vda]", "disk.writes", "disk.write_await[vda]"}),
    "proc/interrupts": (
        rb"426092",
        {"irq.source[virtio1-req.0]", "irq.core[cpu1]", "irq.imbalance"},
    ),
    "proc/loadavg": (rb"^\S+", {"cpu.load_1m"}),
    "proc/meminfo": (rb"(?<=Mapped: )\s*\d+", {"memory.mapped"}),
    "proc/net/dev": (rb"4551848500", {"net.rx_bytes[v0]"}),
    "proc/net/netstat": (rb"(?<=IpExt: 0 0 0 0 0 0 )\d+", {"ip_ext.in_octets"}),
    "proc/net/protocols": (rb"(?<=1152 )\s*\d+", {"protocol.sockets[UNIX]"}),
    "proc/net/rpc/nfs": (rb"(?<= )8145(?= )", {"nfs_client.getattr[v4]", "nfs_client.calls[v4]"}),
    "proc/net/snmp": (
        rb"3176967",
        {"tcp.out_segs", "tcp.retrans_share", "protocol.packets[tcp]"},
    ),
    "proc/net/snmp6": (rb"19200", {"ip6.in_octets"}),
    "proc/net/sockstat": (rb"(?<=mem )\d+", {"sockets.tcp_mem"}),
    "proc/net/sockstat6": (rb"(?<=memory )\d+", {"sockets.frag6_memory"}),
    "proc/net/softnet_stat": (rb"006b500e", {"softnet.processed", "softnet.imbalance"}),
    "proc/net/stat/arp_cache": (rb"00000fc8", {"arp.lookups"}),
    "proc/net/stat/ndisc_cache": (rb"0000002a", {"ndisc.lookups"}),
    "proc/net/stat/nf_conntrack": (rb"0000bef2", {"conntrack_stat.search_restart"}),
    "proc/net/tls_stat": (rb"214", {"tls.tx_sw"}),
    "proc/net/xfrm_stat": (rb"5", {"xfrm.in_no_states"}),
    "proc/pressure/cpu": (rb"(?<=total=)\d+", {"pressure.cpu_some"}),
    "proc/pressure/io": (rb"(?<=total=)\d+", {"pressure.io_some"}),
    "proc/pressure/memory": (rb"(?<=total=)\d+", {"pressure.memory_some"}),
    "proc/schedstat": (rb"88121774402", {"sched.wait[cpu0]", "sched.wait"}),
    "proc/softirqs": (
        rb"6859414",
        {"softirq.net_rx", "softirq.core[cpu0]", "softirq.imbalance", "softirq.net_rx_imbalance"},
    ),
    "proc/stat": (rb"28226802", {"cpu.context_switches"}),
    "proc/sys/fs/dentry-state": (rb"560229", {"files.unused_dentries"}),
    "proc/sys/fs/file-nr": (rb"4047", {"files.open"}),
    "proc/sys/fs/inode-nr": (rb"531931", {"files.inodes"}),
    "proc/vmstat": (rb"(?<=pgfault )\d+", {"vmstat.pgfault"}),
}


@every_file
@pytest.mark.parametrize("garbage", [b"oops", b"-", b"-7", b"1z", b"\xff\xfe", b"9" * 400])
def test_a_field_that_is_no_number_costs_itself(path: str, garbage: bytes) -> None:
    """And what is made of it; everything else is as it would be, and it goes on afterwards."""
    number, lost = ONE_NUMBER[path]
    name = owner(path)
    host = Host(name)
    host.read(FIRST)
    channels = host.group.channels
    broken, count = re.subn(number, lambda _: garbage, SECOND[path], count=1)
    assert count == 1
    values = host.read(SECOND | {path: broken})
    whole = Host(name).twice()
    assert host.group.channels is channels
    assert host.bad_fields == 1
    assert {label for label in values if math.isnan(values[label])} == lost
    kept = set(whole) - lost
    assert same({label: values[label] for label in kept}, {label: whole[label] for label in kept})
    again = host.read(SECOND)
    # A ratio has to wait for two rates of the same time.
    kept = {label for label in lost if not re.search("await|share|imbalance", label)}
    assert not any(math.isnan(again[label]) for label in kept)


@every_file
def test_very_long_lines(path: str) -> None:
    """Each line with much more at its end, numbers or words."""
    for tail in (b" 7" * 500, b" word" * 500, b" " * 50000, b"x" * 50000):
        host = Host(owner(path))
        long = b"\n".join(line + tail for line in FIRST[path].splitlines()) + b"\n"
        for _ in range(3):
            host.read({path: long})
        host.read(FIRST)
        host.read(FIRST)
        assert not any("Error" in r for s in host.group.stats.values() for r in s.failures)


@every_file
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_bytes_are_changed(path: str, data: st.DataObject) -> None:
    """No damage to a file raises, and none changes what was there before."""
    host = Host(owner(path))
    host.read(FIRST)
    text = bytearray(SECOND[path])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        end = min(len(text), at + data.draw(st.integers(0, 30)))
        text[at:end] = data.draw(st.binary(max_size=10) | st.sampled_from([b"\n", b":", b" "]))
        if not text:
            break
    for _ in range(3):
        host.read({path: bytes(text)})
    assert not any("Error" in r for s in host.group.stats.values() for r in s.failures)


@every_small_file
@pytest.mark.parametrize(
    "text", [b"", b"\n", b"oops\n", b"\xff\xfe", b"9" * 400, b"N/A (no PMA)\n"]
)
def test_a_small_file_that_has_no_number_costs_what_is_made_of_it(path: str, text: bytes) -> None:
    """Whatever is in it, everything else is exactly as it would be."""
    for name in owners(path):
        whole = Host(name).twice()
        host = Host(name)
        host.read(FIRST)
        channels = host.group.channels
        values = host.read(SECOND | {path: text})
        assert host.group.channels is channels
        assert wrong(values, whole) == []
        again = host.read(SECOND)
        # In it nothing grows, and of nothing there is no mean.
        unknown = {k for k, v in again.items() if math.isnan(v) and not MEANS.search(k)}
        assert unknown <= {k for k, v in values.items() if math.isnan(v)}


@every_small_number
def test_a_small_number_that_is_garbage_is_unknown(path: str) -> None:
    lost = 0
    for name in owners(path):
        whole = Host(name).twice()
        host = Host(name)
        host.read(FIRST)
        values = host.read(SECOND | {path: b"oops\n"})
        lost += sum(math.isnan(values[k]) and not math.isnan(v) for k, v in whole.items())
    unread = not any(path in reads(name) for name in owners(path))
    assert lost or unread


def reads(name: str) -> set[str]:
    """Return the paths that a collector reads in its second reading."""
    host = Host(name)
    host.read(FIRST)
    seen: set[str] = set()
    reader = host.reader
    read = reader.read

    def noted(path: str) -> bytes | Unreadable:
        seen.add(path)
        return read(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "read", noted)
        patch.setattr(reader, "small", noted)
        host.read(SECOND)
    return seen


@every_small_file
def test_a_small_file_that_goes_and_comes_back(path: str) -> None:
    for name in owners(path):
        whole = Host(name).twice()
        host = Host(name)
        host.read(FIRST)
        channels = host.group.channels
        values = host.read({p: t for p, t in SECOND.items() if p != path})
        assert host.group.channels is channels
        assert wrong(values, whole) == []
        assert not any("Error" in r for s in host.group.stats.values() for r in s.failures)
        for _ in range(8):
            without = host.read({p: t for p, t in SECOND.items() if p != path})
        fresh = Host(name)
        for _ in range(2):
            expected = fresh.read({p: t for p, t in SECOND.items() if p != path})
        assert set(without) == set(expected)


def test_node_exporter_fixtures() -> None:
    """Files of other machines. A reading of the same files again has no growth, and no NaN."""
    proc = archive("node_exporter/proc")
    files = {path: proc[path] for path in FILES if path in proc}
    host = Host()
    values = host.read(files)
    assert values["memory.mem_total"] == pytest.approx(3831959552)
    assert values["memory.dirty"] == pytest.approx(1077248)
    assert values["sockets.used"] == 229
    assert values["cpu.procs_running"] == 2
    assert values["cpu.load_1m"] == pytest.approx(0.21)
    assert values["vmstat.nr_dirty"] == 21
    assert values["disk.in_flight[sda]"] == 0
    assert values["tcp.curr_estab"] == 0
    second = host.read(files)
    unknown = {label for label, value in second.items() if math.isnan(value)}
    assert not {label for label in unknown if not re.search("await|cpu.busy", label)}
    assert {label for label in second if label.startswith("cpu.steal[")} == {
        f"cpu.steal[cpu{n}]" for n in range(8)
    }
    assert {"irq.source[iwlwifi]", "irq.source[ehci_hcd:usb1+mmc0]", "irq.core[cpu3]"} < set(second)
    devices = {label[len("disk.busy[") : -1] for label in second if label.startswith("disk.busy[")}
    assert {"sda", "dm-0", "mmcblk0", "vda", "nvme0n1", "sdb", "sdc"} <= devices
    assert not {"sda1", "nvme0n1p1", "mmcblk0p2", "loop0", "ram0"} & devices
    assert "disk.flushes[sdc]" in second
    assert "disk.flushes[sdb]" not in second  # an older kernel's line, with fewer columns
    assert host.failures == host.bad_fields == 0


def test_interrupts_of_an_arm_machine() -> None:
    text = archive("node_exporter/proc")["proc/interrupts_aarch64"]
    host = Host("interrupts")
    host.read({"proc/interrupts": text})
    values = host.read({"proc/interrupts": text})
    assert values["irq.source[arch_timer]"] == 0
    assert values["irq.core[cpu7]"] == 0
    assert not any(math.isnan(v) for v in values.values())


def test_procfs_fixtures() -> None:
    """The tree of prometheus/procfs, a text archive."""
    files = archive("procfs")
    host = Host()
    values = host.read({path: files[path] for path in FILES if path in files})
    assert values["cpu.procs_running"] == 2
    assert values["memory.mem_total"] == pytest.approx(15666184 * 1024)
    assert values["sockets.used"] == 1602
    assert "net.rx_bytes[veth*]" in values
    assert host.failures == host.bad_fields == 0
