"""What the agent may cost, and how it keeps to that.

Three times a minute the CPU time of the whole process is held against what is allowed. When it is
more three times in a row, the collectors that take most CPU are read half as often, again and
again until the sum fits; when there is room again they come back one by one, the newest first. So
a host on which a file turns out to be expensive loses resolution there, and nothing else. A
collector that waits long for its device takes no CPU meanwhile, and is left alone.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from producers.part import CollectorStats
from producers.source import Collector

SECOND_NS = 1_000_000_000
LOOK_NS = 20 * SECOND_NS
"""So long the cost is summed up before it is judged."""

LOOKS = 3
"""So often in a row it has to be too much: one burst is in two of them at most."""

WARM_NS = 10 * SECOND_NS
"""What a start costs is not what sampling will: everything is looked around in and set up."""

MOST_STRETCH = 64
"""No collector is read more rarely than this many times its own period."""

ROOM = 0.85
"""A collector comes back when the cost is then expected to stay below this share."""

LEAST_PERCENT = 1.0
"""Of one core: what the agent may take however small the host is."""

MOST_NAMED = 5
"""More collectors than this are too many for a line."""

SPAN = f"{LOOKS * LOOK_NS // SECOND_NS} s"
RAISE = "raise --budget-percent"


def allowed_percent(budget_percent: float, cores: int) -> float:
    """Return what is allowed in percent of one core; `budget_percent` is of the whole host."""
    return max(LEAST_PERCENT, budget_percent * cores)


def interval_ns(collector: Collector, tick_ns: int) -> int:
    """Return how often a collector wants to be read: its most frequent source, nanoseconds."""
    periods = []
    for source in collector.sources:
        with contextlib.suppress(Exception):  # it costs that source its channels, and is said there
            periods.append(int(source.period_ns))
    return max(tick_ns, min(periods, default=tick_ns))


@dataclass(slots=True)
class _Cost:
    """What a collector took in each of the newest looks, percent of a core; see `mean`.

    `since` counts the looks since it has been read as often as it is.
    """

    newest: deque[float] = field(default_factory=lambda: deque(maxlen=2 * MOST_STRETCH))
    since: int = 0
    mean: float = 0.0

    def add(self, percent: float, interval_ns: int) -> None:
        """Take in a look: the mean is over so many as have two readings."""
        self.newest.append(percent)
        self.since += 1
        looks = min(looks_of(interval_ns), len(self.newest))
        self.mean = sum(list(self.newest)[-looks:]) / looks

    def scale(self, factor: float, interval_ns: int) -> None:
        """Expect another cost, for it will be read in another interval."""
        self.mean *= factor
        self.newest.clear()
        self.newest.extend([self.mean] * looks_of(interval_ns))
        self.since = 0


def looks_of(interval_ns: int) -> int:
    """Return how many looks it takes to see two readings."""
    return -(-2 * interval_ns // LOOK_NS)


class Budget:
    """Keeps the agent's cost within what is allowed.

    Parameters
    ----------
    allowed
        Percent of one core.

    Attributes
    ----------
    used
        Percent of one core that the process took over the newest `LOOK_NS`; of collectors that are
        read more rarely than that, what they take in the mean. NaN before the first look.
    wanted_ns
        Tells how often a collector of that name wants to be read.
    """

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self.used = float("nan")
        self.wanted_ns: Callable[[str], int] = lambda _: SECOND_NS // 10
        self._due_ns: int | None = None
        self._looked_ns = 0
        self._cpu_ns = 0
        self._spent_ns: dict[str, int] = {}
        self._costs: dict[str, _Cost] = {}
        self._stretched: list[str] = []
        self._over: list[float] = []  # what was used in looks in a row in which it was too much
        self._helpless = False

    def look(self, mono_ns: int, cpu_ns: int, stats: Mapping[str, CollectorStats]) -> list[str]:
        """Judge the cost when it is time to, and set `CollectorStats.stretch`.

        Parameters
        ----------
        mono_ns, cpu_ns
            Monotonic time, and the CPU time of the process so far.
        stats
            By collector's name. What may not be stretched is not in it.

        Returns
        -------
        list of str
            What changed, in words.
        """
        if self._due_ns is None:
            self._due_ns = mono_ns + WARM_NS
        if mono_ns < self._due_ns:
            return []
        warm = self._looked_ns > 0
        wall_ns, used_ns = mono_ns - self._looked_ns, cpu_ns - self._cpu_ns
        self._due_ns, self._looked_ns, self._cpu_ns = mono_ns + LOOK_NS, mono_ns, cpu_ns
        spent_ns, self._spent_ns = self._spent_ns, {name: s.cpu_ns for name, s in stats.items()}
        if not warm:
            return []
        self.used = 100 * used_ns / wall_ns
        for name, s in stats.items():
            cost = self._costs.setdefault(name, _Cost())
            percent = 100 * (s.cpu_ns - spent_ns.get(name, 0)) / wall_ns
            cost.add(percent, s.stretch * self.wanted_ns(name))
            self.used += cost.mean - percent
        if self.used <= self.allowed:
            self._over, self._helpless = [], False
            return self._come_back(stats)
        self._over.append(self.used)
        if len(self._over) < LOOKS:
            return []
        took, self._over = sum(self._over) / LOOKS, []
        return self._stretch(took, stats)

    def _stretch(self, used: float, stats: Mapping[str, CollectorStats]) -> list[str]:
        excess = used - self.allowed
        while excess > 0:
            name = max(
                (n for n, s in stats.items() if s.stretch < MOST_STRETCH),
                key=lambda n: self._costs[n].mean,
                default="",
            )
            if not name or self._costs[name].mean < 1e-3 * self.allowed:
                break
            excess -= self._costs[name].mean / 2
            self._set(name, stats[name], 2 * stats[name].stretch)
            self._stretched.append(name)
        helpless, self._helpless = self._helpless, excess > 0
        took = f"took {used:.2f} % of a core over {SPAN}, {self.allowed:.2f} are allowed"
        if helpless and self._helpless:
            return []  # said already
        rarer = self._rarer(stats)
        if self._helpless:
            return [f"{took}; {rarer}nothing left to read more rarely: {RAISE}"]
        return [f"{took}; {rarer.removesuffix('; ')}"]

    def _rarer(self, stats: Mapping[str, CollectorStats]) -> str:
        """Return what is read more rarely, and how often; first what that saves most of."""
        saved = {n: self._costs[n].mean * (s.stretch - 1) for n, s in stats.items()}
        names = sorted((n for n, s in stats.items() if s.stretch > 1), key=lambda n: -saved[n])
        said = []
        for name in names[:MOST_NAMED]:
            wanted_s = self.wanted_ns(name) / SECOND_NS
            said.append(
                f"{name} every {stats[name].stretch * wanted_s:g} s instead of {wanted_s:g}"
            )
        if len(names) > MOST_NAMED:
            said.append(f"{len(names) - MOST_NAMED} more (agent.collector_stretch)")
        return f"reads {', '.join(said)}; " if said else ""

    def _come_back(self, stats: Mapping[str, CollectorStats]) -> list[str]:
        room = ROOM * self.allowed - self.used
        for name in reversed(self._stretched):
            # Read twice as often, it takes twice as much.
            cost, interval_ns = self._costs[name], stats[name].stretch * self.wanted_ns(name)
            if cost.since >= looks_of(interval_ns) and cost.mean <= room:
                break
        else:
            return []
        # The newest of its entries: it may have been stretched several times.
        del self._stretched[len(self._stretched) - 1 - self._stretched[::-1].index(name)]
        self._set(name, stats[name], stats[name].stretch // 2)
        if stats[name].stretch > 1:
            return []
        every_s = self.wanted_ns(name) / SECOND_NS
        return [f"took {self.used:.2f} % of a core; reads {name} every {every_s:g} s again"]

    def _set(self, name: str, stats: CollectorStats, stretch: int) -> None:
        factor, stats.stretch = stats.stretch / stretch, stretch
        self._costs[name].scale(factor, stretch * self.wanted_ns(name))
