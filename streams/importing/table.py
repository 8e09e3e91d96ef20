"""A table of text, piece by piece: times and numbers, and what could not be read as such."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.records import Longs
from streams.importing.cells import read_rows
from streams.importing.errors import InvalidImport
from streams.importing.times import Clock, clock_of

Doubles = NDArray[np.float64]

PIECE_BYTES = 4 << 20
LINE_BYTES = 4 << 20
"""The longest line that is believed to be one."""
PIECE_CELLS = 1 << 20
BOM = b"\xef\xbb\xbf"

FOREIGN = (
    (b"\x1f\x8b", "is compressed by gzip: unpack it first, for example with gunzip"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd: unpack it first, for example with unzstd"),
    (b"\xfd7zXZ", "is compressed by xz: unpack it first, for example with unxz"),
    (b"BZh", "is compressed by bzip2: unpack it first, for example with bunzip2"),
    (b"PK\x03\x04", "is a zip archive or a spreadsheet: unpack it, or save it as CSV"),
    (b"Obj\x01", "is an Avro file: `reveal replay` takes it if it is a recording"),
    (b"\xff\xfe", "is text in UTF-16: save it as UTF-8"),
    (b"\xfe\xff", "is text in UTF-16: save it as UTF-8"),
)
"""What a file that is no table begins with, and what to do about it."""

TIMES = frozenset(("timestamp", "time", "datetime", "date", "ts", "time_ns", "epoch"))
"""Names of columns of times, in lower case."""

MISSING = frozenset(
    ("", "-", "nan", "na", "n/a", "null", "none", "<not counted>", "<not supported>")
)
"""What stands for no value, in lower case; the last two are perf's words."""


class Piece(NamedTuple):
    """Some rows: times in microseconds, shape ``(rows,)``, and values, ``(rows, columns)``."""

    stamps: Longs
    values: Doubles


@dataclass(slots=True)
class Lost:
    """What was left out of a file, and the number of the first line of each kind."""

    ragged: int = 0
    untimed: int = 0
    bad_cells: int = 0
    first: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, line: int) -> None:
        """Remember the first line of a kind."""
        self.first.setdefault(kind, line)


class TextTable:
    """A file with a line of names, then lines of a time and numbers.

    Attributes
    ----------
    names
        Of the columns after the first.
    clock
        How its times are written, known from the first row on.
    lost
        Rows and cells that were left out so far: rows of another width, rows without a time,
        cells that are no number.
    size, at
        Bytes of the file, and those that have been read.

    Raises
    ------
    InvalidImport
        The file cannot be read, is empty, or is no table.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock: Clock | None = None
        self.lost = Lost()
        self.at = 0
        self.size, line = first_line(path)
        self.separator = separator_of(line)
        self.names = split(line, self.separator)[1:] if self.separator else []
        if not self.names:
            raise InvalidImport(
                f"{path} line 1 has no columns, parted by tabs or commas: a table with the names "
                "of its columns was expected"
            )

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows in the order of the file, some at a time.

        Raises
        ------
        InvalidImport
            The first row has no time, a line has no end, or the file cannot be read any more.
        """
        columns = len(self.names)
        most = max(1, PIECE_CELLS // columns)
        values = np.empty((most, columns))
        stamps = np.empty((most, 3), np.int64)
        hard = np.empty((max(columns, PIECE_CELLS // 8), 4), np.int64)
        line = 2
        try:
            with self.path.open("rb") as file:
                self.at = len(file.readline())
                for block in whole_lines(file, self.path):
                    data = np.frombuffer(block, np.uint8)
                    at = 0
                    while at < len(data):
                        start = at
                        rows, cells, ragged, first, lines, at = read_rows(
                            data, at, ord(self.separator), values, stamps, hard
                        )
                        if ragged:
                            self.lost.ragged += ragged
                            self.lost.note("ragged", line + first)
                        self._by_hand(block, values, stamps, hard[:cells], line)
                        times = self._times(block, stamps[:rows], line)
                        good = times >= 0
                        yield Piece(times[good], values[:rows][good])
                        line += lines
                        self.at += at - start
        except OSError as e:
            raise InvalidImport(f"{self.path} cannot be read: {e.strerror}") from None

    def _by_hand(
        self, block: bytes, values: Doubles, stamps: Longs, hard: Longs, line: int
    ) -> None:
        """Read the cells that the compiled loop left over."""
        known: dict[bytes, float] = {}
        for row, column, start, end in hard.tolist():
            raw = block[start:end]
            value = known.get(raw)
            if value is None:
                value = known[raw] = number_of(raw.decode(errors="replace"))
            if value == math.inf:
                self.lost.bad_cells += 1
                self.lost.note("bad_cells", line + int(stamps[row, 2]))
                value = math.nan
            values[row, column] = value

    def _times(self, block: bytes, stamps: Longs, line: int) -> Longs:
        """Return the times of rows, -1 where there is none."""
        times = np.empty(len(stamps), np.int64)
        for i, (start, end, number) in enumerate(stamps.tolist()):
            text = block[start:end].decode(errors="replace")
            if self.clock is None:
                self.clock = clock_of(text)
                if self.clock is None:
                    raise InvalidImport(
                        f"{self.path} line {line + number} begins with {shown(text)}, which is no "
                        "time: the first column has to be seconds, ms, us or ns since the epoch, "
                        f"or dates like 2025-01-31 12:00:00.100{self._where_times_are()}"
                    )
            us = self.clock.read(text)
            if us is None:
                self.lost.untimed += 1
                self.lost.note("untimed", line + number)
            times[i] = -1 if us is None else us
        return times

    def _where_times_are(self) -> str:
        """Return what to do about a column of times that is not the first."""
        for at, name in enumerate(self.names, start=2):
            if name.strip().lower() in TIMES:
                separator = "" if self.separator == "\t" else f" -d{self.separator}"
                return (
                    f"; column {at} is {shown(name)}: put it first, as with cut{separator} -f{at}-"
                )
        return ""


def number_of(text: str) -> float:
    """Return the number of a cell, NaN where it says that there is none, inf where it is none."""
    if text.strip().lower() in MISSING:
        return math.nan
    try:
        number = math.inf if "_" in text else float(text)
    except ValueError:
        return math.inf
    return number if math.isfinite(number) or math.isnan(number) else math.inf


def first_line(path: Path) -> tuple[int, str]:
    """Return the bytes of a file, and its first line.

    Raises
    ------
    InvalidImport
        It cannot be read, is empty, or begins like something else than text.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            line = file.readline(LINE_BYTES)
    except OSError as e:
        raise InvalidImport(f"{path} cannot be read: {e.strerror}") from None
    for start, what in FOREIGN:
        if line.startswith(start):
            raise InvalidImport(f"{path} {what}")
    if b"\0" in line:
        raise InvalidImport(f"{path} is not text: it holds zero bytes")
    line = line.removeprefix(BOM)
    if not line.strip():
        what = "is empty" if size <= len(BOM) else "line 1 is empty"
        raise InvalidImport(f"{path} {what}: a line with the names of its columns was expected")
    if len(line) == LINE_BYTES:
        raise InvalidImport(f"{path} line 1 is longer than {LINE_BYTES >> 20} MiB: no table")
    return size, line.decode(errors="replace").rstrip("\r\n")


def separator_of(line: str) -> str:
    """Return what is between the cells of a line of names: tab or comma; empty for neither."""
    best = max("\t,", key=line.count)
    return best if best in line else ""


def split(line: str, separator: str) -> list[str]:
    """Return the cells of a line; names may be quoted."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(separator)]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
    except csv.Error:  # a cell of 128 KiB
        return [cell.strip().strip('"') for cell in line.split(separator)]


def whole_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield a file's bytes from here on in blocks that end with a newline.

    Raises
    ------
    InvalidImport
        A line is too long to be one.
    """
    rest = b""
    while piece := file.read(PIECE_BYTES):
        cut = piece.rfind(b"\n") + 1
        if not cut:
            rest += piece
            if len(rest) > LINE_BYTES:
                raise InvalidImport(
                    f"{path} has a line longer than {LINE_BYTES >> 20} MiB: it is no table"
                )
            continue
        yield rest + piece[:cut]
        rest = piece[cut:]
    if rest:
        yield rest + b"\n"


def shown(text: str) -> str:
    """Return a piece of a file for an error: short, and without what would steer a terminal."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
