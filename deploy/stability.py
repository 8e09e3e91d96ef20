"""Window configurations compared: whether they find the same in a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from deploy.changes import changed
from deploy.figures import add_row, number, percent, plain_table
from deploy.watched import Watched
from models.stability import Agreement, Span, agreement
from streams.config import WorkerSettings

if TYPE_CHECKING:
    from deploy.case import Case

OTHERS = {"fine": (1500, 500), "coarse": (5000, 2000)}
"""Length and stride, milliseconds: those that the paper holds against its 3 s every second."""


def spans(seen: Watched) -> dict[str, list[Span]]:
    """Return by host when episodes lasted: from the onset to the last flagged window's end."""
    found: dict[str, list[Span]] = {host: [] for host in seen.hosts}
    for name, records in seen.episodes.items():
        found[records[0].host].append(seen.lasted(name))
    return found


def compare(case: Case, default: Watched) -> dict[str, Agreement]:
    """Replay a recording with the other configurations and hold its episodes against theirs.

    Parameters
    ----------
    case
        The recording, and the settings that are in force.
    default
        What was seen with these.
    """
    found = {}
    for name, (window_ms, stride_ms) in OTHERS.items():
        worker = changed(
            case.worker,
            {"window_ms": window_ms, "stride_ms": stride_ms},
            f"windows of {window_ms} ms every {stride_ms} ms",
        )
        found[f"default_{name}"] = agreement(spans(default), spans(case.watch(worker)))
    return found


def figures(found: Mapping[str, Agreement]) -> dict[str, Any]:
    """Return the comparison under plain names."""
    return {
        pair: {
            "median_iou": one.median_iou,
            "hit_rate": one.hit_rate,
            "hits": one.hits,
            "default_intervals": one.intervals,
            "other_intervals": one.others,
        }
        for pair, one in found.items()
    }


def print_comparison(
    found: Mapping[str, Agreement], worker: WorkerSettings, console: Console
) -> None:
    """Print the comparison as a table."""
    table = plain_table("windows", "episodes", "of ours", "overlapped", "hit rate", "median IoU")
    for pair, one in found.items():
        name = pair.removeprefix("default_")
        cells = (one.others, one.intervals, one.hits, percent(one.hit_rate), number(one.median_iou))
        add_row(table, f"{name}: {_windows(*OTHERS[name])}", cells)
    click.echo(
        f"our windows of {_windows(worker.window_ms, worker.stride_ms)} held against others:"
    )
    console.print(table)


def _windows(window_ms: int, stride_ms: int) -> str:
    return f"{window_ms / 1000:g} s every {stride_ms / 1000:g} s"
