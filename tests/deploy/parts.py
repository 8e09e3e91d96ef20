"""``python -m tests.deploy.parts``: `reveal up` with small programs for agent and worker.

The first argument is the mood of the parts; the rest are the arguments of `reveal up`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from deploy import stack
from deploy.up import up
from schemas.codec import encode
from schemas.topics import ANOMALIES, SCORES
from tests.deploy.examples import SECOND, anomaly, score

MODULE = [sys.executable, "-m", "tests.deploy.parts"]


def part(name: str, mood: str, brokers: str, port: int) -> None:
    """Be the agent or the worker."""
    print(f"{name} says hello")
    if mood == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    registry = CollectorRegistry()
    windows = Counter("reveal_worker_windows", "x", ["state"], registry=registry)
    Gauge("reveal_worker_partitions", "x", registry=registry).set(16)
    start_http_server(port, "127.0.0.1", registry)
    if name == "agent":
        signal.pause()
    producer = Producer({"bootstrap.servers": brokers})
    now = time.time_ns() // 1_000_000_000 * SECOND
    producer.produce(SCORES.name, encode(score("node01", now)), "node01")
    producer.produce(ANOMALIES.name, encode(anomaly("node01", now - 3 * SECOND)), "node01")
    producer.flush()
    windows.labels("active").inc()
    if mood == "dies":
        while not Path(os.environ["DIE_FILE"]).exists():
            time.sleep(0.01)
        print("worker: the baseline is gone", flush=True)
        sys.exit(3)
    while True:
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "part":
        part(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        mood = sys.argv.pop(1)
        stack.STOP_S = 600.0 if mood == "stubborn" else stack.STOP_S
        if mood == "hasty":
            stack.CONNECT_S = 0.5  # type: ignore[attr-defined]
        stack.agent_command = lambda brokers, metrics_port: [
            *(*MODULE, "part", "agent", mood, brokers, str(metrics_port))
        ]
        stack.worker_command = lambda brokers, metrics_port, baseline_s: [
            *(*MODULE, "part", "worker", mood, brokers, str(metrics_port), str(baseline_s))
        ]
        up()
