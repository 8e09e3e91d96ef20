"""Isolation Forest (Liu, Ting and Zhou 2008): scikit-learn grows it, flat arrays score it.

Score: ``2 ** (-E(h) / c)`` over the trees, which is minus scikit-learn's ``score_samples``: near
0.5 on normal windows, towards 1 on those that few cuts isolate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.ensemble import IsolationForest

TREES = 64
SAMPLES = 256
"""Windows that a tree sees."""
MOST_FEATURES = 2**16
"""A node has 16 bits for its feature."""
TOGETHER = 10
"""Trees that are walked in step: their cache misses overlap, and a cold forest is all misses."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees one after another.

    `nodes` has shape ``(nodes, 2)``, 8 bytes a node: the cut (in a leaf: the path length), then
    the feature and the left child as two uint16. The right child follows the left. Children are
    counted from their tree's root; a left child of 0 marks a leaf. `roots` has shape
    ``(trees,)``, `norm` is the path length that scores 0.5.
    """

    nodes: NDArray[np.float32]
    roots: NDArray[np.int32]
    norm: float

    def score(self, z: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return one score a row; `z` has shape ``(windows, features)``."""
        return _score(z, self.nodes, self.roots, self.norm)


def fit(z: NDArray[np.float32], *, seed: int, trees: int = TREES) -> Forest:
    """Grow a forest on rows of shape ``(windows, features)``, without NaN."""
    if z.shape[1] > MOST_FEATURES:
        raise ValueError(f"{z.shape[1]} features: a forest takes {MOST_FEATURES} at most")
    samples = min(SAMPLES, len(z))
    # Imported here, so that a worker, which fits in another process, does without.
    from sklearn.ensemble import IsolationForest

    grown = IsolationForest(n_estimators=trees, max_samples=samples, random_state=seed)
    return flatten(grown.fit(z))


def flatten(grown: IsolationForest) -> Forest:
    """Lay a fitted forest out in arrays; the scores stay the same."""
    trees = [e.tree_ for e in grown.estimators_]
    sizes = [t.node_count for t in trees]
    roots = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int32)
    nodes = np.zeros((sum(sizes), 2), np.float32)
    for root, tree in zip(roots.tolist(), trees, strict=True):
        _lay_out(tree, nodes[root : root + tree.node_count])
    norm = float(mean_path_length(np.array([grown.max_samples_]))[0])
    return Forest(nodes, roots, max(norm, 1e-9))


def _lay_out(tree: Any, nodes: NDArray[np.float32]) -> None:
    """Write one scikit-learn tree, breadth first: what every row visits shares cache lines."""
    links = nodes.view(np.uint16)
    leaf_length = mean_path_length(tree.n_node_samples)
    # A row holds float32, so rounding a cut down to float32 sends every row the same way.
    cuts = tree.threshold.astype(np.float32)
    cuts = np.where(cuts > tree.threshold, np.nextafter(cuts, np.float32(-np.inf)), cuts)
    order = [(0, 0)]
    for place, (at, depth) in enumerate(order):
        left = int(tree.children_left[at])
        if left < 0:
            nodes[place, 0] = depth + leaf_length[at]
            continue
        nodes[place, 0] = cuts[at]
        links[place, 2] = tree.feature[at]
        links[place, 3] = len(order)
        order.append((left, depth + 1))
        order.append((int(tree.children_right[at]), depth + 1))


def mean_path_length(samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean depth of an unsuccessful search in a binary tree, equation 1 of the paper."""
    n = np.maximum(samples, 2).astype(np.float64)
    long = 2.0 * (np.log(np.maximum(n - 1.0, 1.0)) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(samples <= 1, 0.0, np.where(samples == 2, 1.0, long))


@njit(nogil=True, cache=True, error_model="numpy")
def score_row(
    z: NDArray[np.float32],
    nodes: NDArray[np.float32],
    links: NDArray[np.uint16],
    roots: NDArray[np.int32],
    norm: float,
) -> float:
    """Score one row; `links` is `nodes` seen as uint16, shape ``(nodes, 4)``."""
    total = 0.0
    at = np.empty(TOGETHER, np.int64)
    for first in range(0, len(roots), TOGETHER):
        together = min(TOGETHER, len(roots) - first)
        for t in range(together):
            at[t] = roots[first + t]
        walking = True
        while walking:
            walking = False
            for t in range(together):
                k = at[t]
                left = links[k, 3]
                if left > 0:
                    right = 0 if z[links[k, 2]] <= nodes[k, 0] else 1
                    at[t] = roots[first + t] + left + right
                    walking = True
        for t in range(together):
            total += nodes[at[t], 0]
    return float(2.0 ** (-total / (len(roots) * norm)))


@njit(nogil=True, cache=True, error_model="numpy")
def _score(
    z: NDArray[np.float32], nodes: NDArray[np.float32], roots: NDArray[np.int32], norm: float
) -> NDArray[np.float64]:
    links = nodes.view(np.uint16)
    out = np.empty(len(z))
    for i in range(len(z)):
        out[i] = score_row(z[i], nodes, links, roots, norm)
    return out


@njit(nogil=True, cache=True, error_model="numpy")
def path_parts(
    z: NDArray[np.float32],
    nodes: NDArray[np.float32],
    roots: NDArray[np.int32],
    norm: float,
) -> NDArray[np.float64]:
    """Return what each feature contributes to one row's score, shape ``(features,)``.

    A tree in which the row's way is shorter than usual (`norm`) shares the difference among the
    features that were cut by on that way.
    """
    links = nodes.view(np.uint16)
    out = np.zeros(len(z))
    for t in range(len(roots)):
        k = roots[t]
        cuts = 0
        while links[k, 3] > 0:
            right = 0 if z[links[k, 2]] <= nodes[k, 0] else 1
            k = roots[t] + links[k, 3] + right
            cuts += 1
        short = norm - nodes[k, 0]
        if short <= 0 or cuts == 0:
            continue
        k = roots[t]
        while links[k, 3] > 0:
            out[links[k, 2]] += short / cuts
            right = 0 if z[links[k, 2]] <= nodes[k, 0] else 1
            k = roots[t] + links[k, 3] + right
    return out
