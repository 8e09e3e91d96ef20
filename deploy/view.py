"""The live picture as text: a function of what is known, the time and the size of the terminal.

Every line is one line of the terminal, cut where it would wrap, and there are never more of them
than the terminal has. Nothing is said by colour alone.
"""

from __future__ import annotations

from collections import Counter

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from deploy.picture import URGENCY, Condition, Picture
from deploy.status import Part, PartState, Stack
from deploy.units import human
from deploy.wording import (
    clock_time,
    duration,
    expectation,
    likely,
    printable,
    subsystem_shares,
)
from schemas.records import Anomaly, Score, State

BAR_CELLS = 24
CAUSES_SHOWN = 10
CLOSED_SHOWN = 5
NEWS_US = 15_000_000
"""An open episode is updated every five seconds; without news for so long it says so."""
NAME_CELLS = 24


_PART_STYLE = {
    PartState.UP: "green",
    PartState.LOST: "bold red",
    PartState.FAILED: "bold red",
    PartState.STARTING: "yellow",
    PartState.STOPPING: "yellow",
}
_CONDITION_STYLE = {
    Condition.ANOMALY: "bold red",
    Condition.SILENT: "bold magenta",
    Condition.ABSTAINED: "yellow",
    Condition.LEARNING: "cyan",
    Condition.RELEARNING: "cyan",
    Condition.DRIFTING: "yellow",
    Condition.NORMAL: "green",
}


class Screen:
    """The picture as rich shows it: as large as the terminal is at that moment."""

    def __init__(self, stack: Stack, picture: Picture, now_us: int) -> None:
        self._stack = stack
        self._picture = picture
        self._now_us = now_us

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        height = options.height or console.height
        lines = render(
            self._stack,
            self._picture,
            self._now_us,
            width=options.max_width,
            height=height,
            ascii_only=options.ascii_only,
        )
        yield Text("\n").join(lines)


def render(
    stack: Stack,
    picture: Picture,
    now_us: int,
    *,
    width: int,
    height: int,
    ascii_only: bool = False,
) -> list[Text]:
    """Return at most `height` lines of at most `width` cells.

    Parameters
    ----------
    now_us
        Microseconds of the clock that `Picture.apply` was given.
    ascii_only
        Whether the terminal shows nothing beyond ASCII.
    """
    head = [_title(stack), Text(), *map(_part, stack.parts), _flow(stack)]
    head += [Text.assemble(("! ", "bold yellow"), (t, "yellow")) for t in stack.trouble]
    # A blank line and a heading before hosts, open and, where there are any, closed episodes.
    free = max(3, height - len(head) - (6 if picture.closed else 4))
    hosts = _hosts(stack, picture, now_us, ascii_only=ascii_only)
    closed = [_closed(a) for a in list(picture.closed)[:CLOSED_SHOWN]]
    worst_first = sorted(picture.open.values(), key=lambda a: (-a.severity, a.host))
    episodes = [_episode(a, now_us - picture.news_us[a.host]) for a in worst_first]
    wanted = sum(map(len, episodes)) or 1
    for_hosts = min(len(hosts), max(1, free // 3, free - wanted - len(closed)))
    for_closed = min(len(closed), max(0, free - for_hosts - wanted), CLOSED_SHOWN)
    if closed and not for_closed and free - for_hosts > 4:
        for_closed = 1
    for_open = free - for_hosts - for_closed
    lines = [
        *head,
        Text(),
        _hosts_heading(picture, now_us),
        *_fit(hosts, for_hosts),
        Text(),
        _heading("open anomalies", len(episodes)),
        *_fit_episodes(worst_first, episodes, for_open),
    ]
    if for_closed:
        lines += [Text(), _heading("closed", picture.opened - len(episodes))]
        lines += closed[:for_closed]
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    return lines[:height]


def _title(stack: Stack) -> Text:
    kind = "embedded broker" if stack.embedded else "Kafka"
    return Text.assemble(
        ("reveal", "bold"),
        f"  {kind} {printable(stack.brokers) or '...'}  {duration(stack.uptime_s)}  ",
        ("Ctrl-C stops", "dim"),
    )


def _part(part: Part) -> Text:
    style = _PART_STYLE.get(part.state, "dim")
    line = Text.assemble(f"{part.name:<8}", (f"{part.state:<12}", style))
    if part.pid is not None:
        line.append(f"pid {part.pid:<8}")
    if part.usage is not None:
        cpu = "" if part.usage.cpu is None else f"{part.usage.cpu * 100:.1f} % cpu"
        line.append(f"{cpu:>11}  {part.usage.rss_bytes / 1e6:5.0f} MB")
    if part.note:
        line.append(f"  {printable(part.note)}", "dim" if part.state is PartState.UP else style)
    return line


def _flow(stack: Stack) -> Text:
    if stack.windows_per_s is None:
        return Text.assemble(f"{'flow':<8}", ("nothing yet", "dim"))
    line = Text(f"{'flow':<8}{stack.windows_per_s:.1f} windows/s")
    if stack.lag_records is not None:
        style = "" if stack.lag_records < 100 else "bold yellow"
        line.append(f"   lag {stack.lag_records:.0f} records", style)
    if stack.latency_p50_s is not None and stack.latency_p99_s is not None:
        line.append(
            f"   latency p50 {human(stack.latency_p50_s, 's')},"
            f" p99 {human(stack.latency_p99_s, 's')}"
        )
    return line


def _heading(text: str, count: int) -> Text:
    return Text.assemble((text, "bold"), (f"  {count}", "dim"))


def _hosts_heading(picture: Picture, now_us: int) -> Text:
    heading = _heading("hosts", len(picture.scores))
    if len(picture.scores) > 1:
        counts = Counter(picture.condition(s, now_us) for s in picture.scores.values())
        for condition in sorted(counts, key=URGENCY.__getitem__):
            heading.append("  ")
            heading.append(f"{counts[condition]} {condition}", _CONDITION_STYLE[condition])
    return heading


def _hosts(stack: Stack, picture: Picture, now_us: int, *, ascii_only: bool) -> list[Text]:
    """Return a line for each host, the urgent ones first."""
    if not picture.scores:
        return [Text("  none yet", "dim")]
    scores = sorted(
        ((picture.condition(s, now_us), s) for s in picture.scores.values()),
        key=lambda pair: (URGENCY[pair[0]], pair[1].host),
    )
    cells = min(NAME_CELLS, max(len(s.host) for _, s in scores))
    lines = []
    for condition, score in scores:
        style = _CONDITION_STYLE[condition]
        line = Text.assemble(f"  {_cut(score.host, cells):<{cells}}  ", (f"{condition:<11}", style))
        line.append_text(_detail(stack, picture, condition, score, now_us, ascii_only=ascii_only))
        lines.append(line)
    return lines


def _detail(
    stack: Stack,
    picture: Picture,
    condition: Condition,
    score: Score,
    now_us: int,
    *,
    ascii_only: bool,
) -> Text:
    """Return what there is to say of a host in a condition."""
    match condition:
        case Condition.LEARNING | Condition.RELEARNING:
            return _learning(stack, score, ascii_only=ascii_only)
        case Condition.SILENT:
            return Text(f"no window for {duration((now_us - picture.heard_us[score.host]) / 1e6)}")
        case Condition.ABSTAINED:
            return Text(printable(score.reason))
        case Condition.ANOMALY:
            if score.state is State.ABSTAINED:
                return Text(printable(score.reason))
            return Text(subsystem_shares(picture.open[score.host]))
        case Condition.DRIFTING:
            learned = f"{score.progress:.0%}".replace("%", " %")
            line = Text(f"score {score.fused:.1f}  {learned} of a new baseline")
            return line.append(f"  {printable(score.reason)}", "dim")
        case Condition.NORMAL:
            odd = [printable(d.detector) for d in score.detectors if d.flagged]
            line = Text(f"score {score.fused:.1f}")
            if odd:
                return line.append(f"  odd to {', '.join(odd)}", "yellow")
            return line.append(f"  {printable(score.reason)}", "dim") if score.reason else line


def _learning(stack: Stack, score: Score, *, ascii_only: bool) -> Text:
    full, empty = ("#", "-") if ascii_only else ("\N{FULL BLOCK}", "\N{LIGHT SHADE}")
    done = min(BAR_CELLS, max(0, round(score.progress * BAR_CELLS)))
    bar = Text.assemble((full * done, "cyan"), (empty * (BAR_CELLS - done), "dim"))
    bar.append(f" {score.progress:4.0%}".replace("%", " %"))
    if score.progress >= 1:
        bar.append("  fitting the baseline")
    elif score.reason:
        bar.append(f"  {printable(score.reason)}")
    elif stack.baseline_s is not None:
        bar.append(f"  {duration((1 - score.progress) * stack.baseline_s)} left")
    return bar


def _episode(anomaly: Anomaly, quiet_us: int) -> list[Text]:
    """Return the lines of an open episode that was heard of `quiet_us` ago: what, then causes."""
    # Time goes on between updates of the record.
    lasted = anomaly.latest - anomaly.onset + quiet_us
    head = Text.assemble(
        "  ",
        (_cut(anomaly.host, NAME_CELLS), "bold red"),
        f"  for {duration(lasted / 1e6)}, severity {anomaly.severity:.1f}:  ",
        (subsystem_shares(anomaly), "bold"),
        (f"  ({', '.join(map(printable, anomaly.detectors))})", "dim"),
    )
    if quiet_us > NEWS_US:
        head.append(f"  no news for {duration(quiet_us / 1e6)}", "yellow")
    why = [Text.assemble("    ", (likely(anomaly), "yellow"))] if anomaly.causes else []
    if why:
        why[0].append(f": {printable(anomaly.causes[0].summary)}")
    channels = anomaly.channels[:CAUSES_SHOWN]
    names = [printable(c.label) for c in channels]
    values = [human(c.value, c.unit) for c in channels]
    name_cells = min(34, max(map(len, names), default=0))
    value_cells = max(map(len, values), default=0)
    return [
        head,
        *why,
        *(
            Text.assemble(
                f"    {_cut(name, name_cells):<{name_cells}}  ",
                (f"{value:>{value_cells}}", "bold"),
                f"  {expectation(channel)}",
            )
            for name, value, channel in zip(names, values, channels, strict=True)
        ),
    ]


def _closed(anomaly: Anomaly) -> Text:
    lasted = duration((anomaly.latest - anomaly.onset) / 1e6)
    return Text.assemble(
        f"  {clock_time(anomaly.onset)}  {_cut(anomaly.host, NAME_CELLS)}  {lasted}"
        f"  severity {anomaly.severity:.1f}  ",
        (subsystem_shares(anomaly), "bold"),
        "  " + ", ".join(printable(c.label) for c in anomaly.channels[:3]),
    )


def _fit(lines: list[Text], rows: int) -> list[Text]:
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], Text(f"  and {len(lines) - rows + 1} more", "dim")]


def _fit_episodes(anomalies: list[Anomaly], episodes: list[list[Text]], rows: int) -> list[Text]:
    """Share the rows out among the worst episodes; each has its head before any has causes.

    Those that are shown stand in the order of their onset, so that none jumps when it worsens.
    """
    if not episodes:
        return [Text("  none", "dim")]
    hidden = len(episodes) - rows + 1 if len(episodes) > rows else 0
    shown = episodes[: len(episodes) - hidden]
    left = rows - len(shown) - bool(hidden)
    taken = [1] * len(shown)
    while left > 0 and any(n < len(e) for n, e in zip(taken, shown, strict=True)):
        for i, lines in enumerate(shown):
            if left > 0 and taken[i] < len(lines):
                taken[i] += 1
                left -= 1
    by_onset = sorted(range(len(shown)), key=lambda i: (anomalies[i].onset, anomalies[i].host))
    lines = [line for i in by_onset for line in shown[i][: taken[i]]]
    return [*lines, Text(f"  and {hidden} more", "dim")] if hidden else lines


def _cut(name: str, cells: int) -> str:
    name = printable(name)
    return name if len(name) <= cells else name[: cells - 3] + "..."
