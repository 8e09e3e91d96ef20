"""How many hosts one worker keeps up with, what that costs, and how soon a window is scored.

Simulated hosts (700 channels, 10 Hz, a record a second) and the embedded broker run in processes
of their own. Beside the worker: the same core around a plain confluent-kafka consumer, and the
naive program that one writes first, with fewer hosts. What counts is CPU per window.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from deploy.local import Broker
from deploy.stack import free_port
from tests.bench.measure import Cpu, Latency, Receiver, Result, gauges
from tests.bench.simulate import REMEMBERED, Fleet, simulate

SETTLE_S = 5
STRAGGLERS_S = 3
WORKER = "worker"
SAYS = {
    "lag": "reveal_worker_lag_records",
    "partitions": "reveal_worker_partitions",
    "rewinds": "reveal_worker_rewinds_total",
    "skipped": "reveal_worker_skipped_records_total",
    "group errors": "reveal_worker_group_errors_total",
}
SENDING = {"spread over the second": 1.0, "all in one instant": 0.0}


@dataclass(frozen=True, slots=True)
class Load:
    """Simulated hosts that send, and how to tell them how."""

    fleet: Fleet
    broker: Broker
    process: Any
    spread: Any
    sent: Any
    failed: Any


@contextmanager
def load(hosts: int) -> Iterator[Load]:
    """Run a broker and hosts that send to it."""
    spawn = multiprocessing.get_context("spawn")
    with Broker() as broker:
        fleet = Fleet(broker.bootstrap, hosts)
        spread, failed = spawn.Value("d", 1.0), spawn.Value("l", 0)
        sent = spawn.Array("d", hosts * REMEMBERED)
        stop = spawn.Event()
        process = spawn.Process(target=simulate, args=(fleet, spread, stop, sent, failed))
        process.start()
        try:
            yield Load(fleet, broker, process, spread, sent, failed)
        finally:
            stop.set()
            process.join()


@contextmanager
def program(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program that is gone afterwards."""
    process = subprocess.Popen([sys.executable, "-m", *command])
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def learn(
    say: Console, running: Load, receiver: Receiver, process: subprocess.Popen[bytes]
) -> None:
    """Wait until every host is judged."""
    hosts, began = running.fleet.hosts, time.monotonic()
    with say.status("starting") as status:
        while len(receiver.active) < hosts:
            receiver.poll()
            if process.poll() is not None:
                raise click.ClickException(f"the program ended with exit code {process.returncode}")
            status.update(
                f"{len(receiver.active)} of {hosts} hosts have learned their baseline,"
                f" {time.monotonic() - began:.0f} s"
            )
    say.print(f"  every host is judged after {time.monotonic() - began:.0f} s")


def measure(
    name: str,
    sending: str,
    seconds: int,
    running: Load,
    receiver: Receiver,
    pid: int,
    metrics_port: int = 0,
) -> Result:
    """Measure one program under one load, which it has already seen."""
    running.spread.value = SENDING[sending]
    receiver.poll_until(time.time() + SETTLE_S)
    assert running.broker.pid is not None
    cpu = Cpu(
        worker=pid,
        broker=running.broker.pid,
        simulator=running.process.pid,
        bench=psutil.Process().pid,
    )
    first = int(time.time()) + 1
    ends = range(first + 1, first + seconds + 1)
    receiver.forget(ends)
    receiver.poll_until(first)
    before, began = cpu.seconds(), time.monotonic()
    receiver.poll_until(first + seconds)
    after, took = cpu.seconds(), time.monotonic() - began
    says = gauges(metrics_port, SAYS.values()) if metrics_port else {}
    receiver.poll_until(first + seconds + STRAGGLERS_S)
    columns = [end % REMEMBERED for end in ends]
    shape = running.fleet.hosts, REMEMBERED
    sent = np.frombuffer(running.sent.get_obj(), np.float64).reshape(shape)[:, columns]
    arrived = receiver.arrived[:, columns]
    windows = int((~np.isnan(arrived)).sum())
    if running.failed.value:
        raise click.ClickException(f"the broker did not take {running.failed.value} records")
    return Result(
        program=name,
        sending=sending,
        hosts=running.fleet.hosts,
        seconds=seconds,
        windows=windows,
        missing=running.fleet.hosts * seconds - windows,
        says={short: says[name] for short, name in SAYS.items() if says},
        cpu={role: (after[role] - before[role]) / took for role in after},
        to_stamp=Latency.of(receiver.stamped[:, columns] - sent),
        to_arrival=Latency.of(arrived - sent),
        worker_mib=psutil.Process(pid).memory_info().rss / 2**20,
    )


def run_program(
    say: Console, name: str, hosts: int, seconds: int, command: list[str], metrics_port: int = 0
) -> list[Result]:
    """Run one program from an empty broker on; measure it under every load."""
    say.print(f"[bold]{name}[/bold], {hosts} hosts")
    with load(hosts) as running, program(*command, running.broker.bootstrap) as process:
        receiver = Receiver(running.broker.bootstrap, running.fleet.names())
        try:
            learn(say, running, receiver, process)
            return [
                measure(name, how, seconds, running, receiver, process.pid, metrics_port)
                for how in SENDING
            ]
        finally:
            receiver.close()


def run(
    say: Console, *, hosts: int, naive_hosts: int, seconds: int, baseline_seconds: int
) -> list[Result]:
    """Run every program, the worker last."""
    port = free_port()
    baseline = str(baseline_seconds)
    return [
        *run_program(say, "naive program", naive_hosts, seconds, ["tests.bench.naive"]),
        *run_program(say, "plain consumer", hosts, seconds, ["tests.bench.plain", baseline]),
        *run_program(
            say, WORKER, hosts, seconds, ["tests.bench.worker", baseline, str(port)], port
        ),
    ]


def ratios(results: list[Result]) -> dict[str, float]:
    """Return what a window costs each program over what it costs the worker, in CPU time."""
    how = next(iter(SENDING))
    cost = {r.program: r.window_us for r in results if r.sending == how}
    return {name: us / cost[WORKER] for name, us in cost.items()}


def table(results: list[Result]) -> Table:
    """Return the results as people read them."""
    t = Table(title="3 s windows every second of hosts with 700 channels at 10 Hz")
    for heading in ("program", "hosts send"):
        t.add_column(heading)
    for heading in (
        "hosts",
        "windows/s",
        "missing",
        "lag",
        "CPU",
        "us/window",
        "scored p50",
        "p99",
    ):
        t.add_column(heading, justify="right")
    for heading in ("arrived p50", "p99", "highest", "fitting", "broker", "simulator", "MiB"):
        t.add_column(heading, justify="right")
    for r in results:
        scored = (r.to_stamp.p50, r.to_stamp.p99)
        arrived = (r.to_arrival.p50, r.to_arrival.p99, r.to_arrival.highest)
        t.add_row(
            r.program,
            r.sending,
            f"{r.hosts}",
            f"{r.windows / r.seconds:.0f}",
            f"{r.missing}",
            f"{r.says['lag']:.0f}" if r.says else "",
            f"{r.cpu['worker']:.0%}",
            f"{r.window_us:.0f}",
            *(f"{1e3 * s:.0f} ms" for s in (*scored, *arrived)),
            *(f"{r.cpu[role]:.0%}" for role in ("fitting", "broker", "simulator")),
            f"{r.worker_mib:.0f}",
        )
    return t


NOTES = """\
CPU: user and system time of the program's process, as share of one core; its fitting child apart.
scored: from the sending of the record that completes a window (right after its last tick) to the
timestamp of its Score's message, which is the worker's sending it. arrived: to the arrival at a
plain consumer, with up to 10 ms of fetch wait. missing: windows without a Score after 3 s.
lag: records that the worker had not read when the measuring ended.
Baselines are learned first; hosts that go round the same simulated pattern share a fit."""


@click.command()
@click.option("--hosts", default=1000, show_default=True, help="Hosts of worker and consumer.")
@click.option("--naive-hosts", default=20, show_default=True, help="Hosts of the naive program.")
@click.option("--seconds", default=30, show_default=True, help="How long each load is measured.")
@click.option("--baseline-seconds", default=30, show_default=True, help="How long hosts learn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stream(
    hosts: int, naive_hosts: int, seconds: int, baseline_seconds: int, as_json: bool
) -> None:
    """Measure how many hosts one worker keeps up with, and how soon a window is scored."""
    say = Console(stderr=True)
    results = run(
        say,
        hosts=hosts,
        naive_hosts=naive_hosts,
        seconds=seconds,
        baseline_seconds=baseline_seconds,
    )
    if as_json:
        plain = {"results": [asdict(r) for r in results], "cpu_per_window_ratio": ratios(results)}
        click.echo(json.dumps({"bench": "stream", **plain}))
        return
    out = Console(width=None if sys.stdout.isatty() else 200)
    out.print(table(results))
    out.print(NOTES, highlight=False)
    for r in results:
        if r.says.get("skipped") or r.says.get("rewinds"):
            out.print(f"{r.program}, {r.sending}: the worker says {r.says}")
    for name, ratio in ratios(results).items():
        if name != WORKER:
            out.print(f"a window costs the {name} {ratio:.2f} of what it costs the worker")


def main(as_json: bool) -> None:
    """Measure with the defaults and print."""
    stream.main(["--json"] if as_json else [], standalone_mode=False)


if __name__ == "__main__":
    stream()
