"""The pipeline without Kafka: what is done when, and what a worker owes that starts again."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.records import Features, Telemetry
from streams.pipeline import FORGET_S, Message, Outcome, Pipeline
from streams.window import WindowSpec

INTERVAL = 100_000
LENGTH, STRIDE, LATENESS = 30, 10, 10
SPEC = WindowSpec(LENGTH * INTERVAL, STRIDE * INTERVAL, LATENESS * INTERVAL)
CHANNELS = 2
ORIGIN = 17_000_000_000  # ticks since the epoch, a whole stride

Log = list[tuple[str, list[int]]]
"""Host and ticks of every record of one partition, in order."""
Window = tuple[str, int]
"""Host, and end in ticks since `ORIGIN`."""


def telemetry(host: str, ticks: Iterable[int]) -> bytes:
    t = np.array(list(ticks), np.int64)
    name = zlib.crc32(host.encode()) % 1000
    values = np.array([t * 7 % 13 + name, t % 3 * 1e6], np.float32)
    stamps = (ORIGIN + t) * INTERVAL
    return encode(Telemetry(host, 1, 0, INTERVAL, stamps, values))


def second(host: str, n: int) -> bytes:
    return telemetry(host, range(10 * n, 10 * n + 10))


def messages(data: Iterable[bytes], partition: int = 0, first: int = 0) -> list[Message]:
    """Messages of one partition; the token is the offset."""
    return [Message(partition, first + i, d, first + i) for i, d in enumerate(data)]


def new_pipeline(silence_s: float = 30.0) -> Pipeline:
    return Pipeline(SPEC, None, keep_features=True, silence_s=silence_s)


def windows_of(features: Iterable[Features]) -> dict[Window, bytes]:
    """Windows by id; copies of one window have to be the same."""
    out: dict[Window, bytes] = {}
    for f in features:
        window = f.host, f.end // INTERVAL - ORIGIN
        assert out.setdefault(window, encode(f)) == encode(f)
    return out


def undisturbed(log: Sequence[Message]) -> dict[Window, bytes]:
    features = new_pipeline().process(log, 0.0).features
    out = windows_of(features)
    assert len(out) == len(features), "a window came twice"
    return out


def ends(outcome: Outcome, host: str) -> list[int]:
    return [end for name, end in windows_of(outcome.features) if name == host]


def test_messages_are_done_in_the_order_of_their_offsets() -> None:
    pipeline = new_pipeline()
    # b starts with a second that a is past: a's messages wait behind b's.
    log = messages([second("a", 0), second("b", 0), *(second("a", n) for n in range(1, 6))])
    assert pipeline.process(log, 0.0).done == [0]
    rest = messages([second("b", 1), second("b", 2)], first=len(log))
    # b's first window is out: its first message is done, and a's behind it up to second 3.
    assert pipeline.process(rest, 0.0).done == [1, 2, 3, 4]


def test_partitions_are_done_apart() -> None:
    pipeline = new_pipeline()
    log = [*messages([second("b", 0)], partition=1), *messages([second("a", n) for n in range(4)])]
    outcome = pipeline.process(log, 0.0)
    assert outcome.done == [0, 1]  # of partition 0; b of partition 1 holds nobody else back
    assert pipeline.position(0) == 4
    assert pipeline.position(1) == 1
    assert pipeline.position(2) is None


def test_nothing_is_done_before_its_last_window_is_handed_out() -> None:
    pipeline = new_pipeline()
    done: list[int] = []
    out: dict[Window, bytes] = {}
    for message in messages(second("a", n) for n in range(10)):
        outcome = pipeline.process([message], 0.0)
        out |= windows_of(outcome.features)
        done += outcome.done
        for offset in done:
            # The last window with ticks of second n ends at second n + 3.
            assert ("a", 10 * (offset + 3)) in out
    assert done == list(range(8))


def test_a_rewind_rebuilds_the_windows_from_where_the_log_goes_on() -> None:
    log = messages([second(h, n) for n in range(12) for h in "ab"])
    pipeline = new_pipeline()
    before = pipeline.process(log[:17], 0.0)
    assert pipeline.rewinds == 0
    again = pipeline.process(log[8:], 0.0)  # seconds 4 and on
    assert pipeline.rewinds == 1
    assert ends(again, "a") == list(range(70, 121, 10))
    assert windows_of(before.features + again.features) == undisturbed(log)
    # What was held before the rewind belongs to a group generation that is gone.
    assert before.done + again.done == [*range(13), *range(8, 20)]


def test_only_the_partition_that_jumps_starts_anew() -> None:
    pipeline = new_pipeline()
    other = messages([second("b", n) for n in range(6)], partition=1)
    pipeline.process(messages([second("a", n) for n in range(4)]), 0.0)
    pipeline.process(other[:2], 0.0)
    pipeline.process(messages([second("a", 3)], first=3), 0.0)
    assert pipeline.rewinds == 1
    assert ends(pipeline.process(other[2:], 0.0), "b") == [30, 40, 50, 60]


def test_a_jump_forward_counts_what_it_skipped_and_mends_no_window() -> None:
    pipeline = new_pipeline()
    pipeline.process(messages([second("a", n) for n in range(4)]), 0.0)
    # Offsets 4 to 8 are gone: a window over the hole would be half empty, and wrong.
    outcome = pipeline.process(messages([second("a", n) for n in range(9, 13)], first=9), 0.0)
    assert pipeline.skipped == 5
    assert pipeline.rewinds == 0
    assert ends(outcome, "a") == [120, 130]
    assert pipeline.position(0) == 13


def test_what_cannot_be_read_is_rejected_with_its_reason_and_done() -> None:
    pipeline = new_pipeline()
    bad = second("a", 1)[:-5]
    log = messages([b"junk", second("a", 0), bad, *(second("a", n) for n in range(1, 4))])
    outcome = pipeline.process(log, 0.0)
    assert [(r.message.offset, r.message.data) for r in outcome.rejected] == [
        (0, b"junk"),
        (2, bad),
    ]
    assert "too few" in outcome.rejected[0].reason
    assert "Telemetry" in outcome.rejected[1].reason
    # The first is done at once; the other in its turn, behind the host's own second.
    assert outcome.done == [0, 1, 2, 3]
    assert ends(outcome, "a") == [30, 40]


def test_a_silent_host_holds_nobody_back_for_ever() -> None:
    pipeline = new_pipeline(silence_s=5.0)
    log = messages([second("quiet", 0), *(second("a", n) for n in range(4))])
    assert pipeline.process(log, 100.0).done == []
    assert pipeline.release_silent(104.9) == []
    assert pipeline.process(messages([second("a", 4)], first=5), 104.9).done == []
    # a spoke a moment ago: only what is before its own open windows is done.
    assert pipeline.release_silent(105.0) == [0, 1, 2, 3]
    # The quiet one comes back in time for its window.
    late = messages([second("quiet", 1), second("quiet", 2)], first=6)
    assert ends(pipeline.process(late, 106.0), "quiet") == [30]


def test_a_host_that_is_gone_for_a_day_is_forgotten() -> None:
    pipeline = new_pipeline()
    log = messages([second("gone", 0), second("gone", 1), *(second("a", n) for n in range(2))])
    assert pipeline.process(log, 0.0).done == []
    day = FORGET_S
    assert pipeline.process(messages([second("a", 2)], first=4), day).done == []
    assert pipeline.forget_silent(day - 1) == []
    assert sorted(pipeline.windows.names()) == ["a", "gone"]
    assert pipeline.forget_silent(day) == []
    assert pipeline.windows.names() == ["a"]
    # What only the forgotten host held is done; what a's open windows need is not.
    assert pipeline.release_silent(day) == [0, 1, 2]


def test_a_host_that_speaks_is_not_silent() -> None:
    pipeline = new_pipeline(silence_s=5.0)
    pipeline.process(messages([second("a", 0)]), 0.0)
    pipeline.process(messages([second("a", 1)], first=1), 4.0)
    assert pipeline.release_silent(8.0) == []
    assert pipeline.release_silent(9.0) == [0, 1]


@st.composite
def host_records(draw: st.DrawFn) -> list[list[int]]:
    """Ticks of one host cut into records: it starts anywhere, with ticks and records missing."""
    start = draw(st.integers(0, 25))
    ticks = list(range(start, start + draw(st.integers(1, 120))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(ticks) - 1))
        del ticks[at : at + draw(st.integers(1, 45))]
        ticks = ticks or [start]
    size = draw(st.sampled_from((1, 7, 10, 25)))
    cuts: dict[int, list[int]] = {}
    for t in ticks:
        cuts.setdefault(t // size, []).append(t)
    return list(cuts.values())


@st.composite
def partitions(draw: st.DrawFn) -> list[Log]:
    """Logs of two partitions, several hosts each, mixed in any order."""
    logs = []
    for names in ("abc", "de"):
        waiting = {h: draw(host_records()) for h in names}
        log: Log = []
        while waiting:
            host = draw(st.sampled_from(sorted(waiting)))
            log += [(host, r) for r in waiting[host][:3]]
            waiting[host] = waiting[host][3:]
            if not waiting[host]:
                del waiting[host]
        logs.append(log)
    return logs


class Crashing:
    """A worker on two logs that dies now and then and starts at what it had acknowledged."""

    def __init__(self, logs: Sequence[Sequence[Message]]) -> None:
        self.logs = logs
        self.acknowledged = [0, 0]
        self.published: list[Features] = []
        self.start()

    def start(self) -> None:
        self.at = list(self.acknowledged)
        self.pipeline = new_pipeline()

    def batch(self, sizes: Sequence[int]) -> Outcome:
        taken: list[Message] = []
        for p, size in enumerate(sizes):
            taken += self.logs[p][self.at[p] : self.at[p] + size]
            self.at[p] += size
        return self.pipeline.process(taken, 0.0)

    def acknowledge(self, done: Iterable[tuple[int, int]]) -> None:
        for p, offset in done:
            assert offset == self.acknowledged[p], "out of order"
            self.acknowledged[p] = offset + 1


@settings(deadline=None, max_examples=200)
@given(
    partitions(),
    st.lists(
        st.tuples(
            st.tuples(st.integers(0, 12), st.integers(0, 12)),
            st.sampled_from(("", "", "after the acknowledgement", "after publishing", "before")),
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_whatever_the_crashes_every_window_comes_and_always_the_same(
    logs: list[Log], turns: list[tuple[tuple[int, int], str]]
) -> None:
    in_kafka = [
        [Message(p, i, telemetry(host, ticks), (p, i)) for i, (host, ticks) in enumerate(log)]
        for p, log in enumerate(logs)
    ]
    worker = Crashing(in_kafka)
    everything = ((10_000, 10_000), "")
    for sizes, crash in [*turns, everything]:
        outcome = worker.batch(sizes)
        if crash != "before":
            worker.published += outcome.features
        if crash in {"", "after the acknowledgement"}:
            worker.acknowledge(outcome.done)
        if crash:
            worker.start()
    wanted = undisturbed(in_kafka[0]) | undisturbed(in_kafka[1])
    assert windows_of(worker.published) == wanted


@pytest.mark.parametrize("committed", range(0, 20, 3))
def test_a_commit_that_lags_behind_only_repeats(committed: int) -> None:
    log = messages([second(h, n) for n in range(12) for h in "ab"])
    before = new_pipeline().process(log[:22], 0.0)
    assert max(before.done) + 1 >= committed
    again = new_pipeline().process(log[committed:], 0.0)
    assert windows_of(before.features + again.features) == undisturbed(log)
