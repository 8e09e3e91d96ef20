"""The worker: a Faust app of a few lines around the pipeline.

telemetry -> windows -> features -> scores -> episodes -> reveal.scores, reveal.anomalies
                                      baselines <-> reveal.baselines
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable
from typing import Any, cast

from faust import Worker
from faust.types import StreamT
from mode.loop import use as use_loop

from schemas.codec import encode
from schemas.errors import InvalidSettings
from schemas.records import Anomaly, DeadLetter, Features, Record, Score
from schemas.settings import Kafka
from schemas.topics import (
    ANOMALIES,
    DEADLETTER,
    FEATURES,
    PARTITIONS,
    SCORES,
    TELEMETRY,
    Topic,
)
from streams.config import WorkerSettings
from streams.core import new_pipeline
from streams.faust_app import App, die
from streams.fitting import fitting_process
from streams.keeping import Keeper
from streams.layouts import LayoutReader, Layouts
from streams.metrics import WorkerMetrics
from streams.pipeline import Message, Outcome, Pipeline

TOPIC_OF: dict[type[Record], Topic] = {Features: FEATURES, Score: SCORES, Anomaly: ANOMALIES}


class Publisher:
    """Sends what came out, and returns when the broker has all of it."""

    def __init__(self, app: App, metrics: WorkerMetrics, window_us: int) -> None:
        self._app = app
        self._metrics = metrics
        self._window_us = window_us

    async def publish(self, outcome: Outcome, clock: float) -> None:
        """Send an outcome; `clock` is now, in seconds since the epoch."""
        sending = [
            await self._send(DEADLETTER, f"{TELEMETRY.name}:{m.partition}".encode(), letter)
            for m, reason in outcome.rejected
            for letter in (DeadLetter(TELEMETRY.name, m.partition, m.offset, reason, m.data),)
        ]
        records: Iterable[Features | Score | Anomaly]
        for records in (outcome.features, outcome.scores, outcome.anomalies):
            for record in records:
                key = record.host.encode()
                sending.append(await self._send(TOPIC_OF[type(record)], key, record))
        if sending:
            await asyncio.gather(*sending)
        self._count(outcome, clock)

    async def _send(self, topic: Topic, key: bytes, record: Record) -> Any:
        return await self._app.producer.send(topic.name, key, encode(record), None, None, None)

    def _count(self, outcome: Outcome, clock: float) -> None:
        metrics = self._metrics
        metrics.dead_letters.inc(len(outcome.rejected))
        for score in outcome.scores:
            metrics.windows.labels(score.state.value).inc()
            last_tick_us = score.end - self._window_us / score.expected
            metrics.latency.observe(clock - last_tick_us / 1e6)
        for anomaly in outcome.anomalies:
            metrics.anomalies.labels(anomaly.state.value).inc()


def create_app(kafka: Kafka, settings: WorkerSettings) -> App:
    """Return the Faust app: one agent on the telemetry topic, and a timer for what is silent."""
    if not kafka.brokers:
        raise InvalidSettings(
            "no brokers: give --brokers host:port, or try everything out with `reveal up`"
        )
    session = settings.session_timeout_s
    app = App(
        settings.group,
        broker=[f"kafka://{broker.strip()}" for broker in kafka.brokers.split(",")],
        topic_partitions=PARTITIONS,
        topic_allow_declare=False,
        topic_disable_leader=True,
        store="memory://",
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=4 * 1024 * 1024,
        broker_session_timeout=session,
        broker_heartbeat_interval=session / 4,
        broker_commit_interval=1.0,
        broker_commit_every=100_000,
        stream_wait_empty=False,
        producer_linger=0.0,
        producer_compression_type="zstd",
        producer_max_request_size=4 * 1024 * 1024,
        worker_redirect_stdouts=False,
    )
    metrics = WorkerMetrics()
    app.on_group_error = metrics.unhealthy.inc
    layouts = Layouts()
    to_brokers = {"bootstrap.servers": kafka.brokers}
    reader = LayoutReader(to_brokers, layouts)
    executor = fitting_process()
    keep = settings.keep_baselines
    pipeline = new_pipeline(settings, layouts, executor, keep=keep)
    keeper = Keeper(to_brokers, pipeline, settings.load_seconds) if keep else None
    publisher = Publisher(app, metrics, settings.window_ms * 1000)
    # Offsets are acknowledged in order: the timer must not overtake a batch that is on its way.
    in_order = asyncio.Lock()
    telemetry = app.topic(
        TELEMETRY.name,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )

    @app.task  # type: ignore[untyped-decorator]
    async def start() -> None:
        reader.start()
        metrics.serve(settings.metrics_host, settings.metrics_port)

    @app.on_partitions_assigned.connect
    async def assigned(*_: Any, **__: Any) -> None:
        if keeper is not None:
            keeper.reassigned()

    @app.on_partitions_revoked.connect
    async def revoked(*_: Any, **__: Any) -> None:
        if keeper is not None:
            await keeper.flush()

    @app.on_before_shutdown.connect
    async def ending(*_: Any, **__: Any) -> None:
        if keeper is not None:
            await keeper.flush()

    async def load(needed: set[int]) -> None:
        if keeper is not None:
            mine = [tp.partition for tp in app.consumer.assignment() if tp.topic == TELEMETRY.name]
            await keeper.load(needed, mine)

    @app.agent(telemetry)
    async def detect(stream: StreamT[bytes]) -> None:
        take: Any = cast("Any", stream).noack_take  # Faust types it away
        # A baseline without its layout could judge, but name no channel.
        await asyncio.to_thread(reader.wait, settings.load_seconds)
        async for events in take(settings.take, within=settings.within_ms / 1000):
            try:
                async with in_order:
                    await load({e.message.partition for e in events})
                    began = time.monotonic()
                    messages = [
                        # A message without a value is no telemetry either, but it is a message.
                        Message(e.message.partition, e.message.offset, e.value or b"", e)
                        for e in events
                    ]
                    outcome = pipeline.process(messages, began)
                    metrics.batch.observe(time.monotonic() - began)
                    metrics.records.inc(len(events))
                    if keeper is not None:
                        keeper.publish()
                    await publisher.publish(outcome, time.time())
                    for event in outcome.done:
                        await stream.ack(event)
            except Exception:
                die("a batch failed; it will be read again")

    @app.timer(1.0)  # type: ignore[untyped-decorator]
    async def look_around() -> None:
        try:
            async with in_order:
                now = time.monotonic()
                ends = pipeline.forget_silent(now)
                gone = Outcome([], [], ends, [], pipeline.release_silent(now))
                await publisher.publish(gone, time.time())
                for event in gone.done:
                    event.ack()
        except Exception:
            die("what silent hosts leave behind could not be published")
        metrics.refresh(pipeline, layouts)
        if keeper is not None:
            keeper.publish()
            metrics.refresh_baselines(keeper.counts())
        assigned = app.consumer.assignment()
        metrics.partitions.set(len(assigned))
        metrics.lag.set(sum(lag(app, tp, pipeline) for tp in assigned))

    return app


def lag(app: App, tp: Any, pipeline: Pipeline) -> int:
    """Return how many records of a partition have not been read."""
    newest = app.consumer.highwater(tp)
    read = pipeline.position(tp.partition)
    return max(0, newest - read) if newest and read else 0


def run(kafka: Kafka, settings: WorkerSettings) -> None:
    """Run a worker until it is told to stop. Does not return."""
    use_loop("uvloop")  # a quarter less CPU than asyncio's own
    worker = Worker(create_app(kafka, settings), loglevel="warn", quiet=True)
    worker.spinner = None  # it writes to the terminal that is not its own
    # What the imports made stays: not to be looked through in the middle of the stream.
    gc.collect()
    gc.freeze()
    worker.execute_from_commandline()
