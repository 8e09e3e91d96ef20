"""What one number that a collector reads is, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import Channel, Kind, Subsystem


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a source.

    Attributes
    ----------
    name, device, subsystem, unit
        As in `schemas.records.Channel`; the unit is that of the published value.
    counter
        Whether the number is a counter, published as its rate per second, or a gauge.
    scale
        Factor from the number (or its rate) to the unit.
    wrap
        Value at which a counter starts at 0 again; 0 for 64 bits, which never do.
    """

    name: str
    device: str
    subsystem: Subsystem
    unit: str
    counter: bool
    scale: float = 1.0
    wrap: float = 0.0

    @property
    def label(self) -> str:
        """The name that people read."""
        return f"{self.name}[{self.device}]" if self.device else self.name

    @property
    def channel(self) -> Channel:
        """The channel that this is published as."""
        kind = Kind.RATE if self.counter else Kind.GAUGE
        return Channel(self.name, self.device, self.subsystem, self.unit, kind)
