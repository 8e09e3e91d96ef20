"""What a column of somebody else's table is here, and the units that it may come in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from schemas.records import Channel


class How(Enum):
    """How a column counts."""

    LEVEL = "a value of its moment"
    PER_SAMPLE = "what was counted since the row before"
    TOTAL = "what was counted so far"
    EITHER = "one of these two: a column that rises, and hardly ever falls, is a total"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A column's channel, whose value is the column's times `scale`, per second unless a level.

    `ours` says whether the agent has a metric of this name, with this meaning.
    """

    channel: Channel
    scale: float
    how: How
    ours: bool


UNITS: dict[str, tuple[float, str]] = {
    "": (1, ""),
    "-": (1, ""),
    "count": (1, ""),
    "bytes": (1, "B"),
    "b": (1, "B"),
    # The kernel and nvidia-smi write kB and mean KiB.
    "kb": (1024, "B"),
    "kib": (1024, "B"),
    "mib": (1 << 20, "B"),
    "gib": (1 << 30, "B"),
    "c": (1, "degC"),
    "°c": (1, "degC"),
    "mw": (1e-3, "W"),
}
"""By unit, in lower case: what makes the base unit of it, and that."""


def base_unit(unit: str) -> tuple[float, str]:
    """Return the factor to the base unit, and its name; 1 and the unit itself if there is none."""
    return UNITS.get(unit.lower(), (1, unit))


def clean(name: str) -> str:
    """Return a name in lower case and underscores: ``pkg_watt`` for ``PkgWatt``.

    The same as the agent makes of names in kernel files; ``%`` is a word, since ``C1`` and ``C1%``
    are two columns.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z]{2})", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.replace("%", "_percent_").lower()).strip("_")
