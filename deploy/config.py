"""``reveal config``."""

from __future__ import annotations

import click

from deploy.rundir import ViewSettings
from schemas.flags import print_settings, with_settings
from schemas.settings import Kafka, Resolved
from streams.config import WorkerSettings


@click.command()
@with_settings(kafka=Kafka, worker=WorkerSettings, view=ViewSettings)
def config(settings: Resolved) -> None:
    """Print every setting in force and where its value came from, as a TOML file.

    Flags stand over the environment, it over the file named by --config or REVEAL_CONFIG.
    """
    print_settings(settings)
