"""The worker as it is, with shared fits: ``python -m tests.bench.worker BASELINE PORT BROKERS``."""

from __future__ import annotations

import sys

import streams.worker
from schemas.settings import Kafka
from streams.config import WorkerSettings
from tests.bench.fits import SharedFits


def main(baseline_seconds: int, metrics_port: int, brokers: str) -> None:
    """Run it until it is told to stop."""
    setattr(streams.worker, "fitting_process", SharedFits)  # noqa: B010 - not exported
    settings = WorkerSettings.model_validate(
        {"baseline_seconds": baseline_seconds, "metrics_port": metrics_port}
    )
    streams.worker.run(Kafka(brokers=brokers), settings)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
