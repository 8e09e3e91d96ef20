"""The paper's distance in the main subspace, and ours along all directions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from models import mahalanobis, ridge

FEATURES = 30


def rows(count: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(count, FEATURES)) @ rng.normal(size=(FEATURES, FEATURES)) / 5
    return mixed.astype(np.float32)


FRESH = np.random.default_rng(1).normal(size=(20, FEATURES)).astype(np.float32)
LIVE = np.ones(FEATURES, bool)


@pytest.mark.parametrize("count", [25, 200])
def test_ridge_is_the_distance_under_the_whole_covariance_with_its_ridge(count: int) -> None:
    """With fewer windows than features, and with more; there is room for all components."""
    z = rows(count)
    covariance = z.astype(np.float64).T @ z / count
    loaded = covariance + ridge.RIDGE * np.trace(covariance) / FEATURES * np.eye(FEATURES)
    wanted = np.sqrt(np.einsum("if,fg,ig->i", FRESH, np.linalg.inv(loaded), FRESH) / FEATURES)
    np.testing.assert_allclose(ridge.fit(z, LIVE).score(FRESH), wanted, rtol=2e-3)


def test_beyond_its_components_ridge_has_one_common_variance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ridge, "COMPONENTS", 5)
    z = rows(200)
    values, vectors = np.linalg.eigh(z.astype(np.float64).T @ z / 200)
    values, vectors = values[::-1], vectors[:, ::-1]
    common = np.concatenate([values[:5], np.full(25, values[5:].mean())])
    inverse = vectors @ np.diag(1 / (common + ridge.RIDGE * values.mean())) @ vectors.T
    wanted = np.sqrt(np.einsum("if,fg,ig->i", FRESH, inverse, FRESH) / FEATURES)
    np.testing.assert_allclose(ridge.fit(z, LIVE).score(FRESH), wanted, rtol=1e-3)


def test_the_papers_distance_is_hotellings_in_the_main_subspace() -> None:
    z = rows(200)
    values, vectors = np.linalg.eigh(z.astype(np.float64).T @ z / 200)
    values, vectors = values[::-1], vectors[:, ::-1]
    k = min(
        mahalanobis.COMPONENTS, int(np.searchsorted(np.cumsum(values) / values.sum(), 0.95)) + 1
    )
    y = FRESH @ vectors[:, :k]
    wanted = np.sqrt((y**2 / (values[:k] + mahalanobis.RIDGE)).sum(axis=1) / k)
    np.testing.assert_allclose(mahalanobis.fit(z).score(FRESH), wanted, rtol=1e-3)


def test_leaving_the_usual_direction_is_odder_than_going_far_along_it() -> None:
    rng = np.random.default_rng(0)
    along = np.ones(10) / np.sqrt(10)
    z = (rng.normal(0, 3, (100, 1)) * along).astype(np.float32)
    across = np.zeros(10)
    across[:2] = 1 / np.sqrt(2), -1 / np.sqrt(2)
    detector = ridge.fit(z, np.ones(10, bool))
    far, out = detector.score(np.stack([6 * along, 2 * across]).astype(np.float32))
    assert out > 2 * far


def test_fewer_windows_than_components_are_enough() -> None:
    z = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    for detector in (ridge.fit(z, np.ones(40, bool)), mahalanobis.fit(z)):
        assert np.count_nonzero(detector.inverse) <= 5
        assert np.isfinite(detector.score(z)).all()


def test_projections_are_in_deviations_of_the_baseline() -> None:
    z = rows(200)
    y = ridge.fit(z, LIVE).project(z)
    usual = y[:, :5].std(axis=0)  # the first directions vary far more than the ridge
    np.testing.assert_allclose(usual, 1, atol=0.1)
