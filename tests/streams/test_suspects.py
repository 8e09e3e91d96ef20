"""A window that is nearly odd is flagged where a rule is sure of a cause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from models.bank import BatchScores
from models.channels import ChannelTable
from models.diagnosis import Cause
from models.novelty import Usual
from streams import score
from streams.fitting import InPlace
from streams.layouts import Layouts
from streams.score import SURE, SUSPECT, Scoring

TABLE = ChannelTable(("m",), ("",), ("cpu",), ("%",), ("rate",))


def verdict(*ratios: float) -> BatchScores:
    n = len(ratios)
    ratio = np.array(ratios)
    none = np.zeros((n, 1))
    return BatchScores(none, none, none > 0, ratio, ratio, ratio > 1, ratio > 1)


@pytest.mark.parametrize(("confidence", "flags"), [(SURE, True), (SURE - 0.01, False)])
def test_only_near_the_threshold_and_only_when_sure(
    monkeypatch: pytest.MonkeyPatch, confidence: float, flags: bool
) -> None:
    looked_at: list[float] = []

    def diagnose(case: Any) -> tuple[Cause, ...]:
        looked_at.append(float(case.means[0]))
        return (Cause("rule", "cpu", "", confidence, (), ()),)

    monkeypatch.setattr(score, "diagnose", diagnose)
    one = np.zeros(1, np.float32)
    host = SimpleNamespace(channels=TABLE, learned=SimpleNamespace(usual=Usual(one, one)))
    found = verdict(0.1, SUSPECT + 0.01, 1.5)
    values = np.arange(3, dtype=np.float32)[:, None]
    scoring = Scoring(Layouts(), InPlace(), baseline_us=60_000_000)
    scoring._suspect(cast("Any", [host] * 3), values, found)
    assert looked_at == [1]
    assert found.flagged.tolist() == found.odd.tolist() == [False, flags, True]
