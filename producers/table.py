"""What a table of counters by row and by core is made of: /proc/interrupts, /proc/softirqs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from producers.parsing import core_columns
from producers.source import Doubles

CELL_BYTES = 11
"""A number as the kernel prints it in these tables: a blank, and ten places."""

_SOME = 2048
"""Cells at a time, so that what is made of them stays in the core's own cache."""

_PLACES = 10.0 ** np.arange(CELL_BYTES - 1, -1, -1)


@dataclass(frozen=True, slots=True)
class Row:
    """A row: what is before its colon, and what is after its numbers.

    `whole` is False where a number is missing, and nobody can say which. `line` says where it is.
    """

    label: bytes
    description: bytes
    whole: bool
    line: int = field(compare=False)

    def words(self, lines: Sequence[bytes], cores: int) -> list[bytes] | None:
        """Return the words that are its numbers, None where its line is no longer this row."""
        label, _, rest = lines[self.line].partition(b":")
        words = rest.split(None, cores)
        description = words.pop().rstrip() if len(words) > cores else b""
        if label.lstrip() != self.label or description != self.description:
            return None
        return words if len(words) == cores else None


def parted(line: bytes, cores: int) -> tuple[bytes, list[bytes]]:
    """Return a line's label, its numbers, and what is after them as one word.

    The label ends with the colon, which a long number may touch: ``IPI0:2768808080``. It is empty
    where there is none.
    """
    label, colon, rest = line.partition(b":")
    label = label.strip()
    return (label if colon and len(label.split()) == 1 else b""), rest.split(None, cores)


@dataclass(frozen=True, slots=True)
class Table:
    """What a text is made of, and which numbers can be made of it.

    Attributes
    ----------
    cores
        Of the columns, ``cpu0`` and so on.
    rows
        Those with a number for each core, or all but one.
    once
        Label and line of rows with one number for the whole machine.
    apart
        Places in `rows` of those whose numbers are wanted one by one.
    """

    cores: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    once: tuple[tuple[bytes, int], ...] = ()
    apart: tuple[int, ...] = ()

    @staticmethod
    def of(lines: Sequence[bytes], apart: Collection[bytes], described: bool) -> Table:
        """Find out what a text is made of. `described` rows may say more after their numbers."""
        header = lines[0].decode("ascii", "replace").split() if lines else []
        cores = core_columns(header)
        n = len(cores)
        rows: dict[bytes, Row] = {}
        once: dict[bytes, tuple[bytes, int]] = {}
        for at, line in enumerate(lines[1:] if n else (), start=1):
            label, words = parted(line, n)
            if not label or not words:
                continue
            if not described:
                if n - 1 <= len(words) <= n:
                    rows.setdefault(label, Row(label, b"", len(words) == n, at))
            elif len(words) >= n:
                # Where the description begins too early a number is missing.
                description = b"".join(words[n:]).rstrip()
                rows.setdefault(label, Row(label, description, words[n - 1].isdigit(), at))
            elif len(words) == 1:
                # ERR and MIS are counted once for the whole machine; any other short line is torn.
                once.setdefault(label, (label, at))
        return Table(
            tuple(cores),
            tuple(rows.values()),
            tuple(o for o in once.values() if o[0] not in rows),
            tuple(i for i, label in enumerate(rows) if label in apart),
        )

    @property
    def size(self) -> int:
        """How many numbers can be made of it."""
        return self.at_cells(len(self.apart))

    def at_core(self, core: int) -> int:
        """Return the place of a column's sum; that of a row's sum is the row's own."""
        return len(self.rows) + core

    def at_once(self, place: int) -> int:
        """Return the place of a number that is there once."""
        return self.at_core(len(self.cores)) + place

    def at_cells(self, nth: int) -> int:
        """Return the place of the first number of a row that is `apart`; the others follow."""
        return self.at_once(len(self.once)) + nth * len(self.cores)

    def has_numbers(self, lines: Sequence[bytes]) -> bool:
        """Return whether there is one number at least where rows have them."""
        n = len(self.cores)
        every = (word for row in self.rows for word in parted(lines[row.line], n)[1][:n])
        return any(word.isdigit() for word in every)

    @property
    def row_at_line(self) -> dict[int, int]:
        """Where each row is, by its line."""
        return {row.line: i for i, row in enumerate(self.rows)}


def padded_cells(rows: Sequence[Row], lines: Sequence[bytes], cores: int) -> Doubles | None:
    """Return the numbers of rows, shape ``(rows, cores)``; None where not all is as expected."""
    parts = []
    for row in rows:
        line = lines[row.line]
        colon = line.find(b":")
        end = colon + 1 + cores * CELL_BYTES
        # In rows of some architectures the blank is after each number, and the colon is before the
        # first.
        if not line[end - 1 : end].isdigit():
            end -= 1
        cells = (
            b" " + line[colon + 1 : end]
            if end - colon == cores * CELL_BYTES
            else line[colon + 1 : end]
        )
        if not row.whole or len(cells) != cores * CELL_BYTES:
            return None
        if line[:colon].strip() != row.label or line[end:].strip() != row.description:
            return None
        parts.append(cells)
    numbers = padded_numbers(b"".join(parts))
    return None if numbers is None else numbers.reshape(len(rows), cores)


def padded_numbers(text: bytes) -> Doubles | None:
    """Return the numbers of cells that are `CELL_BYTES` long, None when anything else is there."""
    every = np.frombuffer(text, np.uint8).reshape(-1, CELL_BYTES)
    numbers = np.empty(len(every))
    for at in range(0, len(every), _SOME):
        cells = every[at : at + _SOME]
        digits = cells - np.uint8(ord("0"))
        is_digit = digits < 10
        if not (is_digit | (cells == ord(" "))).all():
            return None
        # Blanks, at least one; and then digits, at least one, to the end.
        if is_digit[:, 0].any() or not is_digit[:, -1].all():
            return None
        if (is_digit[:, :-1] > is_digit[:, 1:]).any():
            return None
        numbers[at : at + _SOME] = (digits * is_digit) @ _PLACES
    return numbers
