"""The flat forest is scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest

from models import forest


@settings(deadline=None, max_examples=20)
@given(
    rows=st.integers(2, 60),
    features=st.integers(1, 40),
    trees=st.integers(1, 25),
    seed=st.integers(0, 2**32 - 1),
    steps=st.sampled_from([0, 3]),
)
def test_scores_are_scikit_learns(
    rows: int, features: int, trees: int, seed: int, steps: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    if steps:  # many equal values
        x = np.round(x * steps) / np.float32(steps)
    grown = IsolationForest(n_estimators=trees, max_samples=min(32, rows), random_state=seed)
    grown.fit(x)
    fresh = rng.normal(0, 2, size=(50, features)).astype(np.float32)
    for y in (x, fresh):
        np.testing.assert_allclose(
            forest.flatten(grown).score(y), -grown.score_samples(y), atol=1e-6
        )


def test_a_value_on_a_cut_goes_the_same_way() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3)).astype(np.float32)
    grown = IsolationForest(n_estimators=20, random_state=0).fit(x)
    cuts = np.concatenate([e.tree_.threshold[e.tree_.feature >= 0] for e in grown.estimators_])
    near = cuts.astype(np.float32)
    rounded_up = near[near > cuts]
    assert len(rounded_up) > 100, "cuts that plain rounding would put on the wrong side"
    y = np.repeat(rounded_up[:, None], 3, axis=1)
    np.testing.assert_allclose(forest.flatten(grown).score(y), -grown.score_samples(y), atol=1e-6)


def test_fit_grows_the_forest_that_scikit_learn_grows() -> None:
    x = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
    grown = IsolationForest(
        n_estimators=forest.TREES, max_samples=forest.SAMPLES, random_state=7
    ).fit(x)
    np.testing.assert_allclose(forest.fit(x, seed=7).score(x), -grown.score_samples(x), atol=1e-6)
    assert (forest.fit(x, seed=8).score(x) != forest.fit(x, seed=7).score(x)).any()


def test_a_leaf_of_many_samples_stands_for_the_tree_it_would_be() -> None:
    # c(n) = 2 H(n - 1) - 2 (n - 1) / n, equation 1 of the paper, H by its approximation there.
    got = forest.mean_path_length(np.array([1, 2, 256]))
    harmonic = np.log(255) + 0.5772156649
    np.testing.assert_allclose(got, [0, 1, 2 * harmonic - 2 * 255 / 256], rtol=1e-9)


def test_more_features_than_a_node_has_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="65537 features"):
        forest.fit(np.zeros((2, forest.MOST_FEATURES + 1), np.float32), seed=0)
