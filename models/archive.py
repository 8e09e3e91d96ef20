"""Baselines as bytes: an npz archive without pickle, whose every array is checked on the way in.

What is read here is indexed by compiled code without bounds checks, so a wrong index must not
get past this file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from models import mahalanobis, ridge
from models.mode import DETECTORS, Mode
from models.neighbours import DIRECTIONS
from models.prune import NOBODY
from models.scale import SCORED
from models.zscore import GROUPS

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 2
COMPONENTS = {Mode.DEFAULT: ridge.COMPONENTS, Mode.PAPER: mahalanobis.COMPONENTS}
"""Of the arrays, by mode."""
ARRAYS: dict[str, tuple[type[np.generic], tuple[str | int, ...]]] = {
    "version": (np.int64, ()),
    "mode": (np.str_, ()),
    "location": (np.float32, ("features",)),
    "inverse": (np.float32, ("features",)),
    "stands": (np.int32, ("channels",)),
    "joint": (np.bool_, ("features",)),
    "groups": (np.int8, ("features",)),
    "group_weights": (np.float64, (GROUPS,)),
    "components": (np.float32, ("features", "components")),
    "weights": (np.float32, ("components",)),
    "deviations": (np.float32, ("components",)),
    "residual": (np.float64, ()),
    "references": (np.float32, ("references", "directions")),
    "nodes": (np.float32, ("nodes", 2)),
    "roots": (np.int32, ("trees",)),
    "norm": (np.float64, ()),
    "reach": (np.float32, (2, "channels")),
    "lowest": (np.float32, ("channels",)),
    "floor": (np.float32, ("channels",)),
    "middles": (np.float64, ("detectors",)),
    "spreads": (np.float64, ("detectors",)),
    "thresholds": (np.float64, ("detectors",)),
    "open_at": (np.float64, (GROUPS,)),
    "calibration": (np.float32, ("detectors", "windows")),
    "low": (np.float32, ("channels",)),
    "high": (np.float32, ("channels",)),
}
"""Type and shape of each array of a `models.baseline.Baseline`; a name is one length throughout."""


def write(values: Mapping[str, Any]) -> bytes:
    """Return the arrays and numbers named in `ARRAYS` as bytes."""
    out = io.BytesIO()
    arrays = {name: np.asarray(values[name], kind) for name, (kind, _) in ARRAYS.items()}
    np.savez_compressed(out, allow_pickle=False, format=np.int64(FORMAT), **arrays)
    return out.getvalue()


def read(data: bytes) -> dict[str, Any]:
    """Return what `write` was given: arrays that nobody may write to, and numbers.

    Raises
    ------
    ValueError
        The bytes are damaged, of another format, or make no baseline; the message says which.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    # Damage comes out as almost any exception, depending on where in the archive it lies.
    except Exception as e:
        raise ValueError(
            f"not a baseline: {len(data)} bytes that are no npz archive ({type(e).__name__}: {e})"
        ) from e
    written = found.pop("format", None)
    if written is None or written.shape != () or written != FORMAT:
        raise ValueError(f"baseline of format {written}: this release reads format {FORMAT}")
    _check_shapes(found)
    _check_values(found)
    _check_trees(found["nodes"], found["roots"], len(found["location"]))
    for array in found.values():
        array.flags.writeable = False
    return {name: a if a.shape else a.item() for name, a in found.items()}


def _check_shapes(found: Mapping[str, NDArray[Any]]) -> None:
    if found.keys() != ARRAYS.keys():
        odd = ", ".join(sorted(found.keys() ^ ARRAYS.keys()))
        raise ValueError(f"baseline lacks or has too much: {odd}")
    lengths: dict[str | int, int] = {}
    for name, (kind, shape) in ARRAYS.items():
        array = found[name]
        fits = np.issubdtype(array.dtype, kind) and array.ndim == len(shape)
        for axis, length in zip(shape, array.shape, strict=False):
            wanted = axis if isinstance(axis, int) else lengths.setdefault(axis, length)
            fits &= length == wanted and length > 0
        if not fits:
            raise ValueError(f"baseline's {name} has shape {array.shape} of {array.dtype}")
    if str(found["mode"]) not in set(Mode):
        raise ValueError(f"baseline of mode {str(found['mode'])!r}, which this release has not")
    mode = Mode(str(found["mode"]))
    has = (len(DETECTORS[mode]), COMPONENTS[mode])
    if (lengths["detectors"], lengths["components"]) != has:
        raise ValueError(
            f"baseline of {lengths['detectors']} detectors and {lengths['components']} components: "
            f"mode {mode} has {has[0]} and {has[1]}"
        )
    if lengths["directions"] != min(DIRECTIONS, lengths["components"]):
        raise ValueError(f"baseline's references have {lengths['directions']} directions")
    if lengths["features"] != lengths["channels"] * len(SCORED):
        raise ValueError(
            f"baseline of {lengths['channels']} channels, {lengths['features']} features"
        )


def _check_values(found: Mapping[str, NDArray[Any]]) -> None:
    for name, array in found.items():
        # A node's second column is bits; a channel that never had a value expects none.
        values = array[:, 0] if name == "nodes" else array
        if name not in ("low", "high", "mode") and not np.isfinite(values).all():
            raise ValueError(f"baseline's {name} holds values that are not finite")
    if (np.diff(found["calibration"], axis=1) < 0).any():
        raise ValueError("baseline's calibration is not sorted")
    groups = found["groups"]
    if groups.min() < 0 or groups.max() >= GROUPS:
        raise ValueError(f"baseline's groups are not within 0 and {GROUPS - 1}")
    stands = found["stands"]
    if stands.min() < NOBODY or stands.max() >= len(stands):
        raise ValueError("baseline's channels are stood for by some that there are not")
    if found["spreads"].min() <= 0:
        raise ValueError("baseline's spreads are not positive")
    if found["norm"] <= 0:
        raise ValueError(f"baseline's norm is {found['norm']}, not positive")


def _check_trees(nodes: NDArray[np.float32], roots: NDArray[np.int32], features: int) -> None:
    """Every cut is of a feature that there is, every child is further down in the same tree."""
    sizes = np.diff(np.append(roots, len(nodes)))
    if roots[0] != 0 or (sizes <= 0).any():
        raise ValueError("baseline's roots do not divide its nodes into trees")
    links = np.ascontiguousarray(nodes).view(np.uint16)
    feature, left = links[:, 2].astype(np.int64), links[:, 3].astype(np.int64)
    place = np.arange(len(nodes)) - np.repeat(roots, sizes)
    inner = left > 0
    fine = (feature < features) & (left > place) & (left + 1 < np.repeat(sizes, sizes))
    if not fine[inner].all():
        raise ValueError("baseline's trees point outside themselves")
