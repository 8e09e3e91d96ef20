"""Many numbers in one call: nvmlDeviceGetFieldValues.

Numbers of fields (NVML_FI_DEV_*) are those of nvml.h. A field may have a scope: the link of an
NVLink field, the part of a power field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.source import NAN, Call, Number

ALL_LINKS = 0xFFFFFFFF
"""The scope that adds up all links."""

_VALUE = np.dtype(
    [
        ("field", np.uint32),
        ("scope", np.uint32),
        ("time", np.int64),
        ("latency", np.int64),
        ("type", np.uint32),
        ("error", np.uint32),
        ("bits", np.uint64),
    ]
)
"""nvmlFieldValue_t. `bits` is a union, of which `type` says what is in it."""

_TYPES: dict[int, type[np.generic]] = {
    0: np.float64,
    1: np.uint32,
    2: np.uint64,
    3: np.uint64,
    4: np.int64,
    5: np.int32,
    6: np.uint16,
}


def read_fields(
    nvml: Nvml, handle: Any, fields: Sequence[tuple[int, int]], missing: float
) -> list[float]:
    """Return the value of each field and scope, `missing` for what the device cannot say."""
    table = np.frombuffer(nvml.nvmlDeviceGetFieldValues(handle, fields), _VALUE, len(fields))
    bits, types = table["bits"], table["type"]
    if (types == types[0]).all():
        values = _as_type(bits, int(types[0]))
    else:
        values = np.empty(len(fields))
        for kind in np.unique(types):
            here = types == kind
            values[here] = _as_type(bits[here], int(kind))
    values[table["error"] != 0] = missing
    return values.tolist()  # type: ignore[no-any-return]


def _as_type(bits: np.ndarray[Any, np.dtype[np.uint64]], kind: int) -> Any:
    wanted = _TYPES.get(kind)
    if wanted is None:
        return np.full(len(bits), NAN)
    # The low bytes come first: NVIDIA supports no host where they do not.
    size = np.dtype(wanted).itemsize
    return np.ascontiguousarray(bits).view(wanted)[:: 8 // size].astype(np.float64)


def field_call(
    nvml: Nvml, handle: Any, wanted: Iterable[tuple[Number, int, int]]
) -> Iterable[Call]:
    """Return one call for those of the numbers, with field and scope, that a device has.

    Raises
    ------
    pynvml.NVMLError
        The device cannot say.
    """
    every = list(wanted)
    first = read_fields(nvml, handle, [(field, scope) for _, field, scope in every], NAN)
    here = [w for w, value in zip(every, first, strict=True) if value == value]
    if not here:
        return ()
    fields = [(field, scope) for _, field, scope in here]

    def read() -> list[float]:
        # What was there and is not is out of all bounds, and so it is counted.
        return read_fields(nvml, handle, fields, math.inf)

    return (Call(tuple(n for n, _, _ in here), read),)
