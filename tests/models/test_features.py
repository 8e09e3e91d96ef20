import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.features import FEATURES, NO_TICK, window_features, write_ticks

LENGTH, SLOTS = 30, 41


def features(values: np.ndarray, first: int) -> tuple[np.ndarray, int]:
    """Put `values` ``(channels, ticks)`` into a ring from tick `first` on and reduce them."""
    channels, count = values.shape
    rings = np.full((2, SLOTS, channels), 7e7, np.float32)
    ticks = np.full((2, SLOTS), NO_TICK, np.int64)
    write_ticks(rings[1], ticks[1], values, 0, count, first)
    out = np.empty((1, len(FEATURES) * channels), np.float32)
    samples = np.empty(1, np.int32)
    ends = np.array([first + count])
    window_features(rings, ticks, np.array([1]), ends, np.array([LENGTH]), out, samples)
    return out.reshape(len(FEATURES), channels), int(samples[0])


@settings(deadline=None)
@given(
    arrays(
        np.float32,
        (3, LENGTH),
        elements=st.floats(-1e6, 1e6, width=32) | st.just(float("nan")),
    ),
    st.integers(0, 10**12),
)
def test_features_are_numpys_over_the_values_that_are_there(values: np.ndarray, first: int) -> None:
    got, samples = features(values, first)
    assert samples == LENGTH
    for c, row in enumerate(values):
        known = row[~np.isnan(row)].astype(np.float64)
        if not len(known):
            assert np.isnan(got[:, c]).all()
            continue
        scale = max(1.0, np.abs(known).max())
        np.testing.assert_allclose(got[0, c], known.mean(), atol=2e-6 * scale)
        np.testing.assert_allclose(got[1, c], known.std(), atol=2e-3 * scale)
        assert got[2, c] == known.min()
        assert got[3, c] == known.max()


def test_a_deviation_on_top_of_a_large_level_keeps_its_digits() -> None:
    noise = np.tile([0, 64, 128], 10).astype(np.float32)
    got, _ = features((np.float32(1e9) + noise)[None], 5)
    np.testing.assert_allclose(got[1, 0], noise.std(), rtol=1e-6)


def test_ticks_of_an_earlier_turn_of_the_ring_count_as_missing() -> None:
    values = np.arange(12, dtype=np.float32)[None]
    got, samples = features(values, 100)
    assert samples == 12
    np.testing.assert_allclose(got[:, 0], [5.5, np.arange(12).std(), 0, 11], rtol=1e-6)


def test_a_window_without_a_tick_is_nan() -> None:
    got, samples = features(np.empty((2, 0), np.float32), 100)
    assert samples == 0
    assert np.isnan(got).all()
