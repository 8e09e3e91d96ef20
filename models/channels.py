"""What the models know of channels: plain names, since they know neither Avro nor hosts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNSCORED = "agent"
"""Subsystem of the agent's own figures: never scored, never blamed."""


@dataclass(frozen=True, slots=True)
class ChannelTable:
    """The channels of one layout, in order; `kind` is ``gauge`` or ``rate``."""

    metric: tuple[str, ...]
    device: tuple[str, ...]
    subsystem: tuple[str, ...]
    unit: tuple[str, ...]
    kind: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.metric)

    def groups(self) -> tuple[tuple[str, ...], NDArray[np.int8]]:
        """Return the subsystems there are and, for each channel, which of them it is in."""
        names = tuple(dict.fromkeys(self.subsystem))
        number = {name: i for i, name in enumerate(names)}
        return names, np.array([number[s] for s in self.subsystem], np.int8)
