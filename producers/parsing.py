"""Reading numbers out of a text of words, fast as long as its words stay where they are.

A kernel file keeps its shape from read to read: the same labels at the same places, other
numbers between them. So where each number stands is worked out once, by a planner that knows the
format; after that a read is a split, a comparison of all labels in one go, and a pick of all
numbers in one go. When a label moved, the plan is made anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from producers.metric import Metric

LARGEST = float(2**64)

Words: TypeAlias = list[bytes]
Planned: TypeAlias = list[tuple[Metric, int]]
"""Metrics and the places of their numbers among the words of the text."""
Planner: TypeAlias = Callable[[list[tuple[int, Words]]], Planned]
"""Gets the lines, each as the place of its first word and its words."""


class NumberReader:
    """Numbers of one kind of text.

    Attributes
    ----------
    metrics
        What the numbers are: the same object as long as the shape of the text stays.
    broken
        Fields that were no number, or negative, or over 64 bits, by metric.
    """

    def __init__(self, plan: Planner, separators: bytes = b"") -> None:
        self._plan = plan
        self._table = bytes.maketrans(separators, b" " * len(separators)) if separators else None
        self._count = -1
        self._labels: tuple[bytes, ...] = ()
        self._pick_labels: Callable[[Words], tuple[bytes, ...]] = tuple
        self._pick_numbers: Callable[[Words], tuple[bytes, ...]] = tuple
        self.metrics: tuple[Metric, ...] = ()
        self.broken: Counter[str] = Counter()

    def read(self, text: bytes) -> NDArray[np.float64]:
        """Return the numbers of a text, shape ``(len(metrics),)``; NaN for a broken field."""
        if self._table is not None:
            text = text.translate(self._table)
        words = text.split()
        if len(words) != self._count or self._pick_labels(words) != self._labels:
            self._make_plan(text, words)
        picked = self._pick_numbers(words)
        try:
            numbers = np.array(list(map(float, picked)))
        except ValueError:
            return self._read_each(picked)
        # One comparison finds what is negative, too large or not a number.
        if not len(numbers) or (numbers.min() >= 0 and numbers.max() < LARGEST):
            return numbers
        return self._read_each(picked)

    def _read_each(self, picked: Sequence[bytes]) -> NDArray[np.float64]:
        out = np.full(len(picked), np.nan)
        for i, word in enumerate(picked):
            try:
                number = float(word)
            except ValueError:
                number = math.nan
            if 0 <= number < LARGEST:
                out[i] = number
            else:
                self.broken[self.metrics[i].label] += 1
        return out

    def _make_plan(self, text: bytes, words: Words) -> None:
        lines: list[tuple[int, Words]] = []
        at = 0
        for line in text.splitlines():
            if line_words := line.split():
                lines.append((at, line_words))
                at += len(line_words)
        planned = self._plan(lines)
        metrics = tuple(metric for metric, _ in planned)
        if metrics != self.metrics:
            self.metrics = metrics
        self._count = len(words)
        self._pick_numbers = _picker([place for _, place in planned])
        self._pick_labels = _picker([place for place, _ in lines])
        self._labels = self._pick_labels(words)


def _picker(places: Sequence[int]) -> Callable[[Words], tuple[bytes, ...]]:
    """Return a function that picks words by place, as a tuple even for none or one."""
    if not places:
        return lambda _: ()
    if len(places) == 1:
        place = places[0]
        return lambda words: (words[place],)
    return itemgetter(*places)
