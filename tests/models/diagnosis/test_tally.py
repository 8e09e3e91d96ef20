"""The windows of an episode vote on its causes."""

from __future__ import annotations

import pytest

from models.diagnosis import Cause
from models.diagnosis.tally import CauseTally


def cause(rule: str, confidence: float, told: str = "") -> Cause:
    return Cause(rule, "cpu", "", confidence, (told,), ())


def test_one_window_that_misleads_is_outvoted() -> None:
    tally = CauseTally()
    tally.add([cause("cap", 0.9)])
    assert [c.rule for c in tally.ranked()] == ["cap"]
    for _ in range(3):
        tally.add([cause("stall", 0.8)])
    stall, cap = tally.ranked()
    assert (stall.rule, cap.rule) == ("stall", "cap")
    assert stall.confidence == pytest.approx(0.6)
    assert cap.confidence == pytest.approx(0.225)


def test_evidence_is_that_of_the_surest_window() -> None:
    tally = CauseTally()
    for confidence, told in ((0.7, "a"), (0.9, "b"), (0.8, "c")):
        tally.add([cause("cap", confidence, told)])
    assert tally.ranked()[0].evidence == ("b",)


def test_what_spoke_once_in_many_windows_is_not_told() -> None:
    tally = CauseTally()
    tally.add([cause("cap", 0.9)])
    for _ in range(5):
        tally.add([])
    assert tally.ranked() == ()
