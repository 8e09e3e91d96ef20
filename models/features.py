"""Features of a window: what 30 ticks of a channel come down to.

A ring is an array ``(slots, channels)``; tick number ``g`` (time divided by the sampling
interval) lives in slot ``g % slots``, and the slot's entry in `ticks` says which tick it holds,
so that a tick that never came is told from an old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEATURES = ("mean", "std", "min", "max")
"""In the order in which they follow each other in a row, each over all channels."""

NO_TICK = -1


@njit(nogil=True, cache=True, error_model="numpy")
def write_ticks(
    ring: NDArray[np.float32],
    ticks: NDArray[np.int64],
    values: NDArray[np.float32],
    column: int,
    count: int,
    first: int,
) -> None:
    """Put ticks ``first .. first + count - 1`` into one host's ring.

    Parameters
    ----------
    ring, ticks
        Shapes ``(slots, channels)`` and ``(slots,)``; written.
    values
        Shape ``(channels, ticks of the record)``.
    column
        Where tick `first` stands in `values`.
    """
    slots, channels = ring.shape
    for i in range(count):
        slot = (first + i) % slots
        ticks[slot] = first + i
        row = ring[slot]
        for c in range(channels):
            row[c] = values[c, column + i]


# No fastmath: NaN must count as absent, and the same telemetry must give the same bytes on every
# machine. The loops over channels vectorise without it, since no sum crosses channels.
@njit(nogil=True, cache=True, error_model="numpy")
def window_features(
    rings: NDArray[np.float32],
    ticks: NDArray[np.int64],
    hosts: NDArray[np.int64],
    ends: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[np.float32],
    samples: NDArray[np.int32],
) -> None:
    """Reduce windows of many hosts to features, one pass over the ticks.

    The deviation is the population's. It is computed from differences to the first value seen,
    since the squares of a counter near 1e9 do not fit into float32.

    Parameters
    ----------
    rings, ticks
        Shapes ``(hosts, slots, channels)`` and ``(hosts, slots)``.
    hosts, ends
        Shape ``(windows,)``: the ring of each window, and the tick after its last.
    lengths
        Shape ``(windows,)``: ticks in a full window.
    out
        Shape ``(windows, len(FEATURES) * channels)``; written. NaN where a channel had no value.
    samples
        Shape ``(windows,)``; written: ticks that were there.
    """
    slots, channels = rings.shape[1], rings.shape[2]
    origin = np.empty(channels, np.float32)
    counts = np.empty(channels, np.float32)
    nan = np.float32(np.nan)
    for w in range(len(hosts)):
        ring = rings[hosts[w]]
        tick = ticks[hosts[w]]
        total = out[w, :channels]
        square = out[w, channels : 2 * channels]
        low = out[w, 2 * channels : 3 * channels]
        high = out[w, 3 * channels :]
        present = 0
        first = ends[w] - lengths[w]
        for g in range(first, ends[w]):
            if tick[g % slots] != g:
                continue
            row = ring[g % slots]
            if present == 0:
                for c in range(channels):
                    x = row[c]
                    known = not np.isnan(x)
                    origin[c] = x
                    low[c] = x
                    high[c] = x
                    counts[c] = np.float32(1.0) if known else np.float32(0.0)
                    total[c] = np.float32(0.0)
                    square[c] = np.float32(0.0)
            else:
                for c in range(channels):
                    x = row[c]
                    known = not np.isnan(x)
                    base = origin[c]
                    if np.isnan(base):
                        base = x
                    origin[c] = base
                    d = x - base if known else np.float32(0.0)
                    total[c] += d
                    square[c] += d * d
                    counts[c] += np.float32(1.0) if known else np.float32(0.0)
                    low[c] = x if (x < low[c] or np.isnan(low[c])) else low[c]
                    high[c] = x if (x > high[c] or np.isnan(high[c])) else high[c]
            present += 1
        samples[w] = present
        for c in range(channels):
            n = counts[c]
            if present > 0 and n > 0:
                mean = total[c] / n
                variance = square[c] / n - mean * mean
                total[c] = mean + origin[c]
                square[c] = np.sqrt(variance) if variance > 0 else np.float32(0.0)
            else:
                total[c] = nan
                square[c] = nan
                low[c] = nan
                high[c] = nan
