"""From rows as they were read to a host's channels, tick by tick."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from schemas.records import Floats, Longs
from streams.importing.meaning import How, Meaning
from streams.importing.spool import Doubles, Spool
from streams.importing.table import Lost
from streams.importing.times import grid_ticks, usual_distance_us

LARGEST = float(np.finfo(np.float32).max)
TOTAL_FALLS = 1 / 4
"""Of its changes a total has fewer falls than this: those are counters that began anew. What is
counted per sample goes down as often as up."""


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
    numbers by their nature. `doubt` is what may have been misunderstood, in words.
    """

    path: Path
    parts: list[Part]
    rows: int = 0
    columns: int = 0
    times: str = ""
    doubt: str = ""
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
    together: int = 0
    """Rows that came on the tick of another."""
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


def totals(parts: Sequence[Part]) -> set[tuple[str, str]]:
    """Return metric and device of the columns of a host that are running totals.

    Parameters
    ----------
    parts
        All of it: a column of several files is the same in each.
    """
    rose: Counter[tuple[str, str]] = Counter()
    fell: Counter[tuple[str, str]] = Counter()
    found = set()
    for part in parts:
        for column, meaning in zip(part.columns, part.meanings, strict=True):
            key = meaning.channel.metric, meaning.channel.device
            if meaning.how is How.TOTAL:
                found.add(key)
            elif meaning.how is How.EITHER and part.spool.nonzero[column]:
                rose[key] += int(part.spool.rose[column])
                fell[key] += int(part.spool.fell[column])
                found.add(key)
    return {
        key for key in found if not fell[key] or fell[key] < TOTAL_FALLS * (rose[key] + fell[key])
    }


class Track:
    """A part's rows in the order of the clock grid, one for each tick, as values of channels.

    Of rows that fall on one tick, what was counted per sample is added up, of a total the last and
    of a level the first one stays. Rates are over the time between rows, not between ticks.

    Attributes
    ----------
    ticks
        Numbers of its ticks, rising.
    kept
        Columns that hold a value anywhere, and what was left out.
    moved
        What happened to its rows; complete when all have been taken.
    """

    def __init__(
        self, part: Part, interval_us: int, totals: Collection[tuple[str, str]] = ()
    ) -> None:
        spool, stamps = part.spool, part.spool.stamps
        self.moved = Moved()
        self.kept = Kept()
        # In time; of rows of the very same time the first.
        order = np.argsort(stamps, kind="stable")
        order = order[np.diff(stamps[order], prepend=-1) > 0]
        ordered = stamps[order]
        ticks = grid_ticks(stamps, interval_us)[order]
        first = np.flatnonzero(np.diff(ticks, prepend=-1) > 0)
        self.ticks: Longs = ticks[first]
        self._order = order
        self._bounds = np.append(first, len(order))
        ends = ordered[self._bounds[1:] - 1]
        starts = ordered[:1] - interval_us
        self._seconds = np.diff(ends, prepend=starts) / 1e6 if len(ends) else np.empty(0)
        self.moved.duplicates = len(stamps) - len(order)
        self.moved.together = len(order) - len(self.ticks)
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
                key = meaning.channel.metric, meaning.channel.device
                how = How.TOTAL if key in totals else How.PER_SAMPLE
            self.kept.zero += not spool.nonzero[column]
            self.kept.totals += how is How.TOTAL
            self.kept.meanings.append(meaning)
            columns.append(column)
            hows.append(how)
        self._columns = np.array(columns, np.intp)
        self._scales = np.array([m.scale for m in self.kept.meanings])
        self._per_sample = np.flatnonzero([how is How.PER_SAMPLE for how in hows])
        self._totals = np.flatnonzero([how is How.TOTAL for how in hows])
        # The row before, of the columns that are totals: differences go on across `take`.
        self._before = np.full((1, len(self._totals)), math.nan)

    def take(self, start: int, end: int) -> Floats:
        """Return rows `start` to `end` of `ticks`, shape ``(rows, kept columns)``, in order."""
        if start == end:
            return np.empty((0, len(self._columns)), np.float32)
        bounds = self._bounds[start : end + 1]
        rows = self._spool.read(self._order[bounds[0] : bounds[-1]])[:, self._columns]
        first, last = bounds[:-1] - bounds[0], bounds[1:] - 1 - bounds[0]
        values = rows if len(rows) == end - start else rows[first]
        seconds = self._seconds[start:end, None]
        if len(self._totals):
            self._to_rates(values, rows[np.ix_(last, self._totals)], seconds)
        if len(self._per_sample):
            counted = values[:, self._per_sample]
            if values is not rows:
                counted = np.add.reduceat(rows[:, self._per_sample], first, axis=0)
            values[:, self._per_sample] = counted / seconds
        values *= self._scales
        too_large = np.abs(values) > LARGEST
        if too_large.any():
            self.moved.too_large += int(too_large.sum())
            values[too_large] = math.nan
        taken: Floats = values.astype(np.float32)
        return taken

    def _to_rates(self, values: Doubles, totals: Doubles, seconds: Doubles) -> None:
        """Put what totals grew by per second in their place; NaN at a reset, and after a hole."""
        grown = np.diff(totals, axis=0, prepend=self._before)
        grown[grown < 0] = math.nan
        values[:, self._totals] = grown / seconds
        self._before = totals[-1:]


def same_host(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """Return the parts of each host, hosts in the order in which they first come."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.host, []).append(part)
    return found
