"""Rows on disk between reading a file and writing its recordings.

What a column is worth, how far apart rows are and in which order they belong is known only at a
file's end, and a file can be larger than memory. Reading its text twice would cost more than this.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from schemas.records import Longs
from streams.importing.errors import InvalidImport

Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Spool:
    """Rows of numbers with their times, in a file that has no name and goes with this object.

    Attributes
    ----------
    seen, nonzero
        Of each column: whether any value was there, was not zero.
    rose, fell
        Of each column: how often a value was more, or less, than that of the row before in time.

    Raises
    ------
    InvalidImport
        There is no place for it in `directory`.
    """

    def __init__(self, columns: int, directory: Path) -> None:
        self.columns = columns
        self.rows = 0
        self.seen: Flags = np.zeros(columns, np.bool_)
        self.nonzero: Flags = np.zeros(columns, np.bool_)
        self.rose = np.zeros(columns, np.int64)
        self.fell = np.zeros(columns, np.int64)
        self._last = np.full((1, columns), np.nan)
        self._newest = -1
        self._stamps: list[Longs] = []
        self._directory = directory
        try:
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by `close`
        except OSError as e:
            raise InvalidImport(f"{directory} cannot be written to: {e.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()

    def add(self, stamps: Longs, values: Doubles) -> None:
        """Append rows: shapes ``(rows,)`` and ``(rows, columns)``.

        Raises
        ------
        InvalidImport
            The disk is full.
        """
        if not len(stamps):
            return
        there = ~np.isnan(values)
        self.seen |= there.any(axis=0)
        self.nonzero |= (there & (values != 0)).any(axis=0)
        before = np.concatenate((self._last, values[:-1]))
        later = np.diff(stamps, prepend=self._newest) > 0
        if later.all():
            now = values
        else:
            now, before = values[later], before[later]
        self.rose += np.count_nonzero(now > before, axis=0)
        self.fell += np.count_nonzero(now < before, axis=0)
        self._last, self._newest = values[-1:].copy(), int(stamps[-1])
        try:
            self._file.write(np.ascontiguousarray(values).data)
        except OSError as e:
            raise InvalidImport(
                f"{self._directory} has no room for what is being read: {e.strerror}; "
                "name another place with --out"
            ) from None
        self.rows += len(stamps)
        self._stamps.append(stamps)

    @property
    def stamps(self) -> Longs:
        """Times of all rows, microseconds, in the order in which they were added."""
        return np.concatenate([np.empty(0, np.int64), *self._stamps])

    def read(self, rows: Longs) -> Doubles:
        """Return some rows by number, shape ``(rows, columns)``: a read for each run of them.

        Raises
        ------
        InvalidImport
            The disk is full, or fails.
        """
        width = 8 * self.columns
        try:
            self._file.flush()
            starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
            data = b"".join(
                os.pread(self._file.fileno(), width * len(run), width * int(run[0]))
                for run in np.split(rows, starts[1:])
                if len(run)
            )
        except OSError as e:
            raise InvalidImport(f"{self._directory} is full, or fails: {e.strerror}") from None
        return np.frombuffer(data).reshape(len(rows), self.columns)
