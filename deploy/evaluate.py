"""``reveal evaluate``: what the episodes of a recording are worth, held against its labels."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from deploy.replay import open_recording
from deploy.wording import duration
from schemas.errors import RevealError
from schemas.flags import with_settings
from schemas.records import EpisodeState, State
from schemas.settings import Resolved
from streams.config import WorkerSettings

if TYPE_CHECKING:
    from models.evaluation import Evaluation, Event, Tally
    from streams.replay import Replay


class InvalidLabels(RevealError, ValueError):
    """A file of labels is not what it should be. The text names the file, the label and what."""


@click.command()
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--labels",
    "labels_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="JSON: a list of objects with fault, variant, subsystem, start_ns, end_ns, step_cost.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_settings(worker=WorkerSettings)
def evaluate(recording: Path, labels_file: Path, as_json: bool, settings: Resolved) -> None:
    """Replay RECORDING and hold its episodes against labelled faults.

    Each fault is expected on every host of the recording. What happens while a host is learned
    counts for nothing.
    """
    from models import evaluation
    from streams.replay import Replay, warm_up

    events = read_labels(labels_file)
    worker = settings.get("worker", WorkerSettings)
    source = open_recording(recording)
    warm_up(worker)
    run = Replay(worker)
    seen = _Seen()
    for outcome in run.run(source):
        seen.take(outcome.scores, outcome.anomalies)
    if not seen.ends:
        raise InvalidLabels(
            f"{recording}: no host was learned within it, so there is nothing to evaluate: "
            "give a shorter --baseline-seconds"
        )
    hosts = sorted(seen.ends)
    began_us = min(ends[0] for ends in seen.ends.values())
    ended_us = max(ends[-1] for ends in seen.ends.values())
    counted = [e for e in events if began_us <= e.start_us < ended_us]
    if not counted:
        raise InvalidLabels(
            f"{labels_file}: none of its {len(events)} faults lies in the part of {recording} "
            "that was watched"
        )
    watched_s = sum(len(ends) for ends in seen.ends.values()) * worker.stride_ms / 1e3
    done = evaluation.evaluate(counted, seen.told, hosts, watched_s)
    figures = {**_figures(done), **seen.ranking(counted), **_run(run, len(events) - len(counted))}
    if as_json:
        click.echo(json.dumps(_plain(figures)))
    else:
        _print(done, figures, Console())


class _Seen:
    """What a replay said of each host, in order."""

    def __init__(self) -> None:
        from models.evaluation import Told

        self._told = Told
        self.ends: dict[str, list[int]] = {}
        self.fused: dict[str, list[float]] = {}
        self.told: list[Told] = []

    def take(self, scores: Sequence[Any], anomalies: Sequence[Any]) -> None:
        """Take in a batch."""
        for score in scores:
            if score.state is State.ACTIVE and score.detectors:
                self.ends.setdefault(score.host, []).append(score.end)
                self.fused.setdefault(score.host, []).append(score.fused)
        for a in anomalies:
            if a.state is EpisodeState.OPEN:
                blamed = str(a.subsystems[0].subsystem) if a.subsystems else ""
                self.told.append(self._told(a.host, a.latest, blamed))

    def ranking(self, events: Sequence[Event]) -> dict[str, float]:
        """Return areas under curves of the fused score, the mean over hosts."""
        from models.ranking import auc_pr, vus_pr

        areas: dict[str, list[float]] = {"auc_pr": [], "vus_pr": []}
        for host, ends in self.ends.items():
            at, fused = np.array(ends), np.array(self.fused[host], np.float64)
            odd = np.zeros(len(at), np.bool_)
            for e in events:
                odd |= (at > e.start_us) & (at <= e.end_us)
            areas["auc_pr"].append(auc_pr(odd, fused))
            areas["vus_pr"].append(vus_pr(odd, fused))
        return {name: float(np.mean(values)) for name, values in areas.items()}


def read_labels(path: Path) -> list[Event]:
    """Return the faults of a file of labels.

    Raises
    ------
    InvalidLabels
        It cannot be read, or a label lacks what it needs.
    """
    from models.evaluation import Event

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InvalidLabels(f"{path} cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise InvalidLabels(f"{path} is no JSON: {e}") from None
    if not isinstance(found, list) or not found:
        raise InvalidLabels(f"{path} holds no list of labels")
    events = []
    for number, label in enumerate(found, start=1):
        try:
            cost = label.get("step_cost")
            event = Event(
                fault=str(label["fault"]),
                variant=int(label.get("variant", 0)),
                subsystem=str(label["subsystem"]),
                start_us=int(label["start_ns"]) // 1000,
                end_us=int(label["end_ns"]) // 1000,
                cost=math.nan if cost is None else float(cost),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            what = f"lacks {e}" if isinstance(e, KeyError) else f"is not as it should be: {e}"
            raise InvalidLabels(f"{path}: label {number} {what}") from None
        if event.end_us <= event.start_us:
            raise InvalidLabels(f"{path}: label {number} ({event.fault}) ends before it starts")
        events.append(event)
    return events


def _figures(done: Evaluation) -> dict[str, Any]:
    from models.evaluation import DAY_S, HOUR_S

    return {
        "hosts": done.hosts,
        "watched_seconds": done.watched_s,
        "events": done.every.events,
        "event_recall": done.every.recall,
        "delay_p50_s": done.every.delay_p50_s,
        "subsystem_accuracy": done.every.subsystem_accuracy,
        "events_without_cost": done.free.events,
        "found_without_cost": done.free.found,
        "episodes": done.episodes,
        "false_episodes": done.false,
        "false_episodes_per_hour": done.false_every(HOUR_S),
        "false_episodes_per_day": done.false_every(DAY_S),
        "precision": done.precision,
        "f1": done.f1,
        "per_fault": {f"{name}/{n}": _tally(t) for (name, n), t in done.per_fault.items()},
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "events": tally.events,
        "found": tally.found,
        "right_subsystem": tally.right_subsystem,
        "delay_p50_s": tally.delay_p50_s,
    }


def _run(run: Replay, left_out: int) -> dict[str, Any]:
    return {"windows": run.summary.windows, "labels_left_out": left_out}


def _plain(value: Any) -> Any:
    """Return what JSON can say: null for what is not known."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print(done: Evaluation, figures: Mapping[str, Any], console: Console) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("fault")
    for header in ("events", "found", "right subsystem", "delay p50"):
        table.add_column(header, justify="right")
    for (name, variant), tally in sorted(done.per_fault.items()):
        delay = "-" if math.isnan(tally.delay_p50_s) else f"{tally.delay_p50_s:.1f} s"
        counts = (tally.events, tally.found, tally.right_subsystem)
        table.add_row(f"{name}/{variant}", *map(str, counts), delay)
    console.print(table)
    hosts, watched = figures["hosts"], duration(done.watched_s)
    click.echo(
        f"\n{done.every.found} of {done.every.events} events found "
        f"({_percent(done.every.recall)}), half of them within {done.every.delay_p50_s:.1f} s; "
        f"right subsystem first in {_percent(done.every.subsystem_accuracy)}\n"
        f"{done.free.events} more cost the job nothing, {done.free.found} of them found\n"
        f"{done.false} of {done.episodes} episodes false: "
        f"{figures['false_episodes_per_hour']:.2f} an hour, "
        f"{figures['false_episodes_per_day']:.1f} a day and host "
        f"({hosts} hosts watched, {watched} in all)\n"
        f"precision {done.precision:.3f}, F1 {done.f1:.3f}, AUC-PR {figures['auc_pr']:.3f}, "
        f"VUS-PR {figures['vus_pr']:.3f}; {figures['labels_left_out']} labels left out"
    )


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f} %"
