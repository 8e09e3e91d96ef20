"""How fast the cores run, and how much of the time: the counters APERF, MPERF and TSC.

Intel SDM volume 3, "Hardware Coordination Feedback"; AMD has the same registers. While a core is
not halted APERF counts the cycles that it makes and MPERF those that it would make at its base
frequency; the time stamp TSC counts at the base frequency all the time. So, as turbostat has them:

====================== ============================= ===== ==============================
metric                 is                            unit  turbostat
====================== ============================= ===== ==============================
cpu.frequency_busy     TSC rate * APERF / MPERF      MHz   Bzy_MHz: while it runs
cpu.frequency_average  APERF / time                  MHz   Avg_MHz: halted counts as 0
cpu.c0_residency       MPERF / TSC                   %     Busy%: not halted
cpu.frequency_min      the lowest frequency_busy     MHz   a core that is held back
cpu.smi                system management interrupts  /s    SMI: they stop every core
====================== ============================= ===== ==============================

each of a core, and without a device of the host. They are read, in this order, as one group of
events of the perf PMU ``msr`` (arch/x86/events/msr.c), or through ``/dev/cpu/*/msr``. Where neither
works, cpufreq's ``scaling_cur_freq`` is taken as ``cpu.frequency_scaling``: on some drivers it is
what was asked for, not what the core does. `FrequencySource.note` says which way it is.

Most virtual machines have none of this.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from producers.perf.catalog import PMUS, pmu_type
from producers.perf.counters import Counters, period_ns
from producers.perf.events import Event, Kernel, SystemKernel, cpu_list
from producers.perf.msr import RegisterRates, Registers, SystemRegisters
from producers.reading import Reader
from producers.source import SECOND_NS, Collector, Doubles, Field, Options, Plan
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

log = logging.getLogger(__name__)

CORES = "sys/devices/system/cpu"
RETRY_NS = 60 * SECOND_NS

NAMES = ("aperf", "mperf", "tsc", "smi")
REGISTERS = {"aperf": (0xE8, 64), "mperf": (0xE7, 64), "tsc": (0x10, 64), "smi": (0x34, 32)}
"""Number of the register, and its bits."""

_HZ_TO_MHZ = 1e-6
_EACH = ("cpu.frequency_busy", "cpu.frequency_average", "cpu.c0_residency")


class Clocks(Protocol):
    """A way to the counters: rates per second by core, columns as in `NAMES`."""

    @property
    def cpus(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def problem(self) -> str: ...  # noqa: D102
    @property
    def bad_counts(self) -> int: ...  # noqa: D102
    @property
    def calls(self) -> int: ...  # noqa: D102
    def follow(self, cpus: tuple[int, ...]) -> None: ...  # noqa: D102
    def try_again(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def rates(self) -> Doubles: ...  # noqa: D102


def speeds(rates: Doubles) -> tuple[Doubles, Doubles]:
    """Return what each core does, shape ``(cores, 3)``, and what the host does, shape ``(4,)``.

    NaN where unknown. The host's values are over the cores that are known.

    Parameters
    ----------
    rates
        Shape ``(cores, 3 or more)``: APERF, MPERF and TSC per second.
    """
    aperf, mperf, tsc = rates[:, 0], rates[:, 1], rates[:, 2]
    ran = mperf > 0
    each = np.full((len(rates), 3), np.nan)
    np.divide(aperf, mperf, out=each[:, 0], where=ran)
    each[:, 0] *= tsc * _HZ_TO_MHZ
    each[:, 1] = aperf * _HZ_TO_MHZ
    np.divide(100 * mperf, tsc, out=each[:, 2], where=tsc > 0)
    host = np.full(4, np.nan)
    known = ~np.isnan(each[:, 2]) & ~np.isnan(aperf)
    if known.any():
        cycles, base, time = rates[known, :3].sum(axis=0).tolist()
        cores = int(np.count_nonzero(known))
        if base > 0:
            host[0] = cycles / base * time / cores * _HZ_TO_MHZ
            host[3] = np.nanmin(each[known, 0])
        host[1] = cycles / cores * _HZ_TO_MHZ
        host[2] = 100 * base / time
    return each, host


def plan_for(cpus: Sequence[int], *, smi: bool) -> Plan:
    """Say what the values are: the host's, then those of each core."""
    made = [_channel(metric) for metric in (*_EACH, "cpu.frequency_min")]
    if smi:
        made.append(Channel("cpu.smi", "", Subsystem.CPU, "/s", Kind.RATE))
    made += [_channel(metric, f"cpu{cpu}") for cpu in cpus for metric in _EACH]
    return Plan(
        # Levels: the rates are over the time that the kernel took with the counters.
        fields=tuple(Field(channel.label, counter=False) for channel in made),
        channels=tuple(made),
        direct=tuple(range(len(made))),
    )


def _channel(metric: str, device: str = "") -> Channel:
    unit = "%" if metric == "cpu.c0_residency" else "MHz"
    return Channel(metric, device, Subsystem.CPU, unit, Kind.GAUGE)


def find_scaling(tree: TreeDraft) -> None:
    """Find what cpufreq says of each core, in kHz, and make mean and minimum of it."""
    places = 0
    names = [n for n in tree.names(CORES) if re.fullmatch(r"cpu\d+", n)]
    for name in sorted(names, key=lambda n: int(n[3:])):
        at = tree.file(f"{CORES}/{name}/cpufreq/scaling_cur_freq")
        if at is not None:
            channel = Channel("cpu.frequency_scaling", name, Subsystem.CPU, "MHz", Kind.GAUGE)
            tree.channel(at, channel, scale=1e-3)
            places += 1
    if places:
        tree.derived(
            (_channel("cpu.frequency_scaling"), _channel("cpu.frequency_scaling_min")),
            lambda levels: np.array([_known(levels).mean(), _known(levels).min()]),
        )


def _known(levels: Doubles) -> Doubles:
    known = levels[~np.isnan(levels)]
    return known if known.size else np.full(1, np.nan)


class FrequencySource:
    """Frequency and residency by the best way that works.

    Attributes
    ----------
    note
        Which way that is.
    """

    path = f"{PMUS}/msr"
    remedy = (
        "Without it a core that is throttled, or runs below its frequency, is not seen. Give the "
        "agent CAP_PERFMON, or load the module msr and give it CAP_SYS_RAWIO. Most virtual "
        "machines do not have these counters."
    )

    def __init__(self, kernel: Kernel, registers: Registers) -> None:
        self._kernel = kernel
        self._registers = registers
        self._clocks: Clocks | None = None
        self._cpufreq: FileTree | None = None
        self._cpus: tuple[int, ...] = ()
        self._smi = False
        self._plan = Plan()
        self._problem = ""
        self._bad_counts = 0
        self._tried_ns: int | None = None
        self.note = ""

    @property
    def plan(self) -> Plan:
        """What the numbers of the newest reading mean."""
        return self._plan if self._cpufreq is None else self._cpufreq.plan

    @property
    def problem(self) -> str:
        """Why the newest reading brought nothing."""
        return self._problem if self._cpufreq is None else self._cpufreq.problem

    @property
    def bad_fields(self) -> int:
        """Counters that went back or jumped, or files without a number."""
        return self._bad_counts + (0 if self._cpufreq is None else self._cpufreq.bad_fields)

    @property
    def period_ns(self) -> int:
        """Every tick, as long as that is not too many calls."""
        if self._cpufreq is not None:
            return self._cpufreq.period_ns
        return period_ns(0 if self._clocks is None else self._clocks.calls)

    def close(self) -> None:
        """Close what is open."""
        if self._clocks is not None:
            self._clocks.close()
        self._clocks = self._tried_ns = None

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Read the counters of every core that is online."""
        tried = self._tried_ns
        if tried is None or not 0 <= mono_ns - tried < RETRY_NS:
            self._tried_ns = mono_ns
            self._look(reader, mono_ns)
        if self._cpufreq is not None:
            return self._cpufreq.read(reader, mono_ns)
        clocks = self._clocks
        if clocks is None:
            return self._plan.blank
        text = reader.small(f"{CORES}/online")
        cpus = cpu_list(text) if isinstance(text, bytes) else ()
        if not cpus:
            reason = "no list of cores" if isinstance(text, bytes) else text.reason
            self._problem = f"{CORES}/online: {reason}"
            return self._plan.blank
        clocks.follow(cpus)
        self._problem = clocks.problem
        if not clocks.cpus:
            return self._plan.blank
        if clocks.cpus != self._cpus:
            self._cpus = clocks.cpus
            self._plan = plan_for(self._cpus, smi=self._smi)
        bad = clocks.bad_counts
        rates = clocks.rates()
        self._bad_counts += clocks.bad_counts - bad
        each, host = speeds(rates)
        values: list[float] = host.tolist()
        if self._smi:
            counted = rates[:, NAMES.index("smi")]
            values.append(float(_known(counted).max()))
        return [*values, *each.ravel().tolist()]

    def _look(self, reader: Reader, mono_ns: int) -> None:
        """Take the first way that works, unless one does."""
        if self._clocks is not None and self._clocks.cpus:
            self._clocks.try_again()
            return
        if self._cpufreq is not None and not self._cpufreq.problem:
            return
        self._clocks = self._cpufreq = None
        online = reader.small(f"{CORES}/online")
        cpus = cpu_list(online) if isinstance(online, bytes) else ()
        reasons: list[str] = []
        for note, clocks in (
            ("counted by the perf PMU msr", self._perf(reader)),
            ("read from /dev/cpu/*/msr", RegisterRates(self._registers, REGISTERS)),
        ):
            if clocks is None:
                reasons.append("perf has no msr/aperf/")
                continue
            clocks.follow(cpus)
            works = self._works(clocks)
            if works:
                self._clocks, self._smi, self._cpus = clocks, "smi" in works, ()
                self._problem = ""
                self._say(note)
                return
            reasons.append(clocks.problem or "no APERF and MPERF in it")
            clocks.close()
        cpufreq = FileTree(CORES, find_scaling, remedy=self.remedy)
        cpufreq.read(reader, mono_ns)
        if cpufreq.plan.channels:
            self._cpufreq = cpufreq
            self._say(f"cpufreq's word, not measured: {'; '.join(reasons)}")
        else:
            self._problem = "; ".join([*reasons, "no scaling_cur_freq"])

    def _perf(self, reader: Reader) -> Counters | None:
        """Return the group of events; None where the PMU lacks one that is needed."""
        pmu = pmu_type(reader, "msr")
        events: list[Event] = []
        for name in NAMES if pmu is not None else ():
            text = reader.small(f"{PMUS}/msr/events/{name}")
            found = re.match(rb"event=(0x[\da-f]+)\s*$", text) if isinstance(text, bytes) else None
            if found:
                events.append(Event(name, pmu or 0, int(found[1], 16)))
        names = [event.name for event in events]
        return Counters(self._kernel, [events]) if names[:3] == list(NAMES[:3]) else None

    def _works(self, clocks: Counters | RegisterRates) -> set[str]:
        """Return the names of the counters that some core has; none where that is not enough."""
        names = {clocks.names[column] for column in np.flatnonzero(clocks.present.any(axis=0))}
        return names if names >= set(NAMES[:3]) else set()

    def _say(self, note: str) -> None:
        if note != self.note:
            log.info("frequency of the cores: %s", note)
            self.note = note


def collectors(
    options: Options,  # noqa: ARG001 - the table's signature
    kernel: Kernel | None = None,
    registers: Registers | None = None,
) -> Sequence[Collector]:
    """Return the collector of frequencies."""
    source = FrequencySource(kernel or SystemKernel(), registers or SystemRegisters())
    return [Collector("frequency", (source,))]
