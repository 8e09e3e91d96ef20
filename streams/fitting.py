"""Where baselines are fitted: in a process of its own, so that no window waits for it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.baseline import Baseline, Tuning, fit_baseline
from models.channels import ChannelTable
from models.novelty import Usual
from models.scale import learned_width
from schemas.records import Floats

NICENESS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A baseline, and what is known beside it.

    `note` is what is to be said of it, usually nothing. `data` is the baseline as bytes, where it
    is to be kept.
    """

    version: int
    baseline: Baseline
    usual: Usual
    note: str
    data: bytes = b""


def learn(
    windows: Floats,
    channels: ChannelTable,
    *,
    seed: int,
    version: int,
    note: str,
    keep: bool,
    tuning: Tuning,
) -> Learned:
    """Make a baseline of windows, shape ``(windows, learned_width)``; `keep` asks for its bytes.

    Raises
    ------
    CannotLearn
        As `fit_baseline` does.
    """
    baseline = fit_baseline(windows, channels, seed=seed, version=version, tuning=tuning)
    usual = Usual.of(windows[:, : len(channels)])
    # Compressing takes a while too: better here than in the stream.
    return Learned(version, baseline, usual, note, baseline.to_bytes() if keep else b"")


def fitting_process() -> Executor:
    """Return an executor of one process, which ends when this one does, however that ends.

    It starts at once, and gets ready: were it to load scikit-learn from disk only when the first
    host has been learned, that would be the first thing to be noticed on the worker's own host.
    """
    executor = ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare
    )
    executor.submit(_warm_up)
    return executor


class InPlace(Executor):
    """Runs what is submitted at once, in the caller: for replay, where order is everything."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn` and return its outcome as a finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as e:  # the future carries it, as an executor's does
            future.set_exception(e)
        return future


def _prepare() -> None:
    os.nice(NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _warm_up() -> None:
    """Fit a baseline of nothing in particular: imports and compiled code are in memory after."""
    channels = 8
    row = ("",) * channels
    table = ChannelTable(row, row, ("cpu",) * channels, ("%",) * channels, ("rate",) * channels)
    windows = np.random.default_rng(0).normal(50, 20, (60, learned_width(channels)))
    learn(windows.astype(np.float32), table, seed=0, version=0, note="", keep=True, tuning=Tuning())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
