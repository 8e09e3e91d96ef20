"""psutil reading the same kinds of files as the agent, and nothing else."""

from __future__ import annotations

import time

import click
import psutil


def read() -> int:
    """Read what psutil has of the same files; return how many numbers that is."""
    count = sum(len(core) for core in psutil.cpu_times(percpu=True))
    count += len(psutil.cpu_stats()) + len(psutil.virtual_memory()) + len(psutil.swap_memory())
    count += sum(len(disk) for disk in psutil.disk_io_counters(perdisk=True).values())
    count += sum(len(nic) for nic in psutil.net_io_counters(pernic=True).values())
    count += len(psutil.getloadavg())
    count += sum(len(chip) for chip in psutil.sensors_temperatures().values())
    return count + sum(len(nic) for nic in psutil.net_if_stats().values())


@click.command()
@click.argument("interval_s", type=float)
def main(interval_s: float) -> None:
    """Print how many numbers a reading has, and read for ever."""
    click.echo(read())
    due = time.monotonic()
    while True:
        due = max(due + interval_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        read()


if __name__ == "__main__":
    main()
