"""The core without Kafka: the same windows, scores and episodes from a recording, flat out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.baseline import Baseline
from models.channels import ChannelTable
from schemas.codec import encode
from schemas.records import Channel, EpisodeState, Kind, Layout, Subsystem, Telemetry
from streams.config import WorkerSettings
from streams.core import new_pipeline
from streams.fitting import InPlace
from streams.layouts import Layouts
from streams.pipeline import Message, Outcome
from streams.recording import Recorded

BATCH = 500
"""Messages at a time, as in the worker."""


@dataclass(slots=True, eq=False)
class Summary:
    """What a replay came to.

    `seconds` is the wall time of the whole loop: reading, decoding, windows, scores, fitting;
    `fitting_seconds` is the part of it in which baselines were learned. `recording_seconds` is
    the time that the telemetry spans; `dropped` are ticks by reason, `windows` those that had a
    tick, `empty` those that had none.
    """

    records: int = 0
    hosts: int = 0
    windows: int = 0
    scored: int = 0
    states: Counter[str] = field(default_factory=Counter)
    flagged: int = 0
    episodes: int = 0
    still_open: int = 0
    rejected: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    empty: int = 0
    seconds: float = 0.0
    fitting_seconds: float = 0.0
    recording_seconds: float = 0.0

    @property
    def times_real_time(self) -> float:
        """How much faster than the recording it went."""
        return self.recording_seconds / self.seconds if self.seconds else 0.0


class Replay:
    """Runs a recording through the core. Baselines are fitted in place, so order is everything.

    Attributes
    ----------
    summary
        Up to the last outcome.
    """

    def __init__(self, settings: WorkerSettings, *, keep_features: bool = False) -> None:
        settings = settings.model_copy(update={"publish_features": keep_features})
        self.summary = Summary()
        self._layouts = Layouts()
        self._fits = _TimedFits()
        self._pipeline = new_pipeline(settings, self._layouts, self._fits)
        # One partition per host: a silent one holds back nobody's memory.
        self._partitions: dict[str, int] = {}
        self._offsets: list[int] = []
        self._first = self._last = 0

    def run(
        self, recorded: Iterable[Recorded], clock: Callable[[], float] = time.perf_counter
    ) -> Iterator[Outcome]:
        """Yield what each batch came to; `clock` is in seconds."""
        began = clock()
        batch: list[Message] = []
        for record, message in recorded:
            if isinstance(record, Layout):
                self._layouts.add(record)
                continue
            batch.append(self._message(record, message))
            if len(batch) == BATCH:
                yield self._process(batch)
                batch = []
        if batch:
            yield self._process(batch)
        self.summary.seconds = clock() - began

    def baselines(self) -> dict[str, tuple[Baseline, ChannelTable]]:
        """Return what each host that is judged is judged by, and what its channels are."""
        scoring = self._pipeline.scoring
        return {} if scoring is None else scoring.baselines()

    def _message(self, record: Telemetry, message: bytes) -> Message:
        stamps = record.timestamps
        first, last = int(stamps[0]), int(stamps[-1]) + record.interval_us
        self._first = min(self._first, first) if self._last else first
        self._last = max(self._last, last)
        partition = self._partitions.get(record.host)
        if partition is None:
            partition = self._partitions[record.host] = len(self._offsets)
            self._offsets.append(0)
        offset = self._offsets[partition]
        self._offsets[partition] = offset + 1
        return Message(partition, offset, message, None)

    def _process(self, batch: list[Message]) -> Outcome:
        outcome = self._pipeline.process(batch, 0.0)
        windows, summary = self._pipeline.windows, self.summary
        summary.records += len(batch)
        summary.hosts = len(self._partitions)
        summary.windows += len(outcome.scores)
        for score in outcome.scores:
            summary.states[score.state.value] += 1
            summary.scored += bool(score.detectors)
            summary.flagged += score.flagged
        states = Counter(a.state for a in outcome.anomalies)
        summary.episodes += states[EpisodeState.OPEN]
        summary.still_open += states[EpisodeState.OPEN] - states[EpisodeState.CLOSED]
        summary.rejected += len(outcome.rejected)
        summary.dropped = dict(windows.dropped)
        summary.missing = windows.missing
        summary.empty = windows.empty
        summary.fitting_seconds = self._fits.seconds
        summary.recording_seconds = (self._last - self._first) / 1e6
        return outcome


class _TimedFits(InPlace):
    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        began = time.perf_counter()
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - began


def warm_up(settings: WorkerSettings) -> float:
    """Compile what is compiled on first use, on a small made-up host; return the seconds."""
    began = time.perf_counter()
    replay = Replay(
        settings.model_copy(update={"baseline_seconds": 30}),
        keep_features=True,
    )
    for _ in replay.run(_made_up(60)):
        pass
    return time.perf_counter() - began


def _made_up(seconds: int) -> Iterator[Recorded]:
    channels = tuple(Channel("made.up", str(i), Subsystem.CPU, "", Kind.GAUGE) for i in range(16))
    layout = Layout("made-up", 0, "", "", 100_000, channels)
    yield Recorded(layout, encode(layout))
    random = np.random.default_rng(0)
    for n in range(seconds):
        stamps = np.arange(10 * n, 10 * n + 10, dtype=np.int64) * layout.interval_us
        values = random.normal(size=(len(channels), 10)).astype(np.float32)
        record = Telemetry("made-up", 0, n, layout.interval_us, stamps, values)
        yield Recorded(record, encode(record))
