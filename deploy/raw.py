"""Recordings of raw kernel files: the agent's collectors, fed from a file.

A record is one sample: `wall_ns`, `mono_ns` and `files`, a map from the path below / to the raw
bytes. A path with a prefix, ``rank0:proc/net/dev``, is that host's own: every prefix is a host,
which has the machine's other files in common with the rest. Without a prefix there is one host.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from producers.collectors import MACHINE, NAMESPACE
from producers.group import Group
from producers.packing import Packer
from producers.reading import MemoryReader
from producers.sampler import Sampler
from schemas.codec import encode
from schemas.records import Layout, Telemetry
from streams.recording import Container, Recorded

FIELDS = {"wall_ns", "mono_ns", "files"}
INTERVALS_MS = (10, 20, 25, 40, 50, 100, 125, 200, 250, 500, 1000)
"""Sampling intervals that fit the clock grid."""
PROBE = 50
"""Samples whose distance tells the interval."""
SECOND_US = 1_000_000
BOOT_ID = "proc/sys/kernel/random/boot_id"


def is_raw(schema: Any) -> bool:
    """Return whether a container's schema is that of raw samples."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return False
    return {field["name"] for field in schema["fields"]} >= FIELDS


class RawRecording:
    """Telemetry from a recording of raw kernel files.

    Attributes
    ----------
    same_tick
        Samples left out, since an earlier one has their place on the clock grid.
    in_order
        Whether it is known to be in time order as it is read.
    """

    in_order = True

    def __init__(self, container: Container) -> None:
        self.container = container
        self.same_tick = 0
        self._samplers: list[Sampler] = []

    def __iter__(self) -> Iterator[Recorded]:
        """Yield each host's layouts and telemetry, in time order."""
        self.same_tick, self._samplers = 0, []
        samples = self._samples()
        probe = list(itertools.islice(samples, PROBE))
        if not probe:
            return
        interval_us = sampling_interval_us([s["mono_ns"] for s in probe])
        machine = _Machine(probe[0]["files"], interval_us, self.container.path.stem)
        self._samplers = [host.sampler for host in machine.hosts]
        newest = None
        for sample in itertools.chain(probe, samples):
            tick = grid_us(sample["wall_ns"], interval_us)
            if tick == newest:
                self.same_tick += 1
                continue
            newest = tick
            for record in machine.sample(tick, sample["mono_ns"], sample["files"]):
                yield Recorded(record, encode(record))
        for record in machine.flush():
            yield Recorded(record, encode(record))

    def in_time_order(self) -> Iterator[Recorded]:
        """Yield the same: samples are in order, and a layout comes before what needs it."""
        return iter(self)

    def dropped(self) -> dict[str, int]:
        """Return what was left out on the way, by reason."""
        # What hosts share is in the statistics of each of them.
        stats = {id(one): one for sampler in self._samplers for one in sampler.stats.values()}
        return {
            "same_tick": self.same_tick,
            "failed_reads": sum(one.failures.total() for one in stats.values()),
            "bad_fields": sum(one.bad_fields for one in stats.values()),
        }

    def _samples(self) -> Iterator[dict[str, Any]]:
        for block in self.container.blocks():
            try:
                yield from block
            except Exception as e:  # fastavro raises whatever the bytes lead it to
                self.container.damaged(block.size, e)


class _Host:
    def __init__(self, sampler: Sampler, reader: MemoryReader, ticks_per_record: int) -> None:
        self.sampler = sampler
        self.reader = reader
        self.packer = Packer(ticks_per_record)
        self.layout: Layout | None = None


class _Machine:
    """The hosts of one recording. What they have in common is read once."""

    def __init__(self, files: Mapping[str, bytes], interval_us: int, name: str) -> None:
        self._shared = MemoryReader(files)
        shared = Group([make() for make in MACHINE], self._shared)
        prefixes = sorted({path.partition(":")[0] for path in files if ":" in path})
        boot_id = files.get(BOOT_ID, b"").decode(errors="replace").strip()
        ticks_per_record = max(1, SECOND_US // interval_us)
        self.hosts = []
        for prefix in prefixes or [""]:
            reader = MemoryReader(files, prefix and f"{prefix}:")
            sampler = Sampler(
                [make() for make in NAMESPACE],
                reader,
                host=prefix or name,
                interval_us=interval_us,
                agent_version="",
                boot_id=boot_id,
                shared=[shared],
            )
            self.hosts.append(_Host(sampler, reader, ticks_per_record))

    def sample(
        self, tick_us: int, mono_ns: int, files: Mapping[str, bytes]
    ) -> Iterator[Layout | Telemetry]:
        """Yield what one sample completes."""
        self._shared.files = files
        for host in self.hosts:
            host.reader.files = files
            sample = host.sampler.sample(mono_ns)
            records = host.packer.add(tick_us, sample.layout, sample.values)
            # What the change of layout cut is of the old one.
            old = [r for r in records if r.layout != sample.layout.fingerprint]
            yield from old
            if sample.layout is not host.layout:
                host.layout = sample.layout
                yield sample.layout
            yield from records[len(old) :]

    def flush(self) -> Iterator[Telemetry]:
        """Yield the records that are not full."""
        for host in self.hosts:
            yield from host.packer.flush()


def sampling_interval_us(mono_ns: Iterable[int]) -> int:
    """Return the interval on the clock grid that is nearest to the usual distance of samples."""
    distances = np.diff(np.fromiter(mono_ns, np.int64)) / 1e6
    usual = float(np.median(distances)) if len(distances) else 100.0
    return 1000 * min(INTERVALS_MS, key=lambda ms: abs(ms - usual))


def grid_us(wall_ns: int, interval_us: int) -> int:
    """Return the nearest point of the clock grid, microseconds."""
    interval_ns = 1000 * interval_us
    return (wall_ns + interval_ns // 2) // interval_ns * interval_us
