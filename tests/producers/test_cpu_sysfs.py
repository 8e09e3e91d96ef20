"""What the processors say of themselves: idle states, run queues, throttling."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.collectors import cpuidle
from producers.collectors.schedstat import cores_only
from producers.reading import MemoryReader
from producers.source import SECOND_NS
from schemas.records import Kind, Subsystem
from tests.producers.archives import archive
from tests.producers.kernel import BETWEEN_S, FIRST, SECOND, Host

CPU = "sys/devices/system/cpu"
Files = dict[str, bytes]


def number(files: Files, path: str) -> int:
    return int(files[f"{CPU}/{path}"])


def more(files: Files, end: str, by: int) -> Files:
    """Return the files with `by` times its place added to each whose name ends so."""
    paths = sorted(p for p in files if p.startswith(f"{CPU}/") and p.endswith(end))
    grown = {p: b"%d\n" % (int(files[p]) + by * n) for n, p in enumerate(paths, start=1)}
    return files | grown


def test_residency_is_time_in_a_state() -> None:
    values = Host("cpuidle").twice()
    for state, name in enumerate(("poll", "c1e", "c6")):
        shares = []
        for core in ("cpu0", "cpu1"):
            path = f"{core}/cpuidle/state{state}/time"
            shares.append(100 * (number(SECOND, path) - number(FIRST, path)) / 1e6 / BETWEEN_S)
            assert values[f"cpuidle.{name}[{core}]"] == pytest.approx(shares[-1], rel=1e-5)
        assert values[f"cpuidle.{name}"] == pytest.approx(sum(shares) / 2, rel=1e-5)
        entries = sum(
            number(SECOND, path) - number(FIRST, path)
            for path in (f"cpu{c}/cpuidle/state{state}/usage" for c in (0, 1))
        )
        assert values[f"cpuidle.{name}_entries"] == pytest.approx(entries / BETWEEN_S, rel=1e-5)
    assert len(values) == 3 * (2 + 1 + 1)


def idle(cores: dict[int, dict[str, int]]) -> Files:
    """Return the files of cores whose states have been slept in for so many seconds."""
    files = {}
    for core, states in cores.items():
        for n, (name, seconds) in enumerate(states.items()):
            folder = f"{CPU}/cpu{core}/cpuidle/state{n}"
            files[f"{folder}/name"] = name.encode() + b"\n"
            files[f"{folder}/time"] = b"%d\n" % (seconds * 10**6)
            files[f"{folder}/usage"] = b"1\n"
    return files


def test_cores_with_other_states() -> None:
    """Large and small cores: the mean is over all of them, whether they have the state or not."""
    host = Host("cpuidle")
    host.read(idle({0: {"C1": 0, "C6": 0}, 8: {"C1": 0}}), SECOND_NS)
    values = host.read(idle({0: {"C1": 1, "C6": 3}, 8: {"C1": 2}}), 4 * SECOND_NS)
    assert values["cpuidle.c1"] == pytest.approx((25 + 50) / 2)
    assert values["cpuidle.c6"] == pytest.approx(75 / 2)
    assert values["cpuidle.c6[cpu0]"] == 75
    assert "cpuidle.c6[cpu8]" not in values


def test_states_of_one_name_stay_apart() -> None:
    files = idle({0: {"C3": 0, "c3": 0}})
    values = Host("cpuidle").read(files)
    assert {"cpuidle.c3[cpu0]", "cpuidle.c3_state1[cpu0]"} < set(values)


def test_a_core_goes_offline_and_comes_back() -> None:
    host = Host("cpuidle")
    seen = []
    for n in range(24):
        cores = {0: {"C6": n}, 1: {"C6": 2 * n}}
        if 8 <= n < 16:
            del cores[1]
        seen.append(host.read(idle(cores), 4 * SECOND_NS))
    assert seen[7]["cpuidle.c6[cpu1]"] == 50
    assert "cpuidle.c6[cpu1]" not in seen[15]
    assert seen[15]["cpuidle.c6"] == 25
    assert seen[23]["cpuidle.c6"] == pytest.approx(37.5)
    every = [v for values in seen for v in values.values() if not math.isnan(v)]
    assert max(every) == 50


def test_a_file_is_read_for_each_core_and_state() -> None:
    times, entries = cpuidle.collector().sources
    reader = MemoryReader(FIRST)
    assert len(times.read(reader, 0)) == len(entries.read(reader, 0)) == 6


def test_throttling() -> None:
    """A package is counted once, though each of its cores has a file for it."""
    values = Host("throttle").twice()
    assert values == {
        "throttle.package_events[package0]": pytest.approx((208 - 203) / BETWEEN_S),
        "throttle.package_time[package0]": pytest.approx((6522 - 6402) / 10 / BETWEEN_S),
        "throttle.core_events[cpu0]": pytest.approx((44 - 41) / BETWEEN_S),
        "throttle.core_events[cpu1]": 0,
        "throttle.core_events": pytest.approx((44 - 41) / BETWEEN_S),
        "throttle.core_time": pytest.approx((1290 - 1210) / 10 / 2 / BETWEEN_S),
    }


def test_throttling_of_two_packages() -> None:
    files = archive("node_exporter/sys")
    host = Host("throttle")
    host.read(files, SECOND_NS)
    grown = more(more(files, "core_throttle_count", 1), "package_throttle_count", 10)
    values = host.read(grown, SECOND_NS)
    # Four cores, two in each package; cpu0 and cpu2 stand for theirs.
    expected: dict[str, float] = {f"throttle.core_events[cpu{n}]": n + 1 for n in range(4)}
    expected["throttle.core_events"] = 1 + 2 + 3 + 4
    expected["throttle.package_events[package0]"] = 10
    expected["throttle.package_events[package1]"] = 30
    assert values == expected


def test_threads_of_a_core_throttle_once() -> None:
    files = archive("procfs")
    again = f"{CPU}/cpu4"
    for name in ("thermal_throttle/core_throttle_count", "topology/core_id"):
        files[f"{again}/{name}"] = files[f"{CPU}/cpu0/{name}"]
    files[f"{again}/topology/physical_package_id"] = b"0\n"
    host = Host("throttle")
    host.read(files, SECOND_NS)
    values = host.read(more(files, "core_throttle_count", 1), SECOND_NS)
    assert values == {
        "throttle.core_events[cpu0]": 1,
        "throttle.core_events[cpu1]": 2,
        "throttle.core_events": 3,
        "throttle.package_events[package0]": 0,
    }


def schedstat(version: int, domain: str, cores: list[str]) -> bytes:
    lines = [f"version {version}", "timestamp 4294892339"]
    for n, numbers in enumerate(cores):
        lines += [f"cpu{n} {numbers}", domain]
    return "\n".join(lines).encode() + b"\n"


DOMAINS = {
    15: "domain0 00000003 " + " ".join("0" * 36),
    16: "domain0 00000003 " + " ".join("0" * 36),
    17: "domain0 MC 00000003 " + " ".join("0" * 45),
}


@pytest.mark.parametrize("version", DOMAINS)
def test_run_queues(version: int) -> None:
    host = Host("schedstat")
    rows = ["0 0 9 8 7 6 1000000000 5000000000 100", "0 0 9 8 7 6 0 0 0"]
    host.read({"proc/schedstat": schedstat(version, DOMAINS[version], rows)}, SECOND_NS)
    rows = ["0 0 9 9 9 9 1250000000 7500000000 160", "0 0 9 9 9 9 750000000 500000000 40"]
    text = schedstat(version, DOMAINS[version], rows)
    values = host.read({"proc/schedstat": text}, SECOND_NS)
    assert values == {
        "sched.run[cpu0]": 25,
        "sched.wait[cpu0]": 250,  # two and a half threads waited
        "sched.timeslices[cpu0]": 60,
        "sched.run[cpu1]": 75,
        "sched.wait[cpu1]": 50,
        "sched.timeslices[cpu1]": 40,
        "sched.run": 50,
        "sched.wait": 150,
        "sched.timeslices": 100,
    }
    assert {(c.subsystem, c.kind) for c in host.group.channels} == {(Subsystem.CPU, Kind.RATE)}


@pytest.mark.parametrize("text", [b"version 14", b"version 18", b"version", b"cpu0 1 2"])
def test_a_format_that_nobody_knows(text: bytes) -> None:
    rows = b"\ncpu0 0 0 9 8 7 6 1000000000 5000000000 100\n"
    assert Host("schedstat").read({"proc/schedstat": text + rows}) == {}


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs"])
def test_run_queues_of_another_machine(machine: str) -> None:
    text = archive(machine)["proc/schedstat"]
    ran, waited, slices = b"2045936778163039", b"343796328169361", b"4767485306"
    assert all(text.count(n) == 1 for n in (ran, waited, slices))
    host = Host("schedstat")
    host.read({"proc/schedstat": text}, SECOND_NS)
    for old, by in ((ran, 4 * 10**8), (waited, 10**9), (slices, 50)):
        text = text.replace(old, b"%d" % (int(old) + by))
    values = host.read({"proc/schedstat": text}, SECOND_NS)
    assert len(values) == 3 * (2 + 1)
    assert values["sched.run[cpu0]"] == pytest.approx(40)
    assert values["sched.wait[cpu0]"] == pytest.approx(100)
    assert values["sched.timeslices[cpu0]"] == 50
    assert values["sched.run"] == pytest.approx(20)
    assert values["sched.wait[cpu1]"] == values["sched.run[cpu1]"] == 0


@given(st.lists(st.sampled_from([b"version 15", b"cpu0 1 2", b"domain0 3 4", b"", b"timestamp 5"])))
def test_lines_of_domains_are_cut(lines: list[bytes]) -> None:
    kept = [line for line in lines if line.startswith((b"version", b"cpu"))]
    assert cores_only(b"\n".join(lines)).splitlines() == kept


def stat(rows: list[list[int]]) -> Files:
    lines = [
        " ".join(["cpu" if n == 0 else f"cpu{n - 1}", *map(str, row)]) for n, row in enumerate(rows)
    ]
    return {"proc/stat": "\n".join([*lines, "ctxt 5", ""]).encode()}


@pytest.mark.parametrize("columns", [4, 5, 7, 8, 10, 13])
def test_busy_on_every_kernel(columns: int) -> None:
    """Lines have had ever more columns; guests' time is in user's already."""
    host = Host("cpu")
    host.read(stat([[100] * columns, [100] * columns]), SECOND_NS)
    # user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice, and what may come
    grown = [30, 5, 15, 20, 10, 2, 3, 15, 25, 4, 1000, 1000, 1000][:columns]
    row = [100 + g for g in grown]
    values = host.read(stat([row, row]), SECOND_NS)
    total = sum(grown[:8])
    rest = sum(grown[3:5])
    if columns < 5:
        assert "cpu.busy" not in values
    else:
        assert values["cpu.busy"] == pytest.approx(100 * (total - rest) / total)
        assert values["cpu.busy[cpu0]"] == values["cpu.busy"]
    assert values["cpu.user[cpu0]"] == 30


@given(st.lists(st.lists(st.integers(0, 12), min_size=10, max_size=10), min_size=1, max_size=5))
def test_busy_is_a_share(grown: list[list[int]]) -> None:
    host = Host("cpu")
    host.read(stat([[1000] * 10 for _ in grown]), SECOND_NS // 10)
    values = host.read(stat([[1000 + g for g in row] for row in grown]), SECOND_NS // 10)
    for n, row in enumerate(grown):
        value = values["cpu.busy" if n == 0 else f"cpu.busy[cpu{n - 1}]"]
        if sum(row[:8]):
            assert value == pytest.approx(100 - 100 * (row[3] + row[4]) / sum(row[:8]), abs=1e-4)
        else:
            assert math.isnan(value)


def test_busy_of_another_machine() -> None:
    text = archive("node_exporter/proc")["proc/stat"]
    idle_time = b"1087069"
    assert text.count(idle_time) == 1
    host = Host("cpu")
    host.read({"proc/stat": text}, SECOND_NS)
    text = text.replace(idle_time, b"1087144").replace(b"cpu0 44490 ", b"cpu0 44515 ")
    values = host.read({"proc/stat": text}, SECOND_NS)
    assert values["cpu.busy[cpu0]"] == 25
    assert values["cpu.user[cpu0]"] == 25
    assert math.isnan(values["cpu.busy[cpu1]"])  # no time passed there


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs"])
def test_loads_of_other_machines(machine: str) -> None:
    text = archive(machine)["proc/loadavg"]
    values = Host("cpu").read({"proc/loadavg": text})
    loads = [float(word) for word in text.split()[:3]]
    assert [values[f"cpu.load_{m}m"] for m in (1, 5, 15)] == pytest.approx(loads)
