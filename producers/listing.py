"""``reveal-agent list``: every channel, and what it says now."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    """Print the channels and a count per subsystem.

    On a terminal it is a table by subsystem; else one whole line a channel, in the order of the
    layout.
    """
    numbers = shown(layout, everything=everything)
    channels, shown_values = [layout.channels[i] for i in numbers], values[numbers].tolist()
    if console.is_terminal:
        console.print(_table(channels, shown_values))
    else:
        for line in _lines([*map(_row, channels, shown_values)]):
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


def _table(channels: Sequence[Channel], values: Sequence[float]) -> Table:
    """Narrow enough for 80 columns: the subsystem is a heading, the device beside its metric."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    # Folded, never cut: a channel that cannot be read off is of no use.
    table.add_column("channel", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    for subsystem in Subsystem:
        rows = [(c, v) for c, v in zip(channels, values, strict=True) if c.subsystem is subsystem]
        if rows:
            table.add_row(Text(subsystem, style="bold cyan"))
        for channel, value in rows:
            # Text, not markup: a label has brackets.
            table.add_row(Text(channel.label), format_value(value), channel.unit, channel.kind)
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
