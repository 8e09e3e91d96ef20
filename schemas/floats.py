"""Avro's primitive encodings by hand, where fastavro's cost per value would rule.

An Avro array is a list of blocks: a count (zig-zag varint), that many items, and at the end a
count of 0. A negative count means its absolute value, followed by the block's size in bytes
(Avro specification, "Complex types: arrays"). A block of `float` is contiguous little-endian
float32, so it can be read in place.

Readers take a buffer and a position and return the value and the position after it. They
allocate nothing that the buffer does not back, whatever a length field claims.
"""

from __future__ import annotations

import numpy as np

from schemas.errors import InvalidRecord
from schemas.records import Floats, Longs

_MAX_VARINT_BYTES = 10


def long_to_bytes(value: int) -> bytes:
    """Encode a signed 64-bit integer as a zig-zag varint."""
    n = (value << 1) ^ (value >> 63)
    if n < 0x80:
        return bytes((n,))
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read a zig-zag varint."""
    shift = n = 0
    try:
        byte = data[at]
        while byte > 0x7F:
            n |= (byte & 0x7F) << shift
            shift += 7
            if shift >= 7 * _MAX_VARINT_BYTES:
                raise InvalidRecord(f"no end to the integer at byte {at}: not Avro, or damaged")
            at += 1
            byte = data[at]
    except IndexError:
        raise InvalidRecord(f"cut off in an integer at byte {at} of {len(data)}") from None
    n |= byte << shift
    if n > 0xFFFF_FFFF_FFFF_FFFF:
        raise InvalidRecord(f"the integer before byte {at + 1} has more than 64 bits")
    return (n >> 1) ^ -(n & 1), at + 1


def string_to_bytes(value: str) -> bytes:
    """Encode a string: its length in bytes, then UTF-8."""
    raw = value.encode()
    return long_to_bytes(len(raw)) + raw


def read_string(data: bytes, at: int) -> tuple[str, int]:
    """Read a string."""
    size, at = read_long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise InvalidRecord(
            f"a string at byte {at} claims {size} bytes, {len(data) - at} are there"
        )
    try:
        return data[at:end].decode(), end
    except UnicodeDecodeError as e:
        raise InvalidRecord(f"a string at byte {at} is not UTF-8: {e.reason}") from None


def floats_to_bytes(values: Floats) -> bytes:
    """Encode an array of any shape as ``array<float>``, in C order, as one block."""
    size = values.size
    if size == 0:
        return b"\x00"
    return long_to_bytes(size) + values.astype("<f4", copy=False).tobytes() + b"\x00"


def read_floats(data: bytes, at: int) -> tuple[Floats, int]:
    """Read ``array<float>``: a view of `data` when it came in one block."""
    blocks: list[Floats] = []
    while True:
        count, at = read_long(data, at)
        if count == 0:
            break
        if count < 0:
            count = -count
            _, at = read_long(data, at)
        end = at + 4 * count
        if end > len(data):
            raise InvalidRecord(
                f"an array at byte {at} claims {count} floats, {len(data) - at} bytes are there"
            )
        blocks.append(np.frombuffer(data, "<f4", count, at))
        at = end
    if len(blocks) == 1:
        return blocks[0], at
    return (np.concatenate(blocks) if blocks else np.empty(0, np.float32)), at


def longs_to_bytes(values: Longs) -> bytes:
    """Encode a one-dimensional array as ``array<long>``, as one block."""
    if not len(values):
        return b"\x00"
    items = b"".join(map(long_to_bytes, values.tolist()))
    return long_to_bytes(len(values)) + items + b"\x00"


def read_longs(data: bytes, at: int) -> tuple[Longs, int]:
    """Read ``array<long>``."""
    out: list[int] = []
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return np.array(out, np.int64), at
        if count < 0:
            count = -count
            _, at = read_long(data, at)
        if count > len(data) - at:
            raise InvalidRecord(
                f"an array at byte {at} claims {count} integers, {len(data) - at} bytes are there"
            )
        for _ in range(count):
            value, at = read_long(data, at)
            out.append(value)
