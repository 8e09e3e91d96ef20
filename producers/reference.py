"""What the agent can tell: every kind of metric, with its unit and where it is read.

``reveal-agent list --all`` prints it for a host, `as_markdown` makes the page that the README
links. Both read it off the collectors, so that neither can be wrong about them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from producers.source import Collector
from schemas.records import Subsystem

HEADERS = ("metric", "subsystem", "unit", "kind", "channels", "read", "collector", "source")
SECOND_NS = 1_000_000_000
_ORDER = [*Subsystem]


@dataclass(frozen=True, slots=True)
class Metric:
    """One kind of metric of one host.

    Attributes
    ----------
    channels
        How many devices have it.
    read
        How often, in words.
    source
        The file below the root, or the call; several are parted by commas.
    """

    metric: str
    subsystem: str
    unit: str
    kind: str
    channels: int
    read: str
    collector: str
    source: str


def reference(collectors: Iterable[Collector]) -> list[Metric]:
    """Return every kind of metric that collectors have, by subsystem and name.

    They have been read at least once.
    """
    found: dict[str, list[tuple[str, ...]]] = {}
    for collector in collectors:
        for source in collector.sources:
            read = words(source.period_ns)
            path = source.path or "the agent itself"
            for c in source.plan.channels:
                row = (c.subsystem, c.unit, c.kind, read, collector.name, path)
                found.setdefault(c.metric, []).append(row)
    metrics = []
    for metric, rows in found.items():
        subsystem, unit, kind, *rest = map(_joined, zip(*rows, strict=True))
        metrics.append(Metric(metric, subsystem, unit, kind, len(rows), *rest))
    order = {str(s): i for i, s in enumerate(_ORDER)}
    return sorted(metrics, key=lambda m: (order[m.subsystem.partition(",")[0]], m.metric))


def words(period_ns: int) -> str:
    """Return how often in words: ``every tick``, ``1 s``."""
    return f"{period_ns / SECOND_NS:g} s" if period_ns else "every tick"


def counts(metrics: Sequence[Metric]) -> str:
    """Return how many kinds and channels each subsystem has, in one line."""
    kinds = Counter(m.subsystem.partition(",")[0] for m in metrics)
    parts = [f"{kinds[s]} {s}" for s in map(str, _ORDER) if kinds[s]]
    return (
        f"{len(metrics)} kinds of metric, {sum(m.channels for m in metrics)} channels: "
        f"{', '.join(parts) or 'none'}"
    )


def print_reference(metrics: Sequence[Metric], console: Console) -> None:
    """Print the table: on a terminal as wide as that, else one whole line a metric."""
    if console.is_terminal:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for header in HEADERS:
            table.add_column(
                header,
                overflow="fold",
                justify="right" if header == "channels" else "left",
            )
        for m in metrics:
            table.add_row(*_cells(m))
        console.print(table, markup=False)
    else:
        for line in _lines([_cells(m) for m in metrics]):
            print(line, file=console.file)
    print(f"\n{counts(metrics)}", file=console.file)


def as_markdown(metrics: Sequence[Metric]) -> str:
    """Return a table in Markdown for each subsystem, without what differs between hosts."""
    lines: list[str] = []
    shown = [h for h in HEADERS if h not in ("subsystem", "channels")]
    at = [HEADERS.index(h) for h in shown]
    for subsystem in map(str, _ORDER):
        rows = [_cells(m) for m in metrics if m.subsystem.partition(",")[0] == subsystem]
        if not rows:
            continue
        lines += ["", f"## {subsystem}", ""]
        lines += [f"| {' | '.join(shown)} |", f"|{'---|' * len(shown)}"]
        lines += (f"| {' | '.join(row[i].replace('|', ',') for i in at)} |" for row in rows)
    return "\n".join(lines) + "\n"


def _cells(m: Metric) -> tuple[str, ...]:
    return (m.metric, m.subsystem, m.unit, m.kind, str(m.channels), m.read, m.collector, m.source)


def _joined(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _lines(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(HEADERS, *rows, strict=True)]
    for row in (HEADERS, *rows):
        cells = (
            cell.rjust(width) if name == "channels" else cell.ljust(width)
            for name, cell, width in zip(HEADERS, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()
