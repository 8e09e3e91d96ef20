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

Calls: nvmlInit_v2, nvmlShutdown, and those of `producers.collectors.gpu.devices`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from producers.collectors.gpu.devices import Device, Found, find_devices
from producers.collectors.gpu.lanes import Job, Lanes, Threads
from producers.collectors.gpu.nvml import Nvml, in_short, load
from producers.collectors.gpu.visits import Patience, Visits
from producers.reading import Reader
from producers.source import SECOND_NS

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
    visits
        Asks the devices.
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
        self.patience = Patience() if patience is None else patience
        self._lanes: Lanes = Threads() if lanes is None else lanes
        self.visits = Visits(self._lanes, clock_ns, self.patience)
        self._nvml: Nvml | None = None
        self._used: Nvml | None = None  # started once, so to be shut down before the next start
        self._count = 0
        self._out: Job[Found] | None = None
        self._out_is_start = False
        self._started_ns = 0
        self._tries = 0
        self._retry_ns: int | None = None
        self._look_ns = 0
        self._at_ns = -1

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

    def due(self, sources: Sequence[object]) -> None:
        """Hear which sources are read next, in one tick."""
        self.visits.due(sources)

    def lose(self, uuid: str) -> None:
        """Say that a GPU's handle has become worthless."""
        lost = self.visits.lost
        if uuid not in lost:
            lost.add(uuid)
            if self._retry_ns is None:
                if self._at_ns - self._started_ns > CALM_NS:
                    self._tries = 0
                self._retry_later(self._at_ns)

    def _keep_up(self, reader: Reader, mono_ns: int) -> None:
        out = self.visits.count_out()
        if self._out is not None:
            if self._out.done:
                self._take(self._out, mono_ns)
            return
        if self._retry_ns is None and self._used is None:
            self._retry_ns = mono_ns
        if out:
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
            self.visits.lost.clear()
            self._started_ns = mono_ns
            self.starts += 1
        self.visits.lost |= {device.uuid for device in kept}
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
