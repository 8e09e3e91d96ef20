"""Runs of odd windows become episodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.episode import (
    FORGET_STRIDES,
    LAST,
    TO_CLOSE,
    TO_OPEN,
    EpisodeBank,
    EpisodeEvent,
    Phase,
)

STRIDE = 10


def step(bank: EpisodeBank, slot: int, end: int, flag: bool) -> EpisodeEvent | None:
    """Take in one window; `end` in strides."""
    events = bank.step(np.array([slot]), np.array([end * STRIDE]), np.array([flag]), STRIDE)
    return events[0] if events else None


def phases(flags: str) -> str:
    """Return one letter a window for a string of flags (x) and clean windows (.)."""
    bank = EpisodeBank()
    out = ""
    for end, flag in enumerate(flags, start=1):
        event = step(bank, 0, end, flag == "x")
        out += "." if event is None else event.phase[0].upper()
    return out.replace("O", "o")


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("..xx...xx.", ".........."),
        (".xxx...", "...oooC"),
        ("x.x.x...", "....oooC"),
        ("x..x.x", "......"),
        ("xxx..x..x...", "..oooooooooC"),
        ("xxx...x", "..oooC."),
        ("xxx...xx", "..oooC.."),
        ("xxx...xxx", "..oooC..o"),
    ],
)
def test_three_of_five_open_and_three_clean_in_a_row_close(flags: str, wanted: str) -> None:
    assert phases(flags) == wanted


def test_an_episode_begins_with_the_newest_stride_of_its_first_flagged_window() -> None:
    bank = EpisodeBank()
    for end, flag in ((1, False), (2, True), (3, False), (4, True)):
        assert step(bank, 0, end, flag) is None
    opened = step(bank, 0, 5, True)
    assert opened == EpisodeEvent(0, Phase.OPEN, onset=1 * STRIDE, windows=4, flagged=3)
    assert step(bank, 0, 6, False) == EpisodeEvent(0, Phase.ONGOING, 10, windows=5, flagged=3)
    assert step(bank, 0, 7, True) == EpisodeEvent(0, Phase.ONGOING, 10, windows=6, flagged=4)


def test_windows_that_are_missing_count_neither_way() -> None:
    bank = EpisodeBank()
    ends = (1, 3, 7)
    events = [step(bank, 0, end, True) for end in ends]
    assert [e.phase if e else None for e in events] == [None, None, Phase.OPEN]
    events = [step(bank, 0, end, False) for end in (100, 200, 300)]
    assert [e.phase for e in events if e] == [Phase.ONGOING, Phase.ONGOING, Phase.CLOSED]


def test_flags_before_a_long_hole_are_forgotten() -> None:
    for hole, opens in ((FORGET_STRIDES, True), (FORGET_STRIDES + 1, False)):
        bank = EpisodeBank()
        step(bank, 0, 1, True)
        step(bank, 0, 2, True)
        assert (step(bank, 0, 2 + hole, True) is not None) == opens


def test_an_episode_is_closed_from_outside_once() -> None:
    bank = EpisodeBank()
    assert bank.close(3) is None
    for end in (1, 2, 3, 4):
        step(bank, 3, end, True)
    assert bank.close(3) == EpisodeEvent(-1, Phase.CLOSED, onset=0, windows=4, flagged=4)
    assert bank.close(3) is None
    assert step(bank, 3, 5, True) is None, "its windows are forgotten"


def test_a_slot_is_reset_for_another_host() -> None:
    bank = EpisodeBank()
    step(bank, 1, 1, True)
    step(bank, 1, 2, True)
    bank.reset(1)
    bank.reset(99)
    assert step(bank, 1, 3, True) is None


def test_no_window_is_no_event() -> None:
    none = np.empty(0, np.int64)
    assert EpisodeBank().step(none, none, np.empty(0, bool), STRIDE) == []


@dataclasses.dataclass
class Plain:
    """The rules in their plainest form, for one host."""

    seen: list[tuple[int, bool]] = dataclasses.field(default_factory=list)
    since: list[tuple[int, bool]] | None = None

    def step(self, end: int, flag: bool) -> tuple[Phase, int, int, int] | None:
        if self.since is None:
            if self.seen and end - self.seen[-1][0] > FORGET_STRIDES:
                self.seen = []
            self.seen = [*self.seen, (end, flag)][-LAST:]
            if not flag or sum(f for _, f in self.seen) < TO_OPEN:
                return None
            first = next(i for i, (_, f) in enumerate(self.seen) if f)
            self.since = self.seen[first:]
            return self.told(Phase.OPEN)
        self.since.append((end, flag))
        if any(f for _, f in self.since[-TO_CLOSE:]):
            return self.told(Phase.ONGOING)
        told = self.told(Phase.CLOSED)
        self.since, self.seen = None, []
        return told

    def told(self, phase: Phase) -> tuple[Phase, int, int, int]:
        assert self.since is not None
        onset = (self.since[0][0] - 1) * STRIDE
        return phase, onset, len(self.since), sum(f for _, f in self.since)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 1, 2, 15, 16, 40]), st.booleans()),
        max_size=120,
    )
)
def test_many_hosts_at_once_follow_the_plain_rules(windows: list[tuple[int, int, bool]]) -> None:
    plain = [Plain() for _ in range(4)]
    now = [0] * 4
    rows, wanted = [], []
    for i, (slot, later, flag) in enumerate(windows):
        now[slot] += later
        rows.append((slot, now[slot] * STRIDE, flag))
        told = plain[slot].step(now[slot], flag)
        if told is not None:
            wanted.append(EpisodeEvent(i, *told))
    slots, ends, flags = (np.array(c) for c in zip(*rows, strict=True)) if rows else ([],) * 3
    got = EpisodeBank().step(
        np.asarray(slots, np.int64), np.asarray(ends, np.int64), np.asarray(flags, bool), STRIDE
    )
    assert got == wanted
