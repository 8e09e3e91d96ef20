"""What the whole agent costs, beside psutil reading the same kinds of files at the same rate.

Both run at the same time, each a process of its own. The agent samples, packs, compresses and
sends to the embedded broker; the other one only reads. CPU is user and system time of all
threads, from /proc/<pid>/stat, after the start-up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click
import psutil

from deploy.local import Broker

INTERVAL_S = 0.1
WARM_S = 4.0
MEASURE_S = 20.0


def main(as_json: bool) -> None:
    """Measure for some twenty seconds and print."""
    result = measure()
    if as_json:
        click.echo(json.dumps({"bench": "agent", **result}))
        return
    click.echo(f"  {'':<28}{'channels':>9}{'% of a core':>13}{'us a channel':>14}")
    for key, name in (("agent", "agent: sample, pack, send"), ("psutil", "psutil: read only")):
        channels, percent = result[f"{key}_channels"], result[f"{key}_percent"]
        each = 1e6 * INTERVAL_S * percent / 100 / channels
        click.echo(f"  {name:<28}{channels:>9.0f}{percent:>13.2f}{each:>14.2f}")
    click.echo(
        f"  the agent costs {result['ratio']:.2f} of what psutil costs,"
        f" and reads {result['agent_channels'] / result['psutil_channels']:.1f} times as much;"
        f" {result['agent_ticks']:.0f} ticks, {result['agent_missed']:.0f} missed"
    )


def measure() -> dict[str, float]:
    """Return channels and percent of one core of both, and their ratio."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        agent = stack.enter_context(
            _process(
                *("-m", "producers", "run", "--brokers", broker.bootstrap),
                *("--seconds", str(WARM_S + MEASURE_S + 2)),
            )
        )
        other = stack.enter_context(_process("-m", "tests.bench.agent"))
        time.sleep(WARM_S)
        started, before = time.monotonic(), [_cpu_seconds(p.pid) for p in (agent, other)]
        time.sleep(MEASURE_S)
        wall, after = time.monotonic() - started, [_cpu_seconds(p.pid) for p in (agent, other)]
        other.terminate()
        read, _ = other.communicate()
        _, said = agent.communicate()
    if agent.returncode:
        raise click.ClickException(f"the agent ended with exit code {agent.returncode}: {said}")
    percent = [100 * (b - a) / wall for a, b in zip(before, after, strict=True)]
    words = said.splitlines()[-1].split()  # reveal-agent: T ticks of C channels, M missed; ...
    return {
        "agent_percent": percent[0],
        "agent_channels": int(words[4]),
        "agent_ticks": int(words[1]),
        "agent_missed": int(words[6]),
        "psutil_percent": percent[1],
        "psutil_channels": int(read.split()[0]),
        "ratio": percent[0] / percent[1],
        "interval_ms": 1000 * INTERVAL_S,
        "seconds": wall,
    }


def _process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={k: v for k, v in os.environ.items() if not k.startswith("REVEAL_")},
    )


def _cpu_seconds(pid: int) -> float:
    """Return user and system time of a process so far (proc(5), /proc/pid/stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_with_psutil() -> int:
    """Read what psutil has of the same files; return how many numbers that is."""
    count = sum(len(core) for core in psutil.cpu_times(percpu=True))
    count += len(psutil.cpu_stats()) + len(psutil.virtual_memory()) + len(psutil.swap_memory())
    count += sum(len(disk) for disk in psutil.disk_io_counters(perdisk=True).values())
    count += sum(len(nic) for nic in psutil.net_io_counters(pernic=True).values())
    count += len(psutil.getloadavg())
    return count + sum(len(nic) for nic in psutil.net_if_stats().values())


def _read_for_ever() -> None:
    click.echo(read_with_psutil())
    due = time.monotonic()
    while True:
        due = max(due + INTERVAL_S, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        read_with_psutil()


if __name__ == "__main__":
    _read_for_ever()
