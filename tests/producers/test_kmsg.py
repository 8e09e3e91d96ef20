"""The kernel's log: what is counted, and what is not."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.collectors import kmsg
from producers.collectors.kmsg import KernelLog, Log, SystemLog, Tail, kind_of, parse
from producers.group import Group
from producers.reading import MemoryReader
from producers.source import Collector, Options
from schemas.records import Subsystem
from tests.producers.gpus import FakeLog

TICK_NS = 100_000_000


def record(text: str, level: int = 6, facility: int = 0) -> bytes:
    return f"{facility * 8 + level},77,1234567,-;{text}\n DEVICE=+pci:0000:00:01.0\n".encode()


class Host:
    def __init__(self, *logs: Log | OSError) -> None:
        self.logs = list(logs)
        self.opened = 0
        self.source = KernelLog(Tail(self.open))
        self.group = Group([Collector("kmsg", (self.source,))], MemoryReader())
        self.at_ns = 0

    def open(self) -> Log:
        self.opened += 1
        log = self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]
        if isinstance(log, OSError):
            raise log
        return log

    def tick(self, ticks: int = 1) -> dict[str, float]:
        for _ in range(ticks):
            self.at_ns += TICK_NS
            values = self.group.collect(self.at_ns, whole=True)
        return dict(zip((c.metric for c in self.group.channels), values.tolist(), strict=True))


LINES = {
    # Messages as kernels write them, and what they are about.
    "Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB": "oom_kills",
    "Memory cgroup out of memory: Killed process 33 (stress) total-vm:1kB": "oom_kills",
    "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0": "",
    "mce: [Hardware Error]: Machine check events logged": "machine_checks",
    "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010090": "machine_checks",
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0": (
        "hardware_errors"
    ),
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0": "memory_errors",
    "EDAC skx MC3: HANDLING MCE MEMORY ERROR": "",
    "Memory failure: 0x12ab: recovery action for dirty page: Recovered": "memory_errors",
    "INFO: task kworker/u8:2:133 blocked for more than 120 seconds.": "hung_tasks",
    "watchdog: BUG: soft lockup - CPU#5 stuck for 22s! [python:99]": "lockups",
    "rcu: INFO: rcu_sched self-detected stall on CPU": "lockups",
    "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:": "lockups",
    "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0": "pcie_errors",
    "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer": "pcie_errors",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.": "gpu_xids",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  590.48.01": "",
    "mlx5_core 0000:81:00.0 enp129s0: Link down": "link_downs",
    "igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Down": "link_downs",
    "bond0: link status definitely down": "",
    "ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps, Flow Control: RX/TX": "",
    "NETDEV WATCHDOG: eth0 (igb): transmit queue 2 timed out": "network_timeouts",
    "blk_update_request: I/O error, dev sda, sector 1234 op 0x0:(READ)": "io_errors",
    "Buffer I/O error on dev dm-0, logical block 7, async page read": "io_errors",
    "critical medium error, dev nvme0n1, sector 44": "io_errors",
    "nvme nvme0: I/O 12 QID 3 timeout, aborting": "io_errors",
    "nvme nvme0: I/O tag 12 (c00c) QID 3 timeout, aborting": "io_errors",
    "EXT4-fs error (device sda1): ext4_lookup:1700: inode #2: comm ls": "file_system_errors",
    "XFS (sdb1): Corruption detected. Unmount and run xfs_repair": "file_system_errors",
    "EXT4-fs (sda1): Remounting filesystem read-only": "file_system_errors",
    "nfs: server filer not responding, still trying": "remote_file_errors",
    "LustreError: 11-0: lustre-OST0001: operation ost_read failed": "remote_file_errors",
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd": "",
    "": "",
}


@pytest.mark.parametrize("text", LINES)
def test_what_a_message_is_about(text: str) -> None:
    assert kind_of(text) == LINES[text]


@pytest.mark.parametrize("text", [text for text, kind in LINES.items() if kind])
def test_each_is_counted_once_and_alone(text: str) -> None:
    log = FakeLog()
    host = Host(log)
    host.tick(2)
    log.records += [record(text), record("nothing of note"), record(text)]
    values = host.tick()
    assert {metric: v for metric, v in values.items() if v} == {
        f"kernel.{LINES[text]}": pytest.approx(20)
    }
    assert not any(host.tick().values())


def test_messages_by_level() -> None:
    log = FakeLog()
    host = Host(log)
    host.tick(2)
    log.records += [record("a", level) for level in (0, 2, 3, 4, 4, 5, 6, 7)]
    values = host.tick()
    assert values["kernel.errors"] == pytest.approx(30)
    assert values["kernel.warnings"] == pytest.approx(20)


def test_what_was_there_before_does_not_count() -> None:
    """The system's log is opened at its end; rates are unknown at the first reading."""
    host = Host(FakeLog())
    assert all(map(math.isnan, host.tick().values()))
    assert set(host.tick().values()) == {0}


def test_nobody_else_speaks_in_the_kernels_name() -> None:
    log = FakeLog()
    host = Host(log)
    host.tick(2)
    log.records.append(record("Out of memory: Killed process 1 (init)", level=3, facility=1))
    assert not any(host.tick().values())
    assert host.source.bad_fields == 0


def test_overwritten_records_are_counted_and_it_goes_on() -> None:
    log = FakeLog()
    host = Host(log)
    host.tick(2)
    text = "Buffer I/O error on dev sda"
    log.records += [BrokenPipeError(errno.EPIPE, "Broken pipe"), record(text)]
    values = host.tick()
    assert values["kernel.messages_lost"] == pytest.approx(10)
    assert values["kernel.io_errors"] == pytest.approx(10)
    assert host.source.problem == ""


def test_a_flood_is_taken_bit_by_bit() -> None:
    log = FakeLog()
    host = Host(log)
    host.tick(2)
    log.records += [record("Buffer I/O error")] * 600
    rates = [host.tick()["kernel.io_errors"] for _ in range(4)]
    assert sum(rates) / 10 == pytest.approx(600)
    assert rates[-1] == 0


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EPERM, "Operation not permitted"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
    ],
)
def test_without_it_there_are_no_channels(error: OSError) -> None:
    host = Host(error)
    assert host.tick(95) == {}
    assert host.source.problem == f"dev/kmsg: {error.strerror}"
    assert host.opened == 1
    host.tick(120)
    assert host.opened == 3  # every ten seconds
    host.logs = [FakeLog()]
    host.tick(210)
    assert host.tick()["kernel.io_errors"] == 0
    assert host.source.problem == ""


def test_an_error_closes_it_and_it_is_opened_again() -> None:
    first, second = FakeLog(), FakeLog(record("Buffer I/O error"))
    host = Host(first, second)
    host.tick(2)
    first.records.append(OSError(errno.EIO, "Input/output error"))
    assert all(map(math.isnan, host.tick().values()))
    assert first.closed
    values = host.tick(110)
    assert values["kernel.io_errors"] == 0
    assert host.opened == 2


@pytest.mark.parametrize(
    ("bad", "counted"),
    [
        (b"garbage\n", 1),
        (b"\xff\xfe\x00", 1),
        (b"x,1,2,-;text\n", 0),
        (b";\n", 0),
        (b"99999999999999999999,1,2,-;text\n", 0),
        (b"6;", 0),
    ],
)
def test_a_record_that_is_none(bad: bytes, counted: int) -> None:
    log = FakeLog()
    host = Host(log)
    host.tick(2)
    log.records += [bad, record("Buffer I/O error")]
    assert host.tick()["kernel.io_errors"] == pytest.approx(10)
    assert host.source.bad_fields == counted


@given(st.binary(max_size=200) | st.from_regex(rb"\A[0-9]{1,12},[0-9]*,[0-9]*,.;.*\Z"))
def test_whatever_the_record(data: bytes) -> None:
    message = parse(data)
    if message is not None:
        assert 0 <= message.level <= 7
        assert kind_of(message.text) in {"", *(name for name, _, _ in kmsg.COUNTED)}


def test_text_that_is_no_utf_8() -> None:
    message = parse(b"3,1,2,-;I/O error \xff\xfe\n")
    assert message is not None
    assert kind_of(message.text) == "io_errors"


def test_names_and_subsystems() -> None:
    host = Host(FakeLog())
    host.tick()
    assert {c.unit for c in host.group.channels} == {"messages/s"}
    by_metric = {c.metric: c.subsystem for c in host.group.channels}
    assert by_metric["kernel.oom_kills"] is Subsystem.MEMORY
    assert by_metric["kernel.gpu_xids"] is Subsystem.GPU
    assert by_metric["kernel.messages_lost"] is Subsystem.AGENT
    (collector,) = kmsg.collectors(Options())
    assert collector.name == "kmsg"
    assert 20 < len(collector.sources[0].remedy) < 300


def test_this_machine() -> None:
    path = Path("/dev/kmsg")
    try:
        log = SystemLog(path)
    except OSError as e:
        pytest.skip(f"{path}: {e.strerror}")
    try:
        while True:
            assert b";" in log.take()
    except BlockingIOError:
        pass
    finally:
        log.close()
        log.close()


def test_records_come_one_by_one(tmp_path: Path) -> None:
    """A file stands in for the device: from its end on, and only what was added."""
    path = tmp_path / "kmsg"
    path.write_bytes(record("Buffer I/O error"))
    tail = Tail(lambda: SystemLog(path))
    assert tail.read(0) == []
    with path.open("ab") as file:
        file.write(record("nvme nvme0: I/O 12 QID 3 timeout"))
        os.fsync(file.fileno())
    (message,) = tail.read(1)
    assert message.text == "nvme nvme0: I/O 12 QID 3 timeout"
