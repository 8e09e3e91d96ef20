"""Baselines of the partitions that a worker has: loaded before they are needed, published after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from streams.baselinetopic import BaselineReader, BaselineWriter

if TYPE_CHECKING:
    from streams.pipeline import Pipeline

FLUSH_S = 2.0
"""How long the end of an assignment waits for what was learned last to arrive."""


class Keeper:
    """Loads the baselines of each partition once after every assignment, and publishes.

    Parameters
    ----------
    config
        Of consumer and producer: where the brokers are.
    pipeline
        Whose hosts they are.
    patience_s
        How long a load takes at most.
    """

    def __init__(self, config: Mapping[str, Any], pipeline: Pipeline, patience_s: float) -> None:
        self._reader = BaselineReader(config, patience_s=patience_s)
        self._writer = BaselineWriter(config)
        self._pipeline = pipeline
        self._loaded: set[int] = set()
        self._assignments = 0

    def reassigned(self) -> None:
        """Note that partitions were given anew: others may have learned on them meanwhile."""
        self._assignments += 1
        self._loaded.clear()

    async def load(self, needed: Iterable[int], assigned: Iterable[int]) -> None:
        """Return when the baselines of the partitions in `needed` are there.

        If those of any are missing, those of all that are `assigned` are loaded in one go.
        """
        while not self._loaded.issuperset(needed):
            missing = {*needed, *assigned} - self._loaded
            before = self._assignments
            for news in await asyncio.to_thread(self._reader.load, missing):
                self._pipeline.offer(news)
            if self._assignments == before:
                self._loaded |= missing

    def publish(self) -> None:
        """Send what was learned since. What the broker does not take is sent again later."""
        for partition, news in self._pipeline.take_news():
            self._writer.send(partition, news)
        self._writer.poll()

    async def flush(self) -> None:
        """Let what is on its way arrive, so that whoever reads next finds it."""
        self.publish()
        if self._writer.waiting:
            await asyncio.to_thread(self._writer.flush, FLUSH_S)

    def counts(self) -> dict[str, int]:
        """Return what happened to how many baselines."""
        reader, writer = self._reader, self._writer
        scoring = self._pipeline.scoring
        return {
            "loaded": reader.loaded,
            "published": writer.published,
            "rejected": reader.rejected + (0 if scoring is None else scoring.misfits),
            "failed": writer.failed,
            "cut short": reader.cut_short,
        }
