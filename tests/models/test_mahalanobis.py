"""The distance is the one under the covariance that the file describes."""

from __future__ import annotations

import numpy as np
import pytest

from models import mahalanobis


@pytest.mark.parametrize("count", [25, 200])
def test_it_is_the_distance_under_the_covariance_of_probabilistic_pca(count: int) -> None:
    """With fewer windows than features, and with more."""
    rng = np.random.default_rng(0)
    features = 30
    z = (rng.normal(size=(count, features)) @ rng.normal(size=(features, features)) / 5).astype(
        np.float32
    )
    fresh = rng.normal(size=(20, features)).astype(np.float32)
    values, vectors = np.linalg.eigh(z.astype(np.float64).T @ z / count)
    values, vectors = values[::-1], vectors[:, ::-1]
    k = mahalanobis.COMPONENTS
    rest = values[k:].mean()
    spectrum = np.concatenate([values[:k], np.full(features - k, rest)]) + mahalanobis.RIDGE
    inverse = vectors @ np.diag(1 / spectrum) @ vectors.T
    wanted = np.sqrt(np.einsum("if,fg,ig->i", fresh, inverse, fresh) / features)
    detector = mahalanobis.fit(z, np.ones(features, bool))
    np.testing.assert_allclose(detector.score(fresh), wanted, rtol=1e-4)


def test_leaving_the_usual_direction_is_odder_than_going_far_along_it() -> None:
    rng = np.random.default_rng(0)
    along = np.ones(10) / np.sqrt(10)
    z = (rng.normal(0, 3, (100, 1)) * along).astype(np.float32)
    across = np.zeros(10)
    across[:2] = 1 / np.sqrt(2), -1 / np.sqrt(2)
    detector = mahalanobis.fit(z, np.ones(10, bool))
    far, out = detector.score(np.stack([6 * along, 2 * across]).astype(np.float32))
    assert out > 2 * far


def test_fewer_windows_than_components_are_enough() -> None:
    z = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    detector = mahalanobis.fit(z, np.ones(40, bool))
    assert np.count_nonzero(detector.weights) <= 4
    assert np.isfinite(detector.score(z)).all()
