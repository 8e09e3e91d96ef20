"""Hosts that leave their baseline slowly, by the p-values of windows that are not odd."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from models.drift import DriftBank

WINDOWS = 600.0
DETECTORS = 3


def drifts_after(
    bank: DriftBank, p_values: NDArray[np.float64], slot: int = 0, *, calm: bool = True
) -> int | None:
    """Return after how many windows a host has begun to drift."""
    for n, row in enumerate(p_values):
        if len(bank.step(np.array([slot]), row[None], np.array([calm]))):
            assert bank.drifts(slot)
            return n + 1
    return None


def even(count: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((count, DETECTORS))


@pytest.mark.parametrize("seed", range(10))
def test_a_host_like_its_baseline_does_not_drift(seed: int) -> None:
    assert drifts_after(DriftBank(WINDOWS), even(5000, seed)) is None


def test_windows_that_are_all_rare_are_a_drift_after_three_tenths_of_the_time() -> None:
    after = drifts_after(DriftBank(WINDOWS), np.full((1000, DETECTORS), 0.05))
    # The share of rare windows goes from .2 to 1 as 1 - .8 exp(-n / 600).
    assert after == pytest.approx(600 * np.log(0.8 / 0.6), abs=2)


def test_most_detectors_have_to_say_so() -> None:
    p = np.full((2000, DETECTORS), 0.01)
    p[:, 1:] = 0.5
    assert drifts_after(DriftBank(WINDOWS), p) is None
    p[:, 1] = 0.01
    assert drifts_after(DriftBank(WINDOWS), p) is not None


def test_windows_of_episodes_do_not_count() -> None:
    assert drifts_after(DriftBank(WINDOWS), np.zeros((2000, DETECTORS)), calm=False) is None


def test_a_drift_passes_and_a_new_baseline_begins_anew() -> None:
    bank = DriftBank(60.0)
    slots, calm = np.array([3]), np.array([True])
    assert drifts_after(bank, np.zeros((100, DETECTORS)), 3) is not None
    back = [n for n in range(300) if len(bank.step(slots, np.ones((1, DETECTORS)), calm))]
    assert len(back) == 1
    assert not bank.drifts(3)
    assert drifts_after(bank, np.zeros((100, DETECTORS)), 3) is not None
    bank.reset(3)
    assert not bank.drifts(3)
    first = drifts_after(bank, np.zeros((100, DETECTORS)), 3)
    assert first == drifts_after(DriftBank(60.0), np.zeros((100, DETECTORS)), 3)


def test_hosts_are_apart() -> None:
    bank = DriftBank(60.0)
    slots = np.array([5, 0, 2])
    p = np.full((3, DETECTORS), 0.5)
    p[1] = 0
    changed = [row for _ in range(200) for row in bank.step(slots, p, np.ones(3, bool))]
    assert changed == [1]
    assert [bank.drifts(s) for s in range(7)] == [True] + [False] * 6


def test_it_can_be_turned_off() -> None:
    assert drifts_after(DriftBank(0), np.zeros((2000, DETECTORS))) is None
