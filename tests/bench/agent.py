"""What the whole agent costs, beside node_exporter and psutil reading the same files as often.

On this machine, and on a host of 48 cores and 4 GPUs that does not exist: its files are on a
tmpfs, where another process makes them move, and its GPUs answer from a recorded table. So what
the kernel and the driver themselves would spend there is in none of its figures.

All programs of a case run at the same time, each a process of its own. The agent samples, packs,
compresses and sends to the embedded broker; node_exporter is scraped over loopback, psutil only
reads. CPU is user and system time of all threads of these alone, from /proc/<pid>/stat, after the
start-up. A value is a channel of the agent, a sample of a scrape, a number of psutil. Numbers read
are those that the agent's sources gave: not every source is read at each tick, and of the tables
of interrupts and softirqs only the sums are counted, though every line is looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from deploy.local import Broker
from tests.bench import exporter

CORES, GPUS = 48, 4
SHM = Path("/dev/shm")  # noqa: S108  # it is a tmpfs, wherever it is there
WARM_S = 6.0
MEASURE_S = {100: 20.0, 600: 30.0}
"""Seconds by the interval in milliseconds: whole turns of what is read every ten seconds, and
enough of the hundredths in which the kernel counts."""

HERE, FIXTURE = "this machine", "fixture host"
TARGETS = {(HERE, 100): 1.5, (FIXTURE, 100): 5.0}
"""Percent of one core that the agent may take at most."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one program cost in one case.

    `values` are those of one reading, `per_second` those that it delivered, `read_per_second` the
    numbers that it read; `percent` is of one core. `note` is what the agent said of keeping to its
    budget: what it then read more rarely.
    """

    host: str
    interval_ms: int
    program: str
    values: int
    per_second: float
    read_per_second: float
    percent: float
    note: str = ""

    @property
    def us_a_value(self) -> float:
        """CPU time for a value that was delivered, microseconds."""
        return 1e4 * self.percent / self.per_second

    @property
    def us_a_read(self) -> float:
        """CPU time for a number that was read, microseconds."""
        return 1e4 * self.percent / self.read_per_second


def main(as_json: bool) -> None:
    """Measure for some two minutes and print."""
    costs = list(measure(say=not as_json))
    if as_json:
        rows = [asdict(c) | {"us_a_value": c.us_a_value, "us_a_read": c.us_a_read} for c in costs]
        click.echo(json.dumps({"bench": "agent", "rows": rows}))
        return
    for line in verdict(costs):
        click.echo(line)


def measure(*, say: bool) -> Iterator[Cost]:
    """Yield the costs of each program in each case, and say them while they come."""
    if say:
        for line in preface():
            click.echo(f"  {line}")
        columns = f"{'values':>8}{'a second':>10}{'read/s':>9}{'% of a core':>13}"
        click.echo(f"  {'':<34}{columns}{'us a value':>12}{'us a read':>11}")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        root = stack.enter_context(fixture_host())
        for host, at in ((HERE, None), (FIXTURE, root)):
            for interval_ms in MEASURE_S:
                for cost in case(host, at, interval_ms, broker.bootstrap):
                    if say:
                        click.echo(f"  {as_row(cost)}")
                        if cost.note:
                            click.echo(f"    {cost.note}")
                    yield cost


def preface() -> Iterator[str]:
    """Yield what one has to know of the figures."""
    place = "on tmpfs" if SHM.is_dir() else "in a directory that is no tmpfs"
    yield (
        f"{FIXTURE}: {CORES} cores, {GPUS} H100s; files {place}, GPU calls from a recorded table:"
    )
    yield "what kernel and driver spend on such files and calls is in nobody's figures;"
    yield "perf, ethtool and kmsg are this machine's there, too; who moves the files is not counted"
    if exporter.program() is None:
        yield f"no figures of node_exporter: {exporter.NOT_HERE}"


def as_row(c: Cost) -> str:
    """Return a line of the table."""
    name = f"{c.host}, {c.interval_ms} ms: {c.program}"
    figures = f"{c.values:>8}{c.per_second:>10.0f}{c.read_per_second:>9.0f}{c.percent:>13.2f}"
    return f"{name:<34}{figures}{c.us_a_value:>12.2f}{c.us_a_read:>11.2f}"


def verdict(costs: list[Cost]) -> Iterator[str]:
    """Yield whether the agent keeps its targets and is the cheapest per number read."""
    for (host, interval_ms), percent in TARGETS.items():
        for c in costs:
            if (c.host, c.interval_ms, c.program) == (host, interval_ms, "agent"):
                kept = "kept" if c.percent <= percent else "MISSED"
                yield (
                    f"  {host}, {interval_ms} ms: {c.percent:.2f} % of a core, at most {percent}:"
                    f" {kept}"
                )
    for host in (HERE, FIXTURE):
        for interval_ms in MEASURE_S:
            mine, *others = (c for c in costs if (c.host, c.interval_ms) == (host, interval_ms))
            for other in others:
                yield (
                    f"  {host}, {interval_ms} ms: a value from {other.program} costs "
                    f"{other.us_a_value / mine.us_a_value:.1f} times the agent's, a number read "
                    f"{other.us_a_read / mine.us_a_read:.1f} times"
                )


def case(host: str, root: Path | None, interval_ms: int, brokers: str) -> list[Cost]:
    """Run every program on one host at one interval, and return their costs."""
    measure_s = MEASURE_S[interval_ms]
    whole_s = WARM_S + measure_s + 2
    proc, sys_ = (root / "proc", root / "sys") if root else (Path("/proc"), Path("/sys"))
    interval_s = interval_ms / 1000
    with ExitStack() as stack:
        start = stack.enter_context
        agent = start(agent_process(root, proc, sys_, interval_ms, brokers, whole_s))
        watched = {"agent": agent}
        helpers: dict[str, subprocess.Popen[str]] = {}
        if (program := exporter.program()) is not None:
            port = exporter.free_port()
            arguments = exporter.arguments(proc, sys_, port)
            watched["node_exporter"] = start(process(*arguments, program=program, quiet=True))
            client = ("-m", "tests.bench.exporter", str(port), str(interval_s))
            helpers["node_exporter"] = start(process(*client))
        if root is None:
            watched["psutil"] = start(process("-m", "tests.bench.psutils", str(interval_s)))
        time.sleep(WARM_S)
        started, before = time.monotonic(), {n: cpu_seconds(p.pid) for n, p in watched.items()}
        time.sleep(measure_s)
        wall = time.monotonic() - started
        spent = {n: cpu_seconds(p.pid) - before[n] for n, p in watched.items()}
        figure, note = _of_agent(agent, whole_s)
        figures = {"agent": figure}
        if "node_exporter" in helpers:
            figures["node_exporter"] = _of_exporter(helpers["node_exporter"])
        if "psutil" in watched:
            figures["psutil"] = _of_psutil(watched["psutil"], interval_s)
    return [
        Cost(
            host,
            interval_ms,
            name,
            *figures[name],
            100 * spent[name] / wall,
            note if name == "agent" else "",
        )
        for name in figures
    ]


def agent_process(
    root: Path | None, proc: Path, sys_: Path, interval_ms: int, brokers: str, seconds: float
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run the agent on a host."""
    host = ["--proc-root", str(proc), "--sys-root", str(sys_)]
    if root is not None:
        host += ["--host", "fixture"]
    return process(
        *("-m", "tests.bench.host_agent", str(GPUS if root else 0), "run"),
        *("--brokers", brokers, "--interval-ms", str(interval_ms), "--seconds", str(seconds)),
        *host,
    )


def _of_agent(agent: subprocess.Popen[str], seconds: float) -> tuple[tuple[int, float, float], str]:
    printed, said = agent.communicate()
    if agent.returncode:
        raise click.ClickException(f"the agent ended with exit code {agent.returncode}: {said}")
    words = said.splitlines()[-1].split()  # reveal-agent: T ticks of C channels, M missed; ...
    ticks, channels = int(words[1]), int(words[4])
    read = json.loads(printed.splitlines()[-1])["numbers"]
    kept = [line for line in said.splitlines() if "are allowed" in line]
    note = kept[-1].removeprefix("reveal-agent: ") if kept else ""
    return (channels, channels * ticks / seconds, read / seconds), note


def _of_exporter(client: subprocess.Popen[str]) -> tuple[int, float, float]:
    client.terminate()
    printed, said = client.communicate()
    if client.returncode:
        raise click.ClickException(f"scraping: exit code {client.returncode}: {said}")
    first, last = map(json.loads, printed.splitlines())
    per_second = first["samples"] * last["scrapes"] / last["seconds"]
    return first["samples"], per_second, per_second


def _of_psutil(reader: subprocess.Popen[str], interval_s: float) -> tuple[int, float, float]:
    reader.terminate()
    printed, _ = reader.communicate()
    values = int(printed.split()[0])
    return values, values / interval_s, values / interval_s


@contextmanager
def fixture_host() -> Iterator[Path]:
    """Yield a directory with the host that does not exist; it moves."""
    with ExitStack() as stack:
        shm = SHM if SHM.is_dir() else None
        kept = tempfile.TemporaryDirectory(prefix="reveal-bench-", dir=shm)
        root = stack.enter_context(kept)
        arguments = (root, "--cores", str(CORES), "--seconds", "3600")
        mover = stack.enter_context(process("-m", "tests.producers.bighost", *arguments))
        if mover.stdout is None or not mover.stdout.readline():
            raise click.ClickException("there is no fixture host")
        yield Path(root)


@contextmanager
def process(
    *arguments: str, program: str = sys.executable, quiet: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run a program, by default Python, with none of our settings in its environment."""
    output = subprocess.DEVNULL if quiet else subprocess.PIPE
    running = subprocess.Popen(
        [program, *arguments],
        stdout=output,
        stderr=output,
        text=True,
        cwd=Path(__file__).parents[2],
        env={k: v for k, v in os.environ.items() if not k.startswith("REVEAL_")},
    )
    with running:
        try:
            yield running
        finally:
            running.terminate()


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process so far (proc(5), /proc/pid/stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
