"""``reveal backtest``: what changed settings would have done to the episodes of a recording."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from deploy.case import Case, recorded_case
from deploy.changes import changed, parse
from deploy.figures import figures, number, percent, plain, plain_table
from deploy.watched import blamed, first_cause
from deploy.wording import clock_time, count_of, date_time, printable
from models.comparison import Change, Kind, Spell, compare
from models.evaluation import DAY_S, finder
from schemas.errors import InvalidSettings
from schemas.flags import with_settings
from schemas.settings import Resolved
from streams.config import WorkerSettings

if TYPE_CHECKING:
    from deploy.watched import Watched
    from models.evaluation import Evaluation, Event

OPTION = "--set"


@click.command()
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    OPTION,
    "pairs",
    multiple=True,
    required=True,
    metavar="KEY=VALUE",
    help="A setting of the worker, and what it would be; as often as you like.",
)
@click.option(
    "--labels",
    "labels_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also say which faults it would have found or missed; the file is that of `evaluate`.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--all", "everything", is_flag=True, help="Also list episodes that stay as they are.")
@with_settings(worker=WorkerSettings)
def backtest(
    recording: Path,
    pairs: tuple[str, ...],
    labels_file: Path | None,
    as_json: bool,
    everything: bool,
    settings: Resolved,
) -> None:
    """Replay RECORDING with the settings in force and with changed ones, and compare the episodes.

    Keys are those that `reveal config` prints under [worker]. An episode that overlaps one of the
    other settings is kept, told earlier or later; one that overlaps several is split or merged; one
    that overlaps none is new or gone.
    """
    before = settings.get("worker", WorkerSettings)
    changes = parse(pairs, OPTION)
    after = changed(before, changes, OPTION)
    if after == before:
        said = ", ".join(f"{key}={getattr(before, key)}" for key in changes)
        raise InvalidSettings(f"{OPTION}: {said} is in force already: there is nothing to compare")
    case = recorded_case(recording, labels_file, before)
    outcome = _Outcome(case, before, after, list(changes))
    if as_json:
        click.echo(json.dumps(plain(outcome.figures())))
    else:
        outcome.print(Console(), everything=everything)


class _Outcome:
    """Both replays, and what differs."""

    def __init__(
        self, case: Case, before: WorkerSettings, after: WorkerSettings, keys: Sequence[str]
    ) -> None:
        self.keys = keys
        self.workers = before, after
        self.seen = case.watch(before), case.watch(after)
        self.changes = compare(*map(spells, self.seen))
        self.counts = Counter(change.kind for change in self.changes)
        self.judged: tuple[_Judged, ...] = ()
        if case.labels is not None:
            self.judged = tuple(
                _Judged(case, seen, worker)
                for seen, worker in zip(self.seen, self.workers, strict=True)
            )

    def figures(self) -> dict[str, Any]:
        """Return everything under plain names."""
        before, after = self.workers
        found: dict[str, Any] = {
            "set": {
                key: {"before": getattr(before, key), "after": getattr(after, key)}
                for key in self.keys
            },
            "counts": {kind.value: self.counts[kind] for kind in Kind},
            "changes": [self._change(change) for change in self.changes],
        }
        if self.judged:
            found |= {
                name: figures(judged.done, judged.ranking)
                for name, judged in zip(("before", "after"), self.judged, strict=True)
            }
            lost, gained = self.faults()
            found |= {"faults_lost": lost, "faults_gained": gained}
        return found

    def faults(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the faults, by host, that only the one and only the other settings found."""
        before, after = (judged.found for judged in self.judged)
        return (
            [_fault(*key) for key in before if key not in after],
            [_fault(*key) for key in after if key not in before],
        )

    def print(self, console: Console, *, everything: bool) -> None:
        """Print tables and sentences."""
        before, after = self.workers
        for key in self.keys:
            click.echo(f"{key}: {getattr(before, key)} -> {getattr(after, key)}")
        shown = [c for c in self.changes if everything or not c.is_same]
        if shown:
            click.echo(f"{date_time(shown[0].onset_us)} is the first onset; times of day below\n")
            table = plain_table("host", "onset", "end", "subsystem", "cause", "what becomes of it")
            for column in table.columns[3:]:
                column.justify = "left"
            for change in shown:
                table.add_row(*(Text(printable(cell)) for cell in self._row(change)))
            console.print(table)
        else:
            click.echo("every episode stays as it is")
        counts = ", ".join(f"{self.counts[kind]} {kind}" for kind in Kind if self.counts[kind])
        sizes = [len(seen.episodes) for seen in self.seen]
        click.echo(
            f"\n{count_of(sizes[0], 'episode')} before, {sizes[1]} after: {counts or 'none at all'}"
        )
        if self.judged:
            click.echo()
            console.print(self._side_by_side())
            for said, faults in zip(("missed", "found"), self.faults(), strict=True):
                for fault in faults:
                    click.echo(printable(f"{said} now: {fault['fault']} on {fault['host']}"))

    def _change(self, change: Change) -> dict[str, Any]:
        return {
            "kind": change.kind.value,
            "host": change.host,
            "later_s": change.later_s,
            "same": change.is_same,
            "learning": self._learned_then(change),
            "before": [_spell(s) for s in change.before],
            "after": [_spell(s) for s in change.after],
        }

    def _row(self, change: Change) -> tuple[str, ...]:
        return (
            change.host,
            clock_time(change.onset_us),
            clock_time(change.end_us),
            _both([s.subsystem for s in change.before], [s.subsystem for s in change.after]),
            _both([s.cause for s in change.before], [s.cause for s in change.after]),
            self._words(change),
        )

    def _words(self, change: Change) -> str:
        words = change.kind.value
        if change.kind in (Kind.SPLIT, Kind.MERGED, Kind.REGROUPED):
            words += f" {len(change.before)} -> {len(change.after)}"
        later = change.later_s
        if later:
            words += f", {abs(later):.1f} s {'later' if later > 0 else 'earlier'}"
        if self._learned_then(change):
            words += f", still learning {'before' if change.kind is Kind.NEW else 'after'}"
        return words

    def _learned_then(self, change: Change) -> bool:
        """Return whether the side that has no episode was not watching yet."""
        seen = self.seen[0] if change.kind is Kind.NEW else self.seen[1]
        if change.kind not in (Kind.NEW, Kind.GONE):
            return False
        run = seen.hosts.get(change.host)
        told = min(s.opened_us for s in (*change.before, *change.after))
        return run is None or told < run.ends[0]

    def _side_by_side(self) -> Any:
        table = plain_table("", "before", "after")
        before, after = (judged.done for judged in self.judged)
        rows: dict[str, tuple[str, str]] = {
            "faults found": (_recall(before), _recall(after)),
            "delay p50, s": (
                number(before.every.delay_p50_s, 1),
                number(after.every.delay_p50_s, 1),
            ),
            "false episodes": (str(before.false), str(after.false)),
            "false a day and host": (
                number(before.false_every(DAY_S), 1),
                number(after.false_every(DAY_S), 1),
            ),
            "right subsystem": (
                percent(before.every.subsystem.accuracy),
                percent(after.every.subsystem.accuracy),
            ),
            "right cause": (
                percent(before.every.cause.accuracy),
                percent(after.every.cause.accuracy),
            ),
        }
        for name, cells in rows.items():
            table.add_row(name, *cells)
        return table


class _Judged:
    """One side held against labels: the evaluation, and which fault was found on which host."""

    def __init__(self, case: Case, seen: Watched, worker: WorkerSettings) -> None:
        self.done, counted = case.judge(seen, worker)
        self.ranking: Mapping[str, float] = seen.ranking(counted)
        self.found: dict[tuple[Event, str], None] = {}
        own = seen.told_by_host()
        for event in counted:
            for host, episodes in sorted(own.items()):
                if event.is_on(host) and finder(event, episodes.values(), case.grace_us(worker)):
                    self.found[event, host] = None


def spells(seen: Watched) -> list[Spell]:
    """Return the episodes of a replay as they are compared."""
    found = []
    for name, records in seen.episodes.items():
        onset, end = seen.lasted(name)
        last = records[-1]
        found.append(
            Spell(last.host, onset, records[0].latest, end, blamed(last), first_cause(last))
        )
    return found


def _spell(spell: Spell) -> dict[str, Any]:
    return {
        "onset": spell.onset_us,
        "opened": spell.opened_us,
        "end": spell.end_us,
        "subsystem": spell.subsystem,
        "cause": spell.cause,
    }


def _fault(event: Event, host: str) -> dict[str, Any]:
    return {"fault": f"{event.fault}/{event.variant}", "start": event.start_us, "host": host}


def _both(before: Sequence[str], after: Sequence[str]) -> str:
    """Return what episodes were taken for, once where it does not change."""
    sides = [", ".join(dict.fromkeys(s or "-" for s in side)) for side in (before, after)]
    known = [side for side in sides if side]
    return known[0] if len(set(known)) == 1 else " -> ".join(known)


def _recall(done: Evaluation) -> str:
    return f"{done.every.found} of {done.every.events} ({percent(done.every.recall)})"
