"""Our bytes against fastavro's, in both directions, and what damaged messages come to."""

from __future__ import annotations

import contextlib
import io
import math
from dataclasses import asdict
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from schemas import codec
from schemas.codec import (
    HEADER_BYTES,
    LEAST_INTERVAL_US,
    MARKER,
    decode,
    decode_as,
    encode,
    load_schema,
)
from schemas.errors import InvalidRecord
from schemas.floats import (
    floats_to_bytes,
    long_to_bytes,
    read_floats,
    read_long,
    read_longs,
    read_string,
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
    layout_fingerprint,
)

longs = st.integers(-(2**63), 2**63 - 1)
floats = arrays(
    np.float32,
    array_shapes(max_dims=2, min_side=0, max_side=40),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)
texts = st.text(max_size=20)


@st.composite
def telemetries(draw: st.DrawFn) -> Telemetry:
    ticks = draw(st.integers(1, 12))
    channels = draw(st.integers(0, 9))
    values = draw(
        arrays(np.float32, (channels, ticks), elements=st.floats(width=32, allow_infinity=True))
    )
    stamps = draw(arrays(np.int64, ticks, elements=longs))
    interval = draw(st.integers(LEAST_INTERVAL_US, 2**40))
    return Telemetry(draw(texts), draw(longs), draw(longs), interval, stamps, values)


@st.composite
def features(draw: st.DrawFn) -> Features:
    ints = st.integers(-(2**31), 2**31 - 1)
    values = draw(floats).reshape(-1)
    return Features(
        draw(texts), draw(longs), draw(longs), draw(longs), draw(ints), draw(ints), values
    )


@st.composite
def scores(draw: st.DrawFn) -> Score:
    single = st.floats(width=32, allow_nan=False)
    ints = st.integers(-(2**31), 2**31 - 1)
    detector = st.builds(DetectorScore, texts, single, single, st.booleans())
    return Score(
        *(draw(texts), draw(longs), draw(longs), draw(ints), draw(ints), draw(longs)),
        *(draw(st.sampled_from(State)), draw(texts), draw(single)),
        detectors=tuple(draw(st.lists(detector, max_size=70))),
        fused=draw(single),
        flagged=draw(st.booleans()),
    )


@st.composite
def baselines(draw: st.DrawFn) -> Baseline:
    ints = st.integers(0, 2**31 - 1)
    low, high = draw(arrays(np.float32, (2, draw(st.integers(0, 9)))))
    parts = draw(st.integers(1, 9))
    return Baseline(
        *(draw(texts), draw(longs), draw(longs), draw(ints), draw(texts), low, high),
        *(draw(st.integers(0, parts - 1)), parts, draw(st.binary(max_size=300))),
    )


CHANNEL = Channel("cpu.user", "cpu3", Subsystem.CPU, "percent", Kind.RATE)
EXAMPLES: list[Record] = [
    Layout("node-1", -5, "0.1.0", "b00t", 100_000, (CHANNEL,)),
    Layout("node-1", 0, "", "", 100_000, ()),
    Score(
        *("node-1", 7, 1_000_000, 30, 30, 3, State.ACTIVE, "", 1.0),
        detectors=(DetectorScore("zscore", 2.5, 0.125, True),),
        fused=1.5,
        flagged=True,
    ),
    Anomaly(
        *("node-1/17", "node-1", 7, 17, 18, EpisodeState.OPEN, 2.5, 4, 3),
        detectors=("zscore", "forest"),
        subsystems=(SubsystemShare(Subsystem.CPU, 0.75), SubsystemShare(Subsystem.MEMORY, 0.25)),
        channels=(
            BlamedChannel(
                *("cpu.user", "cpu3", Subsystem.CPU, "percent", 99.5, 0.0, 12.5, 40.0, 0.5),
                stands_for=("cpu.system[cpu3]",),
            ),
        ),
        level=Level.CRITICAL,
        causes=(
            Cause(
                *("cpu_contention", "Other programs take the cores.", 0.75),
                evidence=("cpu pressure 43 %, usually 0 to 2 %",),
                remedies=(Remedy("ps -eo pid,pcpu,comm --sort=-pcpu | head", False),),
            ),
        ),
    ),
    DeadLetter("reveal.telemetry", 3, 99, "cut off", b"\x00\xff"),
]


def by_fastavro(cls: type[Record], plain: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, load_schema(cls), plain)
    return out.getvalue()


def crc64(data: bytes) -> bytes:
    """CRC-64-AVRO as the specification spells it out, little-endian."""
    empty = 0xC15D213AA4D7A795
    table = []
    for i in range(256):
        entry = i
        for _ in range(8):
            entry = (entry >> 1) ^ (empty if entry & 1 else 0)
        table.append(entry)
    crc = empty
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc.to_bytes(8, "little")


@pytest.mark.parametrize("cls", [Layout, Telemetry, Features, Score, Anomaly, Baseline, DeadLetter])
def test_the_header_is_the_marker_and_the_crc_of_the_canonical_schema(cls: type[Record]) -> None:
    canonical = fastavro.schema.to_parsing_canonical_form(load_schema(cls))
    assert codec._HEADERS[cls] == MARKER + crc64(canonical.encode())


@given(telemetries())
def test_telemetry_is_byte_for_byte_fastavros(r: Telemetry) -> None:
    plain = {
        "host": r.host,
        "layout": r.layout,
        "seq": r.seq,
        "interval_us": r.interval_us,
        "timestamps": r.timestamps.tolist(),
        "values": r.values.reshape(-1).tolist(),
    }
    ours = encode(r)
    assert ours[HEADER_BYTES:] == by_fastavro(Telemetry, plain)
    back = decode_as(Telemetry, ours)
    assert (back.host, back.layout, back.seq, back.interval_us) == (
        r.host,
        r.layout,
        r.seq,
        r.interval_us,
    )
    assert back.timestamps.tolist() == r.timestamps.tolist()
    assert back.values.shape == r.values.shape
    assert back.values.tobytes() == r.values.tobytes()


@given(features())
def test_features_are_byte_for_byte_fastavros(r: Features) -> None:
    plain = {name: getattr(r, name) for name in r.__slots__} | {"values": r.values.tolist()}
    ours = encode(r)
    assert ours[HEADER_BYTES:] == by_fastavro(Features, plain)
    back = decode_as(Features, ours)
    assert back.values.tobytes() == r.values.tobytes()
    assert (back.host, back.start, back.end) == (r.host, r.start, r.end)
    assert (back.layout, back.samples, back.expected) == (r.layout, r.samples, r.expected)


@given(scores())
def test_scores_are_byte_for_byte_fastavros(r: Score) -> None:
    plain = {name: getattr(r, name) for name in r.__slots__}
    plain["detectors"] = [asdict(d) for d in r.detectors]
    ours = encode(r)
    assert ours[HEADER_BYTES:] == by_fastavro(Score, plain)
    assert decode_as(Score, ours) == r


@given(baselines())
def test_baselines_are_byte_for_byte_fastavros(r: Baseline) -> None:
    plain = {name: getattr(r, name) for name in r.__slots__}
    plain |= {"low": r.low.tolist(), "high": r.high.tolist()}
    ours = encode(r)
    assert ours[HEADER_BYTES:] == by_fastavro(Baseline, plain)
    back = decode_as(Baseline, ours)
    for name in plain.keys() - {"low", "high"}:
        assert getattr(back, name) == getattr(r, name)
    assert (back.low.tobytes(), back.high.tobytes()) == (r.low.tobytes(), r.high.tobytes())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"part": 2}, "part 2 of 2"),
        ({"part": -1}, "part -1 of 2"),
        ({"high": [1.0]}, "ranges of 2 and 1"),
    ],
)
def test_a_baseline_that_cannot_be_is_refused(changed: dict[str, Any], said: str) -> None:
    plain = {"host": "h", "layout": 1, "version": 2, "windows": 30, "note": "", "data": b"x"}
    plain |= {"low": [0.0, 1.0], "high": [1.0, 2.0], "part": 1, "parts": 2}
    message = codec._HEADERS[Baseline] + by_fastavro(Baseline, plain | changed)
    with pytest.raises(InvalidRecord, match=said):
        decode(message)
    lies = codec._HEADERS[Baseline] + by_fastavro(Baseline, plain)[:-2] + long_to_bytes(2**40)
    with pytest.raises(InvalidRecord, match="1099511627776 bytes are claimed where 0 are left"):
        decode(lies)


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda r: type(r).__name__)
def test_small_records_come_back_equal(record: Record) -> None:
    assert decode(encode(record)) == record


@given(floats)
def test_an_array_of_floats_is_one_block_read_in_place(values: np.ndarray) -> None:
    data = b"xx" + floats_to_bytes(values)
    back, end = read_floats(data, 2)
    assert end == len(data)
    assert back.tobytes() == values.tobytes()
    assert back.base is not None or not back.size


@given(st.lists(arrays(np.float32, st.integers(1, 9)), max_size=4), st.booleans())
def test_arrays_of_several_blocks_are_read_too(blocks: list[np.ndarray], sized: bool) -> None:
    data = b""
    for b in blocks:
        data += (
            long_to_bytes(-len(b)) + long_to_bytes(4 * len(b)) if sized else long_to_bytes(len(b))
        )
        data += b.tobytes()
    back, end = read_floats(data + b"\0", 0)
    assert end == len(data) + 1
    assert back.tobytes() == b"".join(b.tobytes() for b in blocks)


@given(longs)
def test_integers_come_back(n: int) -> None:
    assert read_long(long_to_bytes(n), 0) == (n, len(long_to_bytes(n)))


@given(st.sampled_from([*EXAMPLES]) | telemetries() | features() | baselines(), st.data())
def test_a_truncated_message_is_an_invalid_record(r: Record, data: st.DataObject) -> None:
    message = encode(r)
    cut = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(InvalidRecord):
        decode(message[:cut])


@given(st.sampled_from([*EXAMPLES]) | telemetries() | features() | baselines(), st.data())
def test_a_damaged_message_decodes_or_is_an_invalid_record(r: Record, data: st.DataObject) -> None:
    message = bytearray(encode(r))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidRecord):
        decode(bytes(message))


@given(st.binary(max_size=200), st.sampled_from(list(codec._HEADERS.values())))
def test_noise_behind_a_good_header_is_an_invalid_record_or_a_record(
    noise: bytes, header: bytes
) -> None:
    with contextlib.suppress(InvalidRecord):
        decode(header + noise)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "0 bytes are too few"),
        (b"\xc3\x01\0\0", "4 bytes are too few"),
        (b"\xc3\x01" + bytes(8), "unknown schema 0000000000000000; known: Layout "),
        (b"\0\0\0\0\x2a" + bytes(8), "Confluent wire format (schema id 42)"),
        (b'{"host": "a"}', "starts with 7b 22 68 6f"),
    ],
)
def test_a_foreign_message_is_said_to_be_what_it_is(message: bytes, said: str) -> None:
    with pytest.raises(InvalidRecord) as e:
        decode(message)
    assert said in str(e.value)


def test_bytes_left_over_are_an_error() -> None:
    for record in EXAMPLES:
        with pytest.raises(InvalidRecord, match="ends at byte"):
            decode(encode(record) + b"\0")


def test_another_of_our_records_is_not_what_was_asked_for() -> None:
    with pytest.raises(InvalidRecord, match="expected Telemetry, found DeadLetter"):
        decode_as(Telemetry, encode(EXAMPLES[-1]))


def test_a_lying_length_allocates_nothing() -> None:
    with pytest.raises(InvalidRecord, match="claims 4611686018427387904 floats"):
        read_floats(long_to_bytes(2**62) + bytes(8), 0)
    with pytest.raises(InvalidRecord, match="integers"):
        read_longs(long_to_bytes(2**62) + bytes(8), 0)
    with pytest.raises(InvalidRecord, match="a string"):
        read_string(long_to_bytes(2**62) + bytes(8), 0)


def test_telemetry_whose_values_do_not_fit_its_ticks_is_refused() -> None:
    header = codec._HEADERS[Telemetry]
    plain = {"host": "h", "layout": 1, "seq": 0, "interval_us": 1}
    least = LEAST_INTERVAL_US
    for stamps, values, interval in (
        ([1, 2], [1.0] * 3, least),
        ([], [1.0], least),
        ([1], [1.0], least - 1),
    ):
        body = by_fastavro(
            Telemetry, plain | {"timestamps": stamps, "values": values, "interval_us": interval}
        )
        with pytest.raises(InvalidRecord, match="telemetry of 'h'"):
            decode(header + body)


def test_fingerprints_tell_layouts_apart_and_are_stable() -> None:
    other = Channel("cpu.user", "cpu4", Subsystem.CPU, "percent", Kind.RATE)
    assert layout_fingerprint([CHANNEL], 100_000) == 4326229689259150047
    different = {
        layout_fingerprint(channels, interval)
        for channels in ([CHANNEL], [other], [CHANNEL, other], [other, CHANNEL], [])
        for interval in (100_000, 200_000)
    }
    assert len(different) == 10


def test_infinities_and_nan_survive() -> None:
    values = np.array([[math.inf, -math.inf, math.nan, -0.0]], np.float32)
    r = Telemetry("h", 1, 0, 100_000, np.arange(4), values)
    assert decode_as(Telemetry, encode(r)).values.tobytes() == values.tobytes()
