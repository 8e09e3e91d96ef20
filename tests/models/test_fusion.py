"""p-values and the fused score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.fusion import p_value, surprise

scores = st.floats(0, 1e6, width=32)


@given(st.lists(scores, min_size=1, max_size=50), scores)
def test_the_p_value_is_the_smoothed_share_at_least_as_odd(
    calibration: list[float], score: float
) -> None:
    known = np.sort(np.array(calibration, np.float32))
    wanted = (sum(c >= score for c in calibration) + 1) / (len(calibration) + 1)
    assert p_value(score, known) == pytest.approx(wanted)


def test_surprise_goes_on_where_the_p_value_stops() -> None:
    assert surprise(0.5, 0.1, 2.0) == pytest.approx(1)
    assert surprise(2.0, 0.01, 2.0) == pytest.approx(2)
    assert surprise(20.0, 0.01, 2.0) == pytest.approx(3)
    assert surprise(3.0, 0.01, 0.0) == pytest.approx(2), "a baseline without a score has no ratio"
