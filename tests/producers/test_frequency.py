"""Frequencies by each way, over stand-ins; and what this machine says."""

from __future__ import annotations

import errno
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.collectors.frequency import REGISTERS, RETRY_NS, collectors, speeds
from producers.group import Group
from producers.perf.catalog import PMUS
from producers.perf.msr import RegisterRates, SystemRegisters
from producers.reading import MemoryReader, SystemReader
from producers.source import SECOND_NS, Options
from schemas.records import Kind
from tests.producers.fake_perf import FakeKernel, error

MS = 1_000_000
TICK = 100 * MS
ONLINE = "sys/devices/system/cpu/online"

# A base of 2,400 MHz; half of the time running, at 3,600.
PACE = {(9, 0): 2400, (9, 1): 1800, (9, 2): 1200, (9, 4): 1}
PMU = {f"{PMUS}/msr/type": b"9\n"} | {
    f"{PMUS}/msr/events/{name}": f"event=0x{config:02x}\n".encode()
    for name, config in (("tsc", 0), ("aperf", 1), ("mperf", 2), ("smi", 4))
}
CPUFREQ = {
    f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq": text
    for n, text in ((0, b"1200000\n"), (1, b"2800000\n"), (10, b"2000000\n"))
}


class FakeRegisters:
    """Registers of cores, as numbers that a test changes."""

    def __init__(self, cpus: int = 2) -> None:
        self.values = {cpu: dict.fromkeys((0xE8, 0xE7, 0x10, 0x34), 0) for cpu in range(cpus)}
        self.refuse = 0
        self.broken: set[tuple[int, int]] = set()
        self.short: set[int] = set()
        self.clock = 10**9
        self.opened: list[int] = []
        self.reads = 0

    def open(self, cpu: int) -> int:
        if self.refuse:
            raise error(self.refuse)
        if cpu not in self.values:
            raise error(errno.ENXIO)
        self.opened.append(cpu)
        return cpu

    def read(self, descriptor: int, register: int) -> bytes:
        self.reads += 1
        if (descriptor, register) in self.broken:
            raise error(errno.EIO)
        if descriptor not in self.values:
            raise error(errno.ENXIO)
        content = (self.values[descriptor][register] % 2**64).to_bytes(8, "little")
        return content[:4] if descriptor in self.short else content

    def close(self, descriptor: int) -> None:
        self.opened.remove(descriptor)

    def run(self, ns: int, factor: float = 1) -> None:
        """Let time pass; core 1 runs `factor` times as much as core 0."""
        self.clock += ns
        for cpu, values in self.values.items():
            share = factor if cpu == 1 else 1
            values[0xE8] += int(1800 * share) * ns // 1000
            values[0xE7] += int(1200 * share) * ns // 1000
            values[0x10] += 2400 * ns // 1000
            values[0x34] = (values[0x34] + ns // 1000) % 2**32


class Host:
    def __init__(
        self,
        files: dict[str, bytes],
        kernel: FakeKernel | None = None,
        registers: FakeRegisters | None = None,
    ) -> None:
        self.kernel = kernel or FakeKernel()
        self.registers = registers or FakeRegisters(0)
        self.reader = MemoryReader({ONLINE: b"0-1\n"} | files)
        (self.collector,) = collectors(Options(), self.kernel, self.registers)
        (self.source,) = self.collector.sources
        self.group = Group([self.collector], self.reader)
        self.at_ns = 5 * SECOND_NS

    def tick(self, ns: int = TICK) -> dict[str, float]:
        self.kernel.run(ns)
        self.at_ns += ns
        values = self.group.collect(self.at_ns).tolist()
        return dict(zip([c.label for c in self.group.channels], values, strict=True))

    @property
    def note(self) -> str:
        note = getattr(self.source, "note", None)
        assert isinstance(note, str)
        return note


def test_by_perf() -> None:
    """Core 1 runs half as much as core 0, at the same frequency."""
    pace = dict(PACE) | {(9, 1): 3600, (9, 2): 2400}
    kernel = FakeKernel(pace=pace)
    host = Host(PMU, kernel)
    assert all(math.isnan(v) for v in host.tick().values())
    for cpu, (aperf, mperf) in {0: (3600, 2400), 1: (1800, 1200)}.items():
        for group in kernel.groups.values():
            if group.cpu == cpu:
                # By hand, over 100 ms: what the registers grow by.
                group.counts[0] += aperf * 100_000
                group.counts[1] += mperf * 100_000
                group.counts[2] += 2400 * 100_000
                group.counts[3] += 5
                group.enabled += TICK
                group.running += TICK
    host.at_ns += TICK
    values = dict(
        zip(
            [c.label for c in host.group.channels],
            host.group.collect(host.at_ns).tolist(),
            strict=True,
        )
    )
    assert values == pytest.approx(
        {
            "cpu.frequency_busy": 3600,
            "cpu.frequency_average": 2700,
            "cpu.c0_residency": 75,
            "cpu.frequency_min": 3600,
            "cpu.smi": 50,
            "cpu.frequency_busy[cpu0]": 3600,
            "cpu.frequency_average[cpu0]": 3600,
            "cpu.c0_residency[cpu0]": 100,
            "cpu.frequency_busy[cpu1]": 3600,
            "cpu.frequency_average[cpu1]": 1800,
            "cpu.c0_residency[cpu1]": 50,
        }
    )
    assert host.note == "counted by the perf PMU msr"
    assert host.source.problem == ""
    assert kernel.calls["read"] == 4  # one a core and tick
    for channel in host.group.channels:
        assert (channel.kind is Kind.RATE) == channel.unit.endswith("/s")


def test_a_core_that_is_held_back_is_the_minimum() -> None:
    kernel = FakeKernel(pace=dict(PACE))
    host = Host(PMU, kernel)
    host.tick()
    host.tick()
    slow = next(g for g in kernel.groups.values() if g.cpu == 1)
    slow.counts[0] -= 1200 * 100_000  # APERF a third of what it would be
    values = host.tick()
    assert values["cpu.frequency_busy[cpu0]"] == pytest.approx(3600)
    assert values["cpu.frequency_busy[cpu1]"] == pytest.approx(1200)
    assert values["cpu.frequency_min"] == pytest.approx(1200)
    # The host's is that of all cycles: 1800 + 600 of APERF for 2 * 1200 of MPERF.
    assert values["cpu.frequency_busy"] == pytest.approx(2400)


def test_by_registers() -> None:
    registers = FakeRegisters()
    host = Host({}, registers=registers)
    host.tick()
    assert host.note == "read from /dev/cpu/*/msr"
    labels = {c.label for c in host.group.channels}
    assert "cpu.smi" in labels
    assert len(labels) == 5 + 6
    reads = registers.reads
    host.tick()
    assert registers.reads == reads + 8


def registered(registers: FakeRegisters) -> RegisterRates:
    rates = RegisterRates(registers, REGISTERS, clock_ns=lambda: registers.clock)
    rates.follow(tuple(registers.values))
    rates.rates()
    return rates


def test_rates_of_registers() -> None:
    registers = FakeRegisters()
    rates = registered(registers)
    for factor in (1.0, 2.0, 0.5):
        registers.run(TICK, factor)
        np.testing.assert_allclose(
            rates.rates(),
            [[1800e6, 1200e6, 2400e6, 1e6], [1800e6 * factor, 1200e6 * factor, 2400e6, 1e6]],
        )
    each, host = speeds(rates.rates())
    assert np.isnan(each).all()  # no time went by
    assert np.isnan(host).all()
    registers.run(TICK, 0.5)
    each, host = speeds(rates.rates())
    np.testing.assert_allclose(each, [[3600, 1800, 50], [3600, 900, 25]])
    np.testing.assert_allclose(host, [3600, 1350, 37.5, 3600])


def test_registers_wrap() -> None:
    registers = FakeRegisters()
    for values in registers.values.values():
        values.update({0xE8: 2**64 - 5, 0xE7: 2**64 - 1, 0x10: 2**64 - 10**6, 0x34: 2**32 - 7})
    rates = registered(registers)
    registers.run(TICK)
    np.testing.assert_allclose(rates.rates(), [[1800e6, 1200e6, 2400e6, 1e6]] * 2)
    assert rates.bad_counts == 0


def test_a_register_that_was_written_is_unknown_once() -> None:
    registers = FakeRegisters()
    registers.run(SECOND_NS)
    rates = registered(registers)
    registers.run(TICK)
    registers.values[1][0xE8] = 3
    found = rates.rates()
    assert np.isnan(found).tolist() == [[False] * 4, [True, False, False, False]]
    assert rates.bad_counts == 1
    registers.run(TICK)
    np.testing.assert_allclose(rates.rates(), [[1800e6, 1200e6, 2400e6, 1e6]] * 2)


@pytest.mark.parametrize("how", ["refused", "short", "gone"])
def test_a_core_whose_registers_cannot_be_read(how: str) -> None:
    """The other is exactly as without."""
    registers = FakeRegisters()
    rates = registered(registers)
    registers.run(TICK)
    expected = [1800e6, 1200e6, 2400e6, 1e6]
    gone = registers.values[1]
    if how == "refused":
        registers.broken = {(1, 0xE8)}
    elif how == "short":
        registers.short = {1}
    else:
        del registers.values[1]
    for _ in range(3):
        found = rates.rates()
        np.testing.assert_allclose(found[0], expected)
        assert math.isnan(found[1, 0])
        assert np.isnan(found[1, 1:]).all() == (how != "refused")
        registers.run(TICK)
    registers.broken, registers.short, registers.values[1] = set(), set(), gone
    rates.rates()
    registers.run(TICK)
    np.testing.assert_allclose(rates.rates()[1, 2], 2400e6)


def test_a_register_that_this_processor_lacks() -> None:
    """AMD has no SMI count: that register alone is absent."""
    registers = FakeRegisters()
    registers.broken = {(0, 0x34), (1, 0x34)}
    host = Host({}, registers=registers)
    host.tick()
    assert "cpu.smi" not in {c.label for c in host.group.channels}
    reads = registers.reads
    host.tick()
    assert registers.reads == reads + 6


def test_by_cpufreq() -> None:
    host = Host(CPUFREQ)
    values = host.tick()
    assert values == pytest.approx(
        {
            "cpu.frequency_scaling[cpu0]": 1200,
            "cpu.frequency_scaling[cpu1]": 2800,
            "cpu.frequency_scaling[cpu10]": 2000,
            "cpu.frequency_scaling": 2000,
            "cpu.frequency_scaling_min": 1200,
        }
    )
    assert host.source.period_ns == SECOND_NS
    assert host.note.startswith("cpufreq's word, not measured: perf has no msr/aperf/; /dev/cpu/")
    path = "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
    host.reader.files = {**host.reader.files, path: b"<unknown>\n"}
    values = host.tick(2 * SECOND_NS)
    assert math.isnan(values["cpu.frequency_scaling[cpu0]"])
    assert values["cpu.frequency_scaling"] == pytest.approx(2400)
    assert host.source.bad_fields == 1


def test_perf_comes_before_the_registers_before_cpufreq() -> None:
    registers = FakeRegisters()
    host = Host(PMU | CPUFREQ, FakeKernel(pace=dict(PACE)), registers)
    host.tick()
    assert host.note == "counted by the perf PMU msr"
    assert registers.opened == []
    refused = FakeKernel(pace=dict(PACE), refuse_all=errno.EACCES)
    host = Host(PMU | CPUFREQ, refused, registers)
    host.tick()
    assert host.note == "read from /dev/cpu/*/msr"
    registers.refuse = errno.EPERM
    host = Host(PMU | CPUFREQ, refused, registers)
    host.tick()
    assert host.note == (
        "cpufreq's word, not measured: perf_event_open: Permission denied; "
        "/dev/cpu/0/msr: Operation not permitted"
    )


@pytest.mark.parametrize("missing", ["aperf", "mperf", "tsc"])
def test_a_pmu_without_what_is_needed(missing: str) -> None:
    """As in most virtual machines: only the time stamp is there."""
    files = {path: text for path, text in PMU.items() if not path.endswith(f"/{missing}")}
    host = Host(files, FakeKernel(pace=dict(PACE)))
    assert host.tick() == {}
    assert host.source.problem == (
        "perf has no msr/aperf/; /dev/cpu/0/msr: No such device or address; no scaling_cur_freq"
    )
    assert 20 < len(host.source.remedy) < 300
    assert host.kernel.members == {}
    host.reader.files = {**host.reader.files, **PMU}
    assert host.tick() == {}
    host.tick(RETRY_NS)
    assert not any(math.isnan(v) for v in host.tick().values())
    assert host.source.problem == ""


def test_an_event_that_sysfs_lists_and_the_kernel_refuses() -> None:
    kernel = FakeKernel(pace={k: v for k, v in PACE.items() if k != (9, 1)})
    host = Host(PMU, kernel)
    assert host.tick() == {}
    assert "no APERF and MPERF in it" in host.source.problem
    assert kernel.members == {}


def test_a_core_goes_and_comes() -> None:
    kernel = FakeKernel(pace=dict(PACE))
    host = Host(PMU, kernel)
    host.tick()
    whole = host.tick()
    kernel.go_offline(1)
    host.reader.files = PMU | {ONLINE: b"0\n"}
    values = host.tick()
    assert values == {k: v for k, v in whole.items() if not k.endswith("[cpu1]")}
    kernel.cpus.add(1)
    host.reader.files = PMU | {ONLINE: b"0-1\n"}
    values = host.tick()
    assert {k for k, v in values.items() if math.isnan(v)} == {k for k in whole if "cpu1" in k}
    assert host.tick() == pytest.approx(whole)
    assert host.group.stats["frequency"].failures.total() == 0


def test_a_core_that_cannot_be_read_by_perf() -> None:
    kernel = FakeKernel(pace=dict(PACE))
    host = Host(PMU, kernel)
    host.tick()
    whole = host.tick()
    kernel.unreadable = {1}
    for _ in range(25):
        values = host.tick()
        assert {k for k, v in values.items() if math.isnan(v)} == {k for k in whole if "cpu1" in k}
        kept = {k for k in whole if "cpu1" not in k}
        assert {k: values[k] for k in kept} == {k: whole[k] for k in kept}


@pytest.mark.parametrize("text", [None, b"\n", b"x\n"])
def test_without_a_list_of_cores(text: bytes | None) -> None:
    host = Host(PMU, FakeKernel(pace=dict(PACE)))
    host.tick()
    whole = host.tick()
    host.reader.files = dict(PMU) if text is None else PMU | {ONLINE: text}
    values = host.tick()
    assert set(values) == set(whole)
    assert all(math.isnan(v) for v in values.values())
    assert host.source.problem.startswith(f"{ONLINE}: ")
    host.reader.files = PMU | {ONLINE: b"0-1\n"}
    assert host.tick() == pytest.approx(whole)


@given(
    st.lists(
        st.tuples(*[st.sampled_from([0.0, 1.0, math.nan, 1e9]) | st.floats(1e-3, 1e12)] * 3),
        min_size=1,
        max_size=6,
    )
)
def test_speeds_are_numbers_or_unknown(rows: list[tuple[float, float, float]]) -> None:
    each, host = speeds(np.array(rows))
    for (aperf, mperf, tsc), (busy, average, share) in zip(rows, each.tolist(), strict=True):
        if math.isnan(aperf + mperf + tsc) or mperf == 0:
            assert math.isnan(busy)
        elif math.isfinite(aperf / mperf * tsc):
            assert busy == pytest.approx(tsc * aperf / mperf / 1e6, rel=1e-9)
        assert math.isnan(average) == math.isnan(aperf)
        if tsc == 0:
            assert math.isnan(share)
    assert not (host < 0).any()


def test_this_machine() -> None:
    """Where there are APERF and MPERF the values are those of a processor."""
    with SystemReader() as reader:
        (collector,) = collectors(Options())
        (source,) = collector.sources
        try:
            source.read(reader, 1_000_000_000)
            if source.problem:
                pytest.skip(f"this machine does not tell: {source.problem}")
            labels = [c.label for c in source.plan.channels]
            values = dict(zip(labels, source.read(reader, 2_500_000_000), strict=True))
            for label, value in values.items():
                if label.startswith("cpu.frequency_busy") and not math.isnan(value):
                    assert 100 < value < 10_000
        finally:
            collector.close()


def test_the_real_files_say_why_not() -> None:
    rates = RegisterRates(SystemRegisters(), REGISTERS)
    rates.follow((0,))
    try:
        if rates.problem:
            assert rates.problem.startswith("/dev/cpu/0/msr: ")
            assert rates.rates().shape == (0, 4)
        else:
            assert rates.cpus == (0,)
            assert rates.rates().shape == (1, 4)
    finally:
        rates.close()
