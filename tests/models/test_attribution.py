"""The right channels are blamed, with figures that a person can check."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest

from models.attribution import TOP, attribute
from models.bank import BaselineBank
from models.baseline import Baseline, Tuning, fit_baseline
from models.features import FEATURES
from models.forest import flatten, mean_path_length, path_parts
from models.mahalanobis import Mahalanobis
from models.scale import SCORED, standardize
from tests.models.hosts import row, table, windows

HOST = table(8, agent=2)


@pytest.fixture(scope="module")
def baseline() -> Baseline:
    return fit_baseline(windows(HOST, 60), HOST, seed=0, version=1)


def test_a_planted_channel_is_named_first_with_its_figures(baseline: Baseline) -> None:
    found = attribute(baseline, row(HOST, network__m17=2000, cpu__m2=400), HOST)
    first, second = found.channels[:2]
    assert (HOST.metric[first.channel], HOST.metric[second.channel]) == ("network.m17", "cpu.m2")
    assert (first.statistic, first.value) == ("mean", 2000)
    assert first.low == baseline.low[17]
    assert first.high == baseline.high[17]
    assert 600 < first.low < 1000 < first.high < 1400
    spread = windows(HOST, 60)[:, 17].std()
    middle = windows(HOST, 60)[:, 17].mean()
    assert first.deviation == pytest.approx((2000 - middle) / spread, rel=1e-4)
    assert second.deviation < -4
    assert found.subsystems[0][0] == "network"
    assert found.subsystems[1][0] == "cpu"
    assert first.share == pytest.approx(found.subsystems[0][1], abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1000), factor=st.floats(0.1, 1000), blank=st.integers(0, 33))
def test_shares_add_up_to_one(baseline: Baseline, seed: int, factor: float, blank: int) -> None:
    window = windows(HOST, 1, seed=seed)[0]
    window[5] *= np.float32(factor)
    window[blank] = np.nan
    found = attribute(baseline, window, HOST)
    assert sum(share for _, share in found.subsystems) == pytest.approx(1)
    assert {name for name, _ in found.subsystems} == {"cpu", "memory", "network", "storage"}
    shares = [c.share for c in found.channels]
    assert shares == sorted(shares, reverse=True)
    assert 0 < len(shares) <= TOP
    assert sum(shares) <= 1 + 1e-9
    assert blank not in [c.channel for c in found.channels]


def test_the_agents_own_figures_are_never_blamed(baseline: Baseline) -> None:
    found = attribute(baseline, row(HOST, agent__m32=1e9, storage__m30=3000), HOST)
    assert found.channels[0].channel == 30
    assert all(HOST.subsystem[c.channel] != "agent" for c in found.channels)
    assert "agent" not in dict(found.subsystems)


def test_a_window_of_small_deviations_is_explained_too(baseline: Baseline) -> None:
    found = attribute(baseline, row(HOST, memory__m9=1100), HOST)
    assert sum(share for _, share in found.subsystems) == pytest.approx(1)
    assert found.subsystems[0][0] == "memory"


def test_a_window_that_does_not_deviate_has_nothing_to_blame(baseline: Baseline) -> None:
    window = np.concatenate([baseline.location, np.zeros(2 * len(HOST), np.float32)])
    found = attribute(baseline, window, HOST)
    assert found.channels == ()
    assert {share for _, share in found.subsystems} == {0.0}


def judged(baseline: Baseline, window: NDArray[np.float32]) -> NDArray[np.float64]:
    bank = BaselineBank(len(HOST))
    bank.set(0, baseline)
    return np.asarray(bank.score(np.zeros(1, np.int64), window[None]).raw[0])


def test_a_lone_sample_is_blamed_on_its_channel(baseline: Baseline) -> None:
    window = windows(HOST, 1, seed=3)[0]
    window[3 * len(HOST) + 11] = 1e5
    found = attribute(baseline, window, HOST, judged(baseline, window))
    assert found.channels[0].channel == 11
    assert found.channels[0].share > 0.8


def test_a_channel_that_falls_silent_is_named(baseline: Baseline) -> None:
    window = windows(HOST, 1, seed=3)[0]
    silent = [16, 17, 18]  # of the network
    window[silent] = 0
    found = attribute(baseline, window, HOST, judged(baseline, window))
    assert {c.channel for c in found.channels[:3]} == set(silent)
    assert found.subsystems[0][0] == "network"


def test_a_representative_names_whom_it_stands_for() -> None:
    x = windows(HOST, 60)
    parts = x.reshape(60, len(FEATURES), len(HOST))
    parts[:, :, 3] = parts[:, :, 2]
    pruned = fit_baseline(x, HOST, seed=0, version=1, tuning=Tuning(prune=0.9))
    place = int(pruned.stands[2])
    found = attribute(pruned, row(HOST, cpu__m2=5000, cpu__m3=5000), HOST)
    blame = next(c for c in found.channels if c.channel == place)
    assert blame.stands_for == (5 - place,)


def test_the_parts_of_a_distance_are_exact(baseline: Baseline) -> None:
    window = windows(HOST, 1, seed=3)[0]
    window[7] *= 3
    z = standardize(window[None], baseline.location, baseline.inverse)[0].astype(float)
    v = baseline.components.astype(float)
    inverse = baseline.residual * np.eye(len(z)) + v @ np.diag(baseline.weights) @ v.T
    parts = z * (inverse @ z)
    score = Mahalanobis(
        baseline.components, baseline.weights, baseline.residual, baseline.deviations
    ).score(z[None].astype(np.float32))[0]
    assert parts.sum() == pytest.approx(score**2, rel=1e-4)
    raw = judged(baseline, window)
    raw[[0, 2, 3, 4, 5]] = 1e-9  # only the distance speaks
    found = attribute(baseline, window, HOST, raw)
    by_channel = np.maximum(parts, 0).reshape(len(SCORED), -1).sum(axis=0)
    wanted = by_channel / by_channel.sum()
    for blame in found.channels:
        assert blame.share == pytest.approx(wanted[blame.channel], rel=1e-4)


def test_the_cuts_of_a_tree_share_what_the_way_is_shorter() -> None:
    x = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    grown = IsolationForest(n_estimators=20, max_samples=64, random_state=0).fit(x)
    flat = flatten(grown)
    odd = np.array([0, 9, 0, 0, 0, 0], np.float32)
    wanted = np.zeros(6)
    for e in grown.estimators_:
        tree, at, cuts = e.tree_, 0, []
        while tree.children_left[at] >= 0:
            cuts.append(int(tree.feature[at]))
            left = odd[tree.feature[at]] <= tree.threshold[at]
            at = tree.children_left[at] if left else tree.children_right[at]
        length = len(cuts) + mean_path_length(tree.n_node_samples[at : at + 1])[0]
        for feature in cuts:
            wanted[feature] += max(0.0, flat.norm - length) / len(cuts)
    got = path_parts(odd, flat.nodes, flat.roots, flat.norm)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert got.argmax() == 1
