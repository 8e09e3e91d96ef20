"""The scoring stage: batches of windows in; scores of every window and episodes out.

Each host is judged against a baseline of its own, learned from its first windows. Hosts with
the same number of channels share one bank of arrays, so a batch is one call however many hosts
it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from models.attribution import attribute
from models.bank import BaselineBank, BatchScores
from models.baseline import DETECTORS, Baseline, CannotLearn, fit_baseline
from models.channels import ChannelTable
from models.episode import EpisodeBank, EpisodeEvent, Phase
from models.scale import scored_width
from schemas.records import Anomaly, DetectorScore, Floats, Layout, Score, State
from streams.episode import Episode

if TYPE_CHECKING:
    from streams.layouts import Layouts
    from streams.rings import WindowBatch


@dataclass(slots=True, eq=False)
class _Model:
    """What is known of one host under one layout."""

    host: str
    layout: int
    group: _Group
    slot: int
    clock: int
    last_end: int = 0
    most_known: int = 0
    """Channels that had a value in the fullest window so far."""
    learned: list[Floats] = field(default_factory=list)
    version: int = 0
    fitting: Future[Baseline] | None = None
    baseline: Baseline | None = None
    channels: ChannelTable | None = None
    reason: str = ""
    """Why the last attempt to learn failed."""
    episode: Episode | None = None


class _Group:
    """Banks of all hosts with the same number of channels."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
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
        self._wanted = max(1, baseline_us // stride_us)
        self._stride_us = stride_us
        self._min_share = min_share
        self._seed = seed
        self._models: dict[str, _Model] = {}
        self._groups: dict[int, _Group] = {}

    def score(self, batch: WindowBatch) -> tuple[list[Score], list[Anomaly]]:
        """Score a batch in order. A window that was scored before is passed over."""
        scores: list[Score] = []
        anomalies: list[Anomaly] = []
        for rows in _rounds(batch.hosts):
            self._score_round(batch, rows, scores, anomalies)
        return scores, anomalies

    def forget(self, host: str) -> list[Anomaly]:
        """Drop what is known of a host; return the end of its episode if one is open."""
        anomalies: list[Anomaly] = []
        model = self._models.pop(host, None)
        if model is not None:
            self._retire(model, anomalies)
        return anomalies

    def _score_round(
        self, batch: WindowBatch, rows: list[int], scores: list[Score], anomalies: list[Anomaly]
    ) -> None:
        """Score rows that are all of different hosts."""
        group = self._group(batch.channels)
        ready: list[int] = []
        models: list[_Model] = []
        known = np.isfinite(batch.values[:, : batch.channels]).sum(1).tolist()
        for i in rows:
            model = self._model(batch, i, anomalies)
            end = int(batch.ends[i])
            if end <= model.last_end:
                continue
            model.last_end = end
            gap = self._gap(model, batch, i, known[i])
            if not gap and model.baseline is None:
                self._learn(group, model, batch.values[i], end)
            if not gap and model.baseline is not None:
                ready.append(i)
                models.append(model)
            else:
                scores.append(self._unscored(model, batch, i, gap))
        if ready:
            self._judge(group, batch, ready, models, scores, anomalies)

    def _judge(
        self,
        group: _Group,
        batch: WindowBatch,
        rows: list[int],
        models: list[_Model],
        scores: list[Score],
        anomalies: list[Anomaly],
    ) -> None:
        picked = np.array(rows)
        slots = np.fromiter((m.slot for m in models), np.int64, len(models))
        values = batch.values if len(rows) == len(batch) else batch.values[picked]
        verdict = group.baselines.score(slots, values)
        ends = batch.ends[picked]
        events = group.episodes.step(slots, ends, verdict.flagged, self._stride_us)
        scores.extend(_scored(batch, rows, models, verdict))
        for event in events:
            row = event.index
            anomaly = _tell(models[row], event, verdict, values[row], int(ends[row]))
            if anomaly is not None:
                anomalies.append(anomaly)

    def _learn(self, group: _Group, model: _Model, values: Floats, end: int) -> None:
        """Collect a window; fit when there are enough; take the baseline when it is ready."""
        if model.fitting is not None:
            if not model.fitting.done():
                return
            fitting, model.fitting = model.fitting, None
            try:
                model.baseline = fitting.result()
            except CannotLearn as e:
                model.reason = str(e)
            except BrokenExecutor:
                raise  # the fitting process is gone: nothing can be learned any more
            except Exception as e:  # one host's odd data is not the end of all others
                model.reason = f"its baseline could not be fitted: {e!r}"
            else:
                group.baselines.set(model.slot, model.baseline)
                group.episodes.reset(model.slot)
                return
        if len(model.learned) < self._wanted:
            model.learned.append(values[: scored_width(group.channels)].copy())
        if len(model.learned) < self._wanted:
            return
        layout = self._layouts.get(model.host, model.layout)
        if layout is None:
            model.reason = "its layout has not been seen yet"
            return
        if len(layout.channels) != group.channels:
            model.reason = (
                f"its layout has {len(layout.channels)} channels, its telemetry {group.channels}"
            )
            return
        model.channels = _table(layout)
        model.reason = ""
        model.version = end
        windows = np.stack(model.learned)
        model.learned = []
        model.fitting = self._executor.submit(
            fit_baseline, windows, model.channels, seed=self._seed, version=end
        )
        if model.fitting.done():
            self._learn(group, model, values, end)

    def _gap(self, model: _Model, batch: WindowBatch, i: int, known: int) -> str:
        """Return what is missing from a window for it to be judged; empty when nothing is.

        Absent is not normal: a host whose files cannot be read any more is not well.
        """
        samples, expected = int(batch.samples[i]), int(batch.expected[i])
        if samples < self._min_share * expected:
            return f"{samples} of {expected} samples"
        model.most_known = max(model.most_known, known)
        if known < self._min_share * model.most_known or known == 0:
            return f"{known} of {model.most_known} channels have a value"
        return ""

    def _unscored(self, model: _Model, batch: WindowBatch, i: int, gap: str) -> Score:
        """Return the score of a window that is learned from, or that cannot be judged."""
        samples, expected = int(batch.samples[i]), int(batch.expected[i])
        learning = model.baseline is None
        reason = gap or model.reason
        state = State.ABSTAINED if reason else State.LEARNING
        progress = 1.0 if model.fitting is not None else len(model.learned) / self._wanted
        return Score(
            host=model.host,
            layout=model.layout,
            end=int(batch.ends[i]),
            samples=samples,
            expected=expected,
            baseline=0 if model.baseline is None else model.version,
            state=state,
            reason=reason,
            progress=progress if learning else 1.0,
            detectors=(),
            fused=0.0,
            flagged=False,
        )

    def _model(self, batch: WindowBatch, i: int, anomalies: list[Anomaly]) -> _Model:
        """Return what is known of the host of row `i`; another layout starts anew."""
        host, layout, clock = batch.hosts[i], batch.layouts[i], batch.clocks[i]
        group = self._group(batch.channels)
        model = self._models.get(host)
        if model is not None and model.layout == layout and model.group is group:
            if model.clock != clock:
                model.clock, model.last_end = clock, 0
            return model
        if model is not None:
            self._retire(model, anomalies)
        model = self._models[host] = _Model(host, layout, group, group.take_slot(), clock)
        return model

    def _retire(self, model: _Model, anomalies: list[Anomaly]) -> None:
        """Let go of a host under its old layout; what was open there is closed."""
        event = model.group.episodes.close(model.slot)
        if event is not None and model.episode is not None:
            anomalies.append(model.episode.tell(event, model.last_end))
        model.group.free.append(model.slot)

    def _group(self, channels: int) -> _Group:
        group = self._groups.get(channels)
        if group is None:
            group = self._groups[channels] = _Group(channels)
        return group


def _rounds(hosts: tuple[str, ...]) -> list[list[int]]:
    """Split rows so that each part has a host at most once, in order."""
    rounds: list[list[int]] = []
    turns: dict[str, int] = {}
    for i, host in enumerate(hosts):
        turn = turns.get(host, 0)
        turns[host] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(i)
    return rounds


def _scored(
    batch: WindowBatch, rows: list[int], models: list[_Model], verdict: BatchScores
) -> Iterator[Score]:
    raw, p_values, over = verdict.raw.tolist(), verdict.p_values.tolist(), verdict.over.tolist()
    fused, flagged = verdict.fused.tolist(), verdict.flagged.tolist()
    ends, samples = batch.ends.tolist(), batch.samples.tolist()
    expected = batch.expected.tolist()
    for n, (i, model) in enumerate(zip(rows, models, strict=True)):
        yield Score(
            host=model.host,
            layout=model.layout,
            end=ends[i],
            samples=samples[i],
            expected=expected[i],
            baseline=model.version,
            state=State.ACTIVE,
            reason="",
            progress=1.0,
            detectors=tuple(map(DetectorScore, DETECTORS, raw[n], p_values[n], over[n])),
            fused=fused[n],
            flagged=flagged[n],
        )


def _tell(
    model: _Model, event: EpisodeEvent, verdict: BatchScores, values: Floats, end: int
) -> Anomaly | None:
    """Return the record that an event is worth; None for an update with nothing new."""
    episode, fused = model.episode, float(verdict.fused[event.index])
    worse = episode is None or (fused > episode.worst and event.phase is not Phase.CLOSED)
    if worse:
        assert model.baseline is not None and model.channels is not None  # noqa: S101, PT018
        blame = attribute(model.baseline, values, model.channels)
        agreed = tuple(compress(DETECTORS, verdict.over[event.index]))
        if episode is None:
            episode = model.episode = Episode(
                model.host, model.layout, model.channels, fused, blame, agreed
            )
        episode.worst, episode.blame, episode.detectors = fused, blame, agreed
    assert episode is not None  # noqa: S101
    if event.phase is Phase.CLOSED:
        model.episode = None
    return episode.tell(event, end) if episode.is_news(event, end) else None


def _table(layout: Layout) -> ChannelTable:
    channels = layout.channels
    return ChannelTable(
        tuple(c.metric for c in channels),
        tuple(c.device for c in channels),
        tuple(c.subsystem.value for c in channels),
        tuple(c.unit for c in channels),
        tuple(c.kind.value for c in channels),
    )
