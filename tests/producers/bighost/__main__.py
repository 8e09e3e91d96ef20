"""Write the host into a directory, and keep it moving."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import click

from tests.producers.bighost import BigHost, Size, Tree


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--cores", default=48, show_default=True)
@click.option("--seconds", default=0.0, show_default=True, help="Keep it moving for so long.")
@click.option("--interval", default=0.1, show_default=True, help="Seconds between two steps.")
def main(directory: Path, cores: int, seconds: float, interval: float) -> None:
    """Write a large host's proc and sys into DIRECTORY."""
    # Every file that moves stays open.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Tree(BigHost(Size(cores=cores)), directory) as tree:
        click.echo(f"{directory} is there")
        now = time.monotonic()
        end, stepped, due = now + seconds, now, now + interval
        while due <= end:
            time.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            tree.step(now - stepped)
            stepped, due = now, max(due + interval, now)


if __name__ == "__main__":
    main()
