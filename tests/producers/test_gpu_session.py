"""NVML that is not there, goes, comes back, or does not answer; GPUs that come and go."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from producers import doctor
from producers.collectors import gpu
from producers.collectors.gpu.devices import kernel_bus_id
from producers.collectors.gpu.lanes import Job, Threads
from producers.collectors.gpu.nvml import LIBRARY
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import REMEDY
from producers.collectors.gpu.visits import Patience
from producers.reading import MemoryReader
from producers.source import Options
from tests.producers import nvml_tables
from tests.producers.fake_nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    UNINITIALIZED,
    FakeNvml,
)
from tests.producers.gpus import GpuHost

T = TypeVar("T")
SHORT = Patience(0.05, 0.05, 0.05)
TICKS_A_SECOND = 10


def uuid(index: int) -> str:
    return nvml_tables.h100(index).uuid


def power(index: int) -> str:
    return f"gpu.power[{uuid(index)}]"


def until(host: GpuHost, holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Read until something holds."""
    for _ in range(100_000):
        values = host.tick()
        if holds(values):
            return values
    raise AssertionError("it never came to that")


def missing() -> FakeNvml:
    raise ImportError("No module named 'pynvml'")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (LIBRARY_NOT_FOUND, "NVML: NVMLError_LibraryNotFound"),
        (DRIVER_NOT_LOADED, "NVML: NVMLError_DriverNotLoaded"),
    ],
)
def test_without_library_or_driver_there_is_nothing(code: int, reason: str) -> None:
    fake = FakeNvml.h100s(1)
    fake.broken = code
    host = GpuHost(fake)
    host.reader.files = {}
    assert host.tick(100) == {}
    assert host.failures == set()
    sources = [s for c in host.collectors for s in c.sources]
    assert {(s.path, s.problem, s.remedy) for s in sources} == {("nvml", f"nvml: {reason}", REMEDY)}
    # After 1, 2 and 4 s: it costs nothing to be without.
    assert fake.calls["nvmlInit"] == 4
    fake.broken = 0
    values = until(host, lambda values: power(0) in values)
    assert values[power(0)] > 500
    assert host.fake.now_ns < 16e9


def test_doctor_names_what_all_lack_once() -> None:
    """Not the kernel's log, which is there, and not every kind of call."""
    host = GpuHost(FakeNvml([]))
    found = [
        *doctor.merged(f for c in host.collectors for f in doctor.check_collector(c, host.reader))
    ]
    (finding,) = found
    assert (finding.what, finding.well) == ("nvml", False)
    assert (finding.found, finding.why) == ("NVML: the driver has no GPU", REMEDY)


def test_without_the_package() -> None:
    host = GpuHost(FakeNvml.h100s(1), load=missing)
    host.reader.files = {}
    assert host.tick(2) == {}
    assert "No module named 'pynvml'" in host.session.problem


def test_a_driver_without_gpus() -> None:
    host = GpuHost(FakeNvml([]))
    assert host.tick(2) == {}
    assert host.session.problem == "NVML: the driver has no GPU"


def test_this_machine() -> None:
    """Whatever it has, nothing raises; where there is no library it is named."""
    reader = MemoryReader()
    sources = [s for c in gpu.collectors(Options()) for s in c.sources]
    for source in sources:
        assert len(source.read(reader, 1)) == len(source.plan.fields)
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        absent = {(s.path, s.problem, s.remedy) for s in sources}
        assert len(absent) == 1
        assert all(LIBRARY in problem for _, problem, _ in absent)


def test_two_sessions_share_nothing() -> None:
    first, second = GpuHost(FakeNvml.h100s(2)), GpuHost(FakeNvml.h100s(1))
    first.settle()
    assert uuid(1) not in second.session.uuids.values()
    assert set(second.settle()) < set(first.settle())


def test_the_driver_is_loaded_while_we_wait() -> None:
    """The list of GPUs that the driver keeps says so, long before it is tried again."""
    fake = FakeNvml.h100s(1)
    fake.broken = DRIVER_NOT_LOADED
    host = GpuHost(fake)
    host.reader.files = {}
    host.tick(3000)
    tried = fake.calls["nvmlInit"]
    host.tick(100)
    assert fake.calls["nvmlInit"] == tried
    fake.broken = 0
    host.kernel_sees(fake)
    host.tick(51)
    assert power(0) in host.tick()


def test_the_driver_is_loaded_again() -> None:
    """Everything is unknown meanwhile; then it goes on, with the same layout and no spike."""
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.settle()
    channels = host.group.channels
    fake.nvmlShutdown()
    fake.broken = DRIVER_NOT_LOADED
    gone = host.tick(20, whole=True)
    assert math.isnan(gone[power(0)])
    assert host.group.channels is channels
    for table in fake.tables:
        table.fields[83, 0] = (3, lambda s: round(650_000 * (s - 5)))  # counted from 0 again
    fake.broken = 0
    for _ in range(200):
        values = host.tick()
        energy = values[f"gpu.energy[{uuid(0)}]"]
        assert math.isnan(energy) or 0 <= energy < 700
    assert host.group.channels is channels
    assert values[power(0)] > 500
    assert energy == pytest.approx(650, rel=1e-3)


def test_a_gpu_appears() -> None:
    fake = FakeNvml.h100s(1)
    host = GpuHost(fake)
    before = host.settle()
    fake.tables.append(nvml_tables.h100(1))
    assert set(host.tick(100)) == set(before)  # NVML knows what there was when it was started
    host.kernel_sees(fake)
    host.tick(51)
    values = host.tick(20)
    assert set(values) == set(GpuHost(FakeNvml.h100s(2)).settle())
    assert values[f"gpu.energy[{uuid(0)}]"] == pytest.approx(650, rel=1e-3)
    assert values[f"gpu.energy[{uuid(1)}]"] == pytest.approx(650 * 1.1, rel=1e-3)


def test_a_gpu_appears_without_a_spike() -> None:
    fake = FakeNvml.h100s(1)
    host = GpuHost(fake)
    host.settle()
    fake.tables.append(nvml_tables.h100(1))
    host.kernel_sees(fake)
    for _ in range(52):
        values = host.tick()
        for index in range(2):
            energy = values.get(f"gpu.energy[{uuid(index)}]", math.nan)
            assert math.isnan(energy) or energy < 1000
    assert power(1) in values


def test_a_gpu_vanishes() -> None:
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.settle()
    fake.lost.add(uuid(0))
    lost = host.tick(2)
    assert math.isnan(lost[power(0)])
    del fake.tables[0]
    host.kernel_sees(fake)
    host.tick(51)
    values = host.tick(10)
    assert not [label for label in values if uuid(0) in label]
    assert values[power(1)] > 500
    assert values[f"gpu.energy[{uuid(1)}]"] == pytest.approx(650 * 1.1, rel=1e-3)


def test_a_lost_gpu_that_is_still_listed_keeps_its_channels_and_comes_back() -> None:
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.settle()
    channels = host.group.channels
    fake.lost.add(uuid(1))
    values = host.tick(100)
    assert host.group.channels is channels
    assert math.isnan(values[power(1)])
    assert values[power(0)] > 500
    assert values[f"gpu.energy[{uuid(0)}]"] == pytest.approx(650, rel=1e-3)
    # NVML was started anew after 1, 2, 4 s, and not at every tick.
    assert 3 <= fake.calls["nvmlInit"] <= 5
    fake.lost.clear()
    back = until(host, lambda values: not math.isnan(values[power(1)]))
    assert back[power(1)] > 500
    assert host.group.channels is channels
    starts = fake.calls["nvmlInit"]
    host.tick(700)
    assert fake.calls["nvmlInit"] == starts


def test_a_gpu_that_is_lost_at_the_start_is_looked_for_again() -> None:
    fake = FakeNvml.h100s(2)
    fake.lost.add(uuid(1))
    host = GpuHost(fake)
    assert power(1) not in host.tick(5)
    fake.lost.clear()
    assert until(host, lambda values: power(1) in values)[power(1)] > 500


def test_mig_devices_come_and_go() -> None:
    fake = FakeNvml.h100s(1)
    whole = fake.tables[0]
    host = GpuHost(fake)
    before = host.settle()
    mig = nvml_tables.Table(whole.uuid, "", mig_uuid="MIG-1", instance=1)
    mig.answers["nvmlDeviceGetMemoryInfo", 2] = {"total": 8, "used": 2, "free": 6, "reserved": 0}
    whole.migs = [mig]
    values = until(host, lambda values: f"gpu.memory_used[{uuid(0)}/MIG-1]" in values)
    assert values[f"gpu.memory_free[{uuid(0)}/MIG-1]"] == 6
    assert set(values) > {power(0)}
    whole.migs = []
    host.tick(60)
    assert set(host.settle()) == set(before)


def test_gpus_of_one_name_are_one() -> None:
    fake = FakeNvml([nvml_tables.h100(0), nvml_tables.h100(0)])
    values = GpuHost(fake).settle()
    assert values[power(0)] > 500


@pytest.mark.parametrize(
    ("nvml", "kernel"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00010000:3B:00.0", "00010000:3b:00.0"),
    ],
)
def test_names_on_the_bus(nvml: str, kernel: str) -> None:
    assert kernel_bus_id(nvml) == kernel


def test_a_call_that_hangs_costs_that_gpu_and_one_wait() -> None:
    """Others are read by another thread, in the same tick and in all that follow."""
    fake, threads = FakeNvml.h100s(3), Threads()
    host = GpuHost(fake, lanes=threads, patience=SHORT, only=["gpu", "gpu_power", "gpu_memory"])
    whole = GpuHost(FakeNvml.h100s(3), only=["gpu", "gpu_power", "gpu_memory"])
    # A busy machine may be late: then a reading is unknown, and the next is there.
    until(host, lambda values: bool(values) and not any(map(math.isnan, values.values())))
    channels = host.group.channels
    gate = fake.hang("nvmlDeviceGetPowerUsage", uuid(1))
    until(host, lambda values: math.isnan(values[power(1)]))
    values = until(
        host, lambda values: not math.isnan(values[power(0)]) and not math.isnan(values[power(2)])
    )
    assert host.group.channels is channels
    asked = fake.calls["nvmlDeviceGetPowerUsage"]
    ticks = 50
    for _ in range(ticks):
        values = host.tick()
        assert math.isnan(values[power(1)])
    assert fake.calls["nvmlDeviceGetPowerUsage"] - asked <= 2 * ticks  # it is not asked again
    whole.fake.now_ns = host.fake.now_ns - 100_000_000
    expected = whole.tick()
    for label in (power(0), power(2), f"gpu.utilization[{uuid(0)}]"):
        assert values[label] == expected[label] or math.isnan(values[label])
    assert threads.away >= 1
    fake.mend()
    gate.set()
    until(host, lambda values: not any(map(math.isnan, values.values())))
    assert host.group.channels is channels
    until(host, lambda _: threads.away == 0)


def test_nvml_that_hangs_at_the_start_is_there_when_it_came_back() -> None:
    fake, threads = FakeNvml.h100s(1), Threads()
    gate = fake.hang("nvmlInit")
    host = GpuHost(fake, lanes=threads, patience=SHORT)
    assert not {label for label in host.tick(20) if "logged" not in label}
    assert fake.calls["nvmlInit"] == 1
    assert host.session.problem == "NVML takes long to start"
    gate.set()
    assert until(host, lambda values: power(0) in values)


def test_a_hang_while_looking_costs_nobody_else() -> None:
    fake = FakeNvml.h100s(2)
    gate = fake.hang("nvmlDeviceGetPowerUsage", uuid(1))
    host = GpuHost(fake, lanes=Threads(), patience=SHORT, only=["gpu_power"])
    values = until(host, lambda values: power(0) in values)
    assert power(1) not in values
    fake.mend()
    gate.set()
    assert until(host, lambda values: power(1) in values)


def test_events_that_hang_are_asked_for_again_when_the_call_came_back() -> None:
    fake, threads = FakeNvml.h100s(1), Threads()
    host = GpuHost(fake, lanes=threads, patience=SHORT, only=["gpu_events"])
    xid = f"gpu.xid[{uuid(0)}]"
    until(host, lambda values: not math.isnan(values.get(xid, math.nan)))
    gate = fake.hang("nvmlEventSetWait_v2")
    until(host, lambda values: math.isnan(values[xid]))
    asked = fake.calls["nvmlEventSetWait_v2"]
    host.tick(10)
    assert fake.calls["nvmlEventSetWait_v2"] == asked
    fake.mend()
    gate.set()
    until(host, lambda values: not math.isnan(values[xid]))


def test_jobs_that_come_back_in_time_need_one_thread() -> None:
    threads, seen = Threads(), set()

    def step() -> int:
        seen.add(threading.get_ident())
        return len(seen)

    for _ in range(50):
        job = Job((step, step))
        assert threads.run(job, 60.0)
        assert job.results == [1, 1]
    assert threading.get_ident() not in seen


def test_a_thread_that_came_back_is_used_again() -> None:
    threads = Threads()
    gate, started = threading.Event(), threading.Event()

    def hang() -> int:
        started.set()
        gate.wait()
        return threading.get_ident()

    hung = Job((hang, hang))
    assert not threads.run(hung, 0.0)
    started.wait()
    hung.leave = True
    other: Job[int] = Job((threading.get_ident,))
    assert threads.run(other, 60.0)
    gate.set()
    while threads.away:
        pass
    assert hung.done
    assert len(hung.results) == 1  # it left after the step under way
    assert other.results != hung.results
    assert threads.away == 0


def test_a_step_that_raises_ends_its_job() -> None:
    threads = Threads()

    def fail() -> int:
        raise ValueError("no")

    job = Job((fail,))
    assert threads.run(job, 60.0)
    assert isinstance(job.error, ValueError)
    assert threads.run(Job((int,)), 60.0)


def test_nvml_is_shut_down_under_us() -> None:
    """Some other part of the process ended it: the calls say so, and it is started anew."""
    fake = FakeNvml.h100s(1)
    host = GpuHost(fake)
    host.settle()
    fake.nvmlShutdown()
    values = host.tick()
    assert math.isnan(values[power(0)])
    assert any("Uninitialized" in reason for reason in host.failures)
    assert host.tick(2 * TICKS_A_SECOND)[power(0)] > 500
    assert UNINITIALIZED == 1


def test_uuids_by_bus_id() -> None:
    session = Session(lambda: FakeNvml.h100s(2))
    assert session.uuids == {}
    host = GpuHost(FakeNvml.h100s(2))
    host.tick()
    assert host.session.uuids == {"0000:1b:00.0": uuid(0), "0000:3b:00.0": uuid(1)}


def test_a_gpu_that_answers_by_name_only_is_not_started_for_all_the_time() -> None:
    """NVML may know the name of a GPU that it cannot reach: a start then looks like a success."""
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake, only=["gpu_power"])
    host.tick(5)
    fake.fail("nvmlDeviceGetPowerUsage", GPU_IS_LOST, uuid(1))
    values = host.tick(600)
    # After 1, 2, 4, 8, 16 s and so on.
    assert 5 <= fake.calls["nvmlInit"] <= 8
    assert math.isnan(values[power(1)])
    assert values[power(0)] > 500


def test_nvml_is_not_shut_down_while_a_call_is_out() -> None:
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake, lanes=Threads(), patience=SHORT, only=["gpu_power"])
    until(host, lambda values: len(values) > 2 and not any(map(math.isnan, values.values())))
    gate = fake.hang("nvmlDeviceGetPowerUsage", uuid(1))
    until(host, lambda values: math.isnan(values[power(1)]))
    fake.lost.add(uuid(0))
    starts, ended = fake.calls["nvmlInit"], fake.calls["nvmlShutdown"]
    host.tick(100)
    assert fake.calls["nvmlShutdown"] == ended
    fake.mend()
    gate.set()
    until(host, lambda values: not any(map(math.isnan, values.values())))
    assert fake.calls["nvmlInit"] > starts


def layouts(host: GpuHost, ticks: int) -> list[int]:
    """Return at which ticks the layout was another."""
    changes = []
    for tick in range(ticks):
        before = host.group.channels
        host.tick()
        if host.group.channels is not before:
            changes.append(tick)
    return changes


def test_a_gpu_that_goes_or_comes_changes_the_layout_once() -> None:
    """All that is known of it at once: a layout that changes has to be learned anew."""
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    assert layouts(host, 150) == [0, 1]  # what GPM has is known with the second sample
    both = set(host.tick())
    gone = fake.tables.pop(0)
    host.kernel_sees(fake)
    (when,) = layouts(host, 150)
    assert when <= 50
    assert set(host.tick()) == {label for label in both if uuid(0) not in label}
    fake.tables.insert(0, gone)
    host.kernel_sees(fake)
    (when,) = layouts(host, 150)
    assert when <= 50
    assert set(host.tick()) == both


def test_a_driver_that_comes_late_changes_the_layout_in_two_ticks() -> None:
    fake = FakeNvml.h100s(4)
    fake.broken = DRIVER_NOT_LOADED
    host = GpuHost(fake)
    host.reader.files = {}
    assert layouts(host, 200) == []
    fake.broken = 0
    host.kernel_sees(fake)
    when, then = layouts(host, 200)
    assert when <= 15
    assert then == when + 1  # GPM
    assert set(host.tick()) == set(GpuHost(FakeNvml.h100s(4)).settle())


def test_a_driver_that_is_slow_to_come_is_tried_as_at_the_start() -> None:
    """After minutes without, once a minute would be too seldom for one that is being loaded."""
    fake = FakeNvml.h100s(1)
    fake.broken = DRIVER_NOT_LOADED
    host = GpuHost(fake)
    host.reader.files = {}
    host.tick(1000)
    starts = fake.calls["nvmlInit"]
    host.kernel_sees(fake)
    host.tick(40)
    assert fake.calls["nvmlInit"] - starts in {2, 3}
    fake.broken = 0
    assert layouts(host, 60)[0] <= 40


class Held:
    """Keeps the first job until somebody does it, and does the others on the spot."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def run(self, job: Job[T], patience_s: float) -> bool:  # noqa: ARG002 - it waits for nobody
        if self.jobs:
            job.run()
            return True
        self.jobs.append(job.run)
        return False


@pytest.mark.parametrize("ticks", range(600, 610))
def test_what_a_slow_start_found_is_there_at_the_next_tick(ticks: int) -> None:
    """However long it took: by then each source is looked at every ten seconds only."""
    held = Held()
    host = GpuHost(FakeNvml.h100s(4), lanes=held)
    host.reader.files = {}  # else it is read for XIDs in the kernel's log, at every tick
    assert layouts(host, ticks) == []
    assert host.session.problem == "NVML takes long to start"
    held.jobs[0]()
    assert layouts(host, 150) == [0, 1]
    assert set(host.tick()) == set(GpuHost(FakeNvml.h100s(4)).settle())


def test_mig_devices_change_the_layout_once() -> None:
    fake = FakeNvml.h100s(1)
    whole = fake.tables[0]
    host = GpuHost(fake)
    host.settle()
    mig = nvml_tables.Table(whole.uuid, "", mig_uuid="MIG-1", instance=1)
    mig.answers["nvmlDeviceGetMemoryInfo", 2] = {"total": 8, "used": 2, "free": 6, "reserved": 0}
    whole.migs = [mig]
    assert len(layouts(host, 150)) == 1
    whole.migs = []
    assert len(layouts(host, 150)) == 1


def test_a_slow_start_of_nvml_costs_no_channel_ten_seconds() -> None:
    """All channels are there within two ticks of its coming back."""
    fake, threads = FakeNvml.h100s(4), Threads()
    gate = fake.hang("nvmlInit")
    host = GpuHost(fake, lanes=threads, patience=Patience(60.0, 60.0, start=0.05))
    host.tick(30)
    gate.set()
    seen = [host.group.channels]

    def all_is_there(values: dict[str, float]) -> bool:
        if host.group.channels is not seen[-1]:
            seen.append(host.group.channels)
        return power(0) in values

    until(host, all_is_there)
    assert len(seen) <= 3
    assert layouts(host, 150) in ([], [0])  # what GPM has is known with the second sample
    assert set(host.tick()) == set(GpuHost(FakeNvml.h100s(4)).settle())
