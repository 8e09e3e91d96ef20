"""Run the benches: all, or those named."""

from __future__ import annotations

from importlib import import_module

import click

BENCHES = {
    "agent": "the agent here and on a host of 48 cores, beside node_exporter and psutil",
    "detection": "how well detectors rank what is odd on SMD and ASD, where these are here",
    "models": "fitting and scoring 1,000 hosts, each with a baseline of its own",
    "replay": "recordings through the core, as multiples of real time",
    "stream": "a worker's CPU and latency at 1,000 hosts, beside a plain consumer and a naive one",
    "wire": "bytes a second from one host to the broker, as sent and as it might be",
}
"""Modules of this package with ``main(as_json)``, and what each measures."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHES)))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a bench.")
def main(names: tuple[str, ...], as_json: bool) -> None:
    """Run the benches NAMES, by default all."""
    for name in names or BENCHES:
        if not as_json:
            click.echo(f"{name}: {BENCHES[name]}")
        import_module(f"tests.bench.{name}").main(as_json)


if __name__ == "__main__":
    main()
