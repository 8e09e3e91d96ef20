"""What the models know of a channel: plain text, one entry per channel in each column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNSCORED = "agent"
"""Subsystem of what the agent says of itself: recorded, never scored and never blamed."""


@dataclass(frozen=True, slots=True)
class ChannelTable:
    """Columns of the same length, in the order of a row's channels.

    `kind` is ``"gauge"`` for a level and ``"rate"`` for the speed of a counter per second.
    """

    metric: tuple[str, ...]
    device: tuple[str, ...]
    subsystem: tuple[str, ...]
    unit: tuple[str, ...]
    kind: tuple[str, ...]

    def __post_init__(self) -> None:
        lengths = {len(c) for c in (self.metric, self.device, self.subsystem, self.unit, self.kind)}
        if len(lengths) > 1:
            raise ValueError(f"columns of a channel table differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.metric)

    def groups(self) -> NDArray[np.int8]:
        """Return the subsystem of each channel as a number, in order of their names."""
        return np.unique(self.subsystem, return_inverse=True)[1].astype(np.int8)
