"""The agent on a host of two sockets, 48 cores and four GPUs: what it sees, and that it is right.

The host is made up (`tests.producers.bighost`), its GPUs are a table (`FakeNvml`).
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from producers.collectors import ALL, gpu
from producers.collectors.gpu.lanes import Inline
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.group import Group
from producers.reading import MemoryReader, SystemReader
from schemas.records import Subsystem
from tests.producers.bighost import BigHost, Size, Tree
from tests.producers.fake_nvml import FakeNvml

SECOND_NS = 10**9
CORES, GPUS = 48, 4

NOT_HERE = {
    "proc/net/xfrm_stat": "distributions build no IPsec statistics",
    "proc/net/tls_stat": "only where the kernel does TLS",
    "sys/kernel/debug/lustre": "it mounts NFS",
    "sys/kernel/debug/lustre/llite": "it mounts NFS",
    "nvml/energy": "an H100 gives it as one of many fields, in one call",
    "nvml/pcie_throughput": "an H100 counts bytes, as fields, too",
    "nvml/retired_pages": "an H100 remaps rows",
}
"""Sources without anything on this host, and why."""

UNKNOWN = re.compile(r"gpu\.last_xid(_logged)?\[.*\]")
"""Channels without a value: no GPU has had an XID."""

STEADY = 3
"""The reading at which all is there. GPM measures between two samples, and what is slow to ask is
asked in the background: its result is taken at the reading after."""


class Watched:
    """The made-up host, sampled whole once a second."""

    def __init__(self) -> None:
        self.host = BigHost(Size(cores=CORES))
        self.gpus = FakeNvml.h100s(GPUS)
        self.reader = MemoryReader()
        collectors = [make() for make in ALL]
        nvml, clock_ns = cast(Nvml, self.gpus), self.gpus.clock_ns
        collectors += gpu.over(Session(lambda: nvml, lanes=Inline(), clock_ns=clock_ns))
        self.sources = [s for c in collectors for s in c.sources]
        self.group = Group(collectors, self.reader)
        self.seconds = 0
        self.before: dict[str, bytes] = {}

    def read(self) -> dict[str, float]:
        """Let a second pass, and return every value by its label."""
        self.seconds += 1
        self.host.step(1.0)
        self.before, self.reader.files = dict(self.reader.files), self.host.files()
        self.gpus.now_ns = self.seconds * SECOND_NS
        values = self.group.collect(self.seconds * SECOND_NS, whole=True)
        return dict(zip((c.label for c in self.group.channels), values.tolist(), strict=True))

    def steady(self) -> dict[str, float]:
        """Return the values when all is there."""
        return [self.read() for _ in range(STEADY)][-1]

    def number(self, path: str, *, before: bool = False) -> int:
        """Return a file's only number."""
        return int((self.before if before else self.reader.files)[path])

    def growth(self, path: str) -> int:
        """Return by how much a file's only number grew."""
        return self.number(path) - self.number(path, before=True)

    def line(self, path: str, start: str, *, before: bool = False) -> list[int]:
        """Return the numbers after a line's first word."""
        text = (self.before if before else self.reader.files)[path].decode()
        (found,) = (line.split()[1:] for line in text.splitlines() if line.split()[0] == start)
        return [int(word) for word in itertools.takewhile(str.isdigit, found)]


@pytest.fixture(scope="module")
def watched() -> tuple[Watched, dict[str, float]]:
    """Return the host and its values when all is there."""
    host = Watched()
    return host, host.steady()


def test_how_much_the_agent_sees(watched: tuple[Watched, dict[str, float]]) -> None:
    """Over 150 kinds and 700 channels; those of one device more or less would change little."""
    channels = watched[0].group.channels
    by_subsystem = Counter(c.subsystem for c in channels)
    kinds = {s: len({c.metric for c in channels if c.subsystem is s}) for s in by_subsystem}
    report = ", ".join(f"{s.value} {kinds[s]} kinds {by_subsystem[s]} channels" for s in kinds)
    assert len({c.metric for c in channels}) > 150, report
    assert len(channels) > 700, report
    assert set(by_subsystem) == {*Subsystem} - {Subsystem.AGENT}, report
    for subsystem, least in {
        Subsystem.CPU: 20,
        Subsystem.GPU: 40,
        Subsystem.MEMORY: 100,
        Subsystem.NETWORK: 100,
        Subsystem.STORAGE: 20,
    }.items():
        assert kinds[subsystem] >= least, report


def test_every_source_brings_something(watched: tuple[Watched, dict[str, float]]) -> None:
    absent = {s.path: s.problem for s in watched[0].sources if s.problem or not s.plan.channels}
    assert set(absent) <= set(NOT_HERE), absent


def test_nothing_is_wrong_with_it(watched: tuple[Watched, dict[str, float]]) -> None:
    host, values = watched
    for name, stats in host.group.stats.items():
        assert (name, stats.bad_fields, dict(stats.failures)) == (name, 0, {})
    unknown = {label for label, value in values.items() if math.isnan(value)}
    assert len(unknown) <= 2 * GPUS
    assert not {label for label in unknown if not UNKNOWN.fullmatch(label)}
    assert not host.group.events  # no counter went back


def test_all_but_gpus_is_there_at_the_second_reading() -> None:
    host = Watched()
    host.read()
    unknown = {label for label, value in host.read().items() if math.isnan(value)}
    assert not {label for label in unknown if not label.startswith("gpu.")}


def test_its_layout_stays() -> None:
    host = Watched()
    host.steady()
    channels = host.group.channels
    for _ in range(4):
        host.read()
        assert host.group.channels is channels


def test_cores(watched: tuple[Watched, dict[str, float]]) -> None:
    host, values = watched
    last = f"cpu{CORES - 1}"
    now, before = (host.line("proc/stat", last, before=b) for b in (False, True))
    # USER_HZ is 100, so ticks in a second are percent.
    assert values[f"cpu.user[{last}]"] == now[0] - before[0]
    assert sum(now) - sum(before) == pytest.approx(100, abs=10)
    for n in range(10):
        cores = (host.line("proc/stat", f"cpu{core}")[n] for core in range(CORES))
        assert host.line("proc/stat", "cpu")[n] == sum(cores)
    rows = (host.line("proc/interrupts", "LOC:", before=b) for b in (False, True))
    mine, earlier = rows
    assert len(mine) == CORES
    assert values["irq.source[LOC]"] == sum(mine) - sum(earlier)
    idle = "sys/devices/system/cpu/cpu7/cpuidle/state3/time"
    assert values["cpuidle.c6[cpu7]"] == pytest.approx(
        host.growth(idle) / 1e4, rel=1e-5
    )  # us/s to %


def test_memory(watched: tuple[Watched, dict[str, float]]) -> None:
    host, values = watched
    assert values["memory.mem_total"] == pytest.approx(0.985 * 512 * 2**30, rel=1e-6)
    ((total,), (available,), (reserved,)) = (
        host.line("proc/meminfo", f"{name}:") for name in ("MemTotal", "MemAvailable", "Hugetlb")
    )
    # What is set aside is in use by nobody, until it is given out.
    in_use = total - available - reserved
    for kib in (2048, 2**20):
        pool = f"sys/kernel/mm/hugepages/hugepages-{kib}kB"
        free = host.number(f"{pool}/free_hugepages")
        in_use += kib * (host.number(f"{pool}/nr_hugepages") - free)
        nodes = (
            host.number(f"sys/devices/system/node/node{n}/{pool[14:]}/free_hugepages")
            for n in range(2)
        )
        assert free == sum(nodes)
    assert values["memory.in_use"] == pytest.approx(1024 * in_use, rel=1e-5)
    assert {c.device for c in host.group.channels if c.metric.startswith("numa.")} >= {
        "node0",
        "node1",
    }
    sizes = {c.device for c in host.group.channels if c.metric == "hugepages.total"}
    assert sizes == {"2MiB", "1GiB"}


def test_ports(watched: tuple[Watched, dict[str, float]]) -> None:
    host, values = watched
    counters = "sys/class/infiniband/mlx5_0/ports/1/counters"
    received = host.growth(f"{counters}/port_rcv_data")
    assert values["infiniband.rcv_bytes[mlx5_0/1]"] == pytest.approx(
        4 * received, rel=1e-5
    )  # words of four bytes


def test_heat_and_power(watched: tuple[Watched, dict[str, float]]) -> None:
    host, values = watched
    joules = host.growth("sys/class/powercap/intel-rapl:0/energy_uj") / 1e6
    assert values["rapl.package[package-0]"] == pytest.approx(joules, rel=1e-5)
    hottest = host.number("sys/class/hwmon/hwmon1/temp25_input") / 1000
    found = {c.label for c in host.group.channels if "coretemp.1" in c.device}
    assert len(found) >= CORES // 2
    assert hottest in {values[label] for label in found}


def test_a_smaller_host_is_a_smaller_host() -> None:
    files = BigHost(Size(cores=4, disks=1, ethernet=1, infiniband=0)).files()
    header = files["proc/interrupts"].decode().splitlines()[0]
    assert header.split() == ["CPU0", "CPU1", "CPU2", "CPU3"]
    assert not [path for path in files if "infiniband/mlx5_1" in path or "cpu/cpu4/" in path]


def test_files_move_in_place(tmp_path: Path) -> None:
    """Who has a file open sees it move; names and lengths of lines stay as they are."""
    with Tree(BigHost(Size(cores=4, disks=1, ethernet=1, infiniband=1)), tmp_path) as tree:
        reader = SystemReader(tmp_path / "proc", tmp_path / "sys")
        with reader:
            first = reader.read("proc/stat")
            inode = os.stat(tmp_path / "proc/stat").st_ino  # noqa: PTH116
            tree.step(5.0)
            second = reader.read("proc/stat")
            assert os.stat(tmp_path / "proc/stat").st_ino == inode  # noqa: PTH116
            assert isinstance(first, bytes)
            assert isinstance(second, bytes)
            assert first != second
            assert re.sub(rb"\d+", b"", first) == re.sub(rb"\d+", b"", second)
            assert reader.small("proc/self/mountinfo") == reader.small("proc/1/mountinfo")
            chip = reader.small("sys/class/hwmon/hwmon0/name")
            assert chip == reader.small("sys/devices/platform/coretemp.0/hwmon/hwmon0/name")
