"""How well the detectors rank what is odd, and what their episodes are worth.

SMD and ASD: telemetry of real servers, fitted on each machine's train split, judged on its test
split, without point adjustment; windows of five samples, one for each sample. VUS-PR and AUC-PR of
the fused score and of every single detector, in both modes; events that an episode overlaps, and
false episodes a machine and day, at the default settings. Campaigns: recordings of a real training
job with injected faults, through the whole pipeline.

The data lie in ``shared/data`` beside the checkout.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from deploy.case import recorded_case
from deploy.figures import figures
from models.bank import BaselineBank, BatchScores
from models.baseline import Tuning, fit_baseline
from models.channels import ChannelTable
from models.episode import EpisodeBank, Phase
from models.mode import DETECTORS, Mode
from models.ranking import auc_pr, runs, vus_pr
from streams.config import WorkerSettings

DATA = Path(__file__).parents[3] / "shared" / "data"
SAMPLE_S = {"smd": 60, "asd": 300}
WINDOW = 5
GRACE = 5
"""Samples after an event in which an episode is still its own."""
DAY_S = 86_400
CLEAN_S = 280
"""Of a campaign, that are learned from."""
CAMPAIGN_FIGURES = (
    *("events", "event_recall", "delay_p50_s", "false_episodes", "false_episodes_per_hour"),
    *("subsystem_accuracy", "cause_accuracy", "cause_accuracy_at_open", "auc_pr", "vus_pr"),
)

Floats = NDArray[np.float32]


class Machine(NamedTuple):
    """One server: windows of its samples as features, labels of the test split ``(samples,)``."""

    name: str
    channels: int
    train: Floats
    test: Floats
    odd: NDArray[np.bool_]


def machines(name: str) -> Iterator[Machine]:
    """Yield the machines of a data set; none where it is not here."""
    for path in sorted((DATA / name).glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            train, test, odd = arrays["train"], arrays["test"], arrays["label"] > 0
        rows = features(np.concatenate([train, test]))
        yield Machine(path.stem, train.shape[1], rows[: len(train)], rows[len(train) :], odd)


def features(samples: Floats) -> Floats:
    """Return mean, deviation, lowest and highest of the last `WINDOW` samples, for each sample."""
    padded = np.concatenate([np.repeat(samples[:1], WINDOW - 1, axis=0), samples])
    view = sliding_window_view(padded, WINDOW, axis=0).astype(np.float64)
    parts = (view.mean(axis=-1), view.std(axis=-1), view.min(axis=-1), view.max(axis=-1))
    return np.concatenate(parts, axis=1).astype(np.float32)


def judge(machine: Machine, mode: Mode, sample_s: int) -> dict[str, float]:
    """Return the figures of one machine."""
    count = machine.channels
    names = tuple(f"c{i}" for i in range(count))
    table = ChannelTable(names, ("",) * count, ("cpu",) * count, ("",) * count, ("gauge",) * count)
    tuning = Tuning(mode=mode, stride_s=sample_s, overlap=WINDOW - 1)
    bank = BaselineBank(count, mode)
    bank.set(0, fit_baseline(machine.train, table, seed=0, version=1, tuning=tuning))
    scores = bank.score(np.zeros(len(machine.test), np.int64), machine.test)
    ranked = {"fused": scores.fused} | {
        name: scores.raw[:, i] for i, name in enumerate(DETECTORS[mode])
    }
    found = {f"{name} VUS-PR": vus_pr(machine.odd, s) for name, s in ranked.items()}
    found |= {f"{name} AUC-PR": auc_pr(machine.odd, s) for name, s in ranked.items()}
    told = episodes(scores)
    events = runs(machine.odd)
    recall = np.mean([any(a <= end and b >= start for a, b in told) for start, end in events])
    false = sum(all(a > end + GRACE or b < start for start, end in events) for a, b in told)
    found["event recall"] = float(recall)
    found["false episodes a day"] = false * DAY_S / (len(machine.odd) * sample_s)
    return found


def episodes(scores: BatchScores) -> list[tuple[int, int]]:
    """Return first and last sample of each episode."""
    count = len(scores.fused)
    bank = EpisodeBank()
    ends = np.arange(1, count + 1)
    told: list[tuple[int, int]] = []
    for event in bank.step(np.zeros(count, np.int64), ends, scores.flagged, 1, scores.odd):
        if event.phase is Phase.OPEN:
            told.append((event.index, event.index))
        told[-1] = told[-1][0], event.index
    return told


def campaigns() -> dict[str, dict[str, Any]]:
    """Return the figures of each campaign that is here, learned from its clean part."""
    found = {}
    for folder in sorted(DATA.glob("campaign-*")):
        worker = WorkerSettings.model_validate({"baseline_seconds": CLEAN_S})
        case = recorded_case(folder / "raw.avro", folder / "labels.json", worker)
        seen = case.watch()
        done, counted = case.judge(seen)
        every = figures(done, seen.ranking(counted))
        found[folder.name] = {name: every[name] for name in CAMPAIGN_FIGURES}
    return found


def main(as_json: bool) -> None:
    """Measure for a few minutes and print."""
    means: dict[str, dict[str, dict[str, float]]] = {}
    for name, sample_s in SAMPLE_S.items():
        began = time.perf_counter()
        here = list(machines(name))
        if not here:
            click.echo(f"{DATA / name} is not here: nothing to measure on", err=True)
            continue
        for mode in Mode:
            one_by_one = [judge(machine, mode, sample_s) for machine in here]
            keys = one_by_one[0]
            means.setdefault(name, {})[mode.value] = {
                key: float(np.mean([one[key] for one in one_by_one])) for key in keys
            }
        if not as_json:
            took = time.perf_counter() - began
            click.echo(f"  {name}: {len(here)} machines in {took:.0f} s")
    by_campaign = campaigns()
    if as_json:
        click.echo(json.dumps({"bench": "detection", "sets": means, "campaigns": by_campaign}))
        return
    console = Console(width=110)
    for mode in Mode:
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column(f"mode {mode.value}, mean over machines")
        for name in means:
            table.add_column(name.upper(), justify="right")
        for key in dict.fromkeys(k for sets in means.values() for k in sets[mode.value]):
            table.add_row(key, *(f"{sets[mode.value][key]:.3f}" for sets in means.values()))
        console.print(table)
    for name, shown in by_campaign.items():
        click.echo(f"  {name}: " + ", ".join(f"{k} {v:.3g}" for k, v in shown.items()))
