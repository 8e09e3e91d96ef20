"""P-values are smoothed shares of the baseline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.fusion import p_value

scores = st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=50)


@settings(deadline=None)  # compiled on first use
@given(known=scores, score=st.floats(0, 1e6, width=32))
def test_it_is_the_smoothed_share_that_is_at_least_as_odd(known: list[float], score: float) -> None:
    calibration = np.sort(np.array(known, np.float32))
    wanted = (sum(k >= np.float32(score) for k in calibration) + 1) / (len(known) + 1)
    assert p_value(float(np.float32(score)), calibration) == pytest.approx(wanted)
