"""What holds for every detector. A new one is added to the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from models import forest, mahalanobis, zscore
from models.channels import ChannelTable
from models.scale import fit_scale, standardize
from tests.models.hosts import table, windows


class Detector(Protocol):
    def score(self, z: NDArray[np.float32]) -> NDArray[np.float64]: ...


Fit = Callable[[NDArray[np.float32], NDArray[np.int8], NDArray[np.bool_], int], Detector]
FITS: dict[str, Fit] = {
    "zscore": lambda z, groups, live, _: zscore.fit(z, groups, live),
    "mahalanobis": lambda z, _groups, live, _: mahalanobis.fit(z, live),
    "forest": lambda z, _groups, _live, seed: forest.fit(z, seed=seed),
}
IN_ANY_ORDER = ("zscore", "mahalanobis")
"""The forest draws features by their place, so another order is another forest."""

every = pytest.mark.parametrize("fit", FITS.values(), ids=FITS.keys())
HOST = table()


def learn(
    fit: Fit, x: NDArray[np.float32], channels: ChannelTable = HOST, seed: int = 0
) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    """Fit on windows; return a function from windows to scores."""
    scale = fit_scale(x, channels)
    z = standardize(x, scale.location, scale.inverse)
    detector = fit(z, channels.groups(), scale.inverse > 0, seed)
    return lambda y: detector.score(standardize(y, scale.location, scale.inverse))


@every
def test_one_huge_outlier_scores_highest(fit: Fit) -> None:
    x = windows(HOST, 100)
    fresh = windows(HOST, 50, seed=1)
    fresh[17, : len(HOST)] *= 5
    assert learn(fit, x)(fresh).argmax() == 17


@every
def test_constant_and_absent_channels_give_finite_scores(fit: Fit) -> None:
    x = windows(HOST, 100)
    x[:, 0] = 7  # constant
    x[:, 1] = 0
    x[:, 2] = np.nan  # never there
    x[::3, 3] = np.nan  # now and then
    scores = learn(fit, x)(x)
    assert np.isfinite(scores).all()
    assert scores.std() > 0


@every
def test_a_channel_that_the_baseline_never_had_cannot_make_a_window_odd(fit: Fit) -> None:
    x = windows(HOST, 100)
    x[:, 2] = np.nan
    score = learn(fit, x)
    fresh = windows(HOST, 20, seed=1)
    fresh[:, 2] = np.nan
    before = score(fresh)
    fresh[:, 2] = 1e9
    np.testing.assert_array_equal(score(fresh), before)


@every
def test_a_value_that_is_missing_or_infinite_gives_a_finite_score(fit: Fit) -> None:
    score = learn(fit, windows(HOST, 100))
    fresh = windows(HOST, 3, seed=1)
    usual = score(fresh)
    fresh[0, 4], fresh[1, 4], fresh[2, 4] = np.nan, np.inf, -np.inf
    got = score(fresh)
    assert np.isfinite(got).all()
    assert got[0] <= usual[0] + 0.1, "absent is not odd"
    assert (got[1:] >= usual[1:]).all()


@every
def test_the_agents_own_channels_do_not_count(fit: Fit) -> None:
    host = table(agent=3)
    x = windows(host, 100)
    fresh = windows(host, 20, seed=1)
    score = learn(fit, x, host)
    before = score(fresh)
    fresh[:, 20:23] *= 1000
    np.testing.assert_array_equal(score(fresh), before)


@every
def test_a_batch_is_its_rows(fit: Fit) -> None:
    score = learn(fit, windows(HOST, 100))
    fresh = windows(HOST, 20, seed=1)
    np.testing.assert_array_equal(score(fresh), [score(row[None])[0] for row in fresh])


@every
def test_the_same_windows_and_seed_give_the_same_scores(fit: Fit) -> None:
    x, fresh = windows(HOST, 100), windows(HOST, 20, seed=1)
    np.testing.assert_array_equal(learn(fit, x, seed=3)(fresh), learn(fit, x, seed=3)(fresh))


@pytest.mark.parametrize("name", IN_ANY_ORDER)
def test_the_order_of_the_channels_does_not_matter(name: str) -> None:
    x, fresh = windows(HOST, 100), windows(HOST, 20, seed=1)
    fresh[3, 4] *= 3
    order = np.random.default_rng(2).permutation(len(HOST))
    shuffled = ChannelTable(
        *(
            tuple(np.array(column)[order].tolist())
            for column in (HOST.metric, HOST.device, HOST.subsystem, HOST.unit, HOST.kind)
        )
    )

    def reorder(y: NDArray[np.float32]) -> NDArray[np.float32]:
        return y.reshape(len(y), -1, len(HOST))[:, :, order].reshape(len(y), -1)

    np.testing.assert_allclose(
        learn(FITS[name], reorder(x), shuffled)(reorder(fresh)),
        learn(FITS[name], x)(fresh),
        rtol=1e-4,
    )
