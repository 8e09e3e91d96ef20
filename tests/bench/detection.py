"""How well detectors rank what is odd, on labelled telemetry of real servers: SMD and ASD.

Fitted on each machine's train split, scored on its test split, sample by sample, without point
adjustment. A sample is taken for a window whose mean it is; values lie between 0 and 1, so they are
shown in percent, and a scale's floor is one percent of that range. Beside our detectors two plain
formulas over the same standardised samples, and the share of samples as chance would have it.

The data lie in ``shared/data`` beside the checkout.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from models.bank import DETECTORS, BaselineBank
from models.baseline import fit_baseline
from models.channels import ChannelTable
from models.features import FEATURES
from models.ranking import auc_pr, vus_pr
from models.scale import fit_scale, standardize

DATA = Path(__file__).parents[3] / "shared" / "data"
SETS = ("smd", "asd")
RIDGE = 0.01
"""Times the mean variance, on the diagonal of the covariance."""

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


class Machine(NamedTuple):
    """One server: samples of shape ``(samples, channels)`` in percent, labels ``(samples,)``."""

    name: str
    train: Floats
    test: Floats
    odd: NDArray[np.bool_]


def machines(name: str) -> list[Machine]:
    """Return the machines of a data set; none where it is not here."""
    found = []
    for path in sorted((DATA / name).glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            train, test = 100 * arrays["train"], 100 * arrays["test"]
            found.append(Machine(path.stem, train, test, arrays["label"] > 0))
    return found


def scores(machine: Machine) -> dict[str, Doubles]:
    """Return the scores of the test split by each way of scoring."""
    channels = machine.train.shape[1]
    names = tuple(f"m.c{i}" for i in range(channels))
    # A unit of its own for each, so that no channel is held against another's level.
    table = ChannelTable(names, ("",) * channels, ("cpu",) * channels, names, ("gauge",) * channels)
    baseline = fit_baseline(machine.train, table, seed=0, version=1)
    bank = BaselineBank(channels)
    bank.set(0, baseline)
    rows = np.zeros((len(machine.test), len(FEATURES) * channels), np.float32)
    rows[:, :channels] = machine.test
    found = bank.score(np.zeros(len(rows), np.int64), rows)
    scale = fit_scale(machine.train, table)
    train = standardize(machine.train, scale.location, scale.inverse).astype(np.float64)
    test = standardize(machine.test, scale.location, scale.inverse).astype(np.float64)
    covariance = np.cov(train.T)
    covariance += RIDGE * np.trace(covariance) / channels * np.eye(channels)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), test.T)
    return {
        **{name: found.raw[:, i] for i, name in enumerate(DETECTORS)},
        "fused": found.fused,
        "vote": found.over.sum(axis=1).astype(np.float64),
        "mean |z|": np.abs(test).mean(axis=1),
        "ridge Mahalanobis": np.sqrt((whitened**2).sum(axis=0)),
    }


def main(as_json: bool) -> None:
    """Measure for a few minutes and print."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name in SETS:
        areas: dict[str, list[tuple[float, float]]] = {}
        began = time.perf_counter()
        found = machines(name)
        if not found:
            click.echo(f"{DATA / name} is not here: nothing to measure on", err=True)
            continue
        for machine in found:
            for way, score in scores(machine).items():
                area = vus_pr(machine.odd, score), auc_pr(machine.odd, score)
                areas.setdefault(way, []).append(area)
        figures[name] = {
            way: dict(zip(("vus_pr", "auc_pr"), np.mean(values, axis=0).tolist(), strict=True))
            for way, values in areas.items()
        }
        chance = float(np.mean([machine.odd.mean() for machine in found]))
        figures[name]["chance"] = {"vus_pr": float("nan"), "auc_pr": chance}
        if not as_json:
            took = time.perf_counter() - began
            click.echo(f"  {name}: {len(found)} machines in {took:.0f} s")
    if as_json:
        click.echo(json.dumps({"bench": "detection", "sets": figures}).replace("NaN", "null"))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("mean over machines")
    for name in figures:
        table.add_column(f"{name} VUS-PR", justify="right")
        table.add_column(f"{name} AUC-PR", justify="right")
    ways = list(dict.fromkeys(way for areas in figures.values() for way in areas))
    for way in ways:
        cells = [f"{areas[way][k]:.3f}" for areas in figures.values() for k in ("vus_pr", "auc_pr")]
        table.add_row(way, *cells)
    Console(width=100).print(table)
