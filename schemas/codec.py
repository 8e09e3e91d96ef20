"""Records to bytes and back: Avro single-object encoding.

A message is ``C3 01``, the schema's CRC-64-AVRO fingerprint (8 bytes, little-endian), then the
record's Avro binary (Avro specification, "Single-object encoding"). Any Avro library reads it.
Telemetry and Features, which are nearly all bytes on the wire, are written and read by hand,
with the same bytes as fastavro's, and so are Baselines, which are arrays too, and Scores written,
one for every window; the other small records go through fastavro.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, TypeVar

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas.errors import InvalidRecord
from schemas.floats import (
    floats_to_bytes,
    long_to_bytes,
    longs_to_bytes,
    read_floats,
    read_long,
    read_longs,
    read_string,
    string_to_bytes,
)
from schemas.records import (
    Anomaly,
    Baseline,
    BlamedChannel,
    Cause,
    Channel,
    DeadLetter,
    DetectorScore,
    EpisodeState,
    Features,
    Kind,
    Layout,
    Level,
    Record,
    Remedy,
    Score,
    State,
    Subsystem,
    SubsystemShare,
    Telemetry,
)

MARKER = b"\xc3\x01"
HEADER_BYTES = 10
LEAST_INTERVAL_US = 1000
"""No agent samples faster, and what a window holds in memory grows as the interval shrinks."""

_FLOAT, _FUSED, _DETECTOR = struct.Struct("<f"), struct.Struct("<f?"), struct.Struct("<ff?")
_STATES = {state: long_to_bytes(n) for n, state in enumerate(State)}

R = TypeVar("R", bound=Record)


def load_schema(cls: type[Record]) -> dict[str, Any]:
    """Return the parsed schema of a record class."""
    text = files("schemas").joinpath(f"{cls.__name__.lower()}.avsc").read_text(encoding="utf-8")
    parsed = fastavro.parse_schema(json.loads(text))
    assert isinstance(parsed, dict)  # noqa: S101 - every file here holds one record
    return parsed


def _header(schema: dict[str, Any]) -> bytes:
    crc = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return MARKER + bytes.fromhex(crc)


def _telemetry_to_bytes(r: Telemetry) -> bytes:
    return b"".join(
        (
            string_to_bytes(r.host),
            long_to_bytes(r.layout),
            long_to_bytes(r.seq),
            long_to_bytes(r.interval_us),
            longs_to_bytes(r.timestamps),
            floats_to_bytes(r.values),
        )
    )


def _telemetry_from_bytes(data: bytes, at: int) -> tuple[Telemetry, int]:
    host, at = read_string(data, at)
    layout, at = read_long(data, at)
    seq, at = read_long(data, at)
    interval_us, at = read_long(data, at)
    timestamps, at = read_longs(data, at)
    values, at = read_floats(data, at)
    ticks = len(timestamps)
    if interval_us < LEAST_INTERVAL_US:
        raise InvalidRecord(f"telemetry of {host!r}: an interval of {interval_us} us")
    if ticks == 0 or values.size % ticks:
        raise InvalidRecord(f"telemetry of {host!r}: {values.size} values for {ticks} timestamps")
    return Telemetry(host, layout, seq, interval_us, timestamps, values.reshape(-1, ticks)), at


def _features_to_bytes(r: Features) -> bytes:
    head = (r.layout, r.start, r.end, r.samples, r.expected)
    return b"".join((string_to_bytes(r.host), *map(long_to_bytes, head), floats_to_bytes(r.values)))


def _features_from_bytes(data: bytes, at: int) -> tuple[Features, int]:
    host, at = read_string(data, at)
    layout, at = read_long(data, at)
    start, at = read_long(data, at)
    end, at = read_long(data, at)
    samples, at = read_long(data, at)
    expected, at = read_long(data, at)
    values, at = read_floats(data, at)
    return Features(host, layout, start, end, samples, expected, values), at


def _score_to_bytes(r: Score) -> bytes:
    head = (r.layout, r.end, r.samples, r.expected, r.baseline)
    parts = [string_to_bytes(r.host), *map(long_to_bytes, head), _STATES[r.state]]
    parts += (string_to_bytes(r.reason), _FLOAT.pack(r.progress))
    if r.detectors:
        parts.append(long_to_bytes(len(r.detectors)))
        for d in r.detectors:
            parts += (string_to_bytes(d.detector), _DETECTOR.pack(d.score, d.p_value, d.flagged))
    parts += (b"\0", _FUSED.pack(r.fused, r.flagged))
    return b"".join(parts)


def _baseline_to_bytes(r: Baseline) -> bytes:
    head = (r.layout, r.version, r.windows)
    parts = [string_to_bytes(r.host), *map(long_to_bytes, head), string_to_bytes(r.note)]
    parts += (floats_to_bytes(r.low), floats_to_bytes(r.high))
    parts += (long_to_bytes(r.part), long_to_bytes(r.parts), long_to_bytes(len(r.data)), r.data)
    return b"".join(parts)


def _baseline_from_bytes(data: bytes, at: int) -> tuple[Baseline, int]:
    host, at = read_string(data, at)
    layout, at = read_long(data, at)
    version, at = read_long(data, at)
    windows, at = read_long(data, at)
    note, at = read_string(data, at)
    low, at = read_floats(data, at)
    high, at = read_floats(data, at)
    part, at = read_long(data, at)
    parts, at = read_long(data, at)
    length, at = read_long(data, at)
    end = at + length
    if not 0 <= length <= len(data) - at:
        raise InvalidRecord(f"{length} bytes are claimed where {len(data) - at} are left")
    if len(low) != len(high) or not 0 <= part < parts:
        raise InvalidRecord(
            f"baseline of {host!r}: part {part} of {parts}, ranges of {len(low)} and {len(high)}"
        )
    piece = bytes(data[at:end])
    return Baseline(host, layout, version, windows, note, low, high, part, parts, piece), end


def _plain(record: Any) -> Any:
    """Return what fastavro writes: dictionaries and lists in place of our dataclasses."""
    if hasattr(record, "__slots__"):
        return {name: _plain(getattr(record, name)) for name in record.__slots__}
    if isinstance(record, tuple):
        return [_plain(item) for item in record]
    return record


def _channel(d: Mapping[str, Any]) -> Channel:
    return Channel(d["metric"], d["device"], Subsystem(d["subsystem"]), d["unit"], Kind(d["kind"]))


def _blamed(d: Mapping[str, Any]) -> BlamedChannel:
    stands_for = tuple(d["stands_for"])
    return BlamedChannel(**{**d, "subsystem": Subsystem(d["subsystem"]), "stands_for": stands_for})


def _cause(d: Mapping[str, Any]) -> Cause:
    remedies = tuple(Remedy(**item) for item in d["remedies"])
    return Cause(**{**d, "evidence": tuple(d["evidence"]), "remedies": remedies})


def _layout(d: Mapping[str, Any]) -> Layout:
    return Layout(**{**d, "channels": tuple(map(_channel, d["channels"]))})


def _score(d: Mapping[str, Any]) -> Score:
    detectors = tuple(DetectorScore(**item) for item in d["detectors"])
    return Score(**{**d, "state": State(d["state"]), "detectors": detectors})


def _anomaly(d: Mapping[str, Any]) -> Anomaly:
    shares = (SubsystemShare(Subsystem(s["subsystem"]), s["share"]) for s in d["subsystems"])
    return Anomaly(
        **{
            **d,
            "state": EpisodeState(d["state"]),
            "detectors": tuple(d["detectors"]),
            "subsystems": tuple(shares),
            "channels": tuple(map(_blamed, d["channels"])),
            "level": Level(d["level"]),
            "causes": tuple(map(_cause, d["causes"])),
        }
    )


def _dead_letter(d: Mapping[str, Any]) -> DeadLetter:
    return DeadLetter(**d)


_SCHEMAS: dict[type, dict[str, Any]] = {
    cls: load_schema(cls)
    for cls in (Layout, Telemetry, Features, Score, Anomaly, Baseline, DeadLetter)
}
_HEADERS: dict[type[Record], bytes] = {cls: _header(s) for cls, s in _SCHEMAS.items()}
_BY_HEADER = {header: cls for cls, header in _HEADERS.items()}
_WRITERS: dict[type, Callable[[Any], bytes]] = {
    Telemetry: _telemetry_to_bytes,
    Features: _features_to_bytes,
    Score: _score_to_bytes,
    Baseline: _baseline_to_bytes,
}
_READERS: dict[type, Callable[[bytes, int], tuple[Any, int]]] = {
    Telemetry: _telemetry_from_bytes,
    Features: _features_from_bytes,
    Baseline: _baseline_from_bytes,
}
_BUILDERS: dict[type, Callable[[Mapping[str, Any]], Any]] = {
    Layout: _layout,
    Score: _score,
    Anomaly: _anomaly,
    DeadLetter: _dead_letter,
}


def encode(record: Record) -> bytes:
    """Return the message that carries `record`."""
    cls = type(record)
    write = _WRITERS.get(cls)
    if write is not None:
        return _HEADERS[cls] + write(record)
    out = io.BytesIO()
    out.write(_HEADERS[cls])
    fastavro.schemaless_writer(out, _SCHEMAS[cls], _plain(record))
    return out.getvalue()


def decode(data: bytes) -> Record:
    """Return the record that a message carries, whichever of ours it is.

    Raises
    ------
    InvalidRecord
        The message is truncated, foreign, of a schema that is not ours, or has bytes left over.
        The text says what was found.
    """
    cls = _BY_HEADER.get(data[:HEADER_BYTES])
    if cls is None:
        raise InvalidRecord(_stranger(data))
    record, end = decode_body(cls, data, HEADER_BYTES)
    if end != len(data):
        raise InvalidRecord(f"{cls.__name__} of {len(data)} bytes ends at byte {end}")
    return record


def header(cls: type[Record]) -> bytes:
    """Return the bytes that every message of a record class starts with."""
    return _HEADERS[cls]


def decode_body(cls: type[R], data: bytes, at: int = 0) -> tuple[R, int]:
    """Read one record without its header, as in a container file; return where it ends too.

    Raises
    ------
    InvalidRecord
        The record is truncated or damaged.
    """
    read = _READERS.get(cls)
    try:
        if read is not None:
            record, end = read(data, at)
        else:
            stream = io.BytesIO(data)
            stream.seek(at)
            plain: Any = fastavro.schemaless_reader(stream, _SCHEMAS[cls], None)
            record, end = _BUILDERS[cls](plain), stream.tell()
    except InvalidRecord as e:
        raise InvalidRecord(f"{cls.__name__} of {len(data)} bytes: {e}") from None
    except Exception as e:  # fastavro raises whatever the bytes lead it to
        what = str(e) or type(e).__name__
        raise InvalidRecord(f"{cls.__name__} of {len(data)} bytes is damaged: {what}") from e
    assert isinstance(record, cls)  # noqa: S101
    return record, end


def decode_as(cls: type[R], data: bytes) -> R:
    """Return the record of class `cls` that a message carries; `InvalidRecord` if it is another."""
    record = decode(data)
    if not isinstance(record, cls):
        raise InvalidRecord(f"expected {cls.__name__}, found {type(record).__name__}")
    return record


def _stranger(data: bytes) -> str:
    """Say what a message that is not ours looks like."""
    if len(data) < HEADER_BYTES:
        return f"{len(data)} bytes are too few for a message: it has a {HEADER_BYTES}-byte header"
    if data[:2] == MARKER:
        known = ", ".join(f"{c.__name__} {h[2:].hex()}" for c, h in _HEADERS.items())
        return f"unknown schema {data[2:HEADER_BYTES].hex()}; known: {known}"
    if data[0] == 0:
        registry_id = int.from_bytes(data[1:5], "big")
        return f"Confluent wire format (schema id {registry_id}); single-object Avro was expected"
    return f"not Avro single-object encoding: starts with {data[:4].hex(' ')}, not c3 01"
