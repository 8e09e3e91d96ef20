"""What the agent may cost, and how it keeps to that.

Twice a minute the CPU time of the whole process is held against what is allowed. When it is more,
the collectors that take most CPU are read half as often, again and again until the sum fits; when
there is room again they come back one by one, the newest first. So a host on which a file turns
out to be expensive loses resolution there, and nothing else. A collector that waits long for its
device takes no CPU meanwhile, and is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from producers.part import CollectorStats

SECOND_NS = 1_000_000_000
LOOK_NS = 30 * SECOND_NS
"""So long the cost is summed up before it is judged: bursts are no cost that lasts."""

WARM_NS = 10 * SECOND_NS
"""What a start costs is not what sampling will: everything is looked around in and set up."""

MOST_STRETCH = 64
"""No collector is read more rarely than this many times its own period."""

ROOM = 0.85
"""A collector comes back when the cost is then expected to stay below this share."""

LEAST_PERCENT = 1.0
"""Of one core: what the agent may take however small the host is."""


def allowed_percent(budget_percent: float, cores: int) -> float:
    """Return what is allowed in percent of one core; `budget_percent` is of the whole host."""
    return max(LEAST_PERCENT, budget_percent * cores)


class Budget:
    """Keeps the agent's cost within what is allowed.

    Parameters
    ----------
    allowed
        Percent of one core.

    Attributes
    ----------
    used
        Percent of one core that the process took over the newest `LOOK_NS`; NaN before that.
    """

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self.used = float("nan")
        self._due_ns: int | None = None
        self._looked_ns = 0
        self._cpu_ns = 0
        self._spent_ns: dict[str, int] = {}
        self._stretched: list[str] = []
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
        wall_ns = mono_ns - self._looked_ns
        used_ns = cpu_ns - self._cpu_ns
        costs = {
            name: 100 * (s.cpu_ns - self._spent_ns.get(name, 0)) / wall_ns
            for name, s in stats.items()
        }
        warm = self._looked_ns > 0
        self._due_ns, self._looked_ns, self._cpu_ns = mono_ns + LOOK_NS, mono_ns, cpu_ns
        self._spent_ns = {name: s.cpu_ns for name, s in stats.items()}
        if not warm:
            return []
        self.used = 100 * used_ns / wall_ns
        if self.used > self.allowed:
            return self._stretch(costs, stats)
        self._helpless = False
        return self._come_back(costs, stats)

    def _stretch(self, costs: dict[str, float], stats: Mapping[str, CollectorStats]) -> list[str]:
        excess, said = self.used - self.allowed, []
        while excess > 0:
            name = max(
                (n for n in costs if stats[n].stretch < MOST_STRETCH),
                key=costs.__getitem__,
                default="",
            )
            if not name or costs[name] < 1e-3 * self.allowed:
                break
            stats[name].stretch *= 2
            costs[name] /= 2
            excess -= costs[name]
            self._stretched.append(name)
        names = sorted({n for n in costs if stats[n].stretch > 1})
        over = f"took {self.used:.2f} % of a core, {self.allowed:.2f} are allowed"
        if excess > 0 and not self._helpless:
            said.append(f"{over}; nothing left to read more rarely: raise --budget-percent")
        elif excess <= 0:
            rarer = ", ".join(f"{n} {stats[n].stretch} times rarer" for n in names)
            said.append(f"{over}; reads {rarer}")
        self._helpless = excess > 0
        return said

    def _come_back(self, costs: dict[str, float], stats: Mapping[str, CollectorStats]) -> list[str]:
        room = ROOM * self.allowed - self.used
        fits = [n for n in reversed(self._stretched) if costs.get(n, 0.0) <= room]
        if not fits:
            return []
        name = fits[0]
        # The newest of its entries: it may have been stretched several times.
        del self._stretched[len(self._stretched) - 1 - self._stretched[::-1].index(name)]
        stats[name].stretch //= 2
        if stats[name].stretch > 1:
            return []
        return [f"took {self.used:.2f} % of a core; reads {name} as often as before"]
