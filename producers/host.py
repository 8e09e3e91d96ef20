"""What one host is sampled with: its collectors, and the sampler over them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

from producers.collectors import ALL, DEVICES
from producers.collectors.agent import CollectorCosts, OwnCost
from producers.collectors.agent import collector as own_collector
from producers.config import AgentSettings
from producers.reading import Reader
from producers.sampler import Sampler
from producers.source import Collector, Options
from schemas.errors import InvalidSettings

VERSION = version("reveal-telemetry")
BOOT_ID = "proc/sys/kernel/random/boot_id"
ONLINE = "sys/devices/system/cpu/online"


@dataclass(frozen=True, slots=True)
class Host:
    """What samples a host; leaving it closes what its collectors hold open.

    `own` is what the agent writes its own cost into, `costs` has that of each collector.
    """

    collectors: list[Collector]
    own: OwnCost
    costs: CollectorCosts
    sampler: Sampler

    @classmethod
    def of(
        cls,
        settings: AgentSettings,
        reader: Reader,
        devices: Sequence[Callable[[Options], Sequence[Collector]]] = DEVICES,
    ) -> Self:
        """Make it as the settings say.

        Raises
        ------
        InvalidSettings
            A collector is to be left out that does not exist.
        """
        collectors = make_collectors(settings, devices)
        own, costs = OwnCost(), CollectorCosts([c.name for c in collectors])
        boot_id = reader.small(BOOT_ID)
        sampler = Sampler(
            [*collectors, own_collector(own, costs)],
            reader,
            host=settings.host_name,
            interval_us=1000 * settings.interval_ms,
            agent_version=VERSION,
            boot_id=boot_id.decode("ascii", "replace").strip()
            if isinstance(boot_id, bytes)
            else "",
        )
        costs.stats = sampler.stats
        return cls(collectors, own, costs, sampler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for collector in self.collectors:
            collector.close()


def make_collectors(
    settings: AgentSettings,
    devices: Sequence[Callable[[Options], Sequence[Collector]]] = DEVICES,
) -> list[Collector]:
    """Return every collector but those that the settings leave out."""
    options = Options(perf=settings.perf)
    collectors = [make() for make in ALL]
    collectors += (collector for make in devices for collector in make(options))
    names = [c.name for c in collectors]
    for name in sorted(settings.left_out - {*names}):
        near = difflib.get_close_matches(name, names, 1)
        hint = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise InvalidSettings(f"--without: no collector is called {name!r}; {hint}")
    return [c for c in collectors if c.name not in settings.left_out]


def cores(reader: Reader) -> int:
    """Return how many cores of the host are online."""
    listed = reader.small(ONLINE)
    try:
        if isinstance(listed, bytes):
            return sum(_size(part) for part in listed.decode("ascii").strip().split(","))
    except ValueError:
        pass
    return os.cpu_count() or 1


def _size(part: str) -> int:
    """Return how many numbers are in ``0-3`` or ``7``."""
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1
