"""Timestamps of other people's files: what they are written in, and their place on the clock grid.

A file's first timestamp decides how all of its are read: numbers are seconds, milliseconds,
microseconds or nanoseconds since the epoch by their size; dates are ISO 8601, with a blank for the
T and slashes for the dashes if they like. A date without a zone is taken as UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np

from schemas.records import Longs
from streams.importing.errors import InvalidImport

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EARLIEST = 1e8
"""No number below this is a time: in seconds it is 1973. Such are the numbers of rows."""
LATEST_US = 1 << 52
"""The year 2112; larger is no time, and would not be exact in double precision either."""

UNITS = (
    ("seconds", 1e11, 1e6),
    ("milliseconds", 1e14, 1e3),
    ("microseconds", 1e17, 1.0),
    ("nanoseconds", math.inf, 1e-3),
)
"""Name, least number that is too large for it, microseconds: 1e11 seconds are the year 5138."""

INTERVALS_MS = tuple(ms for ms in range(1, 3001) if 3000 % ms == 0)
"""Sampling intervals whose ticks fill a window of three seconds."""
TOLERANCE = 0.05
"""How far the usual distance of samples may be from an interval that is taken for it."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How a file writes its times: in words, and the function that reads one (None: it is none)."""

    says: str
    read: Callable[[str], int | None]


def clock_of(text: str) -> Clock | None:
    """Return how a first timestamp is written; None when it is no time."""
    try:
        number = float(text)
    except ValueError:
        naive = _date(text)
        if naive is None:
            return None
        zone = "no zone, taken as UTC" if naive.tzinfo is None else "with a zone"
        return Clock(f"dates, {zone}", _date_us)
    for name, limit, scale in UNITS:
        if EARLIEST <= number < limit:
            clock = Clock(f"{name} since the epoch", partial(_number_us, scale))
            return None if clock.read(text) is None else clock
    return None


def _number_us(scale: float, text: str) -> int | None:
    try:
        us = float(text) * scale
    except ValueError:
        return None
    return round(us) if 0 <= us < LATEST_US else None


def _date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip().replace("/", "-"))
    except ValueError:
        return None


def _date_us(text: str) -> int | None:
    date = _date(text)
    if date is None:
        return None
    aware = date.replace(tzinfo=UTC) if date.tzinfo is None else date
    us = (aware - EPOCH) // MICROSECOND
    return us if 0 <= us < LATEST_US else None


def usual_distance_us(stamps: Longs) -> float:
    """Return the median distance of neighbours in time; NaN of fewer than two."""
    ordered = np.unique(stamps)
    return float(np.median(np.diff(ordered))) if len(ordered) > 1 else math.nan


def interval_us(distance_us: float, wanted_ms: int | None, where: str) -> int:
    """Return the sampling interval: what is wanted, else the one that samples are apart.

    Parameters
    ----------
    distance_us
        `usual_distance_us` of the file.
    wanted_ms
        What the user said, or None.
    where
        The file's name, for the error.

    Raises
    ------
    InvalidImport
        Windows cannot be made of that interval, or of what is wanted.
    """
    if wanted_ms is not None:
        if wanted_ms not in INTERVALS_MS:
            raise InvalidImport(
                f"--interval-ms {wanted_ms} does not divide the 3000 ms of a window; "
                f"near it are {_near(wanted_ms)}"
            )
        return 1000 * wanted_ms
    if math.isnan(distance_us):
        raise InvalidImport(
            f"{where}: one row, or one time, tells no interval: say it with --interval-ms"
        )
    best = min(INTERVALS_MS, key=lambda ms: abs(1000 * ms - distance_us))
    if abs(1000 * best - distance_us) > TOLERANCE * 1000 * best:
        near = _near(distance_us / 1000)
        raise InvalidImport(
            f"{where}: rows are {distance_us / 1000:.10g} ms apart, which does not divide the "
            f"3000 ms of a window: place them on a grid with --interval-ms {near}"
        )
    return 1000 * best


def _near(ms: float) -> str:
    """Return the intervals around a number of milliseconds, in words."""
    below = [i for i in INTERVALS_MS if i <= ms][-1:]
    above = [i for i in INTERVALS_MS if i > ms][:1]
    return " or ".join(str(i) for i in (*below, *above))


def grid_ticks(stamps: Longs, interval: int) -> Longs:
    """Return each row's number on the grid, time divided by `interval` (microseconds).

    Rows are snapped to the nearest tick after what all of them are off by on average is taken
    away, at most half an interval: of rows that come at 50 ms after every tick of 100 ms, give or
    take, none falls on its neighbour's tick.
    """
    turns = (stamps % interval) * (2 * math.pi / interval)
    mean = complex(np.cos(turns).mean(), np.sin(turns).mean()) if len(stamps) else 0j
    # Where rows drift along the grid there is no average to speak of.
    phase = math.atan2(mean.imag, mean.real) / (2 * math.pi) if abs(mean) > 0.1 else 0.0
    ticks: Longs = np.rint(stamps / interval - phase).astype(np.int64)
    return np.maximum(ticks, 0)
