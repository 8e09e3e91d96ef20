"""Sums over what is known."""

from __future__ import annotations

import numpy as np

from producers.source import Doubles


def known_sum(table: Doubles, axis: int) -> Doubles:
    """Return the sums along `axis` of what is not NaN; NaN where nothing is."""
    total: Doubles = table.sum(axis=axis)
    unknown = np.isnan(total)
    if unknown.any():
        none = np.isnan(table).all(axis=axis)
        total = np.where(none, np.nan, np.nansum(table, axis=axis))
    return total
