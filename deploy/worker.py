"""``reveal worker``."""

from __future__ import annotations

import click

from schemas.flags import with_settings
from schemas.settings import Kafka, Resolved
from streams.config import WorkerSettings


@click.command()
@with_settings(kafka=Kafka, worker=WorkerSettings)
def worker(settings: Resolved) -> None:
    """Run a worker: windows, scores and episodes of the hosts whose partitions it gets.

    Start as many as you like, up to the number of partitions: Kafka spreads the hosts over them.
    """
    # Faust, scikit-learn and numba take seconds to import; --help and a wrong flag do not wait.
    from streams.worker import run

    run(settings.get("kafka", Kafka), settings.get("worker", WorkerSettings))
