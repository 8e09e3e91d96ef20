"""The system calls themselves, on this machine, against what perf(1) asks and /proc counts."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.perf.catalog import pmu_type, software
from producers.perf.counters import Counters
from producers.perf.events import (
    HEADER,
    SOFTWARE,
    Event,
    SystemKernel,
    attribute,
    cpu_list,
    whole_readings,
)
from producers.reading import SystemReader

SWITCHES = Event("context_switches", SOFTWARE, 3)
MIGRATIONS = Event("cpu_migrations", SOFTWARE, 4)
MINOR = Event("minor_faults", SOFTWARE, 5)
CPU_CLOCK = Event("cpu_clock", SOFTWARE, 0)


def online() -> tuple[int, ...]:
    return cpu_list(Path("/sys/devices/system/cpu/online").read_bytes())


@contextmanager
def counting(events: Sequence[Event]) -> Iterator[Counters]:
    """Count on every core of this machine, or skip where that is not allowed."""
    counters = Counters(SystemKernel(), [events])
    counters.follow(online())
    if counters.problem:
        pytest.skip(f"this machine does not let us count: {counters.problem}")
    try:
        yield counters
    finally:
        counters.close()


@dataclass(frozen=True, slots=True)
class Bracket:
    """A moment before the counters are read, and one after, on a clock and in /proc/stat."""

    before: float
    after: float
    switches_before: int
    switches_after: int
    rates: np.ndarray


def bracketed(counters: Counters) -> Bracket:
    switches_before, before = switches(), time.monotonic()
    rates = counters.rates()
    return Bracket(before, time.monotonic(), switches_before, switches(), rates)


def switches() -> int:
    found = re.search(r"^ctxt (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def at_least(first: Bracket, second: Bracket, column: int) -> float:
    """Return the least that can have been counted between two readings."""
    return float(second.rates[:, column].sum()) * (second.after - first.before)


def ping_pong(rounds: int) -> None:
    """Let two threads wake each other in turn: two switches a round, at least."""
    there, back = os.pipe(), os.pipe()

    def answer() -> None:
        for _ in range(rounds):
            os.read(there[0], 1)
            os.write(back[1], b"x")

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(rounds):
        os.write(there[1], b"x")
        os.read(back[0], 1)
    thread.join()
    for descriptor in (*there, *back):
        os.close(descriptor)


def test_context_switches_are_those_of_proc_stat() -> None:
    rounds = 3000
    with counting([SWITCHES]) as counters:
        first = bracketed(counters)
        ping_pong(rounds)
        second = bracketed(counters)
    rate = float(second.rates.sum())
    # What was counted is between what /proc/stat had inside and outside of the two readings; a
    # switch that is going on may be in one and not yet in the other.
    slack = 2 * len(online())
    inside = second.switches_before - first.switches_after - slack
    outside = second.switches_after - first.switches_before + slack
    assert rate * (second.after - first.before) >= inside
    assert rate * (second.before - first.after) <= outside
    assert at_least(first, second, 0) >= rounds


def test_faults_are_at_least_the_pages_touched() -> None:
    pages = 2000
    with counting([MINOR]) as counters:
        first = bracketed(counters)
        area = mmap.mmap(-1, pages * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        area.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(pages):
            area[page * mmap.PAGESIZE] = 1
        second = bracketed(counters)
        area.close()
    assert at_least(first, second, 0) >= pages


def test_migrations_are_at_least_those_made() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one core: there is nowhere to migrate to")
    moves = 200
    with counting([MIGRATIONS]) as counters:
        first = bracketed(counters)
        try:
            for move in range(moves):
                os.sched_setaffinity(0, {allowed[move % 2]})
        finally:
            os.sched_setaffinity(0, allowed)
        second = bracketed(counters)
    assert at_least(first, second, 0) >= moves - 1


def test_the_clock_of_a_core_counts_the_time_that_goes_by() -> None:
    """Which is why it is no channel."""
    with counting([CPU_CLOCK]) as counters:
        counters.rates()
        ping_pong(3000)
        assert counters.rates() == pytest.approx(1e9, rel=0.2)


def test_the_time_stamp_counts_among_software_events() -> None:
    """A group of two PMUs: it must not be running while the second joins."""
    with SystemReader() as reader:
        pmu = pmu_type(reader, "msr")
    if pmu is None:
        pytest.skip("this machine has no PMU msr")
    with counting([SWITCHES, Event("tsc", pmu, 0)]) as counters:
        counters.rates()
        ping_pong(3000)
        rates = counters.rates()
    assert rates[:, 1].min() > 1e8
    assert rates[:, 1].max() / rates[:, 1].min() == pytest.approx(1, rel=0.2)


def test_every_software_event_works_here() -> None:
    with SystemReader() as reader:
        (events,) = software(reader)
    with counting(events) as counters:
        assert counters.calls == len(online())
        assert counters.present.all()
        counters.rates()
        ping_pong(10)
        assert (counters.rates() >= 0).all()


def test_what_the_kernel_refuses_is_said() -> None:
    kernel = SystemKernel()
    for event, cpu in ((Event("none", SOFTWARE, 10**6), 0), (SWITCHES, 60000)):
        with pytest.raises(OSError, match=r"No such|Invalid|denied|not permitted") as raised:
            kernel.open(attribute(event, leads=True), cpu, -1)
        assert raised.value.errno


def test_descriptors_are_closed_and_not_inherited() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with counting([SWITCHES, MINOR]) as counters:
        opened = {Path(p).name for p in Path("/proc/self/fd").iterdir()}
        ours = [fd for fd in opened if _is_perf(fd)]
        assert len(ours) == 2 * len(online())
        assert not any(os.get_inheritable(int(fd)) for fd in ours)
        assert counters.calls == len(online())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _is_perf(descriptor: str) -> bool:
    try:
        return "perf_event" in str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return False


LIMITED = """
import resource, sys
from producers.perf.events import SystemKernel
soft, hard, need = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    SystemKernel().reserve(need)
except OSError as e:
    print(e.errno, e.strerror)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "need", "said"),
    [
        (1024, 4096, 100, ["1024 4096"]),
        (1024, 4096, 1000, ["1512 4096"]),
        (1024, 1100, 1000, ["24 Too many open files: 1512 needed, 1100 allowed", "1024 1100"]),
    ],
)
def test_the_limit_of_open_files(soft: int, hard: int, need: int, said: list[str]) -> None:
    out = subprocess.run(
        [sys.executable, "-c", LIMITED, str(soft), str(hard), str(need)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert out.stdout.splitlines() == said


NAMES = {
    "context_switches": "context-switches",
    "cpu_migrations": "cpu-migrations",
    "minor_faults": "minor-faults",
    "major_faults": "major-faults",
    "cgroup_switches": "cgroup-switches",
    "alignment_faults": "alignment-faults",
    "emulation_faults": "emulation-faults",
}


def test_attributes_are_those_that_perf_makes() -> None:
    """Type, config and the format of a reading, as `perf stat -vv` says what it asks for."""
    if shutil.which("perf") is None:
        pytest.skip("perf(1) is not installed")
    with SystemReader() as reader:
        (events,) = software(reader)
    asked = "{" + ",".join(NAMES[event.name] for event in events) + "}"
    out = subprocess.run(
        ["perf", "stat", "-vv", "-a", "-e", asked, "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    blocks = re.findall(
        r"perf_event_attr:\n(.*?)\n-+\nsys_perf_event_open: pid -1", out.stderr, re.DOTALL
    )
    theirs_all: dict[int, dict[str, str]] = {}
    for block in blocks:
        fields = dict(re.findall(r"^ +(\w+) +(\S+)$", block, re.MULTILINE))
        theirs_all.setdefault(int(fields.get("config", "0"), 0), fields)
    if not theirs_all:
        pytest.skip(f"perf(1) does not count here: {out.stderr.splitlines()[-1:]}")
    for i, event in enumerate(events):
        theirs = theirs_all[event.config]
        kind, size, config, _, _, read_format, flags = struct.unpack_from(
            "=IIQQQQQ", attribute(event, leads=i == 0)
        )
        assert kind == int(theirs["type"].split()[0], 0)
        assert size == int(theirs["size"], 0)
        assert config == int(theirs.get("config", "0"), 0)
        assert flags & 1 == int(theirs.get("disabled", "0"))
        assert read_format == sum(
            {"TOTAL_TIME_ENABLED": 1, "TOTAL_TIME_RUNNING": 2, "GROUP": 8}[name]
            for name in theirs["read_format"].split("|")
            if name != "ID"
        )


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        (b"0\n", (0,)),
        (b"0-3\n", (0, 1, 2, 3)),
        (b"0-1,4,6-7\n", (0, 1, 4, 6, 7)),
        (b"\n", ()),
        (b"", ()),
        (b"3-1\n", ()),
        (b"0-99999999999\n", ()),
        (b"zero\n", ()),
        (b"-1\n", ()),
        (b"0-1,\n", ()),
        (b"\xff", ()),
    ],
)
def test_lists_of_cores(text: bytes, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


@given(st.binary(max_size=30))
def test_any_list_of_cores(text: bytes) -> None:
    cpus = cpu_list(text)
    assert list(cpus) == sorted(set(cpus))


@given(
    st.lists(
        st.tuples(st.integers(-1, 80), st.integers(0, 2**64 - 1), st.integers(1, 4)), max_size=9
    )
)
def test_only_whole_readings_are_believed(rows: list[tuple[int, int, int]]) -> None:
    table = np.zeros((len(rows), HEADER + 4), np.uint64)
    table[:, 0] = np.array([header for _, header, _ in rows], np.uint64)
    got = [size for size, _, _ in rows]
    sizes = np.array([count for _, _, count in rows], np.int64)
    assert whole_readings(table, got, sizes).tolist() == [
        size == 24 + 8 * count and header == count for size, header, count in rows
    ]
