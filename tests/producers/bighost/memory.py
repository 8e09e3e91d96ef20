"""Memory: meminfo, vmstat, NUMA nodes, huge pages of two sizes, EDAC."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import ZERO, Files, Number, counter, fixed, level, table, total

KIB_A_GIB = 1 << 20
HUGE = {2048: 16384, 1 << 20: 64}
"""Huge pages by their size in KiB, over all nodes: 32 GiB and 64 GiB."""
DEFAULT_HUGE_KIB = 2048

SHARES = table(
    """
    MemFree 0.31  Buffers 0.002  Cached 0.33  SwapCached 0  Active 0.21  Inactive 0.22
    Active(anon) 0.011  Inactive(anon) 0.08  Active(file) 0.2  Inactive(file) 0.14
    Unevictable 0.0004  Mlocked 0.0004  SwapTotal 0.016  SwapFree 0.016  Zswap 0  Zswapped 0
    Dirty 0.0002  Writeback 0.00004  AnonPages 0.09  Mapped 0.012  Shmem 0.004  KReclaimable 0.021
    Slab 0.029  SReclaimable 0.021  SUnreclaim 0.008  KernelStack 0.00008  PageTables 0.0006
    SecPageTables 0  NFS_Unstable 0  Bounce 0  WritebackTmp 0  CommitLimit 0.42  Committed_AS 0.15
    VmallocTotal 64  VmallocUsed 0.0021  VmallocChunk 0  Percpu 0.0004  HardwareCorrupted 0
    AnonHugePages 0.06  ShmemHugePages 0  ShmemPmdMapped 0  FileHugePages 0  FilePmdMapped 0
    CmaTotal 0  CmaFree 0
    """
)
"""Of all memory, what stands in meminfo; nodes have the same, each its part."""

STILL = {"SwapTotal", "CommitLimit", "VmallocTotal"}
NODE = (
    *("MemTotal", "MemFree", "MemUsed", "SwapCached", "Active", "Inactive", "Active(anon)"),
    *("Inactive(anon)", "Active(file)", "Inactive(file)", "Unevictable", "Mlocked", "Dirty"),
    *("Writeback", "FilePages", "Mapped", "AnonPages", "Shmem", "KernelStack", "PageTables"),
    *("SecPageTables", "NFS_Unstable", "Bounce", "WritebackTmp", "KReclaimable", "Slab"),
    *("SReclaimable", "SUnreclaim", "AnonHugePages", "ShmemHugePages", "ShmemPmdMapped"),
    *("FileHugePages", "FilePmdMapped"),
)
"""Lines of a node's meminfo."""

VMSTAT_LEVELS = table(
    """
    nr_free_pages 4.1e7  nr_zone_inactive_anon 1.1e7  nr_zone_active_anon 1.5e6
    nr_zone_inactive_file 1.9e7  nr_zone_active_file 2.7e7  nr_zone_unevictable 5e4
    nr_zone_write_pending 3e4  nr_mlock 5e4  nr_bounce 0  nr_zspages 0  nr_free_cma 0
    nr_unaccepted 0
    """
)
VMSTAT_NODE_LEVELS = table(
    """
    nr_inactive_anon 1.1e7  nr_active_anon 1.5e6  nr_inactive_file 1.9e7  nr_active_file 2.7e7
    nr_unevictable 5e4  nr_slab_reclaimable 2.8e6  nr_slab_unreclaimable 1.1e6  nr_isolated_anon 0
    nr_isolated_file 0  workingset_nodes 2.3e5
    """
)
VMSTAT_MORE_LEVELS = table(
    """
    nr_anon_pages 1.2e7  nr_mapped 1.6e6  nr_file_pages 4.5e7  nr_dirty 2.6e4  nr_writeback 5e3
    nr_writeback_temp 0  nr_shmem 5.4e5  nr_shmem_hugepages 0  nr_shmem_pmdmapped 0
    nr_file_hugepages 0  nr_file_pmdmapped 0  nr_anon_transparent_hugepages 1.6e4
    """
)
VMSTAT = table(
    """
    numa_hit 8.2e5  numa_miss 300  numa_foreign 300  numa_interleave 0.02  numa_local 8.0e5
    numa_other 2.1e4
    """
)
VMSTAT_WORKINGSET = table(
    """
    workingset_refault_anon 0.4  workingset_refault_file 220  workingset_activate_anon 0.1
    workingset_activate_file 60  workingset_restore_anon 0.02  workingset_restore_file 21
    workingset_nodereclaim 3
    """
)
VMSTAT_WRITES = table(
    """
    nr_vmscan_write 0.3  nr_vmscan_immediate_reclaim 0.1  nr_dirtied 5200  nr_written 5100
    """
)
VMSTAT_COUNTS = table(
    """
    pgpgin 6.1e4  pgpgout 4.4e4  pswpin 0.2  pswpout 0.3  pgalloc_dma 0  pgalloc_dma32 90
    pgalloc_normal 8.3e5  pgalloc_movable 0  allocstall_dma 0  allocstall_dma32 0
    allocstall_normal 0.01  allocstall_movable 0.02  pgskip_dma 0  pgskip_dma32 0  pgskip_normal 0
    pgskip_movable 0  pgfree 8.4e5  pgactivate 3100  pgdeactivate 260  pglazyfree 14
    pgfault 9.1e5  pgmajfault 5  pglazyfreed 2  pgrefill 300  pgreuse 2.2e4  pgsteal_kswapd 950
    pgsteal_direct 2  pgsteal_khugepaged 0.3  pgdemote_kswapd 0  pgdemote_direct 0
    pgscan_kswapd 1200  pgscan_direct 3  pgscan_khugepaged 0.4  pgscan_direct_throttle 0
    pgscan_anon 40  pgscan_file 1150  pgsteal_anon 20  pgsteal_file 930  zone_reclaim_success 0
    zone_reclaim_failed 0  pginodesteal 0.2  slabs_scanned 800  kswapd_inodesteal 6
    kswapd_low_wmark_hit_quickly 0.02  kswapd_high_wmark_hit_quickly 0.01  pageoutrun 0.1
    pgrotated 3  drop_pagecache 0  drop_slab 0  oom_kill 0.0001  numa_pte_updates 4100
    numa_huge_pte_updates 4  numa_hint_faults 3300  numa_hint_faults_local 2800
    numa_pages_migrated 270  pgmigrate_success 420  pgmigrate_fail 2  thp_migration_success 0.2
    thp_migration_fail 0.01  thp_migration_split 0.01  compact_migrate_scanned 900
    compact_free_scanned 5200  compact_isolated 410  compact_stall 0.05  compact_fail 0.02
    compact_success 0.03  compact_daemon_wake 0.1  compact_daemon_migrate_scanned 120
    compact_daemon_free_scanned 700  htlb_buddy_alloc_success 0  htlb_buddy_alloc_fail 0
    unevictable_pgs_culled 0.1  unevictable_pgs_scanned 0  unevictable_pgs_rescued 0.1
    unevictable_pgs_mlocked 0.2  unevictable_pgs_munlocked 0.2  unevictable_pgs_cleared 0
    unevictable_pgs_stranded 0  thp_fault_alloc 21  thp_fault_fallback 0.3
    thp_fault_fallback_charge 0  thp_collapse_alloc 1  thp_collapse_alloc_failed 0
    thp_file_alloc 0  thp_file_fallback 0  thp_file_fallback_charge 0  thp_file_mapped 0
    thp_split_page 0.4  thp_split_page_failed 0  thp_deferred_split_page 3  thp_split_pmd 0.6
    thp_scan_exceed_none_pte 0.5  thp_scan_exceed_swap_pte 0  thp_scan_exceed_share_pte 0.1
    thp_split_pud 0  thp_zero_page_alloc 0.00001  thp_zero_page_alloc_failed 0  thp_swpout 0
    thp_swpout_fallback 0  balloon_inflate 0  balloon_deflate 0  balloon_migrate 0  swap_ra 0.1
    swap_ra_hit 0.1  ksm_swpin_copy 0  cow_ksm 0  zswpin 0  zswpout 0
    direct_map_level2_splits 0.001  direct_map_level3_splits 0.0001
    """
)
VMSTAT_LAST_LEVELS = table(
    """
    nr_kernel_misc_reclaimable 0  nr_foll_pin_acquired 9e5  nr_foll_pin_released 9e5
    nr_kernel_stack 4.2e4  nr_page_table_pages 8.1e4  nr_sec_page_table_pages 0  nr_swapcached 0
    pgpromote_success 0  pgpromote_candidate 0  nr_dirty_threshold 2.4e7
    nr_dirty_background_threshold 1.2e7
    """
)


def add(files: Files, size: Size) -> None:
    """Add the files."""
    whole = size.memory_gib * KIB_A_GIB
    lines = [f"{'MemTotal:':16}%8d kB", f"{'MemFree:':16}%8d kB", f"{'MemAvailable:':16}%8d kB"]
    numbers = [fixed(0.985 * whole), level(SHARES["MemFree"] * whole), level(0.62 * whole)]
    for name, share in SHARES.items():
        if name == "MemFree":
            continue
        lines.append(f"{name + ':':16}%8d kB")
        numbers.append(fixed(share * whole) if name in STILL else level(share * whole))
    reserved = HUGE[DEFAULT_HUGE_KIB]
    lines += ("HugePages_Total:   %5d", "HugePages_Free:    %5d", "HugePages_Rsvd:    %5d")
    lines += ("HugePages_Surp:    %5d", f"Hugepagesize:   {DEFAULT_HUGE_KIB:8} kB")
    numbers += (fixed(reserved), total(f"free.{DEFAULT_HUGE_KIB}"), fixed(64), ZERO)
    lines.append("Hugetlb:        %8d kB")
    numbers.append(fixed(sum(kib * pages for kib, pages in HUGE.items())))
    for name, share in (("DirectMap4k", 0.002), ("DirectMap2M", 0.05), ("DirectMap1G", 0.94)):
        lines.append(f"{name + ':':16}%8d kB")
        numbers.append(fixed(share * whole))
    files.add("proc/meminfo", "\n".join(lines) + "\n", *numbers)
    _vmstat(files)
    _buddyinfo(files, size)
    for node in range(size.sockets):
        _node(files, size, node)
    for kib in HUGE:
        _huge(files, f"sys/kernel/mm/hugepages/hugepages-{kib}kB", kib, 1)
    files.text("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    for name in ("online", "possible", "has_cpu", "has_memory"):
        files.text(f"sys/devices/system/node/{name}", f"0-{size.sockets - 1}")
    for controller in range(2 * size.sockets):
        _edac(files, size, controller)


def _vmstat(files: Files) -> None:
    numbers: dict[str, Number] = {}
    for levels, counts in (
        (VMSTAT_LEVELS, VMSTAT),
        (VMSTAT_NODE_LEVELS, VMSTAT_WORKINGSET),
        (VMSTAT_MORE_LEVELS, VMSTAT_WRITES),
        (VMSTAT_LAST_LEVELS, VMSTAT_COUNTS),
    ):
        numbers |= {name: level(pages) for name, pages in levels.items()}
        numbers |= {name: counter(rate) for name, rate in counts.items()}
    for name in ("nr_foll_pin_acquired", "nr_foll_pin_released"):
        numbers[name] = counter(14)
    numbers["nr_unstable"] = ZERO
    files.add("proc/vmstat", "".join(f"{name} %d\n" for name in numbers), *numbers.values())


def _buddyinfo(files: Files, size: Size) -> None:
    """Free blocks of 1, 2, 4, ... pages of each zone."""
    zones = [(0, "DMA", 1.0), (0, "DMA32", 200.0)]
    zones += [(node, "Normal", 40_000.0) for node in range(size.sockets)]
    lines = [f"Node {node}, zone {zone:>8} " + "%6d " * 11 for node, zone, _ in zones]
    numbers = [level(blocks / 2**order) for *_, blocks in zones for order in range(11)]
    files.add("proc/buddyinfo", "\n".join(lines) + "\n", *numbers)


def _buddies(files: Files, size: Size) -> None:
    """Add the free blocks of each zone by their order."""
    zones = [(0, "DMA", 0.0), (0, "DMA32", 1.0), (0, "Normal", 90.0)]
    zones += ((node, "Normal", 90.0) for node in range(1, size.sockets))
    lines = (f"Node {node}, zone {name:>8} {'%6d ' * 11}\n" for node, name, _ in zones)
    blocks = (level(many * 2000 / 2**order, 0.1) for _, _, many in zones for order in range(11))
    files.add("proc/buddyinfo", "".join(lines), *blocks)


def _node(files: Files, size: Size, node: int) -> None:
    root = f"sys/devices/system/node/node{node}"
    whole = size.memory_gib * KIB_A_GIB / size.sockets
    shares = SHARES | {"MemUsed": 0.675, "FilePages": 0.332}
    lines, numbers = [], []
    for name in NODE:
        lines.append(f"Node {node} {name + ':':16}%8d kB")
        still = name == "MemTotal"
        numbers.append(fixed(0.985 * whole) if still else level(shares[name] * whole))
    lines += (f"Node {node} HugePages_Total: %5d", f"Node {node} HugePages_Free:  %5d")
    lines.append(f"Node {node} HugePages_Surp:  %5d")
    huge = HUGE[DEFAULT_HUGE_KIB] // size.sockets
    numbers += (fixed(huge), total(f"free.{DEFAULT_HUGE_KIB}.{node}"), ZERO)
    files.add(f"{root}/meminfo", "\n".join(lines) + "\n", *numbers)
    names = ("numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node")
    rates = (4.1e5, 150, 150, 0.01, 4.0e5, 1.0e4)
    files.add(f"{root}/numastat", "".join(f"{n} %d\n" for n in names), *map(counter, rates))
    counts = VMSTAT | VMSTAT_WORKINGSET | VMSTAT_WRITES
    levels = VMSTAT_LEVELS | VMSTAT_NODE_LEVELS | VMSTAT_MORE_LEVELS
    files.add(
        f"{root}/vmstat",
        "".join(f"{name} %d\n" for name in (*levels, *counts)),
        *(level(pages / size.sockets) for pages in levels.values()),
        *(counter(rate / size.sockets) for rate in counts.values()),
    )
    files.text(f"{root}/cpulist", size.socket(node))
    files.text(f"{root}/distance", " ".join("10" if n == node else "21" for n in range(2)))
    for kib in HUGE:
        _huge(files, f"{root}/hugepages/hugepages-{kib}kB", kib, size.sockets, node)


def _huge(files: Files, root: str, kib: int, parts: int, node: int | None = None) -> None:
    pages = HUGE[kib] // parts
    free = level(pages // 4, 0.1, into=f"free.{kib} free.{kib}.{node}")
    files.one(f"{root}/nr_hugepages", fixed(pages))
    files.one(f"{root}/free_hugepages", total(f"free.{kib}") if node is None else free)
    files.one(f"{root}/surplus_hugepages", ZERO)
    if node is None:
        files.one(f"{root}/resv_hugepages", fixed(4))
        files.one(f"{root}/nr_overcommit_hugepages", ZERO)
        files.one(f"{root}/nr_hugepages_mempolicy", fixed(pages))


def _edac(files: Files, size: Size, controller: int) -> None:
    root = f"sys/devices/system/edac/mc/mc{controller}"
    files.text(f"{root}/mc_name", f"Intel_10nm Socket#{controller // 2} IMC#{controller % 2}")
    mib = 1024 * size.memory_gib // (2 * size.sockets)
    files.one(f"{root}/size_mb", fixed(mib))
    files.one(f"{root}/seconds_since_reset", counter(1))
    counts = {"ce_count": 0.003, "ue_count": 0.0, "ce_noinfo_count": 0.0, "ue_noinfo_count": 0.0}
    for name, rate in counts.items():
        files.one(f"{root}/{name}", counter(rate))
    for row in range(1):
        for name, rate in (("ce_count", 0.003), ("ue_count", 0)):
            files.one(f"{root}/csrow{row}/{name}", counter(rate))
        for channel in range(4):
            files.one(f"{root}/csrow{row}/ch{channel}_ce_count", counter(0.001))
            label = f"CPU_SrcID#{controller // 2}_MC#{controller % 2}_Chan#{channel}_DIMM#0"
            files.text(f"{root}/csrow{row}/ch{channel}_dimm_label", label)
    for dimm in range(4):
        at = f"{root}/dimm{dimm}"
        label = f"CPU_SrcID#{controller // 2}_MC#{controller % 2}_Chan#{dimm}_DIMM#0"
        files.text(f"{at}/dimm_label", label)
        files.text(f"{at}/dimm_location", f"channel {dimm} slot 0 ")
        files.text(f"{at}/dimm_mem_type", "Registered-DDR5")
        files.one(f"{at}/size", fixed(mib // 4))
        files.one(f"{at}/dimm_ce_count", counter(0.001))
        files.one(f"{at}/dimm_ue_count", ZERO)
