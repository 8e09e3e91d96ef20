"""An open episode of one host: its oddest window so far, and the records that tell of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.attribution import Attribution
from models.episode import EpisodeEvent, Phase
from schemas.records import Anomaly, BlamedChannel, EpisodeState, Subsystem, SubsystemShare

if TYPE_CHECKING:
    from models.channels import ChannelTable

UPDATE_US = 5_000_000
"""Time between two updates of an episode that does not get worse."""
WORSE = 1.2
"""An episode whose score grows by this factor is updated at once."""


@dataclass(slots=True, eq=False)
class Episode:
    """What is to be told of an episode.

    Attributes
    ----------
    worst
        Highest fused score so far; `blame` and `detectors` are of that window.
    told_end, told_worst
        As they were in the record published last.
    """

    host: str
    layout: int
    channels: ChannelTable
    worst: float
    blame: Attribution
    detectors: tuple[str, ...]
    told_end: int = 0
    told_worst: float = 0.0

    def is_news(self, event: EpisodeEvent, end: int) -> bool:
        """Return whether an event is worth a record: not each window of a long episode is."""
        if event.phase is not Phase.ONGOING:
            return True
        return self.worst >= WORSE * self.told_worst or end - self.told_end >= UPDATE_US

    def tell(self, event: EpisodeEvent, end: int) -> Anomaly:
        """Return the record of an event; `end` is that of the newest window."""
        self.told_end, self.told_worst = end, self.worst
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
            subsystems=tuple(
                SubsystemShare(Subsystem(name), share) for name, share in self.blame.subsystems
            ),
            channels=tuple(self._blamed()),
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
            )
