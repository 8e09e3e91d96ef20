"""Pressure of the host and of its large control groups."""

from __future__ import annotations

import errno
import math
import os
import re
from pathlib import Path

import pytest

from producers.group import Group
from producers.reading import MemoryReader, SystemReader, Unreadable
from schemas.records import Subsystem
from tests.producers.archives import archive
from tests.producers.kernel import BETWEEN_S, FIRST, SECOND, Host, collector

S = 10**9
RESOURCES = ("cpu", "memory", "io", "irq")


def later(text: bytes, **grown: int) -> bytes:
    """Let the totals grow by so much."""
    for line, by in grown.items():
        pattern = rb"(?m)^(%s .*total=)(\d+)$" % line.encode()
        text, count = re.subn(pattern, lambda m: b"%s%d" % (m[1], int(m[2]) + by), text)  # noqa: B023
        assert count == 1
    return text


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs"])
def test_pressure_of_other_machines(machine: str) -> None:
    files = {p: t for p, t in archive(machine).items() if p.startswith("proc/pressure/")}
    host = Host("pressure")
    host.read(files, S)
    grown = {}
    for path, text in files.items():
        lines = [line.split()[0].decode() for line in text.splitlines()]
        # Microseconds of a second: 250 ms of some, 50 ms of all.
        grown[path] = later(text, **{n: {"some": 250_000, "full": 50_000}[n] for n in lines})
    values = host.read(grown, S)
    expected = {}
    for path, text in files.items():
        name = path.rpartition("/")[2]
        if b"some" in text:
            expected[f"pressure.{name}_some"] = 25.0
        if b"full" in text and name != "cpu":
            expected[f"pressure.{name}_full"] = 5.0
    assert values == pytest.approx(expected)
    assert len(expected) == {"node_exporter/proc": 6, "procfs": 5}[machine]
    assert host.failures == host.bad_fields == 0


def test_a_host_is_never_full_for_want_of_cores() -> None:
    assert b"full" in FIRST["proc/pressure/cpu"]
    labels = {label for label in Host("pressure").twice() if "cpu" in label}
    assert labels == {"pressure.cpu_some"}


def test_files_that_are_missing_or_lack_lines() -> None:
    some = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"
    host = Host("pressure")
    host.read({"proc/pressure/cpu": some % 100, "proc/pressure/io": some % 0}, S)
    values = host.read({"proc/pressure/cpu": some % 10_100, "proc/pressure/io": some % 5000}, S)
    assert values == {"pressure.cpu_some": 1, "pressure.io_some": 0.5}
    assert host.failures == 0


def test_a_kernel_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With psi=0 the files are there, can be opened, and reading them fails."""
    (tmp_path / "pressure").mkdir()
    for name in RESOURCES:
        (tmp_path / "pressure" / name).write_bytes(SECOND["proc/pressure/io"])
    real = os.pread

    def refuse(descriptor: int, size: int, at: int) -> bytes:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "memory":
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(descriptor, size, at)

    monkeypatch.setattr(os, "pread", refuse)
    made = collector("pressure")
    with SystemReader(proc=tmp_path) as reader:
        group = Group([made], reader)
        for n in range(3):
            values = group.collect(n * S)
    labels = [c.label for c in group.channels]
    assert labels == [
        *("pressure.cpu_some", "pressure.io_some", "pressure.io_full"),
        *("pressure.irq_some", "pressure.irq_full"),
    ]
    assert values.tolist() == [0] * 5
    assert group.stats["pressure"].failures == {}
    problems = {s.path: s.problem for s in made.sources if s.problem}
    assert problems == {"proc/pressure/memory": "proc/pressure/memory: Operation not supported"}


def test_pressure_that_is_switched_off_for_a_while() -> None:
    """cgroup.pressure=0 and the like: unknown meanwhile, and counted."""

    class Refusing(MemoryReader):
        refused = False

        def read(self, path: str) -> bytes | Unreadable:
            if self.refused:
                return Unreadable(path, "Operation not supported", absent=False)
            return super().read(path)

    reader = Refusing(FIRST)
    group = Group([collector("pressure")], reader)
    group.collect(S)
    channels = group.channels
    reader.refused = True
    assert all(math.isnan(v) for v in group.collect(2 * S).tolist())
    reader.refused, reader.files = False, SECOND
    assert not any(math.isnan(v) for v in group.collect(3 * S).tolist())
    assert group.channels is channels


def test_the_large_branches_of_this_recording() -> None:
    host = Host("cgroup")
    values = host.twice()
    expected = {}
    for i, branch in enumerate(("kubepods.slice", "system.slice", "user.slice"), start=1):
        for j, name in enumerate(("cpu", "memory", "io"), start=1):
            some, full = 12_000 * i + 500 * j, 300 * i * j
            expected[f"cgroup.{name}_some[{branch}]"] = some / 1e6 * 100 / BETWEEN_S
            expected[f"cgroup.{name}_full[{branch}]"] = full / 1e6 * 100 / BETWEEN_S
        expected[f"cgroup.irq_full[{branch}]"] = 20 * i / 1e6 * 100 / BETWEEN_S
        expected[f"cgroup.memory[{branch}]"] = 4096 * (100_000 * i + 250)
        expected[f"cgroup.tasks[{branch}]"] = 40 * i + 3
        expected[f"cgroup.memory_high[{branch}]"] = 2 * i / BETWEEN_S
        expected[f"cgroup.memory_max[{branch}]"] = 0
        expected[f"cgroup.oom[{branch}]"] = expected[f"cgroup.oom_kill[{branch}]"] = 1 / BETWEEN_S
    assert values == pytest.approx(expected, rel=1e-6)
    parts = {c.metric: c.subsystem for c in host.group.channels}
    assert parts["cgroup.cpu_some"] is parts["cgroup.irq_full"] is Subsystem.CPU
    assert parts["cgroup.io_full"] is Subsystem.STORAGE
    assert parts["cgroup.memory_some"] is parts["cgroup.oom_kill"] is Subsystem.MEMORY


SOME = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"


def test_the_unified_tree_beside_version_1() -> None:
    """Memory and tasks are counted by version 1, which has files of the same names elsewhere."""

    def files(n: int) -> dict[str, bytes]:
        return {
            "sys/fs/cgroup/unified/cgroup.controllers": b"\n",
            "sys/fs/cgroup/unified/cpu.pressure": SOME % (9 * n),
            "sys/fs/cgroup/unified/system.slice/cpu.pressure": SOME % (20_000 * n),
            "sys/fs/cgroup/unified/user.slice/cpu.pressure": SOME % (30_000 * n),
            "sys/fs/cgroup/memory/system.slice/memory.usage_in_bytes": b"4096\n",
            "sys/fs/cgroup/memory/docker/memory.usage_in_bytes": b"8192\n",
            "sys/fs/cgroup/memory/docker/00c0ffee/memory.usage_in_bytes": b"8192\n",
            "sys/fs/cgroup/pids/system.slice/pids.current": b"17\n",
        }

    host = Host("cgroup")
    host.read(files(0), S)
    assert host.read(files(1), S) == {
        "cgroup.cpu_some[system.slice]": 2,
        "cgroup.cpu_some[user.slice]": 3,
        "cgroup.memory[docker]": 8192,
        "cgroup.memory[system.slice]": 4096,
        "cgroup.tasks[system.slice]": 17,
    }


def test_pressure_of_version_1_where_a_kernel_has_it() -> None:
    host = Host("cgroup")
    path = "sys/fs/cgroup/cpuacct/kubepods/memory.pressure"
    host.read({path: SOME % 0}, S)
    assert host.read({path: SOME % 40_000}, S) == {"cgroup.memory_some[kubepods]": 4}


@pytest.mark.parametrize(
    "name",
    ["cri-o-7f3a.scope", "lxc.payload.web1", "job_4711", "init.scope", "dev-hugepages.mount", "a1"],
)
def test_what_may_be_a_workloads_own_is_not_read(name: str) -> None:
    files = {f"sys/fs/cgroup/{name}/cpu.pressure": SOME % 1}
    files |= {f"sys/fs/cgroup/{name}/memory.current": b"1\n"}
    assert Host("cgroup").read(files) == {}


def test_branches_are_few() -> None:
    files = {f"sys/fs/cgroup/b{n:03}.slice/cpu.pressure": SOME % 1 for n in range(300)}
    host = Host("cgroup")
    labels = list(host.read(files))
    assert labels == [f"cgroup.cpu_some[b{n:03}.slice]" for n in range(16)]


def test_a_branch_that_comes_and_goes_leaves_the_others_alone() -> None:
    def files(n: int, *names: str) -> dict[str, bytes]:
        return {f"sys/fs/cgroup/{b}/cpu.pressure": SOME % (500 * n) for b in names}

    host = Host("cgroup")
    host.read(files(0, "system.slice"), S)
    seen = [host.read(files(n, "machine.slice", "system.slice"), S) for n in range(1, 9)]
    seen += [host.read(files(n, "system.slice"), S) for n in range(9, 17)]
    rates = [values["cgroup.cpu_some[system.slice]"] for values in seen]
    assert rates == pytest.approx([0.05] * 16)
    came = [values.get("cgroup.cpu_some[machine.slice]", math.nan) for values in seen]
    known = [rate for rate in came if not math.isnan(rate)]
    assert known == pytest.approx([0.05] * len(known))
    assert known
    assert "cgroup.cpu_some[machine.slice]" not in seen[-1]
