"""How well scores put what is odd above what is not, whatever the threshold.

No point of an event counts for the others (no point adjustment).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Doubles = NDArray[np.float64]

MOST_WINDOW = 100
"""Samples: the widest buffer around an event, as in the paper's evaluation of TSB-AD."""
THRESHOLDS = 250


def runs(flags: Flags) -> list[tuple[int, int]]:
    """Return first and last place of each run of flags."""
    edges = np.diff(np.concatenate(([False], flags, [False])).astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def auc_pr(odd: Flags, scores: Doubles) -> float:
    """Return the average precision: precision at each score that is a threshold, by its recall.

    Parameters
    ----------
    odd, scores
        Shape ``(samples,)``. Equal scores are one threshold. NaN without anything odd.
    """
    if not odd.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    hits, ranked = np.cumsum(odd[order]), scores[order]
    last = np.append(ranked[1:] != ranked[:-1], True)
    precision = hits[last] / (np.flatnonzero(last) + 1)
    recall = hits[last] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def vus_pr(odd: Flags, scores: Doubles, most_window: int = MOST_WINDOW) -> float:
    """Return the volume under the surface of precision, recall and tolerance (VUS-PR).

    Paparrizos et al., "Volume Under the Surface" (PVLDB 2022), as in TSB-AD: for each width of a
    buffer up to `most_window`, labels fall off to both sides of an event as
    ``sqrt(1 - distance / width)`` over half the width, and recall is times the share of events in
    which anything was found. The mean over all widths.

    Parameters
    ----------
    odd, scores
        Shape ``(samples,)``. NaN without anything odd.
    """
    if not odd.any():
        return float("nan")
    samples = len(odd)
    events = runs(odd)
    ranked = -np.sort(-scores)
    thresholds = ranked[np.linspace(0, samples - 1, THRESHOLDS).astype(int)]
    # The first threshold that a score reaches: from there on it is taken for odd.
    reached = np.searchsorted(-thresholds, -scores, side="left")
    taken = _so_many_by(reached)
    areas = [_area(odd, reached, taken, events, width) for width in range(most_window + 1)]
    return float(np.mean(areas))


def _area(
    odd: Flags,
    reached: NDArray[np.intp],
    taken: Doubles,
    events: Sequence[tuple[int, int]],
    width: int,
) -> float:
    """Return the area under precision and recall with buffers of one width."""
    buffered = _buffered(odd, events, width)
    near = buffered > 0
    found = _so_many_by(reached[near], buffered[near])
    beside = near & ~odd
    around = _so_many_by(reached[beside], buffered[beside])
    zones = _zones(events, width, len(odd))
    first = np.array([reached[start : end + 1].min() for start, end in zones])
    exists = _so_many_by(first) / len(zones)
    count = float(odd.sum())
    recall = np.minimum(found / ((2 * count + around) / 2), 1) * exists
    precision = found / taken
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def _so_many_by(first: NDArray[np.intp], weights: Doubles | None = None) -> Doubles:
    """Return how much has been taken at each threshold, shape ``(THRESHOLDS,)``."""
    counts = np.bincount(first, weights=weights, minlength=THRESHOLDS + 1)[:THRESHOLDS]
    return np.cumsum(counts).astype(np.float64)


def _buffered(odd: Flags, events: Sequence[tuple[int, int]], width: int) -> Doubles:
    """Return the labels with what falls off beside each event."""
    out = odd.astype(np.float64)
    half = width // 2
    for start, end in events:
        after = np.arange(end + 1, min(end + half + 1, len(odd)))
        before = np.arange(max(start - half, 0), start)
        out[after] += np.sqrt(1 - (after - end) / width) if width else 0.0
        out[before] += np.sqrt(1 - (start - before) / width) if width else 0.0
    return np.minimum(out, 1.0)


def _zones(events: Sequence[tuple[int, int]], width: int, samples: int) -> list[tuple[int, int]]:
    """Return events with their buffers; those whose buffers touch are one."""
    half = width // 2
    zones: list[tuple[int, int]] = []
    for start, end in events:
        start, end = max(start - half, 0), min(end + half, samples - 1)
        if zones and start <= zones[-1][1]:
            zones[-1] = zones[-1][0], end
        else:
            zones.append((start, end))
    return zones
