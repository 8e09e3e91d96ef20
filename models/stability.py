"""Whether windows of another length find the same: overlap of intervals.

As in the paper's comparison of window configurations: for each interval of the default, the best
intersection over union with one of the other configuration, of which the median is told, and the
hit rate, the share of the default's intervals that any of the other overlaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Span = tuple[int, int]
"""Begin and end, the end later than the begin, in any unit of time."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well the intervals of one configuration are found by another.

    Attributes
    ----------
    intervals, others
        Of the one and of the other, on all hosts.
    hits
        How many of `intervals` any of the others overlaps.
    median_iou
        Of the best intersection over union of each interval, 0 where nothing overlaps; NaN
        without intervals.
    """

    intervals: int
    others: int
    hits: int
    median_iou: float

    @property
    def hit_rate(self) -> float:
        """Share of the intervals that were hit; NaN without any."""
        return self.hits / self.intervals if self.intervals else math.nan


def iou(a: Span, b: Span) -> float:
    """Return the intersection of two intervals over their union, from 0 to 1."""
    common = min(a[1], b[1]) - max(a[0], b[0])
    return max(0, common) / ((a[1] - a[0]) + (b[1] - b[0]) - max(0, common))


def agreement(
    intervals: Mapping[str, Sequence[Span]], others: Mapping[str, Sequence[Span]]
) -> Agreement:
    """Hold the intervals of each host against those of the other configuration.

    Parameters
    ----------
    intervals, others
        By host, in any order. ValueError for one that does not end after it begins.
    """
    for spans in (*intervals.values(), *others.values()):
        _check(spans)
    best = [
        max((iou(span, other) for other in others.get(host, ())), default=0.0)
        for host, spans in intervals.items()
        for span in spans
    ]
    return Agreement(
        intervals=len(best),
        others=sum(map(len, others.values())),
        hits=sum(share > 0 for share in best),
        median_iou=median(best) if best else math.nan,
    )


def _check(spans: Iterable[Span]) -> None:
    for begin, end in spans:
        if end <= begin:
            raise ValueError(f"an interval from {begin} to {end} does not end after it begins")
