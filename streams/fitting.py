"""Where baselines are fitted: in a process of its own, so that no window waits for it."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

NICENESS = 10


def fitting_process() -> Executor:
    """Return an executor of one process, which ends when this one does, however that ends."""
    return ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare
    )


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


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
