"""Files of the paper's kind, from text to recordings."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import RevealError
from schemas.records import Kind
from streams.importing import recordings, table
from streams.importing.errors import InvalidImport
from streams.importing.recordings import Written
from streams.importing.reveal_dataset import Dataset
from tests.streams.importing import files
from tests.streams.importing.files import START_S, START_US, Host, written

NAMES = (
    "Perf:IPC.n1[-]",
    "Perf:Branch_Misses.n1[count]",
    "Memory:MemTotal.n1[kB]",
    "NetworkInterStat_diff:rx_bytes.ib0.n1[Bytes]",
)


def seconds(tick: float) -> str:
    return f"{START_S + tick / 10:.3f}"


def convert(
    *paths: Path, hosts: Sequence[str] = (), ms: int | None = None
) -> dict[str, tuple[Written, Host]]:
    out = paths[0].parent
    return written([Dataset(path, hosts).read(out) for path in paths], out / "out", ms)


def one(path: Path, ms: int | None = None) -> tuple[Written, Host]:
    ((done, host),) = convert(path, ms=ms).values()
    return done, host


def test_values_are_the_files_in_our_units(tmp_path: Path) -> None:
    rows = [(seconds(i), 0.5 + i, 1000 * i, 263_000_000 + i, 300 * i) for i in range(25)]
    done, host = one(files.table(tmp_path / "a.csv", NAMES, rows))
    assert host.layout.host == "n1"
    assert host.layout.interval_us == 100_000
    assert host.labels == [
        "perf.ipc",
        "perf.branch_misses",
        "memory.mem_total",
        "net.rx_bytes[ib0]",
    ]
    assert host.ticks == list(range(25))
    assert [len(r.timestamps) for r in host.records] == [10, 10, 5]
    assert host.of("perf.ipc") == [0.5 + i for i in range(25)]
    assert host.of("perf.branch_misses") == [10_000.0 * i for i in range(25)], "per second"
    expected = [float(np.float32(1024 * (263_000_000 + i))) for i in range(25)]
    assert host.of("memory.mem_total") == expected
    assert host.of("net.rx_bytes[ib0]") == [3000.0 * i for i in range(25)]
    assert (done.rows, done.channels, done.ours) == (25, 4, 4)
    assert (done.first_us, done.last_us) == (START_US, START_US + 2_400_000)
    assert (done.missing, done.zero, done.totals, done.gaps) == (0, 0, 0, 0)


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("quoted", [False, True])
def test_however_the_table_is_written_it_says_the_same(
    tmp_path: Path, separator: str, ending: str, bom: bytes, quoted: bool
) -> None:
    rows: list[tuple[str, ...]] = [("timestamp", *NAMES)]
    rows += [(seconds(i), f"{i}.5", str(i), "7", "") for i in range(12)]
    if quoted:
        rows = [tuple(f'"{cell}"' for cell in row) for row in rows]
    text = ending.join(separator.join(row) for row in rows) + ending
    (tmp_path / "a.txt").write_bytes(bom + text.encode())
    done, host = one(tmp_path / "a.txt")
    assert host.of("perf.ipc") == [i + 0.5 for i in range(12)]
    assert host.of("memory.mem_total") == [7 * 1024.0] * 12
    assert (done.channels, done.missing) == (3, 1)


def test_every_host_has_a_recording_with_its_columns_only(tmp_path: Path) -> None:
    names = ["Perf:IPC.a[-]", "Perf:IPC.b[-]", "Memory:MemFree.b[kB]", "Memory:MemFree.a[kB]"]
    rows = [(seconds(i), i, 100 + i, 1, 2) for i in range(10)]
    found = convert(files.table(tmp_path / "t.csv", names, rows))
    assert list(found) == ["a", "b"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a.avro", "b.avro"}
    (_, a), (_, b) = found.values()
    assert a.of("perf.ipc") == list(range(10))
    assert b.of("perf.ipc") == [100 + i for i in range(10)]
    assert a.of("memory.mem_free") == [2048.0] * 10
    assert b.of("memory.mem_free") == [1024.0] * 10


def test_columns_without_a_value_leave_and_zeros_stay(tmp_path: Path) -> None:
    rows = [(seconds(i), "", 0, "nan", 5 if i == 7 else "N/A") for i in range(10)]
    done, host = one(files.table(tmp_path / "t.csv", NAMES, rows))
    assert host.labels == ["perf.branch_misses", "net.rx_bytes[ib0]"]
    assert (done.missing, done.zero) == (2, 1)
    assert host.of("perf.branch_misses") == [0.0] * 10
    expected = [math.nan] * 7 + [50.0] + [math.nan] * 2
    np.testing.assert_equal(host.of("net.rx_bytes[ib0]"), expected)


def test_a_host_that_has_no_value_in_a_row_was_not_there(tmp_path: Path) -> None:
    names = ["Perf:IPC.a[-]", "Perf:IPC.b[-]", "Memory:MemFree.b[kB]"]
    there = [*range(5, 12), *range(25, 31)]
    rows = [(seconds(i), i, *((i, 1) if i in there else ("", "nan"))) for i in range(40)]
    found = convert(files.table(tmp_path / "t.csv", names, rows))
    (a, all_of_it), (b, part) = found.values()
    assert all_of_it.ticks == list(range(40))
    assert (a.empty_rows, a.gaps, a.missing_ticks) == (0, 0, 0)
    assert part.ticks == there
    assert part.of("perf.ipc") == there
    assert (b.rows, b.empty_rows, b.gaps, b.missing_ticks) == (13, 27, 1, 13)
    assert (b.first_us, b.last_us) == (START_US + 500_000, START_US + 3_000_000)


def test_cells_that_are_no_number_are_nan_and_counted_with_their_line(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [(seconds(i), i, 1, 1, 1) for i in range(12)]
    rows[4] = (seconds(4), "oops", 1, "inf", 1)
    rows[9] = (seconds(9), 9, 1, 1, "1_000")
    path = files.table(tmp_path / "t.csv", NAMES, rows)
    read = Dataset(path).read(tmp_path)
    assert (read.lost.bad_cells, read.lost.first) == (3, {"bad_cells": 6})
    ((_, host),) = written([read], tmp_path).values()
    np.testing.assert_equal(host.of("perf.ipc"), [*range(4), math.nan, *range(5, 12)])
    assert math.isnan(host.of("memory.mem_total")[4])
    assert math.isnan(host.of("net.rx_bytes[ib0]")[9])
    assert np.isnan(host.values).sum() == 3


def test_a_value_beyond_float32_is_nan_and_counted(tmp_path: Path) -> None:
    rows = [(seconds(i), "1e300" if i == 3 else 1, 1, 1, 1) for i in range(12)]
    done, host = one(files.table(tmp_path / "t.csv", NAMES, rows))
    assert done.moved.too_large == 1
    assert np.flatnonzero(np.isnan(host.of("perf.ipc"))).tolist() == [3]


def test_ragged_rows_and_rows_without_a_time_leave(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [(seconds(i), i, 1, 1, 1) for i in range(12)]
    rows[3] = (seconds(3), 1, 1)
    rows[5] = (seconds(5), *[1] * 9)
    rows[8] = ("soon", 8, 1, 1, 1)
    read = Dataset(files.table(tmp_path / "t.csv", NAMES, rows)).read(tmp_path)
    assert (read.rows, read.lost.ragged, read.lost.untimed) == (9, 2, 1)
    assert read.lost.first == {"ragged": 5, "untimed": 10}
    ((done, host),) = written([read], tmp_path).values()
    assert host.ticks == [0, 1, 2, 4, 6, 7, 9, 10, 11]
    assert (done.gaps, done.missing_ticks) == (3, 3)


def test_rows_are_put_in_order_and_a_ticks_first_row_stays(tmp_path: Path) -> None:
    ticks = [0, 1, 3, 2, 4, 4, 5, 6, 9, 10, 8]
    rows = [(seconds(t), i, 1, 1, 1) for i, t in enumerate(ticks)]
    done, host = one(files.table(tmp_path / "t.csv", NAMES, rows))
    assert host.ticks == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert host.of("perf.ipc") == [0, 1, 3, 2, 4, 6, 7, 10, 8, 9]
    moved = done.moved
    assert (moved.out_of_order, moved.duplicates, moved.off_grid) == (2, 1, 0)
    assert (done.gaps, done.missing_ticks) == (1, 1)


def test_rows_off_the_grid_go_to_the_nearest_tick(tmp_path: Path) -> None:
    jitter = random.Random(1)
    times = [START_S + i / 10 + jitter.uniform(-0.04, 0.04) for i in range(50)]
    rows = [(f"{t:.6f}", i, 1, 1, 1) for i, t in enumerate(times)]
    done, host = one(files.table(tmp_path / "t.csv", NAMES, rows))
    assert host.ticks == list(range(50))
    assert host.of("perf.ipc") == list(range(50))
    assert done.moved.off_grid == 50
    assert done.distance_us == pytest.approx(100_000, rel=0.05)


def test_a_total_becomes_a_rate_and_what_is_per_sample_too(tmp_path: Path) -> None:
    names = ["Storage:sectors_read.sda.n1[count]", "Storage:sectors_written.sda.n1[count]"]
    total = [1_000_000_000_000 + 3 * i for i in range(20)]
    each = [i % 3 for i in range(20)]
    del total[7], each[7]
    ticks = [i for i in range(20) if i != 7]
    rows = [(seconds(t), a, b) for t, a, b in zip(ticks, total, each, strict=True)]
    done, host = one(files.table(tmp_path / "t.csv", names, rows))
    assert done.totals == 1
    read = host.of("disk.read_bytes[sda]")
    assert math.isnan(read[0])
    assert read[1:] == [15_360.0] * 18, "3 sectors of 512 B every 0.1 s, over the gap too"
    expected = [5120.0 * n / (2 if i == 7 else 1) for i, n in enumerate(each)]
    assert host.of("disk.write_bytes[sda]") == expected, "over the gap, it took twice as long"
    assert {c.kind for c in host.layout.channels} == {Kind.RATE}


def test_a_total_that_is_reset_or_missing_is_a_gap(tmp_path: Path) -> None:
    names = ["GPU: ecc.errors.corrected.volatile.dram.0.n1[count]", "Perf:IPC.n1[-]"]
    counts = [5, 5, 7, 0, 1, "", 4, 4, 4, 4]
    done, host = one(
        files.table(tmp_path / "t.csv", names, [(seconds(i), n, 1) for i, n in enumerate(counts)])
    )
    nan = math.nan
    expected = [nan, 0, 20, nan, 10, nan, nan, 0, 0, 0]
    np.testing.assert_equal(host.of("gpu.ecc_corrected_dram[0]"), expected)
    assert done.totals == 1


def test_a_name_that_is_taken_becomes_the_columns_own_and_then_leaves(tmp_path: Path) -> None:
    names = [
        "Perf:CPU_Cycles.n1[count]",
        "Perf:Cycles.n1[count]",
        "Perf:cycles.n1[count]",
        "Perf:CPU_Cycles.n1[count]",
    ]
    rows = [(seconds(i), 1, 2, 3, 4) for i in range(10)]
    done, host = one(files.table(tmp_path / "t.csv", names, rows))
    assert host.labels == ["perf.cycles", "perf.cpu_cycles"]
    assert host.of("perf.cycles") == [10.0] * 10
    assert host.of("perf.cpu_cycles") == [40.0] * 10
    assert (done.named_twice, done.ours) == (2, 1)


def test_columns_with_other_names_are_counted(tmp_path: Path) -> None:
    path = files.table(
        tmp_path / "t.csv", ["comment", "Perf:IPC.n1[-]"], [(seconds(i), "hi", i) for i in range(9)]
    )
    read = Dataset(path).read(tmp_path)
    assert read.unnamed == 1
    ((_, host),) = written([read], tmp_path).values()
    assert host.labels == ["perf.ipc"]


@pytest.mark.parametrize("ms", [20, 100, 600, 1000, 3000])
def test_every_interval_that_windows_take(tmp_path: Path, ms: int) -> None:
    start = START_S // 3 * 3
    rows = [(f"{start + i * ms / 1000:.3f}", i, 1, 1, 1) for i in range(200)]
    _, host = one(files.table(tmp_path / "t.csv", NAMES, rows))
    assert host.layout.interval_us == 1000 * ms
    assert host.stamps.tolist() == [1_000_000 * start + 1000 * ms * i for i in range(200)]
    assert host.of("perf.branch_misses") == pytest.approx([1000 / ms] * 200)


def test_another_interval_needs_a_word(tmp_path: Path) -> None:
    rows = [(f"{START_S + i * 0.07:.3f}", i, 1, 1, 1) for i in range(30)]
    path = files.table(tmp_path / "t.csv", NAMES, rows)
    with pytest.raises(InvalidImport, match=r"t.csv: rows are 70 ms apart.*--interval-ms 60 or 75"):
        one(path)
    done, host = one(path, ms=100)
    assert host.layout.interval_us == 100_000
    assert done.rows + done.moved.together == 30
    spans = np.diff([0, *(max(i for i in range(30) if round(i * 0.7) == t) for t in host.ticks)])
    assert host.of("perf.branch_misses")[1:] == pytest.approx([1 / 0.07] * (done.rows - 1))
    assert set(spans[1:].tolist()) == {1, 2}


def test_several_files_of_a_host_are_one_recording(tmp_path: Path) -> None:
    first = files.table(tmp_path / "1.csv", NAMES[:2], [(seconds(i), i, 1) for i in range(20)])
    later = files.table(tmp_path / "2.csv", NAMES[:2], [(seconds(i), i, 1) for i in range(30, 45)])
    other = files.table(tmp_path / "3.csv", NAMES[2:3], [(seconds(i), i) for i in range(10, 35)])
    ((done, host),) = convert(later, first, other).values()
    assert host.ticks == list(range(45))
    assert host.labels == ["perf.ipc", "perf.branch_misses", "memory.mem_total"]
    ipc = [float(i) if i < 20 or i >= 30 else math.nan for i in range(45)]
    np.testing.assert_equal(host.of("perf.ipc"), ipc)
    total = [1024.0 * i if 10 <= i < 35 else math.nan for i in range(45)]
    np.testing.assert_equal(host.of("memory.mem_total"), total)
    assert (done.rows, done.gaps) == (45, 0)


def test_files_of_different_intervals_are_not_one_recording(tmp_path: Path) -> None:
    a = files.table(tmp_path / "1.csv", NAMES[:1], [(seconds(i), i) for i in range(20)])
    b = files.table(tmp_path / "2.csv", NAMES[1:2], [(seconds(10 * i), i) for i in range(20)])
    with pytest.raises(InvalidImport, match=r"'n1' .* 100 ms in .*1.csv, 1000 ms in .*2.csv"):
        convert(a, b)
    ((_, host),) = convert(a, b, ms=1000).values()
    assert host.layout.interval_us == 1_000_000


def test_blocks_and_pieces_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(size=(95, 4)).round(3).tolist()
    rows = [(seconds(i), *row) for i, row in enumerate(values) if i not in (13, 40, 41)]
    names = [*NAMES[:3], "Storage:sectors_read.sda.n1[count]"]
    for i, row in enumerate(rows):
        rows[i] = (*row[:4], i)
    path = files.table(tmp_path / "t.csv", names, rows)
    _, whole = one(path)
    monkeypatch.setattr(table, "PIECE_CELLS", 40)
    monkeypatch.setattr(table, "PIECE_BYTES", 100)
    monkeypatch.setattr(recordings, "BLOCK_CELLS", 50)
    _, small = one(path)
    assert whole.layout == small.layout
    assert [r.timestamps.tolist() for r in whole.records] == [
        r.timestamps.tolist() for r in small.records
    ]
    np.testing.assert_array_equal(whole.values, small.values)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "t.csv is empty: a line with the names"),
        (b"\xef\xbb\xbf", "t.csv is empty"),
        (b"\n1,2\n", "t.csv line 1 is empty"),
        (b"hello\nworld\n", "t.csv line 1 has no columns, parted by tabs or commas"),
        (b'"t,a\n1,2\n', "t.csv line 1 has no columns"),
        (
            b"a,b,c\n1,2,3\n",
            r"line 1 names no column like Group:metric.instance.host\[unit\], its first is 'b'",
        ),
        (b"t,Perf:IPC.n1[-]\n", "t.csv has no row after its line of names"),
        (
            b"t,Perf:IPC.n1[-]\n1700000000,1,2\n\n",
            "t.csv has no row of as many cells as line 1, 2; see line 2",
        ),
        (b"t,Perf:IPC.n1[-]\n\nx,1\n", "t.csv line 3 begins with 'x', which is no time"),
        (b"t,Perf:IPC.n1[-]\n1700000000,1\n", "t.csv: one row, or one time, tells no interval"),
        (b"t,Perf:IPC.n1[-]\n1700000000,\n1700000001,\n", "t.csv: 'n1' has no value"),
        (
            b"t,GPU: ecc.errors.corrected.volatile.total.0.n1[count]\n1700000000,1\n1700000001,\n",
            "t.csv: no row of 'n1' has a value",
        ),
        (b"\x1f\x8b\x08\0", "t.csv is compressed by gzip: unpack it"),
        (b"PK\x03\x04", "t.csv is a zip archive"),
        (b"Obj\x01", "t.csv is an Avro file"),
        (b"\xff\xfet\0", "t.csv is text in UTF-16: save it as UTF-8"),
        (b"\x7fELF\0\0", "t.csv is not text"),
    ],
)
def test_what_is_no_such_file_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InvalidImport, match=said) as e:
        one(tmp_path / "t.csv")
    assert "\n" not in str(e.value)


def test_a_file_that_is_not_there_and_a_line_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidImport, match=r"none.csv cannot be read: No such file"):
        Dataset(tmp_path / "none.csv")
    monkeypatch.setattr(table, "LINE_BYTES", 200)
    monkeypatch.setattr(table, "PIECE_BYTES", 100)
    (tmp_path / "t.csv").write_bytes(b"t,Perf:IPC.n1[-]\n" + b"1" * 500)
    with pytest.raises(InvalidImport, match=r"t.csv has a line longer than"):
        one(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes(b"t," * 500)
    with pytest.raises(InvalidImport, match=r"t.csv line 1 is longer than"):
        Dataset(tmp_path / "t.csv")


def test_a_disk_that_is_full_is_one_line(tmp_path: Path) -> None:
    path = files.table(tmp_path / "t.csv", NAMES, [(seconds(i), i, 1, 1, 1) for i in range(10)])
    with pytest.raises(InvalidImport, match="nowhere cannot be written to"):
        Dataset(path).read(tmp_path / "nowhere")


LINES = st.lists(
    st.lists(
        st.sampled_from(
            ["1700000000", "1700000000.1", "1", "", "nan", '"', "x", "1e999", "-1", "\t"]
        )
        | st.text(max_size=6),
        max_size=4,
    ).map(",".join),
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(lines=LINES, tail=st.binary(max_size=40), head=st.booleans())
def test_whatever_is_in_a_file_only_our_errors_leave(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], tail: bytes, head: bool
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    names = "t,Perf:IPC.n1[-],Storage:sectors_read.a.n1[count]\n" if head else ""
    text = names + "\n".join(lines)
    path.write_bytes(text.encode("utf-8", "surrogatepass") + tail)
    said = ""
    try:
        done, host = one(path)
    except RevealError as e:
        said = str(e)
    if said:
        assert "t.csv" in said
        assert "\n" not in said
    else:
        assert done.rows == len(host.stamps)
        assert not np.isinf(host.values).any()


def test_rows_on_one_tick_are_added_up_and_jitter_is_no_noise(tmp_path: Path) -> None:
    """What was counted per sample is divided by the time that it was counted in."""
    names = [
        "NetworkInterStat_diff:rx_packets.ib0.n1[count]",
        "Storage:sectors_read.sda.n1[count]",
        "Perf:IPC.n1[-]",
    ]
    times = [0.0, 0.98, 2.03, 2.4, 3.02, 3.99, 4.0, 7.0, 8.01]  # in ticks
    rows, total = [], 10**6
    for i, at in enumerate(times):
        apart = at - times[i - 1] if i else 1.0
        total += round(1000 * apart)
        rows.append((seconds(at), round(500 * apart, 6), total, i))
    rows.append((seconds(8.01), 77, 77, 77))  # the very same time again
    done, host = one(files.table(tmp_path / "t.csv", names, rows), ms=100)
    assert host.ticks == [0, 1, 2, 3, 4, 7, 8]
    assert (done.moved.together, done.moved.duplicates) == (2, 1)
    assert host.of("net.rx_packets[ib0]") == pytest.approx([5000.0] * 7, rel=1e-4)
    assert host.of("disk.read_bytes[sda]")[1:] == pytest.approx([512e4] * 6, rel=2e-2)
    assert host.of("perf.ipc") == [0, 1, 2, 4, 5, 7, 8]


def test_a_total_that_begins_anew_is_one_nevertheless(tmp_path: Path) -> None:
    """Judged over all files of the host, since in one it may rise only."""
    names = ["Storage:reads_completed.sda.n1[count]", "Perf:IPC.n1[-]"]

    def imported(*files_of: list[int]) -> tuple[Written, Host]:
        paths = []
        for part, values in enumerate(files_of):
            rows = [(seconds(60 * part + i), value, 1) for i, value in enumerate(values)]
            paths.append(files.table(tmp_path / f"{part}.csv", names, rows))
        (found,) = convert(*paths).values()
        return found

    begun_anew = [500 + 40 * i for i in range(30)] + [40 * i for i in range(30)]
    done, host = imported(begun_anew, [2000 + 40 * i for i in range(20)])
    assert done.totals == 2
    rates = host.of("disk.reads[sda]")
    assert [i for i, v in enumerate(rates) if math.isnan(v)] == [0, 30, 60]
    assert {v for v in rates if not math.isnan(v)} == {400.0}
    # In the first file it happens to rise only; in the second it does not.
    rng = random.Random(7)
    each = [1, 2, 5, 6, 9], [rng.randrange(50) for _ in range(40)]
    done, host = imported(*each)
    assert done.totals == 0
    assert host.of("disk.reads[sda]") == [10.0 * v for values in each for v in values]


def test_the_number_of_a_row_is_no_time(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f",timestamp,{NAMES[0]}", *(f"{i},{seconds(i)},1" for i in range(12))]
    path.write_text("\n".join(lines), encoding="utf-8")
    said = r"t.csv line 2 begins with '0', which is no time.*column 2 is 'timestamp'.*cut -d, -f2-"
    with pytest.raises(InvalidImport, match=said):
        one(path)
    path.write_text(
        "\n".join(f"{i},1" if i else f"a,{NAMES[0]}" for i in range(9)), encoding="utf-8"
    )
    with pytest.raises(InvalidImport, match=r"begins with '1', which is no time"):
        one(path)
