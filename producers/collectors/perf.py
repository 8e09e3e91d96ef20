"""What the cores do with their cycles: hardware and software events of perf_event_open(2).

Which events there are, and what they mean by vendor, is in `producers.perf_catalog`; how counts
become rates although events take turns, in `producers.perf.counters`. All of it is system-wide:
whatever runs, in user and kernel mode.

Every metric is a sum over all cores; with ``--perf per-core`` each core has its own as well. Of a
core that cannot be read in a tick, the sum takes the others' mean. A ratio is that of two rates:

======================== ============================================== ======================
metric                   is                                             unit
======================== ============================================== ======================
perf.ipc                 instructions / cycles                          instructions/cycle
perf.branch_miss_ratio   branch misses / branches                       %
perf.cache_miss_ratio    cache misses / cache references                %
perf.l3_miss_ratio       L3 misses / L3 references (AMD)                %
perf.stall_ratio         stalls / cycles                                %
perf.l3_miss_stall_ratio stalls with a load that missed L3 / cycles     %
perf.memory_stall_ratio  stalls that wait for memory / cycles           %
perf.frontend_stall_ratio, perf.backend_stall_ratio                     %
perf.occupancy           cycles / cycles of the time stamp: above 100   %
                         on a busy core that runs faster than its base
======================== ============================================== ======================

Context switches and faults are in /proc/stat and /proc/vmstat too; migrations are not. Clocks
(task-clock, cpu-clock) are left out: system-wide they count the time that goes by.

A reading costs a system call and an interrupt of the core for each group and core, so on a big
host they are made less often: `producers.perf.counters.CALLS_PER_SECOND`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from producers.perf import catalog
from producers.perf.catalog import PMUS
from producers.perf.channels import Shape, shape_and_plan
from producers.perf.counters import Counters, period_ns
from producers.perf.events import Event, Kernel, SystemKernel, cpu_list
from producers.reading import Reader
from producers.source import EVERY_TICK, SECOND_NS, Collector, Options, Plan

ONLINE = "sys/devices/system/cpu/online"

RETRY_NS = 60_000_000_000
"""So often what could not be opened is tried again."""


class PerfSource:
    """Events that are counted on some cores.

    Attributes
    ----------
    note
        What a person should know although nothing is wrong: events that are absent, and why;
        groups that were split.

    Parameters
    ----------
    path
        The PMU's directory, for `doctor`.
    find
        Returns the groups of events; none where this machine has nothing of the kind.
    cpus
        The file that lists the cores to count on.
    least_ns
        How long a reading may serve at least, however few calls it takes.
    """

    bad_fields = 0

    def __init__(
        self,
        path: str,
        find: Callable[[Reader], list[list[Event]]],
        *,
        remedy: str,
        kernel: Kernel,
        cpus: str = ONLINE,
        per_core: bool = False,
        least_ns: int = EVERY_TICK,
    ) -> None:
        self.path = path
        self.remedy = remedy
        self.problem = ""
        self.plan = Plan()
        self._find = find
        self._kernel = kernel
        self._cpus = cpus
        self._per_core = per_core
        self._least_ns = least_ns
        self._counters: Counters | None = None
        self._tried_ns: int | None = None
        self._present: NDArray[np.bool_] | None = None
        self._shape: Shape | None = None

    @property
    def period_ns(self) -> int:
        """As often as it should, as long as that is not too many calls."""
        calls = 0 if self._counters is None else self._counters.calls
        return max(self._least_ns, period_ns(calls))

    @property
    def note(self) -> str:
        """Which events are absent and why, and which took turns with themselves."""
        if self._counters is None or self.problem:
            return ""
        absent = [f"no {name}: {why}" for name, why in sorted(self._counters.refused.items())]
        split = [f"split: {', '.join(names)}" for names in self._counters.split]
        return "; ".join(absent + split)

    def close(self) -> None:
        """Stop counting."""
        if self._counters is not None:
            self._counters.close()
            self._counters = None
        self._tried_ns = None

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Read every group of every core that is online."""
        tried = self._tried_ns
        if tried is None or not 0 <= mono_ns - tried < RETRY_NS:
            self._tried_ns = mono_ns
            self._look(reader)
        counters = self._counters
        if counters is None:
            return self.plan.blank
        text = reader.small(self._cpus)
        cpus = cpu_list(text) if isinstance(text, bytes) else ()
        if not cpus:
            reason = "no list of cores" if isinstance(text, bytes) else text.reason
            self.problem = f"{self._cpus}: {reason}"
            return self.plan.blank
        counters.follow(cpus)
        self.problem = counters.problem
        if counters.present is not self._present:
            self._lay_out(counters)
        if self.problem or self._shape is None:
            return self.plan.blank
        bad = counters.bad_counts
        values = self._shape.values(counters.rates())
        self.bad_fields += counters.bad_counts - bad
        return values

    def _look(self, reader: Reader) -> None:
        """Find out what to count; once that works, only refused cores are tried again."""
        if self._counters is not None and self._counters.cpus:
            self._counters.try_again()
            return
        groups = self._find(reader)
        self._counters = Counters(self._kernel, groups) if groups else None
        self._present = None
        self.problem = ""

    def _lay_out(self, counters: Counters) -> None:
        self._present = counters.present
        if self.problem:
            return  # the channels stay, unknown
        self._shape, plan = shape_and_plan(
            counters.events, counters.cpus, counters.present, per_core=self._per_core
        )
        if not plan.channels:
            # What is left serves the others, and they are absent.
            self.problem = f"perf_event_open: {', '.join(sorted(set(counters.refused.values())))}"
            counters.close()
            self._counters = None
        elif plan.channels != self.plan.channels:
            self.plan = plan


def collectors(options: Options, kernel: Kernel | None = None) -> Sequence[Collector]:
    """Return the collector of events; it has no sources where the setting is ``off``."""
    if options.perf == "off":
        return [Collector("perf")]
    kernel = kernel or SystemKernel()
    per_core = options.perf == "per-core"
    permit = "give the agent CAP_PERFMON, or set kernel.perf_event_paranoid to 0"
    hardware = PerfSource(
        PMUS,
        catalog.hardware,
        remedy="Without hardware counters instructions per cycle, cache misses and stalls are "
        f"unknown: {permit}. A virtual machine needs a virtual PMU from its host.",
        kernel=kernel,
        per_core=per_core,
    )
    software = PerfSource(
        f"{PMUS}/software",
        catalog.software,
        remedy="Without it migrations between cores and switches between control groups are "
        f"unknown: {permit}.",
        kernel=kernel,
        per_core=per_core,
        # /proc/stat and /proc/vmstat have switches and faults at every tick, without a call to
        # each core.
        least_ns=SECOND_NS,
    )
    amd_l3 = PerfSource(
        f"{PMUS}/amd_l3",
        catalog.amd_l3,
        remedy=f"Without it misses of AMD's L3 caches are unknown: {permit}.",
        kernel=kernel,
        cpus=f"{PMUS}/amd_l3/cpumask",
    )
    return [Collector("perf", (hardware, software, amd_l3))]
