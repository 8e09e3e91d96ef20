"""The page of an evaluation: one file that needs nothing else, for people to look at.

Names of hosts, channels and faults come from elsewhere: every one goes through `escaped`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from deploy import plots
from deploy.figures import confusion_columns, delay, number, percent
from deploy.report_channels import channels
from deploy.wording import count_of, date_time, duration, escaped
from models.evaluation import DAY_S, HOUR_S, MISSED, NO_CAUSE, RULE_OF, Verdict, verdict
from schemas.errors import RevealError

if TYPE_CHECKING:
    from deploy.case import Case
    from deploy.watched import Means, Watched
    from models.evaluation import Evaluation, Event
    from streams.config import WorkerSettings

WIDE, NARROW = 1100, 350
"""Pixels: a timeline is drawn for screens and for phones, and the page shows the one that fits."""
MOST_HOSTS = 32
COLOUR = {
    Verdict.RIGHT: plots.EPISODE,
    Verdict.FALSE: plots.FALSE,
    Verdict.ELSEWHERE: plots.FAINT,
}


class InvalidPage(RevealError):
    """A page cannot be written. The text names the file and why."""


def check(page: Path, *, force: bool) -> None:
    """Check, before the work is done, that a page can be written to this file.

    Raises
    ------
    InvalidPage
        The file is there already, or its folder is not.
    NoMatplotlib
        Plots cannot be drawn here.
    """
    plots.need_matplotlib()
    if page.exists() and not force:
        raise InvalidPage(f"{page} is there already: give another name, or --force")
    if not page.parent.is_dir():
        raise InvalidPage(f"{page} cannot be written: there is no folder {page.parent}")


def write_report(
    page: Path,
    case: Case,
    seen: Watched,
    means: Means,
    done: Evaluation,
    counted: Sequence[Event],
    found: Mapping[str, Any],
) -> None:
    """Write the page.

    Parameters
    ----------
    page
        The file; replaced if it is there.
    case, seen, means
        What was evaluated, what was seen of it, and its windows around events.
    done, counted, found
        The evaluation, the events that it counts, and its figures by name.

    Raises
    ------
    InvalidPage
        It cannot be written.
    """
    template = Template(resources.files("deploy").joinpath("report.html").read_text("utf-8"))
    counted = sorted(counted, key=lambda e: e.start_us)
    began_us, ended_us = seen.span()
    if case.labels is None:
        when = "Array data set; time counts from its first judged sample."
    else:
        when = f"{date_time(began_us)} to {date_time(ended_us)}, labels of {case.labels.name}."
    text = template.substitute(
        title=escaped(f"Detection on {case.path.name}"),
        subtitle=escaped(
            f"{when} {count_of(done.hosts, 'host')}, {duration(done.watched_s)} watched in all."
        ),
        tiles="\n".join(_tiles(done, found)),
        timeline_note=escaped(_timeline_note(seen)),
        timelines="\n".join(_timelines(case, seen, counted)),
        faults=_faults(done),
        confusion=_confusion(done),
        channels="\n".join(channels(case, seen, means, counted)),
        settings=_settings(case.worker),
    )
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as e:
        raise InvalidPage(f"{page} cannot be written: {e.strerror}") from None


def _tiles(done: Evaluation, found: Mapping[str, Any]) -> Iterator[str]:
    every, free = done.every, done.free
    yield _tile(
        "Faults found",
        percent(every.recall),
        f"{every.found} of {every.events}, one for each host; {percent(done.anywhere)} on at least "
        "one host."
        + (
            f" {free.events} more cost the job nothing; {free.found} of them found."
            * bool(free.events)
        ),
    )
    yield _tile(
        "Delay",
        delay(every.delay_p50_s),
        "Half of the faults that were found were told within this time of their start.",
    )
    yield _tile(
        "False episodes a day and host",
        number(done.false_every(DAY_S), 1),
        f"{done.false} of {count_of(done.episodes, 'episode')} belong to no fault, "
        f"{number(done.false_every(HOUR_S), 2)} an hour; a single one in the time watched is "
        f"{number(DAY_S / done.watched_s, 1)} a day. Precision {number(done.precision)}, "
        f"F1 {number(done.f1)}.",
    )
    if every.subsystem.judged:
        yield _tile(
            "Right subsystem first",
            percent(every.subsystem.accuracy),
            f"{every.subsystem.last} of the {every.subsystem.judged} found; as their episodes were "
            f"opened, {every.subsystem.at_open}; {every.shared} among those that share the blame.",
        )
    if every.cause.judged:
        yield _tile(
            "Right cause first",
            percent(every.cause.accuracy),
            f"{every.cause.last} of the {every.cause.judged} found; as their episodes were opened, "
            f"{every.cause.at_open}.",
        )
    yield _tile(
        "Ranking (VUS-PR)",
        number(found["vus_pr"]),
        "How well the score alone puts faulty windows above others, whatever the threshold; 1 is "
        f"perfect. AUC-PR, which forgives no shift in time, {number(found['auc_pr'])}.",
    )


def _tile(name: str, value: str, text: str) -> str:
    return (
        f'<div class="card"><div class="tile-name">{escaped(name)}</div>'
        f'<div class="tile-value">{escaped(value)}</div>'
        f'<div class="tile-text">{escaped(text)}</div></div>'
    )


def _timeline_note(seen: Watched) -> str:
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(seen.states.items()))
    note = (
        "Time counts from the first window that was judged; numbers are those of the faults below. "
        f"Windows: {states}."
    )
    left_out = len(seen.hosts) - MOST_HOSTS
    return note + (f" {left_out} more hosts are not drawn." if left_out > 0 else "")


def _timelines(case: Case, seen: Watched, events: Sequence[Event]) -> Iterator[str]:
    zero_us = seen.span()[0]
    own = seen.told_by_host()
    for host in sorted(seen.hosts)[:MOST_HOSTS]:
        run = seen.hosts[host]
        labels = [
            plots.mark(e.start_us, e.end_us, zero_us, plots.LABEL, number)
            for number, e in enumerate(events, start=1)
            if e.is_on(host)
        ]
        episodes = [
            plots.mark(*seen.lasted(name), zero_us, COLOUR[verdict(told, events, case.grace_us())])
            for name, told in own[host].items()
        ]
        at = (np.array(run.ends, np.int64) - zero_us) / 1e6
        scores = np.array(run.fused, np.float64)
        drawn = "".join(
            f'<div class="{name}">{plots.timeline(at, scores, labels, episodes, width)}</div>'
            for name, width in (("wide", WIDE), ("narrow", NARROW))
        )
        yield (
            f'<div class="card"><h3>{escaped(host)}</h3><p class="faint">'
            f"{escaped(count_of(len(episodes), 'episode'))}</p>{drawn}</div>"
        )


def _faults(done: Evaluation) -> str:
    rows = [
        (
            "<tr><th>fault</th><th>events</th><th>found</th><th>right subsystem</th>"
            "<th>right cause</th><th>delay, median</th></tr>"
        )
    ]
    for (fault, variant), t in sorted(done.per_fault.items()):
        rights = [f"{r.last}" if r.judged else "-" for r in (t.subsystem, t.cause)]
        cells = (f"{t.events}", f"{t.found}", *rights, delay(t.delay_p50_s))
        name = f"<td>{escaped(fault)}/{variant}</td>"
        rows.append(f"<tr>{name}{''.join(f'<td>{c}</td>' for c in cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _confusion(done: Evaluation) -> str:
    if not done.confusion:
        return ""
    columns = confusion_columns(done)
    rows = [f"<tr><th>fault</th>{''.join(f'<th>{escaped(c)}</th>' for c in columns)}</tr>"]
    for fault, row in sorted(done.confusion.items()):
        cells = "".join(_confusion_cell(fault, cause, row) for cause in columns)
        rows.append(f"<tr><td>{escaped(fault)}</td>{cells}</tr>")
    return (
        "<section><h2>Causes</h2>"
        '<p class="note">How often which cause was named first, for every fault and host. '
        f"Green is right; {NO_CAUSE}: the episode names no cause; {MISSED}: no episode.</p>"
        f'<div class="card scroll"><table>{"".join(rows)}</table></div></section>'
    )


def _confusion_cell(fault: str, cause: str, row: Counter[str]) -> str:
    count = row[cause]
    if not count:
        return "<td></td>"
    kind = "right" if cause == RULE_OF.get(fault, fault) else "wrong"
    kind = "none" if cause in (NO_CAUSE, MISSED) else kind
    share = count / row.total()
    return f'<td class="cell {kind}" style="--share: {share:.2f}">{count}</td>'


def _settings(worker: WorkerSettings) -> str:
    rows = "".join(
        f"<tr><td>{escaped(key)}</td><td>{escaped(str(getattr(worker, key)))}</td>"
        f"<td>{escaped(field.description or '')}</td></tr>"
        for key, field in type(worker).model_fields.items()
    )
    head = "<tr><th>setting</th><th>value</th><th>what it is</th></tr>"
    return f'<table class="settings">{head}{rows}</table>'
