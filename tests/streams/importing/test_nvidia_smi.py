"""Logs of nvidia-smi, from text to recordings; and every field that real GPUs answer."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import RevealError
from schemas.records import Kind, Subsystem
from streams.importing.errors import InvalidImport
from streams.importing.gpu_cells import Cells
from streams.importing.gpu_names import FIELDS, LOCATIONS, REASONS, field_meaning
from streams.importing.meaning import How
from streams.importing.nvidia_smi import GpuLog
from streams.importing.recordings import Written
from tests.streams.importing.files import START_US, Host, written

CAPTURES = Path(__file__).parents[4] / "shared" / "data" / "fixtures" / "nvidia_gpu_exporter"
GPU0, GPU1 = "GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-1111"
MIB = 1 << 20


def date(tick: float) -> str:
    """A time so many tenths of a second after `START_S`, 2023-11-14 22:13:20 UTC."""
    ms = round(tick * 100)
    return f"2023/11/14 22:13:{20 + ms // 1000:02}.{ms % 1000:03}"


def log(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def convert(path: Path, host: str = "", names: Sequence[str] = ()) -> tuple[Written, Host]:
    read = GpuLog(path, host, names).read(path.parent)
    ((done, found),) = written([read], path.parent / "out").values()
    return done, found


def test_a_log_with_units_is_in_base_units_by_uuid(tmp_path: Path) -> None:
    lines = ["timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W]"]
    for i in range(12):
        lines += [
            f"{date(i)}, 0, {GPU0}, NVIDIA H100, {i} %, {100 + i} MiB, {70.5 + i} W",
            f"{date(i + 0.03)}, 1, {GPU1}, NVIDIA H100, {50 + i} %, 0 MiB, [N/A]",
        ]
    done, host = convert(log(tmp_path / "gpus.csv", *lines))
    assert host.layout.host == "gpus"
    assert host.ticks == list(range(12))
    assert host.of(f"gpu.utilization[{GPU0}]") == list(range(12))
    assert host.of(f"gpu.utilization[{GPU1}]") == [50 + i for i in range(12)]
    assert host.of(f"gpu.memory_used[{GPU0}]") == [float(MIB * (100 + i)) for i in range(12)]
    assert host.of(f"gpu.power[{GPU0}]") == [70.5 + i for i in range(12)]
    assert f"gpu.power[{GPU1}]" not in host.labels
    assert {c.subsystem for c in host.layout.channels} == {Subsystem.GPU}
    assert (done.rows, done.channels, done.ours, done.missing, done.zero) == (12, 5, 5, 1, 1)


@pytest.mark.parametrize("units", [True, False])
@pytest.mark.parametrize("header", [True, False])
def test_with_and_without_units_and_names_a_log_says_the_same(
    tmp_path: Path, units: bool, header: bool
) -> None:
    fields = ["timestamp", "index", "memory.used", "power.draw", "clocks.sm", "temperature.gpu"]
    names = (
        "timestamp, index, memory.used [MiB], power.draw [W], clocks.current.sm [MHz], "
        "temperature.gpu"
    )
    lines = [names] if header else []
    for i in range(10):
        mib, watt, mhz = (" MiB", " W", " MHz") if units else ("", "", "")
        lines.append(f"{date(i)}, 3, {i}{mib}, {i}.25{watt}, {1000 + i}{mhz}, {40 + i}")
    path = log(tmp_path / "x.csv", *lines)
    _, host = convert(path, "node7", () if header else fields)
    assert host.layout.host == "node7"
    assert host.of("gpu.memory_used[3]") == [float(i * MIB) for i in range(10)]
    assert host.of("gpu.power[3]") == [i + 0.25 for i in range(10)]
    assert host.of("gpu.sm_clock[3]") == [1000.0 + i for i in range(10)]
    assert host.of("gpu.temperature[3]") == [40.0 + i for i in range(10)]
    assert [c.unit for c in host.layout.channels] == ["B", "W", "MHz", "degC"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[(t, math.nan) for t in ("[N/A]", "N/A", "[Not Supported]", "Not Supported", "", "[x y]")],
        *[
            (t, math.nan)
            for t in ("[Unknown Error]", "[Insufficient Permissions]", "[GPU is lost]")
        ],
        *(("Active", 1.0), ("Not Active", 0.0), ("Enabled", 1.0), ("No", 0.0), ("P0", 0.0)),
        *(("P12", 12.0), ("0x00000000000001FF", 511.0), ("12 %", 12.0), ("0.5", 0.5), ("-3", -3.0)),
    ],
)
def test_a_cell_says_a_number_or_that_there_is_none(text: str, expected: float) -> None:
    cells = Cells("")
    np.testing.assert_equal([cells.number(text, 1) for _ in range(2)], [expected] * 2)
    assert cells.bad == 0


def test_a_cell_that_is_neither_is_counted() -> None:
    cells = Cells("MiB")
    for line, text in enumerate(
        ["7 MiB", "2 GiB", "7 W", "MiB", "7 x MiB", "1_0", "inf", "soon"], 1
    ):
        cells.number(text, line)
    assert cells.number("2 GiB", 9) == 2048
    assert (cells.numbers, cells.bad, cells.first_bad) == (3, 6, 3)


def test_words_in_a_column_of_words_are_no_numbers_that_went_wrong(tmp_path: Path) -> None:
    lines = ["timestamp, index, compute_mode, temperature.gpu, fan.speed [%]"]
    lines += [
        f"{date(i)}, 0, Default, 40, {'broken' if i in (3, 4) else f'{i} %'}" for i in range(9)
    ]
    read = GpuLog(log(tmp_path / "x.csv", *lines)).read(tmp_path)
    assert (read.lost.bad_cells, read.lost.first) == (2, {"bad_cells": 5})
    ((done, host),) = written([read], tmp_path).values()
    assert host.labels == ["gpu.temperature[0]", "gpu.fan[0]"]
    assert np.flatnonzero(np.isnan(host.of("gpu.fan[0]"))).tolist() == [3, 4]
    assert done.missing == 1


def test_reasons_and_counters(tmp_path: Path) -> None:
    names = (
        "timestamp, uuid, clocks_throttle_reasons.active, clocks_throttle_reasons.gpu_idle, "
        "clocks_event_reasons_counters.sw_power_cap [us], ecc.errors.corrected.volatile.total, "
        "ecc.errors.uncorrected.aggregate.dram"
    )
    lines = [names]
    for i in range(10):
        idle = "Active" if i < 5 else "Not Active"
        lines.append(f"{date(i)}, {GPU0}, 0x0000000000000001, {idle}, {25_000 * i} us, {2 * i}, 7")
    _, host = convert(log(tmp_path / "x.csv", *lines))
    assert host.of(f"gpu.throttle_idle[{GPU0}]") == [1.0] * 5 + [0.0] * 5
    share = host.of(f"gpu.throttled_sw_power_cap[{GPU0}]")
    assert math.isnan(share[0])
    assert share[1:] == pytest.approx([25.0] * 9), "25 ms of every 100 ms"
    assert host.of(f"gpu.ecc_corrected[{GPU0}]")[1:] == pytest.approx([20.0] * 9)
    assert host.of(f"gpu.ecc_aggregate_uncorrected_dram[{GPU0}]") == [7.0] * 10
    assert len(host.labels) == 4, "the mask's bits are columns of their own"
    assert host.channel(f"gpu.ecc_corrected[{GPU0}]").kind is Kind.RATE


def test_a_query_that_straddles_a_grid_point_is_one_tick(tmp_path: Path) -> None:
    lines = ["timestamp, index, power.draw [W]"]
    # The GPUs are 3 ms apart: from 12 ms before the point to 9 ms after it.
    lines += [
        f"{date(10 + i - 0.12 + 0.03 * gpu)}, {gpu}, {10 * i + gpu} W"
        for i in range(20)
        for gpu in range(8)
    ]
    done, host = convert(log(tmp_path / "x.csv", *lines))
    assert host.ticks == [10 + i for i in range(20)]
    for gpu in range(8):
        assert host.of(f"gpu.power[{gpu}]") == [10.0 * i + gpu for i in range(20)]
    assert (done.gaps, done.moved.duplicates) == (0, 0)


def test_a_gpu_that_comes_late_or_goes_is_nan_elsewhere(tmp_path: Path) -> None:
    lines = ["timestamp, index, power.draw [W]"]
    for i in range(20):
        lines += [f"{date(i)}, 0, 1 W"] * (i < 15) + [f"{date(i)}, 1, 2 W"] * (i >= 5)
    _, host = convert(log(tmp_path / "x.csv", *lines))
    assert host.ticks == list(range(20))
    np.testing.assert_equal(host.of("gpu.power[0]"), [1.0] * 15 + [math.nan] * 5)
    np.testing.assert_equal(host.of("gpu.power[1]"), [math.nan] * 5 + [2.0] * 15)


def test_a_log_that_was_appended_to_names_its_columns_twice(tmp_path: Path) -> None:
    names = "timestamp, hostname, power.draw [W]"
    rows = [f"{date(i)}, node9, {i} W" for i in range(10)]
    read = GpuLog(log(tmp_path / "x.csv", names, *rows[:5], "", names, *rows[5:], "2023/1")).read(
        tmp_path
    )
    assert read.lost.ragged == 1
    assert read.lost.first == {"ragged": 14}
    ((_, host),) = written([read], tmp_path).values()
    assert host.layout.host == "node9", "as the log itself says"
    assert host.of("gpu.power") == list(range(10))
    assert host.stamps[0] == START_US


@pytest.mark.parametrize(
    ("lines", "names", "said"),
    [
        (
            ["2023/11/14 22:13:20.000, 0, 5 W"],
            "",
            "line 1 names no column timestamp.*noheader.*--columns",
        ),
        (["index, power.draw [W]", "0, 5 W"], "", "line 1 names no column timestamp"),
        (["+----+", "| NVIDIA-SMI 590 |"], "", r"line 1 is '\+----\+': a log of nvidia-smi"),
        ([f"{date(0)}, 0"], "index,power.draw", "--columns names no timestamp"),
        ([f"{date(0)}, 0"], "timestamp,index,power.draw", "line 1 does not have the 3 cells"),
        (["timestamp, index"], "", "has no row after its line of names"),
        (
            ["timestamp, index, power.draw [W]", "now, 0, 1 W"],
            "",
            "line 2 has 'now' for a timestamp",
        ),
        (["timestamp, index, name", f"{date(0)}, 0, H100", f"{date(1)}, 0, H100"], "", "no value"),
        ([""], "", "is empty"),
    ],
)
def test_what_is_no_such_log_is_one_line(
    tmp_path: Path, lines: list[str], names: str, said: str
) -> None:
    with pytest.raises(InvalidImport, match=said) as e:
        convert(log(tmp_path / "x.csv", *lines), "", names.split(",") if names else ())
    assert "\n" not in str(e.value)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.lists(
            st.sampled_from(
                [date(0), date(1), "0", "1", GPU0, "5 W", "[N/A]", "0x1F", "Active", '"']
            )
            | st.text(max_size=6),
            max_size=4,
        ).map(", ".join),
        max_size=8,
    ),
    tail=st.binary(max_size=30),
    head=st.sampled_from(["timestamp, index, power.draw [W]\n", "timestamp, uuid, a, b\n", ""]),
)
def test_whatever_is_in_a_file_only_our_errors_leave(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], tail: bytes, head: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.csv"
    path.write_bytes((head + "\n".join(rows)).encode("utf-8", "surrogatepass") + tail)
    said = ""
    try:
        done, host = convert(path)
    except RevealError as e:
        said = str(e)
    if said:
        assert "x.csv" in said
        assert "\n" not in said
    else:
        assert done.rows == len(host.stamps)
        assert not np.isinf(host.values).any()


def captured() -> list[tuple[str, str]]:
    """The answers to a query of every field, each a line of names and one row, by capture."""
    found = []
    for path in sorted(CAPTURES.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        answers = re.findall(r"^timestamp, driver_version,.*\n.*$", text, re.MULTILINE)
        found += [(path.stem, answer) for answer in answers]
    return found


def test_every_field_that_a_real_gpu_answers(tmp_path: Path) -> None:
    answers = captured()
    if not answers:
        pytest.skip(f"{CAPTURES} is not here: see shared/data")
    assert len(answers) >= 6
    for number, (name, answer) in enumerate(answers):
        names, row = answer.split("\n")
        later = re.sub(r"^\d+/\d+/\d+ [\d:]+\.\d+", date(1), row)
        path = log(tmp_path / f"{number}.csv", names, date(0) + row[row.index(",") :], later)
        read = GpuLog(path).read(tmp_path)
        assert (read.rows, read.lost.ragged, read.lost.bad_cells) == (2, 0, 0), name
        assert read.unnamed == 0
        ((_, host),) = written([read], tmp_path).values()
        cells = dict(
            zip([n.partition(" ")[0] for n in names.split(", ")], row.split(", "), strict=True)
        )
        uuid = cells["uuid"]
        numbers = 0
        for field, cell in cells.items():
            figure = re.match(r"-?\d+(\.\d+)?(?= |$)", cell)
            meaning = field_meaning(field, "", uuid)
            if figure is None or not meaning.ours or meaning.how is not How.LEVEL:
                continue
            scale = MIB if cell.endswith("MiB") else 1.0
            expected = float(np.float32(float(figure[0]) * scale))
            assert host.of(meaning.channel.label)[0] == expected, field
            numbers += 1
        assert numbers >= 25, name
        assert not np.isnan(host.values[:, 1]).any(), "of what has a value both rows have one"


def test_the_tables_are_the_names_of_the_agents_collector() -> None:
    folder = Path(__file__).parents[3] / "producers" / "collectors" / "gpu"
    if not (folder / "ecc.py").exists():
        pytest.skip("the agent has no collector of GPUs")
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    for metric, _ in FIELDS.values():
        whole = f'"gpu.{metric}"' in source
        clock = re.fullmatch(r"(graphics|sm|memory|video)_clock(_max)?", metric)
        engine = re.fullmatch(r"(encoder|decoder|jpeg|optical_flow)_utilization", metric)
        assert whole or clock or engine, metric
    for name in (*REASONS.values(), *LOCATIONS):
        assert f'"{name}"' in source, name


@pytest.mark.parametrize("apart_ms", [0, 2])
def test_gpus_that_nothing_tells_apart_are_refused(tmp_path: Path, apart_ms: int) -> None:
    path = tmp_path / "x.csv"
    rows = [
        f"2025/01/31 12:00:{second:02d}.{100 + apart_ms * gpu:03d}, {gpu}"
        for second in range(20)
        for gpu in range(4)
    ]
    path.write_text("\n".join(["timestamp, utilization.gpu [%]", *rows]), encoding="utf-8")
    with pytest.raises(InvalidImport, match=r"x.csv has several rows at a time.*query uuid"):
        GpuLog(path).read(tmp_path)


def test_one_gpu_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rng = random.Random(3)
    rows = [
        f"2025/01/31 12:00:{i // 10:02d}.{100 * (i % 10) + rng.randrange(60):03d}, {i}"
        for i in range(100)
    ]
    path.write_text("\n".join(["timestamp, utilization.gpu [%]", *rows]), encoding="utf-8")
    read = GpuLog(path).read(tmp_path)
    assert read.rows == 100
    read.close()
