"""What a replay said of each host, kept to be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from models.evaluation import Account, Event, Told
from models.ranking import auc_pr, vus_pr
from schemas.records import Anomaly, EpisodeState, Features, Layout
from streams.config import WorkerSettings
from streams.recording import Recorded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streams.pipeline import Outcome


MUCH = 0.25
"""Share of the blame with which a subsystem is one of those to blame."""


@dataclass(slots=True, eq=False)
class HostRun:
    """Scored windows of one host, in order: their ends, fused scores and flags."""

    ends: list[int] = field(default_factory=list)
    fused: list[float] = field(default_factory=list)
    flagged: list[bool] = field(default_factory=list)

    def last_flagged(self, begin_us: int, end_us: int) -> int | None:
        """Return the end of the last flagged window that ends in ``(begin, end]``."""
        ends = np.array(self.ends, np.int64)
        found = ends[np.array(self.flagged, np.bool_) & (ends > begin_us) & (ends <= end_us)]
        return int(found[-1]) if len(found) else None


@dataclass(slots=True, eq=False)
class Watched:
    """Scores and episodes of a replay.

    Attributes
    ----------
    from_us
        Windows and episodes that end before it count for nothing.
    hosts
        Those that were judged; a host that was only learned is in `recorded` alone.
    episodes
        Every record of an episode, in order, by its name.
    states
        Windows by what their score could say.
    dropped, missing
        Ticks that went into no window, by reason, and those that have not come.
    """

    from_us: int = 0
    hosts: dict[str, HostRun] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    episodes: dict[str, list[Anomaly]] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, int] = field(default_factory=dict)
    missing: int = 0

    def take(self, outcome: Outcome) -> None:
        """Take in a batch."""
        for score in outcome.scores:
            self.recorded.add(score.host)
            self.states[score.state.value] += 1
            if score.detectors and score.end > self.from_us:
                run = self.hosts.setdefault(score.host, HostRun())
                run.ends.append(score.end)
                run.fused.append(score.fused)
                run.flagged.append(score.flagged)
        for a in outcome.anomalies:
            if a.latest <= self.from_us:
                continue
            if a.state is EpisodeState.OPEN:
                self.episodes[a.id] = [a]
            elif a.id in self.episodes:
                self.episodes[a.id].append(a)

    @property
    def windows(self) -> int:
        """Windows that were scored, of all hosts."""
        return sum(len(run.ends) for run in self.hosts.values())

    def span(self) -> tuple[int, int]:
        """Return the ends of the first and the last window that was scored on any host."""
        runs = self.hosts.values()
        return min(run.ends[0] for run in runs), max(run.ends[-1] for run in runs)

    def told(self) -> list[Told]:
        """Return what was told, as it is evaluated."""
        return [
            Told(
                records[0].host,
                records[0].onset,
                tuple(Account(a.latest, blamed(a), first_cause(a), sharing(a)) for a in records),
            )
            for records in self.episodes.values()
        ]

    def told_by_host(self) -> dict[str, dict[str, Told]]:
        """Return what was told by host and episode, in order of opening."""
        found: dict[str, dict[str, Told]] = {host: {} for host in self.hosts}
        every = zip(self.episodes, self.told(), strict=True)
        for name, told in sorted(every, key=lambda item: item[1].opened_us):
            found[told.host][name] = told
        return found

    def lasted(self, name: str) -> tuple[int, int]:
        """Return an episode's onset and the end of its last flagged window."""
        records = self.episodes[name]
        onset, latest = records[0].onset, records[-1].latest
        run = self.hosts.get(records[0].host)
        if run is not None and records[-1].state is not EpisodeState.CLOSED:
            latest = max(latest, run.ends[-1])  # still open when the recording ended
        end = None if run is None else run.last_flagged(onset, latest)
        return onset, latest if end is None else end

    def ranking(self, events: Iterable[Event]) -> dict[str, float]:
        """Return areas under curves of the fused score, the mean over hosts that had events.

        Windows in which an event runs that does not name the host are neither odd nor normal.
        """
        events = list(events)
        areas = []
        for host, run in self.hosts.items():
            at, fused = np.array(run.ends), np.array(run.fused, np.float64)
            odd, beside = np.zeros((2, len(at)), np.bool_)
            for e in events:
                within = (at > e.start_us) & (at <= e.end_us)
                if e.is_on(host):
                    odd |= within
                else:
                    beside |= within
            counted = odd | ~beside
            areas.append(
                (auc_pr(odd[counted], fused[counted]), vus_pr(odd[counted], fused[counted]))
            )
        known = [area for area in areas if not np.isnan(area).any()]
        auc, vus = np.mean(known, axis=0).tolist() if known else (float("nan"), float("nan"))
        return {"auc_pr": auc, "vus_pr": vus}


class Means:
    """Means of windows near some times, and what the channels are: what plots are made of.

    Parameters
    ----------
    spans
        Begin and end of the times, microseconds; a window is kept that ends in one.
    """

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = np.array(sorted(spans), np.int64).reshape(-1, 2)
        self._layouts: dict[tuple[str, int], Layout] = {}
        self._rows: dict[tuple[str, int], tuple[list[int], list[NDArray[np.float32]]]] = {}

    def learn(self, layout: Layout) -> None:
        """Take in what channels are."""
        self._layouts[layout.host, layout.fingerprint] = layout

    def take(self, features: Iterable[Features]) -> None:
        """Take in windows, a host's in order."""
        for f in features:
            if ((self._spans[:, 0] < f.end) & (f.end <= self._spans[:, 1])).any():
                layout = self._layouts[f.host, f.layout]
                ends, rows = self._rows.setdefault((f.host, f.layout), ([], []))
                ends.append(f.end)
                rows.append(f.values[: len(layout.channels)].copy())

    def of(
        self, host: str, layout: int, metric: str, device: str, begin_us: int, end_us: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return a channel's windows that end in ``(begin, end]``: their ends and means."""
        ends, rows = self._rows.get((host, layout), ([], []))
        channels = self._layouts[host, layout].channels
        place = next(
            (i for i, c in enumerate(channels) if (c.metric, c.device) == (metric, device)), None
        )
        at = np.array(ends, np.int64)
        picked = np.flatnonzero((at > begin_us) & (at <= end_us))
        if place is None:  # a derived metric: no window has it
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        return at[picked], np.array([rows[i][place] for i in picked], np.float32)


def watch(
    recorded: Iterable[Recorded],
    worker: WorkerSettings,
    *,
    from_us: int = 0,
    means: Means | None = None,
    on_record: Callable[[], Any] = lambda: None,
) -> Watched:
    """Replay telemetry and return what was said of it; `on_record` is called for each record."""
    from streams.replay import Replay

    seen = Watched(from_us)
    run = Replay(worker, keep_features=means is not None)

    def tapped() -> Iterable[Recorded]:
        for item in recorded:
            if means is not None and isinstance(item.record, Layout):
                means.learn(item.record)
            on_record()
            yield item

    for outcome in run.run(tapped()):
        seen.take(outcome)
        if means is not None:
            means.take(outcome.features)
    seen.dropped, seen.missing = dict(run.summary.dropped), run.summary.missing
    return seen


def blamed(anomaly: Anomaly) -> str:
    """Return the subsystem that is blamed most, or nothing."""
    return str(anomaly.subsystems[0].subsystem) if anomaly.subsystems else ""


def sharing(anomaly: Anomaly) -> tuple[str, ...]:
    """Return the other subsystems that carry much of the blame."""
    return tuple(str(s.subsystem) for s in anomaly.subsystems[1:] if s.share >= MUCH)


def first_cause(anomaly: Anomaly) -> str:
    """Return the rule of the cause that is named first, or nothing."""
    return anomaly.causes[0].rule if anomaly.causes else ""
