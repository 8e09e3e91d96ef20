import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.thin import Thin


@given(st.integers(0, 3000), st.integers(1, 64), st.integers(1, 5))
def test_what_is_kept_is_evenly_spread_over_all_that_came(
    count: int, capacity: int, every: int
) -> None:
    thin = Thin(2, capacity, every)
    for n in range(count):
        thin.add(np.array([n, -n, 99], np.float32))
    kept = thin.rows[:, 0].astype(int).tolist()
    assert thin.seen == count
    assert len(kept) <= capacity
    assert kept == list(range(0, count, thin.every))
    assert thin.every % every == 0
    if capacity > 1 and count > capacity * every:
        assert len(kept) >= capacity // 2
    np.testing.assert_array_equal(thin.rows[:, 1], -thin.rows[:, 0])
