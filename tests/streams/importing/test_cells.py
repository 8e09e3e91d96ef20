"""The compiled loop against Python's own `split` and `float`."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.importing import table
from streams.importing.cells import _number, read_rows
from streams.importing.table import TextTable, number_of

NOT_READ = 1


def number(text: str) -> tuple[float, int]:
    data = np.frombuffer(text.encode() + b"\n", np.uint8)
    value, trouble = _number(data, 0, len(data) - 1)
    return float(value), int(trouble)


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-0", "7", "+7", "-12.5", "007", "1.", ".5", "0.000123", "1e3", "1E3", "-2.5e-7"),
        *("1e22", "999999999999999", "0.1", "1700000000.1", "263000000"),
    ],
)
def test_what_fits_into_a_mantissa_is_read_exactly(text: str) -> None:
    value, trouble = number(text)
    assert (value, trouble) == (float(text), 0)
    assert math.copysign(1, value) == math.copysign(1, float(text))


@settings(deadline=None)
@given(st.floats(-1e18, 1e18) | st.floats(-1.0, 1.0) | st.integers(-(10**17), 10**17))
def test_any_number_is_read_to_a_float32s_last_bit_or_left(value: float) -> None:
    found, trouble = number(repr(value))
    if not trouble:
        assert found == pytest.approx(value, rel=2e-15, abs=0)
    else:
        assert abs(value) < 1e-20 or "e" in repr(value)


@settings(deadline=None)
@given(st.text("0123456789.eE+-n aAx_,", max_size=12))
def test_what_is_no_number_is_left_to_the_caller(text: str) -> None:
    text = text.strip()
    value, trouble = number(text)
    try:
        expected = float(text)
    except ValueError:
        assert trouble == NOT_READ
        return
    if not trouble:
        assert value == pytest.approx(expected, rel=2e-15, abs=0, nan_ok=True)


CELL = st.sampled_from(
    [
        "",
        " ",
        "1",
        "-2.5",
        " 3 ",
        "4e2",
        "nan",
        "NaN",
        "n/a",
        "oops",
        '"5"',
        "1_0",
        "inf",
        "x" * 9,
    ]
) | st.floats(-1e9, 1e9).map(repr)


def naive(line: str, separator: str, width: int) -> list[float] | None:
    """The numbers of a line after its first cell, inf for what is none; None: another width."""
    cells = line.rstrip("\r").split(separator)
    if len(cells) != width + 1:
        return None
    return [number_of(re.sub(r'^"(.*)"$', r"\1", cell.strip())) for cell in cells[1:]]


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.lists(CELL, max_size=5), max_size=12),
    separator=st.sampled_from([",", "\t"]),
    ending=st.sampled_from(["\n", "\r\n"]),
    small=st.booleans(),
    last=st.booleans(),
)
def test_a_table_is_what_naive_code_makes_of_it(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[list[str]],
    separator: str,
    ending: str,
    small: bool,
    last: bool,
) -> None:
    width = 3
    texts = [separator.join([str(1_700_000_000 + i), *row]) for i, row in enumerate(lines)]
    names = separator.join(["t", "a", "b", "c"])
    path = tmp_path_factory.mktemp("t") / "t.csv"
    text = ending.join([names, *texts]) + (ending if last else "")
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        if small:  # rows and what is left over come in several pieces, lines in several blocks
            patch.setattr(table, "PIECE_CELLS", 8)
            patch.setattr(table, "PIECE_BYTES", 16)
        found = TextTable(path)
        pieces = list(found.pieces())
    values = [row for piece in pieces for row in piece.values.tolist()]
    stamps = [us for piece in pieces for us in piece.stamps.tolist()]

    expected, kept, bad, ragged = [], [], 0, 0
    for i, text in enumerate(texts):
        row = naive(text, separator, width)
        if row is None:
            ragged += 1
            continue
        bad += row.count(math.inf)
        expected.append([math.nan if x == math.inf else x for x in row])
        kept.append((1_700_000_000 + i) * 1_000_000)
    assert stamps == kept
    np.testing.assert_allclose(values or np.empty((0, 3)), expected or np.empty((0, 3)), rtol=2e-15)
    assert (found.lost.bad_cells, found.lost.ragged) == (bad, ragged)


def test_rows_stop_where_an_array_is_full_and_go_on_from_there() -> None:
    data = np.frombuffer(b"1,10\n2,20\n3,30\n", np.uint8)
    values, stamps = np.empty((2, 1)), np.empty((2, 3), np.int64)
    hard = np.empty((4, 4), np.int64)
    rows, cells, ragged, first, lines, at = read_rows(data, 0, ord(","), values, stamps, hard)
    assert (rows, cells, ragged, first, lines, at) == (2, 0, 0, -1, 2, 10)
    assert values.tolist() == [[10], [20]]
    assert stamps.tolist() == [[0, 1, 0], [5, 6, 1]]
    rows, *_, lines, at = read_rows(data, at, ord(","), values, stamps, hard)
    assert (rows, lines, at) == (1, 1, len(data))
    assert values[0, 0] == 30
