"""The numbers of a host that does not exist, how they move, and the files that show them.

A file is a template with a place for each number. All numbers of a host move at once: a counter
grows at its rate, a level wavers about its value. Those of one `group` share what is theirs, as
the states of a core share its time. A total is the sum of what goes `into` it, so that lines
which the kernel adds up do add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UPTIME_S = 40 * 86400
"""So long the host has been up at the start."""

UNEVEN = 0.3
"""A rate is at any moment so much of itself off, at most."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a file.

    Attributes
    ----------
    value
        What it is at the start; for a level what it wavers about.
    rate
        By how much it grows in a second.
    waver
        The share of its value by which a level is off at most.
    modulus
        Where it wraps to 0, or 0.
    group
        Those of one group grow by what their rates add up to, whatever each one's part is.
    into, total
        Names of sums that it is a part of, parted by spaces; the name of the sum that it is.
    """

    value: float = 0
    rate: float = 0
    waver: float = 0
    modulus: float = 0
    group: str = ""
    into: str = ""
    total: str = ""


ZERO = Number()


def fixed(value: float) -> Number:
    """Return a number that stays as it is."""
    return Number(value)


def counter(
    rate: float, *, since_s: float = UPTIME_S, bits: int = 64, group: str = "", into: str = ""
) -> Number:
    """Return a count that has grown at `rate` a second for `since_s` seconds."""
    modulus = 2.0**bits if bits < 64 else 0.0
    return Number(rate * since_s, rate, modulus=modulus, group=group, into=into)


def level(value: float, waver: float = 0.02, into: str = "") -> Number:
    """Return a number that goes up and down."""
    return Number(value, waver=waver, into=into)


def total(name: str) -> Number:
    """Return the sum of the numbers that go into `name`."""
    return Number(total=name)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    template: str
    place: slice


class Files:
    """All files of a host.

    `links` are other names of directories, and what they lead to. `step` lets time pass;
    `changed` gives the texts that moved since, `every` all of them.
    """

    def __init__(self, seed: int) -> None:
        self.links: dict[str, str] = {}
        self._random = np.random.default_rng(seed)
        self._numbers: list[Number] = []
        self._files: list[_File] = []
        self._shown: list[int] = []
        self._value: NDArray[np.float64] = np.empty(0)

    def add(self, path: str, template: str, *numbers: Number) -> None:
        """Add a file: printf's places for whole numbers, and what goes there."""
        start = len(self._numbers)
        self._numbers += numbers
        self._files.append(_File(path, template, slice(start, len(self._numbers))))

    def one(self, path: str, number: Number) -> None:
        """Add a file that is one number."""
        self.add(path, "%d\n", number)

    def text(self, path: str, text: str) -> None:
        """Add a file that stays as it is."""
        self.add(path, text.replace("%", "%%") + "\n")

    def link(self, path: str, target: str) -> None:
        """Let a name lead to another directory; what lies in it is added under one name."""
        self.links[path] = target

    def ready(self) -> None:
        """Take what was added; nothing is added any more."""
        n = self._numbers
        uneven = self._random.uniform(0.6, 0.99, len(n))
        counted = np.array([x.rate > 0 for x in n])
        self._value = np.array([x.value for x in n]) * np.where(counted, uneven, 1.0)
        self._rate = np.array([x.rate for x in n])
        self._waver = np.array([x.waver for x in n])
        self._wraps = np.array([i for i, x in enumerate(n) if x.modulus], np.intp)
        self._modulus = np.array([x.modulus for x in n if x.modulus])
        names = {name: i for i, name in enumerate(sorted({x.group for x in n}))}
        self._group = np.array([names[x.group] for x in n])
        self._alone = np.array([not x.group for x in n])
        parts = [(i, name) for i, x in enumerate(n) for name in x.into.split()]
        sums = {name: i for i, name in enumerate(dict.fromkeys(name for _, name in parts))}
        self._parts = np.array([i for i, _ in parts], np.intp)
        self._into = np.array([sums[name] for _, name in parts], np.intp)
        self._sums = len(sums)
        self._totals = np.array([i for i, x in enumerate(n) if x.total], np.intp)
        self._total_of = np.array([sums[n[i].total] for i in self._totals], np.intp)
        moves = (self._rate > 0) | (self._waver > 0)
        moving = {name for i, name in parts if moves[i]}
        moves |= np.array([x.total in moving and bool(x.total) for x in n])
        self._moving = [f for f in self._files if moves[f.place].any()]
        self.step(0.0)

    def step(self, seconds: float) -> None:
        """Let time pass."""
        n = len(self._value)
        grown = self._rate * self._random.uniform(1 - UNEVEN, 1 + UNEVEN, n)
        meant = np.bincount(self._group, self._rate)
        got = np.bincount(self._group, grown)
        share = np.divide(meant, got, out=np.ones(len(got)), where=got > 0)
        self._value += seconds * grown * np.where(self._alone, 1.0, share[self._group])
        off = self._waver * self._random.uniform(-1, 1, n)
        shown = np.floor(self._value * (1 + off))
        shown[self._wraps] %= self._modulus
        if self._totals.size:
            sums = np.bincount(self._into, shown[self._parts], self._sums)
            shown[self._totals] = sums[self._total_of]
        self._shown = shown.astype(np.int64).tolist()

    def every(self) -> dict[str, bytes]:
        """Return the text of every file, by the path under which it was added."""
        return dict(self._texts(self._files))

    def linked(self) -> dict[str, bytes]:
        """Return the text of every file by each path that leads to it."""
        found = self.every()
        for link, target in reversed(self.links.items()):
            for here, there in ((link, target), (target, link)):
                below = f"{here}/"
                for path in [path for path in found if path.startswith(below)]:
                    found.setdefault(f"{there}/{path.removeprefix(below)}", found[path])
        return found

    def changed(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and text of the files that move at all."""
        return self._texts(self._moving)

    def _texts(self, files: Sequence[_File]) -> Iterator[tuple[str, bytes]]:
        shown = self._shown
        for file in files:
            yield file.path, (file.template % tuple(shown[file.place])).encode()


def table(text: str) -> dict[str, float]:
    """Return ``{"a": 1.0, "b": 2.0}`` for ``a 1  b 2``."""
    words = text.split()
    return {name: float(number) for name, number in zip(words[::2], words[1::2], strict=True)}


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()


def spread(over: Sequence[float], whole: float) -> list[float]:
    """Return `whole` in parts that are as `over` says."""
    return [whole * part / sum(over) for part in over]
