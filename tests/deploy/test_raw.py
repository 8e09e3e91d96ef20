"""Raw kernel recordings: the right values on the right ticks of the right hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from fastavro.write import Writer
from hypothesis import given
from hypothesis import strategies as st

from deploy.raw import RawRecording, grid_us, is_raw, sampling_interval_us
from schemas.records import Floats, Layout, Longs, Telemetry
from streams.config import WorkerSettings
from streams.recording import Container, Recorded
from streams.replay import Replay

DATA = Path(__file__).parent.parent / "data"
CAMPAIGN = Path(__file__).parents[3] / "shared" / "data" / "campaign-a" / "raw.avro"
COLLAPSE_S = 1_796_087_000
Sample = dict[str, Any]


def samples_of(path: Path) -> list[Sample]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))  # type: ignore[arg-type]


SCHEMA: Any = None
with (DATA / "collapse.avro").open("rb") as head:
    SCHEMA = fastavro.reader(head).writer_schema
QUIET = samples_of(DATA / "udp_flood.avro")[:60]


def write(path: Path, samples: Iterable[Sample], per_block: int = 1000) -> Path:
    chunks = list(samples)
    with path.open("wb") as file:
        writer = Writer(file, SCHEMA, sync_interval=1 << 30)
        for i, sample in enumerate(chunks, 1):
            writer.write(sample)
            if i % per_block == 0:
                writer.dump()
        writer.flush()
    return path


class Host:
    """All telemetry of one host in one array."""

    def __init__(self, recorded: Sequence[Recorded], name: str) -> None:
        records = [r for r, _ in recorded if r.host == name]
        layouts = [r for r in records if isinstance(r, Layout)]
        assert len(layouts) == 1
        self.layout = layouts[0]
        assert isinstance(records[0], Layout), "before the telemetry that needs it"
        telemetry = [r for r in records if isinstance(r, Telemetry)]
        assert {r.layout for r in telemetry} == {self.layout.fingerprint}
        assert [r.seq for r in telemetry] == list(range(len(telemetry)))
        self.telemetry = telemetry
        self.ticks: Longs = np.concatenate([r.timestamps for r in telemetry])
        self.values: Floats = np.concatenate([r.values for r in telemetry], axis=1)

    def channel(self, label: str) -> Floats:
        (at,) = (i for i, c in enumerate(self.layout.channels) if c.label == label)
        found: Floats = self.values[at]
        return found


def replayed(path: Path) -> tuple[RawRecording, list[Recorded]]:
    raw = RawRecording(Container(path))
    return raw, list(raw)


def number(text: bytes, line: bytes, column: int) -> int:
    """Return a number of the line that starts with a word."""
    (words,) = (row.split() for row in text.splitlines() if row.split()[:1] == [line])
    return int(words[column])


@pytest.mark.parametrize(
    ("label", "file", "read", "scale"),
    [
        # USER_HZ is 100, so ticks a second are percent of a core.
        ("cpu.user[cpu1]", "proc/stat", lambda t: number(t, b"cpu1", 1), 1.0),
        ("cpu.context_switches", "proc/stat", lambda t: number(t, b"ctxt", 1), 1.0),
        ("vmstat.pgfault", "proc/vmstat", lambda t: number(t, b"pgfault", 1), 1.0),
        ("net.rx_bytes[v0]", "rank0:proc/net/dev", lambda t: number(t, b"v0:", 1), 1.0),
        ("net.tx_bytes[v0]", "rank0:proc/net/dev", lambda t: number(t, b"v0:", 9), 1.0),
    ],
)
def test_a_rate_is_the_growth_over_the_monotonic_time(
    label: str, file: str, read: Callable[[bytes], int], scale: float
) -> None:
    samples = samples_of(DATA / "udp_flood.avro")
    _, recorded = replayed(DATA / "udp_flood.avro")
    found = Host(recorded, "rank0").channel(label)
    counts = np.array([read(s["files"][file]) for s in samples], np.float64)
    seconds = np.array([s["mono_ns"] for s in samples], np.float64) / 1e9
    assert np.isnan(found[0])
    # Rates travel with eleven significant bits.
    np.testing.assert_allclose(found[1:], scale * np.diff(counts) / np.diff(seconds), rtol=2.0**-11)
    assert found[1:].max() > 0


def test_a_level_is_as_it_was_read() -> None:
    samples = samples_of(DATA / "udp_flood.avro")
    _, recorded = replayed(DATA / "udp_flood.avro")
    found = Host(recorded, "rank1").channel("vmstat.nr_free_pages")
    free = [number(s["files"]["proc/vmstat"], b"nr_free_pages", 1) for s in samples]
    np.testing.assert_array_equal(found, free)
    # Of what is read at every other tick, a value stays for two.
    found = Host(recorded, "rank1").channel("memory.mem_free")
    free = [1024 * number(s["files"]["proc/meminfo"], b"MemFree:", 1) for s in samples]
    fresh = np.isclose(found, free, rtol=1e-6, atol=0)
    kept = np.isclose(found[1:], free[:-1], rtol=1e-6, atol=0)
    assert (fresh[1:] | kept).all()
    assert fresh.mean() >= 0.5


def test_hosts_share_the_machine_and_nothing_of_the_network() -> None:
    _, recorded = replayed(DATA / "udp_flood.avro")
    rank0, rank1 = Host(recorded, "rank0"), Host(recorded, "rank1")
    np.testing.assert_array_equal(rank0.ticks, rank1.ticks)
    own = [
        c.label for c in rank0.layout.channels if c.metric.startswith(("net.", "tcp", "ip", "udp"))
    ]
    assert len(own) > 100
    common = [c.label for c in rank0.layout.channels if c.label not in own]
    for label in common:
        if not label.startswith(("softnet", "icmp", "sockets", "protocol")):
            np.testing.assert_array_equal(rank0.channel(label), rank1.channel(label), label)
    assert {c.device for c in rank1.layout.channels if c.metric == "net.rx_bytes"} == {"lo", "v1"}
    assert not np.array_equal(rank0.channel("tcp.in_segs"), rank1.channel("tcp.in_segs"))


def test_ticks_are_on_the_grid_and_records_end_with_the_second() -> None:
    samples = samples_of(DATA / "udp_flood.avro")
    _, recorded = replayed(DATA / "udp_flood.avro")
    host = Host(recorded, "rank0")
    wall_us = np.array([s["wall_ns"] for s in samples]) / 1000
    assert len(host.ticks) == len(samples)
    assert (host.ticks % 100_000 == 0).all()
    assert np.abs(host.ticks - wall_us).max() <= 50_000
    for record in host.telemetry:
        assert len({t // 1_000_000 for t in record.timestamps.tolist()}) == 1
    assert all(len(r.timestamps) == 10 for r in host.telemetry[1:-1])


def test_the_last_record_need_not_be_full(tmp_path: Path) -> None:
    _, recorded = replayed(write(tmp_path / "r.avro", QUIET[:25]))
    assert [len(r.timestamps) for r in Host(recorded, "rank1").telemetry] == [10, 10, 5]


def test_a_collapse_leaves_holes_where_no_sample_was() -> None:
    _, recorded = replayed(DATA / "collapse.avro")
    ticks = (Host(recorded, "rank0").ticks - COLLAPSE_S * 1_000_000) / 1e6
    holes = [(a, b) for a, b in pairwise(ticks.tolist()) if b - a > 0.11]
    assert holes == [(3.4, 9.2), (9.5, 11.4), (12.2, 49.8)]


def test_a_collapse_is_not_taken_for_a_calm() -> None:
    _, recorded = replayed(DATA / "collapse.avro")
    settings = WorkerSettings.model_validate({"baseline_seconds": 30})
    replay = Replay(settings, keep_features=True)
    features = [f for o in replay.run(recorded) for f in o.features if f.host == "rank0"]
    samples = {f.end // 1_000_000 - COLLAPSE_S: f.samples for f in features}
    # Ticks were there from 1 to 3.4 s and from 49.8 s on, to the recording's end at 53 s.
    assert {end: n for end, n in samples.items() if n >= 24} == {4: 25, 53: 30}
    assert not [end for end in samples if 16 <= end <= 49], "not a tick"
    assert replay.summary.missing == 2 * (57 + 18 + 375)
    assert replay.summary.empty > 0
    assert replay.summary.states["learning"] == 4
    assert replay.summary.states["abstained"] == replay.summary.windows - 4


def test_the_later_of_two_samples_on_one_tick_is_left_out(tmp_path: Path) -> None:
    samples = [dict(s) for s in QUIET[:30]]
    late = dict(samples[10])
    late["wall_ns"] += 20_000_000
    late["mono_ns"] += 20_000_000
    samples.insert(11, late)
    raw, recorded = replayed(write(tmp_path / "r.avro", samples))
    _, undisturbed = replayed(write(tmp_path / "u.avro", QUIET[:30]))
    assert raw.dropped() == {"same_tick": 1, "failed_reads": 0, "bad_fields": 0}
    assert [m for _, m in recorded] == [m for _, m in undisturbed]


def test_without_a_prefix_the_file_is_one_host(tmp_path: Path) -> None:
    def alone(sample: Sample) -> Sample:
        files = {p.removeprefix("rank1:"): t for p, t in sample["files"].items() if "k0:" not in p}
        return {**sample, "files": files}

    _, recorded = replayed(write(tmp_path / "node7.avro", map(alone, QUIET)))
    _, both = replayed(DATA / "udp_flood.avro")
    assert {r.host for r, _ in recorded} == {"node7"}
    one, rank1 = Host(recorded, "node7"), Host(both, "rank1")
    assert one.layout.channels == rank1.layout.channels
    np.testing.assert_array_equal(one.values, rank1.values[:, : len(QUIET)])


def test_a_broken_file_costs_its_own_channels_and_is_counted(tmp_path: Path) -> None:
    samples = [{**s, "files": dict(s["files"])} for s in QUIET]
    del samples[30]["files"]["rank0:proc/net/snmp"]
    raw, recorded = replayed(write(tmp_path / "r.avro", samples))
    host = Host(recorded, "rank0")
    assert np.isnan(host.channel("tcp.in_segs")[30])
    assert not np.isnan(host.channel("net.rx_bytes[v0]")[1:]).any()
    assert not np.isnan(Host(recorded, "rank1").channel("tcp.in_segs")[2:]).any()
    assert raw.dropped()["failed_reads"] == 1


def test_an_interface_that_comes_is_a_new_layout_before_its_telemetry(tmp_path: Path) -> None:
    samples = [{**s, "files": dict(s["files"])} for s in QUIET]
    for sample in samples[30:]:
        dev = sample["files"]["rank0:proc/net/dev"]
        sample["files"]["rank0:proc/net/dev"] = dev + b" eth9: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0\n"
    _, recorded = replayed(write(tmp_path / "r.avro", samples))
    known: set[int] = set()
    for record, _ in recorded:
        if record.host == "rank0" and isinstance(record, Layout):
            known.add(record.fingerprint)
        elif record.host == "rank0":
            assert isinstance(record, Telemetry)
            assert record.layout in known
    assert len(known) == 2
    ticks = [
        t
        for r, _ in recorded
        if r.host == "rank0" and isinstance(r, Telemetry)
        for t in r.timestamps
    ]
    assert len(ticks) == len(QUIET)
    assert ticks == sorted(ticks)


def test_a_cut_file_gives_what_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "r.avro", QUIET, per_block=20)
    blocks = [(b.offset, b.size) for b in Container(path).blocks()]
    path.write_bytes(path.read_bytes()[: blocks[2][0] + 5000])
    raw, recorded = replayed(path)
    assert len(Host(recorded, "rank0").ticks) == 40
    assert raw.container.lost == 5000


def test_a_block_that_does_not_parse_is_counted_and_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "r.avro", QUIET, per_block=20)
    second = list(Container(path).blocks())[1]
    data = bytearray(path.read_bytes())
    length = data.index(b"proc/stat", second.offset) - 1
    data[length] = 0x7F  # a path of -64 bytes
    path.write_bytes(data)
    raw, recorded = replayed(path)
    assert raw.container.lost == second.size
    assert len(Host(recorded, "rank0").ticks) == 40


def test_no_sample_is_no_host(tmp_path: Path) -> None:
    raw, recorded = replayed(write(tmp_path / "r.avro", []))
    assert recorded == []
    assert raw.container.lost == 0


def test_it_can_be_walked_again() -> None:
    raw = RawRecording(Container(DATA / "collapse.avro"))
    first = [m for _, m in raw]
    assert [m for _, m in raw.in_time_order()] == first


@given(st.integers(0, 2**60), st.sampled_from((10_000, 100_000, 1_000_000)))
def test_the_grid_point_is_the_nearest(wall_ns: int, interval_us: int) -> None:
    tick = grid_us(wall_ns, interval_us)
    assert tick % interval_us == 0
    assert abs(1000 * tick - wall_ns) <= 500 * interval_us


@pytest.mark.parametrize(
    ("mono_ms", "interval_ms"),
    [
        ([0, 100, 200, 305, 400, 38_000], 100),
        ([0, 9.8, 20.3, 30], 10),
        ([0, 1003, 2004], 1000),
        ([0], 100),
    ],
)
def test_the_interval_is_told_from_the_usual_distance(
    mono_ms: list[float], interval_ms: int
) -> None:
    assert sampling_interval_us([int(m * 1e6) for m in mono_ms]) == 1000 * interval_ms


def test_what_is_raw_its_schema_says() -> None:
    assert is_raw(SCHEMA)
    assert not is_raw("null")
    assert not is_raw([SCHEMA])
    assert not is_raw({"type": "record", "name": "X", "fields": [{"name": "a", "type": "int"}]})


@pytest.mark.skipif(not CAMPAIGN.exists(), reason="needs ../shared/data/campaign-a")
def test_the_cuts_are_of_the_campaign() -> None:
    whole = {s["wall_ns"]: s for s in samples_of(CAMPAIGN)}
    for name in ("udp_flood.avro", "collapse.avro"):
        for sample in samples_of(DATA / name):
            assert whole[sample["wall_ns"]] == sample
