"""An open episode of one host: its oddest window so far, and the records that tell of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.diagnosis.tally import CauseTally
from models.episode import EpisodeEvent, Phase
from schemas.records import (
    Anomaly,
    BlamedChannel,
    Cause,
    EpisodeState,
    Level,
    Remedy,
    Subsystem,
    SubsystemShare,
)

if TYPE_CHECKING:
    from models.attribution import Attribution
    from models.channels import ChannelTable

UPDATE_US = 5_000_000
"""Time between two updates of an episode that does not get worse."""
WORSE = 1.2
"""An episode whose score grows by this factor is updated at once."""
DIAGNOSED = 8
"""First windows of an episode whose causes are all looked at; later ones when they are told."""
MAJOR, CRITICAL = 1.5, 4.0
"""Times the threshold, from which on an episode is more than minor. The faults of campaign-a that
cost the job nothing reach 1.1 to 2.8, those that cost it something 1.6 and up."""


@dataclass(slots=True, eq=False)
class Episode:
    """What is to be told of an episode.

    Attributes
    ----------
    worst
        Highest fused score so far; `blame` and `detectors` are of that window.
    ratio
        Highest fused score over its threshold so far.
    causes
        What its windows say of causes.
    told_end, told_worst, told_cause
        As they were in the record published last.
    """

    host: str
    layout: int
    channels: ChannelTable
    worst: float
    ratio: float
    blame: Attribution
    detectors: tuple[str, ...]
    causes: CauseTally = field(default_factory=CauseTally)
    told_end: int = 0
    told_worst: float = 0.0
    told_cause: str = ""

    def is_due(self, event: EpisodeEvent, end: int) -> bool:
        """Return whether time or severity ask for a record: not each window of a long one does."""
        if event.phase is not Phase.ONGOING:
            return True
        return self.worst >= WORSE * self.told_worst or end - self.told_end >= UPDATE_US

    def is_news(self, event: EpisodeEvent, end: int) -> bool:
        """Return whether an event is worth a record."""
        return self.is_due(event, end) or self._likeliest() != self.told_cause

    def tell(self, event: EpisodeEvent, end: int) -> Anomaly:
        """Return the record of an event; `end` is that of the newest window."""
        self.told_end, self.told_worst, self.told_cause = end, self.worst, self._likeliest()
        return Anomaly(
            id=f"{self.host}@{event.onset}",
            host=self.host,
            layout=self.layout,
            onset=event.onset,
            latest=end,
            state=EpisodeState(event.phase.value),
            severity=self.worst,
            windows=event.windows,
            flagged=event.flagged,
            detectors=self.detectors,
            subsystems=tuple(self._subsystems()),
            channels=tuple(self._blamed()),
            level=self._level(),
            causes=tuple(self._causes()),
        )

    def _likeliest(self) -> str:
        ranked = self.causes.ranked()
        return ranked[0].rule if ranked else ""

    def _level(self) -> Level:
        if self.ratio >= CRITICAL:
            return Level.CRITICAL
        return Level.MAJOR if self.ratio >= MAJOR else Level.MINOR

    def _subsystems(self) -> Iterator[SubsystemShare]:
        """Yield shares: a cause that is likely moves blame to where it lies.

        A network that carries less leaves cores idle, and there are more channels of cores.
        """
        shares = dict(self.blame.subsystems)
        ranked = self.causes.ranked()
        if ranked:
            sure, there = ranked[0].confidence, ranked[0].subsystem
            shares = {name: (1.0 - sure) * share for name, share in shares.items()}
            shares[there] = shares.get(there, 0.0) + sure
        for name, share in sorted(shares.items(), key=lambda item: -item[1]):
            yield SubsystemShare(Subsystem(name), share)

    def _causes(self) -> Iterator[Cause]:
        for cause in self.causes.ranked():
            yield Cause(
                rule=cause.rule,
                summary=cause.summary,
                confidence=cause.confidence,
                evidence=cause.evidence,
                remedies=tuple(Remedy(r.command, r.changes_host) for r in cause.remedies),
            )

    def _blamed(self) -> Iterator[BlamedChannel]:
        table = self.channels
        for b in self.blame.channels:
            yield BlamedChannel(
                metric=table.metric[b.channel],
                device=table.device[b.channel],
                subsystem=Subsystem(table.subsystem[b.channel]),
                unit=table.unit[b.channel],
                value=b.value,
                expected_low=b.low,
                expected_high=b.high,
                deviation=b.deviation,
                share=b.share,
                statistic=b.statistic,
                stands_for=tuple(
                    f"{table.metric[c]}[{table.device[c]}]" if table.device[c] else table.metric[c]
                    for c in b.stands_for
                ),
            )
