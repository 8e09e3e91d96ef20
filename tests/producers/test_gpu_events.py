"""XID and other events, from NVML and from the kernel's log."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.collectors import kmsg
from producers.collectors.gpu import xid
from producers.collectors.gpu.source import REMEDY
from tests.producers import nvml_tables
from tests.producers.fake_nvml import UNKNOWN, FakeNvml
from tests.producers.gpus import GpuHost

GPU, OTHER = nvml_tables.h100(0).uuid, nvml_tables.h100(1).uuid
XID, DOUBLE_BIT = 0x8, 0x2


def line(text: str, level: int = 3) -> bytes:
    return f"{level},4321,987654,-;{text}\n SUBSYSTEM=pci\n".encode()


def logged(bus_id: str, code: int) -> bytes:
    return line(
        f"NVRM: Xid (PCI:{bus_id}): {code}, pid=1234, name=python, GPU has fallen off the bus."
    )


def test_events_of_nvml() -> None:
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake, only=["gpu_events"])
    host.tick(5)
    quiet = host.tick()
    assert quiet[f"gpu.xid[{GPU}]"] == 0
    assert math.isnan(quiet[f"gpu.last_xid[{GPU}]"])
    fake.report(GPU, XID, 48)
    fake.report(GPU, XID, 79)
    fake.report(OTHER, DOUBLE_BIT)
    values = host.tick()
    assert values[f"gpu.xid[{GPU}]"] == pytest.approx(20)  # two in a tenth of a second
    assert values[f"gpu.last_xid[{GPU}]"] == 79
    assert values[f"gpu.xid[{OTHER}]"] == 0
    assert values[f"gpu.double_bit_ecc_events[{OTHER}]"] == pytest.approx(10)
    after = host.tick()
    assert after[f"gpu.xid[{GPU}]"] == 0
    assert after[f"gpu.last_xid[{GPU}]"] == 79


def test_a_gpu_without_events_has_no_such_channels() -> None:
    fake = FakeNvml.h100s(2)
    fake.tables[1].events = XID
    values = GpuHost(fake, only=["gpu_events"]).tick(2)
    assert {label for label in values if OTHER in label} == {
        f"gpu.xid[{OTHER}]",
        f"gpu.last_xid[{OTHER}]",
    }


def test_a_flood_of_events_is_taken_bit_by_bit() -> None:
    fake = FakeNvml.h100s(1)
    host = GpuHost(fake, only=["gpu_events"])
    host.tick(2)
    for _ in range(600):
        fake.report(GPU, XID, 31)
    rates = [host.tick()[f"gpu.xid[{GPU}]"] for _ in range(4)]
    assert sum(rates) / 10 == pytest.approx(600)
    assert rates[-1] == 0


def test_events_that_cannot_be_read() -> None:
    fake = FakeNvml.h100s(1)
    host = GpuHost(fake, only=["gpu_events"])
    host.tick(2)
    fake.fail("nvmlEventSetWait_v2", UNKNOWN)
    assert math.isnan(host.tick()[f"gpu.xid[{GPU}]"])
    assert host.bad_fields == 1
    assert host.failures == {"nvml/events: NVMLError_Unknown"}


def test_xids_of_the_kernel_by_gpu() -> None:
    host = GpuHost(FakeNvml.h100s(2), only=["gpu_xid", "gpu"])
    host.tick(2)
    host.tick(50)
    host.log.records += [logged("0000:1b:00", 79), line("NVRM: loading"), logged("0000:1B:00", 119)]
    host.log.records += [logged("0000:3b:00.0", 31)]
    values = host.tick()
    assert values[f"gpu.xid_logged[{GPU}]"] == pytest.approx(20)
    assert values[f"gpu.last_xid_logged[{GPU}]"] == 119
    assert values[f"gpu.xid_logged[{OTHER}]"] == pytest.approx(10)
    assert values[f"gpu.last_xid_logged[{OTHER}]"] == 31
    assert host.tick()[f"gpu.xid_logged[{GPU}]"] == 0


def test_a_gpu_that_only_the_kernel_knows_goes_by_its_place() -> None:
    fake = FakeNvml.h100s(2)
    fake.broken = 999
    host = GpuHost(fake, only=["gpu_xid"])
    host.tick(2)
    host.log.records.append(logged("0000:3b:00", 79))
    values = host.tick()
    assert values["gpu.xid_logged[0000:3b:00]"] == pytest.approx(10)
    assert values["gpu.xid_logged[0000:1b:00]"] == 0
    host.log.records.append(logged("0000:5b:00", 62))
    host.tick()
    assert host.tick()["gpu.last_xid_logged[0000:5b:00]"] == 62


def test_a_host_without_gpus_reads_no_log() -> None:
    host = GpuHost(FakeNvml([]), only=["gpu_xid"])
    host.log.records.append(logged("0000:3b:00", 79))
    assert host.tick(3) == {}
    assert len(host.log.records) == 1
    (source,) = host.collectors[0].sources
    # The log itself may be there, and says so in its own collector.
    assert (source.path, source.remedy) == ("nvml", REMEDY)
    assert source.problem == "nvml: NVML: the driver has no GPU"


def test_gpus_without_a_log_lack_the_log() -> None:
    host = GpuHost(FakeNvml.h100s(1), only=["gpu_xid"])
    host.log.records.append(PermissionError(1, "Operation not permitted"))
    host.tick()
    (source,) = host.collectors[0].sources
    assert (source.path, source.remedy) == (kmsg.PATH, kmsg.REMEDY)
    assert source.problem == f"{kmsg.PATH}: Operation not permitted"


def test_a_log_is_named_when_the_gpus_are_there() -> None:
    fake = FakeNvml([])
    host = GpuHost(fake, only=["gpu_xid"])
    host.tick()
    fake.tables = [nvml_tables.h100(0)]
    host.kernel_sees(fake)
    host.tick(100)
    (source,) = host.collectors[0].sources
    assert (source.path, source.problem, source.remedy) == (kmsg.PATH, "", kmsg.REMEDY)
    assert len(source.plan.channels) == 2


def test_a_log_that_cannot_be_read_any_more() -> None:
    host = GpuHost(FakeNvml.h100s(1), only=["gpu_xid"])
    host.tick(2)
    host.log.records.append(PermissionError(1, "Operation not permitted"))
    label = f"gpu.xid_logged[{GPU}]"
    assert math.isnan(host.tick()[label])
    assert host.log.closed
    assert math.isnan(host.tick(50)[label])
    assert host.tick(60)[label] == 0  # opened again after ten seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=12", ("0000:3b:00", 79)),
        ("NVRM: Xid (PCI:0000:3B:00): 13, Graphics Exception", ("0000:3b:00", 13)),
        ("NVRM: Xid (PCI:00000000:3b:00.0): 8", ("0000:3b:00", 8)),
        ("NVRM: Xid (PCI:0000:3b:00): 79999999999", None),
        ("NVRM: Xid (PCI:3b:00): 79", None),
        ("NVRM: Xid", None),
        ("", None),
    ],
)
def test_lines(text: str, expected: tuple[str, int] | None) -> None:
    assert xid.parse(text) == expected


@given(st.text() | st.from_regex(r"NVRM: Xid \(PCI:.*\): .*"))
def test_whatever_the_line(text: str) -> None:
    found = xid.parse(text)
    assert found is None or 0 <= found[1] < 10**6


def test_events_of_nvml_that_cannot_make_a_set() -> None:
    fake = FakeNvml.h100s(1)
    fake.fail("nvmlEventSetCreate", UNKNOWN)
    host = GpuHost(fake, only=["gpu_events"])
    assert host.tick(3) == {}
    assert host.bad_fields == 0
