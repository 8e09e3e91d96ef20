"""``reveal up``: everything on one machine, with a live picture."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from deploy.display import LiveDisplay, PlainDisplay, summary
from deploy.errors import PartFailed
from deploy.rundir import ViewSettings, claimed
from deploy.stack import Session
from schemas.flags import with_settings
from schemas.settings import CONFIG_VARIABLE, Kafka, Resolved, resolve
from streams.config import WorkerSettings

BASELINE_S = 120
"""Shorter than the worker's own default: who tries things out does not wait ten minutes."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option(
    "--baseline-seconds",
    type=click.IntRange(min=30),
    help=f"How long a host is watched before it is judged. [default: {BASELINE_S}, or the"
    " worker's setting where there is one]",
)
@click.option("--plain", is_flag=True, help="Lines in place of a screen, as without a terminal.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after so many seconds.")
@with_settings(kafka=Kafka, view=ViewSettings)
def up(
    settings: Resolved, baseline_seconds: int | None, plain: bool, seconds: float | None
) -> None:
    """Start broker, agent and worker on this machine and show a live picture until Ctrl-C.

    Without --brokers it runs the embedded broker: in memory, for trying things out. The agent
    and the worker take their own settings from the environment and the settings file.
    """
    context = click.get_current_context()
    file: Path | None = context.params.get("config")
    environ = {} if file is None else {CONFIG_VARIABLE: str(file)}
    baseline_s = baseline_for_worker(baseline_seconds, file)
    view = settings.get("view", ViewSettings)
    failure = ""
    with claimed(view.directory) as directory, counted_stops() as stops:
        display = _display(plain=plain)
        session = Session(
            settings.get("kafka", Kafka).brokers,
            directory,
            display,
            lambda: len(stops),
            start_timeout_s=view.start_timeout_s,
            baseline_s=baseline_s,
            environ=environ,
        )
        if isinstance(display, PlainDisplay):
            click.echo(f"logs in {directory}")
        try:
            with display:
                session.run(seconds)
        except PartFailed as e:
            failure = str(e)
    for line in summary(session.stack, session.picture, str(directory)):
        click.echo(line)
    if failure:
        click.echo(f"Error: {failure}", err=True)
        context.exit(1)


def baseline_for_worker(flag: int | None, file: Path | None) -> int | None:
    """Return what to tell the worker; None where its own settings speak."""
    if flag is not None:
        return flag
    worker = resolve({"worker": WorkerSettings}, flags={}, environ=os.environ, file=file)
    origin = next(s.origin for s in worker.settings if s.key == "baseline_seconds")
    return BASELINE_S if origin == "default" else None


def _display(*, plain: bool) -> LiveDisplay | PlainDisplay:
    console = Console()
    if plain or not sys.stdout.isatty() or console.is_dumb_terminal:
        return PlainDisplay()
    return LiveDisplay(console)


@contextmanager
def counted_stops() -> Iterator[list[int]]:
    """Collect the signals that ask to stop, in place of acting on them."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {stop: signal.signal(stop, note) for stop in STOPS}
    try:
        yield received
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)
