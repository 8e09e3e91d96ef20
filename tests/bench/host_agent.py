"""The agent's own command line, with what a bench needs: a count of the numbers that it reads.

``python -m tests.bench.host_agent GPUS run ...`` is ``reveal-agent run ...``, and with GPUS above
0 it asks a recorded table for so many H100s, not NVML. When it ends it prints one JSON object:
numbers and readings of all sources since the start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeAlias, cast

import click

from producers import __main__ as program
from producers import sampler
from producers.collectors import DEVICES, gpu
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.config import AgentSettings
from producers.group import Group
from producers.host import Host
from producers.reading import Reader
from producers.source import Collector, Options, Source
from tests.producers.fake_nvml import FakeNvml

Devices: TypeAlias = Sequence[Callable[[Options], Sequence[Collector]]]


class Count:
    """How often sources were read, and how many numbers that brought."""

    def __init__(self) -> None:
        self.numbers = 0
        self.readings = 0

    def watch(self, source: Source) -> None:
        """Count from now on what is read from a source."""
        read = source.read

        def counted(reader: Reader, mono_ns: int) -> Sequence[float]:
            numbers = read(reader, mono_ns)
            self.numbers += len(numbers)
            self.readings += 1
            return numbers

        vars(source)["read"] = counted


COUNT = Count()


class CountingGroup(Group):
    """A group of which every reading is counted; that costs a tenth of a microsecond each."""

    def __init__(self, collectors: Iterable[Collector], *rest: Any, **named: Any) -> None:
        made = list(collectors)
        for collector in made:
            for source in collector.sources:
                if collector.name != "agent":
                    COUNT.watch(source)
        super().__init__(made, *rest, **named)


class TableHost(Host):
    """A host whose GPUs answer from a table, `GPUS` of them."""

    @classmethod
    def of(cls, settings: AgentSettings, reader: Reader, devices: Devices = DEVICES) -> Self:
        """Make it as the settings say."""
        others = [make for make in devices if make is not gpu.collectors]
        return super().of(settings, reader, [*others, from_table])


def from_table(options: Options) -> Sequence[Collector]:
    """Return the collectors of GPUs, over a table of H100s."""
    table = FakeNvml.h100s(GPUS)
    collectors = gpu.over(Session(lambda: cast(Nvml, table)))
    first = collectors[0].sources[0]
    read = first.read

    def moved(reader: Reader, mono_ns: int) -> Sequence[float]:
        table.now_ns = mono_ns
        return read(reader, mono_ns)

    vars(first)["read"] = moved
    return collectors


GPUS = 0


def main() -> None:
    """Be the agent."""
    global GPUS
    GPUS = int(sys.argv.pop(1))
    vars(sampler)["Group"] = CountingGroup
    if GPUS:
        vars(program)["Host"] = TableHost
    program.main(standalone_mode=False)
    click.echo(json.dumps({"numbers": COUNT.numbers, "readings": COUNT.readings}))


if __name__ == "__main__":
    main()
