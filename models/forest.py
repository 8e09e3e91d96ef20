"""Isolation Forest: how few random cuts set a window apart (Liu, Ting, Zhou, ICDM 2008).

scikit-learn grows the trees; they are scored from flat arrays, since one row through
scikit-learn costs a thousand times what it costs here. The score is scikit-learn's, with the
sign turned: ``2 ** (-mean path length / c(samples in a tree))``, higher is odder.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest

TREES = 100
SAMPLES = 128
"""Windows that a tree is grown from, at most half of those there are."""
NODES = 2 * SAMPLES
"""Room for a tree: one of n samples has at most 2 n - 1 nodes."""
LEAF = -1


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees as arrays ``(TREES, NODES)``.

    A node goes `left` where ``z[feature] <= value``, else right, which is `left` + 1 in this
    numbering. In a leaf, `feature` is `LEAF` and `value` the path length that it stands for.
    """

    feature: NDArray[np.int16]
    value: NDArray[np.float32]
    left: NDArray[np.int16]
    inverse_norm: np.float32

    @classmethod
    def fit(cls, z: NDArray[np.float32], *, seed: int) -> tuple[Forest, NDArray[np.float32]]:
        """Grow the trees; also return each window's score by the trees that have not seen it.

        A window's own trees isolate it too late, so a threshold has to come from the others.
        """
        count = len(z)
        samples = max(2, min(SAMPLES, count // 2))
        model = IsolationForest(TREES, max_samples=samples, random_state=seed).fit(z)
        feature = np.full((TREES, NODES), LEAF, np.int16)
        value = np.zeros((TREES, NODES), np.float32)
        left = np.zeros((TREES, NODES), np.int16)
        trees = zip(model.estimators_, model.estimators_features_, strict=True)
        for t, (estimator, columns) in enumerate(trees):
            _flatten(estimator.tree_, columns, feature[t], value[t], left[t])
        forest = cls(feature, value, left, np.float32(1 / average_path(samples)))
        paths = _paths(z, feature, value, left)
        for t, chosen in enumerate(model.estimators_samples_):
            paths[np.unique(chosen), t] = np.nan
        unseen = ~np.isnan(paths)
        mean = np.where(unseen, paths, 0).sum(1) / np.maximum(unseen.sum(1), 1)
        return forest, (2.0 ** (-mean * forest.inverse_norm)).astype(np.float32)

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Score standardised windows ``(windows, features)``; higher is odder."""
        paths = _paths(z, self.feature, self.value, self.left)
        mean: NDArray[np.float32] = paths.mean(1, dtype=np.float32)
        return np.exp2(-mean * self.inverse_norm)


def average_path(n: float) -> float:
    """Return the mean path length of an unsuccessful search in a tree of n samples."""
    if n <= 1:
        return 0.0
    if n <= 2:
        return 1.0
    return float(2 * (np.log(n - 1) + np.euler_gamma) - 2 * (n - 1) / n)


def _flatten(
    tree: object,
    columns: NDArray[np.int64],
    feature: NDArray[np.int16],
    value: NDArray[np.float32],
    left: NDArray[np.int16],
) -> None:
    """Renumber one tree of scikit-learn breadth first, so that siblings stand side by side."""
    split, threshold = tree.feature, tree.threshold  # type: ignore[attr-defined]
    lefts, rights = tree.children_left, tree.children_right  # type: ignore[attr-defined]
    samples = tree.n_node_samples  # type: ignore[attr-defined]
    queue, depths = [0], [0]
    for at, node in enumerate(queue):
        if lefts[node] < 0:
            value[at] = depths[at] + average_path(samples[node])
            continue
        feature[at] = columns[split[node]]
        value[at] = threshold[node]
        left[at] = len(queue)
        queue += [lefts[node], rights[node]]
        depths += [depths[at] + 1, depths[at] + 1]


@njit(nogil=True, cache=True)
def forest_row(
    z: NDArray[np.float32],
    feature: NDArray[np.int16],
    value: NDArray[np.float32],
    left: NDArray[np.int16],
    inverse_norm: np.float32,
) -> np.float32:
    """Score one standardised window."""
    total = np.float32(0)
    trees = len(feature)
    for t in range(trees):
        node = 0
        f = feature[t, node]
        while f >= 0:
            node = left[t, node] if z[f] <= value[t, node] else left[t, node] + 1
            f = feature[t, node]
        total += value[t, node]
    return np.float32(2.0 ** (-(total / trees) * inverse_norm))


@njit(nogil=True, cache=True)
def _paths(
    z: NDArray[np.float32],
    feature: NDArray[np.int16],
    value: NDArray[np.float32],
    left: NDArray[np.int16],
) -> NDArray[np.float32]:
    """Return the path length of every window in every tree, ``(windows, trees)``."""
    out = np.empty((len(z), len(feature)), np.float32)
    for w in range(len(z)):
        for t in range(len(feature)):
            node = 0
            while feature[t, node] >= 0:
                go = z[w, feature[t, node]] <= value[t, node]
                node = left[t, node] if go else left[t, node] + 1
            out[w, t] = value[t, node]
    return out
