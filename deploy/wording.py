"""Anomalies and times in words."""

from __future__ import annotations

import html
from datetime import datetime

from deploy.units import human, human_range
from schemas.records import Anomaly, BlamedChannel, EpisodeState

SMALLEST_SHARE = 0.005
"""Shares below round to nothing."""


def printable(text: str) -> str:
    """Return text from elsewhere without what would steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def escaped(text: str) -> str:
    """Return text from elsewhere as it can stand in a page."""
    return html.escape(printable(text))


def date_time(us: int) -> str:
    """Return local date and time, to the second."""
    return datetime.fromtimestamp(us / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock_time(us: int) -> str:
    """Return the local time of day, to the second."""
    return datetime.fromtimestamp(us / 1e6).astimezone().strftime("%H:%M:%S")


def duration(seconds: float) -> str:
    """Return a length of time: ``21 s``, ``1 min 05 s``, ``2 h 03 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def count_of(number: float, thing: str) -> str:
    """Return a number of things: ``1 window``, ``2 windows``."""
    return f"{number:.0f} {thing}" if round(number) == 1 else f"{number:.0f} {thing}s"


def subsystem_shares(anomaly: Anomaly) -> str:
    """Return which parts of the host are to blame: ``cpu 81 %, memory 12 %``."""
    return ", ".join(
        f"{s.subsystem} {s.share:.0%}".replace("%", " %")
        for s in anomaly.subsystems
        if s.share >= SMALLEST_SHARE
    )


def expectation(channel: BlamedChannel) -> str:
    """Return what a channel's value should have been: ``expected 0-12 MB/s``."""
    return f"expected {human_range(channel.expected_low, channel.expected_high, channel.unit)}"


def cause(channel: BlamedChannel) -> str:
    """Return a channel's value and what it should have been."""
    value = human(channel.value, channel.unit)
    return f"{printable(channel.label)} {value} ({expectation(channel)})"


def likely(anomaly: Anomaly) -> str:
    """Return the likeliest cause and how sure it is: ``likely packet_loss 78 %``."""
    if not anomaly.causes:
        return ""
    first = anomaly.causes[0]
    return f"likely {printable(first.rule)} {100 * first.confidence:.0f} %"


def cause_lines(anomaly: Anomaly, causes: int = 2) -> list[str]:
    """Return what is likely to be behind an episode, what speaks for it, and what to type."""
    lines = []
    for found in anomaly.causes[:causes]:
        lines.append(f"  {100 * found.confidence:.0f} % {printable(found.rule)}: {found.summary}")
        lines += (f"      {printable(told)}" for told in found.evidence)
        for remedy in found.remedies:
            does = "changes the host" if remedy.changes_host else "shows"
            lines.append(f"    $ {printable(remedy.command)}  # {does}")
    return [printable(line) for line in lines]


def anomaly_line(anomaly: Anomaly, channels: int = 3) -> str:
    """Return one line about an episode, after what time it is."""
    lasted = duration((anomaly.latest - anomaly.onset) / 1e6)
    match anomaly.state:
        case EpisodeState.OPEN:
            verb = "opened"
        case EpisodeState.ONGOING:
            verb = f"ongoing for {lasted}"
        case EpisodeState.CLOSED:
            verb = f"closed after {lasted}"
    parts = [
        printable(anomaly.host),
        verb,
        f"{anomaly.level}, severity {anomaly.severity:.1f}",
        subsystem_shares(anomaly),
        likely(anomaly),
        "; ".join(map(cause, anomaly.channels[:channels])),
    ]
    return "  ".join(part for part in parts if part)
