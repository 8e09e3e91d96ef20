"""Many numbers in one call: nvmlDeviceGetFieldValues.

Numbers of fields (NVML_FI_DEV_*) are those of nvml.h. A field may have a scope: the link of an
NVLink field, the part of a power field.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.source import NAN, Call, Number

ALL_LINKS = 0xFFFFFFFF
"""The scope that adds up all links."""

_VALUE = struct.Struct("=IIqqIIQ")
"""nvmlFieldValue_t: field, scope, time, latency, type, error, and a union of which the type says
what is in it. To unpack all at once is several times faster than to ask ctypes for members."""

UNSIGNED, UNSIGNED_LONG, UNSIGNED_LONG_LONG = 1, 2, 3
_LOW_HALF = 0xFFFFFFFF


def _converted(kind: str) -> Callable[[int], float]:
    from_bits, to_kind = struct.Struct("=Q").pack, struct.Struct(kind).unpack_from
    # The low bytes come first: NVIDIA supports no host where they do not.
    return lambda bits: float(to_kind(from_bits(bits))[0])


_OTHER_TYPES = {0: _converted("<d"), 4: _converted("<q"), 5: _converted("<i"), 6: _converted("<H")}


def read_fields(
    nvml: Nvml, handle: Any, fields: Sequence[tuple[int, int]], missing: float
) -> list[float]:
    """Return the value of each field and scope, `missing` for what the device cannot say."""
    got = nvml.nvmlDeviceGetFieldValues(handle, fields)
    values: list[float] = []
    for _, _, _, _, kind, error, bits in _VALUE.iter_unpack(got):
        if error:
            values.append(missing)
        elif kind in (UNSIGNED_LONG_LONG, UNSIGNED_LONG):
            values.append(bits)
        elif kind == UNSIGNED:
            values.append(bits & _LOW_HALF)
        else:
            convert = _OTHER_TYPES.get(kind)
            values.append(missing if convert is None else convert(bits))
    return values


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
