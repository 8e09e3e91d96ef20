"""The one-machine stack: start the parts in order, watch them, stop them in the other order."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from deploy.children import Child, check, not_ready
from deploy.display import LiveDisplay, PlainDisplay
from deploy.errors import NoBroker
from deploy.health import Meter, Recent, scrape
from deploy.picture import Picture
from deploy.reader import CONNECT_S, TopicReader
from deploy.rundir import ADDRESS
from deploy.status import UNREADABLE, Part, PartState, Stack, describe
from schemas.topics import ANOMALIES, SCORES

STOP_S = 8.0
"""More than the agent's own wait for a broker that is away."""
TICK_S = 0.25
SAMPLE_S = 2.0
"""Every scrape leaves a socket in TIME_WAIT, which the agent counts: not more than it takes."""
# -P: a `schemas.py` where the user happens to be is not ours.
_MODULE = (sys.executable, "-P", "-m")


class Stopped(Exception):
    """The user, or a time limit, ends the run."""


@dataclass(slots=True, eq=False)
class _Watched:
    """A child, what is shown of it, and where it answers Prometheus."""

    child: Child
    part: Part
    port: int = 0
    recent: Recent = field(default_factory=Recent)
    meter: Meter | None = None


class Session:
    """One run of the stack.

    Parameters
    ----------
    brokers
        Of a real Kafka; empty to run the embedded broker.
    directory
        Where the logs go.
    display
        Where to show what happens.
    stop_asked
        How often the user has asked to stop; the second time children are killed.
    baseline_s
        How long a host is learned, given to the worker; None leaves it to the worker's settings.
    environ
        Variables for the children beside those of this process.
    """

    def __init__(
        self,
        brokers: str,
        directory: Path,
        display: LiveDisplay | PlainDisplay,
        stop_asked: Callable[[], int],
        *,
        start_timeout_s: float,
        baseline_s: int | None,
        environ: Mapping[str, str],
    ) -> None:
        self.picture = Picture()
        self._directory = directory
        self._display = display
        self._stop_asked = stop_asked
        self._start_timeout_s = start_timeout_s
        self._baseline_s = baseline_s
        self._environ = environ
        self._watched: list[_Watched] = []
        self._reader: TopicReader | None = None
        self._view = Recent()
        self._began = time.monotonic()
        self._ends = float("inf")
        self._next_sample = 0.0
        parts = tuple(map(Part, ("broker", "agent", "worker")))
        self._broker, self._agent, self._worker = parts
        self.stack = Stack(brokers, not brokers, parts, baseline_s)

    def run(self, seconds: float | None) -> None:
        """Start everything and watch it until asked to stop, or for so many seconds.

        Raises
        ------
        PartFailed
            A part did not start, or ended by itself.
        """
        with ExitStack() as cleanup:
            cleanup.callback(self._stop)
            try:
                if self.stack.embedded:
                    self._start_broker()
                self._reader = cleanup.enter_context(self._connect())
                self._broker.state = PartState.UP
                self._start_agent()
                self._start_worker()
                if seconds is not None:
                    self._ends = time.monotonic() + seconds
                while True:
                    self._tick()
            except Stopped:
                return

    def _start_broker(self) -> None:
        address = self._directory / ADDRESS
        self._start(self._broker, broker_command(address), address.exists)
        self.stack.brokers = address.read_text(encoding="utf-8").strip()

    def _connect(self) -> TopicReader:
        """Return a reader of what the picture is made of. The embedded broker holds it all."""
        if not self.stack.embedded:
            self._broker.state = PartState.STARTING
        end = time.monotonic() + CONNECT_S
        while True:
            self._tick()
            try:
                return TopicReader(
                    self.stack.brokers,
                    [SCORES, ANOMALIES],
                    from_start=self.stack.embedded,
                    connect_s=TICK_S,
                )
            except NoBroker:
                if time.monotonic() > end:
                    raise

    def _start_agent(self) -> None:
        port = free_port()
        self._start(
            self._agent,
            agent_command(self.stack.brokers, port),
            lambda: self._recent("agent").answered,
            port,
        )

    def _start_worker(self) -> None:
        port = free_port()
        self._start(
            self._worker,
            worker_command(self.stack.brokers, port, self._baseline_s),
            # On a real Kafka it may be one of many, and get no partition.
            lambda: (
                bool(self._recent("worker").latest("reveal_worker_partitions"))
                if self.stack.embedded
                else self._recent("worker").answered
            ),
            port,
        )

    def _start(
        self, part: Part, command: Sequence[str], ready: Callable[[], bool], port: int = 0
    ) -> None:
        """Start a part and wait until it is ready."""
        child = Child(
            part.name,
            command,
            self._directory / f"{part.name}.log",
            stop_s=STOP_S,
            environ=self._environ,
        )
        child.start()
        self._watched.append(_Watched(child, part, port))
        part.state, part.pid = PartState.STARTING, child.pid
        end = time.monotonic() + self._start_timeout_s
        while not ready():
            if time.monotonic() > end:
                raise not_ready(child, self._start_timeout_s)
            self._next_sample = 0.0
            self._tick()
        part.state = PartState.UP
        self._display.show(self.stack, self.picture)

    def _tick(self) -> None:
        """Take in what has come, look after the children, show it."""
        if self._stop_asked() or time.monotonic() >= self._ends:
            raise Stopped
        for watched in self._watched:
            if watched.child.exit_code is not None:
                watched.part.state = PartState.FAILED
            check(watched.child)
        if self._reader is None:
            time.sleep(TICK_S / 5)
        else:
            for record in self._reader.read(TICK_S):
                change = self.picture.apply(record, time.monotonic_ns() // 1000)
                if change is not None:
                    self._display.tell(change)
            self._broker.state = PartState.UP if self._reader.connected else PartState.LOST
        now = time.monotonic()
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_S
            self._sample(now)
        self._display.show(self.stack, self.picture)

    def _sample(self, now: float) -> None:
        """Ask every part how it is."""
        for watched in self._watched:
            if watched.port:
                samples = scrape(watched.port)
                if samples is not None:
                    watched.recent.add(now, samples)
            if watched.meter is None and watched.child.pid is not None:
                watched.meter = Meter(watched.child.pid)
            if watched.meter is not None:
                watched.part.usage = watched.meter.measure(now)
        self.stack.uptime_s = now - self._began
        unreadable = 0 if self._reader is None else self._reader.invalid
        self._view.add(now, {(UNREADABLE, frozenset()): unreadable})
        describe(
            self.stack,
            agent=self._recent("agent"),
            worker=self._recent("worker"),
            view=self._view,
        )

    def _recent(self, name: str) -> Recent:
        return next((w.recent for w in self._watched if w.part.name == name), Recent())

    def _stop(self) -> None:
        """Stop the parts, the last first. A display that fails does not keep them alive."""
        for watched in reversed(self._watched):
            if watched.child.exit_code is not None:
                continue
            self._show_stop(watched.part, PartState.STOPPING)
            watched.child.stop(hurry=lambda: self._stop_asked() > 1)
            self._show_stop(watched.part, PartState.STOPPED)

    def _show_stop(self, part: Part, state: PartState) -> None:
        part.state = state
        with suppress(OSError):
            self._display.show(self.stack, self.picture)


def broker_command(address_file: Path) -> list[str]:
    """Return how to run the embedded broker."""
    return [*_MODULE, "deploy.local", "--address-file", str(address_file)]


def agent_command(brokers: str, metrics_port: int) -> list[str]:
    """Return how to run the agent."""
    program = [*_MODULE, "producers", "run"]
    return [*program, "--brokers", brokers, *_metrics(metrics_port)]


def worker_command(brokers: str, metrics_port: int, baseline_s: int | None) -> list[str]:
    """Return how to run a worker."""
    program = [*_MODULE, "deploy.cli", "worker"]
    baseline = [] if baseline_s is None else ["--baseline-seconds", str(baseline_s)]
    return [*program, "--brokers", brokers, *_metrics(metrics_port), *baseline]


def _metrics(port: int) -> list[str]:
    return ["--metrics-host", "127.0.0.1", "--metrics-port", str(port)]


def free_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)  # noqa: S101
        return port
