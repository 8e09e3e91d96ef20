"""Overlap of intervals, by hand and by what must hold for any."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.stability import Span, agreement, iou

spans = st.tuples(st.integers(-50, 50), st.integers(1, 30)).map(lambda s: (s[0], s[0] + s[1]))
hosts = st.dictionaries(st.sampled_from("abc"), st.lists(spans, max_size=5))


def test_by_hand() -> None:
    assert iou((0, 10), (5, 15)) == 5 / 15
    assert iou((0, 10), (2, 4)) == 0.2
    assert iou((0, 10), (10, 20)) == 0
    found = agreement(
        {"a": [(0, 10), (20, 30), (40, 50)], "b": [(0, 10)]},
        {"a": [(0, 8), (1, 2), (20, 40)], "c": [(0, 10)]},
    )
    # 0.8, 0.5, 0 and 0: the third touches (20, 40) only, and b has nothing.
    assert (found.intervals, found.others, found.hits) == (4, 4, 2)
    assert found.median_iou == 0.25
    assert found.hit_rate == 0.5


def test_nothing_to_compare() -> None:
    found = agreement({"a": []}, {"a": [(0, 1)]})
    assert (found.intervals, found.others) == (0, 1)
    assert math.isnan(found.median_iou)
    assert math.isnan(found.hit_rate)


def test_an_interval_that_is_none() -> None:
    with pytest.raises(ValueError, match="from 5 to 5 does not end"):
        agreement({"a": [(5, 5)]}, {})


@given(spans, spans, st.integers(-100, 100))
def test_the_overlap_of_two(a: Span, b: Span, shift: int) -> None:
    share = iou(a, b)
    cells_a, cells_b = set(range(*a)), set(range(*b))
    assert share == len(cells_a & cells_b) / len(cells_a | cells_b)
    assert share == iou(b, a)
    assert iou(a, a) == 1
    assert iou((a[0] + shift, a[1] + shift), (b[0] + shift, b[1] + shift)) == share


@given(hosts, hosts, spans)
def test_more_intervals_of_the_other_never_hit_less(
    one: dict[str, list[Span]], other: dict[str, list[Span]], more: Span
) -> None:
    found = agreement(one, other)
    wider = agreement(one, {**other, "a": [*other.get("a", []), more]})
    assert wider.hits >= found.hits
    assert found.hits <= found.intervals == sum(map(len, one.values()))
    if found.intervals:
        assert wider.median_iou >= found.median_iou
        assert 0 <= found.median_iou <= 1
        itself = agreement(one, one)
        assert (itself.median_iou, itself.hit_rate) == (1, 1)
