"""Hosts that do not exist: their telemetry as their agents would send it, at little cost.

A pattern is a loop of seconds of 700 channels; every host goes round one of a few dozen
patterns, each from a place of its own, so that no two hosts say the same at the same time.
A record is a prefix made once per host, the ten timestamps made once per second, and values
that were encoded before the start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Producer

from schemas.codec import encode, header
from schemas.floats import floats_to_bytes, long_to_bytes, longs_to_bytes, string_to_bytes
from schemas.records import (
    Channel,
    Floats,
    Kind,
    Layout,
    Subsystem,
    Telemetry,
    layout_fingerprint,
)
from schemas.topics import LAYOUTS, TELEMETRY

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

SECOND_US = 1_000_000
INTERVAL_US = 100_000
TICKS = 10
PATTERNS = 20
LOOP_SECONDS = 25
"""Coprime to nothing in particular, and shorter than the baseline: nothing new comes after it."""
SLOTS = 100
"""Instants of a second at which hosts send, when they are spread over it."""
REMEMBERED = 512
"""Seconds for which it is known when each host sent."""
MOVING = 0.56
"""Share of the channels that move; the rest is constant, most of it 0."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Which hosts there are."""

    brokers: str
    hosts: int
    channels: int = 700
    seed: int = 1

    def names(self) -> list[str]:
        """Return the hosts' names, in the order of their numbers."""
        return [f"node-{n:05}" for n in range(self.hosts)]


def channels(count: int) -> tuple[Channel, ...]:
    """Return channels of every scored subsystem, half of them rates."""
    subsystems = (Subsystem.CPU, Subsystem.MEMORY, Subsystem.NETWORK, Subsystem.STORAGE)
    return tuple(
        Channel(
            f"{subsystems[i % 4]}.simulated{i // 64}",
            f"dev{i % 64}",
            subsystems[i % 4],
            "1/s" if i % 2 else "bytes",
            Kind.RATE if i % 2 else Kind.GAUGE,
        )
        for i in range(count)
    )


def kinds(count: int) -> list[int]:
    """Return how each channel moves: 0 shares of time, 1 counts, 2 levels, 3 not at all."""
    shares = [0.25, 0.2, MOVING - 0.45, 1 - MOVING]
    drawn: list[int] = np.random.default_rng(0).choice(4, count, p=shares).tolist()
    return drawn


def pattern(rng: np.random.Generator, count: int) -> Floats:
    """Return one loop, shape ``(channels, ticks)``.

    Three kinds of channels move: shares of time in steps of one jiffy, counts of events at rates
    over four decades, and levels that wander a little around something large.
    """
    ticks = LOOP_SECONDS * TICKS
    out = np.zeros((count, ticks), np.float32)
    phase = 2 * np.pi * np.arange(ticks) / ticks
    for channel, kind in enumerate(kinds(count)):
        swing = np.sin(phase * rng.integers(1, 5) + rng.uniform(0, 2 * np.pi))
        if kind == 0:
            share = np.clip(rng.uniform(0, 0.9) + 0.05 * swing, 0, 1)
            out[channel] = rng.binomial(10, share) / 10
        elif kind == 1:
            per_second = 10 ** rng.uniform(1, 5) * (1 + 0.1 * swing)
            out[channel] = rng.poisson(per_second / TICKS) * TICKS
        elif kind == 2:
            level = 10 ** rng.uniform(6, 10)
            out[channel] = level * (1 + 1e-3 * swing + rng.normal(0, 1e-4, ticks))
        else:
            out[channel] = rng.choice((0.0, 0.0, 0.0, 1.0, 4096.0))
    return out


def simulate(
    fleet: Fleet, spread: Synchronized[float], stop: Event, sent: Any, failed: Synchronized[int]
) -> None:
    """Send until told to stop.

    Parameters
    ----------
    spread
        Part of a second over which the hosts' sending is spread; 0 means all in one instant, as
        agents with exact clocks do. Read anew every second.
    sent
        Shared array of doubles, ``(hosts, REMEMBERED)`` flat: when the record that completes the
        window that ends with second s was handed over, at ``s % REMEMBERED``; seconds since the
        epoch.
    failed
        Counts messages that the broker did not take.
    """

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.value += 1

    producer = Producer(
        {
            "bootstrap.servers": fleet.brokers,
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
            "acks": 1,
            "linger.ms": 0,
            # Every agent has a producer of its own, so no two hosts share a batch.
            "batch.num.messages": 1,
            "queue.buffering.max.kbytes": 512 * 1024,
            "message.max.bytes": 4 * 1024 * 1024,
            "log_level": 0,
        }
    )
    rng = np.random.default_rng(fleet.seed)
    described = channels(fleet.channels)
    layout = layout_fingerprint(described, INTERVAL_US)
    names = fleet.names()
    for name in names:
        record = Layout(name, layout, "simulated", "", INTERVAL_US, described)
        producer.produce(LAYOUTS.name, encode(record), f"{name}:{layout}", on_delivery=delivered)
    producer.flush()
    loops = [
        [
            floats_to_bytes(np.ascontiguousarray(loop[:, TICKS * s : TICKS * (s + 1)]))
            for s in range(LOOP_SECONDS)
        ]
        for loop in (pattern(rng, fleet.channels) for _ in range(PATTERNS))
    ]
    prefixes = [header(Telemetry) + string_to_bytes(n) + long_to_bytes(layout) for n in names]
    keys = [n.encode() for n in names]
    places = rng.integers(0, LOOP_SECONDS, fleet.hosts).tolist()
    when = np.frombuffer(sent.get_obj(), np.float64).reshape(fleet.hosts, REMEMBERED)
    slot_of = rng.integers(0, SLOTS, fleet.hosts)
    turns = [np.flatnonzero(slot_of == slot).tolist() for slot in range(SLOTS)]
    everyone = list(range(fleet.hosts))

    second = int(time.time()) + 1
    while not stop.is_set():
        stamps = second * SECOND_US + INTERVAL_US * np.arange(TICKS, dtype=np.int64)
        middle = long_to_bytes(second) + long_to_bytes(INTERVAL_US) + longs_to_bytes(stamps)
        column = when[:, (second + 1) % REMEMBERED]
        # The last tick of the second is sampled a tick before its end, and the record goes out.
        due = second + (TICKS - 1) / TICKS
        width = spread.value
        for slot, turn in enumerate(turns if width else [everyone]):
            wait = due + width * slot / SLOTS - time.time()
            if wait > 0:
                time.sleep(wait)
            for host in turn:
                values = loops[host % PATTERNS][(places[host] + second) % LOOP_SECONDS]
                column[host] = time.time()
                record = prefixes[host] + middle + values
                try:
                    producer.produce(TELEMETRY.name, record, keys[host], on_delivery=delivered)
                except BufferError:  # the broker is seconds behind
                    failed.value += 1
            producer.poll(0)
        second += 1
    producer.flush()
