"""Rows of numbers, from bytes to an array, at the speed of a compiled loop.

A mantissa below 2^53 and a power of ten up to 22 are both doubles, so their product or quotient is
correctly rounded (Clinger, "How to Read Floating Point Numbers Accurately", 1990). Digits beyond
that are cut, which costs less than 1e-15 of the value: nothing, where values travel as float32.
Everything else is left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

NEWLINE, RETURN, TAB, BLANK, QUOTE = 10, 13, 9, 32, 34
PLUS, MINUS, POINT, ZERO, NINE = 43, 45, 46, 48, 57
UPPER, LOWER_E, LOWER_N, LOWER_A = 32, 101, 110, 97
FULL = ((1 << 53) - 9) // 10
"""The largest mantissa that takes in another digit."""
TENS = np.array([10.0**n for n in range(23)])
NOT_READ = 1
"""What `_number` says of a cell that it leaves to the caller."""


@njit(nogil=True, cache=True, error_model="numpy")
def _number(data: Bytes, start: int, end: int) -> tuple[float, int]:
    """Return the number in ``data[start:end]`` and 0, or NaN and `NOT_READ`."""
    at = start
    negative = False
    if at < end and (data[at] == MINUS or data[at] == PLUS):
        negative = data[at] == MINUS
        at += 1
    elif end - at == 3 and (
        data[at] | UPPER == LOWER_N
        and data[at + 1] | UPPER == LOWER_A
        and data[at + 2] | UPPER == LOWER_N
    ):
        return np.nan, 0
    mantissa, digits, power, point = 0, 0, 0, False
    while at < end:
        byte = data[at]
        if ZERO <= byte <= NINE:
            if mantissa <= FULL:
                mantissa = mantissa * 10 + (int(byte) - ZERO)
                power -= point
            elif not point:
                power += 1
            digits += 1
        elif byte == POINT and not point:
            point = True
        else:
            break
        at += 1
    if digits == 0:
        return np.nan, NOT_READ
    if at < end and data[at] | UPPER == LOWER_E:
        at += 1
        down = False
        if at < end and (data[at] == MINUS or data[at] == PLUS):
            down = data[at] == MINUS
            at += 1
        exponent, first = 0, at
        while at < end and ZERO <= data[at] <= NINE and exponent < 1000:
            exponent = exponent * 10 + (int(data[at]) - ZERO)
            at += 1
        if at == first:
            return np.nan, NOT_READ
        power += -exponent if down else exponent
    if at != end or not -22 <= power <= 22:
        return np.nan, NOT_READ
    value = mantissa / TENS[-power] if power < 0 else mantissa * TENS[power]
    return -value if negative else value, 0


@njit(nogil=True, cache=True, error_model="numpy")
def read_rows(
    data: Bytes,
    begin: int,
    separator: int,
    values: NDArray[np.float64],
    stamps: NDArray[np.int64],
    hard: NDArray[np.int64],
) -> tuple[int, int, int, int, int, int]:
    """Read rows of a first cell and numbers.

    Parameters
    ----------
    data
        Whole lines: the last byte is a newline.
    begin
        Where to start.
    separator
        The byte between cells.
    values
        Written, shape ``(rows, columns)``: NaN for a cell that is empty, or left to the caller.
    stamps
        Written, shape ``(rows, 3)``: start and end of the row's first cell, and the number of its
        line, counted from `begin`.
    hard
        Written, shape ``(cells, 4)``: row, column, start and end of what is left to the caller;
        at least as many as there are columns.

    Returns
    -------
    rows, cells
        That were written to `values` and to `hard`.
    ragged, first_ragged
        Lines with another number of cells, which were left out, and the first one's number.
    lines, at
        Lines that were read, and where the next one starts: before the end of `data` when one of
        the arrays is full.
    """
    most, columns = values.shape
    rows, cells, ragged, first_ragged, lines, at = 0, 0, 0, -1, 0, begin
    size = len(data)
    while at < size and rows < most and cells + columns <= len(hard):
        column, kept, blank = -1, cells, True
        ended = False
        while not ended:
            start = at
            quoted = False
            while data[start] == BLANK or (data[start] == TAB and separator != TAB):
                start += 1
            if data[start] == QUOTE:
                close = start + 1
                while data[close] != QUOTE and data[close] != NEWLINE:
                    close += 1
                quoted = data[close] == QUOTE
            if quoted:
                start += 1
                end = at = close
                while data[at] != separator and data[at] != NEWLINE:
                    at += 1
            else:
                at = start
                while data[at] != separator and data[at] != NEWLINE:
                    at += 1
                end = at
            while end > start and (data[end - 1] <= BLANK):
                end -= 1
            ended = data[at] == NEWLINE
            at += 1
            blank = blank and ended and end == start and column < 0
            if column < 0:
                stamps[rows, 0], stamps[rows, 1], stamps[rows, 2] = start, end, lines
            elif column < columns:
                value, trouble = np.nan, 0
                if end > start:
                    value, trouble = _number(data, start, end)
                values[rows, column] = value
                if trouble:
                    hard[cells, 0], hard[cells, 1] = rows, column
                    hard[cells, 2], hard[cells, 3] = start, end
                    cells += 1
            column += 1
        if column == columns:
            rows += 1
        else:
            cells = kept
            if not blank:
                ragged += 1
                if first_ragged < 0:
                    first_ragged = lines
        lines += 1
    return rows, cells, ragged, first_ragged, lines, at
