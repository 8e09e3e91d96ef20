"""``reveal baseline``: what a host's baseline is made of, and which channels stand for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.case import NothingWatched
from deploy.replay import open_recording
from deploy.wording import count_of, printable
from schemas.flags import with_settings
from schemas.settings import Resolved
from streams.config import WorkerSettings

if TYPE_CHECKING:
    from models.baseline import Baseline
    from models.channels import ChannelTable

SHOWN = 6
"""Channels that are named of those that one stands for."""


@click.command()
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One object a host.")
@with_settings(worker=WorkerSettings)
def baseline(recording: Path, as_json: bool, settings: Resolved) -> None:
    """Learn from RECORDING and print what each host is judged by.

    Which channels moved, which stand for themselves and which for others (`--prune 0.5` as in the
    paper), the detectors, and the threshold.
    """
    from streams.replay import Replay

    worker = settings.get("worker", WorkerSettings)
    run = Replay(worker)
    for _ in run.run(open_recording(recording)):
        pass
    learned = run.baselines()
    if not learned:
        raise NothingWatched(
            f"{recording}: no host was learned within it with baseline_seconds = "
            f"{worker.baseline_seconds}: give a shorter --baseline-seconds"
        )
    for host, (found, channels) in sorted(learned.items()):
        told = describe(found, channels)
        if as_json:
            click.echo(json.dumps({"host": host, **told}))
        else:
            _print(host, told)


def describe(found: Baseline, channels: ChannelTable) -> dict[str, Any]:
    """Return what a baseline is made of, under plain names."""
    from models.mode import DETECTORS, Mode
    from models.prune import NOBODY
    from models.scale import scored_channels

    labels = [
        f"{metric}[{device}]" if device else metric
        for metric, device in zip(channels.metric, channels.device, strict=True)
    ]
    scored = scored_channels(channels)
    stands: dict[int, list[int]] = {}
    for channel, other in enumerate(found.stands.tolist()):
        if other != NOBODY and scored[channel]:
            stands.setdefault(other, []).append(channel)
    return {
        "version": found.version,
        "mode": found.mode,
        "windows": found.windows,
        "bytes": found.nbytes,
        "channels": len(channels),
        "not_scored": int((~scored).sum()),
        "constant_or_absent": int((scored & (found.stands == NOBODY)).sum()),
        "representatives": {
            labels[one]: [labels[c] for c in others if c != one] for one, others in stands.items()
        },
        "threshold": float(found.open_at[0]),
        "thresholds": dict(
            zip(DETECTORS[Mode(found.mode)], found.thresholds.tolist(), strict=True)
        ),
    }


def _print(host: str, told: dict[str, Any]) -> None:
    kept = told["representatives"]
    pruned = sum(map(len, kept.values()))
    click.echo(
        f"{printable(host)}: version {told['version']}, mode {told['mode']}, learned from "
        f"{count_of(told['windows'], 'window')}, {told['bytes'] / 1000:.0f} kB\n"
        f"  {told['channels']} channels: {told['not_scored']} are not scored, "
        f"{told['constant_or_absent']} stood still or were absent, {len(kept)} stand for "
        f"themselves and {pruned} more\n"
        f"  a window is odd from a fused score of {told['threshold']:.2f} on; each detector from "
        + ", ".join(f"{name} {value:.3g}" for name, value in told["thresholds"].items())
    )
    for one, others in sorted(kept.items(), key=lambda item: -len(item[1])):
        if others:
            more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
            names = ", ".join(map(printable, others[:SHOWN]))
            click.echo(f"    {printable(one)} stands for {names}{more}")
