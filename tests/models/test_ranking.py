"""Areas under precision and recall, against their definitions written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.ranking import THRESHOLDS, auc_pr, runs, vus_pr


def naive_auc_pr(odd: list[bool], scores: list[float]) -> float:
    area, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        taken = [o for o, s in zip(odd, scores, strict=True) if s >= threshold]
        recall = sum(taken) / sum(odd)
        area += (recall - before) * sum(taken) / len(taken)
        before = recall
    return area


def naive_vus_pr(odd: list[bool], scores: list[float], most: int) -> float:
    """As it is defined: a loop over widths and thresholds, with nothing shared between them."""
    n = len(odd)
    ranked = sorted(scores, reverse=True)
    thresholds = [ranked[int(i)] for i in np.linspace(0, n - 1, THRESHOLDS)]
    areas = []
    for width in range(most + 1):
        half = width // 2
        labels = [float(o) for o in odd]
        zones: list[list[int]] = []
        for start, end in runs(np.array(odd)):
            for i in range(n):
                away = max(start - i, i - end)
                if 0 < away <= half:
                    labels[i] = min(1.0, labels[i] + math.sqrt(1 - away / width))
            zone = [max(0, start - half), min(n - 1, end + half)]
            if zones and zone[0] <= zones[-1][1]:
                zones[-1][1] = zone[1]
            else:
                zones.append(zone)
        area, before = 0.0, 0.0
        for threshold in thresholds:
            taken = [s >= threshold for s in scores]
            found = sum(x for x, t in zip(labels, taken, strict=True) if t)
            beside = sum(x for x, t, o in zip(labels, taken, odd, strict=True) if t and not o)
            seen = sum(any(taken[a : b + 1]) for a, b in zones) / len(zones)
            recall = min(1.0, found / (sum(odd) + beside / 2)) * seen
            area += (recall - before) * found / sum(taken)
            before = recall
        areas.append(area)
    return sum(areas) / len(areas)


def test_runs() -> None:
    flags = np.array([1, 1, 0, 0, 1, 0, 1, 1, 1], np.bool_)
    assert runs(flags) == [(0, 1), (4, 4), (6, 8)]
    assert runs(np.zeros(3, np.bool_)) == []
    assert runs(np.empty(0, np.bool_)) == []


def test_by_hand() -> None:
    odd = np.array([0, 1, 0, 1], np.bool_)
    assert auc_pr(odd, np.array([0.1, 0.9, 0.5, 0.4])) == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert auc_pr(odd, np.ones(4)) == pytest.approx(0.5)  # one threshold takes all
    assert auc_pr(odd, np.array([0.0, 2, 0, 1])) == 1
    assert vus_pr(odd, np.array([0.0, 2, 0, 1]), 0) == 1
    # Widths 0 and 1 reach no further than the event. With 2, a neighbour counts sqrt(1 - 1/2): so
    # much of a hit, and half as much is there to be found in addition once it was taken.
    odd, scores = np.array([0, 0, 1, 0, 0], np.bool_), np.array([0.0, 3, 2, 0, 0])
    beside = math.sqrt(0.5)
    first = beside / (1 + beside / 2)
    width_2 = first * beside + (1 - first) * (1 + beside) / 2
    assert vus_pr(odd, scores, 2) == pytest.approx((0.5 + 0.5 + width_2) / 3)
    assert math.isnan(auc_pr(np.zeros(4, np.bool_), np.ones(4)))
    assert math.isnan(vus_pr(np.zeros(4, np.bool_), np.ones(4)))


@st.composite
def ranked(draw: st.DrawFn) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    samples = draw(st.integers(2, 120))
    odd = draw(st.lists(st.booleans(), min_size=samples, max_size=samples).filter(any))
    levels = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.0]) | st.floats(0, 10)
    scores = draw(st.lists(levels, min_size=samples, max_size=samples))
    return np.array(odd), np.array(scores)


@given(ranked())
@settings(deadline=None)
def test_the_average_precision_is_as_defined(
    given_: tuple[NDArray[np.bool_], NDArray[np.float64]],
) -> None:
    odd, scores = given_
    assert auc_pr(odd, scores) == pytest.approx(naive_auc_pr(odd.tolist(), scores.tolist()))


@given(ranked(), st.integers(0, 12))
@settings(deadline=None, max_examples=40)
def test_the_volume_is_as_defined(
    given_: tuple[NDArray[np.bool_], NDArray[np.float64]], most: int
) -> None:
    odd, scores = given_
    expected = naive_vus_pr(odd.tolist(), scores.tolist(), most)
    assert vus_pr(odd, scores, most) == pytest.approx(expected)


@given(ranked(), st.floats(0.1, 100), st.floats(-50, 50))
@settings(deadline=None, max_examples=40)
def test_only_the_order_counts(
    given_: tuple[NDArray[np.bool_], NDArray[np.float64]], scale: float, shift: float
) -> None:
    odd, scores = given_
    order = np.unique(scores, return_inverse=True)[1].astype(np.float64)
    assert auc_pr(odd, order * scale + shift) == pytest.approx(auc_pr(odd, scores))
    assert vus_pr(odd, order * scale + shift, 8) == pytest.approx(vus_pr(odd, scores, 8))
