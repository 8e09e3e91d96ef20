"""The part of a report that shows, around each fault, the channels that are to blame for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from deploy import plots
from deploy.figures import delay
from deploy.units import human, human_range
from deploy.watched import Means
from deploy.wording import count_of, duration, escaped, subsystem_shares
from models.evaluation import finder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.case import Case
    from deploy.watched import Watched
    from models.evaluation import Event, Told
    from schemas.records import Anomaly, BlamedChannel
    from streams.config import WorkerSettings

EVENTS_OF_A_KIND, EVENTS_AT_LEAST = 2, 12
"""Events that are drawn of a kind; more where there are few kinds."""
CHANNELS_OF_AN_EVENT = 4
BESIDE_STRIDES = 30
"""Windows before and after a fault that are drawn."""


def near(events: Iterable[Event], worker: WorkerSettings) -> Means:
    """Return what keeps the windows that a page of these events shows."""
    return Means(_around(e, worker) for e in events)


def channels(case: Case, seen: Watched, means: Means, events: Sequence[Event]) -> Iterator[str]:
    """Yield a card for each event, in the order in which they are given and numbered."""
    own = seen.told_by_host()
    shown: Counter[tuple[str, int]] = Counter()
    kinds = len({(event.fault, event.variant) for event in events})
    most = max(EVENTS_OF_A_KIND, EVENTS_AT_LEAST // max(kinds, 1))
    hidden = 0
    for place, event in enumerate(events, start=1):
        finders = {
            host: told
            for host, episodes in sorted(own.items())
            if event.is_on(host)
            and (told := finder(event, episodes.values(), case.grace_us())) is not None
        }
        shown[event.fault, event.variant] += 1
        if shown[event.fault, event.variant] > most:
            hidden += 1
            continue
        if not finders:
            heading = _heading(place, event, seen)
            yield f'<div class="card">{heading}<p>Not found on any host.</p></div>'
            continue
        # The host that told it first speaks for all.
        host = min(finders, key=lambda h: finders[h].opened_us)
        name = next(n for n, told in own[host].items() if told is finders[host])
        record = _last_by(seen.episodes[name], event.end_us)
        yield "".join(
            (
                f'<div class="card">{_heading(place, event, seen)}',
                f"<p>{escaped(_account(record, event, host, finders, case))}</p>",
                '<div class="multiples">',
                *(
                    _multiple(case, means, record, blamed, event, finders[host].opened_us)
                    for blamed in record.channels[:CHANNELS_OF_AN_EVENT]
                ),
                "</div></div>",
            )
        )
    if hidden:
        yield f'<p class="note">{count_of(hidden, "more event")} of the same kinds not drawn.</p>'


def _heading(place: int, event: Event, seen: Watched) -> str:
    after = (event.start_us - seen.span()[0]) / 1e6
    lasted = (event.end_us - event.start_us) / 1e6
    cost = "" if math.isnan(event.cost) else f"; steps took {event.cost:.2f} times the usual"
    when = f"after {duration(after)}, for {duration(lasted)}{cost}"
    name = f"{place}. {escaped(event.fault)}/{event.variant}"
    return f'<h3>{name}</h3><p class="faint">{escaped(when)}</p>'


def _account(
    record: Anomaly, event: Event, host: str, finders: Mapping[str, Told], case: Case
) -> str:
    text = f"Told after {delay((finders[host].opened_us - event.start_us) / 1e6)} on {host}"
    others = len(finders) - 1
    text += f" and on {count_of(others, 'other host')}" if others else ""
    text += f": {subsystem_shares(record)}." if case.labels is not None else "."
    if record.causes:
        cause = record.causes[0]
        text += f" {cause.rule} ({100 * cause.confidence:.0f} %): {cause.summary}"
    return text


def _multiple(
    case: Case,
    means: Means,
    record: Anomaly,
    blamed: BlamedChannel,
    event: Event,
    told_us: int,
) -> str:
    begin, end = _around(event, case.worker)
    ends, values = means.of(record.host, record.layout, blamed.metric, blamed.device, begin, end)
    low, high = blamed.expected_low, blamed.expected_high
    said = f"{human(blamed.value, blamed.unit)}, expected {human_range(low, high, blamed.unit)}"
    if blamed.statistic != "mean":
        said += f"; what is odd is its {blamed.statistic}"
    drawn = (
        plots.channel(
            (ends - event.start_us) / 1e6,
            values,
            (low, high),
            blamed.unit,
            plots.mark(event.start_us, event.end_us, event.start_us, plots.LABEL),
            (told_us - event.start_us) / 1e6,
        )
        if len(ends)
        else "<p>Computed from others: no window holds it.</p>"
    )
    return (
        f"<figure><figcaption><b>{escaped(blamed.label)}</b><br>{escaped(said)}</figcaption>"
        f"{drawn}</figure>"
    )


def _last_by(records: Sequence[Anomaly], us: int) -> Anomaly:
    return next((a for a in reversed(records) if a.latest <= us), records[0])


def _around(event: Event, worker: WorkerSettings) -> tuple[int, int]:
    beside_us = BESIDE_STRIDES * worker.stride_ms * 1000
    return event.start_us - beside_us, event.end_us + beside_us
