"""The mean distance to the nearest windows is that of a search through all of them."""

from __future__ import annotations

import numpy as np
import pytest

from models import neighbours, ridge


@pytest.mark.parametrize("count", [2, 40, 900])
def test_it_is_the_search_through_all(count: int) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(count, 30)).astype(np.float32)
    fresh = rng.normal(size=(10, 30)).astype(np.float32)
    space = ridge.fit(z, np.ones(30, bool))
    detector = neighbours.fit(z, space)
    assert len(detector.references) == min(count, neighbours.REFERENCES)
    seen = space.project(fresh)[:, : neighbours.DIRECTIONS].astype(np.float64)
    away = np.linalg.norm(seen[:, None] - detector.references[None], axis=2)
    wanted = np.sort(away, axis=1)[:, : neighbours.NEAREST].mean(axis=1)
    np.testing.assert_allclose(detector.score(fresh), wanted, rtol=1e-3)


def test_between_two_phases_is_odd_where_a_covariance_finds_it_normal() -> None:
    rng = np.random.default_rng(0)
    phase = np.where(np.arange(200) % 2, 5.0, -5.0)[:, None]
    z = (phase * np.eye(2)[0] + rng.normal(0, 0.3, (200, 2))).astype(np.float32)
    space = ridge.fit(z, np.ones(2, bool))
    detector = neighbours.fit(z, space)
    middle = np.zeros((1, 2), np.float32)
    assert space.score(middle)[0] < np.median(space.score(z))
    assert detector.score(middle)[0] > np.quantile(detector.score(z), 0.99)
