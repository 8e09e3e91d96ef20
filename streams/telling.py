"""What the scoring stage tells: scores of windows, and episodes with their reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING

from models.attribution import attribute
from models.bank import BatchScores
from models.channels import ChannelTable
from models.diagnosis import Case, diagnose
from models.episode import EpisodeEvent, Phase
from models.lifecycle import Finding, Look, Stage
from schemas.records import Anomaly, Cause, DetectorScore, Floats, Layout, Level, Score, State
from streams.episode import DIAGNOSED, Episode

if TYPE_CHECKING:
    from streams.hosts import Host
    from streams.rings import WindowBatch

STATES = {stage: State(stage.value) for stage in Stage}


def judged_scores(
    batch: WindowBatch, rows: list[int], hosts: list[Host], verdict: BatchScores
) -> Iterator[Score]:
    """Yield the scores of windows that were judged, `verdict` being in the order of `rows`."""
    raw, p_values, over = verdict.raw.tolist(), verdict.p_values.tolist(), verdict.over.tolist()
    fused, flagged = verdict.fused.tolist(), verdict.flagged.tolist()
    ends, samples = batch.ends.tolist(), batch.samples.tolist()
    expected = batch.expected.tolist()
    detectors = hosts[0].group.detectors if hosts else ()
    for n, (i, host) in enumerate(zip(rows, hosts, strict=True)):
        life = host.life
        active = life.stage is Stage.ACTIVE
        yield Score(
            host=host.name,
            layout=host.layout,
            end=ends[i],
            samples=samples[i],
            expected=expected[i],
            baseline=host.version,
            state=State.ACTIVE if active else STATES[life.stage],
            reason=life.reason,
            progress=1.0 if active else life.progress,
            detectors=tuple(map(DetectorScore, detectors, raw[n], p_values[n], over[n])),
            fused=fused[n],
            flagged=flagged[n],
        )


def unjudged_score(host: Host, batch: WindowBatch, i: int, gap: str) -> Score:
    """Return the score of a window that is learned from, or has a `gap` and cannot be judged."""
    life = host.life
    state = State.ABSTAINED if gap or life.failed else STATES[life.stage]
    return Score(
        host=host.name,
        layout=host.layout,
        end=int(batch.ends[i]),
        samples=int(batch.samples[i]),
        expected=int(batch.expected[i]),
        baseline=0 if host.learned is None else host.version,
        state=state,
        reason=gap or life.reason,
        progress=life.progress,
        detectors=(),
        fused=0.0,
        flagged=False,
    )


def tell(
    host: Host, event: EpisodeEvent, verdict: BatchScores, values: Floats, end: int
) -> Anomaly | None:
    """Return the record that an event is worth; None for an update with nothing new."""
    episode, fused = host.episode, float(verdict.fused[event.index])
    ratio = float(verdict.ratio[event.index])
    worse = episode is None or (fused > episode.worst and event.phase is not Phase.CLOSED)
    if worse:
        assert host.learned is not None and host.channels is not None  # noqa: S101, PT018
        blame = attribute(host.learned.baseline, values, host.channels, verdict.raw[event.index])
        agreed = tuple(compress(host.group.detectors, verdict.over[event.index]))
        if episode is None:
            episode = host.episode = Episode(
                host.name, host.layout, host.channels, fused, ratio, blame, agreed
            )
        episode.worst, episode.blame, episode.detectors = fused, blame, agreed
        episode.ratio = max(episode.ratio, ratio)
    assert episode is not None  # noqa: S101
    if event.phase is not Phase.CLOSED and verdict.odd[event.index]:
        first = episode.causes.windows < DIAGNOSED
        if first or episode.is_due(event, end):
            episode.causes.add(diagnose(case_of(host, values)))
    long = host.long
    if event.phase is Phase.CLOSED:
        host.episode = host.long = None
    if not episode.is_news(event, end):
        return None
    anomaly = episode.tell(event, end)
    return anomaly if long is None else with_finding(anomaly, long)


def case_of(host: Host, values: Floats) -> Case:
    """Return a window of a host that is judged, as rules look at it."""
    assert host.learned is not None and host.channels is not None  # noqa: S101, PT018
    usual = host.learned.usual
    return Case(host.channels, values[: len(host.channels)], usual.low, usual.high)


def with_finding(anomaly: Anomaly, look: Look) -> Anomaly:
    """Return the record of an episode with what a look at it found."""
    parts = [part for part in look.parts if not part.silent]
    evidence = tuple(
        f"{part.subsystem}: {part.left} of {part.live} channels that move are outside their usual "
        "range"
        for part in parts
    )
    lasted = f"{(anomaly.latest - anomaly.onset) / 1e6:.0f} s"
    confidence = min((part.left / part.live for part in parts), default=0.0)
    if look.finding is Finding.WORKLOAD:
        cause = Cause(
            rule="workload_changed",
            summary=f"All subsystems changed together {lasted} ago and are steady since: another "
            "workload, or the end of one. What is normal now is being learned.",
            confidence=confidence,
            evidence=evidence,
            remedies=(),
        )
        return replace(anomaly, causes=(cause, *anomaly.causes), level=Level.MINOR)
    cause = Cause(
        rule="lasting",
        summary=f"It has gone on for {lasted} and stays an episode: not every subsystem takes "
        "part for good, so it is not taken for another workload.",
        confidence=1.0,
        evidence=evidence,
        remedies=(),
    )
    return replace(anomaly, causes=(*anomaly.causes, cause))


def table_of(layout: Layout) -> ChannelTable:
    """Return a layout's channels as the models take them."""
    channels = layout.channels
    return ChannelTable(
        tuple(c.metric for c in channels),
        tuple(c.device for c in channels),
        tuple(c.subsystem.value for c in channels),
        tuple(c.unit for c in channels),
        tuple(c.kind.value for c in channels),
    )
