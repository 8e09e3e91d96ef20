"""Files of labels: what was wrong with a recording's hosts, and when."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.evaluation import Event
from schemas.errors import RevealError


class InvalidLabels(RevealError, ValueError):
    """A file of labels is not what it should be. The text names the file, the label and what."""


def read_labels(path: Path) -> list[Event]:
    """Return the faults of a file of labels.

    It is JSON, a list of objects: `fault` and `subsystem`, `start_ns` and `end_ns` on the wall
    clock, and if known `variant` (0), `step_cost` (what a step of the job took over the usual),
    and `hosts` on which it is expected (all).

    Raises
    ------
    InvalidLabels
        It cannot be read, or a label lacks what it needs.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InvalidLabels(f"{path} cannot be read: {e.strerror}") from None
    except ValueError as e:
        raise InvalidLabels(f"{path} is no JSON: {e}") from None
    if not isinstance(found, list) or not found:
        raise InvalidLabels(f"{path} holds no list of labels")
    events = []
    for number, label in enumerate(found, start=1):
        try:
            event = _event(label)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as e:
            what = f"lacks {e}" if isinstance(e, KeyError) else f"is not as it should be: {e}"
            raise InvalidLabels(f"{path}: label {number} {what}") from None
        if event.end_us <= event.start_us:
            raise InvalidLabels(f"{path}: label {number} ({event.fault}) ends before it starts")
        events.append(event)
    return events


def check_hosts(path: Path, events: Sequence[Event], recorded: Sequence[str]) -> None:
    """Check that labels name only hosts that a recording has.

    Raises
    ------
    InvalidLabels
        One names another. The text says which there are.
    """
    for number, event in enumerate(events, start=1):
        for host in event.hosts:
            if host not in recorded:
                raise InvalidLabels(
                    f"{path}: label {number} ({event.fault}) is of host {host!r}, "
                    f"which the recording has not; it has {', '.join(map(repr, recorded))}"
                )


def _event(label: Any) -> Event:
    cost, hosts = label.get("step_cost"), label.get("hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise ValueError(f"its hosts are {hosts!r}, not a list of names")
    if "hosts" in label and not hosts:
        raise ValueError("its list of hosts is empty: leave it out where the fault is on all")
    return Event(
        fault=str(label["fault"]),
        variant=int(label.get("variant", 0)),
        subsystem=str(label["subsystem"]),
        start_us=int(label["start_ns"]) // 1000,
        end_us=int(label["end_ns"]) // 1000,
        cost=math.nan if cost is None else float(cost),
        hosts=tuple(hosts),
    )
