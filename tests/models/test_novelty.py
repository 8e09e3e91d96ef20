"""What counts as new while a host is learned, and what as a change of all its subsystems."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from models.novelty import Part, Usual, all_changed, new_in, parts, still_moving
from tests.models.hosts import SUBSYSTEMS, table

PER = 8
TABLE = table(PER, agent=3)
CHANNELS = len(TABLE)
CHECKPOINT = 6
"""Windows that a checkpoint shows in."""


def noise(count: int, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return rng.normal(1000, 50, (count, CHANNELS)).astype(np.float32)


def of(subsystem: str) -> slice:
    first = TABLE.subsystem.index(subsystem)
    return slice(first, first + PER)


def with_checkpoints(count: int, *starts: int) -> NDArray[np.float32]:
    windows = noise(count)
    for start in starts:
        windows[start : start + CHECKPOINT, of("storage")] += 2000
    return windows


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [30, 60, 120, 600])
def test_noise_is_nothing_new(seed: int, count: int) -> None:
    assert new_in(noise(count, seed), TABLE) == ()


def test_a_first_checkpoint_is_new_until_it_lies_before_the_newest_fifth() -> None:
    assert new_in(with_checkpoints(100, 90), TABLE) == ("storage",)
    assert new_in(with_checkpoints(100, 70), TABLE) == ()
    assert new_in(with_checkpoints(100, 30, 90), TABLE) == ()


def test_an_odd_sample_is_no_phase_and_neither_is_one_channel() -> None:
    windows = noise(100)
    windows[90:93] *= 5  # one sample is in three windows
    assert new_in(windows, TABLE) == ()
    windows = noise(100)
    windows[80:, of("cpu").start] *= 5
    assert new_in(windows, TABLE) == ()


def test_what_the_agent_says_of_itself_is_never_new() -> None:
    windows = noise(100)
    windows[80:, -3:] *= 5
    assert new_in(windows, TABLE) == ()


def test_absent_values_and_too_few_windows_say_nothing() -> None:
    windows = noise(100)
    windows[:, of("network")] = np.nan
    windows[80:, of("memory")] = np.nan
    assert new_in(windows, TABLE) == ()
    assert new_in(noise(3), TABLE) == ()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [30, 60])
def test_noise_is_steady(seed: int, count: int) -> None:
    assert not still_moving(noise(count, seed), TABLE)
    assert not still_moving(np.zeros((count, CHANNELS), np.float32), TABLE)


@pytest.mark.parametrize("subsystem", SUBSYSTEMS)
def test_a_subsystem_on_its_way_is_not_steady(subsystem: str) -> None:
    windows = noise(60)
    ramp = np.linspace(0, 1000, 60)[:, None]
    windows[:, of(subsystem).start] += ramp[:, 0]
    assert not still_moving(windows, TABLE), "one channel may drift"
    windows[:, of(subsystem)] += ramp
    assert still_moving(windows, TABLE)


def test_the_usual_range_is_that_of_most_windows_and_unknown_where_there_is_no_value() -> None:
    windows = noise(1000)
    windows[:10, 0] = 1e9
    windows[:, 1] = np.nan
    usual = Usual.of(windows)
    low, high = np.sort(windows[:, 2])[[20, 979]]
    assert usual.low[2] == pytest.approx(low, abs=2)
    assert usual.high[2] == pytest.approx(high, abs=2)
    assert usual.high[0] < 1500
    assert np.isnan(usual.low[1])
    assert np.isnan(usual.high[1])


def test_a_change_of_all_is_told_from_that_of_all_but_one() -> None:
    usual = Usual.of(noise(300))
    changed = noise(60, 1)
    changed[:, : 4 * PER] *= 2
    found = parts(changed, usual, TABLE)
    assert found == tuple(Part(s, PER, 0, PER) for s in sorted(SUBSYSTEMS))
    assert all_changed(found)
    changed[:, of("network")] /= 2
    found = parts(changed, usual, TABLE)
    assert [p.left for p in found] == [PER, PER, 0, PER]
    assert not all_changed(found)


@pytest.mark.parametrize("subsystem", SUBSYSTEMS)
def test_one_subsystem_however_wild_is_not_all(subsystem: str) -> None:
    changed = noise(60, 1)
    changed[:, of(subsystem)] *= 1000
    assert not all_changed(parts(changed, Usual.of(noise(300)), TABLE))


def test_a_part_of_a_subsystems_channels_is_not_the_subsystem() -> None:
    usual = Usual.of(noise(300))
    changed = noise(60, 1)
    changed[:, : 4 * PER] *= 2
    changed[:, of("memory").start + PER // 2 - 1 : of("memory").stop] /= 2
    assert not all_changed(parts(changed, usual, TABLE))


def test_what_comes_and_goes_has_not_left() -> None:
    usual = Usual.of(noise(300))
    changed = noise(60, 1)
    changed[::2, : 4 * PER] *= 2
    assert [p.left for p in parts(changed, usual, TABLE)] == [0, 0, 0, 0]


def test_disks_that_idle_as_they_often_do_have_no_say_but_three_others_are_needed() -> None:
    learned = noise(300)
    learned[:, of("storage")] = 0
    learned[::10, of("storage")] = 5000
    usual = Usual.of(learned)
    changed = noise(60, 1)
    changed[:, : 4 * PER] *= 0.1
    changed[:, of("storage")] = 0
    found = parts(changed, usual, TABLE)
    assert [(p.subsystem, p.silent) for p in found][-1] == ("storage", True)
    assert all_changed(found)
    few = tuple(p for p in found if p.subsystem != "cpu")
    assert not all_changed(few)


def test_a_host_that_idled_has_what_now_moves() -> None:
    learned = np.zeros((300, CHANNELS), np.float32)
    found = parts(noise(60), Usual.of(learned), TABLE)
    assert all_changed(found)
    assert parts(learned[:60], Usual.of(learned), TABLE) == ()
