"""What times are written in, and where rows belong on the grid."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.importing.errors import InvalidImport
from streams.importing.times import (
    INTERVALS_MS,
    clock_of,
    grid_ticks,
    interval_us,
    usual_distance_us,
)

AT = 1_700_000_000_100_000  # 2023-11-14 22:13:20.1 UTC, in microseconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1700000000.1", "seconds since the epoch"),
        ("1.7000000001e9", "seconds since the epoch"),
        ("1700000000100", "milliseconds since the epoch"),
        ("1700000000100.0", "milliseconds since the epoch"),
        ("1700000000100000", "microseconds since the epoch"),
        ("1700000000100000000", "nanoseconds since the epoch"),
        ("2023-11-14 22:13:20.100", "dates, no zone, taken as UTC"),
        ("2023-11-14T22:13:20.1", "dates, no zone, taken as UTC"),
        ("2023/11/14 22:13:20.100", "dates, no zone, taken as UTC"),
        (" 2023-11-14 22:13:20.100000 ", "dates, no zone, taken as UTC"),
        ("2023-11-14T22:13:20.100Z", "dates, with a zone"),
        ("2023-11-15T00:13:20.100+02:00", "dates, with a zone"),
    ],
)
def test_a_time_is_told_by_how_it_is_written(text: str, says: str) -> None:
    clock = clock_of(text)
    assert clock is not None
    assert clock.says == says
    assert clock.read(text) == AT


@pytest.mark.parametrize(
    "text", ["", "now", "-5", "nan", "inf", "1e400", "12:30", "31.01.2025 12:00", "0x10", "1e30"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert clock_of(text) is None


def test_later_times_are_read_as_the_first_or_not_at_all() -> None:
    clock = clock_of("1700000000.1")
    assert clock is not None
    assert clock.read("0") == 0
    assert [clock.read(t) for t in ("x", "", "-1", "nan", "1700000000100000000")] == [None] * 5
    dates = clock_of("2023-11-14 22:13:20")
    assert dates is not None
    assert [dates.read(t) for t in ("1700000000", "2023-13-01", "1960-01-01", "0001-01-01")] == [
        None
    ] * 4


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_time_or_none(text: str) -> None:
    clock = clock_of(text)
    if clock is not None:
        us = clock.read(text)
        assert us is None or 0 <= us < 2**52


@settings(deadline=None)
@given(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)), st.booleans())
def test_dates_are_exact_to_the_microsecond(date: datetime, slashes: bool) -> None:
    text = date.isoformat(" ")
    clock = clock_of(text.replace("-", "/") if slashes else text)
    assert clock is not None
    us = clock.read(text)
    assert us is not None
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us) == date.replace(tzinfo=UTC)


def stamps(*ms: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([AT + round(1000 * m) for m in ms], np.int64)


def test_the_interval_is_the_median_distance() -> None:
    assert usual_distance_us(stamps(0, 100, 200, 900, 1000, 1000)) == 100_000
    assert math.isnan(usual_distance_us(stamps(5)))
    assert math.isnan(usual_distance_us(stamps(5, 5)))
    assert math.isnan(usual_distance_us(stamps()))


@pytest.mark.parametrize(
    ("ms", "expected"), [(100, 100), (104, 100), (96.2, 100), (600, 600), (3000, 3000), (1, 1)]
)
def test_the_interval_is_the_one_near_it_that_windows_take(ms: float, expected: int) -> None:
    assert interval_us(1000 * ms, None, "f") == 1000 * expected


@pytest.mark.parametrize(
    ("ms", "near"), [(135, "125 or 150"), (2000, "1500 or 3000"), (5000, "3000")]
)
def test_an_interval_that_fits_no_window_is_an_error_that_names_those_that_do(
    ms: float, near: str
) -> None:
    with pytest.raises(InvalidImport, match=f"f: rows are {ms} ms apart.*--interval-ms {near}$"):
        interval_us(1000 * ms, None, "f")
    with pytest.raises(InvalidImport, match=f"{ms} does not divide the 3000 ms .* {near}$"):
        interval_us(100_000, int(ms), "f")
    assert interval_us(1000 * ms, 150, "f") == 150_000


def test_one_row_tells_no_interval() -> None:
    with pytest.raises(InvalidImport, match=r"f: one row.*--interval-ms"):
        interval_us(math.nan, None, "f")
    assert interval_us(math.nan, 100, "f") == 100_000


def test_every_interval_fills_a_window() -> None:
    assert {1, 100, 125, 200, 300, 600, 1000, 3000} <= set(INTERVALS_MS)
    assert all(3000 % ms == 0 for ms in INTERVALS_MS)


def ticks(*ms: float) -> list[int]:
    return [int(t) - AT // 100_000 for t in grid_ticks(stamps(*ms), 100_000)]


def test_rows_go_to_the_nearest_tick() -> None:
    assert ticks(0, 100, 200) == [0, 1, 2]
    assert ticks(3, 97, 210, 290) == [0, 1, 2, 3]
    assert ticks() == []


def test_rows_that_come_between_ticks_do_not_share_one() -> None:
    late = [100 * i + 50 + jitter for i, jitter in enumerate([-20, 19, -18, 20, 5, -5, 17, -19])]
    found = ticks(*late)
    assert [t - found[0] for t in found] == list(range(len(late)))
    assert all(abs(100 * t - ms) <= 75 for t, ms in zip(found, late, strict=True))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 10**10), min_size=1, max_size=50),
    st.sampled_from(INTERVALS_MS),
)
def test_no_row_moves_further_than_an_interval(times: list[int], ms: int) -> None:
    us = np.array(times, np.int64) + AT
    moved = grid_ticks(us, 1000 * ms) * 1000 * ms - us
    assert (np.abs(moved) <= 1000 * ms).all()
