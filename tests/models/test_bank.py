"""Many hosts in one call are the same hosts one by one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from models.bank import BaselineBank, BatchScores
from models.baseline import Baseline, Tuning, fit_baseline
from models.calibration import LEAST_SCORES, STAYS
from models.drop import Drop
from models.extremes import Extremes
from models.forest import Forest
from models.mahalanobis import Mahalanobis
from models.mode import AGREE, DETECTORS, FUSED, Mode
from models.neighbours import Neighbours
from models.scale import standardize
from models.zscore import ZScore
from tests.models.hosts import table, windows

HOST = table()


MODES = pytest.mark.parametrize("mode", Mode)


def learn(mode: Mode) -> list[Baseline]:
    """Hosts that differ in level, windows learned from and size of their trees."""
    return [
        fit_baseline(
            windows(HOST, count, seed=n, level=level),
            HOST,
            seed=n,
            version=n,
            tuning=Tuning(mode=mode, prune=0.3),
        )
        for n, (count, level) in enumerate([(60, 1000), (40, 3000), (200, 500), (30, 1000)])
    ]


@pytest.fixture(scope="module")
def baselines() -> list[Baseline]:
    return learn(Mode.DEFAULT)


@MODES
def test_scores_are_those_of_the_single_detectors(mode: Mode) -> None:
    baselines = learn(mode)
    bank = BaselineBank(len(HOST), mode)
    for slot, baseline in enumerate(baselines):
        bank.set(slot, baseline)
    rng = np.random.default_rng(0)
    slots = rng.integers(0, len(baselines), 100)
    levels = np.array([1000, 3000, 500, 1000])[slots]
    rows = windows(HOST, 100, seed=9, level=1) * levels[:, None].astype(np.float32)
    rows[::3, :7] *= 4
    rows[1::3, :7] *= 0.1
    rows[::5, 3 * len(HOST) + 2] *= 50
    scores = bank.score(slots, rows)
    for i, slot in enumerate(slots.tolist()):
        b = baselines[slot]
        z = standardize(rows[i : i + 1], b.location, b.inverse)
        joint = np.where(b.joint, z, np.float32(0))
        space = Mahalanobis(b.components, b.weights, b.residual, b.deviations)
        one = {
            "zscore": ZScore(b.groups, b.group_weights).score(z)[0],
            "mahalanobis": space.score(joint)[0],
            "ridge": space.score(joint)[0],
            "neighbours": Neighbours(space, b.references).score(joint)[0],
            "forest": Forest(b.nodes, b.roots, b.norm).score(joint)[0],
            "extremes": Extremes(b.reach).score(rows[i : i + 1])[0],
            "drop": Drop(b.lowest, b.floor).score(rows[i : i + 1])[0],
        }
        np.testing.assert_allclose(scores.raw[i], [one[d] for d in DETECTORS[mode]], rtol=1e-3)
        at_least = (b.calibration >= scores.raw[i][:, None]).sum(axis=1)
        np.testing.assert_array_equal(scores.p_values[i], (at_least + 1) / (b.windows + 1))
    thresholds = np.stack([b.thresholds for b in baselines])[slots]
    np.testing.assert_array_equal(scores.over, scores.raw > thresholds)
    assert 0 < scores.flagged.mean() < 1


def test_the_fused_score_is_the_mean_of_standardised_logs(baselines: list[Baseline]) -> None:
    bank = BaselineBank(len(HOST))
    b = baselines[0]
    bank.set(0, b)
    rows = windows(HOST, 60, seed=9)
    rows[::3, :7] *= np.linspace(1, 3, 20)[:, None]
    rows[4, 3 * len(HOST) + 2] *= 1000  # one sample of one channel
    scores = bank.score(np.zeros(60, np.int64), rows)
    core = len(FUSED)
    units = (np.log(np.maximum(scores.raw[:, :core], LEAST_SCORES)) - b.middles[:core]) / b.spreads[
        :core
    ]
    np.testing.assert_allclose(scores.fused, units.mean(axis=1))
    np.testing.assert_allclose(scores.ratio, scores.fused / b.open_at[0])
    alone = np.asarray(scores.over[:, core:].any(axis=1))
    assert alone[4]
    np.testing.assert_array_equal(scores.flagged, alone | (scores.ratio > 1))
    np.testing.assert_array_equal(scores.odd, alone | (scores.ratio > STAYS))
    assert scores.odd.sum() > scores.flagged.sum()


def test_in_the_papers_mode_two_of_three_flag_a_window() -> None:
    bank = BaselineBank(len(HOST), Mode.PAPER)
    bank.set(0, learn(Mode.PAPER)[2])
    rows = windows(HOST, 300, seed=9, level=500)
    rows[::3, :4] *= np.linspace(1, 2, 100)[:, None]
    scores = bank.score(np.zeros(300, np.int64), rows)
    votes = scores.over.sum(axis=1)
    assert set(votes.tolist()) == {0, 1, 2, 3}
    np.testing.assert_array_equal(scores.fused, votes)
    np.testing.assert_array_equal(scores.flagged, votes >= AGREE)
    np.testing.assert_array_equal(scores.odd, scores.flagged)


def test_the_threshold_is_that_of_the_oddest_subsystem(baselines: list[Baseline]) -> None:
    order = sorted(set(HOST.subsystem))
    open_at = np.arange(1.0, 9.0)
    bank = BaselineBank(len(HOST))
    bank.set(0, dataclasses.replace(baselines[0], open_at=open_at))
    rows = windows(HOST, 4, seed=9)
    for n, name in enumerate(order):
        rows[n, np.flatnonzero(np.array(HOST.subsystem) == name)] *= 3
    scores = bank.score(np.zeros(4, np.int64), rows)
    np.testing.assert_allclose(scores.ratio, scores.fused / open_at[:4])


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
    assert scores.raw.shape == (0, 6)
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
    with pytest.raises(ValueError, match="baseline of mode default in a bank of mode paper"):
        BaselineBank(20, Mode.PAPER).set(0, baselines[0])
    with pytest.raises(ValueError, match="forest of 50 trees, not 64"):
        bank.set(0, fewer)
