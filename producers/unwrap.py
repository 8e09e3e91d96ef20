"""How far counters of 32 bits went on, many at once, whatever became of them in between.

What `producers.rates` tells apart for each field this does for the cells of a table, before they
are added up: a sum of counters that wrap does not itself wrap anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from producers.rates import PATIENCE, STEP_BACK, STEP_BACK_COUNTS, WRAP_GROWTH
from producers.source import WRAPS_32, Doubles


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Counters between two readings; every array has one element for each.

    Attributes
    ----------
    last
        The last good value, NaN before the first.
    low
        A drop that the next reading has to confirm, or NaN.
    below
        Readings in which it stayed below its last good value.
    """

    last: Doubles
    low: Doubles
    below: NDArray[np.int64]

    @property
    def steady(self) -> bool:
        """Whether none of them waits for a reading to decide what a drop was."""
        return not self.below.any()


def fresh(last: Doubles) -> Cells:
    """Return counters of which nothing but their last good values is to be remembered."""
    return Cells(last, np.full(len(last), np.nan), np.zeros(len(last), np.int64))


def growth(now: Doubles, cells: Cells, peak: float) -> tuple[Doubles, Cells]:
    """Return how much each counter grew since its last good value, NaN where unknown.

    The cases are those of `producers.rates`: a momentary zero and a drop that nothing confirms
    are unknown, a small step back is no growth, a drop that the next reading goes on from is a
    reset, and a wrap is believed when it means at most `WRAP_GROWTH` times the `peak`.

    Parameters
    ----------
    now
        The newest reading; NaN where a number was none.
    cells
        What was known before it.
    peak
        The most that any of them grew between two readings.
    """
    delta = now - cells.last
    valid = ~np.isnan(now)
    # A NaN makes every comparison false.
    back = delta < 0
    patient = back & (cells.below < PATIENCE)
    over = delta + WRAPS_32
    zero = patient & (now == 0)
    wrap = back & ~zero & (over >= 0) & (over <= WRAP_GROWTH * peak)
    step = patient & ~wrap & ~zero
    step &= -delta <= np.maximum(STEP_BACK_COUNTS, STEP_BACK * cells.last)
    drop = back & ~zero & ~wrap & ~step
    reset = drop & (now >= cells.low)
    doubt = drop & ~reset & patient
    grown = delta
    grown[wrap] = over[wrap]
    grown[step] = 0.0
    grown[reset] = (now - cells.low)[reset]
    grown[zero | (drop & ~reset)] = np.nan
    wait = zero | step | doubt
    return grown, Cells(
        last=np.where(wait | ~valid, cells.last, now),
        low=np.where(doubt, now, np.where(valid & ~zero, np.nan, cells.low)),
        below=np.where(wait, cells.below + 1, np.where(valid, 0, cells.below)),
    )
