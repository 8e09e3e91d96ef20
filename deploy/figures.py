"""An evaluation as figures under plain names, and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deploy.wording import duration, printable
from models.evaluation import DAY_S, HOUR_S, MISSED, NO_CAUSE

if TYPE_CHECKING:
    from models.evaluation import Evaluation, Tally


def figures(done: Evaluation, ranking: Mapping[str, float]) -> dict[str, Any]:
    """Return every figure; NaN for what is not known."""
    return {
        "hosts": done.hosts,
        "watched_seconds": done.watched_s,
        "events": done.every.events,
        "event_recall": done.every.recall,
        "event_recall_any_host": done.anywhere,
        "delay_p50_s": done.every.delay_p50_s,
        "subsystem_accuracy": done.every.subsystem.accuracy,
        "subsystem_accuracy_at_open": done.every.subsystem.accuracy_at_open,
        "subsystem_accuracy_shared": done.every.shared_accuracy,
        "cause_accuracy": done.every.cause.accuracy,
        "cause_accuracy_at_open": done.every.cause.accuracy_at_open,
        "events_without_cost": done.free.events,
        "found_without_cost": done.free.found,
        "episodes": done.episodes,
        "episodes_elsewhere": done.elsewhere,
        "false_episodes": done.false,
        "false_episodes_per_hour": done.false_every(HOUR_S),
        "false_episodes_per_day": done.false_every(DAY_S),
        "precision": done.precision,
        "f1": done.f1,
        **ranking,
        "per_fault": {f"{name}/{n}": _tally(t) for (name, n), t in done.per_fault.items()},
        "confusion": {fault: dict(row) for fault, row in sorted(done.confusion.items())},
    }


def plain(value: Any) -> Any:
    """Return what JSON can say: null for what is not known."""
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def confusion_columns(done: Evaluation) -> list[str]:
    """Return the causes that were named, by name; what is no cause comes last."""
    seen = {cause for row in done.confusion.values() for cause in row}
    return [*sorted(seen - {NO_CAUSE, MISSED}), *(c for c in (NO_CAUSE, MISSED) if c in seen)]


def percent(share: float) -> str:
    """Return a share in percent, or a dash where it is not known."""
    return "-" if math.isnan(share) else f"{100 * share:.0f} %"


def number(value: float, digits: int = 3) -> str:
    """Return a number, or a dash where it is not known."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def delay(seconds: float) -> str:
    """Return a delay to the tenth of a second, or from a minute on as people say it."""
    if math.isnan(seconds) or seconds < 60:
        return "-" if math.isnan(seconds) else f"{seconds:.1f} s"
    return duration(seconds)


def plain_table(first: str, *others: str) -> Table:
    """Return an empty table without lines, numbers to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(first)
    for header in others:
        table.add_column(Text(printable(header)), justify="right")
    return table


def add_row(table: Table, name: str, cells: Iterable[object]) -> None:
    """Append a row; its name comes from elsewhere."""
    table.add_row(Text(printable(name)), *(Text(str(cell)) for cell in cells))


def print_evaluation(done: Evaluation, found: Mapping[str, Any], console: Console) -> None:
    """Print tables by fault and cause, and what it comes to in sentences."""
    table = plain_table("fault", "events", "found", "right subsystem", "right cause", "delay p50")
    for (name, variant), tally in sorted(done.per_fault.items()):
        rights = (
            str(right.last) if right.judged or not tally.found else "-"
            for right in (tally.subsystem, tally.cause)
        )
        add_row(
            table,
            f"{name}/{variant}",
            (tally.events, tally.found, *rights, delay(tally.delay_p50_s)),
        )
    console.print(table)
    if done.confusion:
        # A column for each cause would not fit a terminal: the page has the matrix.
        table = plain_table("fault", "cause named first")
        for fault, row in sorted(done.confusion.items()):
            named = (f"{cause} {row[cause]}" for cause in confusion_columns(done) if row[cause])
            add_row(table, fault, (printable(", ".join(named)),))
        console.print()
        console.print(table)
    click.echo("\n" + "\n".join(sentences(done, found)))


def sentences(done: Evaluation, found: Mapping[str, Any]) -> list[str]:
    """Return what an evaluation comes to, a line each."""
    every = done.every
    lines = [
        (
            f"{every.found} of {every.events} events found ({percent(every.recall)}), "
            f"half of them within {delay(every.delay_p50_s)}; "
            f"on at least one host {percent(done.anywhere)}"
        )
    ]
    if done.per_fault and any(t.subsystem.judged for t in done.per_fault.values()):
        lines += [
            f"right {what} first in {percent(right.accuracy)} "
            f"(as it was opened {percent(right.accuracy_at_open)}{more})"
            for what, right, more in (
                (
                    "subsystem",
                    every.subsystem,
                    f"; among those that share the blame {percent(every.shared_accuracy)}",
                ),
                ("cause", every.cause, ""),
            )
        ]
    if done.free.events:
        lines.append(
            f"{done.free.events} more cost the job nothing, {done.free.found} of them found"
        )
    lines.append(
        f"{done.false} of {done.episodes} episodes false: "
        f"{number(done.false_every(HOUR_S), 2)} an hour, "
        f"{number(done.false_every(DAY_S), 1)} a day and host "
        f"({done.hosts} hosts watched, {duration(done.watched_s)} in all)"
    )
    if done.elsewhere:
        lines.append(
            f"{done.elsewhere} more on hosts that the running fault does not name: neither right "
            "nor false"
        )
    lines.append(
        f"precision {number(done.precision)}, F1 {number(done.f1)}, "
        f"AUC-PR {number(found['auc_pr'])}, VUS-PR {number(found['vus_pr'])}"
    )
    lost = {**found.get("dropped", {}), "missing": found.get("missing_ticks", 0)}
    if any(lost.values()):
        lines.append("ticks: " + ", ".join(f"{n:,} {why}" for why, n in lost.items() if n))
    if found.get("labels_left_out"):
        lines.append(f"{found['labels_left_out']} labels lie outside of what was watched")
    return lines


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "events": tally.events,
        "found": tally.found,
        "right_subsystem": tally.subsystem.last,
        "right_subsystem_at_open": tally.subsystem.at_open,
        "right_cause": tally.cause.last,
        "right_cause_at_open": tally.cause.at_open,
        "delay_p50_s": tally.delay_p50_s,
    }
