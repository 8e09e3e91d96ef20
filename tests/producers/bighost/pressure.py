"""Waiting: /proc/pressure, and the control groups' top level (version 2)."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import ZERO, Files, Number, counter, level

STALLS = {"cpu": (2.1e4, 0), "memory": (300, 120), "io": (8.2e3, 5.1e3), "irq": (None, 900)}
"""Microseconds a second: `some`, where there is that line, and `full`."""

SLICES = {"init.scope": 0.001, "system.slice": 0.08, "user.slice": 0.2, "kubepods.slice": 0.7}
"""Control groups at the top, and their share of what the machine does."""

MEMORY_STAT = (
    *("anon", "file", "kernel", "kernel_stack", "pagetables", "sec_pagetables", "percpu"),
    *("sock", "vmalloc", "shmem", "zswap", "zswapped", "file_mapped", "file_dirty"),
    *("file_writeback", "swapcached", "anon_thp", "file_thp", "shmem_thp", "inactive_anon"),
    *("active_anon", "inactive_file", "active_file", "unevictable", "slab_reclaimable"),
    *("slab_unreclaimable", "slab"),
)
MEMORY_COUNTS = (
    *("workingset_refault_anon", "workingset_refault_file", "workingset_activate_anon"),
    *("workingset_activate_file", "workingset_restore_anon", "workingset_restore_file"),
    *("workingset_nodereclaim", "pgscan", "pgsteal", "pgscan_kswapd", "pgscan_direct"),
    *("pgsteal_kswapd", "pgsteal_direct", "pgfault", "pgmajfault", "pgrefill", "pgactivate"),
    *("pgdeactivate", "pglazyfree", "pglazyfreed", "thp_fault_alloc", "thp_collapse_alloc"),
)


def add(files: Files, size: Size) -> None:
    """Add the files."""
    for name in STALLS:
        _stalls(files, f"proc/pressure/{name}", name, 1)
    top = "sys/fs/cgroup"
    files.text(f"{top}/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc")
    files.text(f"{top}/cgroup.subtree_control", "cpuset cpu io memory pids")
    files.add(f"{top}/cgroup.stat", "nr_descendants %d\nnr_dying_descendants %d\n", *_counts())
    for name in STALLS:
        _stalls(files, f"{top}/{name}.pressure", name, 1)
    usec = 1e6 * size.cores
    names = ("usage_usec", "user_usec", "system_usec")
    template = "".join(f"{name} %d\n" for name in names)
    files.add(f"{top}/cpu.stat", template, *_usage(0.6 * usec))
    _memory_stat(files, f"{top}/memory.stat", size, 1)
    _io_stat(files, f"{top}/io.stat", size, 1)
    for group, share in SLICES.items():
        root = f"{top}/{group}"
        files.text(f"{root}/cgroup.controllers", "cpuset cpu io memory pids")
        throttled = (
            "nr_periods %d\nnr_throttled %d\nthrottled_usec %d\nnr_bursts %d\nburst_usec %d\n"
        )
        numbers = (counter(10), counter(0.4 * share), counter(900 * share), ZERO, ZERO)
        files.add(f"{root}/cpu.stat", template + throttled, *_usage(0.6 * usec * share), *numbers)
        files.one(f"{root}/memory.current", level(share * size.memory_gib * 0.6 * 2**30))
        files.text(f"{root}/memory.max", "max")
        files.text(f"{root}/memory.high", "max")
        files.one(f"{root}/memory.swap.current", ZERO)
        files.add(
            f"{root}/memory.events", _lines("low high max oom oom_kill oom_group_kill"), *[ZERO] * 6
        )
        _memory_stat(files, f"{root}/memory.stat", size, share)
        _io_stat(files, f"{root}/io.stat", size, share)
        files.one(f"{root}/pids.current", level(2400 * share + 1))
        files.text(f"{root}/pids.max", "max")
        for name in STALLS:
            _stalls(files, f"{root}/{name}.pressure", name, share)


def _lines(names: str) -> str:
    return "".join(f"{name} %d\n" for name in names.split())


def _counts() -> tuple[Number, Number]:
    return level(180), level(30)


def _usage(usec: float) -> list[Number]:
    return [counter(usec), counter(0.85 * usec), counter(0.15 * usec)]


def _stalls(files: Files, path: str, name: str, share: float) -> None:
    lines: list[str] = []
    numbers: list[Number] = []
    for kind, usec in zip(("some", "full"), STALLS[name], strict=True):
        if usec is not None:
            average = "avg10=%d.%02d avg60=%d.%02d avg300=%d.%02d"
            lines.append(f"{kind} {average} total=%d\n")
            percent = usec * share / 1e4
            numbers += (level(percent), level(50, 0.9) if usec else ZERO) * 3
            numbers.append(counter(usec * share))
    files.add(path, "".join(lines), *numbers)


def _memory_stat(files: Files, path: str, size: Size, share: float) -> None:
    whole = share * size.memory_gib * 2**30
    levels = (level(whole * (0.3 if n < 2 else 0.02 / n)) for n in range(len(MEMORY_STAT)))
    counts = (counter(share * 7 * n) for n in range(len(MEMORY_COUNTS)))
    names = (*MEMORY_STAT, *MEMORY_COUNTS)
    files.add(path, "".join(f"{name} %d\n" for name in names), *levels, *counts)


def _io_stat(files: Files, path: str, size: Size, share: float) -> None:
    line = "259:%d rbytes=%d wbytes=%d rios=%d wios=%d dbytes=%d dios=%d\n"
    numbers: list[Number] = []
    for disk in range(size.disks):
        rates = (1.4e7, 1.1e7, 300, 240, 0, 0)
        numbers += (Number(disk), *(counter(share * rate) for rate in rates))
    files.add(path, line * size.disks, *numbers)
