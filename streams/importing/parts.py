"""From rows as they were read to a host's channels, tick by tick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from schemas.records import Floats, Longs
from streams.importing.meaning import How, Meaning
from streams.importing.spool import Doubles, Spool
from streams.importing.table import Lost
from streams.importing.times import grid_ticks, usual_distance_us

LARGEST = float(np.finfo(np.float32).max)


@dataclass(slots=True, eq=False)
class Part:
    """Some columns of one host.

    `columns` are their places in the spool, `meanings` what they are, `named_twice` how many
    others were left out because they have the names of these.
    """

    host: str
    where: str
    spool: Spool
    columns: list[int]
    meanings: list[Meaning]
    named_twice: int = 0

    @property
    def distance_us(self) -> float:
        """How far its rows are usually apart."""
        return usual_distance_us(self.spool.stamps)


@dataclass(slots=True)
class Read:
    """What was read of one file.

    `unnamed` are columns whose name is not of the expected kind, `words` those that hold no
    numbers by their nature.
    """

    path: Path
    parts: list[Part]
    rows: int = 0
    columns: int = 0
    times: str = ""
    unnamed: int = 0
    words: int = 0
    lost: Lost = field(default_factory=Lost)

    def close(self) -> None:
        """Give back the disk space of what was read."""
        for part in self.parts:
            part.spool.close()


@dataclass(slots=True)
class Moved:
    """Rows that are not where they were, or not there any more."""

    duplicates: int = 0
    out_of_order: int = 0
    off_grid: int = 0
    too_large: int = 0
    """Cells beyond what float32 holds: they are NaN."""


@dataclass(slots=True)
class Kept:
    """What became of the columns of a part."""

    missing: int = 0
    zero: int = 0
    totals: int = 0
    meanings: list[Meaning] = field(default_factory=list)


class Track:
    """A part's rows in the order of the clock grid, one for each tick, as values of channels.

    Attributes
    ----------
    ticks
        Numbers of its ticks, rising.
    kept
        Columns that hold a value anywhere, and what was left out.
    moved
        What happened to its rows; complete when all have been taken.
    """

    def __init__(self, part: Part, interval_us: int) -> None:
        spool, stamps = part.spool, part.spool.stamps
        self.moved = Moved()
        self.kept = Kept()
        self._seconds = interval_us / 1e6
        ticks = grid_ticks(stamps, interval_us)
        order = np.argsort(ticks, kind="stable")
        ordered = ticks[order]
        first = np.diff(ordered, prepend=-1) > 0
        self.ticks: Longs = ordered[first]
        self._order = order[first]
        self.moved.duplicates = len(stamps) - len(self.ticks)
        self.moved.off_grid = int(np.count_nonzero(stamps % interval_us))
        if len(stamps):
            self.moved.out_of_order = int((stamps < np.maximum.accumulate(stamps)).sum())
        self._spool = spool
        columns, hows = [], []
        for column, meaning in zip(part.columns, part.meanings, strict=True):
            if not spool.seen[column]:
                self.kept.missing += 1
                continue
            how = meaning.how
            if how is How.EITHER:
                total = spool.nonzero[column] and not spool.fell[column]
                how = How.TOTAL if total else How.PER_SAMPLE
            self.kept.zero += not spool.nonzero[column]
            self.kept.totals += how is How.TOTAL
            self.kept.meanings.append(meaning)
            columns.append(column)
            hows.append(how)
        self._columns = np.array(columns, np.intp)
        per_sample = np.array([how is How.PER_SAMPLE for how in hows], np.bool_)
        scales = np.array([m.scale for m in self.kept.meanings])
        self._scales = np.where(per_sample, scales / self._seconds, scales)
        self._totals = np.flatnonzero([how is How.TOTAL for how in hows])
        # The row before, of the columns that are totals: differences go on across `take`.
        self._before = np.full((1, len(self._totals)), math.nan)
        self._tick_before = -1

    def take(self, start: int, end: int) -> Floats:
        """Return rows `start` to `end` of `ticks`, shape ``(rows, kept columns)``, in order."""
        rows = self._order[start:end]
        if not len(rows):
            return np.empty((0, len(self._columns)), np.float32)
        values = self._spool.read(rows)[:, self._columns]
        if len(self._totals):
            self._to_rates(values, self.ticks[start:end])
        values *= self._scales
        too_large = np.abs(values) > LARGEST
        if too_large.any():
            self.moved.too_large += int(too_large.sum())
            values[too_large] = math.nan
        return values.astype(np.float32)

    def _to_rates(self, values: Doubles, ticks: Longs) -> None:
        """Replace totals by what they grew by per second; NaN at a reset, and after a hole."""
        totals = values[:, self._totals]
        seconds = np.diff(ticks, prepend=self._tick_before) * self._seconds
        grown = np.diff(totals, axis=0, prepend=self._before)
        grown[grown < 0] = math.nan
        values[:, self._totals] = grown / seconds[:, None]
        self._before, self._tick_before = totals[-1:], int(ticks[-1])


def same_host(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """Return the parts of each host, hosts in the order in which they first come."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.host, []).append(part)
    return found
