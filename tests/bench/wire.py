"""Bytes on the wire: what one host's telemetry costs, as it is sent and as it might be.

The mixes are a recording of ours, and the fleet that the stream bench simulates: whole, and 700
channels that move. From the recording these are the channels that ever change, as the paper
counts them, and as the worst case those that change with at least every other tick; each is
there several times, from another time, so that no two rows are alike. The simulated rates get
what every measured one has: a time between two readings that is not quite the interval.

Every option is computed with zstd itself, a record at a time as librdkafka sends it. What is
shipped is also really sent, to the embedded broker, and librdkafka's own count of bytes is taken:
requests and all, less the headers of TCP and IP.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import psutil
import zstandard
from confluent_kafka import Producer
from numpy.typing import NDArray

from deploy.local import Broker
from deploy.raw import RawRecording
from producers.precision import SIGNIFICANT_BITS, rate_rows, rounded
from producers.publisher import Publisher, producer_config
from schemas.codec import encode
from schemas.records import Floats, Layout, Telemetry
from schemas.topics import TELEMETRY
from streams.recording import Container
from tests.bench import simulate
from tests.bench.replay import CAMPAIGN, CUT

CHANNELS = 700
BIG_HOST = 2500
SECONDS = 60
TICKS = 10
LEVEL = 3
"""What librdkafka takes where nothing is said."""
JITTER = 1e-3
"""Of the time between two readings: 0.1 ms of 100."""
HEARTBEAT_S = 10
KEPT_S = 600
PATIENCE_S = 20.0

Moving = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Mix:
    """`values` has shape ``(channels, ticks)``, as sampled; `rates` ``(channels, 1)``."""

    name: str
    values: Floats
    rates: Moving

    def blocks(self, ticks: int = TICKS) -> Iterator[Floats]:
        """Yield the values of one record after the other."""
        for at in range(0, self.values.shape[1] - ticks + 1, ticks):
            yield np.ascontiguousarray(self.values[:, at : at + ticks])

    def records(self, change: Callable[[Floats], Floats], ticks: int = TICKS) -> Iterator[bytes]:
        """Yield the messages."""
        for seq, block in enumerate(self.blocks(ticks)):
            yield encode(_record(seq, change(block)))


def _record(seq: int, values: Floats) -> Telemetry:
    ticks, interval = values.shape[1], simulate.INTERVAL_US
    stamps = 1_700_000_000_000_000 + interval * np.arange(seq * ticks, (seq + 1) * ticks)
    return Telemetry("node-00001", 1 << 62, seq, interval, stamps, values)


@dataclass(frozen=True, slots=True)
class Cost:
    """One way to send one mix: bytes a second, and the CPU that a second of telemetry takes."""

    bytes: float
    cpu_ms: float


def main(as_json: bool) -> None:
    """Measure, about a minute, and print."""
    mixes = [*recorded(), *simulated()]
    offline = {mix.name: options(mix) for mix in mixes}
    sent = {
        mix.name: {"as sampled": send(mix, _same), "shipped": send_shipped(mix)} for mix in mixes
    }
    with get_context("spawn").Pool(1) as fresh:  # its memory is not yet used by anything else
        waiting = fresh.apply(backlog, (mixes[2],))
    if as_json:
        computed = {
            name: {option: [c.bytes, c.cpu_ms] for option, c in costs.items()}
            for name, costs in offline.items()
        }
        result = {"computed": computed, "sent": sent, "backlog": waiting}
        click.echo(json.dumps({"bench": "wire", **result}))
        return
    for mix in mixes:
        real = sent[mix.name]
        click.echo(
            f"  {mix.name}: {real['as sampled']:,.0f} B/s sent as sampled,"
            f" {real['shipped']:,.0f} B/s as shipped"
        )
        for option, cost in offline[mix.name].items():
            click.echo(f"    {option:<46}{cost.bytes:>8,.0f} B/s{cost.cpu_ms:>8.2f} ms of CPU a s")
    click.echo(
        f"  broker away for {KEPT_S} s, {BIG_HOST} channels that move all the time:"
        f" {waiting['kept']:.0f} records kept, {waiting['dropped']:.0f} dropped;"
        f" {waiting['raw_mb']:.0f} MB in {waiting['memory_mb']:.0f} MB more memory,"
        f" {waiting['cpu_ms']:.2f} ms of CPU a record"
    )


def recorded() -> list[Mix]:
    """Return the mixes from the recording of ours; a minute each."""
    path = CAMPAIGN if CAMPAIGN.exists() else CUT
    layout, values = as_sampled(path)
    rates = rate_rows(layout)
    changes = (values[:, 1:] != values[:, :-1]) & ~np.isnan(values[:, 1:])
    share = changes.mean(axis=1)
    ticks = SECONDS * TICKS
    whole = Mix(f"recording, its {len(values)} channels", values[:, :ticks], rates)
    return [
        whole,
        _tiled(f"recording, {CHANNELS} channels that move", values, rates, share > 0),
        _tiled(f"recording, {CHANNELS} that move all the time", values, rates, share >= 0.5),
    ]


def as_sampled(path: Path) -> tuple[Layout, Floats]:
    """Return what the collectors make of the first host of a raw recording, not rounded."""
    layout, blocks = None, []
    with patch("producers.packing.rounded", lambda values, _: values.copy()):
        for recorded in RawRecording(Container(path)):
            record = recorded.record
            if isinstance(record, Layout) and layout is None:
                layout = record
            elif (
                isinstance(record, Telemetry)
                and layout is not None
                and record.layout == layout.fingerprint
                and record.seq  # the first has no rates yet
            ):
                blocks.append(record.values)
    assert layout is not None
    return layout, np.concatenate(blocks, axis=1)


def _tiled(name: str, values: Floats, rates: Moving, chosen: Moving) -> Mix:
    """Return `CHANNELS` rows of those chosen, each repeated from another minute."""
    rows = np.flatnonzero(chosen)
    ticks = SECONDS * TICKS
    room = values.shape[1] - ticks + 1
    copies = -(-CHANNELS // len(rows))
    starts = [copy * room // copies for copy in range(copies)]
    tiles = np.concatenate([values[rows, start : start + ticks] for start in starts])
    return Mix(name, tiles[:CHANNELS], np.tile(rates[rows], (copies, 1))[:CHANNELS])


def simulated() -> list[Mix]:
    """Return the mixes of the simulated fleet."""
    rng = np.random.default_rng(1)
    count = round(CHANNELS / simulate.MOVING * 1.2)
    loops = -(-SECONDS // simulate.LOOP_SECONDS)
    values = np.concatenate([simulate.pattern(rng, count) for _ in range(loops)], axis=1)
    rates = np.array([[kind < 2] for kind in simulate.kinds(count)])
    late = 1 + rng.normal(0, JITTER, values.shape[1])
    values = np.where(rates, values / late, values).astype(np.float32)[:, : SECONDS * TICKS]
    moving = np.flatnonzero((values[:, 1:] != values[:, :-1]).any(axis=1))[:CHANNELS]
    return [
        Mix(f"simulated, {CHANNELS} channels", values[:CHANNELS], rates[:CHANNELS]),
        Mix(f"simulated, {CHANNELS} channels that move", values[moving], rates[moving]),
    ]


def _same(values: Floats) -> Floats:
    return values


def options(mix: Mix) -> dict[str, Cost]:
    """Return what each way of sending costs."""

    def bits(count: int) -> Callable[[Floats], Floats]:
        return lambda values: to_bits(values, mix.rates, count)

    def ours(values: Floats) -> Floats:
        return rounded(values, mix.rates)

    shipped = f"shipped: {SIGNIFICANT_BITS} bits, {TICKS} ticks, level {LEVEL}"
    found = {"as sampled": cost(mix.records(_same))}
    for count in (14, 13, 12, 10):
        found[f"{count} significant bits"] = cost(mix.records(bits(count)))
    found[shipped] = cost(mix.records(ours))
    for level in (1, 6, 9, 12):
        found[f"  the same, level {level}"] = cost(mix.records(ours), level=level)
    for ticks in (5, 20, 30):
        found[f"  the same, {ticks} ticks a record"] = cost(mix.records(ours, ticks), ticks=ticks)
    blocks = [ours(block) for block in mix.blocks()]
    found[f"  the same, without what is constant for {HEARTBEAT_S} s"] = cost(
        with_heads(only_moving(blocks))
    )
    found["  the same, tick by tick"] = cost(with_heads(b.T.tobytes() for b in blocks))
    found["  the same, byte by byte (no array of floats)"] = cost(
        with_heads(map(byte_planes, blocks))
    )
    return found


def cost(messages: Iterator[bytes], *, ticks: int = TICKS, level: int = LEVEL) -> Cost:
    """Compress the messages, each alone, and return what a second of them comes to."""
    compressor = zstandard.ZstdCompressor(level=level)
    before = time.process_time()
    sizes = [len(compressor.compress(message)) for message in messages]
    seconds = len(sizes) * ticks / TICKS
    return Cost(sum(sizes) / seconds, 1e3 * (time.process_time() - before) / seconds)


def to_bits(values: Floats, rates: Moving, bits: int) -> Floats:
    """Round as the agent does, but to another number of significant bits."""
    with np.errstate(invalid="ignore", divide="ignore"):
        exponents = np.floor(np.log2(np.abs(values.astype(np.float64))))
    steps = 2.0 ** (np.where(np.isfinite(exponents), exponents, 0) + 1 - bits)
    steps = np.where(rates, steps, np.minimum(steps, 1))
    return (np.rint(values / steps) * steps).astype(np.float32)


def only_moving(blocks: Sequence[Floats]) -> Iterator[bytes]:
    """Yield a bit per channel and the rows that moved since the last record's end.

    Everything goes out with each `HEARTBEAT_S`-th.
    """
    last = np.full((len(blocks[0]), 1), np.nan, np.float32)
    for number, block in enumerate(blocks):
        moved = (block != last).any(axis=1) | (number % HEARTBEAT_S == 0)
        last = block[:, -1:]
        yield np.packbits(moved).tobytes() + block[moved].tobytes()


def with_heads(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Yield messages whose values are written another way."""
    for seq, body in enumerate(bodies):
        yield encode(_record(seq, np.empty((0, TICKS), np.float32))) + body


def byte_planes(values: Floats) -> bytes:
    """Return all first bytes, then all second ones ..."""
    return values.view(np.uint8).reshape(-1, 4).T.tobytes()


def send_shipped(mix: Mix) -> float:
    """Return bytes a second of what the agent sends."""
    return send(mix, lambda values: rounded(values, mix.rates))


def send(mix: Mix, change: Callable[[Floats], Floats]) -> float:
    """Send a mix to the embedded broker with the agent's settings; return bytes a second."""
    seen: list[dict[str, Any]] = []
    with Broker() as broker:
        config = producer_config(broker.bootstrap, "bench", 60_000)
        producer = Producer(
            {
                **config,
                "statistics.interval.ms": 20,
                "stats_cb": lambda s: seen.append(json.loads(s)),
            }
        )

        def tx_bytes() -> int:
            """Everything sent, once all of it is acknowledged and counted."""
            if producer.flush(PATIENCE_S):
                raise click.ClickException("the embedded broker does not answer")
            seen.clear()
            until = time.monotonic() + PATIENCE_S
            while len(seen) < 2:  # the first may be from before
                producer.poll(0.02)
                if time.monotonic() > until:
                    raise click.ClickException("librdkafka tells no statistics")
            return sum(int(b["txbytes"]) for b in seen[-1]["brokers"].values())

        first, *others = mix.records(change)
        producer.produce(TELEMETRY.name, first, "node-00001")
        before = tx_bytes()  # connecting is not counted
        for message in others:
            producer.produce(TELEMETRY.name, message, "node-00001")
            producer.flush(PATIENCE_S)
        return (tx_bytes() - before) / len(others)


def backlog(mix: Mix) -> dict[str, float]:
    """Return what ten minutes without a broker take in memory, on a big host."""
    copies = -(-BIG_HOST // len(mix.values))
    values = np.concatenate([np.roll(mix.values, 7 * c, axis=1) for c in range(copies)])[:BIG_HOST]
    big = Mix(mix.name, values, np.tile(mix.rates, (copies, 1))[:BIG_HOST])
    blocks = [rounded(block, big.rates) for block in big.blocks()]
    publisher = Publisher("127.0.0.1:1", "bench", keep_ns=10**15, keep_bytes=64_000_000)
    process = psutil.Process()
    memory, before = process.memory_info().rss, time.process_time()
    for seq in range(KEPT_S):
        publisher.publish(TELEMETRY, "node-00001", _record(seq, blocks[seq % len(blocks)]))
        publisher.poll()
    result = {
        "kept": float(len(publisher)),
        "dropped": float(publisher.dropped.total()),
        "raw_mb": publisher.payload_bytes / 1e6,
        "memory_mb": (process.memory_info().rss - memory) / 1e6,
        "cpu_ms": 1e3 * (time.process_time() - before) / KEPT_S,
    }
    publisher.close(0)
    return result
