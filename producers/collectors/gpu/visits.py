"""Asking GPUs: who is asked, who asks together, and what becomes of one that does not answer.

To hand calls over to a thread and back costs as much CPU time as several of them, so sources that
are due in one tick ask together (`Visits.due`). What is known to take longer, or not known yet,
asks for itself: all that ask together wait together, and no longer than one alone would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from producers.collectors.gpu.lanes import Job, Lanes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a reading waits, once, for a GPU that hangs.

    Attributes
    ----------
    ask
        For an answer. It costs a tick.
    look
        For what a GPU offers, and for which there are.
    start
        For NVML to start: without persistence mode each GPU takes a second.
    """

    ask: float = 0.1
    look: float = 1.0
    start: float = 3.0


@dataclass(frozen=True, slots=True)
class Visit(Generic[T]):
    """What is to be asked of one GPU. `ask` must raise nothing."""

    uuid: str
    ask: Callable[[], T]


@dataclass(slots=True)
class Answers(Generic[T]):
    """What became of visits.

    Attributes
    ----------
    results
        Of each visit; None for a GPU that is lost or did not come back.
    spent_ns
        How long each took, or was waited for.
    cpu_ns
        CPU time that another thread spent on them.
    lent_ns
        How long the caller waited for visits of others as well; below zero, how long somebody else
        waited for these.
    """

    results: list[T | None]
    spent_ns: list[int]
    cpu_ns: int = 0
    lent_ns: int = 0


class Asker(Protocol):
    """A source that asks GPUs."""

    def wanted(self) -> Sequence[Visit[Any]]:
        """Return what it asks at every reading, where that is known and quickly answered.

        It returns the same object as long as it does not change.
        """


class Visits:
    """Makes the calls to GPUs.

    Parameters
    ----------
    lanes
        Makes them where they may hang.
    clock_ns
        Measures what they cost.
    patience
        How long a reading waits.

    Attributes
    ----------
    lost
        GPUs that are not asked, by UUID.
    """

    def __init__(self, lanes: Lanes, clock_ns: Callable[[], int], patience: Patience) -> None:
        self.lost: set[str] = set()
        self._lanes = lanes
        self._clock_ns = clock_ns
        self._patience = patience
        self._stuck: dict[str, Job[Any]] = {}
        self._working: list[Job[Any]] = []
        self._askers: dict[object, Asker] = {}
        self._due: Sequence[object] = ()
        self._given: dict[Asker, tuple[Sequence[Visit[Any]], Answers[Any]]] = {}

    def join(self, asker: Asker) -> None:
        """Let a source ask together with others that are due with it."""
        self._askers[asker] = asker

    def due(self, sources: Sequence[object]) -> None:
        """Hear which sources are read next, in one tick; others than those that joined, too."""
        self._due = sources
        self._given.clear()

    def ask(self, asker: Asker, visits: Sequence[Visit[T]]) -> Answers[T]:
        """Make the visits of a source: with those of all that are due, if it is the first."""
        waited_ns = 0
        if self._due:
            due, self._due = self._due, ()
            waited_ns = self._ask_together([self._askers[s] for s in due if s in self._askers])
        of, answers = self._given.pop(asker, ((), None))
        if answers is None or of is not visits:
            answers = self.visit(visits)
        for i, visit in enumerate(visits if self.lost else ()):
            if visit.uuid in self.lost:  # another source may have found that out only now
                answers.results[i] = None
        answers.lent_ns += waited_ns
        return answers

    def _ask_together(self, due: Iterable[Asker]) -> int:
        """Make the visits that several sources want, and return how long that took."""
        wanted = [(asker, visits) for asker in due if (visits := asker.wanted())]
        if len(wanted) <= 1:
            return 0
        every = self.visit([visit for _, visits in wanted for visit in visits])
        whole_ns = sum(every.spent_ns)
        at = 0
        for asker, visits in wanted:
            part = slice(at, at + len(visits))
            at = part.stop
            spent_ns = sum(every.spent_ns[part])
            cpu_ns = every.cpu_ns * spent_ns // max(whole_ns, 1)
            answers = Answers(every.results[part], every.spent_ns[part], cpu_ns, -spent_ns)
            self._given[asker] = visits, answers
        return whole_ns

    def visit(self, visits: Sequence[Visit[T]], patience_s: float = 0.0) -> Answers[T]:
        """Ask GPUs, one after the other."""
        patience_s = patience_s or self._patience.ask
        answers: Answers[T] = Answers([None] * len(visits), [0] * len(visits))
        todo = [i for i, visit in enumerate(visits) if not self.is_away(visit.uuid)]
        while todo:
            before_ns = self._clock_ns()
            job = Job([visits[i].ask for i in todo], self._clock_ns)
            self._lanes.run(job, patience_s)
            answers.cpu_ns += job.cpu_ns
            came = list(job.results)
            for i, result, spent_ns in zip(todo, came, job.spent_ns, strict=False):
                answers.results[i], answers.spent_ns[i] = result, spent_ns
            if len(came) == len(todo):
                break
            job.leave = True
            hung = todo[len(came)]
            waited_ns = self._clock_ns() - before_ns - sum(job.spent_ns[: len(came)])
            answers.spent_ns[hung] = waited_ns
            if not job.done:
                self._stuck[visits[hung].uuid] = job
            todo = [i for i in todo[len(came) + 1 :] if not self.is_away(visits[i].uuid)]
        return answers

    def start(self, job: Job[Any]) -> None:
        """Do a job that takes long, and do not wait for it."""
        self._working.append(job)
        self._lanes.run(job, 0.0)

    def is_away(self, uuid: str) -> bool:
        """Return whether a GPU is lost, or a call to it has not come back."""
        return uuid in self.lost or uuid in self._stuck

    def count_out(self) -> int:
        """Return how many calls have not come back, after a look at those that had not."""
        self._stuck = {uuid: job for uuid, job in self._stuck.items() if not job.done}
        self._working = [job for job in self._working if not job.done]
        return len(self._stuck) + len(self._working)
