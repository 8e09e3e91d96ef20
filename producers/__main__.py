"""``reveal-agent``: the command line of the host agent."""

from __future__ import annotations

import logging
import shutil
import sys
import time

import click
from rich.console import Console

from producers import doctor, listing, reference
from producers.agent import Agent
from producers.budget import Budget, allowed_percent
from producers.clock import Grid, SystemClock
from producers.collectors.agent import collector as own_collector
from producers.config import AgentSettings
from producers.host import VERSION, Host, cores
from producers.metrics import AgentMetrics
from producers.notify import Notifier
from producers.packing import Packer
from producers.publisher import Publisher
from producers.reading import SystemReader, allow_many_files
from schemas.errors import InvalidSettings
from schemas.flags import print_settings, with_settings
from schemas.settings import Kafka, Resolved

PROGRAM = "reveal-agent"
MINUTE_NS = 60_000_000_000
MB = 1_000_000
LIST_WAIT_S = 1.1
"""Over a second, so that what is read once a second has a rate, too."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name=PROGRAM)
def main() -> None:
    """Sample this host's hardware telemetry and send it to Kafka."""
    # What fails is said by `producers.report`, a line a minute, and not by each reading's log.
    logging.getLogger("producers").addHandler(logging.NullHandler())


@main.command()
@click.option("--seconds", type=float, help="Stop after so long (default: never).")
@with_settings(kafka=Kafka, agent=AgentSettings)
def run(settings: Resolved, seconds: float | None) -> None:
    """Sample this host until SIGTERM or Ctrl-C and send it to Kafka."""
    kafka, own = settings.get("kafka", Kafka), settings.get("agent", AgentSettings)
    if not kafka.brokers:
        raise InvalidSettings(
            "no broker to send to: give --brokers host:port (or REVEAL_KAFKA_BROKERS); "
            "`reveal up` and `reveal broker` start one on this machine for trying things out"
        )
    clock = SystemClock()
    allow_many_files()
    with SystemReader(own.proc_root, own.sys_root) as reader, Host.of(own, reader) as host:
        agent = Agent(
            clock=clock,
            grid=Grid(1000 * own.interval_ms, clock),
            collectors=host.collectors,
            sampler=host.sampler,
            packer=Packer(own.ticks_per_record),
            publisher=Publisher(
                kafka.brokers,
                f"{PROGRAM}-{own.host_name}",
                keep_ns=int(own.keep_minutes * MINUTE_NS),
                keep_bytes=own.keep_mb * MB,
            ),
            own=host.own,
            budget=Budget(allowed_percent(own.budget_percent, cores(reader))),
            say=_say,
            cpu_ns=time.process_time_ns,
            notifier=Notifier.from_environment(),
        )
        metrics = AgentMetrics(agent, host=own.host_name, version=VERSION)
        metrics.serve(own.metrics_host, own.metrics_port)
        absent = [f"absent: {problem}" for problem in agent.prepare()]
        what = f"{agent.channels} channels every {own.interval_ms} ms to {kafka.brokers}"
        _say("; ".join([f"{own.host_name}: {what}", *absent]))
        _say(str(agent.run(seconds, own.stop_seconds)))


@main.command(name="list")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every kind of metric with its unit and source, the agent's own, too.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a channel.")
@with_settings(agent=AgentSettings)
def list_(settings: Resolved, everything: bool, as_json: bool) -> None:
    """List every channel of this host with its value now.

    With --all: a table of reference instead, one line for each kind of metric.
    """
    own = settings.get("agent", AgentSettings)
    allow_many_files()
    with SystemReader(own.proc_root, own.sys_root) as reader, Host.of(own, reader) as host:
        for wait_s in (0.0, LIST_WAIT_S):  # a rate needs two readings
            time.sleep(wait_s)
            host.own.cpu_ns = time.process_time_ns()
            sample = host.sampler.sample(time.monotonic_ns(), whole=True)
    layout, values = sample.layout, sample.values
    if as_json:
        for line in listing.json_lines(layout, values, everything=everything):
            click.echo(line)
        return
    if everything:
        kinds = reference.reference([*host.collectors, own_collector(host.own, host.costs)])
        reference.print_reference(kinds, Console())
    else:
        listing.print_channels(layout, values, everything=False, console=Console())
    # Several sources may miss the same thing.
    absent: dict[tuple[str, str], str] = {}
    for source in (s for c in host.collectors for s in c.sources if s.problem):
        reason = source.problem.removeprefix(f"{source.path}: ")
        absent.setdefault((reason, source.remedy), source.path)
    if absent:
        paths = ", ".join(dict.fromkeys(absent.values()))
        _say(f"absent: {paths} (`{PROGRAM} doctor` says what to do)")


@main.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding.")
@with_settings(kafka=Kafka, agent=AgentSettings)
def doctor_(settings: Resolved, as_json: bool) -> None:
    """Say what this host does not offer, why it matters and what to do.

    The exit code is 0 when everything essential works, else 1.
    """
    kafka, own = settings.get("kafka", Kafka), settings.get("agent", AgentSettings)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    findings = []
    for finding in doctor.examine(own, kafka.brokers):
        findings.append(finding)
        lines = [doctor.as_json(finding)] if as_json else doctor.as_text(finding, width)
        for line in lines:
            click.echo(line)
    if not as_json:
        click.echo()
        click.echo(doctor.verdict(findings))
    sys.exit(0 if doctor.healthy(findings) else 1)


@main.command(name="config")
@with_settings(kafka=Kafka, agent=AgentSettings)
def config_(settings: Resolved) -> None:
    """Print the settings in force and where each came from."""
    print_settings(settings)


def _say(line: str) -> None:
    click.echo(f"{PROGRAM}: {line}", err=True)


if __name__ == "__main__":
    main()
