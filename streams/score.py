"""The scoring stage: batches of windows in; scores of every window and episodes out.

Each host is judged against a baseline of its own, learned from its first windows. Hosts with
the same number of channels share one bank of arrays, so a batch is one call however many hosts
it holds.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from models.attribution import Attribution, attribute
from models.bank import DETECTORS, BaselineBank
from models.baseline import Baseline, CannotLearn, ChannelTable, fit_baseline
from models.episode import EpisodeBank, EpisodeEvent
from schemas.records import (
    Anomaly,
    BlamedChannel,
    Channel,
    DetectorScore,
    EpisodeState,
    Floats,
    Layout,
    Score,
    State,
    Subsystem,
    SubsystemShare,
)

if TYPE_CHECKING:
    from streams.layouts import Layouts
    from streams.window import WindowBatch

UPDATE_US = 5_000_000
"""Time between two updates of an episode that does not get worse."""


@dataclass(slots=True, eq=False)
class _Model:
    """What is known of one host under one layout."""

    host: str
    layout: int
    slot: int
    wanted: int
    learned: list[Floats] = field(default_factory=list)
    last_end: int = 0
    fitting: Future[Baseline] | None = None
    baseline: Baseline | None = None
    reason: str = ""
    """Why the last attempt to learn failed."""
    channels: tuple[Channel, ...] = ()
    blame: Attribution | None = None
    """Of the oddest window of the open episode."""
    peak: float = 0.0
    published: int = 0


class _Group:
    """Banks of all hosts with the same number of channels."""

    def __init__(self, channels: int) -> None:
        self.baselines = BaselineBank(channels)
        self.episodes = EpisodeBank()
        self.free: list[int] = []
        self.size = 0

    def take_slot(self) -> int:
        if self.free:
            return self.free.pop()
        self.size += 1
        return self.size - 1


class Scoring:
    """Baselines, scores and episodes of many hosts.

    Parameters
    ----------
    layouts
        Where to look up what a host's channels are.
    executor
        Where baselines are fitted.
    baseline_us, stride_us
        Time that a host is watched before it is judged, and time between its windows.
    min_share
        Share of its ticks that a window needs to be scored or learned from.
    seed
        Of the Isolation Forests.
    """

    def __init__(
        self,
        layouts: Layouts,
        executor: Executor,
        *,
        baseline_us: int,
        stride_us: int = 1_000_000,
        min_share: float = 0.8,
        seed: int = 0,
    ) -> None:
        self._layouts = layouts
        self._executor = executor
        self._windows = max(1, baseline_us // stride_us)
        self._min_share = min_share
        self._seed = seed
        self._models: dict[str, _Model] = {}
        self._groups: dict[int, _Group] = {}

    def score(self, batch: WindowBatch) -> tuple[list[Score], list[Anomaly]]:
        """Score a batch in order. A window that was scored before is passed over."""
        scores: list[Score] = []
        anomalies: list[Anomaly] = []
        group = self._groups.setdefault(batch.channels, _Group(batch.channels))
        # A host's windows follow each other; each round holds at most one window a host.
        rounds: list[list[int]] = []
        seen: dict[str, int] = {}
        for i, host in enumerate(batch.hosts):
            turn = seen.get(host, 0)
            seen[host] = turn + 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append(i)
        for rows in rounds:
            self._round(group, batch, rows, scores, anomalies)
        return scores, anomalies

    def _round(
        self,
        group: _Group,
        batch: WindowBatch,
        rows: list[int],
        scores: list[Score],
        anomalies: list[Anomaly],
    ) -> None:
        ready_rows: list[int] = []
        ready: list[_Model] = []
        for i in rows:
            model = self._model(group, batch, i, anomalies)
            end = int(batch.ends[i])
            if end <= model.last_end:
                continue
            model.last_end = end
            samples, expected = int(batch.samples[i]), int(batch.expected[i])
            whole = samples >= self._min_share * expected
            if model.baseline is None and whole:
                self._learn(group, model, batch.values[i], end)
            if model.baseline is not None and whole:
                ready_rows.append(i)
                ready.append(model)
                continue
            scores.append(self._unscored(model, end, samples, expected, whole))
            if model.baseline is not None:
                self._publish(
                    group,
                    [model],
                    group.episodes.skip(model.slot, end),
                    anomalies,
                )
        if ready:
            self._judge(group, batch, ready_rows, ready, scores, anomalies)
