"""What the person who runs the agent is told: what goes wrong, at most one line a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from producers.clock import Grid
from producers.publisher import Publisher
from producers.sampler import Sampler
from producers.source import Collector

SECOND_NS = 1_000_000_000
LOOK_NS = SECOND_NS
SAY_NS = 60 * SECOND_NS


class Report:
    """Looks at the parts of an agent once a second, and says what changed for the worse.

    What is absent on this host is said once. What gets lost is said each minute that it does.
    """

    def __init__(
        self,
        grid: Grid,
        collectors: Sequence[Collector],
        sampler: Sampler,
        publisher: Publisher,
        say: Callable[[str], None],
    ) -> None:
        self._grid = grid
        self._sampler = sampler
        self._sources = [source for collector in collectors for source in collector.sources]
        self._publisher = publisher
        self._say = say
        self._due_ns = 0
        self._counts: Counter[str] = Counter()
        self._absent: set[str] = set()
        self._failures: set[str] = set()
        self._losing = False

    def absent(self) -> list[str]:
        """Return what is absent now; `look` will not say that again."""
        self._absent = self._problems()
        return sorted(self._absent)

    def look(self, mono_ns: int) -> None:
        """Look, unless it is too early to say anything."""
        if mono_ns < self._due_ns:
            return
        self._due_ns = mono_ns + LOOK_NS
        publisher, counts = self._publisher, self._lost()
        lost = [f"{what}: {n}" for what, n in (counts - self._counts).items()]
        if publisher.trouble:
            lost.insert(0, f"not sending: {publisher.trouble}; messages waiting: {len(publisher)}")
        absent = self._problems()
        failures = {r for stats in self._sampler.stats.values() for r in stats.failures}
        parts = lost + [f"absent: {problem}" for problem in sorted(absent - self._absent)]
        parts += [f"no longer: {problem}" for problem in sorted(self._absent - absent)]
        parts += [f"failed: {r}" for r in sorted(failures - self._failures - absent)]
        if not parts and self._losing:
            parts.append("all is well again")
        if parts:
            self._say("; ".join(parts))
            self._due_ns = mono_ns + SAY_NS
            self._counts, self._absent, self._failures = counts, absent, failures
            self._losing = bool(lost)

    def _problems(self) -> set[str]:
        return {source.problem for source in self._sources if source.problem}

    def _lost(self) -> Counter[str]:
        grid, publisher = self._grid, self._publisher
        return Counter(
            {
                "ticks missed": grid.missed,
                "clock steps": grid.steps,
                "messages dropped": publisher.dropped.total(),
                "producers replaced": publisher.rebuilt,
            }
        )
