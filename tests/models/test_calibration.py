"""Scores made comparable, and the threshold that the operator states."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.calibration import DEFAULT_PER_DAY, HIGHEST, LOWEST, SHORT, TAIL, Line, threshold


def exponential(mean: float, count: int = 20_000) -> NDArray[np.float64]:
    """Quantiles of an exponential distribution: a sample without luck."""
    return -mean * np.log1p(-(np.arange(count) + 0.5) / count)


def test_standardised_scores_have_the_middle_at_0_and_the_quartiles_spread_to_1() -> None:
    scores = np.exp(np.random.default_rng(0).normal(2, 0.5, 10_001))
    line = Line.of(scores, 0.1)
    assert line.middle == pytest.approx(math.log(np.median(scores)))
    assert line.spread == pytest.approx(0.5, rel=0.05)
    assert line.standardize(np.array([np.median(scores)]))[0] == pytest.approx(0)


def test_scores_that_hardly_move_have_the_least_spread() -> None:
    assert Line.of(np.full(50, 3.0), 0.15).spread == 0.15


@given(u=st.floats(-10, 10), middle=st.floats(-5, 5), spread=st.floats(0.01, 2))
def test_a_score_is_found_again(u: float, middle: float, spread: float) -> None:
    line = Line(middle, spread)
    score = line.at(u)
    if score > 1e-8:
        assert line.standardize(np.array([score]))[0] == pytest.approx(u, abs=1e-6)


def test_an_exponential_tail_gives_its_own_quantile() -> None:
    fused = exponential(0.7)
    per_day, stride_s = 2.0, 60.0  # one window in 720
    wanted = 0.7 * math.log(720)
    assert LOWEST - 0.5 * math.log(4) < wanted < HIGHEST - 0.5 * math.log(4)
    got = threshold(fused, per_day, stride_s)
    assert got == pytest.approx(wanted, rel=0.02)


@given(mean=st.floats(0.01, 5), per_day=st.floats(0.01, 50))
def test_it_stays_within_its_bounds(mean: float, per_day: float) -> None:
    moved = 0.5 * math.log(DEFAULT_PER_DAY / per_day)
    got = threshold(exponential(mean), per_day, 1.0)
    assert LOWEST + moved - 1e-9 <= got <= HIGHEST + moved + SHORT / 20_000 + 1e-9


@given(mean=st.floats(0.1, 2), stride=st.floats(0.5, 300))
def test_who_allows_fewer_false_alarms_gets_a_higher_threshold(mean: float, stride: float) -> None:
    fused = exponential(mean, 2_000)
    found = [threshold(fused, per_day, stride) for per_day in (0.1, 0.5, 2.0, 10.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_a_short_baseline_raises_the_upper_bound() -> None:
    long, short = exponential(5, 3000), exponential(5, 120)
    assert threshold(long, 0.5, 1.0, 2) == pytest.approx(HIGHEST + SHORT * 3 / 3000)
    assert threshold(short, 0.5, 1.0, 2) == pytest.approx(HIGHEST + SHORT * 3 / 120)


def test_the_tail_starts_where_it_says() -> None:
    assert TAIL == 0.1
    quiet = np.zeros(1000)
    assert threshold(quiet, 0.5, 1.0) == pytest.approx(0.5 * math.log(TAIL * 86_400 / 0.5))
    assert threshold(quiet, 0.5, 600.0) == LOWEST
