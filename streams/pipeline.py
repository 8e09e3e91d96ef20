"""The whole core in order: messages in; features, scores and episodes out.

Live and replay run this same object; only where messages come from and where results go
differs. It keeps the log's promise: a message is `done` once every window that needs it has
been handed out, and messages of a partition are done in the order of their offsets, so
that a worker which starts again at the first that is not done owes exactly the rest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.codec import decode_as
from schemas.errors import InvalidRecord
from schemas.records import Anomaly, Features, Score, Telemetry
from streams.rings import WindowBatch
from streams.window import Windows, WindowSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streams.lives import News
    from streams.score import Scoring

NO_OFFSET = -1
FORGET_S = 86_400.0
"""A host unheard of for so long is forgotten with its baseline, so that memory stays bounded."""


class Message(NamedTuple):
    """A message of the telemetry topic; `token` comes back in `Outcome.done`."""

    partition: int
    offset: int
    data: bytes
    token: Any


class Rejected(NamedTuple):
    """A message that is not telemetry, and why."""

    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a batch of messages came to. Publish the rest first, then acknowledge `done`."""

    features: list[Features]
    scores: list[Score]
    anomalies: list[Anomaly]
    rejected: list[Rejected]
    done: list[Any]


@dataclass(slots=True, eq=False)
class _Held:
    token: Any
    host: str = ""
    done: bool = False


@dataclass(slots=True, eq=False)
class _Partition:
    last: int = NO_OFFSET
    held: deque[_Held] = field(default_factory=deque)
    hosts: set[str] = field(default_factory=set)


class Pipeline:
    """Windows and scoring over the partitions of a log.

    Parameters
    ----------
    spec
        Lengths of the windows.
    scoring
        The stage that scores windows; None where only features are wanted.
    keep_features
        Whether outcomes carry `Features`.
    silence_s
        A host that sends nothing for so long no longer holds back its partition's offset.

    Attributes
    ----------
    rewinds
        Times that a partition was read again from an earlier place, so that its windows were
        rebuilt.
    skipped
        Messages that a partition jumped over: lost to the broker's retention, or read by
        another worker meanwhile.
    """

    def __init__(
        self,
        spec: WindowSpec,
        scoring: Scoring | None,
        *,
        keep_features: bool = False,
        silence_s: float = 30.0,
    ) -> None:
        self.windows: Windows[_Held] = Windows(spec)
        self.scoring = scoring
        self.keep_features = keep_features
        self.silence_s = silence_s
        self.rewinds = 0
        self.skipped = 0
        self._partitions: dict[int, _Partition] = {}
        self._heard: dict[str, float] = {}

    def process(self, messages: Sequence[Message], now: float) -> Outcome:
        """Take in a batch in log order; `now` is a monotonic time in seconds."""
        rejected: list[Rejected] = []
        heard, add = self._heard, self.windows.add
        touched = set()
        for message in messages:
            partition = self._partitions.setdefault(message.partition, _Partition())
            if message.offset != partition.last + 1 and partition.last != NO_OFFSET:
                self._jump(partition, message.offset)
            partition.last = message.offset
            touched.add(message.partition)
            held = _Held(message.token)
            partition.held.append(held)
            try:
                record = decode_as(Telemetry, message.data)
                add(record, held)
            except InvalidRecord as e:
                rejected.append(Rejected(message, str(e)))
                held.done = True
                continue
            held.host = record.host
            heard[record.host] = now
            partition.hosts.add(record.host)
        features, scores, anomalies = self._drain()
        return Outcome(features, scores, anomalies, rejected, self._done(touched))

    def release_silent(self, now: float) -> list[Any]:
        """Return what only silent hosts held back; their open windows stay in memory."""
        for partition in self._partitions.values():
            for held in partition.held:
                if not held.done and now - self._heard.get(held.host, now) >= self.silence_s:
                    held.done = True
        return self._done(self._partitions)

    def forget_silent(self, now: float) -> list[Anomaly]:
        """Drop hosts that are gone; return the end of episodes that they left open."""
        anomalies: list[Anomaly] = []
        for host in [h for h, heard in self._heard.items() if now - heard >= FORGET_S]:
            del self._heard[host]
            for held in self.windows.forget(host):
                held.done = True
            for partition in self._partitions.values():
                partition.hosts.discard(host)
            if self.scoring is not None:
                anomalies += self.scoring.forget(host)
        return anomalies

    def offer(self, news: News) -> None:
        """Take a baseline that was learned elsewhere or before."""
        if self.scoring is not None:
            self.scoring.offer(news)

    def take_news(self) -> list[tuple[int, News]]:
        """Return baselines that were learned or given up since, with the host's partition."""
        found = [] if self.scoring is None else self.scoring.take_news()
        home = {h: n for n, p in self._partitions.items() for h in p.hosts} if found else {}
        return [(home[news.host], news) for news in found if news.host in home]

    def position(self, partition: int) -> int | None:
        """Return the offset that follows the last message read; None before the first."""
        state = self._partitions.get(partition)
        return None if state is None or state.last == NO_OFFSET else state.last + 1

    def _drain(self) -> tuple[list[Features], list[Score], list[Anomaly]]:
        batches, released = self.windows.take()
        for held in released:
            held.done = True
        features: list[Features] = []
        scores: list[Score] = []
        anomalies: list[Anomaly] = []
        for batch in batches:
            if self.keep_features:
                features.extend(_features(batch))
            if self.scoring is not None:
                some_scores, some_anomalies = self.scoring.score(batch)
                scores.extend(some_scores)
                anomalies.extend(some_anomalies)
        return features, scores, anomalies

    def _jump(self, partition: _Partition, offset: int) -> None:
        """Start anew where the log goes on: windows that are half built would be wrong."""
        if offset <= partition.last:
            self.rewinds += 1
        else:
            self.skipped += offset - partition.last - 1
        for host in partition.hosts:
            self.windows.forget(host)
        partition.hosts.clear()
        partition.held.clear()

    def _done(self, partitions: Iterable[int]) -> list[Any]:
        done = []
        for number in partitions:
            held = self._partitions[number].held
            while held and held[0].done:
                done.append(held.popleft().token)
        return done


def _features(batch: WindowBatch) -> Iterable[Features]:
    starts, ends = batch.starts.tolist(), batch.ends.tolist()
    samples, expected = batch.samples.tolist(), batch.expected.tolist()
    for i, host in enumerate(batch.hosts):
        yield Features(
            host, batch.layouts[i], starts[i], ends[i], samples[i], expected[i], batch.values[i]
        )
