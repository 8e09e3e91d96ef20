"""What fitting and scoring cost, with a baseline of its own for each of 1,000 hosts.

A batch with one window of every host touches every baseline once, so nothing of them is in the
cache: the "cold" figure, which is the one that counts. For "warm", one host's windows are scored
one after another. Beside them, scikit-learn's own forest, one window at a time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TypeVar

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest

from models import forest
from models.bank import BaselineBank
from models.baseline import fit_baseline
from models.channels import ChannelTable
from models.episode import EpisodeBank
from models.features import FEATURES
from models.scale import standardize

T = TypeVar("T")
HOSTS, CHANNELS = 1000, 700
FITTED = 8
"""Baselines that are really fitted; every slot has a copy of its own of one of them."""
REPEATS = 10
STRIDE_US = 1_000_000


def main(as_json: bool) -> None:
    """Measure, half a minute on a quiet machine, and print."""
    rng = np.random.default_rng(0)
    table = _table()
    rows = _windows(rng, HOSTS)
    fit_baseline(_windows(rng, 30), table, seed=0, version=1)  # compile
    few, fit_few = _timed(lambda: fit_baseline(_windows(rng, 120), table, seed=0, version=1))
    _, fit_many = _timed(lambda: fit_baseline(_windows(rng, 600), table, seed=0, version=1))
    bank = BaselineBank(CHANNELS)
    fitted = [
        fit_baseline(_windows(rng, 120), table, seed=seed, version=1) for seed in range(FITTED)
    ]
    for slot in range(HOSTS):
        bank.set(slot, fitted[slot % FITTED])
    slots = rng.permutation(HOSTS)
    bank.score(slots, rows)
    cold = min(_timed(lambda: bank.score(slots, rows))[1] for _ in range(REPEATS)) / HOSTS
    one = np.zeros(HOSTS, np.int64)
    warm = min(_timed(lambda: bank.score(one, rows))[1] for _ in range(REPEATS)) / HOSTS
    figures = {
        "fit_120_windows_s": fit_few,
        "fit_600_windows_s": fit_many,
        "baseline_kb": few.nbytes / 1000,
        "baseline_bytes_kb": len(few.to_bytes()) / 1000,
        "score_cold_us": cold * 1e6,
        "score_warm_us": warm * 1e6,
        "scikit_learn_forest_us": _scikit_learn(rng, rows) * 1e6,
        "episodes_us": _episodes(slots) * 1e6,
    }
    if as_json:
        click.echo(json.dumps({"bench": "models", **figures}))
        return
    click.echo(
        f"  {HOSTS} hosts of {CHANNELS} channels, each with a baseline of its own of "
        f"{figures['baseline_kb']:.0f} kB ({figures['baseline_bytes_kb']:.0f} kB as bytes)\n"
        f"  fitted in {fit_few:.2f} s from 120 windows, {fit_many:.2f} s from 600\n"
        f"  scored in {cold * 1e6:.1f} us a window, cold; {warm * 1e6:.1f} us warm; episodes "
        f"{figures['episodes_us']:.2f} us\n"
        f"  scikit-learn's forest alone: {figures['scikit_learn_forest_us']:.0f} us a window"
    )


def _table() -> ChannelTable:
    subsystems = ("cpu", "memory", "network", "storage")
    return ChannelTable(
        metric=tuple(f"metric{c}" for c in range(CHANNELS)),
        device=("",) * CHANNELS,
        subsystem=tuple(subsystems[c * len(subsystems) // CHANNELS] for c in range(CHANNELS)),
        unit=("/s",) * CHANNELS,
        kind=("rate",) * CHANNELS,
    )


def _windows(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    return rng.normal(1000, 100, (count, len(FEATURES) * CHANNELS)).astype(np.float32)


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def _scikit_learn(rng: np.random.Generator, rows: NDArray[np.float32]) -> float:
    """Return seconds a window."""
    z = np.zeros(CHANNELS, np.float32)
    learned = standardize(_windows(rng, 120), z, z + 0.01)
    grown = IsolationForest(n_estimators=forest.TREES, max_samples=len(learned), random_state=0)
    grown.fit(learned)
    judged = standardize(rows, z, z + 0.01)[:20]
    grown.score_samples(judged[:1])
    return _timed(lambda: [grown.score_samples(row[None]) for row in judged])[1] / len(judged)


def _episodes(slots: NDArray[np.int64]) -> float:
    """Return seconds a quiet host."""
    episodes = EpisodeBank()
    quiet = np.zeros(len(slots), bool)
    seconds = []
    for window in range(1, REPEATS + 2):
        ends = np.full(len(slots), window * STRIDE_US)
        seconds.append(_timed(lambda e=ends: episodes.step(slots, e, quiet, STRIDE_US))[1])  # type: ignore[misc]
    return min(seconds) / len(slots)
