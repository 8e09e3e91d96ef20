"""A host of GPUs over a stand-in for NVML, read as the agent reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from producers.collectors import gpu, kmsg
from producers.collectors.gpu import xid
from producers.collectors.gpu.lanes import Inline, Lanes
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import GPUS, Session
from producers.collectors.gpu.visits import Patience
from producers.group import Group
from producers.reading import MemoryReader
from producers.source import Collector
from tests.producers import nvml_tables
from tests.producers.fake_nvml import FakeNvml

TICK_NS = 100_000_000


class FakeLog:
    """Records as /dev/kmsg gives them: assign `records`; an exception among them is raised."""

    def __init__(self, *records: bytes | OSError) -> None:
        self.records: list[bytes | OSError] = list(records)
        self.closed = False

    def take(self) -> bytes:
        if not self.records:
            raise BlockingIOError
        record = self.records.pop(0)
        if isinstance(record, OSError):
            raise record
        return record

    def close(self) -> None:
        self.closed = True


class GpuHost:
    """Every collector of GPUs, over one session; a tick is 100 ms."""

    def __init__(
        self,
        fake: FakeNvml,
        *,
        lanes: Lanes | None = None,
        load: Callable[[], Nvml] | None = None,
        only: Iterable[str] = (),
        patience: Patience | None = None,
    ) -> None:
        self.fake = fake
        self.log = FakeLog()
        self.reader = MemoryReader()
        self.session = Session(
            (lambda: fake) if load is None else load,
            lanes=Inline() if lanes is None else lanes,
            clock_ns=fake.clock_ns,
            patience=patience,
        )
        names = set(only)
        every: list[Collector] = [
            c for make in gpu.COLLECTORS if make is not xid.collector for c in [make(self.session)]
        ]
        every.append(xid.collector(self.session, kmsg.Tail(lambda: self.log)))
        self.collectors = [c for c in every if not names or c.name in names]
        self.group = Group(self.collectors, self.reader, clock_ns=fake.clock_ns)
        self.kernel_sees(fake)

    def kernel_sees(self, fake: FakeNvml) -> None:
        """Let the driver's list of GPUs be what the stand-in has."""
        names = nvml_tables.names(fake.tables)
        self.reader.files = {f"{GPUS}/{name}/information": b"" for name in names}

    def tick(self, ticks: int = 1, *, whole: bool = False) -> dict[str, float]:
        """Read so many times, and return the values of the last by label."""
        for _ in range(ticks):
            self.fake.now_ns += TICK_NS
            values = self.group.collect(self.fake.now_ns, whole=whole)
        assert len(values) == len(self.group.channels)
        assert np.isfinite(values[~np.isnan(values)]).all()
        labels = [c.label for c in self.group.channels]
        assert len(set(labels)) == len(labels)
        return dict(zip(labels, values.tolist(), strict=True))

    def settle(self) -> dict[str, float]:
        """Read until GPM and background readings have values, everything at each reading."""
        return self.tick(15, whole=True)

    @property
    def bad_fields(self) -> int:
        return sum(stats.bad_fields for stats in self.group.stats.values())

    @property
    def failures(self) -> set[str]:
        return {reason for stats in self.group.stats.values() for reason in stats.failures}
