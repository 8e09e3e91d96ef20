"""The scoring stage: batches of windows in; scores of every window and episodes out.

Each host is judged against a baseline of its own, whose life `models.lifecycle` decides. Hosts
with the same number of channels share one bank of arrays, so a batch is one call however many
hosts it holds; one by one are looked at only the windows of hosts that learn, drift or are in an
episode.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING

import numpy as np

from models.baseline import Tuning
from models.diagnosis import diagnose
from models.episode import EpisodeEvent, Phase
from models.lifecycle import Finding, Life, Rules, Stage
from models.mode import FUSED
from models.scale import learned_width
from streams.hosts import Group, Host, rounds
from streams.lives import Lives, News
from streams.telling import case_of, judged_scores, tell, unjudged_score, with_finding

if TYPE_CHECKING:
    from models.bank import BatchScores
    from models.baseline import Baseline
    from models.channels import ChannelTable
    from schemas.records import Anomaly, Floats, Score
    from streams.layouts import Layouts
    from streams.rings import WindowBatch


LEARN_SHARE = 0.8
"""Of its ticks, that a window needs to be learned from. A host that is starved so much that its
agent misses half of them is to be judged: on campaign-a, a storm of context switches was found only
in windows of 9 to 15 of 30 ticks."""
SUSPECT, SURE = 0.6, 0.75
"""Share of the threshold from which on a window is shown to the rules, and the confidence with
which one of them makes it odd. A fault that shows in a few of 700 channels, on a host whose
baseline was restless, may never reach the threshold, and yet be plain to who knows what to look
for. No rule speaks on a normal window of our recordings."""
KNOWN_SHARE = 0.8
"""Of the channels that a host ever had, that have to have a value."""


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
    baseline_limit
        Learning goes on up to so many times `baseline_us` while the host does new things.
    drift_us, workload_us
        See `models.drift` and `models.lifecycle`: time over which a drift is seen, and time that
        a change of all subsystems lasts which is a new workload; 0 is never.
    min_share
        Share of its ticks that a window needs to be scored.
    seed
        Of the Isolation Forests.
    keep
        Whether what is learned is handed out by `take_news`.
    tuning
        Of the baselines; our own detectors at their defaults unless it is given.
    """

    def __init__(
        self,
        layouts: Layouts,
        executor: Executor,
        *,
        baseline_us: int,
        stride_us: int = 1_000_000,
        baseline_limit: float = 3.0,
        drift_us: int = 600_000_000,
        workload_us: int = 120_000_000,
        min_share: float = 0.3,
        seed: int = 0,
        keep: bool = False,
        tuning: Tuning | None = None,
    ) -> None:
        wanted = max(1, baseline_us // stride_us)
        self._rules = Rules(stride_us, wanted, int(wanted * baseline_limit), workload_us)
        self._drift_windows = drift_us / stride_us
        self._min_share = min_share
        tuning = tuning or Tuning(stride_s=stride_us / 1e6)
        self._mode = tuning.mode
        self._lives = Lives(layouts, executor, seed=seed, keep=keep, tuning=tuning)
        self._hosts: dict[str, Host] = {}
        self._groups: dict[int, Group] = {}

    def score(self, batch: WindowBatch) -> tuple[list[Score], list[Anomaly]]:
        """Score a batch in order. A window that was scored before is passed over."""
        scores: list[Score] = []
        anomalies: list[Anomaly] = []
        for rows in rounds(batch.hosts):
            self._score_round(batch, rows, scores, anomalies)
        return scores, anomalies

    def forget(self, name: str) -> list[Anomaly]:
        """Drop what is known of a host; return the end of its episode if one is open."""
        anomalies: list[Anomaly] = []
        host = self._hosts.pop(name, None)
        if host is not None:
            self._retire(host, anomalies)
        self._lives.forget(name)
        return anomalies

    def take_news(self) -> list[News]:
        """Return what was learned or given up since the last call, in order."""
        return self._lives.take_news()

    def offer(self, news: News) -> None:
        """Take what another worker, or this one before, has learned of a host; the newer wins."""
        host = self._hosts.get(news.host)
        self._lives.offer(news, host if host and host.layout == news.layout else None)

    def baselines(self) -> dict[str, tuple[Baseline, ChannelTable]]:
        """Return what each host that is judged is judged by, and what its channels are."""
        return {
            name: (host.learned.baseline, host.channels)
            for name, host in self._hosts.items()
            if host.learned is not None and host.channels is not None
        }

    @property
    def misfits(self) -> int:
        """Baselines that were offered and are not of their host's rows."""
        return self._lives.misfits

    def _score_round(
        self, batch: WindowBatch, rows: list[int], scores: list[Score], anomalies: list[Anomaly]
    ) -> None:
        """Score rows that are all of different hosts."""
        group = self._group(batch.channels)
        ready: list[int] = []
        hosts: list[Host] = []
        known = np.isfinite(batch.values[:, : batch.channels]).sum(1).tolist()
        for i in rows:
            host = self._host(batch, i, anomalies)
            end = int(batch.ends[i])
            if end <= host.last_end:
                continue
            host.last_end = end
            gap = self._gap(host, batch, i, known[i])
            if not gap and host.learned is None:
                self._lives.learn(host, batch.values[i], end)
            if not gap and host.learned is not None:
                ready.append(i)
                hosts.append(host)
            else:
                scores.append(unjudged_score(host, batch, i, gap))
        if ready:
            self._judge(group, batch, ready, hosts, scores, anomalies)

    def _judge(
        self,
        group: Group,
        batch: WindowBatch,
        rows: list[int],
        hosts: list[Host],
        scores: list[Score],
        anomalies: list[Anomaly],
    ) -> None:
        picked = np.array(rows)
        slots = np.fromiter((h.slot for h in hosts), np.int64, len(hosts))
        values = batch.values if len(rows) == len(batch) else batch.values[picked]
        verdict = group.baselines.score(slots, values)
        self._suspect(hosts, values, verdict)
        ends = batch.ends[picked]
        events = group.episodes.step(
            slots, ends, verdict.flagged, self._rules.stride_us, verdict.odd
        )
        calm = np.ones(len(rows), bool)
        for event in events:
            calm[event.index] = False
        for row in group.drift.step(slots, verdict.p_values[:, : len(FUSED)], calm):
            host = hosts[row]
            host.life.drift(group.drift.drifts(host.slot))
            group.attended[host.slot] = host.life.stage is Stage.DRIFTING
        scores.extend(judged_scores(batch, rows, hosts, verdict))
        whole = batch.samples[picked] >= LEARN_SHARE * batch.expected[picked]
        for row in np.flatnonzero(group.attended[slots] & whole):
            flagged, episode = bool(verdict.flagged[row]), not calm[row]
            end = int(ends[row])
            self._lives.renew(hosts[row], values[row], end, flagged=flagged, episode=episode)
        for event in events:
            row = event.index
            host, end = hosts[row], int(ends[row])
            anomaly = tell(host, event, verdict, values[row], end)
            if anomaly is not None:
                anomalies.append(anomaly)
            self._watch(host, event, values[row], end, anomalies)

    def _suspect(self, hosts: list[Host], values: Floats, verdict: BatchScores) -> None:
        """Flag windows that are nearly odd, and in which a rule is sure of a cause."""
        near = ~verdict.flagged & (verdict.ratio > SUSPECT)
        for row in np.flatnonzero(near):
            if any(
                cause.confidence >= SURE for cause in diagnose(case_of(hosts[row], values[row]))
            ):
                verdict.flagged[row] = verdict.odd[row] = True

    def _watch(
        self,
        host: Host,
        event: EpisodeEvent,
        values: Floats,
        end: int,
        anomalies: list[Anomaly],
    ) -> None:
        """Look at a window of an open episode, which may be the beginning of another workload."""
        if event.phase is Phase.CLOSED:
            host.life.calm_again()
            return
        assert host.learned is not None and host.channels is not None  # noqa: S101, PT018
        look = host.life.watch(
            values, host.learned.usual, host.channels, onset_us=event.onset, end_us=end
        )
        if look is None:
            return
        if look.finding is Finding.LONG:
            host.long = look
        else:
            ended = self._end_episode(host, end)
            anomalies.extend(with_finding(anomaly, look) for anomaly in ended)
            self._lives.give_up(host)

    def _host(self, batch: WindowBatch, i: int, anomalies: list[Anomaly]) -> Host:
        """Return what is known of the host of row `i`; another layout is another life."""
        name, layout, clock = batch.hosts[i], batch.layouts[i], batch.clocks[i]
        group = self._group(batch.channels)
        host = self._hosts.get(name)
        if host is not None and host.layout == layout and host.group is group:
            if host.clock != clock:
                host.clock, host.last_end = clock, 0
        else:
            if host is not None:
                self._retire(host, anomalies)
            life = Life(self._rules, learned_width(group.channels))
            host = Host(name, layout, group, group.take_slot(), clock, life)
            self._hosts[name] = host
            group.episodes.reset(host.slot)
        if host.learned is None and host.fitting is None:
            self._lives.look_up(host)
        return host

    def _retire(self, host: Host, anomalies: list[Anomaly]) -> None:
        """Let go of a host under its old layout; what was open there is closed."""
        anomalies.extend(self._end_episode(host, host.last_end))
        self._lives.put_away(host)
        host.group.free_slot(host.slot)

    def _end_episode(self, host: Host, end: int) -> list[Anomaly]:
        event = host.group.episodes.close(host.slot)
        episode, host.episode, host.long = host.episode, None, None
        return [] if event is None or episode is None else [episode.tell(event, end)]

    def _gap(self, host: Host, batch: WindowBatch, i: int, known: int) -> str:
        """Return what is missing from a window for it to be judged; empty when nothing is.

        Absent is not normal: a host whose files cannot be read any more is not well.
        """
        samples, expected = int(batch.samples[i]), int(batch.expected[i])
        share = self._min_share if host.learned is not None else max(self._min_share, LEARN_SHARE)
        if samples < share * expected:
            return f"{samples} of {expected} samples"
        host.most_known = max(host.most_known, known)
        if known < KNOWN_SHARE * host.most_known or known == 0:
            return f"{known} of {host.most_known} channels have a value"
        return ""

    def _group(self, channels: int) -> Group:
        group = self._groups.get(channels)
        if group is None:
            group = self._groups[channels] = Group(channels, self._drift_windows, self._mode)
        return group
