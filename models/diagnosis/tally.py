"""What an episode's windows say together of its causes.

One window can mislead: a rank that is stopped looks like a link that is capped until the last
bytes are through. So the windows that were looked at vote, each cause with its confidence, and the
mean over the windows is the confidence that is told; evidence is that of the surest window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from models.diagnosis.case import Cause

LEAST = 0.2
"""Confidence below which a cause is not told: it spoke in a few windows only."""


@dataclass(slots=True)
class CauseTally:
    """Causes over the windows of one episode."""

    windows: int = 0
    _sums: dict[str, float] = field(default_factory=dict)
    _surest: dict[str, Cause] = field(default_factory=dict)

    def add(self, causes: Iterable[Cause]) -> None:
        """Take in what one window says."""
        self.windows += 1
        for cause in causes:
            self._sums[cause.rule] = self._sums.get(cause.rule, 0.0) + cause.confidence
            surest = self._surest.get(cause.rule)
            if surest is None or cause.confidence >= surest.confidence:
                self._surest[cause.rule] = cause

    def ranked(self) -> tuple[Cause, ...]:
        """Return the causes, the most confident first."""
        means = {rule: total / self.windows for rule, total in self._sums.items()}
        return tuple(
            replace(self._surest[rule], confidence=mean)
            for rule, mean in sorted(means.items(), key=lambda item: -item[1])
            if mean >= LEAST
        )
