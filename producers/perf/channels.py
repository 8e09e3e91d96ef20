"""What the rates of events become: sums over the cores, ratios, and the same for each core.

What the metrics mean is in `producers.collectors.perf`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from producers.perf.events import Event
from producers.source import Doubles, Field, Plan
from schemas.records import Channel, Kind, Subsystem

_MEMORY = {
    *("cache_references", "cache_misses", "l3_references", "l3_misses", "loads", "stores"),
    *("stalls_l3_miss", "stalls_memory", "minor_faults", "major_faults"),
}
_UNITS = {"cycles": "cycles/s", "reference_cycles": "cycles/s", "instructions": "instructions/s"}
_INTERNAL = {"tsc"}

RATIOS = (
    ("ipc", "instructions", "cycles", 1.0, Subsystem.CPU),
    ("branch_miss_ratio", "branch_misses", "branches", 100.0, Subsystem.CPU),
    ("cache_miss_ratio", "cache_misses", "cache_references", 100.0, Subsystem.MEMORY),
    ("l3_miss_ratio", "l3_misses", "l3_references", 100.0, Subsystem.MEMORY),
    ("stall_ratio", "stalls_total", "cycles", 100.0, Subsystem.CPU),
    ("l3_miss_stall_ratio", "stalls_l3_miss", "cycles", 100.0, Subsystem.MEMORY),
    ("memory_stall_ratio", "stalls_memory", "cycles", 100.0, Subsystem.MEMORY),
    ("frontend_stall_ratio", "stalls_frontend", "cycles", 100.0, Subsystem.CPU),
    ("backend_stall_ratio", "stalls_backend", "cycles", 100.0, Subsystem.CPU),
    ("occupancy", "cycles", "tsc", 100.0, Subsystem.CPU),
)
"""Metric, numerator, denominator, factor, subsystem."""


def over_all_cores(rates: Doubles, present: NDArray[np.bool_]) -> Doubles:
    """Return the sum of rates over the cores that have an event, shape ``(events,)``.

    A core that is unknown now is taken to be as the mean of the others; when more than half are
    unknown, so is the sum.

    Parameters
    ----------
    rates
        Shape ``(cores, events)``, NaN where unknown.
    present
        Same shape: which cores have which event.
    """
    total: Doubles = rates.sum(axis=0)
    known = ~np.isnan(rates)
    if known.all():
        return total
    have, there = present.sum(axis=0), known.sum(axis=0)
    total = np.where(known, rates, 0.0).sum(axis=0)
    enough = (there > 0) & (2 * there >= have)
    scaled: Doubles = np.full(len(total), np.nan)
    np.divide(total * have, there, out=scaled, where=enough)
    return scaled


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How the rates of events become channels.

    Attributes
    ----------
    columns
        Events that some core has: first those that are channels.
    present
        Shape ``(cores, columns)``.
    shown
        How many of `columns` are channels.
    over, under, factors
        What the ratios divide, as places in `columns`.
    each
        Shape ``(cores, shown + ratios)``: the channels that each core has; None without any.
    """

    columns: NDArray[np.intp]
    present: NDArray[np.bool_]
    shown: int
    over: NDArray[np.intp]
    under: NDArray[np.intp]
    factors: Doubles
    each: NDArray[np.bool_] | None

    def values(self, rates: Doubles) -> list[float]:
        """Return the value of each channel."""
        rates = rates.take(self.columns, axis=1)
        values: list[float] = self._with_ratios(over_all_cores(rates, self.present)).tolist()
        if self.each is not None:
            values += self._with_ratios(rates)[self.each].tolist()
        return values

    def _with_ratios(self, rates: Doubles) -> Doubles:
        shown = rates[..., : self.shown]
        if not self.over.size:
            return shown
        under = rates[..., self.under]
        ratios = np.full(under.shape, np.nan)
        np.divide(rates[..., self.over], under, out=ratios, where=under > 0)
        ratios *= self.factors
        return np.concatenate((shown, ratios), axis=-1)


def shape_and_plan(
    events: Sequence[Event], cpus: Sequence[int], present: NDArray[np.bool_], *, per_core: bool
) -> tuple[Shape, Plan]:
    """Say what the channels are: totals of events and ratios, then the same of each core."""
    found = np.flatnonzero(present.any(axis=0)).tolist()
    found.sort(key=lambda column: events[column].name in _INTERNAL)
    names = [events[column].name for column in found]
    shown = sum(name not in _INTERNAL for name in names)
    ratios = [r for r in RATIOS if r[1] in names and r[2] in names]
    over = np.array([names.index(r[1]) for r in ratios], np.intp)
    under = np.array([names.index(r[2]) for r in ratios], np.intp)
    has = present[:, found]
    each = None
    if per_core:
        each = np.concatenate((has[:, :shown], has[:, over] & has[:, under]), axis=1)

    def channels(device: str) -> list[Channel]:
        return [
            Channel(
                f"perf.{name}",
                device,
                Subsystem.MEMORY if name in _MEMORY else Subsystem.CPU,
                _UNITS.get(name, "/s"),
                Kind.RATE,
            )
            for name in names[:shown]
        ] + [
            Channel(
                f"perf.{metric}",
                device,
                subsystem,
                "instructions/cycle" if metric == "ipc" else "%",
                Kind.GAUGE,
            )
            for metric, _, _, _, subsystem in ratios
        ]

    made = channels("")
    if each is not None:
        for cpu, own in zip(cpus, each.tolist(), strict=True):
            made += [c for c, yes in zip(channels(f"cpu{cpu}"), own, strict=True) if yes]
    plan = Plan(
        # Levels: the kernel timed the counts better than the sampler can, see perf_counters.
        fields=tuple(Field(channel.label, counter=False) for channel in made),
        channels=tuple(made),
        direct=tuple(range(len(made))),
    )
    factors = np.array([r[3] for r in ratios], np.float64)
    return Shape(np.array(found, np.intp), has, shown, over, under, factors, each), plan
