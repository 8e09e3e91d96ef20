"""Which detectors speak, and how they are put together: ours, or the paper's.

The paper's pipeline: standardised deviation, Mahalanobis distance in a PCA subspace and Isolation
Forest, each flagging one window of a hundred of the baseline; two of three make a window odd. Its
channels are pruned at ``|r| = 0.5``. Ours costs more thought: see `models.calibration`.
"""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Ours is the default."""

    DEFAULT = "default"
    PAPER = "paper"


FUSED = ("zscore", "ridge", "neighbours", "forest")
"""Detectors whose scores make the fused one, in the default mode."""
ALONE = ("extremes", "drop")
"""Detectors of what the others cannot see, each of which flags a window by itself."""
DETECTORS: dict[Mode, tuple[str, ...]] = {
    Mode.DEFAULT: FUSED + ALONE,
    Mode.PAPER: ("zscore", "mahalanobis", "forest"),
}
"""In the order of every array of detectors."""
AGREE = 2
"""Detectors over their thresholds that flag a window in the paper's mode."""
PRUNE: dict[Mode, float] = {Mode.DEFAULT: 1.01, Mode.PAPER: 0.5}
"""Correlation from which on a channel stands for another. At 0.5 the default mode's mean VUS-PR
falls from .64 to .58 on servers of SMD and from .59 to .52 on those of ASD, so only copies go."""
