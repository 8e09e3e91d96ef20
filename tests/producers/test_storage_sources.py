"""Disks: other machines' files, computed here line by line, and disks of odd kinds."""

from __future__ import annotations

import math
import re

import pytest

from producers.collectors.raid import number
from tests.producers.archives import archive
from tests.producers.kernel import FIRST, SECOND, Host

S = 10**9
COUNTED = 17
IN_FLIGHT = 8
"""Place of the one number among a disk's numbers that is no counter."""


def grown(text: bytes) -> bytes:
    """Let the n-th number of a disk grow by n * (its line's number), but requests under way."""
    lines = []
    for row, line in enumerate(text.decode().splitlines(), start=1):
        major, minor, name, *numbers = line.split()
        if any(int(n) for n in numbers):
            numbers = [
                n if i == IN_FLIGHT else str(int(n) + (i + 1) * row) for i, n in enumerate(numbers)
            ]
        lines.append(" ".join([major, minor, name, *numbers]))
    return "\n".join(lines).encode() + b"\n"


def expected(before: list[int], after: list[int], seconds: float) -> dict[str, float]:
    """Compute what iostat's manual says of a disk from two of its lines."""

    def rate(place: int) -> float:
        return (after[place] - before[place]) / seconds

    values = {
        "reads": rate(0),
        "reads_merged": rate(1),
        "read_bytes": rate(2) * 512,
        "read_time": rate(3),
        "writes": rate(4),
        "writes_merged": rate(5),
        "write_bytes": rate(6) * 512,
        "write_time": rate(7),
        "in_flight": after[8],
        "busy": rate(9) / 1000 * 100,
        "queue": rate(10) / 1000,
        "read_await": (after[3] - before[3]) / (after[0] - before[0]),
        "write_await": (after[7] - before[7]) / (after[4] - before[4]),
    }
    if len(after) >= 15:
        values |= {"discards": rate(11), "discards_merged": rate(12)}
        values |= {"discard_bytes": rate(13) * 512, "discard_time": rate(14)}
    if len(after) >= 17:
        values |= {"flushes": rate(15), "flush_time": rate(16)}
    return values


def numbers(text: bytes) -> dict[str, list[int]]:
    lines = [line.split() for line in text.decode().splitlines()]
    return {words[2]: [int(n) for n in words[3:]] for words in lines}


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs"])
@pytest.mark.parametrize("seconds", [1, 0.1])
def test_every_number_of_every_disk(machine: str, seconds: float) -> None:
    files = archive(machine)
    text = files["proc/diskstats"]
    first, second = numbers(text), numbers(grown(text))
    host = Host("storage")
    host.read({"proc/diskstats": text})
    values = host.read({"proc/diskstats": grown(text)}, int(seconds * S))
    whole = {"sda", "sdb", "sdc", "vda", "nvme0n1", "mmcblk0"}
    stacked = {f"dm-{n}" for n in range(6)}
    shown = {label[len("disk.busy[") : -1] for label in values if "disk.busy[" in label}
    assert shown >= whole | stacked
    assert not {"ram0", "loop0", "sr0", "sda1", "nvme0n1p1", "vda2", "mmcblk0p1"} & shown
    checked = 0
    for disk in shown:
        for metric, value in expected(first[disk], second[disk], seconds).items():
            assert values[f"disk.{metric}[{disk}]"] == pytest.approx(value, rel=1e-6), metric
            checked += 1
    assert checked == len([label for label in values if "[" in label])
    physical = shown - stacked
    for metric in ("reads", "read_bytes", "writes", "write_bytes", "in_flight"):
        total = sum(expected(first[d], second[d], seconds)[metric] for d in physical)
        assert values[f"disk.{metric}"] == pytest.approx(total, rel=1e-6), metric
    assert host.failures == host.bad_fields == 0


def disk(name: str, reads: int, *, busy_ms: int = 0, major: int = 8) -> bytes:
    return f"{major:4} 0 {name} {reads} 0 {8 * reads} {3 * reads} 0 0 0 0 0 {busy_ms} 0\n".encode()


def read(host: Host, *lines: bytes, **mapped: str) -> dict[str, float]:
    """Read diskstats a second later; `mapped` are names in the device mapper."""
    names = {
        f"sys/block/{d.replace('_', '-')}/dm/name": f"{n}\n".encode() for d, n in mapped.items()
    }
    return host.read({"proc/diskstats": b"".join(lines), **names}, S)


def devices(values: dict[str, float]) -> set[str]:
    return {found[1] for label in values if (found := re.search(r"disk\.busy\[(.*)\]", label))}


def test_volumes_are_called_by_their_names() -> None:
    host = Host("storage")
    lines = [disk("sda", 100), disk("dm-0", 40), disk("dm-1", 60), disk("dm-2", 0)]
    first = read(host, *lines, dm_0="vg0-root", dm_1="mpathA")
    assert devices(first) == {"sda", "vg0-root", "mpathA", "dm-2"}
    lines = [disk("sda", 107), disk("dm-0", 42), disk("dm-1", 65), disk("dm-2", 0)]
    values = read(host, *lines, dm_0="vg0-root", dm_1="mpathA")
    assert values["disk.reads[vg0-root]"] == 2
    assert values["disk.reads[mpathA]"] == 5
    assert values["disk.reads"] == 7  # volumes lie on disks
    assert host.failures == host.bad_fields == 0


def test_names_of_another_machines_volumes() -> None:
    files = archive("procfs")
    labels = devices(Host("storage").read(files))
    assert {"vg0--lv_root", "mpathA", "mpathB", "dm-3", "dm-4", "dm-5"} <= labels
    assert "dm-0" not in labels


@pytest.mark.parametrize("name", ["sda", "dm-1", "mpathA", ""])
def test_a_name_that_another_disk_has_is_not_taken(name: str) -> None:
    host = Host("storage")
    lines = [disk("sda", 1), disk("dm-1", 1), disk("dm-2", 1)]
    values = read(host, *lines, dm_1="mpathA", dm_2=name)
    assert devices(values) == {"sda", "mpathA", "dm-2"}


def test_a_volume_that_gives_its_number_to_another() -> None:
    """The new one's counters are its own."""
    host = Host("storage")
    for n in range(3):
        read(host, disk("sda", n), disk("dm-0", 5000 + n), dm_0="vg0-old")
    for n in range(3):
        read(host, disk("sda", n))
    seen = [read(host, disk("sda", n), disk("dm-0", 9000 + n), dm_0="vg0-new") for n in range(4)]
    assert devices(seen[-1]) == {"sda", "vg0-new"}
    rates = [values.get("disk.reads[vg0-new]", math.nan) for values in seen]
    assert [rate for rate in rates if not math.isnan(rate)] == [1, 1]


def test_paths_of_an_nvme_disk_are_counted_once() -> None:
    """The disk's own line counts everything again, or nothing, as kernels before 6.4 have it."""
    for head in (0, 1):
        host = Host("storage")
        for n in range(3):
            values = read(
                host,
                disk("nvme0c0n1", 100 + 3 * n, major=0),
                disk("nvme0c1n1", 200 + 4 * n, major=0),
                disk("nvme0n1", head * (300 + 7 * n), major=259),
                disk("nvme1n1", 50 + n, major=259),
            )
        assert values["disk.reads[nvme0c0n1]"] == 3
        assert values["disk.reads[nvme0c1n1]"] == 4
        assert values["disk.reads"] == 3 + 4 + 1
        assert ("nvme0n1" in devices(values)) == bool(head)
        if head:
            assert values["disk.reads[nvme0n1]"] == 7


def test_devices_that_do_nothing_are_left_out_until_they_do() -> None:
    host = Host("storage")
    idle = [disk(f"nbd{n}", 0, major=43) for n in range(16)] + [disk("sr0", 0), disk("fd0", 0)]
    assert devices(read(host, disk("sda", 1), *idle)) == {"sda"}
    for n in range(3):
        values = read(host, disk("sda", 1), disk("nbd0", 7 + n), *idle[1:])
    assert devices(values) == {"sda", "nbd0"}
    assert values["disk.reads[nbd0]"] == 1


def test_a_momentary_zero_is_a_gap_and_no_spike() -> None:
    host = Host("storage")
    seen = []
    for reads in (1000, 1010, 0, 1030, 1040):
        values = read(host, disk("sda", reads, busy_ms=10 * reads))
        seen.append((values["disk.reads[sda]"], values["disk.busy[sda]"], values["disk.reads"]))
    assert all(math.isnan(value) for value in seen[2])
    # After the gap, the first is the mean of two seconds.
    assert [seen[n] for n in (1, 3, 4)] == [(10, 10, 10)] * 3


def test_a_disk_that_comes_and_goes_changes_no_other() -> None:
    host = Host("storage")
    texts = [[disk("sda", 10 * n)] for n in range(1, 4)]
    texts += [[disk("sda", 10 * n), disk("sdb", 7_000_000 + n)] for n in range(4, 8)]
    texts += [[disk("sda", 10 * n)] for n in range(8, 12)]
    seen = [read(host, *text) for text in texts]
    assert [values["disk.reads[sda]"] for values in seen[1:]] == [10] * 10
    came = [values["disk.reads[sdb]"] for values in seen if "disk.reads[sdb]" in values]
    assert [rate for rate in came if not math.isnan(rate)] == [1, 1]
    totals = [values["disk.reads"] for values in seen[1:]]
    assert {total for total in totals if not math.isnan(total)} == {10, 11}
    assert "disk.reads[sdb]" not in seen[-1]


def test_times_wrap_in_32_bits() -> None:
    host = Host("storage")
    for n in range(3):
        read(host, disk("sda", 5 * n, busy_ms=2**32 - 2000 + 500 * n))
    values = read(host, disk("sda", 15, busy_ms=2**32 - 2000 + 500 * 3))
    assert values["disk.busy[sda]"] == 50
    values = read(host, disk("sda", 20, busy_ms=0 + 300))
    assert values["disk.busy[sda]"] == 80


@pytest.mark.parametrize("machine", ["node_exporter/sys", "procfs"])
def test_arrays_of_other_machines(machine: str) -> None:
    files = archive(machine)
    values = Host("raid").read(files)
    expected = {}
    for path, text in files.items():
        found = re.fullmatch(r"sys/block/(md\d+)/md/(degraded|sync_action)", path)
        if found and found[2] == "degraded":
            expected[f"raid.degraded[{found[1]}]"] = float(text)
        elif found:
            expected[f"raid.syncing[{found[1]}]"] = float(text != b"idle\n")
    assert values == expected
    lacking = {label for label, value in values.items() if "degraded" in label and value}
    assert lacking == {"raid.degraded[md5]", "raid.degraded[md6]"}
    assert values["raid.syncing[md6]"] == 1  # recover
    assert values["raid.syncing[md5]"] == 0
    assert "raid.degraded[md0]" not in values  # without redundancy there is no such state


def test_arrays_of_this_recording() -> None:
    host = Host("raid")
    host.reader.files = FIRST
    host.group.collect(S, whole=True)
    host.reader.files = SECOND
    values = host.group.collect(2 * S, whole=True).tolist()
    assert dict(zip([c.label for c in host.group.channels], values, strict=True)) == {
        "raid.degraded[md0]": 0,
        "raid.syncing[md0]": 0,
        "raid.mismatches[md0]": 0,
        "raid.errors[md0/sda1]": 0,
        "raid.errors[md0/sdb1]": 1,
        "raid.degraded[md127]": 1,
        "raid.syncing[md127]": 1,
        "raid.mismatches[md127]": 0,
        "raid.errors[md127/sda1]": 0,
        "raid.errors[md127/sdb1]": 1,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((b"idle\n", 0), (b"frozen\n", 0), (b"resync\n", 1), (b"recover\n", 1)),
        *((b"check\n", 1), (b"repair\n", 1), (b"reshape\n", 1), (b"17\n", 17)),
    ],
)
def test_words_of_an_array(text: bytes, expected: float) -> None:
    assert number(text) == expected


@pytest.mark.parametrize("text", [b"", b"none\n", b"11 (10)\n", b"Recover\n"])
def test_other_words_are_no_number(text: bytes) -> None:
    with pytest.raises(ValueError, match="is no number"):
        number(text)


def test_files_of_another_machine() -> None:
    files = archive("node_exporter/proc")
    assert files["proc/sys/fs/file-nr"].split()[0] == b"1024"
    assert Host("files").read(files) == {"files.open": 1024}


def test_files_of_this_recording() -> None:
    assert Host("files").twice() == {
        "files.open": 4047,
        "files.inodes": 531931,
        "files.free_inodes": 4,
        "files.dentries": 576547,
        "files.unused_dentries": 560229,
    }
