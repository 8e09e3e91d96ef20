"""The right channels are blamed, with figures that a person can check."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.attribution import TOP, attribute
from models.baseline import Baseline, fit_baseline
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
    window = np.concatenate([baseline.location, np.zeros(3 * len(HOST), np.float32)])
    found = attribute(baseline, window, HOST)
    assert found.channels == ()
    assert {share for _, share in found.subsystems} == {0.0}
