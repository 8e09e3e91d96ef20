"""Metric reanalysis: which channels carry information of their own, and who stands for whom.

Channels that were absent or constant in the baseline say nothing about what moves together with
what, and leave (they are still watched one by one, by `models.zscore` and `models.extremes`). Of
channels whose means are correlated at ``|r|`` or more, one stands for all: the one that is
correlated with the most others is taken first, then of what is left the next (the paper, section on
metric selection, prunes at 0.5). It remembers whom it stands for, so that blame can name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOBODY = -1
"""In place of a channel's representative: it left, constant or absent."""
MOVES = 0.02
"""Deviation in scales below which a channel is as good as constant."""


def representatives(
    z: NDArray[np.float32], most_correlation: float, most_rows: int = 2000
) -> NDArray[np.int32]:
    """Return who stands for each channel: itself, another, or `NOBODY`; shape ``(channels,)``.

    Parameters
    ----------
    z
        Standardised means of windows, shape ``(windows, channels)``; 0 where not scored.
    most_correlation
        ``|r|`` from which on one stands for another; over 1 all stand for themselves.
    most_rows
        Windows that are looked at, evenly spread, so that a long baseline costs no more.
    """
    rows = z[np.unique(np.linspace(0, len(z) - 1, min(most_rows, len(z))).astype(int))]
    rows = rows.astype(np.float64) - rows.mean(axis=0)
    deviation = np.sqrt((rows * rows).mean(axis=0))
    live = np.flatnonzero(deviation > MOVES)
    out = np.full(z.shape[1], NOBODY, np.int32)
    if most_correlation > 1.0:
        out[live] = live
        return out
    unit = rows[:, live] / (deviation[live] * np.sqrt(len(rows)))
    alike = np.abs(unit.T @ unit) >= most_correlation
    np.fill_diagonal(alike, val=True)
    left = np.ones(len(live), bool)
    for i in np.argsort(-alike.sum(axis=0), kind="stable"):
        if left[i]:
            taken = alike[i] & left
            out[live[taken]] = live[i]
            left &= ~taken
    return out
