"""The `reveal` command line: a table of commands, each imported when it is called."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import click


class Entry(NamedTuple):
    """Where a command is, and what it does in a line."""

    place: str
    help: str


COMMANDS = {
    "up": Entry("deploy.up:up", "Start broker, agent and worker here, and show a live picture."),
    "anomalies": Entry("deploy.anomalies:anomalies", "Print episodes, one line each."),
    "record": Entry("deploy.record:record", "Write telemetry from the topics to a file."),
    "replay": Entry("deploy.replay:replay", "Run a recording through the core, flat out."),
    "evaluate": Entry(
        "deploy.evaluate:evaluate", "Hold the episodes of a recording against labelled faults."
    ),
    "backtest": Entry(
        "deploy.backtest:backtest", "Say what changed settings would have done to a recording."
    ),
    "baseline": Entry("deploy.baseline:baseline", "Print what the hosts of a recording learned."),
    "import": Entry("deploy.import_:import_", "Turn other people's recordings into ours."),
    "worker": Entry("deploy.worker:worker", "Run a worker: windows, scores and episodes."),
    "broker": Entry("deploy.local:broker", "Run the embedded broker, for trying things out."),
    "topics": Entry("deploy.topics:topics", "List or create the topics on a Kafka cluster."),
    "config": Entry("deploy.config:config", "Print the settings in force and their origin."),
}


CLUSTER_PACKAGES = frozenset(
    ("aiokafka", "faust", "mode", "numba", "sklearn", "threadpoolctl", "uvloop")
)
"""What the extra `cluster` brings and a host that runs only the agent does not have."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called: ``--help`` needs none of them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; one whose packages are not installed says how to get them."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as e:
            if (e.name or "").partition(".")[0] not in CLUSTER_PACKAGES:
                raise
            raise click.ClickException(
                f"this command needs {e.name}, which comes with the cluster side: "
                "pip install 'reveal-telemetry[cluster]'"
            ) from e

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the table's order."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """Import and return a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="reveal-telemetry", prog_name="reveal")
def main() -> None:
    """Reveal finds what goes wrong on AI and HPC hosts from hardware telemetry alone."""


if __name__ == "__main__":
    main()
