"""NFS: calls and mounts, from this recording and from other machines, added up here by hand."""

from __future__ import annotations

import math
import re

import pytest

from producers.collectors.nfs import CALLS
from producers.collectors.nfs_mounts import OPERATIONS, nfs_mounts
from producers.group import Group
from producers.reading import MemoryReader, Unreadable
from tests.producers.archives import archive
from tests.producers.kernel import BETWEEN_S, FIRST, SECOND, Host, collector

S = 10**9
RPC = "proc/net/rpc/nfs"
MOUNTS = "proc/1/mountstats"

PROC3 = (
    *("getattr", "setattr", "lookup", "access", "readlink", "read", "write", "create", "mkdir"),
    *("symlink", "mknod", "remove", "rmdir", "rename", "link", "readdir", "readdirplus", "fsstat"),
    *("fsinfo", "pathconf", "commit"),
)
"""RFC 1813, in the order of its procedures, after NULL."""


def counts(text: bytes) -> dict[str, list[int]]:
    lines = [line.split() for line in text.decode().splitlines()]
    return {words[0]: [int(n) for n in words[1:]] for words in lines}


def grown(text: bytes) -> bytes:
    """Let the n-th count of a line grow by n."""
    lines = []
    for name, numbers in counts(text).items():
        skipped = 1 if name.startswith("proc") else 0
        numbers = [n + max(0, i + 1 - skipped) for i, n in enumerate(numbers)]
        lines.append(" ".join([name, *map(str, numbers)]))
    return "\n".join(lines).encode() + b"\n"


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs"])
def test_calls_of_other_machines(machine: str) -> None:
    text = archive(machine)[RPC]
    host = Host("nfs")
    host.read({RPC: text}, S)
    values = host.read({RPC: grown(text)}, S)
    expected: dict[str, float] = {
        "nfs_client.calls": 1,
        "nfs_client.retransmits": 2,
        "nfs_client.auth_refreshes": 3,
        "nfs_client.retransmit_share": 100 * 2 / 3,
    }
    for version in ("2", "3", "4"):
        numbers = counts(text)[f"proc{version}"]
        assert numbers[0] == len(numbers) - 1
        expected[f"nfs_client.calls[v{version}]"] = sum(range(1, len(numbers)))
        for i, name in enumerate(CALLS[f"proc{version}"].split(), start=1):
            if name != "-":
                expected[f"nfs_client.{name}[v{version}]"] = i
    assert values == pytest.approx(expected)
    assert len(values) == 4 + 3 + 12 + 16 + 20
    assert host.failures == host.bad_fields == 0


def test_calls_of_version_3_are_where_the_standard_has_them() -> None:
    names = CALLS["proc3"].split()[1:]
    assert len(names) == len(PROC3)
    assert all(ours in {"-", theirs} for ours, theirs in zip(names, PROC3, strict=True))


def test_the_names_that_node_exporter_gives_the_counts() -> None:
    """Its expected output says how often each method of its fixture was called."""
    lines = archive("node_exporter")["node_exporter/e2e-output.txt"].decode().splitlines()
    text = archive("node_exporter/proc")[RPC]
    pattern = re.compile(r'node_nfs_requests_total\{method="(\w+)",proto="(\d)"\} (\S+)')
    told = {(m[2], m[1].lower()): float(m[3]) for line in lines if (m := pattern.match(line))}
    assert len(told) > 80
    for version in ("2", "3", "4"):
        numbers = counts(text)[f"proc{version}"][1:]
        for number, name in zip(numbers, CALLS[f"proc{version}"].split(), strict=False):
            if name != "-":
                assert told[version, name.replace("_", "")] == number, (version, name)


def test_calls_of_this_recording() -> None:
    values = Host("nfs").twice()
    assert values["nfs_client.read[v4]"] == pytest.approx(31 / BETWEEN_S)
    assert values["nfs_client.open[v4]"] == pytest.approx(2 / BETWEEN_S)
    total = 31 + 17 + 2 + 2 + 4 + 25 + 3 + 1
    assert values["nfs_client.calls[v4]"] == pytest.approx(total / BETWEEN_S)
    assert values["nfs_client.retransmit_share"] == pytest.approx(100 * 2 / 102)
    assert not [label for label in values if "v3" in label]


def test_a_version_comes_when_it_is_used() -> None:
    host = Host("nfs")
    text = b"net 0 0 0 0\nrpc %d 0 0\nproc3 22 " + b"0 " * 21 + b"%d\n"
    host.read({RPC: text % (0, 0)}, S)
    assert host.read({RPC: text % (0, 0)}, S)["nfs_client.retransmit_share"] == 0
    for n in (5, 6, 8):
        values = host.read({RPC: text % (n, n)}, S)
    assert values["nfs_client.commit[v3]"] == values["nfs_client.calls[v3]"] == 2


def test_counts_wrap_in_32_bits() -> None:
    host = Host("nfs")
    text = b"rpc %d 0 0\n"
    for n in range(3):
        host.read({RPC: text % (2**32 - 300 + 100 * n)}, S)
    assert host.read({RPC: text % 20}, S)["nfs_client.calls"] == 120


def test_a_line_that_lacks_a_count_shifts_no_other() -> None:
    host = Host("nfs")
    host.read(FIRST, S)
    broken = SECOND[RPC].replace(b"8145 643", b"8145", 1)
    assert broken != SECOND[RPC]
    values = host.read({**SECOND, RPC: broken}, S)
    whole = Host("nfs").twice()
    assert all(math.isnan(v) for k, v in values.items() if "v4" in k)
    assert not any(math.isnan(v) for k, v in values.items() if "v4" not in k)
    assert set(values) == set(whole)


# What 10 operations of an export take, from its lines in the recording, by hand.
BY_HAND = {
    "nfs.read_bytes[filer1:/export/data]": 2097152 / BETWEEN_S,
    "nfs.write_bytes[filer1:/export/data]": 532480 / BETWEEN_S,
    "nfs.app_read_bytes[filer1:/export/data]": 1048576 / BETWEEN_S,
    "nfs.direct_write_bytes[10.0.0.9:/home]": 2 * 8192 / BETWEEN_S,
    "nfs.read_bytes": (1 + 2) * 2097152 / BETWEEN_S,
    "nfs.write_bytes": (1 + 2) * 532480 / BETWEEN_S,
    "nfs.opens[filer1:/export/data]": 5 / BETWEEN_S,
    "nfs.fsyncs[filer1:/export/data]": 2 / BETWEEN_S,
    "nfs.delays[10.0.0.9:/home]": 2 / BETWEEN_S,
    "nfs.short_reads[filer1:/export/data]": 0,
    # 30 READ, 10 WRITE and 20 GETATTR; the SEQUENCE is nobody's wait.
    "nfs.requests[filer1:/export/data]": 60 / BETWEEN_S,
    "nfs.retransmits[filer1:/export/data]": 1 / BETWEEN_S,
    "nfs.timeouts[filer1:/export/data]": 1 / BETWEEN_S,
    "nfs.queue_await[filer1:/export/data]": 3,
    "nfs.server_await[filer1:/export/data]": (30 * 40 + 10 * 90 + 20 * 2) / 60,
    "nfs.await[filer1:/export/data]": (30 * 44 + 10 * 95 + 20 * 5) / 60,
    "nfs.reads[filer1:/export/data]": 30 / BETWEEN_S,
    "nfs.read_await[filer1:/export/data]": 44,
    "nfs.writes[10.0.0.9:/home]": 20 / BETWEEN_S,
    "nfs.write_await[10.0.0.9:/home]": 95,
    "nfs.connects[10.0.0.9:/home]": 2 * 2 / BETWEEN_S,
}


@pytest.mark.parametrize("label", BY_HAND)
def test_mounts_of_this_recording(label: str) -> None:
    assert Host("nfs_mounts").twice()[label] == pytest.approx(BY_HAND[label], rel=1e-6)


def test_each_export_is_there_once() -> None:
    values = Host("nfs_mounts").twice()
    exports = {label.partition("[")[2] for label in values}
    assert exports == {"", "filer1:/export/data]", "10.0.0.9:/home]"}
    assert len(values) == 2 + 2 * (6 + 5 + 6 + 4 + 1)
    assert SECOND[MOUNTS].count(b"device filer1:/export/data ") == 2


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs"])
def test_mounts_of_other_machines(machine: str) -> None:
    """One operation's queue there is negative, as the kernel once had it: it is not believed."""
    path = {"node_exporter/proc": "proc/10/mountstats", "procfs": "proc/26231/mountstats"}[machine]
    text = archive(machine)[path]
    events = b"\tevents:\t52 226 0 0 1 13"
    data = b"\tbytes:\t1207640230 0 0 0 1210214218 0 "
    ops = b"READ: 1298 1298 0 207680 1210292152 6 79386 79407"
    assert text.count(events) == text.count(data) == text.count(ops) in {1, 3}
    later = text.replace(events, b"\tevents:\t52 226 0 0 8 13")
    later = later.replace(data, b"\tbytes:\t1207640330 0 0 50 1210215218 70 ")
    later = later.replace(ops, b"READ: 1308 1309 0 207680 1210292152 26 79786 79907")
    host = Host("nfs_mounts")
    host.read({MOUNTS: text}, S)
    values = host.read({MOUNTS: later}, S)
    export = "[192.168.1.1:/srv/test]"
    access = b"ACCESS:" in next(block for block in text.split(b"\n\n") if b"READ:" in block)
    expected = {
        f"nfs.app_read_bytes{export}": 100.0,
        f"nfs.direct_write_bytes{export}": 50,
        f"nfs.read_bytes{export}": 1000,
        f"nfs.write_bytes{export}": 70,
        "nfs.read_bytes": 1000,
        "nfs.write_bytes": 70,
        f"nfs.opens{export}": 7,
        f"nfs.requests{export}": 10,
        f"nfs.retransmits{export}": 1,
        f"nfs.server_await{export}": 40,
        f"nfs.await{export}": 50,
        f"nfs.read_await{export}": 50,
        f"nfs.reads{export}": 10,
        f"nfs.writes{export}": 0,
        f"nfs.connects{export}": 0,
    }
    assert {k: values[k] for k in expected} == pytest.approx(expected)
    unknown = {k for k, v in values.items() if math.isnan(v)}
    none = {f"nfs.write_await{export}"}  # nothing was written
    assert unknown == (none | {f"nfs.queue_await{export}"} if access else none)
    if not access:
        assert values[f"nfs.queue_await{export}"] == 2
    assert host.bad_fields == (2 if access else 0)
    assert host.failures == 0


def test_only_what_is_mounted_from_nfs_is_kept() -> None:
    assert nfs_mounts(b"device proc mounted on /proc with fstype proc\n") == b""
    kept = nfs_mounts(SECOND[MOUNTS]).decode().splitlines()
    assert [line for line in kept if line.startswith("device")] == [
        *("device filer1:/export/data", "device 10.0.0.9:/home"),
    ]
    names = {line.split(":")[0].strip() for line in kept if not line.startswith("device")}
    assert names <= OPERATIONS | {"events", "bytes", "xprt"}
    assert len(kept) < SECOND[MOUNTS].count(b"\n") / 2


def test_exports_are_few() -> None:
    block = "device s:/home/u%03d mounted on /home/u%03d with fstype nfs statvers=1.1\n"
    block += "\tbytes:\t%d 0 0 0 0 0 0 0\n\tper-op statistics\n\n"
    text = "".join(block % (n, n, n) for n in range(300)).encode()
    labels = Host("nfs_mounts").read({MOUNTS: text})
    assert len({label.partition("[")[2] for label in labels}) == 32 + 1


def test_kernels_that_count_no_errors_and_other_transports() -> None:
    text = (
        b"device s:/x mounted on /x with fstype nfs statvers=1.1\n"
        b"\txprt:\tudp 832 0 %d 6428 0 12154 0\n\txprt:\trdma 0 0 %d 0 24 3 3 0\n"
        b"\tper-op statistics\n\t READ: %d 9 0 1 1 %d 30 40\n\n"
    )
    host = Host("nfs_mounts")
    host.read({MOUNTS: text % (9, 1, 9, 0)}, S)
    values = host.read({MOUNTS: text % (99, 3, 19, 30)}, S)
    assert values["nfs.connects[s:/x]"] == 2  # a datagram needs no connection
    assert values["nfs.reads[s:/x]"] == 10
    assert values["nfs.queue_await[s:/x]"] == 3


def test_without_permission_the_agents_own_mounts_are_read() -> None:
    class Forbidden(MemoryReader):
        def read(self, path: str) -> bytes | Unreadable:
            if path == MOUNTS:
                return Unreadable(path, "Permission denied", absent=False)
            return super().read(path)

    made = collector("nfs_mounts")
    group = Group([made], Forbidden({"proc/self/mountstats": FIRST[MOUNTS]}))
    group.collect(S)
    assert len(group.channels) == 2 + 2 * 22
    assert made.sources[0].problem == ""
    alone = collector("nfs_mounts")
    Group([alone], Forbidden({})).collect(S)
    assert alone.sources[0].problem == f"{MOUNTS}: Permission denied"


def test_mounts_that_come_and_go() -> None:
    """Other mounts' values do not move; after the last has gone its channels are unknown."""
    blocks = (b"\n" + SECOND[MOUNTS]).split(b"\ndevice ")
    home = b"".join(b"device " + b + b"\n" for b in blocks if b.startswith(b"10.0.0.9"))
    local = b"device proc mounted on /proc with fstype proc\n"
    host = Host("nfs_mounts")
    assert host.read({MOUNTS: local}) == {}
    assert host.failures == 0
    for _ in range(3):
        values = host.read({MOUNTS: local + home})
    assert values["nfs.reads[10.0.0.9:/home]"] == 0
    for _ in range(3):
        values = host.read({MOUNTS: SECOND[MOUNTS]})
        assert values["nfs.reads[10.0.0.9:/home]"] == 0
        assert values["nfs.read_bytes[10.0.0.9:/home]"] == 0
    assert values["nfs.reads[filer1:/export/data]"] == values["nfs.read_bytes"] == 0
    channels = host.group.channels
    for _ in range(3):
        values = host.read({MOUNTS: local})
    assert all(math.isnan(v) for v in values.values())
    assert host.group.channels is channels
    assert host.failures == 0


def test_exports_with_other_letters_are_told_apart() -> None:
    block = (
        "device s:/%s mounted on /x with fstype nfs statvers=1.1\n\tbytes:\t%d 0 0 0 0 0 0 0\n\n"
    )
    text = (block % ("ä", 1) + block % ("ö", 2) + block % ("雪", 3)).encode()
    text += b"device s:/\xff mounted on /x with fstype nfs4\n\tbytes:\t4 0 0 0 0 0 0 0\n\n"
    host = Host("nfs_mounts")
    for _ in range(2):
        values = host.read({MOUNTS: text})
    labels = [label for label in values if "app_read_bytes" in label]
    names = [r"s:/\xe4", r"s:/\xf6", r"s:/\u96ea", r"s:/\udcff"]
    assert labels == [f"nfs.app_read_bytes[{name}]" for name in names]
    assert host.failures == host.bad_fields == 0
