"""Memory, its nodes and huge pages: this recording and other machines', read here by hand."""

from __future__ import annotations

import math
import re

import pytest

from producers.collectors.hugepages import page_bytes, size_name
from producers.collectors.memory import COUNTED_NR, LEVEL_UNITS, plan_vmstat
from producers.parsing import snake_case
from schemas.records import Kind, Subsystem
from tests.producers.archives import archive
from tests.producers.kernel import FIRST, SECOND, Host

S = 10**9
MIB, GIB = 1 << 20, 1 << 30


def names_and_numbers(text: bytes) -> dict[str, int]:
    return {line.split()[0]: int(line.split()[1]) for line in text.decode().splitlines()}


def grown(text: bytes, by: int) -> bytes:
    """Add to every number that is a line's last: 1 x by to the first, 2 x by to the next."""
    lines = [line.rsplit(b" ", 1) for line in text.splitlines()]
    return b"".join(b"%s %d\n" % (n, int(v) + by * i) for i, (n, v) in enumerate(lines, start=1))


MACHINES = [("node_exporter/proc", 45 - 3), ("procfs", 45)]


@pytest.mark.parametrize(("machine", "lines"), MACHINES)
def test_every_line_of_meminfo(machine: str, lines: int) -> None:
    text = archive(machine)["proc/meminfo"]
    values = Host("memory").read({"proc/meminfo": text})
    numbers = [re.fullmatch(r"(.+): +(\d+)( kB)?", n) for n in text.decode().splitlines()]
    assert len(numbers) == lines
    for found in numbers:
        assert found
        expected = int(found[2]) * (1024 if found[3] else 1)
        assert values[f"memory.{snake_case(found[1])}"] == pytest.approx(expected, rel=1e-7)
    # Neither machine's kernel has MemAvailable, so what is in use is not known.
    assert len(values) == lines
    assert "memory.in_use" not in values


def test_every_line_of_vmstat() -> None:
    text = archive("node_exporter/proc")["proc/vmstat"]
    before = names_and_numbers(text)
    assert len(before) > 100
    host = Host("memory")
    host.read({"proc/vmstat": text}, S)
    values = host.read({"proc/vmstat": grown(text, 10)}, S)
    kinds = {c.metric: c for c in host.group.channels}
    for i, name in enumerate(before, start=1):
        channel = kinds[f"vmstat.{name}"]
        level = before[name] + 10 * i
        expected = level if channel.kind is Kind.GAUGE else 10 * i
        if name.startswith("pgpg"):
            expected *= 1024
            assert channel.unit == "B/s"
        assert values[f"vmstat.{name}"] == pytest.approx(expected, rel=1e-7), name
    order = list(before)
    missed, hit = order.index("numa_miss") + 1, order.index("numa_hit") + 1
    assert values["vmstat.numa_miss_share"] == pytest.approx(100 * missed / (missed + hit))
    assert len(values) == len(before) + 1


LEVELS_4_TO_6 = """
nr_free_pages nr_free_pages_blocks nr_alloc_batch nr_zone_inactive_anon nr_zone_active_anon
nr_zone_inactive_file nr_zone_active_file nr_zone_unevictable nr_zone_write_pending nr_mlock
nr_page_table_pages nr_sec_page_table_pages nr_kernel_stack nr_shadow_call_stack nr_bounce
nr_zspages nr_free_cma nr_unaccepted nr_inactive_anon nr_active_anon nr_inactive_file
nr_active_file nr_unevictable nr_slab_reclaimable nr_slab_unreclaimable nr_isolated_anon
nr_isolated_file nr_anon_pages nr_mapped nr_file_pages nr_dirty nr_writeback nr_writeback_temp
nr_shmem nr_shmem_hugepages nr_shmem_pmdmapped nr_file_hugepages nr_file_pmdmapped
nr_anon_transparent_hugepages nr_unstable nr_indirectly_reclaimable nr_kernel_misc_reclaimable
nr_swapcached nr_iommu_pages nr_hugetlb nr_balloon_pages nr_memmap_pages nr_memmap_boot_pages
nr_dirty_threshold nr_dirty_background_threshold nr_pages_scanned nr_overhead workingset_nodes
"""
COUNTERS_4_TO_6 = """
nr_vmscan_write nr_vmscan_immediate_reclaim nr_dirtied nr_written nr_throttled_written
nr_foll_pin_acquired nr_foll_pin_released nr_tlb_remote_flush nr_tlb_remote_flush_received
nr_tlb_local_flush_all nr_tlb_local_flush_one numa_hit numa_miss numa_foreign numa_interleave
numa_local numa_other numa_pte_updates numa_huge_pte_updates numa_hint_faults
numa_hint_faults_local numa_pages_migrated numa_task_migrated numa_task_swapped
workingset_refault workingset_activate workingset_restore workingset_nodereclaim
workingset_refault_anon workingset_refault_file pgpromote_success pgpromote_candidate
pgdemote_kswapd pgdemote_direct pgdemote_khugepaged pgpgin pgpgout pswpin pswpout
allocstall_normal pgskip_dma pgfree pgactivate pgdeactivate pglazyfree pglazyfreed pgfault
pgmajfault pgrefill pgreuse pgsteal_kswapd pgscan_direct pgscan_direct_throttle
zone_reclaim_failed zone_reclaim_success pginodesteal slabs_scanned kswapd_inodesteal
kswapd_low_wmark_hit_quickly pageoutrun pgrotated drop_pagecache drop_slab oom_kill
pgmigrate_success thp_migration_success compact_migrate_scanned compact_stall compact_isolated
compact_daemon_wake htlb_buddy_alloc_success cma_alloc_success unevictable_pgs_culled
thp_fault_alloc thp_collapse_alloc thp_split_page thp_split_pmd thp_zero_page_alloc thp_swpout
balloon_inflate balloon_deflate balloon_migrate swap_ra swap_ra_hit swpin_zero swpout_zero
ksm_swpin_copy cow_ksm zswpin zswpout zswpwb direct_map_level2_splits direct_map_level3_splits
vma_lock_success vma_lock_abort kstack_1k kstack_rest
"""


def test_levels_and_counters_of_all_kernels() -> None:
    text = "".join(f"{name} 1\n" for name in (LEVELS_4_TO_6 + COUNTERS_4_TO_6).split())
    kinds = {c.metric: c.kind for c in plan_vmstat(text).channels.values()}
    for name in LEVELS_4_TO_6.split():
        assert kinds[f"vmstat.{name}"] is Kind.GAUGE, name
    for name in COUNTERS_4_TO_6.split():
        assert kinds[f"vmstat.{name}"] is Kind.RATE, name
    assert set(COUNTERS_4_TO_6.split()) >= COUNTED_NR


def test_levels_of_vmstat_that_count_no_small_pages() -> None:
    text = "".join(f"{name} 1\n" for name in LEVEL_UNITS)
    units = {c.metric: c.unit for c in plan_vmstat(text).channels.values()}
    assert units["vmstat.nr_anon_transparent_hugepages"] == "hugepages"
    assert units["vmstat.nr_kernel_stack"] == "KiB"
    assert units["vmstat.nr_indirectly_reclaimable"] == "B"
    assert len(units) == len(LEVEL_UNITS)


def test_misses_of_no_allocation_are_none() -> None:
    host = Host("memory")
    text = b"numa_hit 5\nnuma_miss 7\n"
    assert math.isnan(host.read({"proc/vmstat": text})["vmstat.numa_miss_share"])
    assert host.read({"proc/vmstat": text})["vmstat.numa_miss_share"] == 0


def pool(size_kib: int, total: int | str, free: int | str) -> dict[str, bytes]:
    top = f"sys/kernel/mm/hugepages/hugepages-{size_kib}kB"
    return {
        f"{top}/nr_hugepages": f"{total}\n".encode(),
        f"{top}/free_hugepages": f"{free}\n".encode(),
    }


def meminfo(available_kib: int, hugetlb_kib: int | None, total: int = 0, free: int = 0) -> bytes:
    hugetlb = "" if hugetlb_kib is None else f"Hugetlb: {hugetlb_kib:15} kB\n"
    return (
        f"MemTotal:       64000000 kB\nMemAvailable: {available_kib:10} kB\n"
        f"HugePages_Total: {total:7}\nHugePages_Free: {free:8}\n"
        f"Hugepagesize:       2048 kB\n{hugetlb}"
    ).encode()


@pytest.mark.parametrize("used_gib", [0, 3, 8])
@pytest.mark.parametrize("told", [True, False], ids=["Hugetlb", "before 4.18"])
def test_huge_pages_of_all_sizes(used_gib: int, *, told: bool) -> None:
    """8 pages of 1 GiB and 100 of 2 MiB are set aside; some and 30 are given out."""
    aside = 8 * GIB // 1024 + 100 * 2048
    text = meminfo(40_000_000 - aside, aside if told else None, 100, 70)
    files = {
        "proc/meminfo": text,
        **pool(1048576, 8, 8 - used_gib),
        **pool(2048, 100, 70),
    }
    values = Host("memory").read(files)
    expected = 24_000_000 * 1024 + used_gib * GIB + 30 * 2 * MIB
    assert values["memory.in_use"] == pytest.approx(expected, rel=1e-7)
    assert not [label for label in values if "other" in label]


def test_other_sizes_are_looked_up_once_a_second() -> None:
    host = Host("memory")
    aside = 8 * GIB // 1024
    text = meminfo(40_000_000 - aside, aside)
    seen = []
    for tick in range(21):
        free = 8 if tick < 4 else 5
        files = {"proc/meminfo": text, **pool(1048576, 8, free)}
        seen.append(host.read(files, S // 10)["memory.in_use"] / GIB - 24_000_000 / MIB)
    assert seen[:10] == pytest.approx([0.0] * 10, abs=1e-5)
    assert seen[10:] == pytest.approx([3.0] * 11, abs=1e-5)


@pytest.mark.parametrize("garbage", ["", "oops", "-1", "9" * 400])
def test_a_size_that_cannot_be_read_costs_what_is_in_use(garbage: str) -> None:
    host = Host("memory")
    files = {"proc/meminfo": meminfo(30_000_000, 0), **pool(2048, 0, 0)}
    good = host.read({**files, **pool(1048576, 0, 0)}, S)
    channels = host.group.channels
    values = host.read({**files, **pool(1048576, 0, garbage)}, S)
    assert host.group.channels is channels
    unknown = {k for k, v in values.items() if math.isnan(v)}
    assert unknown <= {"memory.in_use"}
    assert {k: v for k, v in values.items() if k != "memory.in_use"} == {
        k: v for k, v in good.items() if k != "memory.in_use"
    }
    assert host.read({**files, **pool(1048576, 0, 0)}, S) == good


def test_nodes_of_this_recording() -> None:
    values = Host("numa").twice()
    between = 0.999989867
    expected = {
        "numa.mem_total[node0]": 12342044 * 1024,
        "numa.mem_free[node0]": (8289476 - 4096) * 1024,
        "numa.anon_pages[node1]": (99304 + 1024) * 1024,
        "numa.hit[node0]": (81027231 - 81023131) / between,
        "numa.foreign[node0]": 40 / between,
        "numa.miss[node1]": 40 / between,
        "numa.miss_share[node0]": 0,
        "numa.miss_share[node1]": 100 * 40 / (40 + 1900),
        "numa.other_share[node0]": 100 * 20 / (20 + 4080),
        "numa.other_share[node1]": 100 * 440 / (440 + 1500),
        "numa.nr_free_pages[node0]": 2071345,
        "numa.nr_dirtied[node0]": 200 / between,
        "numa.pgpromote_success[node1]": 2 / between,
    }
    assert {k: values[k] for k in expected} == pytest.approx(expected, rel=1e-6)
    host = Host("numa")
    host.twice()
    storage = {c.metric for c in host.group.channels if c.subsystem is Subsystem.STORAGE}
    assert storage == {
        *("numa.dirty", "numa.writeback", "numa.nr_dirtied", "numa.nr_written"),
        "numa.nr_vmscan_write",
    }


def node_files(machine: str) -> dict[str, bytes]:
    return {p: t for p, t in archive(machine).items() if p.startswith("sys/devices/system/node/")}


def test_nodes_of_another_machine() -> None:
    """Three nodes; every line of numastat, and of meminfo what is taken."""
    first = node_files("node_exporter/sys")
    second = {p: grown(t, 10) if p.endswith("numastat") else t for p, t in first.items()}
    host = Host("numa")
    host.read(first, S)
    values = host.read(second, S)
    names = ["hit", "miss", "foreign", "interleave_hit", "local", "other"]
    for node in ("node0", "node1", "node2"):
        rates = [values[f"numa.{name}[{node}]"] for name in names]
        assert rates == pytest.approx([10, 20, 30, 40, 50, 60])
        assert values[f"numa.other_share[{node}]"] == pytest.approx(100 * 60 / 110)
        assert values[f"numa.miss_share[{node}]"] == pytest.approx(100 * 20 / 30)
        taken = 0
        for line in first[f"sys/devices/system/node/{node}/meminfo"].decode().splitlines():
            name, number = re.fullmatch(r"Node \d (.+): +(\d+)(?: kB)?", line).groups()  # type: ignore[union-attr]
            label = f"numa.{snake_case(name)}[{node}]"
            if label in values:
                taken += 1
                assert values[label] == pytest.approx(int(number) * 1024, rel=1e-7)
        assert taken == 15  # FileHugePages came later
    assert host.failures == host.bad_fields == 0


def test_vmstat_of_the_nodes_of_another_machine() -> None:
    files = node_files("procfs")
    values = Host("numa").read(files)
    expected = {
        f"numa.{name}[{node}]": number
        for node in ("node1", "node2")
        for name, number in names_and_numbers(
            files[f"sys/devices/system/node/{node}/vmstat"]
        ).items()
    }
    assert len(expected) == 12
    assert values == expected


def test_one_node_says_nothing_of_its_own() -> None:
    only = {p: t for p, t in FIRST.items() if "node1" not in p}
    host = Host("numa", "hugepages")
    values = host.read(only)
    assert {label.split(".")[0] for label in values} == {"hugepages"}
    assert not any("node" in label for label in values)
    for _ in range(12):
        values = host.read(FIRST)  # a second one comes
    assert "numa.hit[node0]" in values
    assert "hugepages.node_free[node1/2MiB]" in values
    assert host.failures == 0


def huge(top: str, size_kib: int, **numbers: int) -> dict[str, bytes]:
    directory = f"{top}/hugepages-{size_kib}kB"
    return {f"{directory}/{name}_hugepages": b"%d\n" % n for name, n in numbers.items()}


def test_huge_pages_of_each_size_and_node() -> None:
    top, nodes = "sys/kernel/mm/hugepages", "sys/devices/system/node"
    files = {
        **huge(top, 64, nr=0, free=0, resv=0, surplus=0),
        **huge(top, 2048, nr=128, free=88, resv=10, surplus=1),
        **huge(top, 1048576, nr=4, free=1, resv=0, surplus=0),
        **huge(f"{nodes}/node0/hugepages", 2048, nr=64, free=24, surplus=1),
        **huge(f"{nodes}/node1/hugepages", 2048, nr=64, free=64, surplus=0),
    }
    values = Host("hugepages").read(files)
    assert {k: v for k, v in values.items() if "64KiB" not in k} == {
        "hugepages.total[2MiB]": 128 * 2 * MIB,
        "hugepages.free[2MiB]": 88 * 2 * MIB,
        "hugepages.reserved[2MiB]": 10 * 2 * MIB,
        "hugepages.surplus[2MiB]": 2 * MIB,
        "hugepages.used[2MiB]": 40 * 2 * MIB,
        "hugepages.total[1GiB]": 4 * GIB,
        "hugepages.free[1GiB]": GIB,
        "hugepages.reserved[1GiB]": 0,
        "hugepages.surplus[1GiB]": 0,
        "hugepages.used[1GiB]": 3 * GIB,
        "hugepages.node_total[node0/2MiB]": 128 * MIB,
        "hugepages.node_free[node0/2MiB]": 48 * MIB,
        "hugepages.node_surplus[node0/2MiB]": 2 * MIB,
        "hugepages.node_used[node0/2MiB]": 80 * MIB,
        "hugepages.node_total[node1/2MiB]": 128 * MIB,
        "hugepages.node_free[node1/2MiB]": 128 * MIB,
        "hugepages.node_surplus[node1/2MiB]": 0,
        "hugepages.node_used[node1/2MiB]": 0,
    }
    assert values["hugepages.used[64KiB]"] == 0


def test_what_a_directory_of_huge_pages_is_about() -> None:
    assert page_bytes("hugepages-32768kB") == 32 * MIB
    assert page_bytes("hugepages-kB") == page_bytes("hugepages-2M") == 0
    assert [size_name(n) for n in (65536, 2 * MIB, 512 * MIB, 16 * GIB, 3 * MIB // 2)] == [
        *("64KiB", "2MiB", "512MiB", "16GiB", "1536KiB")
    ]


def test_without_this_recordings_pools_nothing_is_used() -> None:
    values = Host("hugepages").read(SECOND)
    assert set(values.values()) == {0}
    assert len(values) == 2 * 5 + 4 * 4


def free_blocks(text: bytes) -> dict[str, list[int]]:
    """Return how many blocks of each order a node has."""
    nodes: dict[str, list[int]] = {}
    for line in text.decode().splitlines():
        head, _, counts = line.replace(",", " ").partition("zone")
        blocks = [int(n) for n in counts.split()[1:]]
        node = f"node{head.split()[1]}"
        nodes[node] = [a + b for a, b in zip(nodes.get(node, [0] * 11), blocks, strict=True)]
    return nodes


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs", ""])
def test_how_torn_free_memory_is(machine: str) -> None:
    text = (archive(machine) if machine else SECOND)["proc/buddyinfo"]
    host = Host("buddy")
    values = host.read({"proc/buddyinfo": text})
    expected = {}
    for node, blocks in free_blocks(text).items():
        pages = [n << order for order, n in enumerate(blocks)]
        expected[f"buddy.free[{node}]"] = float(sum(pages))
        expected[f"buddy.torn[{node}]"] = 100 * sum(pages[:9]) / sum(pages)
    assert values == pytest.approx(expected, rel=1e-6)
    assert len(values) == (2 if machine else 4)
    assert host.failures == host.bad_fields == 0


def test_no_free_memory_is_not_torn() -> None:
    text = b"Node 0, zone   Normal " + b"     0 " * 11 + b"\n"
    values = Host("buddy").read({"proc/buddyinfo": text})
    assert values == {"buddy.free[node0]": 0, "buddy.torn[node0]": 0}


def test_a_zone_that_lacks_a_count_costs_its_node() -> None:
    host = Host("buddy")
    host.read(FIRST)
    torn = SECOND["proc/buddyinfo"].replace(b"   812 ", b" ", 1).replace(b"   822 ", b" ", 1)
    assert torn != SECOND["proc/buddyinfo"]
    values = host.read(SECOND | {"proc/buddyinfo": torn})
    assert {label for label, value in values.items() if math.isnan(value)} == {
        *("buddy.free[node1]", "buddy.torn[node1]"),
    }
    whole = Host("buddy").twice()
    assert values["buddy.torn[node0]"] == whole["buddy.torn[node0]"]
