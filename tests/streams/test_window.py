"""The rings against a model that keeps every tick in a dictionary and closes tick by tick."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features import FEATURES
from schemas.errors import InvalidRecord
from schemas.records import Telemetry
from streams.window import Windows, WindowSpec

INTERVAL = 100_000
LENGTH, STRIDE, LATENESS = 30, 10, 10
SPEC = WindowSpec(LENGTH * INTERVAL, STRIDE * INTERVAL, LATENESS * INTERVAL)
CHANNELS = 3
ORIGIN = 17_000_000_000  # ticks since the epoch, a whole stride

Row = tuple[int, int, bytes]
"""End of a window in ticks since `ORIGIN`, samples, bytes of the features."""


def value(host: str, tick: int) -> list[float]:
    return [float(tick % 7), float(len(host) * tick % 13), float(tick % 3) * 1e6]


def record(host: str, ticks: list[int], layout: int = 1, channels: int = CHANNELS) -> Telemetry:
    values = np.array([value(host, t)[:channels] for t in ticks], np.float32).T
    stamps = np.array([(ORIGIN + t) * INTERVAL for t in ticks], np.int64)
    return Telemetry(host, layout, 0, INTERVAL, stamps, np.ascontiguousarray(values))


def rows(windows: Windows[int]) -> tuple[dict[str, list[Row]], list[int]]:
    batches, released = windows.take()
    out: dict[str, list[Row]] = {}
    for b in batches:
        for i, host in enumerate(b.hosts):
            assert b.ends[i] - b.starts[i] == LENGTH * INTERVAL
            assert b.expected[i] == LENGTH
            end = int(b.ends[i]) // INTERVAL - ORIGIN
            out.setdefault(host, []).append((end, int(b.samples[i]), b.values[i].tobytes()))
    return out, released


def expected_features(host: str, ticks: list[int]) -> bytes:
    out = np.empty((len(FEATURES), CHANNELS), np.float32)
    x = np.array([value(host, t) for t in ticks], np.float32)
    d = x - x[0]
    total = np.zeros(CHANNELS, np.float32)
    square = np.zeros(CHANNELS, np.float32)
    for row in d:
        total += row
        square += row * row
    n = np.float32(len(ticks))
    mean = total / n
    out[0] = mean + x[0]
    out[1] = np.sqrt(np.maximum(square / n - mean * mean, np.float32(0)))
    out[2], out[3] = x.min(0), x.max(0)
    return out.tobytes()


class Model:
    """What should come out, one tick at a time."""

    def __init__(self, host: str, first: int) -> None:
        self.host = host
        self.seen: set[int] = set()
        self.next_end = -(-first // STRIDE) * STRIDE + LENGTH
        self.newest = first - 1
        self.rows: list[Row] = []
        self.late = self.duplicate = 0

    def tick(self, t: int) -> None:
        if t in self.seen and t > self.newest - 40:
            self.duplicate += 1
            return
        if t <= self.newest and t < self.next_end - LENGTH:
            self.late += 1
            return
        self.seen.add(t)
        if t > self.newest:
            self.close(t - 1)
            self.newest = t
        self.close(self.newest)

    def close(self, watermark: int) -> None:
        while True:
            inside = [t for t in range(self.next_end - LENGTH, self.next_end) if t in self.seen]
            if len(inside) < LENGTH and self.next_end - 1 + LATENESS > watermark:
                return
            if inside:
                self.rows.append((self.next_end, len(inside), expected_features(self.host, inside)))
            self.next_end += STRIDE


def cut(ticks: list[int], sizes: list[int]) -> list[list[int]]:
    out, at, k = [], 0, 0
    while at < len(ticks):
        size = sizes[k % len(sizes)]
        out.append(ticks[at : at + size])
        at, k = at + size, k + 1
    return out


@st.composite
def streams(draw: st.DrawFn) -> list[int]:
    """Ticks in arrival order: holes, gaps, repeats, and some that come late."""
    start = draw(st.integers(0, 25))
    ticks = list(range(start, start + draw(st.integers(1, 130))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(ticks)))
        del ticks[at : at + draw(st.integers(1, 50))]
        if not ticks:
            ticks = [start]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(ticks) - 1))
        late = ticks[at] if draw(st.booleans()) else ticks.pop(at)
        ticks.insert(min(len(ticks), at + draw(st.integers(1, 45))), late)
    return ticks


@settings(deadline=None, max_examples=300)
@given(streams(), st.lists(st.integers(1, 25), min_size=1, max_size=4), st.integers(1, 5))
def test_windows_are_those_of_the_model_however_ticks_are_packed(
    ticks: list[int], sizes: list[int], batch: int
) -> None:
    model = Model("h", ticks[0])
    for t in ticks:
        model.tick(t)
    windows: Windows[int] = Windows(SPEC)
    got: list[Row] = []
    for n, part in enumerate(cut(ticks, sizes)):
        windows.add(record("h", part), n)
        if n % batch == 0:
            got += rows(windows)[0].get("h", [])
    got += rows(windows)[0].get("h", [])
    assert got == model.rows
    dropped = windows.dropped
    assert dropped["late"] + dropped["duplicate"] == model.late + model.duplicate


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from("abc"), min_size=20, max_size=60))
def test_hosts_do_not_disturb_each_other(order: list[str]) -> None:
    together: Windows[int] = Windows(SPEC)
    alone: dict[str, Windows[int]] = {h: Windows(SPEC) for h in "abc"}
    second = dict.fromkeys("abc", 0)
    for h in order:
        r = record(h, list(range(second[h] * 10, second[h] * 10 + 10)))
        second[h] += 1
        together.add(r, 0)
        alone[h].add(r, 0)
    got = rows(together)[0]
    for h, w in alone.items():
        assert got.get(h, []) == rows(w)[0].get(h, [])


def test_the_first_window_starts_at_the_first_whole_second() -> None:
    windows: Windows[int] = Windows(SPEC)
    windows.add(record("h", list(range(7, 60))), 0)
    assert [end for end, *_ in rows(windows)[0]["h"]] == [40, 50, 60]


def test_a_record_is_released_with_the_last_window_that_needs_it() -> None:
    windows: Windows[int] = Windows(SPEC)
    seen = []
    for second in range(6):
        windows.add(record("h", list(range(10 * second, 10 * second + 10))), second)
        seen.append(rows(windows)[1])
    # Ticks of second 0 are last needed by the window that ends with second 2.
    assert seen == [[], [], [0], [1], [2], [3]]


def test_starting_again_at_what_was_not_released_gives_the_same_windows() -> None:
    records = [record("h", list(range(10 * s, 10 * s + 10))) for s in range(12)]
    whole: Windows[int] = Windows(SPEC)
    for i, r in enumerate(records):
        whole.add(r, i)
    undisturbed = rows(whole)[0]["h"]
    for crash in range(3, 12):
        first: Windows[int] = Windows(SPEC)
        released: list[int] = []
        for i, r in enumerate(records[:crash]):
            first.add(r, i)
        before, released = rows(first)
        again: Windows[int] = Windows(SPEC)
        for i, r in enumerate(records[max(released, default=-1) + 1 :]):
            again.add(r, i)
        merged = dict.fromkeys(before.get("h", []) + rows(again)[0]["h"])
        assert list(merged) == undisturbed


def test_another_layout_starts_anew_and_lets_go_of_what_was_held() -> None:
    windows: Windows[int] = Windows(SPEC)
    for s in range(4):
        windows.add(record("h", list(range(10 * s, 10 * s + 10))), s)
    rows(windows)
    windows.add(record("h", list(range(40, 50)), layout=2, channels=2), 4)
    assert rows(windows)[1] == [2, 3]
    for s in range(5, 8):
        windows.add(record("h", list(range(10 * s, 10 * s + 10)), layout=2, channels=2), s)
    batches, _ = windows.take()
    ends = [int(e) // INTERVAL - ORIGIN for b in batches for e in b.ends]
    assert ends == [70, 80]
    assert {b.channels for b in batches} == {2}


def test_a_long_silence_is_not_walked_second_by_second() -> None:
    windows: Windows[int] = Windows(SPEC)
    windows.add(record("h", list(range(30))), 0)
    year = 365 * 86_400 * 10
    windows.add(record("h", list(range(year, year + 30))), 1)
    got = rows(windows)[0]["h"]
    assert [(end, n) for end, n, _ in got] == [
        (30, 30),
        (40, 20),
        (50, 10),
        (year + 10, 10),
        (year + 20, 20),
        (year + 30, 30),
    ]
    assert windows.missing == year - 30


def test_what_is_dropped_is_counted_by_reason() -> None:
    windows: Windows[int] = Windows(SPEC)
    windows.add(record("h", list(range(100))), 0)
    windows.add(record("h", list(range(90, 100))), 1)
    windows.add(record("h", [3, 4]), 2)
    assert dict(windows.dropped) == {"duplicate": 10, "late": 2}
    # The windows that end at 110 and 120 were open, over ticks 80 to 99.
    windows.add(record("h", list(range(100, 110)), layout=2), 3)
    assert windows.dropped["layout"] == 20


@pytest.mark.parametrize(
    ("stamps", "interval", "said"),
    [
        ([100_001], 100_000, "off the grid of 100000 us"),
        ([100_000, 200_001], 100_000, "off the grid of 100000 us"),
        ([400_000], 400_000, "does not divide the 3000000 us of a window"),
        ([2_000_000], 2_000_000, "does not divide"),
    ],
)
def test_ticks_that_fit_no_window_are_refused(stamps: list[int], interval: int, said: str) -> None:
    windows: Windows[int] = Windows(SPEC)
    values = np.zeros((1, len(stamps)), np.float32)
    with pytest.raises(InvalidRecord, match=said):
        windows.add(Telemetry("h", 1, 0, interval, np.array(stamps), values), 0)
    assert windows.names() == []


def test_a_clock_that_ran_ahead_and_is_set_back_darkens_the_host_for_seconds_only() -> None:
    windows: Windows[int] = Windows(SPEC)
    hour = 36_000
    seconds = [*range(10), hour // 10, *range(10, 30)]
    for token, s in enumerate(seconds):
        windows.add(record("h", list(range(10 * s, 10 * s + 10))), token)
    got, released = rows(windows)
    whole = [end for end, samples, _ in got["h"] if samples == LENGTH]
    # The clock is believed to be back with the third record that says so, second 12.
    assert whole == [*range(30, 101, 10), *range(150, 301, 10)]
    assert windows.dropped["late"] == 20
    # Nothing from before is held for the hour to come.
    assert released == list(range(len(seconds) - 2))


def test_one_late_record_is_not_a_clock_set_back() -> None:
    windows: Windows[int] = Windows(SPEC)
    for token, s in enumerate([*range(20), 3, 20, 3, 21, 3, 22]):
        windows.add(record("h", list(range(10 * s, 10 * s + 10))), token)
    assert [end for end, *_ in rows(windows)[0]["h"]] == list(range(30, 231, 10))
    assert windows.dropped["late"] == 30


def own_grid(interval: int, first: int, count: int, per_record: int) -> list[Telemetry]:
    """Records of one channel whose value is the tick's number."""
    out = []
    for start in range(first, first + count, per_record):
        ticks = np.arange(start, min(start + per_record, first + count))
        values = (ticks[None, :] - first).astype(np.float32)
        out.append(Telemetry("h", 1, 0, interval, ticks * interval, values))
    return out


@pytest.mark.parametrize("interval", [10_000, 300_000, 600_000, 750_000, 1_500_000, 3_000_000])
@given(per_record=st.integers(1, 7), phase=st.integers(0, 20), gap=st.integers(0, 12))
@settings(deadline=None, max_examples=15)
def test_an_interval_that_divides_the_window_only(
    interval: int, per_record: int, phase: int, gap: int
) -> None:
    """Windows start with whole seconds, and have what lies in them: as an array search finds it."""
    first = 1_700_000_000_000_000 // interval + phase
    count = 8_000_000 // interval + 1
    sent = own_grid(interval, first, count, per_record)
    del sent[len(sent) // 2 : min(len(sent) // 2 + gap, len(sent) - 1)]
    windows: Windows[int] = Windows(WindowSpec())
    got: list[tuple[int, int, float]] = []
    for token, telemetry in enumerate(sent):
        windows.add(telemetry, token)
        for b in windows.take()[0]:
            assert (b.ends - b.starts == 3_000_000).all()
            assert (b.expected == 3_000_000 // interval).all()
            got += zip(b.starts.tolist(), b.samples.tolist(), b.values[:, 0].tolist(), strict=True)
    stamps = np.concatenate([t.timestamps for t in sent])
    newest = stamps[-1]
    for start, samples, mean in got:
        assert start % 1_000_000 == 0
        inside = stamps[(stamps >= start) & (stamps < start + 3_000_000)]
        assert samples == len(inside)
        assert mean == pytest.approx(np.mean(inside // interval - first), rel=1e-5)
    begin = -(-int(stamps[0]) // 1_000_000) * 1_000_000
    every = range(begin, int(newest) - 4_000_000 - interval, 1_000_000)
    owed = {s for s in every if ((stamps >= s) & (stamps < s + 3_000_000)).any()}
    starts = [start for start, _, _ in got]
    assert len(set(starts)) == len(starts)
    assert owed <= set(starts)
