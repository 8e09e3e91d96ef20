from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.packing import Packer
from producers.precision import rate_rows, rounded
from schemas.records import Channel, Floats, Kind, Layout, Subsystem, layout_fingerprint

NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)
FLOAT32_MAX = float(np.finfo(np.float32).max)


def round_one(value: float, kind: Kind) -> float:
    """Round one number to a step, by arithmetic on Python's own floats."""
    if value == 0 or abs(value) >= 2.0**127:
        return value
    step = math.ldexp(1.0, max(math.frexp(value)[1], -125) - 11)
    if kind is Kind.GAUGE:
        step = min(step, 1.0)
    return math.copysign(round(value / step) * step, value)  # `round` ties to even


def through(kind: Kind, values: list[float]) -> list[float]:
    rates = np.array([[kind is Kind.RATE]])
    back: list[float] = rounded(np.array([values], np.float32), rates)[0].tolist()
    return back


@pytest.mark.parametrize("kind", list(Kind))
@given(values=st.lists(NUMBERS, min_size=1))
def test_a_value_goes_to_the_nearest_step(kind: Kind, values: list[float]) -> None:
    assert through(kind, values) == [round_one(v, kind) for v in values]


@pytest.mark.parametrize("kind", list(Kind))
@given(values=st.lists(NUMBERS, min_size=2))
def test_what_grows_does_not_shrink(kind: Kind, values: list[float]) -> None:
    back = through(kind, sorted(values))
    assert back == sorted(back)


@pytest.mark.parametrize("kind", list(Kind))
@given(values=st.lists(NUMBERS.filter(lambda v: abs(v) >= 2.0**-126), min_size=1))
def test_no_value_is_more_than_a_twentieth_of_a_percent_off(
    kind: Kind, values: list[float]
) -> None:
    for value, back in zip(values, through(kind, values), strict=True):
        assert abs(back - value) <= abs(value) * 2.0**-11
        if kind is Kind.GAUGE:
            assert abs(back - value) <= 0.5


@given(values=st.lists(st.integers(-(2**24), 2**24) | st.integers(0, 2**26).map(lambda n: n << 20)))
def test_whole_gauges_are_exact_at_any_size(values: list[int]) -> None:
    as_sent = np.array(values, np.float32).tolist()
    assert through(Kind.GAUGE, as_sent) == as_sent


def test_small_counts_and_the_steps_of_a_jiffy_are_exact_as_rates() -> None:
    counts = [float(n) for n in range(-2048, 2049)]
    assert through(Kind.RATE, counts) == counts
    assert through(Kind.RATE, [2049.0, 2050.0, 2051.0]) == [2048.0, 2050.0, 2052.0]


@pytest.mark.parametrize("kind", list(Kind))
def test_what_is_no_number_stays_what_it_is(kind: Kind) -> None:
    odd = np.array([[0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF]], np.uint32).view(np.float32)
    assert np.isnan(rounded(odd, np.array([[kind is Kind.RATE]]))).all()
    infinite = [math.inf, -math.inf, FLOAT32_MAX, -FLOAT32_MAX]
    assert through(kind, infinite) == infinite


@pytest.mark.parametrize("kind", list(Kind))
def test_zeros_keep_their_sign(kind: Kind) -> None:
    assert [math.copysign(1, v) for v in through(kind, [0.0, -0.0, 1e-45, -1e-45])] == [
        *(1, -1, 1, -1)
    ]


def test_each_channel_is_rounded_by_its_kind_and_the_samples_are_left_alone() -> None:
    names = tuple(
        Channel(str(kind), "", Subsystem.NETWORK, "B", kind)
        for kind in (Kind.RATE, Kind.GAUGE, Kind.RATE)
    )
    layout = Layout("node1", layout_fingerprint(names, 100_000), "0", "", 100_000, names)
    assert rate_rows(layout).tolist() == [[True], [False], [True]]
    packer = Packer(2)
    sampled: list[Floats] = [
        np.array([1_234_567, 1_234_567, 0.1], np.float32),
        np.array([np.nan, 100.01, -7.0], np.float32),
    ]
    kept = [s.copy() for s in sampled]
    assert packer.add(0, layout, sampled[0]) == ()
    (record,) = packer.add(100_000, layout, sampled[1])
    # 1,234,567 lies between 2^20 and 2^21: steps of 2^10. 0.1 in steps of 2^-14 is 1638.4.
    assert record.values[0, 0] == 1206 * 1024
    assert record.values[2].tolist() == [1638 / 16384, -7.0]
    assert record.values[1].tolist() == [1_234_567, 1600 / 16]
    assert np.isnan(record.values[0, 1])
    np.testing.assert_array_equal(sampled, kept)
