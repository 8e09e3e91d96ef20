"""What a rule looks at: the channels of one odd window, beside where they usually are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from models.channels import ChannelTable

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))


@dataclass(frozen=True, slots=True)
class Reading:
    """A channel in one window, in its unit: the window's mean, and where it usually lies.

    NaN where it is absent; every comparison is false then.
    """

    label: str
    unit: str
    value: float
    low: float
    high: float

    def rises(self, times: float, least: float = 0.0) -> bool:
        """Return whether it is over `least`, and over so many times the usual high end."""
        return self.value > least and self.value > times * self.high

    def falls(self, share: float, least: float = 0.0) -> bool:
        """Return whether it is under a share of the usual low end, which is at least `least`."""
        return self.low >= least and self.value < share * self.low

    @property
    def times(self) -> float:
        """How many times its usual high end it is."""
        return self.value / self.high if self.high > 0 else math.inf

    @property
    def evidence(self) -> str:
        """What is to be told of it, for example ``disk.busy[sda] 97 %, usually 1.5 to 4``."""
        usual = ", never seen before"
        if math.isfinite(self.high):
            usual = f", usually {number(self.low)}"
            if number(self.high) != number(self.low):
                usual += f" to {number(self.high)}"
        return f"{self.label} {number(self.value)} {self.unit}".rstrip() + usual


@dataclass(frozen=True, slots=True)
class Remedy:
    """A command that shows or mends a cause, as typed on the host."""

    command: str
    changes_host: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """What is likely to be behind an odd window.

    Attributes
    ----------
    rule
        Its name, that of its file.
    subsystem
        Where it lies, which need not be where it shows most.
    summary
        What is wrong, in a sentence for people.
    confidence
        0 to 1.
    evidence
        What speaks for it, in numbers with units.
    remedies
        What to type.
    """

    rule: str
    subsystem: str
    summary: str
    confidence: float
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One odd window of a host.

    With C channels:

    - `channels`: what they are
    - `means` ``(C,)``: the window's mean of each, NaN where it is absent
    - `low`, `high` ``(C,)``: ends of where such means usually are (`models.novelty.Usual`)
    """

    channels: ChannelTable
    means: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    _places: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, (metric, device) in enumerate(
            zip(self.channels.metric, self.channels.device, strict=True)
        ):
            self._places.setdefault(metric, {})[device] = place

    def has(self, metric: str) -> bool:
        """Return whether the host has a channel of this metric."""
        return metric in self._places

    def host(self, metric: str) -> Reading:
        """Return the whole host's channel of a metric, or the sum over its devices."""
        places = self._places.get(metric, {})
        if "" in places:
            return self._at(metric, "", places[""])
        return self.total(metric)

    def device(self, metric: str, device: str) -> Reading:
        """Return the channel of one device."""
        place = self._places.get(metric, {}).get(device)
        return _absent(metric) if place is None else self._at(metric, device, place)

    def devices(self, metric: str) -> list[Reading]:
        """Return the channels of all devices, not of the whole host, in the layout's order."""
        places = self._places.get(metric, {})
        return [self._at(metric, d, p) for d, p in places.items() if d]

    def total(self, metric: str, besides: Iterable[str] = ()) -> Reading:
        """Return the sum over the devices, but for some; the ends are sums as well."""
        left_out = set(besides)
        found = [r for r in self.devices(metric) if r.label not in left_out]
        known = [r for r in found if not math.isnan(r.value)]
        if not known:
            return _absent(metric)
        return Reading(
            metric,
            known[0].unit,
            sum(r.value for r in known),
            sum(r.low for r in known if math.isfinite(r.low)),
            sum(r.high for r in known if math.isfinite(r.high)),
        )

    def top(self, metric: str) -> Reading:
        """Return the device that is furthest above its usual high end."""
        found = [r for r in self.devices(metric) if not math.isnan(r.value)]
        return max(found, key=lambda r: r.value - r.high, default=_absent(metric))

    def _at(self, metric: str, device: str, place: int) -> Reading:
        return Reading(
            f"{metric}[{device}]" if device else metric,
            self.channels.unit[place],
            float(self.means[place]),
            float(self.low[place]),
            float(self.high[place]),
        )


def _absent(metric: str) -> Reading:
    return Reading(metric, "", math.nan, math.nan, math.nan)


def number(value: float) -> str:
    """Return a number as people read it, with three digits."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            divisor = 1e3 if prefix == "k" else size
            return f"{value / divisor:,.3g} {prefix}".rstrip()
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def between(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others, 0 to 1: confidence grows with the evidence."""
    if math.isinf(value):
        return 1.0
    return min(1.0, max(0.0, (value - low) / (high - low)))
