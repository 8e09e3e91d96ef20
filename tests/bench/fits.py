"""Fits shared between simulated hosts, so that a bench learns in seconds and not in minutes.

Hosts that go round the same pattern have seen the same windows, only in another order. One
fit serves them all; everything else, the baseline's place in memory included, is each host's own.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import numpy as np

from models.baseline import Baseline
from streams.fitting import fitting_process


class SharedFits(Executor):
    """Passes a fit on, unless one from the same windows is there or under way."""

    def __init__(self) -> None:
        self._process = fitting_process()
        self._fits: dict[int, Future[Baseline]] = {}

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Fit, or wait for the same fit; the baseline gets the version that was asked for."""
        windows, version = args[0], kwargs["version"]
        key = hash(frozenset(row.tobytes() for row in np.asarray(windows)))
        fit = self._fits.get(key)
        if fit is None:
            fit = self._fits[key] = self._process.submit(fn, *args, **kwargs)
        mine: Future[Any] = Future()

        def done(fit: Future[Baseline]) -> None:
            error = fit.exception()
            if error is not None:
                mine.set_exception(error)
            else:
                mine.set_result(replace(fit.result(), version=version))

        fit.add_done_callback(done)
        return mine
