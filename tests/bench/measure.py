"""What the stream benches measure with: the scores as they arrive, and the CPU of processes."""

from __future__ import annotations

import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import psutil
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from schemas.codec import HEADER_BYTES
from schemas.floats import read_long, read_string
from schemas.records import State
from schemas.topics import SCORES
from tests.bench.simulate import REMEMBERED, SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

ACTIVE = [*State].index(State.ACTIVE)


class Receiver:
    """A plain consumer of reveal.scores that notes when each host's window arrived.

    Attributes
    ----------
    arrived, stamped
        Shape ``(hosts, REMEMBERED)``, seconds since the epoch, NaN where there is none: when a
        Score was read here, and the timestamp that the worker's producer gave it. The column of
        a window that ends with second s is ``s % REMEMBERED``.
    active
        Hosts that were judged at least once.
    """

    def __init__(self, brokers: str, hosts: Sequence[str]) -> None:
        self._index = {name: i for i, name in enumerate(hosts)}
        self.arrived = np.full((len(hosts), REMEMBERED), np.nan)
        self.stamped = np.full((len(hosts), REMEMBERED), np.nan)
        self.active: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(SCORES.name, p, 0) for p in range(SCORES.partitions)])

    def poll(self) -> None:
        """Read what is there, 10 ms at most."""
        for message in self._consumer.consume(1000, 0.01):
            data = message.value()
            if message.error() is not None or data is None:
                continue
            now = time.time()
            name, at = read_string(data, HEADER_BYTES)
            _, at = read_long(data, at)
            end, at = read_long(data, at)
            for _ in range(3):
                _, at = read_long(data, at)
            state, at = read_long(data, at)
            host = self._index[name]
            column = end // SECOND_US % REMEMBERED
            self.arrived[host, column] = now
            self.stamped[host, column] = message.timestamp()[1] / 1000
            if state == ACTIVE:
                self.active.add(host)

    def poll_until(self, until: float) -> None:
        """Read on until a time, in seconds since the epoch."""
        while time.time() < until:
            self.poll()

    def forget(self, seconds: Iterable[int]) -> None:
        """Make room for windows that end with these seconds."""
        columns = [s % REMEMBERED for s in seconds]
        self.arrived[:, columns] = self.stamped[:, columns] = np.nan

    def close(self) -> None:
        """End the reading."""
        self._consumer.close()


class Cpu:
    """CPU time of processes by role; a role can be the children of another process."""

    def __init__(self, **processes: int) -> None:
        self._processes = {role: psutil.Process(pid) for role, pid in processes.items()}

    def seconds(self) -> dict[str, float]:
        """Return user and system time of every role; `fitting` is all children of `worker`."""
        spent = {role: _own(p) for role, p in self._processes.items()}
        children = self._processes["worker"].children(recursive=True)
        return {**spent, "fitting": sum(map(_own, children))}


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles in seconds."""

    p50: float
    p99: float
    highest: float

    @classmethod
    def of(cls, seconds: NDArray[np.float64]) -> Latency:
        """Summarise; NaN counts as not there."""
        known = seconds[~np.isnan(seconds)]
        if not len(known):
            return cls(np.nan, np.nan, np.nan)
        p50, p99 = np.quantile(known, (0.5, 0.99)).tolist()
        return cls(p50, p99, float(known.max()))


@dataclass(frozen=True, slots=True)
class Result:
    """One program under one load.

    `cpu` is the share of one core by role. `to_stamp` and `to_arrival` run from the moment at
    which the simulator handed over the record that completes the window, right after its last
    tick: to the timestamp of the Score's message, that is the worker's sending it, and to its
    arrival at a plain consumer. `says` is what the worker's own metrics say at the end.
    """

    program: str
    sending: str
    hosts: int
    seconds: int
    windows: int
    missing: int
    says: dict[str, float]
    cpu: dict[str, float]
    to_stamp: Latency
    to_arrival: Latency
    worker_mib: float

    @property
    def window_us(self) -> float:
        """CPU time of the program for a window, that is a second of one host, in microseconds."""
        return self.cpu["worker"] * self.seconds / max(1, self.windows) * 1e6


def gauges(port: int, names: Iterable[str]) -> dict[str, float]:
    """Return values of a Prometheus endpoint on this machine, added up over labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {name: sum(s.value for s in samples if s.name == name) for name in names}
