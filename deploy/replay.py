"""``reveal replay``: a recording through the core, or back into its topics."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from deploy.anomalies import json_line
from deploy.into_topics import Published, TopicWriter
from deploy.raw import RawRecording, is_raw
from deploy.record import until_stopped
from deploy.rundir import ViewSettings, find_brokers
from deploy.wording import anomaly_line, count_of, date_time, duration
from schemas.codec import encode
from schemas.flags import with_settings
from schemas.records import Anomaly, EpisodeState, Features, Telemetry
from schemas.settings import Kafka, Resolved
from streams.config import WorkerSettings
from streams.recording import (
    Container,
    ContainerWriter,
    InvalidRecording,
    Recorded,
    Recording,
)

SHOW_S = 0.1


class Source(Protocol):
    """What can be replayed."""

    container: Container
    in_order: bool

    def __iter__(self) -> Iterator[Recorded]:
        """Yield layouts and telemetry, a host's in order."""

    def in_time_order(self) -> Iterator[Recorded]:
        """Yield layouts first, then telemetry of all hosts by time."""

    def dropped(self) -> Mapping[str, int]:
        """Return what was left out on the way, by reason."""


@click.command()
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One object a line; the last is a summary.")
@click.option("--updates", is_flag=True, help="Also print how open episodes go on.")
@click.option(
    "--limit-seconds", type=click.FloatRange(min=0, min_open=True), help="Only the first so many."
)
@click.option(
    "--features",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write every window's features to this Avro file.",
)
@click.option("--force", is_flag=True, help="Replace the file of --features if it is there.")
@click.option("--into-topics", is_flag=True, help="Publish the recording instead.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    help="With --into-topics: times real time [as fast as the broker takes it].",
)
@with_settings(kafka=Kafka, worker=WorkerSettings, view=ViewSettings)
def replay(
    recording: Path,
    as_json: bool,
    updates: bool,
    limit_seconds: float | None,
    features: Path | None,
    force: bool,
    into_topics: bool,
    speed: float | None,
    settings: Resolved,
) -> None:
    """Compute windows, scores and episodes of RECORDING as fast as this machine can.

    RECORDING is what `reveal record` wrote, or a recording of raw kernel files. The outcome is
    that of a live worker with the same settings. The time that is printed is the whole loop's,
    from reading the file on; imports and compiling come before it. Exit code 1: a part of the
    file was lost.

    With --into-topics the telemetry keeps its timestamps. The embedded broker keeps some 5 MB a
    partition: give a --speed at which the worker follows.
    """
    if speed is not None and not into_topics:
        raise click.UsageError("--speed goes with --into-topics")
    origin = click.get_current_context().get_parameter_source("kafka__brokers")
    if origin is ParameterSource.COMMANDLINE and not into_topics:
        raise click.UsageError("--brokers goes with --into-topics")
    if into_topics and (as_json or updates or features is not None):
        raise click.UsageError("--into-topics computes nothing: no --json, --updates, --features")
    if force and features is None:
        raise click.UsageError("--force goes with --features")
    source = open_recording(recording)
    if into_topics:
        brokers = find_brokers(settings.get("kafka", Kafka), settings.get("view", ViewSettings))
        whole = _publish(source, limit_seconds, brokers, speed)
    else:
        worker = settings.get("worker", WorkerSettings)
        with ExitStack() as stack:
            writer = None
            if features is not None:
                writer = stack.enter_context(ContainerWriter(features, [Features], force=force))
            _compute(source, limit_seconds, worker, writer, as_json=as_json, updates=updates)
        whole = True
    container = source.container
    if container.lost:
        click.echo(
            f"{recording}: {container.lost:,} of {container.size:,} bytes could not be read: "
            f"{container.trouble}",
            err=True,
        )
    if container.lost or not whole:
        sys.exit(1)


def open_recording(path: Path) -> Source:
    """Return a recording of either kind; which it is, its schema says.

    Raises
    ------
    InvalidRecording
        It is neither. The text says what it is.
    """
    container = Container(path)
    return RawRecording(container) if is_raw(container.schema) else Recording(container)


def limited(
    recorded: Iterable[Recorded], seconds: float | None, *, in_order: bool
) -> Iterator[Recorded]:
    """Yield the records of the first `seconds` of the recording."""
    end = None
    for item in recorded:
        if seconds is not None and isinstance(item.record, Telemetry):
            first = int(item.record.timestamps[0])
            if end is None:
                end = first + seconds * 1e6
            if first >= end:
                if in_order:
                    return
                continue
        yield item


def _compute(
    source: Source,
    limit_seconds: float | None,
    settings: WorkerSettings,
    features: ContainerWriter | None,
    *,
    as_json: bool,
    updates: bool,
) -> None:
    # scikit-learn and numba take seconds to import; --help and a wrong flag do not wait.
    from streams.replay import Replay, warm_up

    warm_up_seconds = warm_up(settings)
    run = Replay(settings, keep_features=features is not None)
    summary = run.summary
    with _progress(source.container) as (show, say):

        def watched() -> Iterator[Recorded]:
            for item in limited(source, limit_seconds, in_order=source.in_order):
                show(f"{summary.windows:,} windows")
                yield item

        for outcome in run.run(watched()):
            for anomaly in outcome.anomalies:
                if as_json:
                    say(json_line(anomaly))
                elif updates or anomaly.state is not EpisodeState.ONGOING:
                    say(_line(anomaly))
            if features is not None:
                for record in outcome.features:
                    features.add(Features, encode(record))
    if not summary.records:
        raise InvalidRecording(f"{source.container.path} holds no telemetry")
    dropped = {**source.dropped(), **summary.dropped}
    if as_json:
        click.echo(
            json.dumps(
                {
                    "summary": True,
                    "hosts": summary.hosts,
                    "records": summary.records,
                    "windows": summary.windows,
                    "scored": summary.scored,
                    "states": dict(summary.states),
                    "flagged": summary.flagged,
                    "episodes": summary.episodes,
                    "still_open": summary.still_open,
                    "dropped": dropped,
                    "missing_ticks": summary.missing,
                    "empty_windows": summary.empty,
                    "rejected": summary.rejected,
                    "lost_bytes": source.container.lost,
                    "recording_seconds": round(summary.recording_seconds, 6),
                    "seconds": round(summary.seconds, 3),
                    "fitting_seconds": round(summary.fitting_seconds, 3),
                    "times_real_time": round(summary.times_real_time, 1),
                    "warm_up_seconds": round(warm_up_seconds, 3),
                }
            )
        )
        return
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(summary.states.items()))
    still = f", {summary.still_open} still open," if summary.still_open else ""
    click.echo(
        f"{count_of(summary.episodes, 'episode')}{still} in {summary.windows:,} windows "
        f"({states}) of {count_of(summary.hosts, 'host')}"
    )
    click.echo(
        f"{duration(summary.recording_seconds)} of telemetry in {summary.seconds:.2f} s: "
        f"{summary.times_real_time:,.0f} times real time "
        f"({summary.fitting_seconds:.2f} s of it to learn; before it {warm_up_seconds:.1f} s to "
        "compile)"
    )
    lost = {**dropped, "missing": summary.missing, "in empty windows": summary.empty}
    if any(lost.values()):
        click.echo("ticks: " + ", ".join(f"{n:,} {reason}" for reason, n in lost.items() if n))


def _line(anomaly: Anomaly) -> str:
    when = anomaly.onset if anomaly.state is EpisodeState.OPEN else anomaly.latest
    return f"{date_time(when)}  {anomaly_line(anomaly)}"


def _publish(
    source: Source, limit_seconds: float | None, brokers: str, speed: float | None
) -> bool:
    """Publish a recording; return whether all of it arrived."""
    writer = TopicWriter(brokers)
    done = writer.published
    with until_stopped() as stop, _progress(source.container) as (show, _):
        writer.publish(
            limited(source.in_time_order(), limit_seconds, in_order=True),
            speed=speed,
            stop=stop,
            on_progress=lambda: show(_published(done)),
        )
        writer.close()
    if not done.records and not stop.is_set():
        raise InvalidRecording(f"{source.container.path} holds no telemetry")
    click.echo(f"published {_published(done)}")
    if done.failed:
        click.echo(f"{done.failed:,} messages were not delivered: {done.trouble}", err=True)
    return not done.failed


def _published(done: Published) -> str:
    layouts = count_of(done.layouts, "layout")
    text = f"{done.records:,} records and {layouts}, {done.delivered:,} delivered"
    if done.records:
        text += f", {duration((done.newest_us - done.first_us) / 1e6)} of telemetry"
    if done.lag_s > 1:
        text += f", {duration(done.lag_s)} behind"
    return text


Show = Callable[[str], None]


@contextmanager
def _progress(container: Container) -> Iterator[tuple[Show, Show]]:
    """Show how far a file is read; yield what updates that, and what prints a line."""
    console = Console(stderr=not sys.stdout.isatty())
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=container.size)
        shown = time.monotonic()

        def show(text: str) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown >= SHOW_S:
                shown = now
                progress.update(task, completed=container.at, description=text)

        def say(line: str) -> None:
            if console.stderr:
                click.echo(line)
            else:
                console.print(line, markup=False, highlight=False, soft_wrap=True)

        yield show, say
