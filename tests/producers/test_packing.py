from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.packing import Packer
from schemas.codec import decode_as, encode
from schemas.records import Channel, Kind, Layout, Subsystem, Telemetry, layout_fingerprint

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def layout(channels: int, interval_us: int = 100_000, host: str = "node1") -> Layout:
    names = tuple(Channel(f"m{i}", "", Subsystem.CPU, "1", Kind.GAUGE) for i in range(channels))
    return Layout(host, layout_fingerprint(names, interval_us), "0", "boot", interval_us, names)


def row(channels: int, tick: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.arange(channels, dtype=np.float32) + np.float32(1000 * tick)


def pack(packer: Packer, of: Layout, timestamps: list[int]) -> list[Telemetry]:
    channels = len(of.channels)
    return [
        record for i, t in enumerate(timestamps) for record in packer.add(t, of, row(channels, i))
    ]


def test_the_ten_ticks_of_a_second_are_one_record_cut_at_its_last() -> None:
    packer, of = Packer(10), layout(3)
    assert pack(packer, of, [START + 100_000 * i for i in range(9)]) == []
    (record,) = packer.add(START + 900_000, of, row(3, 9))
    assert record.host == "node1"
    assert record.layout == of.fingerprint
    assert record.interval_us == 100_000
    assert record.seq == 0
    assert record.timestamps.tolist() == [START + 100_000 * i for i in range(10)]
    assert record.values.dtype == np.float32
    assert record.values.tolist() == [[1000 * t + c for t in range(10)] for c in range(3)]
    assert len(packer) == 0


def test_a_start_in_mid_second_ends_with_the_second() -> None:
    packer, of = Packer(10), layout(1)
    records = pack(packer, of, [START + 100_000 * i for i in range(7, 25)])
    assert [len(r.timestamps) for r in records] == [3, 10]
    assert [r.seq for r in records] == [0, 1]
    assert len(packer) == 5


@pytest.mark.parametrize(
    ("ticks_per_record", "sizes"), [(1, [1] * 10), (4, [4, 4, 2]), (10, [10]), (50, [10])]
)
def test_a_record_is_full_or_ends_with_the_second(ticks_per_record: int, sizes: list[int]) -> None:
    records = pack(Packer(ticks_per_record), layout(2), [START + 100_000 * i for i in range(10)])
    assert [len(r.timestamps) for r in records] == sizes


def test_a_slow_grid_sends_every_tick_at_once() -> None:
    of = layout(1, interval_us=5 * SECOND)
    records = pack(Packer(10), of, [START + 5 * SECOND * i for i in range(3)])
    assert [len(r.timestamps) for r in records] == [1, 1, 1]


def test_a_missed_last_tick_holds_the_record_only_until_the_next() -> None:
    packer, of = Packer(10), layout(1)
    assert pack(packer, of, [START + 100_000 * i for i in range(9)]) == []
    (record,) = packer.add(START + SECOND, of, row(1, 9))
    assert len(record.timestamps) == 9
    assert len(packer) == 1


def test_a_new_layout_cuts_the_record() -> None:
    packer, before, after = Packer(10), layout(2), layout(3)
    assert pack(packer, before, [START, START + 100_000]) == []
    (record,) = packer.add(START + 200_000, after, row(3, 2))
    assert record.layout == before.fingerprint
    assert record.values.shape == (2, 2)
    (rest,) = packer.flush()
    assert rest.layout == after.fingerprint
    assert rest.values.tolist() == [[2000], [2001], [2002]]
    assert rest.seq == 1


@pytest.mark.parametrize("back_us", [0, 100_000, 3600 * SECOND])
def test_time_that_goes_back_cuts_the_record(back_us: int) -> None:
    packer, of = Packer(10), layout(1)
    pack(packer, of, [START + 100_000, START + 200_000])
    (record,) = packer.add(START + 200_000 - back_us, of, row(1, 2))
    assert record.timestamps.tolist() == [START + 100_000, START + 200_000]
    assert len(packer) == 1


def test_a_record_keeps_its_values_when_packing_goes_on() -> None:
    packer, of = Packer(2), layout(2)
    (first,) = pack(packer, of, [START, START + 100_000])
    kept = first.values.copy()
    pack(packer, of, [START + 200_000, START + 300_000])
    assert (first.values == kept).all()


def test_nothing_to_cut_is_nothing() -> None:
    packer = Packer(10)
    assert packer.flush() == ()
    pack(packer, layout(1), [START])
    assert len(packer.flush()) == 1
    assert packer.flush() == ()
    assert packer.seq == 1


def test_values_that_do_not_fit_the_layout_are_an_error() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        Packer(10).add(START, layout(3), row(2, 0))


@given(
    ticks_per_record=st.integers(1, 25),
    interval_us=st.sampled_from([10_000, 50_000, 100_000, 1_000_000, 5_000_000]),
    steps=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=60),
)
def test_every_tick_is_in_one_record_in_order(
    ticks_per_record: int, interval_us: int, steps: list[tuple[int, int]]
) -> None:
    """Whatever is missed and however the layout changes; and it survives the wire."""
    layouts = [layout(n, interval_us) for n in (0, 1, 2, 5)]
    packer, now, sent = Packer(ticks_per_record), START, []
    records: list[Telemetry] = []
    for i, (gap, which) in enumerate(steps):
        now += gap * interval_us
        values = row(len(layouts[which].channels), i)
        values[:1] = np.nan
        sent.append((layouts[which].fingerprint, now, values.tobytes()))
        records += packer.add(now, layouts[which], values)
    records += packer.flush()
    got = []
    for record in records:
        assert 1 <= len(record.timestamps) <= ticks_per_record
        assert len({t // SECOND for t in record.timestamps.tolist()}) == 1
        back = record if not record.values.size else decode_as(Telemetry, encode(record))
        assert back.interval_us == interval_us
        for i, t in enumerate(back.timestamps.tolist()):
            got.append((back.layout, t, np.ascontiguousarray(back.values[:, i]).tobytes()))
    assert got == sent
    assert [r.seq for r in records] == list(range(len(records)))
    assert all(a.timestamps[-1] < b.timestamps[0] for a, b in pairwise(records))
