"""A bounded store of rows that goes on to span everything it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Thin:
    """Rows of which, when there is no more room, every other one goes: still spread over all time.

    Parameters
    ----------
    width
        Of a row.
    capacity
        Most rows that are kept.
    every
        Of how many rows one is kept from the start.
    """

    def __init__(self, width: int, capacity: int, every: int = 1) -> None:
        self._rows = np.empty((capacity, width), np.float32)  # takes memory as it fills
        self._kept = 0
        self.every = every
        self.seen = 0

    def add(self, row: NDArray[np.float32]) -> None:
        """Take a row, of which only the first `width` values count."""
        if self.seen % self.every == 0:
            if self._kept == len(self._rows):
                half = self._rows[::2].copy()
                self._kept, self.every = len(half), 2 * self.every
                self._rows[: self._kept] = half
            if self.seen % self.every == 0:
                self._rows[self._kept] = row[: self._rows.shape[1]]
                self._kept += 1
        self.seen += 1

    @property
    def rows(self) -> NDArray[np.float32]:
        """What is kept, in order."""
        return self._rows[: self._kept]
