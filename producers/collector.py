"""The contract of a collector: one source of numbers, one small file in `producers/collectors/`.

To add one:

1. write a class with the attributes and the method of `Collector`; most need no more than a
   planner for `producers.parsing.NumberReader`, which says what number stands where;
2. add it to the table `ALL` in `producers/collectors/__init__.py`.

`tests/producers/test_every_collector.py` then runs over it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from producers.metric import Metric
from producers.reading import Reader


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that a collector needs, and what to tell someone whose kernel does not have it."""

    path: str
    gives: str
    remedy: str


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What one read gave.

    Attributes
    ----------
    metrics
        What the numbers are: the same object as long as they are the same.
    numbers
        Shape ``(len(metrics),)``; NaN where a field was broken.
    """

    metrics: tuple[Metric, ...]
    numbers: NDArray[np.float64]


class Collector(Protocol):
    """Reads one source.

    Attributes
    ----------
    name
        Short name, for messages and for the time that it takes.
    sources
        The files that it reads.
    broken
        Fields that could not be read, by metric.
    """

    @property
    def name(self) -> str:
        """Short name."""
        ...

    @property
    def sources(self) -> tuple[SourceFile, ...]:
        """The files that it reads."""
        ...

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read so far, by metric."""
        ...

    def read(self, reader: Reader) -> Reading:
        """Read the source now; OSError when it cannot be had."""
        ...
