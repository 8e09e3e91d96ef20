"""How long threads ran and waited for a core: /proc/schedstat.

Kernel: Documentation/scheduler/sched-stats.rst, versions 15, 16 and 17, which differ only in the
lines of the scheduling domains; nothing is taken from these. Of the nine numbers of a core the
last three count: nanoseconds that threads ran on it, nanoseconds that threads waited in its run
queue, and time slices.
"""

from __future__ import annotations

import re

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import Collector, Doubles
from schemas.records import Channel, Kind, Subsystem

VERSIONS = ("15", "16", "17")
_COLUMNS = 9
_NS_TO_PERCENT = 1e-7
_FIELDS = (
    # Metric, column, unit, and what makes it of the counter's rate.
    ("sched.run", 7, "%", _NS_TO_PERCENT),
    # Two threads that wait all the time are 200 %: it is 100 times the length of the queue.
    ("sched.wait", 8, "%", _NS_TO_PERCENT),
    ("sched.timeslices", 9, "/s", 1.0),
)
_KEPT = re.compile(rb"^(?:version|cpu).*\n?", re.MULTILINE)


def cores_only(text: bytes) -> bytes:
    """Cut the lines of the scheduling domains, most of the file, and the time."""
    return b"".join(_KEPT.findall(text))


def plan(text: str) -> Draft:
    """Plan the file: each core, and the host, whose times are the mean of its cores'."""
    draft = Draft()
    lines = list(numbered_lines(text))
    if not lines or lines[0][1][0] != "version" or lines[0][1][1:] not in [[v] for v in VERSIONS]:
        return draft
    draft.watch(1)
    cores = [(at, words) for at, words in lines[1:] if re.fullmatch(r"cpu\d+", words[0])]
    for at, words in cores:
        # Of a line with a number less nobody can say which is missing.
        whole = len(words) > _COLUMNS
        for metric, column, unit, scale in _FIELDS:
            channel = Channel(metric, words[0], Subsystem.CPU, unit, Kind.RATE)
            draft.channel(at + column if whole else at, channel, scale=scale)
    if draft.fields:
        draft.derived(
            [Channel(m, "", Subsystem.CPU, unit, Kind.RATE) for m, _, unit, _ in _FIELDS],
            _host,
        )
    return draft


def _host(rates: Doubles) -> Doubles:
    """Return the means of the cores' times, and the sum of their time slices."""
    by_core = rates.reshape(-1, len(_FIELDS))
    run, wait = by_core[:, :2].mean(axis=0)
    return np.array([run, wait, by_core[:, 2].sum()])


def collector() -> Collector:
    """Return a collector of the run queues."""
    return Collector(
        "schedstat",
        (
            TextFile(
                "proc/schedstat",
                plan,
                prepare=cores_only,
                slow=True,
                remedy="Without it nobody sees how long threads wait for a core. The kernel needs "
                "CONFIG_SCHEDSTATS; pressure/cpu says much the same.",
            ),
        ),
    )
