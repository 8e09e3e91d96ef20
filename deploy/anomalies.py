"""``reveal anomalies``: episodes as lines for people or as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator

import click

from deploy.reader import TopicReader
from deploy.rundir import ViewSettings, find_brokers
from deploy.wording import anomaly_line, cause_lines, count_of, date_time
from schemas.flags import with_settings
from schemas.records import Anomaly, EpisodeState
from schemas.settings import Kafka, Resolved
from schemas.topics import ANOMALIES

POLL_S = 0.25


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Wait for new ones until Ctrl-C.")
@click.option("--since-start", is_flag=True, help="With --follow: first what is there already.")
@click.option("--json", "as_json", is_flag=True, help="One record a line, updates included.")
@click.option("--updates", is_flag=True, help="Also print how open episodes go on.")
@click.option(
    "--causes", is_flag=True, help="Also print likely causes, with evidence and what to type."
)
@with_settings(kafka=Kafka, view=ViewSettings)
def anomalies(
    settings: Resolved, follow: bool, since_start: bool, as_json: bool, updates: bool, causes: bool
) -> None:
    """Print when episodes opened and closed, which subsystems, and the channels to blame.

    Without --follow: what the topic holds, by time. Without --brokers: of the `reveal up` that
    runs on this machine.
    """
    brokers = find_brokers(settings.get("kafka", Kafka), settings.get("view", ViewSettings))
    try:
        with TopicReader(brokers, [ANOMALIES], from_start=since_start or not follow) as reader:
            for anomaly in _follow(reader, since_start) if follow else _history(reader):
                if as_json:
                    click.echo(json_line(anomaly))
                elif updates or anomaly.state is not EpisodeState.ONGOING:
                    when = anomaly.onset if anomaly.state is EpisodeState.OPEN else anomaly.latest
                    click.echo(f"{date_time(when)}  {anomaly_line(anomaly)}")
                    for line in cause_lines(anomaly) if causes else ():
                        click.echo(line)
            _say_unreadable(reader.invalid)
    except KeyboardInterrupt:
        pass


def json_line(anomaly: Anomaly) -> str:
    """Return a record as one JSON object; a value that is no number is null.

    Floats are 32-bit: more digits than they hold are not written.
    """
    return json.dumps(_plain(dataclasses.asdict(anomaly)), allow_nan=False)


def _history(reader: TopicReader) -> list[Anomaly]:
    found = [record for record in reader.read_to_end() if isinstance(record, Anomaly)]
    # Partitions are read side by side; people and programs want the order of time.
    return sorted(found, key=lambda a: a.latest)


def _follow(reader: TopicReader, since_start: bool) -> Iterator[Anomaly]:
    if since_start:
        yield from _history(reader)
    connected, invalid = True, 0
    while True:
        yield from (r for r in reader.read(POLL_S) if isinstance(r, Anomaly))
        if reader.connected is not connected:
            connected = reader.connected
            click.echo(
                "the broker is back" if connected else "no broker answers: waiting", err=True
            )
        _say_unreadable(reader.invalid - invalid)
        invalid = reader.invalid


def _say_unreadable(count: int) -> None:
    if count:
        click.echo(f"{count_of(count, 'message')} could not be read", err=True)


def _plain(value: object) -> object:
    match value:
        case float():
            return float(f"{value:.7g}") if math.isfinite(value) else None
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value
