"""Where the cores' time goes, and how much the scheduler does: /proc/stat, /proc/loadavg.

Kernel: Documentation/filesystems/proc.rst, section 1.7. Times are counted in ticks of USER_HZ,
10 ms, so at a sampling interval of 100 ms a state moves in steps of 10 %.

``cpu.busy`` is the share of a line's growth that is neither `idle` nor `iowait`. The line's growth
is that of its first eight numbers, since `user` and `nice` hold the guests' time already; so it is
between 0 and 100 % even where a tick more or less falls into the interval.
"""

from __future__ import annotations

import numpy as np

from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import SECOND_NS, Collector, Doubles
from schemas.records import Channel, Kind, Subsystem

USER_HZ = 100
"""The kernel's unit of time for programs; 100 on every architecture that matters here."""

STATES = (
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
)
"""In the order of the file; `user` and `nice` include the guests' time."""

_RESTING = [STATES.index("idle"), STATES.index("iowait")]
_SUMMED = STATES.index("guest")
"""So many states add up to a line's time."""

_OTHERS = {
    "ctxt": Channel("cpu.context_switches", "", Subsystem.CPU, "switches/s", Kind.RATE),
    "processes": Channel("cpu.forks", "", Subsystem.CPU, "forks/s", Kind.RATE),
    "procs_running": Channel("cpu.procs_running", "", Subsystem.CPU, "threads", Kind.GAUGE),
    # Blocked is waiting for a disk: it speaks of storage, as iowait does.
    "procs_blocked": Channel("cpu.procs_blocked", "", Subsystem.STORAGE, "threads", Kind.GAUGE),
}
_LOADS = ("cpu.load_1m", "cpu.load_5m", "cpu.load_15m")


def plan_stat(text: str) -> Draft:
    """Plan /proc/stat: each core in percent of itself, the host in percent of all its cores."""
    draft = Draft()
    lines = list(numbered_lines(text))
    rows = [words for _, words in lines if words[0].startswith("cpu")]
    cores = sum(words[0] != "cpu" for words in rows)
    width = max(map(len, rows), default=0)
    starts: dict[str, int] = {}  # of each line's states among the fields
    for at, words in lines:
        name = words[0]
        if name.startswith("cpu"):
            device, share = ("", max(1, cores)) if name == "cpu" else (name, 1)
            # Of a line with a number less than the others nobody can say which is missing: then
            # all are unknown, their place is that of the label.
            whole = len(words) == width
            starts.setdefault(device, len(draft.fields))
            for i, state in enumerate(STATES[: width - 1], start=1):
                subsystem = Subsystem.STORAGE if state == "iowait" else Subsystem.CPU
                channel = Channel(f"cpu.{state}", device, subsystem, "%", Kind.RATE)
                draft.channel(at + i if whole else at, channel, scale=100 / USER_HZ / share)
        elif name in _OTHERS and len(words) > 1:
            draft.channel(at + 1, _OTHERS[name])
    if width > max(_RESTING) + 1:
        _add_busy(draft, starts, min(width - 1, _SUMMED))
    return draft


def _add_busy(draft: Draft, starts: dict[str, int], states: int) -> None:
    """Add the share of busy time of each line, whose first so many states are its time."""
    keys = tuple(draft.fields)
    channels = [Channel("cpu.busy", core, Subsystem.CPU, "%", Kind.RATE) for core in starts]
    places = np.add.outer(list(starts.values()), np.arange(states))
    ratios = {
        c.label: keys[at : at + states] for c, at in zip(channels, starts.values(), strict=True)
    }
    draft.derived(channels, lambda rates: busy(rates[places]), ratios)


def busy(rates: Doubles) -> Doubles:
    """Return the share of time that is neither idle nor waiting for a disk, percent.

    Parameters
    ----------
    rates
        Shape ``(lines, states)``: growth of the first of `STATES`, in any one unit.

    Returns
    -------
    Doubles
        Shape ``(lines,)``; NaN where a number is unknown, or no time passed at all.
    """
    total = rates.sum(axis=1)
    resting = rates[:, _RESTING].sum(axis=1)
    share = np.full(len(total), np.nan)
    np.divide(100 * (total - resting), total, out=share, where=total > 0)
    return share


def without_intr(text: bytes) -> bytes:
    """Cut the line of all interrupts since boot, thousands of numbers on large machines."""
    start = text.find(b"\nintr ")
    if start < 0:
        return text
    end = text.find(b"\n", start + 1)
    return text[: start + 1] if end < 0 else text[:start] + text[end:]


def plan_loadavg(text: str) -> Draft:
    """Plan /proc/loadavg: runnable and blocked threads, averaged over 1, 5 and 15 minutes."""
    draft = Draft()
    for at, metric in enumerate(_LOADS[: len(text.split())]):
        draft.channel(at, Channel(metric, "", Subsystem.CPU, "threads", Kind.GAUGE))
    return draft


def loads_only(text: bytes) -> bytes:
    """Cut the counts of threads and the last process id, which change all the time."""
    return b" ".join(text.split()[: len(_LOADS)])


def collector() -> Collector:
    """Return a collector of the cores' time."""
    return Collector(
        "cpu",
        (
            TextFile(
                "proc/stat",
                plan_stat,
                prepare=without_intr,
                remedy="Without it nothing is known of the cores. Mount the host's /proc and name "
                "it with --path.proc.",
            ),
            TextFile(
                "proc/loadavg",
                plan_loadavg,
                prepare=loads_only,
                number=float,
                # The kernel computes them every five seconds.
                period_ns=SECOND_NS,
                remedy="Without it the load averages are missing; nothing else needs them.",
            ),
        ),
    )
