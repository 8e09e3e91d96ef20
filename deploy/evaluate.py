"""``reveal evaluate``: what the episodes of a recording are worth, held against its labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from deploy import stability as windows
from deploy.case import SAMPLE_SECONDS, Case, array_case, is_array, recorded_case
from deploy.figures import figures, plain, print_evaluation
from schemas.flags import with_settings
from schemas.settings import Resolved
from streams.config import WorkerSettings

if TYPE_CHECKING:
    from deploy.watched import Watched


@click.command()
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--labels",
    "labels_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON: a list of objects with fault, variant, subsystem, start_ns, end_ns, and if known "
    "step_cost and hosts.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a page with plots to this file.",
)
@click.option("--force", is_flag=True, help="Replace the file of --html if it is there.")
@click.option(
    "--stability",
    is_flag=True,
    help="Also compare windows of other lengths; needs no labels.",
)
@click.option(
    "--sample-seconds",
    type=click.IntRange(min=1),
    help=f"Time between the samples of an array data set. [default: {SAMPLE_SECONDS}]",
)
@with_settings(worker=WorkerSettings)
def evaluate(
    recording: Path,
    labels_file: Path | None,
    as_json: bool,
    page: Path | None,
    force: bool,
    stability: bool,
    sample_seconds: int | None,
    settings: Resolved,
) -> None:
    """Replay RECORDING and hold its episodes against labelled faults.

    Each fault is expected on every host of the recording, or on those that its label names. What
    happens while a host is learned counts for nothing.

    RECORDING can also be an array data set, machine.npz: arrays `train` and `test` of shape
    (samples, channels) and `label` of shape (samples of test,). Its train split is and stays the
    baseline, and every sample is the end of a window.
    """
    worker = settings.get("worker", WorkerSettings)
    if force and page is None:
        raise click.UsageError("--force goes with --html")
    if is_array(recording):
        if labels_file is not None or stability:
            raise click.UsageError(
                f"{recording} has labels and windows of its own: no --labels, no --stability"
            )
        case = array_case(recording, sample_seconds or SAMPLE_SECONDS, worker)
    else:
        if sample_seconds is not None:
            raise click.UsageError("--sample-seconds goes with an array data set, machine.npz")
        if labels_file is None and (page is not None or not stability):
            raise click.UsageError("--labels FILE says what was wrong with the recording, and when")
        case = recorded_case(recording, labels_file, worker)
    found = _judge(case, as_json=as_json, page=page, force=force, stability=stability)
    if as_json:
        click.echo(json.dumps(plain(found)))


def _judge(
    case: Case, *, as_json: bool, page: Path | None, force: bool, stability: bool
) -> dict[str, Any]:
    """Do what was asked for; return all figures."""
    console = Console()
    found: dict[str, Any] = {}
    if page is not None:
        from deploy.report import check, write_report
        from deploy.report_channels import near

        check(page, force=force)
        means = near(case.events, case.worker)
        seen = case.watch(means=means)
    else:
        seen = case.watch()
    if case.labels is not None or case.events:
        done, counted = case.judge(seen)
        found |= figures(done, seen.ranking(counted))
        found |= _run(seen, len(case.events) - len(counted))
        if not as_json:
            print_evaluation(done, found, console)
        if page is not None:
            write_report(page, case, seen, means, done, counted, found)
            click.echo(f"wrote {page}", err=True)
    if stability:
        compared = windows.compare(case, seen)
        found["stability"] = windows.figures(compared)
        if not as_json:
            console.print()
            windows.print_comparison(compared, case.worker, console)
    return found


def _run(seen: Watched, left_out: int) -> dict[str, Any]:
    return {
        "windows": sum(seen.states.values()),
        "states": dict(seen.states),
        "dropped": seen.dropped,
        "missing_ticks": seen.missing,
        "labels_left_out": left_out,
    }
