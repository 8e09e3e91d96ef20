"""Detectors of what the others cannot see: single samples that stick out, channels that stop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models import drop, extremes
from models.scale import LIMIT

LIVE = np.ones(4, bool)
FLOOR = np.array([1.0, 1.0, 1.0, 100.0])


def window(
    mean: list[float], low: list[float] | None = None, high: list[float] | None = None
) -> NDArray[np.float32]:
    """One window's features: mean, deviation (not looked at), lowest, highest."""
    return np.array([*mean, *([0.0] * 4), *(low or mean), *(high or mean)], np.float32)


def test_a_reach_counts_against_the_largest_of_the_baseline() -> None:
    normal = [window([10] * 4, [7, 10, 10, 10], [12, 10 + n, 10, 10]) for n in range(6)]
    detector = extremes.fit(np.stack(normal), FLOOR, LIVE)
    # Up 2, 5, and twice the floor; down 3, and twice the floor.
    np.testing.assert_allclose(1 / detector.inverse, [[2, 5, 2, 200], [3, 2, 2, 200]], rtol=1e-6)
    spike = window([10] * 4, [10, 10, 10, 10], [10, 35, 10, 10])
    dip = window([10] * 4, [1, 10, 10, 10], [10] * 4)
    shifted = window([500] * 4)
    np.testing.assert_allclose(
        detector.score(np.stack([spike, dip, shifted])), [5, 3, 0], rtol=1e-6
    )
    assert extremes.ratios(spike, detector.inverse).argmax() == 1


def test_what_is_absent_or_without_bounds_sticks_out_nowhere_or_at_the_limit() -> None:
    detector = extremes.fit(np.stack([window([10] * 4)] * 3), FLOOR, LIVE)
    absent = window([math.nan] * 4)
    endless = window([10] * 4, high=[math.inf, 10, 10, 10])
    assert detector.score(np.stack([absent, endless])).tolist() == [0, LIMIT]


def test_a_fall_is_held_against_the_lowest_ever() -> None:
    normal = np.stack([window([100 + n, 50, 2, 300]) for n in range(5)])
    detector = drop.fit(normal, FLOOR, LIVE)
    # The third is too near its floor to be never quiet, so is the fourth.
    assert detector.lowest.tolist() == [100, 50, 0, 0]
    fresh = np.stack([window([20, 50, 0, 0]), window([0, 0, 0, 0]), window([99, 200, 2, 300])])
    one, two = math.log(101 / 21), math.log(101) + math.log(51)
    wanted = [one / 3, two / 3, math.log(101 / 100) / 3]
    np.testing.assert_allclose(detector.score(fresh), wanted, rtol=1e-5)
    np.testing.assert_allclose(
        drop.falls(fresh[1], detector.lowest, detector.floor)[:2], [math.log(101), math.log(51)]
    )


def test_what_is_absent_has_not_fallen() -> None:
    detector = drop.fit(np.stack([window([100] * 4)] * 3), FLOOR, LIVE)
    assert detector.score(window([math.nan] * 4)[None]).tolist() == [0]
    assert not drop.falls(window([math.nan] * 4), detector.lowest, detector.floor).any()


@settings(deadline=None)
@given(values=st.lists(st.floats(0, 1e6, width=32), min_size=4, max_size=4))
def test_the_score_is_the_mean_of_the_three_deepest(values: list[float]) -> None:
    detector = drop.fit(np.stack([window([500] * 4)] * 3), np.ones(4), LIVE)
    falls = drop.falls(window(values), detector.lowest, detector.floor)
    wanted = np.sort(falls)[-3:].mean()
    assert detector.score(window(values)[None])[0] == pytest.approx(wanted, abs=1e-4)
