"""Episodes before and after a change, by hand and by what must hold for any."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from models.comparison import Change, Kind, Spell, compare

S = 1_000_000


def spell(onset: float, end: float, host: str = "a", opened: float | None = None) -> Spell:
    told = onset + 3 if opened is None else opened
    return Spell(host, int(onset * S), int(told * S), int(end * S), "cpu", "")


@st.composite
def episodes(draw: st.DrawFn) -> list[Spell]:
    """Episodes as a worker tells them: those of one host do not overlap."""
    found = []
    for host in "ab":
        edges = sorted(draw(st.sets(st.integers(0, 60), max_size=10)))
        for onset, end in list(pairwise(edges))[:: draw(st.integers(1, 2))]:
            opened = onset + draw(st.integers(0, 3))
            subsystem = draw(st.sampled_from(["cpu", "memory"]))
            found.append(replace(spell(onset, end, host, opened), subsystem=subsystem))
    return draw(st.permutations(found))


def kinds(changes: list[Change]) -> list[Kind]:
    return [change.kind for change in changes]


def test_what_can_become_of_episodes() -> None:
    before = [spell(0, 10), spell(20, 30), spell(40, 60), spell(70, 75), spell(76, 80)]
    after = [spell(2, 12), spell(41, 45), spell(50, 59), spell(69, 81), spell(90, 95)]
    changes = compare(before, after)
    assert kinds(changes) == [Kind.KEPT, Kind.GONE, Kind.SPLIT, Kind.MERGED, Kind.NEW]
    assert [c.later_s for c in changes] == [2, None, 1, -1, None]
    assert changes[2].before == (before[2],)
    assert changes[2].after == (after[1], after[2])
    assert (changes[3].onset_us, changes[3].end_us) == (69 * S, 81 * S)


def test_several_that_became_others() -> None:
    (change,) = compare([spell(0, 10), spell(15, 30)], [spell(5, 20), spell(25, 40)])
    assert change.kind is Kind.REGROUPED
    assert change.later_s == 5


def test_episodes_of_other_hosts_and_those_that_only_touch_are_not_the_same() -> None:
    assert kinds(compare([spell(0, 10)], [spell(0, 10, "b")])) == [Kind.GONE, Kind.NEW]
    assert kinds(compare([spell(0, 10)], [spell(10, 20)])) == [Kind.GONE, Kind.NEW]


def test_another_subsystem_is_kept_but_not_the_same() -> None:
    (change,) = compare([spell(0, 10)], [replace(spell(0, 10), subsystem="memory")])
    assert change.kind is Kind.KEPT
    assert not change.is_same
    assert change.later_s == 0


@given(episodes())
def test_nothing_changes_against_itself(some: list[Spell]) -> None:
    changes = compare(some, reversed(some))
    assert len(changes) == len(some)
    assert all(c.kind is Kind.KEPT and c.is_same and c.later_s == 0 for c in changes)


@given(episodes(), episodes())
def test_each_episode_is_in_one_change_and_changes_do_not_overlap(
    before: list[Spell], after: list[Spell]
) -> None:
    changes = compare(before, after)
    assert Counter(s for c in changes for s in c.before) == Counter(before)
    assert Counter(s for c in changes for s in c.after) == Counter(after)
    for change in changes:
        assert {s.host for s in (*change.before, *change.after)} == {change.host}
        for other in changes:
            if other is not change:
                assert not any(b.overlaps(a) for b in change.before for a in other.after)
    assert [c.onset_us for c in changes] == sorted(c.onset_us for c in changes)


@given(episodes(), episodes())
def test_the_other_way_round_it_is_the_opposite(before: list[Spell], after: list[Spell]) -> None:
    opposite = {Kind.NEW: Kind.GONE, Kind.GONE: Kind.NEW, Kind.SPLIT: Kind.MERGED}
    opposite[Kind.MERGED] = Kind.SPLIT
    there = {(c.before, c.after): c for c in compare(before, after)}
    back = {(c.after, c.before): c for c in compare(after, before)}
    assert there.keys() == back.keys()
    for key, change in there.items():
        assert back[key].kind is opposite.get(change.kind, change.kind)
        assert back[key].later_s == (None if change.later_s is None else -change.later_s)


@given(episodes(), episodes())
def test_parts_are_connected(before: list[Spell], after: list[Spell]) -> None:
    for change in compare(before, after):
        reached = {("b", 0)} if change.before else {("a", 0)}
        while True:
            more = set(reached)
            for i, b in enumerate(change.before):
                for j, a in enumerate(change.after):
                    if b.overlaps(a) and {("b", i), ("a", j)} & reached:
                        more |= {("b", i), ("a", j)}
            if more == reached:
                break
            reached = more
        assert len(reached) == len(change.before) + len(change.after)
