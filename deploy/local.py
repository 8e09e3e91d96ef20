"""The embedded broker: a Kafka for trying things out, in a process of its own.

``reveal broker`` runs it in the foreground; `Broker` is the handle of one in a child process.
Without a terminal it can be told to listen to its standard input (``--control``): one command a
line (``down [broker]``, ``up [broker]``, ``errors api-key code...``, ``topic name partitions``),
one line in answer, and the end of input ends it, so that it never outlives who started it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from signal import SIGTERM, signal
from types import FrameType, TracebackType
from typing import IO, Self

import click

from deploy.errors import NoEmbeddedBroker
from deploy.mockcluster import ALL_BROKERS, MockCluster
from schemas.errors import RevealError
from schemas.topics import TOPICS, Topic

STOP_S = 5.0
DAY_S = 86_400


class Broker:
    """An embedded broker in a child process, with every topic of ours.

    Parameters
    ----------
    brokers
        How many brokers the cluster has; they are numbered from 1.
    rebalance_delay_ms
        How long a new consumer group waits for more members.
    """

    def __init__(self, brokers: int = 1, *, rebalance_delay_ms: int = 500) -> None:
        self._brokers = brokers
        self._rebalance_delay_ms = rebalance_delay_ms
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap = ""

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises
        ------
        NoEmbeddedBroker
            It did not come up. The text says why.
        """
        self._process = subprocess.Popen(
            [
                # -P: a `schemas.py` where the user happens to be is not ours.
                *(sys.executable, "-P", "-m", "deploy.local", "--control"),
                *("--nodes", str(self._brokers)),
                *("--rebalance-delay-ms", str(self._rebalance_delay_ms)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C in the terminal is the parent's business.
            start_new_session=True,
        )
        self.bootstrap = self._answer()

    def stop(self) -> None:
        """End it; what it holds is gone."""
        if self._process is None:
            return
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Number of the process, for those who measure it."""
        if self._process is None:
            raise NoEmbeddedBroker("the embedded broker is not running")
        return self._process.pid

    def set_down(self, broker: int = ALL_BROKERS) -> None:
        """Take a broker (by default all) off the network."""
        self._tell(f"down {broker}")

    def set_up(self, broker: int = ALL_BROKERS) -> None:
        """Bring a broker (by default all) back, on the same port and with what it held."""
        self._tell(f"up {broker}")

    def push_request_errors(self, api_key: int, *codes: int) -> None:
        """Answer the next requests of a kind with these error codes; see `MockCluster`."""
        self._tell(f"errors {api_key} {' '.join(map(str, codes))}")

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic beside ours."""
        self._tell(f"topic {name} {partitions}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _tell(self, command: str) -> None:
        if self._process is None or self._process.stdin is None:
            raise NoEmbeddedBroker("the embedded broker is not running")
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> str:
        if self._process is None or self._process.stdout is None:
            raise NoEmbeddedBroker("the embedded broker is not running")
        line = self._process.stdout.readline().strip()
        if not line:
            code = self._process.wait(STOP_S)
            raise NoEmbeddedBroker(f"the embedded broker ended with exit code {code}")
        if line.startswith("error: "):
            raise NoEmbeddedBroker(line.removeprefix("error: "))
        return line


def _obey(cluster: MockCluster, line: str) -> None:
    """Carry out one line of standard input."""
    match line.split():
        case ["down", *rest] if len(rest) <= 1:
            cluster.set_down(*map(int, rest))
        case ["up", *rest] if len(rest) <= 1:
            cluster.set_up(*map(int, rest))
        case ["errors", api_key, *codes]:
            cluster.push_request_errors(int(api_key), map(int, codes))
        case ["topic", name, partitions]:
            cluster.create([Topic(name, "", int(partitions), None, "")])
        case _:
            raise NoEmbeddedBroker(f"unknown command {line.strip()!r}")


def _listen(cluster: MockCluster, commands: IO[str]) -> None:
    for line in commands:
        try:
            _obey(cluster, line)
        except (RevealError, ValueError) as e:
            click.echo(f"error: {e}")
        else:
            click.echo("ok")


def _write_address(file: Path, address: str) -> None:
    # Renamed into place: who waits for the file never reads half an address.
    partial = file.with_name(file.name + ".partial")
    try:
        partial.write_text(address + "\n", encoding="utf-8")
        partial.replace(file)
    except OSError as e:
        raise NoEmbeddedBroker(f"--address-file {file}: {e.strerror}") from e


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Brokers in the cluster.",
)
@click.option(
    "--rebalance-delay-ms",
    default=500,
    show_default=True,
    help="How long a new consumer group waits for more members.",
)
@click.option(
    "--address-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write host:port there once it listens.",
)
@click.option("--control", is_flag=True, hidden=True, help="Take commands from standard input.")
def broker(nodes: int, rebalance_delay_ms: int, address_file: Path | None, control: bool) -> None:
    """Run the embedded broker until Ctrl-C and print its host:port.

    It is librdkafka's mock cluster, for trying things out on one machine: in memory, about 5 MB
    a partition with the oldest dropped, loopback only, on a port that the system chooses.
    """
    signal(SIGTERM, _terminate)
    try:
        cluster = MockCluster(nodes, rebalance_delay_ms=rebalance_delay_ms)
        cluster.create(TOPICS)
        if address_file is not None:
            _write_address(address_file, cluster.bootstrap)
        click.echo(cluster.bootstrap)
        if control:
            _listen(cluster, sys.stdin)
        else:
            while True:
                time.sleep(DAY_S)
    except KeyboardInterrupt:
        pass
    except RevealError as e:
        # Settings, and pydantic with them, would triple the time that every test's broker takes.
        from schemas.flags import UserError

        raise UserError(str(e)) from e


if __name__ == "__main__":
    broker()
