"""The life of one baseline, window by window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

from models import lifecycle
from models.lifecycle import GUARD, LEARNED, LONG_US, RENEWED, WATCHED, Finding, Life, Rules, Stage
from models.novelty import Usual
from tests.models.hosts import table

SECOND = 1_000_000
TABLE = table(5)
C = len(TABLE)
RULES = Rules(SECOND, wanted=50, most=150, lasting_us=60 * SECOND)


def noise(n: int, factor: float = 1.0) -> NDArray[np.float32]:
    """Window number n; its first feature beyond the channels says which it is."""
    means = np.random.default_rng(n).normal(1000, 50, C) * factor
    return np.append(means, [n, 7.0]).astype(np.float32)


def learned_numbers(windows: NDArray[np.float32]) -> list[int]:
    return [int(n) for n in windows[:, C]]


def new_life(rules: Rules = RULES) -> Life:
    return Life(rules, C + 1)


def active(rules: Rules = RULES) -> Life:
    life = new_life(rules)
    for n in range(rules.wanted):
        life.learn(noise(n))
    assert life.enough(TABLE) is not None
    life.fitted("")
    return life


def stage(life: Life) -> Stage:
    return life.stage  # mypy believes that an attribute stays what it was asserted to be


USUAL = Usual.of(np.stack([noise(n)[:C] for n in range(300)]))


def watch(
    life: Life, seconds: range, factor: NDArray[np.float32] | float, onset: int = 0
) -> list[tuple[int, Finding]]:
    """Windows of an episode; return when which finding was made."""
    found = []
    for n in seconds:
        row = noise(n)
        row[:C] *= factor
        look = life.watch(row, USUAL, TABLE, onset_us=onset * SECOND, end_us=n * SECOND)
        if look is not None:
            found.append((n, look.finding))
    return found


# ---- learning ---------------------------------------------------------------------------------


def test_learning_takes_what_is_wanted_and_ends_where_nothing_new_comes() -> None:
    life = new_life()
    assert [life.learn(noise(n)) for n in range(50)] == [False] * 49 + [True]
    assert life.progress == 1.0
    windows = life.enough(TABLE)
    assert windows is not None
    assert learned_numbers(windows) == list(range(50))
    assert windows.shape == (50, C + 1)
    assert life.fitting
    assert not life.learn(noise(50))
    life.fitted("")
    assert (life.stage, life.reason, life.judged) == (Stage.ACTIVE, "", True)


def test_learning_goes_on_until_a_phase_is_known() -> None:
    life = new_life()
    first: int | None = None
    for n in range(150):
        row = noise(n)
        if n % 100 in range(42, 49):  # a checkpoint every 100 s, the first in the newest fifth
            row[15:20] += 3000
        if life.learn(row):
            windows = life.enough(TABLE)
            if windows is not None:
                first = n
                break
            assert life.stage is Stage.LEARNING
            assert "storage" in life.reason
    # Looked at again after ten more; by then the checkpoint is no longer in the newest fifth.
    assert first == 59
    assert life.note == life.reason == ""


def test_a_host_that_never_settles_is_learned_in_the_end_and_said_to_be_restless() -> None:
    life = new_life()
    for n in range(150):
        done = life.learn(noise(n, 2.0 ** (n // 10)))  # always further than ever
        if n < 149:
            assert not done or life.enough(TABLE) is None
    assert done
    assert life.enough(TABLE) is not None
    assert life.note.startswith("restless: after 150 s")
    life.fitted(life.note)
    assert (life.stage, life.reason) == (Stage.ACTIVE, life.note)


def test_a_failure_is_a_reason_and_learning_starts_over() -> None:
    life = new_life()
    for n in range(50):
        life.learn(noise(n))
    life.enough(TABLE)
    life.could_not("nothing moved")
    assert (life.failed, life.reason, life.progress) == (True, "nothing moved", 0.0)
    assert [life.learn(noise(n)) for n in range(50)].index(True) == 49
    assert life.enough(TABLE) is not None
    assert not life.failed


def test_a_long_learning_holds_a_bounded_number_of_windows_from_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "MEMORY", 0)  # as with thousands of channels
    life = new_life(Rules(SECOND, wanted=5000, most=5000, lasting_us=0))
    for n in range(5000):
        life.learn(noise(n))
    windows = life.enough(TABLE)
    assert windows is not None
    numbers = learned_numbers(windows)
    assert LEARNED // 2 <= len(numbers) <= LEARNED
    assert numbers[0] == 0
    assert numbers[-1] > 4980
    assert set(np.diff(numbers)) == {life.every}


# ---- drifting ---------------------------------------------------------------------------------


def test_a_drift_is_renewed_from_calm_windows_and_one_that_passes_is_not() -> None:
    life = active()
    assert len(life.reason) == 0
    life.drift(True)
    assert stage(life) is Stage.DRIFTING
    assert life.reason
    assert life.judged
    life.renew(noise(100), flagged=False, episode=False)
    life.drift(False)
    assert (stage(life), life.reason) == (Stage.ACTIVE, "")
    life.drift(True)
    windows = None
    n = 200
    while windows is None:
        windows = life.renew(noise(n), flagged=False, episode=False)
        n += 1
    assert learned_numbers(windows) == list(range(200, 245)), (
        "the last few wait whether a fault follows"
    )
    assert life.fitting
    life.drift(False)
    assert stage(life) is Stage.DRIFTING, "what is being fitted is waited for"
    life.fitted("")
    assert stage(life) is Stage.ACTIVE


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 400), max_size=12),
    st.lists(st.integers(0, 400), max_size=5),
    st.integers(1, 40),
)
def test_nothing_odd_and_nothing_near_it_is_ever_learned_from(
    flags: list[int], starts: list[int], length: int
) -> None:
    episodes = {n for start in starts for n in range(start, start + length)}
    near = {n + d for n in episodes for d in range(-GUARD, GUARD + 1)}
    near |= {n + d for n in flags for d in (-2, -1, 0, 1, 2)}
    life = active()
    life.drift(True)
    windows = None
    for n in range(2000):
        windows = life.renew(noise(n), flagged=n in flags, episode=n in episodes)
        if windows is not None:
            break
    assert windows is not None
    numbers = learned_numbers(windows)
    assert not near & set(numbers)
    if not (flags and starts):  # together, a few more than need be are passed over
        calm = [n for n in range(2000) if n not in near]
        assert numbers == calm[: len(numbers)]
    assert n >= RULES.wanted - 1
    assert len(numbers) >= 30


def test_renewing_holds_a_bounded_number_of_windows_that_share_no_ticks() -> None:
    life = active(Rules(SECOND, wanted=600, most=600, lasting_us=0))
    life.drift(True)
    windows = None
    n = 0
    while windows is None:
        windows = life.renew(noise(n), flagged=False, episode=False)
        n += 1
    numbers = learned_numbers(windows)
    assert len(numbers) <= RENEWED
    assert set(np.diff(numbers)) == {3}
    assert life.every == 3
    assert numbers[-1] - numbers[0] > 580


def test_a_renewal_that_fails_leaves_the_old_baseline_in_force() -> None:
    life = active()
    life.drift(True)
    while life.renew(noise(1), flagged=False, episode=False) is None:
        pass
    life.could_not("bad luck")
    assert (life.stage, life.failed, life.fitting) == (Stage.DRIFTING, False, False)


# ---- another workload ---------------------------------------------------------------------------


def test_a_lasting_steady_change_of_all_is_another_workload() -> None:
    life = active()
    found = watch(life, range(100, 300), 3.0, onset=97)
    (n, finding) = found[0]
    assert finding is Finding.WORKLOAD
    assert 60 <= n - 97 <= 75
    assert life.stage is Stage.RELEARNING
    assert not life.judged
    for n in range(1000, 1050):
        done = life.learn(noise(n, 3.0))
    assert done
    windows = life.enough(TABLE)
    assert windows is not None
    assert learned_numbers(windows) == list(range(1000, 1050)), "nothing from before it was found"


@pytest.mark.parametrize("subsystem", range(4))
def test_one_subsystem_is_a_fault_however_long_and_after_an_hour_it_is_said(subsystem: int) -> None:
    factor = np.ones(C, np.float32)
    factor[5 * subsystem : 5 * subsystem + 5] = 50
    found = watch(active(), range(8000), factor)
    assert [f for _, f in found] == [Finding.LONG]
    assert 0 <= found[0][0] * SECOND - LONG_US <= 10 * SECOND


def test_a_change_that_is_not_steady_yet_is_waited_for() -> None:
    life = active()
    found = []
    for n in range(100, 400):
        factor = 3.0 + 0.1 * max(0, 250 - n)  # comes down until second 250
        found += watch(life, range(n, n + 1), factor, onset=97)
        if found:
            break
    assert found
    assert 250 < found[0][0] < 320


def test_what_ends_before_it_has_lasted_is_none_and_begins_from_nothing() -> None:
    life = active()
    assert watch(life, range(100, 150), 3.0) == []
    life.calm_again()
    assert watch(life, range(151, 200), 3.0) == []
    assert life.stage is Stage.ACTIVE


def test_it_can_be_turned_off() -> None:
    life = active(Rules(SECOND, wanted=50, most=150, lasting_us=0))
    assert watch(life, range(100, 1000), 3.0) == []


# ---- any order of events ------------------------------------------------------------------------


class AnyLife(RuleBasedStateMachine):
    """A life through any windows, against what must always hold."""

    @initialize()
    def begin(self) -> None:
        self.life = new_life()
        self.n = 0
        self.tainted: set[int] = set()
        """Windows that were judged to be odd."""
        self.handed: NDArray[np.float32] | None = None
        self.odd = False

    def row(self, factor: float = 1.0) -> NDArray[np.float32]:
        self.n += 1
        return noise(self.n, factor)

    def hand(self, windows: NDArray[np.float32] | None) -> None:
        if windows is not None:
            numbers = learned_numbers(windows)
            assert 1 <= len(numbers) <= LEARNED
            assert numbers == sorted(set(numbers))
            assert not self.tainted & set(numbers)
            self.handed = windows

    @rule(count=st.integers(1, 40), factor=st.sampled_from([1.0, 3.0]), odd=st.booleans())
    def windows(self, count: int, factor: float, odd: bool) -> None:
        for _ in range(count):
            row = self.row(factor)
            if not self.life.judged:
                if self.life.learn(row):
                    self.hand(self.life.enough(TABLE))
            else:
                if odd:
                    self.tainted.add(self.n)
                if self.life.stage is Stage.DRIFTING:
                    self.hand(self.life.renew(row, flagged=odd, episode=False))
                if odd:
                    self.life.watch(row, USUAL, TABLE, onset_us=0, end_us=self.n * SECOND)
                elif self.odd:
                    self.life.calm_again()
                self.odd = odd

    @rule(drifts=st.booleans())
    def drift(self, drifts: bool) -> None:
        self.life.drift(drifts)

    @precondition(lambda self: self.life.fitting)
    @rule(note=st.sampled_from(["", "restless"]))
    def fitted(self, note: str) -> None:
        self.life.fitted(note)
        assert (self.life.stage, self.life.reason) == (Stage.ACTIVE, note)

    @precondition(lambda self: self.life.fitting)
    @rule()
    def failed(self) -> None:
        judged = self.life.judged
        self.life.could_not("no luck")
        assert self.life.judged is judged

    @rule()
    def changed(self) -> None:
        self.life.change()
        assert self.life.stage is Stage.RELEARNING

    @invariant()
    def holds(self) -> None:
        life = self.life
        assert life.judged == (life.stage in {Stage.ACTIVE, Stage.DRIFTING})
        assert 0 <= life.progress <= 1
        assert not (life.fitting and life.stage is Stage.ACTIVE)
        assert not (life.failed and (life.judged or not life.reason))
        assert life.reason or life.stage is not Stage.DRIFTING
        assert len(life._recent) <= WATCHED
        assert len(life._pending) <= GUARD


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
