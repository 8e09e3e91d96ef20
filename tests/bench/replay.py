"""How much faster than real time recordings are replayed, and where the time goes.

One process, one thread. Each stage is run with all before it, and the difference is its own.
Compiling and imports are not counted. The raw recording is the whole campaign where it is there,
else the cut that the tests have; the telemetry recording is made from it. Learning the baselines
is part of the scores: how much of a recording it is depends on how long that is.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from deploy.raw import RawRecording
from streams.config import WorkerSettings
from streams.core import new_pipeline
from streams.fitting import InPlace
from streams.layouts import Layouts
from streams.pipeline import Message, Pipeline
from streams.recording import Container, ContainerWriter, Recorded, Recording
from streams.replay import BATCH, Replay, warm_up

TESTS = Path(__file__).parents[1]
CAMPAIGN = TESTS.parents[1] / "shared" / "data" / "campaign-a" / "raw.avro"
CUT = TESTS / "data" / "udp_flood.avro"
BASELINE_S = {CAMPAIGN: 280, CUT: 40}
"""Both are quiet for so long at their start."""
REPEATS = 2


def main(as_json: bool) -> None:
    """Measure, a minute on a quiet machine, and print."""
    path = CAMPAIGN if CAMPAIGN.exists() else CUT
    settings = WorkerSettings.model_validate({"baseline_seconds": BASELINE_S[path]})
    warm_up(settings)
    with tempfile.TemporaryDirectory() as folder:
        telemetry = Path(folder) / "telemetry.avro"
        with ContainerWriter(telemetry) as writer:
            for record, message in RawRecording(Container(path)):
                writer.add(type(record), message)
        results = {
            "raw": measure_raw(path, settings),
            "telemetry": measure_telemetry(telemetry, settings),
        }
        sizes = {"raw": path.stat().st_size, "telemetry": telemetry.stat().st_size}
    if as_json:
        click.echo(json.dumps({"bench": "replay", "recording": path.parent.name, **results}))
        return
    for name, result in results.items():
        wall, cpu = result["seconds"], result["cpu_seconds"]
        click.echo(
            f"  {name} recording of {result['hosts']:.0f} hosts,"
            f" {result['recording_seconds']:.0f} s, {sizes[name] / 1e6:.1f} MB:"
            f" {wall:.2f} s, {result['times_real_time']:,.0f} times real time"
            f" ({cpu:.2f} s of CPU)"
        )
        for stage in ("reading", "collecting", "windows", "scores"):
            if stage in result:
                click.echo(f"    {stage:<12}{result[stage]:8.2f} s of CPU")


def measure_raw(path: Path, settings: WorkerSettings) -> dict[str, float]:
    """Return the times of a raw recording, seconds."""
    container = Container(path)

    def read() -> None:
        for block in container.blocks():
            for _ in block:
                pass

    reading, collecting = _cpu(read), _cpu(lambda: _walk(RawRecording(container)))
    return {
        "reading": reading,
        "collecting": collecting - reading,
        **_stages(list(RawRecording(container)), lambda: RawRecording(container), settings),
    }


def measure_telemetry(path: Path, settings: WorkerSettings) -> dict[str, float]:
    """Return the times of a recording of telemetry, seconds."""
    recording = Recording(Container(path))
    reading = _cpu(lambda: _walk(recording))
    return {"reading": reading, **_stages(list(recording), lambda: recording, settings)}


def _stages(
    recorded: list[Recorded], source: Callable[[], Iterable[Recorded]], settings: WorkerSettings
) -> dict[str, float]:
    windows = _cpu(lambda: _windows(recorded, settings))
    best, cpu = None, float("inf")
    for _ in range(REPEATS):
        replay = Replay(settings)
        before = time.process_time()
        _walk(replay.run(source()))
        cpu = min(cpu, time.process_time() - before)
        if best is None or replay.summary.seconds < best.seconds:
            best = replay.summary
    assert best is not None
    whole = _cpu(lambda: _walk(Replay(settings).run(iter(recorded))))
    return {
        "windows": windows,
        "scores": whole - windows,
        "hosts": best.hosts,
        "recording_seconds": best.recording_seconds,
        "seconds": best.seconds,
        "cpu_seconds": cpu,
        "times_real_time": best.times_real_time,
    }


def _windows(recorded: list[Recorded], settings: WorkerSettings) -> None:
    core = new_pipeline(settings, Layouts(), InPlace())
    pipeline = Pipeline(core.windows.spec, None, keep_features=True)
    partitions: dict[str, int] = {}
    messages: list[Message] = []
    offsets: dict[int, int] = {}
    for record, message in recorded:
        if hasattr(record, "timestamps"):
            p = partitions.setdefault(record.host, len(partitions))
            offsets[p] = offsets.get(p, -1) + 1
            messages.append(Message(p, offsets[p], message, None))
    for at in range(0, len(messages), BATCH):
        pipeline.process(messages[at : at + BATCH], 0.0)


def _walk(items: Iterable[object]) -> None:
    for _ in items:
        pass


def _cpu(work: Callable[[], None]) -> float:
    """Return the CPU seconds of the best of a few runs: others may use this machine too."""
    times = []
    for _ in range(REPEATS):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)
