"""One sample of a host: read the sources, turn counters into rates, say what it all means.

A `Group` is collectors that are read together over one reader. A `Sampler` is one host: its own
group, and groups that it shares with other hosts on the same machine. A shared group reads once
per time, however many samplers ask for it::

    machine = Group([make() for make in MACHINE], recorded)
    for rank in ("rank0", "rank1"):
        own = MemoryReader(files, prefix=f"{rank}:")
        Sampler([make() for make in NAMESPACE], own, host=rank, ..., shared=[machine])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from producers.group import Group
from producers.part import CollectorStats
from producers.reading import Reader
from producers.source import Collector
from schemas.records import Channel, Floats, Layout, layout_fingerprint


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The values of one instant, shape ``(channels,)``, in the order of `layout`."""

    layout: Layout
    values: Floats


class Sampler:
    """One host, sampled whenever it is asked.

    Parameters
    ----------
    collectors
        The host's own.
    reader
        Where they read.
    host, interval_us, agent_version, boot_id
        What the layout says beside the channels.
    shared
        Groups that other samplers ask too. Their channels come first.
    """

    def __init__(
        self,
        collectors: Iterable[Collector],
        reader: Reader,
        *,
        host: str,
        interval_us: int,
        agent_version: str,
        boot_id: str,
        shared: Sequence[Group] = (),
    ) -> None:
        self._groups = (*shared, Group(collectors, reader, tick_ns=1000 * interval_us))
        self._seen: tuple[tuple[Channel, ...], ...] = ()
        self._layout = Layout(
            host, layout_fingerprint((), interval_us), agent_version, boot_id, interval_us, ()
        )

    @property
    def layout(self) -> Layout:
        """What the values of the newest sample mean; without channels before the first."""
        return self._layout

    @property
    def stats(self) -> Mapping[str, CollectorStats]:
        """What each collector cost and what went wrong, by its name."""
        return {name: stats for group in self._groups for name, stats in group.stats.items()}

    @property
    def events(self) -> Counter[str]:
        """Counters that wrapped, went back or started anew, by what they did."""
        # Copies: another thread may ask, while the groups go on counting.
        return sum((group.events.copy() for group in self._groups), Counter())

    def sample(self, mono_ns: int, *, whole: bool = False) -> Sample:
        """Read every source whose turn it is; all when the `whole` is asked for.

        The layout is the same object while nothing changed. Rates are NaN in the first sample.

        Parameters
        ----------
        mono_ns
            The time on the monotonic clock, nanoseconds; later than in the sample before.
        """
        values = [group.collect(mono_ns, whole=whole) for group in self._groups]
        channels = tuple(group.channels for group in self._groups)
        if any(a is not b for a, b in zip(channels, self._seen, strict=False)) or not self._seen:
            self._seen = channels
            every = tuple(c for group in channels for c in group)
            old = self._layout
            self._layout = Layout(
                old.host,
                layout_fingerprint(every, old.interval_us),
                old.agent_version,
                old.boot_id,
                old.interval_us,
                every,
            )
        return Sample(self._layout, values[0] if len(values) == 1 else np.concatenate(values))
