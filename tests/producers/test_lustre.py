"""Lustre's counters, computed here from the lines of the recording, which is written by hand."""

from __future__ import annotations

import math

import pytest

from producers.collectors.lustre import device_name, without_times
from producers.group import Group
from producers.reading import MemoryReader, Unreadable
from tests.producers.kernel import BETWEEN_S, FIRST, SECOND, Host, collector

S = 10**9
DEBUG = "sys/kernel/debug/lustre"
SCRATCH = f"{DEBUG}/llite/scratch-ffff8803f1d8a000/stats"
MIB = 1 << 20

BY_HAND = {
    "lustre.reads[scratch]": 120 / BETWEEN_S,
    "lustre.read_bytes[scratch]": 120 * MIB / BETWEEN_S,
    "lustre.writes[scratch]": 50 / BETWEEN_S,
    "lustre.write_bytes[scratch]": 50 * 4 * MIB / BETWEEN_S,
    "lustre.read_await[scratch]": 0.7,
    "lustre.write_await[scratch]": 1.9,
    "lustre.open[scratch]": 4 / BETWEEN_S,
    "lustre.open_await[scratch]": 0.35,
    "lustre.getattr_await[scratch]": 0.012,
    "lustre.statfs[scratch]": 1 / BETWEEN_S,
    "lustre.reads[home]": 3 / BETWEEN_S,
    "lustre.read_bytes[home]": 3000 / BETWEEN_S,
    "lustre.open[home]": 2 / BETWEEN_S,
    "lustre_target.requests[scratch-OST0000]": 25 / BETWEEN_S,
    "lustre_target.await[scratch-OST0000]": 0.8,
    "lustre_target.await[scratch-OST0001]": 0.9,
    "lustre_target.in_flight[scratch-OST0001]": 3,
    "lustre_target.requests[scratch-MDT0000]": 40 / BETWEEN_S,
    "lustre_target.await[scratch-MDT0000]": 0.45,
    "lustre_target.in_flight[scratch-MDT0000]": 2,
}


def both_readings() -> dict[str, float]:
    """Return the values of the second reading, of both kinds of files."""
    host = Host("lustre", "lustre_targets")
    host.reader.files = FIRST
    host.group.collect(5 * S, whole=True)
    host.reader.files = SECOND
    values = host.group.collect(5 * S + round(BETWEEN_S * S), whole=True)
    assert host.failures == host.bad_fields == 0
    labels = [c.label for c in host.group.channels]
    return dict(zip(labels, values.tolist(), strict=True))


@pytest.mark.parametrize("label", BY_HAND)
def test_a_value_is_what_the_lines_say(label: str) -> None:
    assert both_readings()[label] == pytest.approx(BY_HAND[label], rel=1e-6)


def test_what_has_no_time_has_no_mean_of_it() -> None:
    """Clients before 2.13 count calls and do not time them: ``[regs]``."""
    values = both_readings()
    assert {label for label in values if label.endswith("[home]")} == {
        *("lustre.reads[home]", "lustre.read_bytes[home]"),
        *("lustre.open[home]", "lustre.getattr[home]"),
    }


def test_what_nobody_asked_for_took_no_time() -> None:
    host = Host("lustre")
    host.read(FIRST)
    host.read(SECOND)
    values = host.read(SECOND)
    assert values["lustre.statfs[scratch]"] == 0
    assert math.isnan(values["lustre.statfs_await[scratch]"])


def test_the_times_in_a_file_change_no_layout() -> None:
    host = Host("lustre")
    plans = set()
    for n in range(6):
        text = SECOND[SCRATCH].replace(b"1760000101.8173", b"176000010%d.%04d" % (n, 17 * n))
        host.read({SCRATCH: text.replace(b"101.8173", b"%d.99" % n)})
        plans.add(id(host.group.channels))
    assert len(plans) == 1
    assert b"time" not in without_times(SECOND[SCRATCH])


def test_a_call_that_is_made_for_the_first_time() -> None:
    """Lines come with their first call. The others go on without a gap."""
    host = Host("lustre")
    text = FIRST[SCRATCH]
    line = b"mkdir                     %d samples [usecs] 5 900 %d 4711\n"
    reads = b"read_bytes                %d samples [bytes] 1 4 %d 9\n"
    rest = b"".join(row for row in text.splitlines(True) if b"read_bytes" not in row)
    seen = []
    for n in range(6):
        more = line % (n, 400 * n) if n > 1 else b""
        seen.append(host.read({SCRATCH: rest + reads % (10 * n, 1000 * n) + more}, S))
    assert [v["lustre.read_bytes[scratch]"] for v in seen[1:]] == [1000] * 5
    assert seen[-1]["lustre.mkdir[scratch]"] == 1
    assert seen[-1]["lustre.mkdir_await[scratch]"] == pytest.approx(0.4)


def test_counters_that_somebody_cleared() -> None:
    host = Host("lustre")
    line = b"write_bytes               %d samples [bytes] 1 9 %d 9\n"
    seen = [
        host.read({SCRATCH: line % (n, size)}, S)["lustre.write_bytes[scratch]"]
        for n, size in enumerate((5000, 6000, 10, 20, 30), start=1)
    ]
    assert seen[1] == 1000
    assert math.isnan(seen[2])
    assert seen[3:] == [10, 10]


def test_proc_before_2_12() -> None:
    old = "proc/fs/lustre/llite/work-ffff88107ca3a800/stats"
    host = Host("lustre")
    text = b"snapshot_time %d.590578 secs.usecs\nwrite_bytes %d samples [bytes] 1 9 %d\n"
    host.read({old: text % (1, 2, 30)}, S)
    assert host.read({old: text % (2, 4, 90)}, S) == {
        "lustre.writes[work]": 2,
        "lustre.write_bytes[work]": 60,
    }


def test_a_file_system_that_is_mounted_again() -> None:
    """It has the same name and another directory; its counters begin anew, which is no spike."""
    host = Host("lustre")
    line = b"read_bytes %d samples [bytes] 1 9 %d\n"
    first = f"{DEBUG}/llite/scratch-ffff8803f1d8a000/stats"
    again = f"{DEBUG}/llite/scratch-ffff8803aaaaaaaa/stats"
    seen = [host.read({first: line % (n, 9_000_000 + n)}, S) for n in range(1, 5)]
    seen += [host.read({again: line % (n, 7 * n)}, S) for n in range(1, 12)]
    rates = [values.get("lustre.read_bytes[scratch]", math.nan) for values in seen]
    assert {rate for rate in rates if not math.isnan(rate)} == {1, 7}
    assert rates[-1] == 7


def test_targets_are_few() -> None:
    line = b"req_waittime 5 samples [usec] 1 2 9 9\n"
    files = {f"{DEBUG}/osc/big-OST{n:04x}-osc-ffff8803f1d8a000/stats": line for n in range(400)}
    host = Host("lustre_targets")
    labels = host.read(files)
    assert len([label for label in labels if "requests" in label]) == 64


def test_without_permission() -> None:
    class Forbidden(MemoryReader):
        def list(self, path: str) -> tuple[str, ...] | Unreadable:
            if path.startswith("sys/kernel/debug"):
                return Unreadable(path, "Permission denied", absent=False)
            return super().list(path)

    made = collector("lustre")
    group = Group([made], Forbidden(FIRST))
    group.collect(S)
    assert group.channels == ()
    assert made.sources[0].problem == f"{DEBUG}/llite: Permission denied"


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("scratch-ffff8803f1d8a000", "scratch"),
        ("big-work_1-ffff8803f1d8a000", "big-work_1"),
        ("scratch-OST0003-osc-ffff8803f1d8a000", "scratch-OST0003"),
        ("scratch-OST00ff-osc-ffff8803f1d8a000", "scratch-OST00ff"),
        ("scratch-MDT0000-mdc-ffff8803f1d8a000", "scratch-MDT0000"),
        ("scratch-OST0003-osc-MDT0000", ""),  # a server's
        ("num_refs", ""),
    ],
)
def test_what_a_directory_is_about(directory: str, name: str) -> None:
    assert device_name(directory) == name
