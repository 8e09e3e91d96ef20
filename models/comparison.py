"""Two sets of episodes of the same time held against each other: what a change would have done.

Episodes of a host that overlap are about the same. Those that overlap, directly or through
others, make one change: one and one is the same episode kept, one and none is new or gone, one
and several is a split, several and one a merger.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Kind(StrEnum):
    """What became of episodes."""

    KEPT = "kept"
    NEW = "new"
    GONE = "gone"
    SPLIT = "split"
    MERGED = "merged"
    REGROUPED = "regrouped"
    """Several became several others."""


@dataclass(frozen=True, slots=True)
class Spell:
    """One episode of one host. Times are in microseconds.

    Attributes
    ----------
    onset_us, end_us
        What it covers; the end is later than the onset.
    opened_us
        When it was told.
    subsystem, cause
        What it was taken for at last; empty for nothing.
    """

    host: str
    onset_us: int
    opened_us: int
    end_us: int
    subsystem: str = ""
    cause: str = ""

    def overlaps(self, other: Spell) -> bool:
        """Return whether both are of one host and have some time in common."""
        return (
            self.host == other.host
            and self.onset_us < other.end_us
            and other.onset_us < self.end_us
        )


@dataclass(frozen=True, slots=True)
class Change:
    """Episodes that are about the same, before and after, each in order of onset."""

    before: tuple[Spell, ...]
    after: tuple[Spell, ...]

    @property
    def kind(self) -> Kind:
        """What became of them."""
        match len(self.before), len(self.after):
            case 0, _:
                return Kind.NEW
            case _, 0:
                return Kind.GONE
            case 1, 1:
                return Kind.KEPT
            case 1, _:
                return Kind.SPLIT
            case _, 1:
                return Kind.MERGED
        return Kind.REGROUPED

    @property
    def host(self) -> str:
        """Whose they are."""
        return (self.before or self.after)[0].host

    @property
    def onset_us(self) -> int:
        """When the first began."""
        return min(spell.onset_us for spell in (*self.before, *self.after))

    @property
    def end_us(self) -> int:
        """When the last was over."""
        return max(spell.end_us for spell in (*self.before, *self.after))

    @property
    def later_s(self) -> float | None:
        """Seconds by which it is told later than before, less than 0 for earlier; None if not."""
        if not self.before or not self.after:
            return None
        return (_first_told(self.after) - _first_told(self.before)) / 1e6

    @property
    def is_same(self) -> bool:
        """Return whether nothing at all is different."""
        return self.before == self.after


def compare(before: Iterable[Spell], after: Iterable[Spell]) -> list[Change]:
    """Return what became of every episode, in order of onset and host; each is in one change.

    Parameters
    ----------
    before, after
        In any order.
    """
    hosts: dict[str, tuple[list[Spell], list[Spell]]] = {}
    for side, spells in enumerate((before, after)):
        for spell in spells:
            hosts.setdefault(spell.host, ([], []))[side].append(spell)
    changes = [change for one, other in hosts.values() for change in _group(one, other)]
    return sorted(changes, key=lambda c: (c.onset_us, c.host, c.end_us))


def _group(before: list[Spell], after: list[Spell]) -> list[Change]:
    """Return the connected parts of the graph of overlaps between two sides of one host."""
    sides = (before, after)
    left = [set(range(len(side))) for side in sides]
    changes = []
    for first in (0, 1):
        while left[first]:
            start = left[first].pop()
            found: tuple[list[int], list[int]] = ([], [])
            found[first].append(start)
            waiting = [(first, start)]
            while waiting:
                side, place = waiting.pop()
                spell, other = sides[side][place], 1 - side
                near = {i for i in left[other] if spell.overlaps(sides[other][i])}
                left[other] -= near
                found[other].extend(near)
                waiting.extend((other, i) for i in near)
            changes.append(
                Change(
                    *(
                        _in_order(sides[side][i] for i in places)
                        for side, places in enumerate(found)
                    )
                )
            )
    return changes


def _in_order(spells: Iterable[Spell]) -> tuple[Spell, ...]:
    return tuple(sorted(spells, key=lambda s: (s.onset_us, s.end_us)))


def _first_told(spells: Sequence[Spell]) -> int:
    return min(spell.opened_us for spell in spells)
