"""How precise a value is that travels: bits of noise cost up to 40 % of the bytes on the wire.

A rate is a count over the time between two readings, and the moment of a reading inside its tick
is uncertain by 50 us and more: of 100 ms that is 0.05 %, and bits below that are noise, which no
compression can shorten. So values keep eleven significant bits, as many as a half-precision
number has: at most 0.05 % off. A gauge's step is never coarser than its unit, so what is counted
(bytes, pages, threads) is exact, whatever its size.

Rounding is to the nearest (ties to even), whatever the values before and after: what is constant
stays constant, what grows does not shrink, zeros and signs are kept, and NaN stays NaN. It is done
where ticks become records, so that live telemetry and recordings hold the same values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schemas.records import Floats, Kind, Layout

SIGNIFICANT_BITS = 11
WHOLE = np.float32(2**SIGNIFICANT_BITS)
"""Up to here the steps of eleven bits are no coarser than 1."""

_DROPPED = 24 - SIGNIFICANT_BITS
_HALF = np.uint32((1 << (_DROPPED - 1)) - 1)
_KEPT = np.uint32(0xFFFF_FFFF >> _DROPPED << _DROPPED)
_HUGE = np.float32(2.0**127)
"""From here on a value could be rounded to infinity."""


def rate_rows(layout: Layout) -> NDArray[np.bool_]:
    """Return which channels are rates, shape ``(channels, 1)``."""
    return np.array([[c.kind is Kind.RATE] for c in layout.channels], np.bool_).reshape(-1, 1)


def rounded(values: Floats, rates: NDArray[np.bool_]) -> Floats:
    """Return the values as they travel.

    Parameters
    ----------
    values
        Shape ``(channels, ticks)``.
    rates
        What `rate_rows` says of the channels.
    """
    bits = values.view(np.uint32)
    # Adding just under half a step, and the bit that decides a tie, carries into what is kept.
    odd = bits >> np.uint32(_DROPPED) & np.uint32(1)
    short = ((bits + (odd + _HALF)) & _KEPT).view(np.float32)
    size = np.abs(values)
    out = np.where(rates | (size < WHOLE), short, np.rint(values))
    # Not so for NaN and infinity, which are no numbers to round.
    return np.where(size < _HUGE, out, values)
