"""Cells of nvidia-smi's logs: ``81559 MiB``, ``[N/A]``, ``Not Active``, ``P0``, ``0x1F``."""

from __future__ import annotations

import math
import re

from streams.importing.meaning import base_unit
from streams.importing.table import number_of

WORDS = {
    "active": 1.0,
    "not active": 0.0,
    "enabled": 1.0,
    "disabled": 0.0,
    "yes": 1.0,
    "no": 0.0,
}
"""Words that say yes or no, in lower case."""

ABSENT = {"not supported", "unknown error", "insufficient permissions"}
"""What stands for no value, in lower case, where it has lost its brackets."""

MOST_KNOWN = 4096
"""Texts that are remembered of a column: a log holds the same ones over and over."""

_HEX = re.compile(r"0x[0-9a-fA-F]+")
_STATE = re.compile(r"P\d+")


class Cells:
    """The cells of one column, as numbers in the column's unit.

    Attributes
    ----------
    unit
        What the line of names says, or else the first cell that has one; empty when none has.
    numbers, bad, first_bad
        Cells that were numbers, those that were neither numbers nor absent, and the line of the
        first of these.
    """

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.numbers = 0
        self.bad = 0
        self.first_bad = 0
        self._known: dict[str, float] = {}

    def number(self, text: str, line: int) -> float:
        """Return the number in a cell; NaN when there is none."""
        number = self._known.get(text)
        if number is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            number = self._known[text] = self._parse(text.strip())
        if number == math.inf:
            self.bad += 1
            self.first_bad = self.first_bad or line
            return math.nan
        self.numbers += number == number
        return number

    def _parse(self, text: str) -> float:
        """Return the number, NaN for none, inf for what cannot be read."""
        word = text.lower()
        if word.startswith("[") or word in ABSENT:
            return math.nan
        if word in WORDS:
            return WORDS[word]
        if _HEX.fullmatch(text):
            return float(int(text, 16)) if len(text) <= 18 else math.inf
        if _STATE.fullmatch(text):
            return number_of(text[1:])
        figure, _, unit = text.partition(" ")
        if not unit:
            return number_of(text)
        self.unit = self.unit or unit
        scale, base = base_unit(unit)
        own_scale, own_base = base_unit(self.unit)
        if base.lower() != own_base.lower():
            return math.inf
        return number_of(figure) * scale / own_scale
