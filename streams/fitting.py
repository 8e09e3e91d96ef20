"""Where baselines are fitted: in a process of its own, so that no window waits for it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

import numpy as np

from models.baseline import fit_baseline
from models.channels import ChannelTable
from models.scale import scored_width

NICENESS = 10


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
    windows = np.random.default_rng(0).normal(50, 20, (60, scored_width(channels)))
    fit_baseline(windows.astype(np.float32), table, seed=0, version=0)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
