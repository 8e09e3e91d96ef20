"""Calls that may hang, made where they hang nobody.

A driver call for a GPU that fell off its bus can take seconds, or never return, and nothing can
interrupt it. So calls are made by a thread, and who asks waits for a limited time. A thread that
does not come back is left alone: another takes its place, and it is used again when its call did
return. In between it costs nothing. Handing over and back costs 15 to 50 us, which is why whole
jobs are handed over, not single calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """Steps to be done one after the other; `clock_ns` measures them.

    Attributes
    ----------
    results
        Of the steps that are done, in order. The step under way is the one after these.
    spent_ns
        How long each of these took, nanoseconds.
    done
        Nothing of it will happen any more.
    leave
        Set it to stop after the step under way.
    cpu_ns
        CPU time that its steps took, where another thread than the caller's did them.
    """

    def __init__(
        self,
        steps: Sequence[Callable[[], T]],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.results: list[T] = []
        self.spent_ns: list[int] = []
        self.done = False
        self.leave = False
        self.cpu_ns = 0
        self.error: Exception | None = None
        self._steps = steps
        self._clock_ns = clock_ns

    def run(self, *, elsewhere: bool = False) -> None:
        """Do the steps. What raises ends the job, and is kept in `error`."""
        results, clock_ns = self.results, self._clock_ns
        before = time.thread_time_ns() if elsewhere else 0
        try:
            began_ns = clock_ns()
            for step in self._steps:
                result = step()
                ended_ns = clock_ns()
                self.spent_ns.append(ended_ns - began_ns)  # first: who looks counts the results
                results.append(result)
                began_ns = ended_ns
                if self.leave:
                    break
        except Exception as e:
            self.error = e
        if elsewhere:
            self.cpu_ns = time.thread_time_ns() - before
        self.done = True


class Lanes(Protocol):
    """Does jobs."""

    def run(self, job: Job[T], patience_s: float) -> bool:
        """Do a job; return whether it was done in time. If not, it goes on by itself."""


class Inline:
    """Does jobs on the spot, whatever they take: for tests, and for what cannot hang."""

    def run(self, job: Job[T], patience_s: float) -> bool:  # noqa: ARG002
        """Do a job."""
        job.run()
        return True


class Threads:
    """Does jobs in threads: one, as long as every job comes back in time."""

    def __init__(self) -> None:
        self._free: list[_Lane] = []
        self._away: list[_Lane] = []

    def run(self, job: Job[T], patience_s: float) -> bool:
        """Do a job, and wait for it as long as `patience_s`."""
        lane = self._free.pop() if self._free else self._another()
        if lane.run(job, patience_s):
            self._free.append(lane)
            return True
        self._away.append(lane)
        return job.done

    @property
    def away(self) -> int:
        """How many threads have not come back yet."""
        self._fetch()
        return len(self._away)

    def _another(self) -> _Lane:
        self._fetch()
        return self._free.pop() if self._free else _Lane()

    def _fetch(self) -> None:
        away: list[_Lane] = []
        for lane in self._away:
            (self._free if lane.is_back() else away).append(lane)
        self._away = away


class _Lane:
    def __init__(self) -> None:
        # Two locks, each let go by one side and taken by the other: the cheapest way to and fro.
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._job: Job[object] | None = None
        # A daemon: a call that never returns must not keep the agent from ending.
        threading.Thread(target=self._serve, name="nvml", daemon=True).start()

    def run(self, job: Job[T], patience_s: float) -> bool:
        self._job = job  # type: ignore[assignment]  # it only runs it
        self._go.release()
        return self._back.acquire(timeout=patience_s)

    def is_back(self) -> bool:
        return self._back.acquire(blocking=False)

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            if self._job is not None:
                self._job.run(elsewhere=True)
                self._job = None
            self._back.release()
