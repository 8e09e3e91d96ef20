"""Made-up hosts for tests of the models: what their channels are, and windows of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.channels import ChannelTable
from models.features import FEATURES

SUBSYSTEMS = ("cpu", "memory", "network", "storage")


def table(per_subsystem: int = 5, *, agent: int = 0) -> ChannelTable:
    """Rates of events in four subsystems, then channels of the agent's own."""
    subsystem = tuple(s for s in SUBSYSTEMS for _ in range(per_subsystem)) + ("agent",) * agent
    count = len(subsystem)
    return ChannelTable(
        metric=tuple(f"{s}.m{c}" for c, s in enumerate(subsystem)),
        device=("",) * count,
        subsystem=subsystem,
        unit=("/s",) * count,
        kind=("rate",) * count,
    )


def windows(
    channels: ChannelTable, count: int, *, seed: int = 0, level: float = 1000.0
) -> NDArray[np.float32]:
    """Windows that are independent of each other, 10 percent around their level."""
    rng = np.random.default_rng(seed)
    shape = (count, len(FEATURES), len(channels))
    values = rng.normal(level, 0.1 * level, shape)
    values[:, FEATURES.index("std")] = np.abs(rng.normal(0, 0.02 * level, shape[::2]))
    return values.reshape(count, -1).astype(np.float32)


def row(channels: ChannelTable, level: float = 1000.0, **means: float) -> NDArray[np.float32]:
    """One window at its level, but for the means of the metrics named (a dot written as __)."""
    values = np.full((len(FEATURES), len(channels)), level, np.float32)
    values[FEATURES.index("std")] = 0
    for name, mean in means.items():
        values[FEATURES.index("mean"), channels.metric.index(name.replace("__", "."))] = mean
    return values.reshape(-1)
