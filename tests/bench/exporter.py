"""Prometheus node_exporter over a host's files, and a small client that scrapes it.

Only the collectors of files that the agent reads too are on, with every field of vmstat and
netstat, which it would leave out. The client keeps one connection, asks for plain text, which
costs the exporter least, and is a process of its own.
"""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import click

PROGRAM = "prometheus-node-exporter"
COLLECTORS = (
    *("cpu", "cpufreq", "stat", "loadavg", "interrupts", "schedstat", "pressure", "conntrack"),
    *("meminfo", "meminfo_numa", "vmstat", "edac", "diskstats", "mountstats", "nfs", "netdev"),
    *("netclass", "netstat", "sockstat", "softnet", "infiniband", "hwmon", "thermal_zone", "rapl"),
)
NOT_HERE = f"{PROGRAM} is not installed"


def program() -> str | None:
    """Return where the program is, None where it is not installed."""
    return shutil.which(PROGRAM)


def arguments(proc: Path, sys: Path, port: int) -> list[str]:
    """Return its command line's arguments."""
    return [
        *(f"--path.procfs={proc}", f"--path.sysfs={sys}", "--collector.disable-defaults"),
        *(f"--collector.{name}" for name in COLLECTORS),
        *("--collector.vmstat.fields=.*", "--collector.netstat.fields=.*"),
        *("--collector.stat.softirq", "--web.disable-exporter-metrics", "--log.level=error"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def samples(text: bytes) -> int:
    """Return how many samples a scrape has; those about the scrape itself are none."""
    lines = text.splitlines()
    return sum(not line.startswith((b"#", b"node_scrape_", b"promhttp_")) for line in lines)


@click.command()
@click.argument("port", type=int)
@click.argument("interval_s", type=float)
def scrape(port: int, interval_s: float) -> None:
    """Scrape until SIGTERM, then print how many scrapes and seconds that were."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    text = _get(connection)
    click.echo(json.dumps({"samples": samples(text), "bytes": len(text)}))
    started = due = time.monotonic()
    count = 0
    while not stop:
        due = max(due + interval_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        _get(connection)
        count += 1
    click.echo(json.dumps({"scrapes": count, "seconds": time.monotonic() - started}))


def _get(connection: http.client.HTTPConnection, tries: int = 50) -> bytes:
    for _ in range(tries):
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read()
        except ConnectionRefusedError:
            time.sleep(0.1)  # it is starting
            connection.close()
    raise click.ClickException(f"{PROGRAM} does not answer")


def failed(text: bytes) -> Sequence[str]:
    """Return the collectors that brought nothing."""
    marks = (line for line in text.decode().splitlines() if "collector_success{" in line)
    return [line.split('"')[1] for line in marks if line.endswith(" 0")]


if __name__ == "__main__":
    scrape()
