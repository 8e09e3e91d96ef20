"""``reveal-agent``: the command line of the host agent."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import closing
from importlib.metadata import version

import click
from rich.console import Console

from producers import doctor, listing
from producers.agent import Agent
from producers.clock import Grid, SystemClock
from producers.collector import Collector
from producers.collectors import new_collectors
from producers.collectors.agent import OwnCost
from producers.config import AgentSettings
from producers.metrics import AgentMetrics
from producers.packing import Packer
from producers.publisher import Publisher
from producers.reading import FileReader
from producers.sampler import Sampler
from schemas.errors import InvalidSettings
from schemas.flags import print_settings, with_settings
from schemas.settings import Kafka, Resolved

PROGRAM = "reveal-agent"
VERSION = version("reveal-telemetry")
MINUTE_NS = 60_000_000_000
MB = 1_000_000
BOOT_ID = "proc/sys/kernel/random/boot_id"
LIST_WAIT_S = 0.2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name=PROGRAM)
def main() -> None:
    """Sample this host's hardware telemetry and send it to Kafka."""


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
    clock = SystemClock()  # before any thread: they inherit what it does with signals
    cost, sampler, reader = _sampler(own)
    with closing(reader):
        agent = Agent(
            clock=clock,
            grid=Grid(1000 * own.interval_ms, clock),
            sampler=sampler,
            packer=Packer(own.ticks_per_record),
            publisher=Publisher(
                kafka.brokers,
                f"{PROGRAM}-{own.host_name}",
                keep_ns=int(own.keep_minutes * MINUTE_NS),
                keep_bytes=own.keep_mb * MB,
            ),
            own=cost,
            say=_say,
            cpu_ns=time.process_time_ns,
        )
        metrics = AgentMetrics(agent, host=own.host_name, version=VERSION)
        metrics.serve(own.metrics_host, own.metrics_port)
        _say(f"{own.host_name}: a tick every {own.interval_ms} ms, to {kafka.brokers}")
        _say(str(agent.run(seconds, own.stop_seconds)))


@main.command(name="list")
@click.option("--all", "everything", is_flag=True, help="The agent's own channels, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a channel.")
@with_settings(agent=AgentSettings)
def list_(settings: Resolved, everything: bool, as_json: bool) -> None:
    """List every channel of this host with its value now."""
    own = settings.get("agent", AgentSettings)
    cost, sampler, reader = _sampler(own)
    with closing(reader):
        # Twice: a rate needs two readings.
        sampler.sample(time.monotonic_ns())
        cost.cpu_ns, cost.collector_seconds = time.process_time_ns(), sampler.seconds
        time.sleep(LIST_WAIT_S)
        sample = sampler.sample(time.monotonic_ns())
    layout, values = sample.layout, sample.values
    if as_json:
        for line in listing.json_lines(layout, values, everything=everything):
            click.echo(line)
        return
    listing.print_channels(layout, values, everything=everything, console=Console())
    for name, reason in sampler.reasons.items():
        _say(f"collector {name}: {reason} (see `{PROGRAM} doctor`)")


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


def _sampler(own: AgentSettings) -> tuple[OwnCost, Sampler, FileReader]:
    collectors: list[Collector] = new_collectors()
    cost = OwnCost([c.name for c in collectors])
    reader = FileReader(own.proc_root, own.sys_root)
    sampler = Sampler(
        [*collectors, cost],
        reader,
        host=own.host_name,
        interval_us=1000 * own.interval_ms,
        agent_version=VERSION,
        boot_id=_boot_id(reader),
    )
    return cost, sampler, reader


def _boot_id(reader: FileReader) -> str:
    """Return the name of this boot; empty where the kernel does not tell."""
    try:
        return reader.read(BOOT_ID).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _say(line: str) -> None:
    click.echo(f"{PROGRAM}: {line}", err=True)


if __name__ == "__main__":
    main()
