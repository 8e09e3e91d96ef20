"""All detectors of a mode, fitted on the windows of one baseline.

They are scored on windows held out as well: the baseline is cut into blocks in time, and each is
scored by what was fitted on the others, less the windows that share ticks with it. Only
`models.zscore`, which learns one number a subsystem, is not fitted again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from models import drop, extremes, forest, mahalanobis, neighbours, ridge, zscore
from models.mode import DETECTORS, Mode
from models.scale import SCORED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.channels import ChannelTable
    from models.scale import Scale

FOLDS = 5
FOLD_TREES = 20
"""Trees of a forest that only scores one block: its mean is the same, and trees are what costs."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The same n windows three ways.

    Attributes
    ----------
    raw
        Features as they are, shape ``(n, len(FEATURES) * channels)``.
    z
        Standardised, shape ``(n, features)``.
    joint
        Those of them that are looked at together; the others are 0.
    """

    raw: NDArray[np.float32]
    z: NDArray[np.float32]
    joint: NDArray[np.float32]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Rows:
        return Rows(self.raw[rows], self.z[rows], self.joint[rows])

    def __len__(self) -> int:
        return len(self.z)


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The detectors of a mode. `space` is that of `models.ridge` or `models.mahalanobis`."""

    mode: Mode
    zscore: zscore.ZScore
    space: mahalanobis.Mahalanobis
    neighbours: neighbours.Neighbours
    forest: forest.Forest
    extremes: extremes.Extremes
    drop: drop.Drop

    def scores(self, rows: Rows) -> NDArray[np.float64]:
        """Return the score of each detector of the mode, shape ``(detectors, windows)``."""
        ways = {
            "zscore": lambda: self.zscore.score(rows.z),
            "mahalanobis": lambda: self.space.score(rows.joint),
            "ridge": lambda: self.space.score(rows.joint),
            "neighbours": lambda: self.neighbours.score(rows.joint),
            "forest": lambda: self.forest.score(rows.joint),
            "extremes": lambda: self.extremes.score(rows.raw),
            "drop": lambda: self.drop.score(rows.raw),
        }
        return np.stack([ways[name]() for name in DETECTORS[self.mode]])

    def arrays(self) -> dict[str, Any]:
        """Return the fields of a baseline that the detectors bring."""
        return {
            "groups": self.zscore.groups,
            "group_weights": self.zscore.weights,
            "components": self.space.components,
            "weights": self.space.weights,
            "deviations": self.space.inverse,
            "residual": self.space.residual,
            "references": self.neighbours.references,
            "nodes": self.forest.nodes,
            "roots": self.forest.roots,
            "norm": self.forest.norm,
            "reach": self.extremes.inverse,
            "lowest": self.drop.lowest,
            "floor": self.drop.floor,
        }


class Fitting:
    """How the detectors of a mode are fitted on a baseline's windows, whole or in part.

    Parameters
    ----------
    rows
        All windows, in order of time.
    scale, joint
        Of the whole baseline; `joint` are the features that are looked at together.
    channels
        What the channels are.
    seed
        Of the Isolation Forest.
    mode
        Which detectors there are.
    """

    def __init__(
        self,
        rows: Rows,
        scale: Scale,
        joint: NDArray[np.bool_],
        channels: ChannelTable,
        seed: int,
        mode: Mode,
    ) -> None:
        self._rows, self._scale, self._joint = rows, scale, joint
        self._seed, self._mode = seed, mode
        live = scale.inverse > 0
        groups = np.tile(channels.groups(), len(SCORED))
        if mode is Mode.PAPER:
            groups = np.zeros_like(groups)
        self._zscore = zscore.fit(rows.z, groups, live)
        self._live = live[: len(channels)]

    def fit(self, rows: Rows, trees: int = forest.TREES) -> Fitted:
        """Fit on some of the windows."""
        paper = self._mode is Mode.PAPER
        space = mahalanobis.fit(rows.joint) if paper else ridge.fit(rows.joint, self._joint)
        return Fitted(
            mode=self._mode,
            zscore=self._zscore,
            space=space,
            neighbours=neighbours.fit(rows.joint, space),
            forest=forest.fit(rows.joint, seed=self._seed, trees=trees),
            extremes=extremes.fit(rows.raw, self._scale.floor, self._live),
            drop=drop.fit(rows.raw, self._scale.floor, self._live),
        )

    def held_out(self, overlap: int) -> NDArray[np.float64]:
        """Return scores of all windows, ``(detectors, windows)``, by what was fitted on others."""
        blocks = [
            self.fit(self._rows[outside], FOLD_TREES).scores(self._rows[inside])
            for inside, outside in _folds(len(self._rows), overlap)
        ]
        return np.concatenate(blocks, axis=1)


def _folds(n: int, overlap: int) -> Iterator[tuple[slice, NDArray[np.intp]]]:
    """Yield blocks of windows, and for each the windows that share no tick with it."""
    edges = np.linspace(0, n, FOLDS + 1).astype(int).tolist()
    for first, end in itertools.pairwise(edges):
        yield slice(first, end), np.r_[0 : max(0, first - overlap), min(n, end + overlap) : n]
