"""What one writes first: a Faust agent a message, fastavro, deques, scikit-learn a window.

``python -m tests.bench.naive BROKERS``. One detector, fitted before the start and shared by all
hosts, and neither baselines nor episodes: it does less than the worker.
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict, deque

import fastavro
import faust
import numpy as np
from faust.types import StreamT
from sklearn.ensemble import IsolationForest

from schemas.codec import HEADER_BYTES, encode, load_schema
from schemas.records import DetectorScore, Floats, Score, State, Telemetry
from schemas.topics import PARTITIONS, SCORES, TELEMETRY
from tests.bench.simulate import pattern

LENGTH = 30


def features(window: Floats) -> Floats:
    """Return the worker's features of one window, shape ``(ticks, channels)``."""
    moments = [window.mean(0), window.std(0), window.min(0), window.max(0)]
    return np.concatenate(moments).astype(np.float32)


def fitted_forest(channels: int = 700, windows: int = 250) -> IsolationForest:
    """Return a forest that knows the simulated hosts."""
    rng = np.random.default_rng(0)
    loops = [pattern(rng, channels).T for _ in range(5)]
    starts = rng.integers(0, len(loops[0]) - LENGTH, windows).tolist()
    rows = [features(loops[i % 5][s : s + LENGTH]) for i, s in enumerate(starts)]
    return IsolationForest(n_estimators=100, random_state=0).fit(np.stack(rows))


class App(faust.App):
    """`faust.App` that writes nothing to disk."""

    def _create_directories(self) -> None:
        """Keep out of the file system: Faust would make a folder for tables we do not have."""


def main(brokers: str) -> None:
    """Run it until it is told to stop."""
    app = App(
        "naive",
        broker=f"kafka://{brokers}",
        topic_partitions=PARTITIONS,
        topic_allow_declare=False,
        topic_disable_leader=True,
        store="memory://",
        web_enabled=False,
        consumer_auto_offset_reset="latest",
        value_serializer="raw",
    )
    telemetry = app.topic(TELEMETRY.name, value_type=bytes, value_serializer="raw")
    scores = app.topic(SCORES.name, value_type=bytes, value_serializer="raw")
    schema = load_schema(Telemetry)
    forest = fitted_forest()
    windows: defaultdict[str, deque[Floats]] = defaultdict(lambda: deque(maxlen=LENGTH))

    @app.agent(telemetry)
    async def detect(stream: StreamT[bytes]) -> None:
        async for message in stream:
            body = io.BytesIO(message[HEADER_BYTES:])
            record = fastavro.schemaless_reader(body, schema, None)
            assert isinstance(record, dict)
            host, stamps = record["host"], record["timestamps"]
            window = windows[host]
            window.extend(np.array(record["values"], np.float32).reshape(-1, len(stamps)).T)
            if len(window) < LENGTH:
                continue
            odd = -float(forest.score_samples(features(np.array(window))[None])[0])
            score = Score(
                host=host,
                layout=record["layout"],
                end=stamps[-1] + record["interval_us"],
                samples=LENGTH,
                expected=LENGTH,
                baseline=1,
                state=State.ACTIVE,
                reason="",
                progress=1.0,
                detectors=(DetectorScore("forest", odd, 1.0, odd > 0.6),),
                fused=odd,
                flagged=odd > 0.6,
            )
            await scores.send(key=host, value=encode(score))

    faust.Worker(app, loglevel="warn", quiet=True).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1])
