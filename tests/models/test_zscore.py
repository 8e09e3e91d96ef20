"""The mean deviation of the subsystem that is oddest for itself."""

from __future__ import annotations

import numpy as np
import pytest

from models import zscore

LIVE = np.ones(20, bool)
GROUPS = np.repeat(np.array([0, 1], np.int8), 10)


def test_it_is_the_largest_ratio_to_what_the_subsystem_is_used_to() -> None:
    z = np.zeros((101, 20), np.float32)
    z[:, :10] = np.linspace(0, 4, 101)[:, None]  # a restless subsystem
    z[:, 10:] = np.linspace(0, 1, 101)[:, None] * np.float32(-0.5)  # a calm one
    detector = zscore.fit(z, GROUPS, LIVE)
    usual = 3.96, 0.495  # one window of a hundred is above
    fresh = np.zeros((3, 20), np.float32)
    fresh[0, 0] = 40  # 4 in the mean
    fresh[1, 10:] = -1
    fresh[2] = 1
    wanted = 4 / usual[0], 1 / usual[1], 1 / usual[1]
    np.testing.assert_allclose(detector.score(fresh), wanted, rtol=1e-5)


def test_a_subsystem_that_stood_still_is_not_odd_at_its_first_twitch() -> None:
    z = np.zeros((50, 20), np.float32)
    z[:, 0] = 1
    fresh = np.zeros((1, 20), np.float32)
    fresh[0, 15] = 0.5  # half a scale in one channel of ten
    assert zscore.fit(z, GROUPS, LIVE).score(fresh)[0] == pytest.approx(0.05 / zscore.LEAST_USUAL)


def test_channels_that_are_not_scored_do_not_thin_the_mean() -> None:
    live = LIVE.copy()
    live[5:10] = False
    z = np.ones((50, 20), np.float32) * live
    assert zscore.fit(z, GROUPS, live).score(z)[0] == pytest.approx(1)


def test_a_handful_of_channels_is_no_subsystem_but_on_a_tiny_host_they_are_all_there_is() -> None:
    z = np.ones((50, 20), np.float32)
    groups = np.array([0] * 17 + [1] * 3, np.int8)
    odd = z.copy()
    odd[:, 17:] = 1000
    assert zscore.fit(z, groups, LIVE).score(odd)[0] == pytest.approx(1)
    few = np.array([0, 1, 2, 3, 4, 5], np.int8)
    tiny = zscore.fit(z[:, :6], few, LIVE[:6])
    assert tiny.score(z[:, :6] * 3)[0] == pytest.approx(3)


def test_more_subsystems_than_there_is_room_for_are_refused() -> None:
    groups = np.arange(20, dtype=np.int8)
    with pytest.raises(ValueError, match="20 subsystems: there is room for 8"):
        zscore.fit(np.zeros((5, 20), np.float32), groups, LIVE)
