"""NVML as an agent keeps it: started when it can be, the GPUs there are, what became of them.

Everything that asks NVML shares one session. A GPU's name is its UUID, whatever number the driver
gives it. What can go wrong, and what is done:

=========================== ======================================================================
what                        what is done
=========================== ======================================================================
no library, no driver       nothing is there; tried again after 1 s, 2 s, 4 s, and so on to 300 s,
                            and from the start of that when the driver's list of GPUs changes
a call does not come back   that GPU is not asked until the call did; the others are, by another
                            thread (`producers.collectors.gpu.lanes`)
a GPU is lost, the driver   that GPU is not asked; NVML is started anew after 1 s, 2 s and so on
was loaded again            to 60 s, but not while a call is still out
a GPU appears or vanishes   /proc/driver/nvidia/gpus or NVML's count differs: NVML is started anew
MIG devices appear, vanish  `Session.devices` is another tuple, and so every source looks anew
=========================== ======================================================================

Sources that are due in one tick ask together (`Session.due`): to hand calls over to a thread and
back costs as much CPU time as several of them.

Calls: nvmlInit_v2, nvmlShutdown, and those of `producers.collectors.gpu.devices`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from producers.collectors.gpu.devices import Device, Found, find_devices
from producers.collectors.gpu.lanes import Job, Lanes, Threads
from producers.collectors.gpu.nvml import Nvml, in_short, load
from producers.reading import Reader
from producers.source import SECOND_NS

T = TypeVar("T")

GPUS = "proc/driver/nvidia/gpus"
"""A directory for each GPU that the driver has, by bus id."""

LOOK_NS = 5 * SECOND_NS
"""So often it is looked which GPUs there are."""
WAIT_NS = SECOND_NS
"""So often it is looked whether the driver came, while it is not there."""
RETRY_NS = SECOND_NS
RETRY_MOST_NS = 300 * SECOND_NS
CALM_NS = 2 * RETRY_MOST_NS
"""After so long without a start, a loss is the first again."""


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


class Session:
    """One agent's use of NVML.

    Parameters
    ----------
    load
        Returns the module `pynvml`, or what stands in for it.
    lanes
        Makes the calls.
    clock_ns
        Measures what calls cost.
    patience
        How long a reading waits.

    Attributes
    ----------
    devices
        What there is; the same object as long as all that was found out about it holds.
    listed
        The GPUs that the kernel's driver has, by bus id, and whether NVML knows them or not; looked
        at every few seconds. None where there is no such driver.
    starts
        How often NVML was started: what it gave before, handles and all, is worthless.
    problem
        Why there is nothing; empty when there is.
    """

    def __init__(
        self,
        load: Callable[[], Nvml] = load,
        *,
        lanes: Lanes | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        patience: Patience | None = None,
    ) -> None:
        self.devices: tuple[Device, ...] = ()
        self.listed: tuple[str, ...] | None = None
        self.starts = 0
        self.problem = "not started"
        self.clock_ns = clock_ns
        self._load = load
        self._lanes: Lanes = Threads() if lanes is None else lanes
        self.patience = Patience() if patience is None else patience
        self._nvml: Nvml | None = None
        self._used: Nvml | None = None  # started once, so to be shut down before the next start
        self._count = 0
        self._out: Job[Found] | None = None
        self._out_is_start = False
        self._lost: set[str] = set()
        self._stuck: dict[str, Job[Any]] = {}
        self._working: list[Job[Any]] = []
        self._started_ns = 0
        self._tries = 0
        self._retry_ns: int | None = None
        self._look_ns = 0
        self._at_ns = -1
        self._askers: dict[object, Asker] = {}
        self._due: Sequence[object] = ()
        self._given: dict[Asker, tuple[Sequence[Visit[Any]], Answers[Any]]] = {}

    @property
    def generation(self) -> object:
        """The devices: another object when they have to be looked at again.

        So is a start of NVML that came back late: the next reading takes what it found.
        """
        out = self._out
        return out if out is not None and self._out_is_start and out.done else self.devices

    @property
    def uuids(self) -> Mapping[str, str]:
        """The UUID of each GPU by its bus id."""
        return {device.bus_id: device.uuid for device in self.devices}

    def ready(self, reader: Reader, mono_ns: int) -> Nvml | None:
        """Return NVML when there is something to ask; else `problem` says why not.

        What is due is done at the first call for a time: starting, and looking for devices.
        """
        if mono_ns != self._at_ns:
            self._at_ns = mono_ns
            self._keep_up(reader, mono_ns)
        return self._nvml

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
        for i, visit in enumerate(visits if self._lost else ()):
            if visit.uuid in self._lost:  # another source may have found that out only now
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
        patience_s = patience_s or self.patience.ask
        answers: Answers[T] = Answers([None] * len(visits), [0] * len(visits))
        todo = [i for i, visit in enumerate(visits) if not self.is_away(visit.uuid)]
        while todo:
            before_ns = self.clock_ns()
            job = Job([visits[i].ask for i in todo], self.clock_ns)
            self._lanes.run(job, patience_s)
            answers.cpu_ns += job.cpu_ns
            came = list(job.results)
            for i, result, spent_ns in zip(todo, came, job.spent_ns, strict=False):
                answers.results[i], answers.spent_ns[i] = result, spent_ns
            if len(came) == len(todo):
                break
            job.leave = True
            hung = todo[len(came)]
            waited_ns = self.clock_ns() - before_ns - sum(job.spent_ns[: len(came)])
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
        return uuid in self._lost or uuid in self._stuck

    def lose(self, uuid: str) -> None:
        """Say that a GPU's handle has become worthless."""
        if uuid not in self._lost:
            self._lost.add(uuid)
            if self._retry_ns is None:
                if self._at_ns - self._started_ns > CALM_NS:
                    self._tries = 0
                self._retry_later(self._at_ns)

    def _keep_up(self, reader: Reader, mono_ns: int) -> None:
        for uuid in [uuid for uuid, job in self._stuck.items() if job.done]:
            del self._stuck[uuid]
        if self._out is not None:
            if self._out.done:
                self._take(self._out, mono_ns)
            return
        if self._retry_ns is None and self._used is None:
            self._retry_ns = mono_ns
        self._working = [job for job in self._working if not job.done]
        if self._stuck or self._working:
            return  # NVML must not be shut down during a call
        due = self._retry_ns is not None and mono_ns >= self._retry_ns
        look_ns = WAIT_NS if self._nvml is None else LOOK_NS
        if not due and not 0 <= mono_ns - self._look_ns < look_ns:
            self._look_ns = mono_ns
            before, self.listed = self.listed, self._kernel_list(reader)
            due = self.listed != before
            if due:
                self._tries = 0  # a driver that is just being loaded may need some
            if not due and self._nvml is not None:
                self._ask(mono_ns, start=False, patience_s=self.patience.look)
        if due:
            self.listed = self._kernel_list(reader)
            self._look_ns = mono_ns
            self._ask(mono_ns, start=True, patience_s=self.patience.start)

    @staticmethod
    def _kernel_list(reader: Reader) -> tuple[str, ...] | None:
        listed = reader.list(GPUS)
        return listed if isinstance(listed, tuple) else None

    def _ask(self, mono_ns: int, *, start: bool, patience_s: float) -> None:
        load, used = self._load, self._used

        def find() -> Found:
            if not start and used is not None:
                return find_devices(used)
            if used is not None:
                with contextlib.suppress(Exception):
                    used.nvmlShutdown()
            nvml = load()
            nvml.nvmlInit()
            return find_devices(nvml)

        self._out, self._out_is_start = Job((find,)), start
        if self._lanes.run(self._out, patience_s):
            self._take(self._out, mono_ns)
        elif start:
            self._nvml = None
            self.problem = "NVML takes long to start"

    def _take(self, job: Job[Found], mono_ns: int) -> None:
        """Go on with what a start or a look found."""
        self._out = None
        if job.error is not None:
            if self._out_is_start or self._nvml is None:
                self._nvml = None
                self.problem = f"NVML: {in_short(job.error)}"
            self._retry_later(mono_ns)
            return
        (found,) = job.results
        self._used = found.nvml
        if not self._out_is_start and found.count != self._count:
            self._retry_ns = mono_ns  # NVML has to be started anew to give handles
            return
        kept = self._unreachable(found)
        if self._out_is_start:
            self._lost.clear()
            self._started_ns = mono_ns
            self.starts += 1
        self._lost |= {device.uuid for device in kept}
        devices = tuple(sorted((*found.devices, *kept), key=lambda d: d.bus_id))
        before = [(d.label, d.instance) for d in self.devices]
        if self._out_is_start or before != [(d.label, d.instance) for d in devices]:
            self.devices = devices
        self._count = found.count
        self._nvml = found.nvml if devices else None
        self.problem = "" if devices else "NVML: the driver has no GPU"
        if self._out_is_start:
            self._retry_ns = None
        if self._retry_ns is None and (found.unreachable or not devices):
            self._retry_later(mono_ns)

    def _unreachable(self, found: Found) -> Iterable[Device]:
        """Return devices of before whose GPU is counted, but cannot be reached now."""
        here = {device.uuid for device in found.devices}
        missing = [device for device in self.devices if device.uuid not in here]
        room = sorted({d.uuid for d in missing}, key=[d.uuid for d in missing].index)
        return [d for d in missing if d.uuid in room[: found.unreachable]]

    def _retry_later(self, mono_ns: int) -> None:
        self._retry_ns = mono_ns + min(RETRY_NS << min(self._tries, 10), RETRY_MOST_NS)
        self._tries += 1
