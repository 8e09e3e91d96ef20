"""What holds for every detector. A new one is added to the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from models import drop, extremes, forest, mahalanobis, neighbours, ridge, zscore
from models.channels import ChannelTable
from models.scale import SCORED, Scale, fit_scale, standardize
from tests.models.hosts import table, windows


class Detector(Protocol):
    def score(self, windows: NDArray[np.float32]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Learned:
    """The same windows as they are and standardised, and what is known of them."""

    raw: NDArray[np.float32]
    z: NDArray[np.float32]
    scale: Scale
    channels: ChannelTable
    seed: int

    @property
    def live(self) -> NDArray[np.bool_]:
        return np.asarray(self.scale.inverse > 0)

    @property
    def by_channel(self) -> NDArray[np.bool_]:
        return self.live[: len(self.channels)]


Fit = Callable[[Learned], Detector]
FITS: dict[str, Fit] = {
    "zscore": lambda x: zscore.fit(x.z, np.tile(x.channels.groups(), len(SCORED)), x.live),
    "mahalanobis": lambda x: mahalanobis.fit(x.z),
    "ridge": lambda x: ridge.fit(x.z, x.live),
    "neighbours": lambda x: neighbours.fit(x.z, ridge.fit(x.z, x.live)),
    "forest": lambda x: forest.fit(x.z, seed=x.seed),
    "extremes": lambda x: extremes.fit(x.raw, x.scale.floor, x.by_channel),
    "drop": lambda x: drop.fit(x.raw, x.scale.floor, x.by_channel),
}
ON_RAW = ("extremes", "drop")
"""Detectors that look at features as they are."""
IN_ANY_ORDER = tuple(name for name in FITS if name != "forest")
"""The forest draws features by their place, so another order is another forest."""

every = pytest.mark.parametrize("name", FITS)
HOST = table()


def learn(
    name: str, x: NDArray[np.float32], channels: ChannelTable = HOST, seed: int = 0
) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    """Fit on windows; return a function from windows to scores."""
    scale = fit_scale(x, channels)
    z = standardize(x, scale.location, scale.inverse)
    detector = FITS[name](Learned(x, z, scale, channels, seed))
    if name in ON_RAW:
        return detector.score
    return lambda y: detector.score(standardize(y, scale.location, scale.inverse))


def make_odd(name: str, row: NDArray[np.float32]) -> None:
    """Give a window of `HOST` what a detector looks for."""
    n = len(HOST)
    if name == "drop":
        row[:n] = 0
    elif name == "extremes":
        row[3 * n + 4] *= 100
    else:
        row[:n] *= 5


@every
def test_one_huge_outlier_scores_highest(name: str) -> None:
    x = windows(HOST, 100)
    fresh = windows(HOST, 50, seed=1)
    make_odd(name, fresh[17])
    assert learn(name, x)(fresh).argmax() == 17


@every
def test_constant_and_absent_channels_give_finite_scores(name: str) -> None:
    x = windows(HOST, 100)
    x[:, 0] = 7  # constant
    x[:, 1] = 0
    x[:, 2] = np.nan  # never there
    x[::3, 3] = np.nan  # now and then
    scores = learn(name, x)(x)
    assert np.isfinite(scores).all()
    assert name in ON_RAW or scores.std() > 0


@every
def test_a_channel_that_the_baseline_never_had_cannot_make_a_window_odd(name: str) -> None:
    x = windows(HOST, 100)
    x[:, 2] = np.nan
    score = learn(name, x)
    fresh = windows(HOST, 20, seed=1)
    fresh[:, 2] = np.nan
    before = score(fresh)
    fresh[:, 2] = 1e9
    np.testing.assert_array_equal(score(fresh), before)


@every
def test_a_value_that_is_missing_or_infinite_gives_a_finite_score(name: str) -> None:
    score = learn(name, windows(HOST, 100))
    fresh = windows(HOST, 3, seed=1)
    usual = score(fresh)
    fresh[0, 4], fresh[1, 4], fresh[2, 4] = np.nan, np.inf, -np.inf
    got = score(fresh)
    assert np.isfinite(got).all()
    assert got[0] <= usual[0] + 0.1, "absent is not odd"
    assert (got[1:] >= usual[1:]).all()


@every
def test_the_agents_own_channels_do_not_count(name: str) -> None:
    host = table(agent=3)
    x = windows(host, 100)
    fresh = windows(host, 20, seed=1)
    score = learn(name, x, host)
    before = score(fresh)
    fresh[:, 20:23] *= 1000
    np.testing.assert_array_equal(score(fresh), before)


@every
def test_a_batch_is_its_rows(name: str) -> None:
    score = learn(name, windows(HOST, 100))
    fresh = windows(HOST, 20, seed=1)
    np.testing.assert_array_equal(score(fresh), [score(row[None])[0] for row in fresh])


@every
def test_the_same_windows_and_seed_give_the_same_scores(name: str) -> None:
    x, fresh = windows(HOST, 100), windows(HOST, 20, seed=1)
    np.testing.assert_array_equal(learn(name, x, seed=3)(fresh), learn(name, x, seed=3)(fresh))


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
        learn(name, reorder(x), shuffled)(reorder(fresh)),
        learn(name, x)(fresh),
        rtol=1e-4,
    )
