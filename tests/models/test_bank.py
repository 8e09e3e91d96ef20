"""Many hosts in one call are the same hosts one by one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from models.bank import BaselineBank, BatchScores
from models.baseline import Baseline, fit_baseline
from models.forest import Forest
from models.fusion import AGREE
from models.mahalanobis import Mahalanobis
from models.scale import standardize
from models.zscore import ZScore
from tests.models.hosts import table, windows

HOST = table()


@pytest.fixture(scope="module")
def baselines() -> list[Baseline]:
    """Hosts that differ in level, windows learned from and size of their trees."""
    return [
        fit_baseline(
            windows(HOST, count, seed=n, level=level), HOST, seed=n, version=n, quantile=0.95
        )
        for n, (count, level) in enumerate([(60, 1000), (40, 3000), (200, 500), (30, 1000)])
    ]


def test_scores_are_those_of_the_single_detectors(baselines: list[Baseline]) -> None:
    bank = BaselineBank(len(HOST))
    for slot, baseline in enumerate(baselines):
        bank.set(slot, baseline)
    rng = np.random.default_rng(0)
    slots = rng.integers(0, len(baselines), 100)
    levels = np.array([1000, 3000, 500, 1000])[slots]
    rows = windows(HOST, 100, seed=9, level=1) * levels[:, None].astype(np.float32)
    rows[::3, :7] *= 4
    scores = bank.score(slots, rows)
    for i, slot in enumerate(slots.tolist()):
        b = baselines[slot]
        z = standardize(rows[i : i + 1], b.location, b.inverse)
        wanted = [
            ZScore(b.groups, b.group_weights).score(z)[0],
            Mahalanobis(b.components, b.weights, b.residual).score(z)[0],
            Forest(b.nodes, b.roots, b.norm).score(z)[0],
        ]
        np.testing.assert_array_equal(scores.raw[i], wanted)
        at_least = (b.calibration >= scores.raw[i][:, None]).sum(axis=1)
        np.testing.assert_array_equal(scores.p_values[i], (at_least + 1) / (b.windows + 1))
    thresholds = np.stack([b.thresholds for b in baselines])[slots]
    np.testing.assert_array_equal(scores.over, scores.raw > thresholds)
    np.testing.assert_array_equal(scores.flagged, scores.over.sum(axis=1) >= AGREE)
    assert 0 < scores.flagged.mean() < 1
    assert len(np.unique(scores.fused[scores.flagged])) > 10
    assert scores.fused[scores.flagged].min() > scores.fused[~scores.flagged].mean()


def test_each_host_is_judged_by_its_own_baseline(baselines: list[Baseline]) -> None:
    bank = BaselineBank(len(HOST))
    bank.set(0, baselines[0])
    bank.set(1, baselines[1])
    rows = windows(HOST, 2, seed=5, level=3000)
    assert bank.score(np.array([0, 1]), rows).flagged.tolist() == [True, False]


def test_slots_come_in_any_order_and_are_replaced(baselines: list[Baseline]) -> None:
    rows = windows(HOST, 5, seed=5)
    slots = np.zeros(5, np.int64)
    alone = BaselineBank(len(HOST))
    alone.set(0, baselines[0])
    wanted = alone.score(slots, rows)
    bank = BaselineBank(len(HOST))
    for slot, which in ((37, 3), (2, 2), (70, 0), (2, 1), (37, 0), (5, 2)):
        bank.set(slot, baselines[which])
    for slot in (37, 70):
        assert_same(bank.score(slots + slot, rows), wanted)
    alone.set(0, baselines[1])
    assert_same(bank.score(slots + 2, rows), alone.score(slots, rows))


def assert_same(a: BatchScores, b: BatchScores) -> None:
    for f in dataclasses.fields(BatchScores):
        np.testing.assert_array_equal(getattr(a, f.name), getattr(b, f.name), f.name)


def test_an_empty_batch_is_fine() -> None:
    bank = BaselineBank(len(HOST))
    scores = bank.score(np.empty(0, np.int64), np.empty((0, 4 * len(HOST)), np.float32))
    assert scores.raw.shape == (0, 3)
    assert scores.flagged.shape == (0,)


def test_what_does_not_fit_is_refused(baselines: list[Baseline]) -> None:
    bank = BaselineBank(len(HOST))
    bank.set(1, baselines[0])
    one = np.array([1])
    with pytest.raises(ValueError, match=r"rows of shape \(2, 80\) for 1 slots and 20 channels"):
        bank.score(one, windows(HOST, 2))
    with pytest.raises(ValueError, match=r"rows of shape \(1, 96\)"):
        bank.score(one, windows(table(6), 1))
    for slot in (0, 2, -1):
        with pytest.raises(ValueError, match=rf"no baseline in one of the slots \[{slot}\]"):
            bank.score(np.array([slot]), windows(HOST, 1))
    with pytest.raises(ValueError, match="baseline of 20 channels in a bank of 24"):
        BaselineBank(24).set(0, baselines[0])
    fewer = dataclasses.replace(baselines[0], roots=baselines[0].roots[:50])
    with pytest.raises(ValueError, match="forest of 50 trees, not 100"):
        bank.set(0, fewer)
