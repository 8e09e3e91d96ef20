"""What is going on, folded from scores and anomalies: no terminal, no Kafka, time an argument.

How long ago something was heard of is measured on the reader's clock: hosts' clocks differ.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from schemas.records import Anomaly, EpisodeState, Record, Score, State

CLOSED_KEPT = 50
SILENT_US = 10_000_000
"""A host without a window for so long is silent: windows come every second."""
ORPHAN_US = 30_000_000
ORPHAN_WINDOWS = 10
"""An open episode is told of every five seconds. So many windows judged and so long without a word
of it, and whoever told of it is gone."""


class Condition(StrEnum):
    """What a host is in, in a word."""

    ANOMALY = "anomaly"
    SILENT = "silent"
    ABSTAINED = "abstained"
    LEARNING = "learning"
    RELEARNING = "relearning"
    DRIFTING = "drifting"
    NORMAL = "normal"


URGENCY = {condition: i for i, condition in enumerate(Condition)}
"""Order in which hosts are shown."""

_OF_STATE = {
    State.LEARNING: Condition.LEARNING,
    State.ABSTAINED: Condition.ABSTAINED,
    State.RELEARNING: Condition.RELEARNING,
    State.DRIFTING: Condition.DRIFTING,
    State.ACTIVE: Condition.NORMAL,
}


@dataclass(frozen=True, slots=True)
class HostChanged:
    """A host went from one condition to another; `before` is None when it is new."""

    score: Score
    before: Condition | None
    now: Condition


@dataclass(frozen=True, slots=True)
class EpisodeChanged:
    """An episode opened, went on or closed."""

    anomaly: Anomaly


class Picture:
    """The newest score of every host, the open episode of each, and the last closed ones.

    Records may come twice and, between a host's scores and its anomalies, in any order.

    Attributes
    ----------
    opened
        Episodes seen so far.
    heard_us, news_us
        When the newest score of a host came, and the newest record of its open episode.
    """

    def __init__(self) -> None:
        self.scores: dict[str, Score] = {}
        self.open: dict[str, Anomaly] = {}
        self.closed: deque[Anomaly] = deque(maxlen=CLOSED_KEPT)
        self.opened = 0
        self.heard_us: dict[str, int] = {}
        self.news_us: dict[str, int] = {}
        self._conditions: dict[str, Condition] = {}
        self._closed_until: dict[str, int] = {}
        self._judged_since: dict[str, int] = {}

    def apply(self, record: Record, now_us: int) -> HostChanged | EpisodeChanged | None:
        """Take in a record that came now, in microseconds of a steady clock.

        Returns what it changes, if that is worth telling a person.
        """
        match record:
            case Score():
                return self._apply_score(record, now_us)
            case Anomaly():
                return self._apply_anomaly(record, now_us)
            case _:
                return None

    def condition(self, score: Score, now_us: int) -> Condition:
        """Return what a host is in, by its newest score and its episodes."""
        if now_us - self.heard_us[score.host] > SILENT_US:
            return Condition.SILENT
        if score.host in self.open:
            return Condition.ANOMALY
        return _OF_STATE[score.state]

    def _apply_score(self, score: Score, now_us: int) -> HostChanged | None:
        newest = self.scores.get(score.host)
        if newest is not None and score.end <= newest.end:
            return None
        self.scores[score.host] = score
        self.heard_us[score.host] = now_us
        episode = self.open.get(score.host)
        if episode is not None and score.end > episode.latest:
            self._judged_since[score.host] += bool(score.detectors)
            if score.state is State.LEARNING or self._is_orphan(score.host, now_us):
                # A worker that took this host over knows nothing of the episode: nobody closes it.
                del self.open[score.host]
        now = self.condition(score, now_us)
        before = self._conditions.get(score.host)
        self._conditions[score.host] = now
        # An episode says by itself that it opened or closed.
        if before is now or Condition.ANOMALY in (before, now):
            return None
        return HostChanged(score, before, now)

    def _apply_anomaly(self, anomaly: Anomaly, now_us: int) -> EpisodeChanged | None:
        host = anomaly.host
        if anomaly.latest <= self._closed_until.get(host, 0):
            return None
        known = self.open.get(host)
        if known is not None and (anomaly.onset < known.onset or anomaly.latest < known.latest):
            return None
        if anomaly == known:
            return None
        if known is None or known.id != anomaly.id:
            self.opened += 1
        if anomaly.state is EpisodeState.CLOSED:
            self.open.pop(host, None)
            self.closed.appendleft(anomaly)
            self._closed_until[host] = anomaly.latest
        else:
            self.open[host] = anomaly
            self.news_us[host] = now_us
            self._judged_since[host] = 0
        return EpisodeChanged(anomaly)

    def _is_orphan(self, host: str, now_us: int) -> bool:
        quiet_us = now_us - self.news_us[host]
        return self._judged_since[host] >= ORPHAN_WINDOWS and quiet_us >= ORPHAN_US
