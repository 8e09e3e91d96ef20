"""How unevenly work is spread over cores."""

from __future__ import annotations

from producers.source import Doubles


def imbalance(rates: Doubles) -> float:
    """Return how much more the busiest core does than the mean of all, percent of that mean.

    ``100 * (max / mean - 1)``: 0 when every core does the same, 700 when one of eight does it all.
    Without any work it is 0, since nothing is uneven; NaN when a rate is unknown.

    Parameters
    ----------
    rates
        Shape ``(cores,)``, per second.
    """
    mean = float(rates.mean())
    return 100 * (float(rates.max()) / mean - 1) if mean else 0.0
