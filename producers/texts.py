"""The same text file of each of several devices, as each NUMA node has a meminfo.

Which devices there are is looked up every few seconds; each text is then parsed as a `TextFile`
parses it::

    def plan(device: str, text: str) -> Draft: ...

    TextTree(
        "sys/devices/system/node",
        within("sys/devices/system/node", "node*", "numastat"),
        plan,
        remedy="why it matters, what to do",
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeAlias

import numpy as np

from producers.parsing import Draft, TextFile
from producers.reading import Reader
from producers.source import SECOND_NS, Derive, Doubles, Field, Plan
from producers.tree import LOOK_NS
from schemas.records import Channel

Find: TypeAlias = Callable[[Reader], "Mapping[str, str] | str"]
"""Returns the path of each device's text, or why there is none."""


def within(top: str, pattern: str, name: str) -> Find:
    """Return a `Find` of ``top/*/name``; a device is called like its directory.

    Parameters
    ----------
    pattern
        What the names of the directories look like: ``node*``.
    """

    def find(reader: Reader) -> Mapping[str, str] | str:
        names = reader.list(top)
        if not isinstance(names, tuple):
            return names.reason
        return {n: f"{top}/{n}/{name}" for n in names if fnmatchcase(n, pattern)}

    return find


class TextTree:
    """A source that is several text files of one kind.

    A file that cannot be read at first sight is absent, and looked at again with every look
    around. As in `TextFile`, what is gone is believed the second time.

    Parameters
    ----------
    path
        The directory that it is about.
    find
        Says which devices there are and where their texts are.
    planner
        Pure function from a device and its text to what the numbers mean.
    remedy
        Why it matters when it is not there, and what to do.
    prepare
        As in `TextFile`.
    page
        Each text has a page at most, as in sysfs: one system call reads it.
    period_ns
        How long a reading may serve.
    look_ns
        How long a look around may serve.
    """

    def __init__(
        self,
        path: str,
        find: Find,
        planner: Callable[[str, str], Draft],
        *,
        remedy: str,
        prepare: Callable[[bytes], bytes] | None = None,
        page: bool = False,
        period_ns: int = SECOND_NS,
        look_ns: int = LOOK_NS,
    ) -> None:
        self.path = path
        self.remedy = remedy
        self.period_ns = period_ns
        self.problem = ""
        self.bad_fields = 0
        self.plan = Plan()
        self._find = find
        self._planner = planner
        self._prepare = prepare
        self._page = page
        self._look_ns = look_ns
        self._looked_ns: int | None = None
        self._lost = False
        self._files: dict[str, TextFile] = {}
        self._unread: set[str] = set()
        self._plans: list[Plan] | None = None
        self._why = ""

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Return the numbers of all texts, NaN where there is none."""
        looked = self._looked_ns
        if looked is None or self._lost or not 0 <= mono_ns - looked < self._look_ns:
            self._looked_ns = mono_ns
            self._look(reader)
        self._unread.clear()
        get = reader.small if self._page else reader.read
        numbers: list[float] = []
        plans: list[Plan] = []
        problems: list[str] = []
        silent: list[str] = []  # what never had a number fails nobody
        for path, file in self._files.items():
            text = get(path)
            if isinstance(text, bytes):
                bad = file.bad_fields
                numbers += file.parse(text)
                self.bad_fields += file.bad_fields - bad
                if file.problem:
                    (problems if file.plan.fields else silent).append(file.problem)
            else:
                numbers += file.plan.blank
                self._unread.add(path)
                problems.append(f"{path}: {text.reason}")
            plans.append(file.plan)
        told = problems if numbers else problems + silent
        self.problem = told[0] if told else self._why
        before = self._plans
        if before is None or any(a is not b for a, b in zip(plans, before, strict=True)):
            self._plans = plans
            self.plan = joined(dict(zip(self._files, plans, strict=True)))
        return numbers

    def _look(self, reader: Reader) -> None:
        found = self._find(reader)
        if isinstance(found, str):
            self._why, found = f"{self.path}: {found}", {}
        else:
            self._why = "" if found else f"{self.path}: nothing in it"
        get = reader.small if self._page else reader.read
        there = {
            device: path
            for device, path in found.items()
            if (path in self._files and path not in self._unread) or isinstance(get(path), bytes)
        }
        lost = not set(self._files) <= set(there.values())
        if lost and not self._lost:
            # Perhaps it is torn, or being renamed: look again at the next reading.
            self._lost = True
            return
        self._lost = False
        if list(there.values()) != list(self._files):
            self._files = {p: self._files.get(p) or self._file(d, p) for d, p in there.items()}
            self._plans = None

    def _file(self, device: str, path: str) -> TextFile:
        planner = partial(self._planner, device)
        return TextFile(path, planner, remedy=self.remedy, prepare=self._prepare)


def joined(plans: Mapping[str, Plan]) -> Plan:
    """Return what the numbers of several texts mean, one after another.

    The keys of its fields begin with the path: a device that comes again under another path has
    other counters. Channels are first the fields of all texts, then what is derived of each.
    """
    fields: list[Field] = []
    direct: list[int] = []
    first: list[Channel] = []
    last: list[Channel] = []
    parts: list[tuple[Derive, slice]] = []
    ratios: list[tuple[int, tuple[int, ...]]] = []
    directs = sum(len(plan.direct) for plan in plans.values())
    for path, plan in plans.items():
        at, own = len(fields), len(plan.direct)
        fields += (replace(f, key=f"{path} {f.key}") for f in plan.fields)
        derived = directs + len(last) - own
        ratios += ((derived + c, tuple(at + f for f in places)) for c, places in plan.ratios)
        direct += (at + i for i in plan.direct)
        first += plan.channels[:own]
        last += plan.channels[own:]
        if plan.derive is not None:
            parts.append((plan.derive, slice(at, len(fields))))
    derive = partial(_derived, tuple(parts)) if parts else None
    return Plan(tuple(fields), (*first, *last), tuple(direct), derive, tuple(ratios))


def _derived(parts: Sequence[tuple[Derive, slice]], levels: Doubles) -> Doubles:
    return np.concatenate([derive(levels[at]) for derive, at in parts])
