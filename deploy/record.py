"""``reveal record``: telemetry and layouts from their topics to one file."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from deploy.errors import NoBroker
from deploy.reader import partition_counts
from deploy.rundir import ViewSettings, find_brokers
from deploy.wording import count_of, printable
from schemas.flags import with_settings
from schemas.settings import Kafka, Resolved
from schemas.topics import LAYOUTS, TELEMETRY
from streams.record import Recorder
from streams.recording import ContainerWriter

TAKE = 500
POLL_S = 0.1
CONNECT_S = 10.0
FLUSH_S = 2.0
MEGABYTE = 1e6


class RecordedTopics:
    """Reads both topics: every layout first, then telemetry from its end or its start.

    It is in no consumer group, so nobody's offsets move.

    Attributes
    ----------
    trouble
        What keeps messages from coming, in Kafka's words; empty while they come.
    gone
        Telemetry messages of each partition that the broker deleted before they were read.

    Raises
    ------
    NoBroker
        None answers.
    NoTopic
        One of the topics does not exist.
    """

    def __init__(self, brokers: str, *, from_start: bool) -> None:
        self.trouble = ""
        self.gone: Counter[int] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "reveal-record",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                # What is next may have been deleted: go on with the oldest, not at the end.
                "auto.offset.reset": "earliest",
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        try:
            counts = partition_counts(self._consumer, brokers, (LAYOUTS, TELEMETRY))
            self._telemetry = [
                TopicPartition(TELEMETRY.name, p, self._begin(p, from_start=from_start))
                for p in range(counts[TELEMETRY.name])
            ]
        except KafkaException as e:
            self._consumer.close()
            raise NoBroker(f"no Kafka broker answers at {brokers}: {e.args[0].str()}") from None
        except BaseException:
            self._consumer.close()
            raise
        self._next = {p.partition: p.offset for p in self._telemetry}
        self._unread = set(range(counts[LAYOUTS.name]))
        self._consumer.assign(
            [TopicPartition(LAYOUTS.name, p, OFFSET_BEGINNING) for p in self._unread]
        )

    def take(self, add: Callable[[bytes], None]) -> None:
        """Pass on the messages that have come, waiting `POLL_S` at most."""
        for message in self._consumer.consume(TAKE, POLL_S):
            error = message.error()
            if error is None:
                self.trouble = ""
                if message.topic() == TELEMETRY.name:
                    self._reach(message)
                if (value := message.value()) is not None:  # else a layout was withdrawn
                    add(value)
            elif error.code() != KafkaError._PARTITION_EOF:
                self._on_error(error)
            elif message.topic() == TELEMETRY.name:
                self._reach(message)
            elif message.partition() in self._unread:
                self._unread.discard(message.partition())
                if not self._unread:
                    self._consumer.incremental_assign(self._telemetry)

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _begin(self, partition: int, *, from_start: bool) -> int:
        # Looked up now, so that nothing is missed that is sent while the layouts are read.
        ends = TopicPartition(TELEMETRY.name, partition)
        low, high = self._consumer.get_watermark_offsets(ends, CONNECT_S)
        return int(low if from_start else high)

    def _reach(self, message: Any) -> None:
        """Note where a partition is, and how much it jumped over."""
        partition, offset = message.partition(), message.offset()
        # Nothing else takes offsets of this topic: it is not compacted, and nobody sends to it
        # in transactions.
        if offset > self._next[partition]:
            self.gone[partition] += offset - self._next[partition]
        self._next[partition] = offset if message.error() else offset + 1

    def _on_error(self, error: KafkaError) -> None:
        self.trouble = error.str()


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into an event, so that what is under way ends whole."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before: dict[Any, Any] = {s: signal.signal(s, lambda *_: stop.set()) for s in signals}
    try:
        yield stop
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def record_until(
    topics: RecordedTopics,
    recorder: Recorder,
    writer: ContainerWriter,
    *,
    stop: threading.Event,
    seconds: float | None,
    on_progress: Callable[[], None],
) -> None:
    """Record until `stop` is set or `seconds` have passed; the file is whole every few seconds."""
    began = flushed = time.monotonic()
    while not stop.is_set():
        topics.take(recorder.add)
        now = time.monotonic()
        if seconds is not None and now - began >= seconds:
            break
        if now - flushed >= FLUSH_S:
            writer.flush()
            flushed = now
        on_progress()
    recorder.finish()


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after so long [until Ctrl-C].")
@click.option("--from-start", is_flag=True, help="Begin with what the topic still holds.")
@click.option("--force", is_flag=True, help="Replace OUT if it is there.")
@with_settings(kafka=Kafka, view=ViewSettings)
def record(
    out: Path, seconds: float | None, from_start: bool, force: bool, settings: Resolved
) -> None:
    """Write telemetry and layouts from the topics to the Avro file OUT until Ctrl-C.

    The file is a complete experiment: `reveal replay OUT` computes everything else from it.
    Without --brokers: of the `reveal up` that runs on this machine.
    """
    brokers = find_brokers(settings.get("kafka", Kafka), settings.get("view", ViewSettings))
    console = Console(stderr=True)
    with until_stopped() as stop:
        topics = RecordedTopics(brokers, from_start=from_start)
        try:
            with ContainerWriter(out, force=force) as writer:
                recorder = Recorder(writer)
                with _progress(console, recorder, writer, topics) as on_progress:
                    record_until(
                        topics,
                        recorder,
                        writer,
                        stop=stop,
                        seconds=seconds,
                        on_progress=on_progress,
                    )
        finally:
            topics.close()
    _report(out, recorder, topics)
    if not recorder.records:
        sys.exit(1)


@contextmanager
def _progress(
    console: Console, recorder: Recorder, writer: ContainerWriter, topics: RecordedTopics
) -> Iterator[Callable[[], None]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    terminal = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not terminal) as progress:
        task = progress.add_task("recording")

        def show() -> None:
            text = f"{_counts(recorder)}, {writer.file_bytes / MEGABYTE:.1f} MB"
            if topics.trouble:
                text += f"  [red]{escape(topics.trouble)}[/]"
            progress.update(task, description=text)

        if not terminal:
            click.echo("recording; Ctrl-C ends it", err=True)
        show()
        yield show


def _counts(recorder: Recorder) -> str:
    return f"{recorder.records.total():,} records, {count_of(len(recorder.records), 'host')}"


def _report(out: Path, recorder: Recorder, topics: RecordedTopics) -> None:
    size = out.stat().st_size / MEGABYTE
    lines = [f"{out}: {_counts(recorder)}, {count_of(recorder.layouts, 'layout')}, {size:.1f} MB"]
    if not recorder.records:
        lines.append("nothing came: is an agent running, and does it use these brokers?")
    if topics.trouble:
        lines.append(f"at the end nothing came: {topics.trouble}")
    if topics.gone:
        where = ", ".join(f"{n:,} of partition {p}" for p, n in sorted(topics.gone.items()))
        lines.append(f"the broker deleted messages before they were read: {where}")
    if recorder.rejected:
        lines.append(f"{recorder.rejected:,} messages were left out: {recorder.reason}")
    if recorder.missing:
        hosts = sorted({printable(host) for host, _ in recorder.missing})
        lines.append(f"no layout was found for {', '.join(hosts)}: replay cannot score them")
    click.echo("\n".join(lines), err=True)
