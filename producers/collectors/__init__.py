"""Where the telemetry comes from: one file for each part of the host, and the table of them.

To add a source of metrics, write one file here; below, add one import and one line: its
`collector` in `MACHINE`, or in `NAMESPACE` when each network namespace has its own. A file that
is text with numbers between labels needs two things, for example::

    def plan(text: str) -> Draft:
        draft = Draft()
        for at, words in numbered_lines(text):        # at: number of the line's first token
            if len(words) == 2:
                channel = Channel(f"ksm.{words[0]}", "", Subsystem.MEMORY, "/s", Kind.RATE)
                draft.channel(at + 1, channel)          # token at + 1 is this channel's counter
        return draft

    def collector() -> Collector:
        return Collector("ksm", (TextFile("proc/ksm", plan, remedy="why it matters, what to do"),))

What holds for every collector, and what `tests/producers/test_every_collector.py` checks:

- `Collector.name` is unique. `Collector.sources` are the places it reads; `reveal-agent doctor`
  shows the `path` and `remedy` of each that cannot be read.
- `Source.read(reader, mono_ns)` returns as many numbers as ``source.plan.fields``. It reads
  through `reader` alone.
- `Source.period_ns` says how long a reading may serve: `EVERY_TICK`, or longer for what changes
  slowly or costs much; a second at most where a channel is a rate. Whose turn it is the sampler
  decides, and `producers.budget` may stretch it; in between the channels keep their values.
- `Source.plan` is the same object until what the numbers mean changes.
- Counters are given as they are: `producers.rates` makes rates of them, and tells reset, wrap and
  step back apart. What is made from several numbers is made after that, in `Plan.derive`.
- Metrics are ``part.name`` in lower case and underscores, the unit is that of the value as sent,
  and a device is a core, an interface, a disk. `Kind.RATE` marks a counter's rate.
- What is not there is not there: no channel, or NaN; never 0. A field that is not a number costs
  that field. What raises costs that source's channels, and is counted.

Many small files with a number in each are a `producers.tree.FileTree`. Any other source needs
the members of `producers.source.Source` and nothing else. One that asks the machine itself, not
through files below /proc and /sys, stands in `DEVICES`, is made with the agent's `Options`, and
is left out where recorded files are read. What else a source may be (`Noted`, `Closable`,
`Sharing`, `Gathering`, `Delegating`) is in `producers.source`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from producers.collectors import (
    buddy,
    cgroup,
    conntrack,
    cpu,
    cpuidle,
    edac,
    ethtool,
    files,
    frequency,
    gpu,
    hugepages,
    hwmon,
    infiniband,
    interrupts,
    kmsg,
    link,
    lustre,
    memory,
    network,
    nfs,
    numa,
    perf,
    pressure,
    raid,
    rapl,
    schedstat,
    softirqs,
    storage,
    thermal,
    throttle,
)
from producers.source import Collector, Options

MACHINE: tuple[Callable[[], Collector], ...] = (
    cpu.collector,
    cpuidle.collector,
    schedstat.collector,
    throttle.collector,
    interrupts.collector,
    softirqs.collector,
    memory.collector,
    numa.collector,
    hugepages.collector,
    buddy.collector,
    pressure.collector,
    cgroup.collector,
    storage.collector,
    raid.collector,
    files.collector,
    lustre.collector,
    lustre.target_collector,
    infiniband.collector,
    infiniband.port_collector,
    infiniband.hardware_collector,
    edac.collector,
    hwmon.collector,
    rapl.collector,
    thermal.collector,
)
"""What all network namespaces of a machine share."""

NAMESPACE: tuple[Callable[[], Collector], ...] = (
    network.collector,
    network.slow_collector,
    nfs.collector,
    nfs.mounts_collector,
    conntrack.collector,
    link.collector,
    link.settings_collector,
)
"""What each network namespace has for itself."""

ALL: tuple[Callable[[], Collector], ...] = (*MACHINE, *NAMESPACE)
"""Every collector of kernel files. Each call makes a new one, with a state of its own."""

DEVICES: tuple[Callable[[Options], Sequence[Collector]], ...] = (
    perf.collectors,
    frequency.collectors,
    ethtool.collectors,
    gpu.collectors,
    kmsg.collectors,
)
"""What is not in files below /proc and /sys: each gives one collector or more."""
