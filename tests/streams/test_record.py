"""Recordings: what goes in comes out, any Avro tool reads it, and damage is told and survived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.records import Channel, Features, Kind, Layout, Subsystem, Telemetry
from streams.record import WAITING_RECORDS, Recorder
from streams.recording import Container, ContainerWriter, InvalidRecording, Recorded, Recording

CHANNELS = (
    Channel("cpu.user", "cpu0", Subsystem.CPU, "%", Kind.RATE),
    Channel("memory.used", "", Subsystem.MEMORY, "B", Kind.GAUGE),
)


def layout(host: str, fingerprint: int = 7) -> Layout:
    return Layout(host, fingerprint, "0.1.0", "", 100_000, CHANNELS)


def telemetry(host: str, second: int, fingerprint: int = 7) -> Telemetry:
    stamps = 1_000_000 * second + 100_000 * np.arange(10, dtype=np.int64)
    values = np.arange(20, dtype=np.float32).reshape(2, 10) + np.float32(second)
    values[1, 3] = np.nan
    return Telemetry(host, fingerprint, second, 100_000, stamps, values)


def write(path: Path, records: Iterable[Layout | Telemetry], per_block: int = 1000) -> Path:
    with ContainerWriter(path) as writer:
        for i, record in enumerate(records, 1):
            writer.add(type(record), encode(record))
            if i % per_block == 0:
                writer.flush()
    return path


def read(path: Path) -> list[Recorded]:
    return list(Recording(Container(path)))


def named(recorded: Iterable[Recorded]) -> list[tuple[str, int | None]]:
    """Host and second of telemetry, host and None of layouts."""
    return [
        (r.host, int(r.timestamps[0]) // 1_000_000 if isinstance(r, Telemetry) else None)
        for r, _ in recorded
    ]


class Kept(ContainerWriter):
    """A writer whose file is read as soon as it is wanted."""

    def read(self) -> list[tuple[str, int | None]]:
        self.close()
        return named(read(self.path))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "out.avro")


def test_messages_come_out_as_they_went_in(tmp_path: Path) -> None:
    records: list[Layout | Telemetry] = [layout("a"), *(telemetry("a", n) for n in range(5))]
    path = write(tmp_path / "out.avro", records, per_block=2)
    recorded = read(path)
    assert [r.message for r in recorded] == [encode(r) for r in records]
    assert recorded[0].record == records[0]
    last = recorded[-1].record
    assert isinstance(last, Telemetry)
    np.testing.assert_array_equal(last.values, telemetry("a", 4).values)


@pytest.mark.parametrize("codec", ["zstandard", "deflate"])
def test_any_avro_tool_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    if codec == "deflate":
        monkeypatch.setattr("streams.recording.best_codec", lambda: "deflate")
    path = write(tmp_path / "out.avro", [layout("a"), telemetry("a", 3)])
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        assert reader.codec == codec
        found: list[Any] = list(reader)
    assert found[0]["channels"][1]["metric"] == "memory.used"
    assert found[1]["timestamps"] == [3_000_000 + 100_000 * i for i in range(10)]
    assert found[1]["values"][:3] == [3.0, 4.0, 5.0]
    assert np.isnan(found[1]["values"][13])
    assert len(read(path)) == 2


def test_a_file_of_features_is_no_union(tmp_path: Path) -> None:
    features = Features("a", 7, 0, 3_000_000, 30, 30, np.array([1.5, np.nan], np.float32))
    with ContainerWriter(tmp_path / "f.avro", [Features]) as writer:
        writer.add(Features, encode(features))
    with (tmp_path / "f.avro").open("rb") as file:
        reader = fastavro.reader(file)
        assert reader.writer_schema["name"] == "reveal.Features"  # type: ignore[index,call-overload]
        found: Any = next(reader)
    assert found["end"] == 3_000_000
    assert found["values"][0] == 1.5


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=60),
    st.integers(1, 9),
)
def test_time_order_is_of_all_blocks(
    tmp_path_factory: pytest.TempPathFactory, log: list[tuple[str, int]], per_block: int
) -> None:
    records: list[Layout | Telemetry] = [*(telemetry(h, s) for h, s in log), layout("a")]
    path = write(tmp_path_factory.mktemp("r") / "out.avro", records, per_block)
    ordered = named(Recording(Container(path)).in_time_order())
    assert ordered[0] == ("a", None)
    # Stable, so that a host's records of one time keep their order.
    assert [second for _, second in ordered[1:]] == sorted(second for _, second in log)
    assert sorted(h for h, _ in ordered[1:]) == sorted(h for h, _ in log)


def test_what_is_there_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    path = write(tmp_path / "out.avro", [layout("a")])
    with pytest.raises(InvalidRecording, match=r"out\.avro is there already.*--force"):
        ContainerWriter(path)
    with ContainerWriter(path, force=True) as writer:
        assert named(read(path)) == [("a", None)], "kept until the new one is whole"
        writer.add(Telemetry, encode(telemetry("b", 0)))
    assert named(read(path)) == [("b", 0)]
    assert [p.name for p in tmp_path.iterdir()] == ["out.avro"]


def test_after_a_crash_what_was_flushed_can_be_read(tmp_path: Path) -> None:
    def crash() -> None:
        with ContainerWriter(tmp_path / "out.avro") as writer:
            writer.add(Telemetry, encode(telemetry("a", 0)))
            writer.flush()
            writer.add(Telemetry, encode(telemetry("a", 1)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        crash()
    assert named(read(tmp_path / "out.avro.partial")) == [("a", 0)]
    assert not (tmp_path / "out.avro").exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecording, match=r"no/out\.avro.*No such file"):
        ContainerWriter(tmp_path / "no" / "out.avro")


def test_a_recording_cut_anywhere_gives_the_whole_blocks_before(tmp_path: Path) -> None:
    records = [telemetry("a", n) for n in range(6)]
    path = write(tmp_path / "out.avro", records, per_block=2)
    whole = path.read_bytes()
    blocks = [(b.offset, b.size) for b in Container(path).blocks()]
    assert len(blocks) == 3
    for cut in range(blocks[0][0], len(whole)):
        path.write_bytes(whole[:cut])
        recording = Recording(Container(path))
        full = [offset + size for offset, size in blocks if offset + size <= cut]
        assert named(recording) == [("a", n) for n in range(2 * len(full))]
        lost = cut - (full[-1] if full else blocks[0][0])
        assert recording.container.lost == lost
        assert bool(recording.container.trouble) == (lost > 0)


def test_a_flipped_bit_costs_what_comes_after_and_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "out.avro", [telemetry("a", n) for n in range(6)], per_block=2)
    second = list(Container(path).blocks())[1]
    data = bytearray(path.read_bytes())
    data[second.offset + second.size - 3] ^= 0x40  # in the sync marker
    path.write_bytes(data)
    recording = Recording(Container(path))
    assert named(recording) == [("a", 0), ("a", 1)]
    assert recording.container.lost == len(data) - second.offset
    assert "sync" in recording.container.trouble


def test_a_record_that_cannot_be_costs_its_block_only(tmp_path: Path) -> None:
    path = tmp_path / "out.avro"
    with ContainerWriter(path) as writer:
        writer.add(Telemetry, encode(telemetry("a", 0)))
        writer.flush()
        writer.add(Telemetry, encode(telemetry("a", 1))[:-9])
        writer.flush()
        writer.add(Telemetry, encode(telemetry("a", 2)))
    recording = Recording(Container(path))
    assert named(recording) == [("a", 0), ("a", 2)]
    bad = list(Container(path).blocks())[1]
    assert recording.container.lost == bad.size
    assert "Telemetry" in recording.container.trouble
    assert named(Recording(Container(path)).in_time_order()) == [("a", 0), ("a", 2)]


@given(st.data())
def test_whatever_bit_is_flipped_it_is_read_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("r") / "out.avro"
    write(path, [layout("a"), *(telemetry("a", n) for n in range(4))], per_block=2)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        recording = Recording(Container(path))
        count = len(list(recording))
    except InvalidRecording as e:
        assert str(path) in str(e)  # noqa: PT017
    else:
        assert count <= 5
        assert (count == 5) or recording.container.lost
        list(recording.in_time_order())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"host,cpu\na,1\n", "is not an Avro container file: it starts with 68 6f 73 74"),
        (b"Obj\x01\x02", "is damaged or cut off in its head"),
    ],
)
def test_what_is_no_container_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.avro").write_bytes(content)
    with pytest.raises(InvalidRecording, match=rf"x\.avro {said}"):
        Container(tmp_path / "x.avro")


def test_a_container_of_something_else_is_said(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Weather", "fields": [{"name": "t", "type": "int"}]}
    with (tmp_path / "x.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"t": 1}])
    with pytest.raises(InvalidRecording, match=r"x\.avro holds Weather, not"):
        Recording(Container(tmp_path / "x.avro"))


def test_a_layout_stands_before_the_telemetry_that_needs_it(kept: Kept) -> None:
    recorder = Recorder(kept)
    for record in (
        telemetry("a", 0),
        telemetry("b", 0),
        telemetry("a", 1),
        layout("never heard of"),
        layout("a"),
        telemetry("a", 2),
        layout("b"),
    ):
        recorder.add(encode(record))
    recorder.finish()
    assert kept.read() == [
        *(("a", None), ("a", 0), ("a", 1), ("a", 2)),
        *(("b", None), ("b", 0)),
    ]
    assert recorder.records == {"a": 3, "b": 1}
    assert recorder.layouts == 2
    assert not recorder.missing


def test_a_layout_that_changes_keeps_the_host_in_order(kept: Kept) -> None:
    recorder = Recorder(kept)
    log: Sequence[Layout | Telemetry] = [
        layout("a", 1),
        telemetry("a", 0, 1),
        telemetry("a", 1, 2),
        telemetry("a", 2, 1),
        layout("a", 2),
        layout("a", 2),
    ]
    for record in log:
        recorder.add(encode(record))
    recorder.finish()
    assert kept.read() == [("a", None), ("a", 0), ("a", None), ("a", 1), ("a", 2)]


def test_of_two_layouts_that_are_missing_each_releases_its_own(kept: Kept) -> None:
    recorder = Recorder(kept)
    for n, fingerprint in enumerate((1, 1, 2, 1, 3)):
        recorder.add(encode(telemetry("a", n, fingerprint)))
    recorder.add(encode(layout("a", 1)))
    assert recorder.records == {"a": 2}
    recorder.add(encode(layout("a", 2)))
    assert recorder.records == {"a": 4}
    recorder.finish()
    assert recorder.missing == {("a", 3)}
    seconds = [second for _, second in kept.read()]
    assert seconds == [None, 0, 1, None, 2, 3, 4]


def test_telemetry_without_a_layout_is_kept_and_named(kept: Kept) -> None:
    recorder = Recorder(kept)
    for n in range(WAITING_RECORDS + 1):
        recorder.add(encode(telemetry("a", n)))
    recorder.add(encode(telemetry("b", 0)))
    assert recorder.records == {"a": WAITING_RECORDS + 1}, "no more waiting than that"
    recorder.add(encode(layout("a")))
    recorder.finish()
    assert recorder.missing == {("b", 7)}
    found = kept.read()
    assert found[-2:] == [("a", None), ("b", 0)]
    assert found[:-2] == [("a", n) for n in range(WAITING_RECORDS + 1)]


def test_what_cannot_be_read_is_counted_with_its_reason(kept: Kept) -> None:
    recorder = Recorder(kept)
    recorder.add(b"junk")
    assert "too few" in recorder.reason
    recorder.add(encode(Features("a", 7, 0, 1, 1, 1, np.zeros(1, np.float32))))
    assert "Features is neither" in recorder.reason
    assert recorder.rejected == 2
    assert kept.read() == []
