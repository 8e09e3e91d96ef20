"""Counters to rates: what is told apart, one by one, and what holds whatever comes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.rates import OVERFLOW, PATIENCE, WRAP_GROWTH, Rates
from producers.source import Field

NAN = float("nan")
SECOND = 1_000_000_000


def counter(key: str = "a", modulus: float = 0.0, scale: float = 1.0) -> Field:
    return Field(key, True, scale, modulus)


def run(readings: Sequence[float], field: Field | None = None) -> list[float]:
    """Return the rates of one counter read once a second."""
    rates = Rates([field or counter()])
    return [
        float(rates.update(np.array([float(v)]), i * SECOND)[0])
        for i, v in enumerate(readings, start=1)
    ]


@pytest.mark.parametrize(
    ("case", "readings", "expected"),
    [
        ("first sight", [5], [NAN]),
        ("growth", [5, 5, 15], [NAN, 0, 10]),
        ("a gap is averaged over", [100, NAN, NAN, 130, 140], [NAN, NAN, NAN, 10, 10]),
        ("not there at first", [NAN, 7, 9], [NAN, NAN, 2]),
        ("negative", [100, -5, 120], [NAN, NAN, 10]),
        ("overflow", [100, 2.0**64 - 1, 120], [NAN, NAN, 10]),
        ("infinite", [100, math.inf, 120], [NAN, NAN, 10]),
        ("step back", [100000, 99990, 100005, 100010], [NAN, 0, 5, 5]),
        ("small step back of a small counter", [10, 8, 12], [NAN, 0, 2]),
        ("reset", [100000, 50, 60], [NAN, NAN, 10]),
        ("too low for once", [1000, 3, 1100, 1150], [NAN, NAN, 50, 50]),
        ("too low, then a gap", [1000, 3, NAN, 1150, 1160], [NAN, NAN, NAN, 50, 10]),
        ("a reset in a gap", [1000, 3, NAN, 23, 33], [NAN, NAN, NAN, 10, 10]),
        ("two resets running", [1000, 50, 20, 30], [NAN, NAN, NAN, 10]),
        ("momentary zero", [1000, 0, 1100, 1150], [NAN, NAN, 50, 50]),
        ("zero, then a new start", [1000, 0, 10, 20], [NAN, NAN, NAN, 10]),
        ("zero at first", [0, 0, 5], [NAN, 0, 5]),
    ],
)
def test_what_happens_to_a_counter(case: str, readings: list[float], expected: list[float]) -> None:
    np.testing.assert_array_equal(run(readings), expected, err_msg=case)


def test_a_zero_that_stays_is_a_reset() -> None:
    rates = run([1000] + [0] * (PATIENCE + 1) + [7])
    assert all(math.isnan(r) for r in rates[: PATIENCE + 2])
    assert rates[-1] == 7


def test_a_step_back_that_stays_is_a_reset() -> None:
    rates = run([100000] + [99990] * (PATIENCE + 1) + [99997])
    assert rates[1 : PATIENCE + 1] == [0] * PATIENCE
    assert math.isnan(rates[PATIENCE + 1])
    assert rates[-1] == 7


@pytest.mark.parametrize("modulus", [2.0**32, 2.0**48])
def test_a_wrap_goes_on(modulus: float) -> None:
    top = modulus - 1
    readings = [top - 250, top - 150, top - 50, 49, 149]
    assert run(readings, counter(modulus=modulus))[1:] == [100, 100, 100, 100]


def test_a_reset_is_no_wrap() -> None:
    """The growth over the wrap would be a hundred thousand times what was ever seen."""
    rates = run([3e9, 3e9 + 100, 3e9 + 200, 0.1e9, 0.1e9 + 100], counter(modulus=2.0**32))
    np.testing.assert_array_equal(rates, [NAN, 100, 100, NAN, 100])


def test_a_drop_without_modulus_is_no_wrap() -> None:
    top = 2.0**32 - 1
    rates = run([top - 250, top - 150, top - 50, 49, 149])
    np.testing.assert_array_equal(rates, [NAN, 100, 100, NAN, 100])


def test_scale_and_time() -> None:
    rates = Rates([counter(scale=0.5), Field("level", False, 1024)])
    rates.update(np.array([10.0, 3.0]), SECOND)
    out = rates.update(np.array([20.0, 4.0]), SECOND + SECOND // 10)
    np.testing.assert_allclose(out, [50.0, 4096.0])


def test_levels_go_where_they_like() -> None:
    rates = Rates([Field("level", False)])
    seen = [float(rates.update(np.array([v]), i * SECOND)[0]) for i, v in enumerate([5.0, -2, 0])]
    assert seen == [5, -2, 0]
    out = rates.update(np.array([math.inf]), 4 * SECOND)
    assert math.isnan(out[0])
    assert rates.rejected.tolist() == [0]


def test_what_was_rejected_is_named() -> None:
    rates = Rates([counter("a"), counter("b"), counter("c"), Field("d", False)])
    rates.update(np.array([1.0, -1.0, OVERFLOW, NAN]), SECOND)
    assert rates.rejected.tolist() == [1, 2]
    rates.update(np.array([1.0, 1.0, 1.0, 1.0]), 2 * SECOND)
    assert rates.rejected.tolist() == []


def test_the_others_do_not_feel_one_that_is_broken() -> None:
    rates = Rates([counter(k) for k in "abc"])
    rates.update(np.array([1.0, 1.0, 1.0]), SECOND)
    np.testing.assert_array_equal(rates.update(np.array([2.0, NAN, 4.0]), 2 * SECOND), [1, NAN, 3])
    np.testing.assert_array_equal(rates.update(np.array([3.0, 9.0, 5.0]), 3 * SECOND), [1, 4, 1])


def test_history_survives_a_change_of_layout() -> None:
    """One channel comes and is unknown at first; one goes; one moves and goes on."""
    rates = Rates([counter("stays"), counter("goes"), Field("level", False)])
    rates.update(np.array([80.0, 1.0, 7.0]), SECOND // 4)
    rates.update(np.array([90.0, 1.0, 7.0]), SECOND // 2)
    rates.update(np.array([100.0, 1.0, 7.0]), SECOND)
    rates.relayout([counter("comes"), Field("level", False), counter("stays")])
    np.testing.assert_array_equal(
        rates.update(np.array([5.0, 8.0, 110.0]), 2 * SECOND), [NAN, 8, 10]
    )
    np.testing.assert_array_equal(rates.update(np.array([6.0, 8.0, 120.0]), 3 * SECOND), [1, 8, 10])


def test_what_left_and_came_back_starts_anew() -> None:
    rates = Rates([counter("a"), counter("b")])
    rates.update(np.array([100.0, 1.0]), SECOND)
    rates.relayout([counter("b")])
    rates.update(np.array([2.0]), 2 * SECOND)
    rates.relayout([counter("a"), counter("b")])
    np.testing.assert_array_equal(rates.update(np.array([900.0, 4.0]), 3 * SECOND), [NAN, 2])


def test_the_same_time_twice_changes_nothing() -> None:
    rates = Rates([counter()])
    rates.update(np.array([10.0]), SECOND)
    assert math.isnan(rates.update(np.array([50.0]), SECOND)[0])
    assert rates.update(np.array([30.0]), 2 * SECOND)[0] == 20


def test_an_earlier_time_is_another_boot() -> None:
    rates = Rates([counter()])
    rates.update(np.array([10.0]), 50 * SECOND)
    assert math.isnan(rates.update(np.array([30.0]), 2 * SECOND)[0])
    assert rates.update(np.array([33.0]), 3 * SECOND)[0] == 3


events = st.one_of(
    st.tuples(st.just("grow"), st.integers(0, 10**7)),
    st.tuples(st.just("grow"), st.integers(0, 10**7)),
    st.tuples(st.sampled_from(["zero", "missing", "negative", "huge"]), st.just(0)),
    st.tuples(st.just("step back"), st.integers(1, 10)),
    st.tuples(st.just("reset"), st.integers(0, 1000)),
)


@given(
    start=st.integers(0, 2**33),
    story=st.lists(events, max_size=60),
    modulus=st.sampled_from([0, 2**32]),
)
def test_a_rate_is_never_negative_nor_more_than_the_truth(
    start: int, story: list[tuple[str, int]], modulus: int
) -> None:
    """A counter truly grows by known amounts; what is read of it lies at times.

    A rate is a mean over the time since the last good reading, so it is no more than the most that
    the counter ever grew in a second, and a step back that was not seen as one. Where a reset can
    pass for a wrap, it is no more than `WRAP_GROWTH` times that.
    """
    value = start % modulus if modulus else start
    most = 0
    rates = Rates([counter(modulus=modulus)])
    for at, (what, amount) in enumerate([("grow", 0), *story], start=1):
        if what == "reset":
            value = amount
        elif what == "grow":
            value += amount
        if what in {"reset", "grow"}:
            most = max(most, amount)
        value = value % modulus if modulus else value
        reading = {
            "zero": 0.0,
            "missing": NAN,
            "negative": -1.0,
            "huge": 2.0**64 - 3,
            "step back": max(0.0, float(value) - amount),
        }.get(what, float(value))
        rate = float(rates.update(np.array([reading]), at * SECOND)[0])
        if not math.isnan(rate):
            assert what not in {"zero", "missing", "negative", "huge"} or value == 0
            assert 0 <= rate <= (WRAP_GROWTH if modulus else 1) * (most + 10)


@given(st.lists(st.integers(0, 2**62), min_size=2, max_size=20))
def test_a_counter_that_only_grows_is_exact(values: list[int]) -> None:
    values.sort()
    rates = run([float(v) for v in values])
    for before, after, rate in zip(values, values[1:], rates[1:], strict=False):
        assert rate == float(after) - float(before)


@given(
    st.lists(
        st.lists(
            st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.integers(0, 1000)),
            min_size=4,
            max_size=4,
        ),
        min_size=1,
        max_size=20,
    )
)
def test_channels_do_not_touch_each_other(rows: list[list[float]]) -> None:
    """Together they give what each gives alone."""
    fields = [counter("a"), counter("b", 2.0**32), Field("c", False), counter("d", 2.0**48, 0.1)]
    together = Rates(fields)
    alone = [Rates([f]) for f in fields]
    for at, row in enumerate(rows, start=1):
        values = np.array(row, np.float64)
        with np.errstate(over="ignore"):
            out = together.update(values, at * SECOND)
            singles = [r.update(values[[i]], at * SECOND)[0] for i, r in enumerate(alone)]
        np.testing.assert_array_equal(out, singles)


@pytest.mark.parametrize(
    ("readings", "modulus", "events"),
    [
        ([5, 9, NAN, 12], 0, {}),
        ([100000, 99990, 100005], 0, {"step_back": 1}),
        ([1000, 0, 1100], 0, {"zero": 1}),
        ([100000, 50, 60], 0, {"wrong": 1, "reset": 1}),
        ([1000, 3, 1100], 0, {"wrong": 1}),
        ([1000] + [0] * (PATIENCE + 1) + [7], 0, {"zero": PATIENCE, "reset": 1}),
        ([2**32 - 30, 2**32 - 20, 5], 2.0**32, {"wrap": 1}),
    ],
)
def test_what_happened_is_counted(
    readings: list[float], modulus: float, events: dict[str, int]
) -> None:
    rates = Rates([counter(modulus=modulus), counter("b")])
    for i, value in enumerate(readings, start=1):
        rates.update(np.array([value, 10.0 * i]), i * SECOND)
    assert +rates.events == events


@given(
    st.lists(
        st.lists(
            st.none() | st.integers(0, 1000) | st.floats(allow_nan=True, allow_infinity=True),
            min_size=4,
            max_size=4,
        ),
        min_size=1,
        max_size=30,
    )
)
def test_readings_of_some_fields(rows: list[list[float | None]]) -> None:
    """Whatever is read together with it or left out (None), each gives what it gives alone."""
    fields = [counter("a"), counter("b", 2.0**32), Field("c", False), counter("d", 2.0**48, 0.1)]
    together = Rates(fields)
    alone = [Rates([f]) for f in fields]
    for at, row in enumerate(rows, start=1):
        here = [i for i, value in enumerate(row) if value is not None]
        values = np.array([row[i] for i in here], np.float64)
        with np.errstate(over="ignore"):
            out = together.update(values, at * SECOND, together.view(np.array(here, np.intp)))
            singles = [alone[i].update(values[[n]], at * SECOND)[0] for n, i in enumerate(here)]
        np.testing.assert_array_equal(out, singles)
        rejected = {i for i in here if alone[i].rejected.size}
        longer = {i for i in here if alone[i].longer.size}
        assert (set(together.rejected), set(together.longer)) == (rejected, longer)


def test_a_step_back_is_forgotten_with_the_next_growth() -> None:
    """However often a counter steps back, it is no reset as long as it goes on in between."""
    readings = [1000.0]
    for _ in range(2 * PATIENCE):
        readings += [readings[-1] - 1, readings[-1] + 1]
    assert not any(map(math.isnan, run(readings)[1:]))
