"""Names of columns of the paper's files: ``Group:metric.instance.host[unit]``.

Dots are in metrics of GPUs (``utilization.gpu``), in instances (``eth0.100``) and may be in hosts
(``node1.example.org``), so a name does not say where its host begins. A host is

- what the user names, where a column ends with it;
- what follows the metric of a column of memory, none of which has a dot or an instance;
- the last part otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MEMORY_GROUPS = frozenset(("memory", "meminfo"))
CORE_GROUPS = frozenset(("perf", "turbostat"))
"""Groups whose instances are cores: numbers."""
DIFF = "_diff"
WHOLE = "-"
"""The instance that is the whole machine."""

_NAME = re.compile(r"\s*([^:\[\]]+?)\s*:\s*(.+?)\s*(?:\[([^\[\]]*)\])?\s*")
_NUMBERED = re.compile(rf"\d+|{WHOLE}")
_GPU = re.compile(rf"\d+|{WHOLE}|(GPU|MIG)-.*")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `group` is without ``_diff``; `instance` is empty for the whole machine."""

    host: str
    group: str
    metric: str
    instance: str
    unit: str
    differences: bool


def columns(names: Sequence[str], hosts: Iterable[str] = ()) -> list[Column | None]:
    """Return what each name says, None where it is no name of this kind.

    Parameters
    ----------
    names
        As they stand in the file.
    hosts
        Names of hosts that the user gave.
    """
    parts = [_NAME.fullmatch(name) for name in names]
    found = {tail for p in parts if p is not None and (tail := _memory_host(p[1], p[2]))}
    # The longer name first: of "a.b" and "b" a column that ends with ".a.b" belongs to the first.
    known = sorted({*hosts, *found}, key=lambda host: (-len(host), host))
    return [None if p is None else _column(p[1], p[2], p[3] or "", known) for p in parts]


def odd_core(found: Iterable[Column | None]) -> Column | None:
    """Return a column that has something else where a core should be: its host may have dots."""
    return next(
        (
            c
            for c in found
            if c is not None
            and c.group.lower() in CORE_GROUPS
            and c.instance
            and not _NUMBERED.fullmatch(c.instance)
        ),
        None,
    )


def _memory_host(group: str, body: str) -> str:
    if group.lower().removesuffix(DIFF) not in MEMORY_GROUPS:
        return ""
    first, _, rest = body.partition(".")[2].partition(".")
    return rest if rest and _NUMBERED.fullmatch(first) else f"{first}.{rest}".strip(".")


def _column(group: str, body: str, unit: str, hosts: Sequence[str]) -> Column | None:
    for host in hosts:
        if body.endswith(f".{host}"):
            rest = body.removesuffix(f".{host}")
            break
    else:
        rest, _, host = body.rpartition(".")
    if not rest or not host:
        return None
    if group.lower().startswith("gpu"):
        metric, _, instance = rest.rpartition(".")
        if not metric or not _GPU.fullmatch(instance):
            metric, instance = rest, ""
    else:
        metric, _, instance = rest.partition(".")
    return Column(
        host=host,
        group=group[: -len(DIFF)] if group.lower().endswith(DIFF) else group,
        metric=metric.strip(),
        instance="" if instance == WHOLE else instance,
        unit=unit.strip(),
        differences=group.lower().endswith(DIFF),
    )
