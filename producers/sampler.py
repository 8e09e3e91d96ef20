"""All collectors of a host, once a tick, as one array of published values and its layout."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from producers.collector import Collector, Reading
from producers.metric import Metric
from producers.rates import Rates
from producers.reading import Reader
from schemas.records import Floats, Layout, layout_fingerprint


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One tick. `values` has shape ``(channels,)``, NaN where a value was not available.

    The array is written again by the next tick: copy what is to last.
    """

    layout: Layout
    values: Floats


class Source:
    """A collector, the rates of its counters, and what its last read gave.

    A source may serve several samplers, which then share its reads: a second call for the same
    instant returns the same values.

    Attributes
    ----------
    errors
        Reads that failed, by reason.
    seconds
        Time spent reading so far.
    """

    def __init__(self, collector: Collector, reader: Reader) -> None:
        self.collector = collector
        self.rates = Rates()
        self.errors: Counter[str] = Counter()
        self.seconds = 0.0
        self.metrics: tuple[Metric, ...] = ()
        self.values = np.empty(0)
        self._reader = reader
        self._at = -1
        self._reading: Reading | None = None

    def sample(self, mono_ns: int) -> None:
        """Read, and turn counters into rates."""
        if mono_ns == self._at:
            return
        self._at = mono_ns
        started = time.perf_counter()
        try:
            reading = self.collector.read(self._reader)
            if reading is not self._reading:  # the same object: held since an earlier tick
                self.values = self.rates.update(reading.metrics, reading.numbers, mono_ns)
                self._reading, self.metrics = reading, reading.metrics
        except Exception as e:  # whatever a kernel file brings about costs this source only
            reason = e.strerror if isinstance(e, OSError) and e.strerror else repr(e)
            self.errors[reason] += 1
            self.values = np.full(len(self.metrics), np.nan)
        self.seconds += time.perf_counter() - started


class Sampler:
    """All sources of one host.

    Parameters
    ----------
    collectors
        What to read; or sources, where several hosts share them.
    reader
        Where to read it from.
    host, interval_us, agent_version, boot_id
        For the layout.
    """

    def __init__(
        self,
        collectors: Sequence[Collector | Source],
        reader: Reader,
        *,
        host: str,
        interval_us: int,
        agent_version: str,
        boot_id: str,
    ) -> None:
        self.sources = [c if isinstance(c, Source) else Source(c, reader) for c in collectors]
        self._host = host
        self._interval_us = interval_us
        self._agent_version = agent_version
        self._boot_id = boot_id
        self._parts: list[tuple[Metric, ...]] = []
        self._values = np.empty(0, np.float32)
        self._places: list[slice] = []
        self._layout: Layout | None = None

    def sample(self, mono_ns: int) -> Sample:
        """Read everything now; `mono_ns` is the time on the monotonic clock."""
        layout, parts = self._layout, self._parts
        for source in self.sources:
            source.sample(mono_ns)
        if layout is None or any(
            s.metrics is not p for s, p in zip(self.sources, parts, strict=True)
        ):
            layout = self._rearrange()
        values = self._values
        with np.errstate(over="ignore"):
            for source, place in zip(self.sources, self._places, strict=True):
                values[place] = source.values
        return Sample(layout, values)

    @property
    def errors(self) -> Counter[str]:
        """Reads that failed, by collector."""
        return Counter({s.collector.name: n for s in self.sources if (n := s.errors.total())})

    @property
    def reasons(self) -> dict[str, str]:
        """What failed last, by collector."""
        return {s.collector.name: next(reversed(s.errors)) for s in self.sources if s.errors}

    @property
    def broken(self) -> Counter[str]:
        """Fields that could not be read, by metric."""
        return sum((s.collector.broken for s in self.sources), Counter())

    @property
    def counter_events(self) -> Counter[str]:
        """Resets, wraps, steps back and zeros of counters."""
        return sum((s.rates.events for s in self.sources), Counter())

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent so far, by collector."""
        return {s.collector.name: s.seconds for s in self.sources}

    def _rearrange(self) -> Layout:
        self._parts = [s.metrics for s in self.sources]
        channels = tuple(m.channel for part in self._parts for m in part)
        ends = np.cumsum([len(part) for part in self._parts]).tolist()
        self._places = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        self._values = np.empty(len(channels), np.float32)
        fingerprint = layout_fingerprint(channels, self._interval_us)
        self._layout = Layout(
            self._host,
            fingerprint,
            self._agent_version,
            self._boot_id,
            self._interval_us,
            channels,
        )
        return self._layout
