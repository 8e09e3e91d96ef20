"""``reveal-agent list``: every channel, and what it says now."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from schemas.records import Channel, Floats, Layout, Subsystem

HEADERS = ("metric", "device", "subsystem", "value", "unit", "kind")
ABSENT = "-"


def shown(layout: Layout, *, everything: bool) -> list[int]:
    """Return the numbers of the channels to list: without `everything`, not the agent's own."""
    return [
        i
        for i, channel in enumerate(layout.channels)
        if everything or channel.subsystem is not Subsystem.AGENT
    ]


def format_value(value: float) -> str:
    """Return a value as people read it: six digits, and no exponent below a thousand billion."""
    if math.isnan(value):
        return ABSENT
    if math.isinf(value) or abs(value) >= 1e12:
        return f"{value:g}"
    if value == int(value) or abs(value) >= 1e5:
        return f"{value:.0f}"
    return f"{value:.6g}" if abs(value) >= 1e-4 else f"{value:.2e}"


def print_channels(layout: Layout, values: Floats, *, everything: bool, console: Console) -> None:
    """Print the channels and a count per subsystem: a table on a terminal, else aligned text."""
    numbers = shown(layout, everything=everything)
    rows = [_row(layout.channels[i], float(values[i])) for i in numbers]
    if console.is_terminal:
        console.print(_table(rows))
    else:
        for line in _lines(rows):
            print(line, file=console.file)
    for line in _counts(layout, numbers):
        print(line, file=console.file)


def json_lines(layout: Layout, values: Floats, *, everything: bool) -> Iterator[str]:
    """Return one JSON object a channel; what is not available is null."""
    for i in shown(layout, everything=everything):
        channel, value = layout.channels[i], float(values[i])
        yield json.dumps(
            {
                "metric": channel.metric,
                "device": channel.device,
                "subsystem": channel.subsystem,
                "unit": channel.unit,
                "kind": channel.kind,
                "value": value if math.isfinite(value) else None,
            }
        )


def _row(channel: Channel, value: float) -> tuple[str, ...]:
    return (
        channel.metric,
        channel.device,
        channel.subsystem,
        format_value(value),
        channel.unit,
        channel.kind,
    )


def _table(rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in HEADERS:
        # Folded, never cut: a channel that cannot be read off is of no use.
        table.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _lines(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(HEADERS, *rows, strict=True)]
    for row in (HEADERS, *rows):
        cells = (
            cell.rjust(width) if name == "value" else cell.ljust(width)
            for name, cell, width in zip(HEADERS, row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _counts(layout: Layout, numbers: list[int]) -> Iterator[str]:
    listed = Counter(layout.channels[i].subsystem for i in numbers)
    parts = [f"{listed[s]} {s}" for s in Subsystem if listed[s]]
    hidden = len(layout.channels) - len(numbers)
    own = f"; {hidden} more are the agent's own (--all)" if hidden else ""
    yield ""
    yield f"{len(numbers)} channels of {layout.host}: {', '.join(parts) or 'none'}{own}"
