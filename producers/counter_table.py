"""Tables of counters, by row and by core: /proc/interrupts and /proc/softirqs.

They grow with the cores times the sources, to half a megabyte, and the kernel adds them up core by
core for whoever reads. So they are read twice a second, large ones once, and a line is looked at
only when it changed, which most do not. Its numbers are added up here, along both sides. They have
32 bits in the kernel and wrap: what is added up is how far each went on, so no sum ever wraps, and
cores and rows that come or go bend none.

A number that is none, or that dropped without a reason, makes the sums of its row and its core
unknown, and no others. The next good reading has the growth of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from producers.parsing import SLOW_ABOVE_BYTES, Draft
from producers.reading import Reader
from producers.source import HALF_SECOND_NS, SECOND_NS, Doubles, Plan
from producers.table import Row, Table, padded_cells, parted
from producers.unwrap import Cells, fresh, growth

_NAN = float("nan")
_MANY_DIGITS = 18
_FEW = 100
"""So many numbers are faster converted one by one."""

Planner = Callable[[Table], Draft]


class CounterTable:
    """A source that is a table of counters by row and core.

    A text whose rows or columns are others is believed when they are the same a second time, as in
    `producers.parsing.TextFile`: so one torn reading changes no layout.

    Parameters
    ----------
    path
        The file, ``proc/interrupts``.
    planner
        Pure function from what a text is made of to channels; a `Draft`'s places are the table's.
    remedy
        Why it matters when it cannot be read, and what to do.
    apart
        Labels of rows whose numbers are wanted one by one.
    described
        Whether rows say more after their numbers.
    """

    def __init__(
        self,
        path: str,
        planner: Planner,
        *,
        remedy: str,
        apart: Collection[bytes] = (),
        described: bool = True,
    ) -> None:
        self.path = path
        self.remedy = remedy
        self.period_ns = HALF_SECOND_NS
        self.plan = Plan()
        self.problem = ""
        self.bad_fields = 0
        self._planner = planner
        self._apart = apart
        self._described = described
        self._lines: list[bytes] = []
        self._table = Table()
        self._pending: Table | None = None
        self._row_at: dict[int, int] = {}
        self._keys: dict[str, int] = {}
        self._picked: NDArray[np.intp] = np.empty(0, np.intp)
        self._totals: Doubles = np.empty(0)
        self._last: Doubles = np.empty((0, 0))
        self._peaks: Doubles = np.empty(0)
        self._unsure: dict[int, Cells] = {}  # rows to look at although they did not change

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        """Read the file, less often where it is large."""
        text = reader.read(self.path)
        if not isinstance(text, bytes):
            self.problem = f"{self.path}: {text.reason}"
            return self.plan.blank
        self.period_ns = SECOND_NS if len(text) > SLOW_ABOVE_BYTES else HALF_SECOND_NS
        return self.parse(text)

    def parse(self, text: bytes) -> Sequence[float]:
        """Return the sums of a text, as many as ``plan.fields``; NaN where unknown."""
        self.problem = ""
        lines = text.split(b"\n")
        lines.pop()  # nothing, or half a line
        rows = self._changed(lines)
        cells = None if rows is None else self._cells(rows, lines)
        if rows is None or cells is None:
            found = Table.of(lines, self._apart, self._described)
            rows = range(len(found.rows))
            if not found.has_numbers(lines):
                self.problem = f"{self.path}: no number where one was expected"
                return self.plan.blank
            if found != self._table and (self._table == Table() or found == self._pending):
                self._adopt(found)
            if found != self._table:
                self._pending = found
                self._lines = []
                cells = _by_name(self._numbers(found, lines), found, self._table)
                return self._advance(range(len(cells)), cells, self._once(found, lines))
            self._table, self._row_at = found, found.row_at_line
            cells = self._numbers(found, lines)
        self._pending = None
        self._lines = lines
        return self._advance(rows, cells, self._once(self._table, lines))

    def _changed(self, lines: list[bytes]) -> Sequence[int] | None:
        """Return which rows may have changed, None where more than these did."""
        before = self._lines
        if not before or len(lines) != len(before) or lines[0] != before[0]:
            return None
        changed = {at for at, (a, b) in enumerate(zip(lines, before, strict=True)) if a != b}
        for label, at in self._table.once:
            changed.discard(at)
            found, words = parted(lines[at], 1)
            if found != label or len(words) != 1:
                return None
        rows = set(self._unsure)
        for at in changed:
            row = self._row_at.get(at)
            if row is None:
                return None
            rows.add(row)
        return sorted(rows)

    def _cells(self, rows: Sequence[int], lines: Sequence[bytes]) -> Doubles | None:
        """Return the numbers of some rows, shape ``(rows, cores)``, NaN where there is none.

        None where a row is not what it was.
        """
        table = self._table
        n = len(table.cores)
        if len(rows) * n >= _FEW:
            cells = padded_cells([table.rows[row] for row in rows], lines, n)
            if cells is not None:
                return cells
        numbers = []
        for at in rows:
            row = table.rows[at]
            words = row.words(lines, n)
            if words is None:
                return None
            numbers.append(self._converted(words, row, n))
        return np.array(numbers, np.float64).reshape(len(rows), n)

    def _numbers(self, table: Table, lines: Sequence[bytes]) -> Doubles:
        """Return the numbers of all rows, whatever stands there."""
        n = len(table.cores)
        numbers = [self._converted(parted(lines[row.line], n)[1][:n], row, n) for row in table.rows]
        return np.array(numbers, np.float64).reshape(len(numbers), n)

    def _converted(self, words: Sequence[bytes], row: Row, cores: int) -> Sequence[float]:
        """Return the numbers of a row, one for each core, and count what are none."""
        if not row.whole:
            self.bad_fields += cores
            return [_NAN] * cores
        if b"".join(words).isdigit() and len(max(words, key=len)) <= _MANY_DIGITS:
            return list(map(int, words))
        return [self._one(word) for word in words]

    def _one(self, word: bytes) -> float:
        # int takes "-5", "+5" and "1_000" too, which the kernel never writes.
        if word.isdigit() and len(word) <= _MANY_DIGITS:
            return int(word)
        self.bad_fields += 1
        return _NAN

    def _once(self, table: Table, lines: Sequence[bytes]) -> dict[bytes, float]:
        """Return the numbers that are there once, by their label."""
        return {label: self._one(parted(lines[at], 1)[1][0]) for label, at in table.once}

    def _adopt(self, table: Table) -> None:
        """Take another table. Rows and cores that were there before keep their history."""
        draft = self._planner(table)
        plan = draft.plan()
        keys = {key: at for key, (at, _) in draft.fields.items()}
        totals = np.zeros(table.size)
        for key, at in keys.items():
            if key in self._keys:
                totals[at] = self._totals[self._keys[key]]
        shape = (len(table.rows), len(table.cores))
        last, peaks = np.full(shape, np.nan), np.zeros(shape[0])
        rows, cores = _both(self._table.rows, table.rows), _both(self._table.cores, table.cores)
        last[np.ix_(rows[1], cores[1])] = self._last[np.ix_(rows[0], cores[0])]
        peaks[rows[1]] = self._peaks[rows[0]]
        self._table, self.plan, self._keys = table, plan, keys
        self._picked = np.array(list(keys.values()), np.intp)
        self._totals, self._last, self._peaks = totals, last, peaks
        self._unsure = {}

    def _advance(
        self, rows: Sequence[int], cells: Doubles, once: dict[bytes, float]
    ) -> Sequence[float]:
        """Add to the sums how far some rows went on, and return what is wanted of the sums."""
        table = self._table
        sums = self._totals
        if len(rows):
            unknown = self._add(np.array(rows, np.intp), cells)
            if unknown is not None:
                sums = np.where(unknown, np.nan, sums)
        for i, (label, _) in enumerate(table.once):
            sums[table.at_once(i)] = once.get(label, _NAN)
        picked: list[float] = sums[self._picked].tolist()
        return picked

    def _add(self, rows: NDArray[np.intp], now: Doubles) -> NDArray[np.bool_] | None:
        """Add how far `rows` went on to `now`; return which sums are unknown, None for none."""
        table = self._table
        columns = slice(table.at_core(0), table.at_once(0))
        last = self._last[rows]
        grown = now - last
        unknown = None
        if self._unsure or not grown.min() >= 0:
            started = _any_number(self._last, axis=0)
            self._last[rows] = now
            self._carefully(rows, now, last, grown)
            lost = np.isnan(grown)
            # The first number of a whole row or column is where its sum starts from.
            new = np.isnan(last) & ~np.isnan(now)
            row_started = _any_number(last, axis=1)
            unknown = np.zeros(table.size, bool)
            unknown[rows] = (lost & ~(new & ~row_started[:, None])).any(axis=1)
            unknown[columns] = (lost & ~(new & ~started)).any(axis=0)
            for row, at in self._apart_in(rows):
                unknown[at] = (lost & ~new)[row]
            grown[lost] = 0.0
        else:
            self._last[rows] = now
        self._peaks[rows] = np.maximum(self._peaks[rows], grown.max(axis=1))
        self._totals[rows] += grown.sum(axis=1)
        self._totals[columns] += grown.sum(axis=0)
        for row, at in self._apart_in(rows):
            self._totals[at] += grown[row]
        return unknown

    def _apart_in(self, rows: NDArray[np.intp]) -> Iterator[tuple[int, slice]]:
        """Yield where a row that is apart is in `rows`, and where its numbers are."""
        table = self._table
        for nth, row in enumerate(table.apart):
            for at in np.flatnonzero(rows == row).tolist():
                yield at, slice(table.at_cells(nth), table.at_cells(nth + 1))

    def _carefully(
        self, rows: NDArray[np.intp], now: Doubles, last: Doubles, grown: Doubles
    ) -> None:
        """Set how far rows went on in which something dropped or is unknown."""
        first = np.isnan(last).all(axis=1) & ~np.isnan(now).any(axis=1)
        odd = ~(grown.min(axis=1) >= 0) & ~first
        for i, row in enumerate(rows.tolist()):
            if not odd[i] and row not in self._unsure:
                continue
            before = self._unsure.pop(row, None) or fresh(last[i])
            grown[i], after = growth(now[i], before, self._peaks[row])
            self._last[row] = after.last
            if np.isnan(now[i]).any() or not after.steady:
                self._unsure[row] = after


def _by_name(cells: Doubles, found: Table, wanted: Table) -> Doubles:
    """Return the numbers of one table in the order of another, NaN where it has none."""
    every = np.full((len(wanted.rows), len(wanted.cores)), np.nan)
    rows, cores = _both(found.rows, wanted.rows), _both(found.cores, wanted.cores)
    every[np.ix_(rows[1], cores[1])] = cells[np.ix_(rows[0], cores[0])]
    return every


def _any_number(values: Doubles, axis: int) -> NDArray[np.bool_]:
    return np.asarray((~np.isnan(values)).any(axis=axis))


def _both(before: Sequence[object], now: Sequence[object]) -> tuple[list[int], list[int]]:
    """Return the places of what is in both sequences, in the first and in the second."""
    places = {item: i for i, item in enumerate(before)}
    pairs = [(places[item], i) for i, item in enumerate(now) if item in places]
    return [a for a, _ in pairs], [b for _, b in pairs]
