"""What the person who runs the agent is told: what goes wrong, at most one line a minute."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from producers.clock import Grid
from producers.part import CollectorStats
from producers.publisher import Publisher
from producers.sampler import Sampler
from producers.source import Collector

SECOND_NS = 1_000_000_000
LOOK_NS = SECOND_NS
SAY_NS = 60 * SECOND_NS


MOST_NAMED = 3
"""More than this many reasons are too much for a line."""
REFUSALS = (os.strerror(errno.EACCES), os.strerror(errno.EPERM))


def merged(problems: Iterable[tuple[str, str]]) -> list[str]:
    """Return paths and problems in words, one for all that have the same problem."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in sorted(problems):
        by_reason.setdefault(reason, []).append(path)
    return [
        f"{path}: {reason}" if not more else f"{path} and {len(more)} more: {reason}"
        for reason, (path, *more) in by_reason.items()
    ]


class Report:
    """Looks at the parts of an agent once a second, and says what changed for the worse.

    That nothing can be sent is said as soon as it lasts over a second, and once a minute while it
    does; what got lost, once a minute; what is absent on this host, once.
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
        self._look_ns = 0
        self._losses_ns = 0
        self._counts: Counter[str] = Counter()
        self._absent: set[tuple[str, str]] = set()
        self._newest: list[str] = []  # the problem of each source
        self._having: set[tuple[str, str]] = set()  # those that have one, with it
        self._failures: set[str] = set()
        self._suspect = False  # there was trouble at the last look
        self._troubled = False  # and it was said

    def absent(self) -> list[str]:
        """Return what is absent now; `look` will not say that again.

        Where that is much, as on most hosts, it names what somebody may mend, and counts the rest.
        """
        self._absent = self._problems()
        named, rest = merged(self._absent), 0
        if len(named) > MOST_NAMED:
            mendable = {p for p in self._absent if p[1].endswith(REFUSALS)}
            named, rest = merged(mendable), len(self._absent - mendable)
        if rest:
            sources = f"{rest} more sources" if named else f"{rest} sources"
            named.append(f"{sources} (`reveal-agent doctor` says which and why)")
        return named

    def look(self, mono_ns: int) -> None:
        """Look, unless it is too early to say anything."""
        if mono_ns < self._look_ns:
            return
        self._look_ns = mono_ns + LOOK_NS
        absent, failures = self._problems(), self._failed()
        parts = self._sending()
        parts += self._losses(mono_ns)
        parts += [f"absent: {problem}" for problem in merged(absent - self._absent)]
        parts += [f"no longer: {problem}" for problem in merged(self._absent - absent)]
        known = {f"{path}: {reason}" for path, reason in absent}
        parts += [f"failed: {r}" for r in sorted(failures - self._failures - known)]
        self._absent, self._failures = absent, failures
        if parts:
            self._say("; ".join(parts))
            self._look_ns = mono_ns + SAY_NS

    def _sending(self) -> list[str]:
        publisher = self._publisher
        # A connection that breaks and is made again at once is no trouble.
        lasts, self._suspect = self._suspect and bool(publisher.trouble), bool(publisher.trouble)
        before, self._troubled = self._troubled, lasts
        if lasts:
            return [f"not sending: {publisher.trouble}; messages waiting: {len(publisher)}"]
        return ["sending again"] if before else []

    def _losses(self, mono_ns: int) -> list[str]:
        if not self._losses_ns:
            self._losses_ns = mono_ns + SAY_NS
        if mono_ns < self._losses_ns:
            return []
        self._losses_ns = mono_ns + SAY_NS
        grid, publisher = self._grid, self._publisher
        counts = Counter(
            {
                "ticks missed": grid.missed,
                "clock steps": grid.steps,
                "fields that were no numbers": sum(s.bad_fields for s in self._stats()),
                "messages dropped": publisher.dropped.total(),
                "producers replaced": publisher.rebuilt,
            }
        )
        new, self._counts = counts - self._counts, counts
        return [f"{what}: {n}" for what, n in new.items()]

    def _problems(self) -> set[tuple[str, str]]:
        """Return the path of each source that has a problem, and the problem."""
        newest = [source.problem for source in self._sources]
        if newest != self._newest:
            self._newest = newest
            self._having = {
                (s.path, problem.removeprefix(f"{s.path}: "))
                for s, problem in zip(self._sources, newest, strict=True)
                if problem
            }
        return self._having

    def _failed(self) -> set[str]:
        return {reason for stats in self._stats() for reason in stats.failures}

    def _stats(self) -> Iterable[CollectorStats]:
        return self._sampler.stats.values()
