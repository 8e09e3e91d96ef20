"""Trees of small files with a number in each, as sysfs has them.

What a directory holds is looked up every few seconds, so that a device that comes or goes is
seen; in between only the numbers are read, one system call each::

    def find(tree: TreeDraft) -> None:
        for zone in tree.names("sys/class/thermal"):
            at = tree.file(f"sys/class/thermal/{zone}/temp")
            if at is not None:
                tree.channel(at, Channel("heat.zone", zone, ...), scale=1e-3)

    FileTree("sys/class/thermal", find, remedy="why it matters, what to do")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from producers.parsing import Draft
from producers.reading import Reader, Unreadable
from producers.source import SECOND_NS, Plan

LOOK_NS = 5 * SECOND_NS
"""So often a tree is looked through for devices that came or went."""

Number: TypeAlias = Callable[[bytes], float]
_NAN = float("nan")


def whole_number(content: bytes) -> float:
    """Return the number that is all of a file's text.

    Raises
    ------
    ValueError
        It is something else, as ``N/A (no PMA)``, ``+5`` or ``1_000``.
    """
    digits = content.strip()
    if not digits.removeprefix(b"-").isdigit():
        raise ValueError(f"{digits[:40]!r} is no number")
    return int(digits)


class TreeDraft(Draft):
    """What is found. `file` gives a place, for `channel` and `field`; the rest is as in `Draft`."""

    def __init__(self, reader: Reader, number: Number, admitted: frozenset[str]) -> None:
        super().__init__()
        self.paths: list[str] = []
        self._reader = reader
        self._number = number
        self._admitted = admitted
        self._lists: dict[str, tuple[str, ...] | Unreadable] = {}
        self._texts: dict[str, bytes | Unreadable] = {}
        self._there: dict[str, bool] = {}

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, sorted; none where it cannot be listed."""
        found = self._lists[path] = self._reader.list(path)
        return found if isinstance(found, tuple) else ()

    def text(self, path: str) -> str:
        """Return a label without the space around it; empty where it cannot be read."""
        found = self._texts[path] = self._reader.small(path)
        return found.decode("utf-8", "replace").strip() if isinstance(found, bytes) else ""

    def file(self, path: str) -> int | None:
        """Return the place of a file's number, None where it has none.

        A file that had a number once needs only to be there: it may have none for a moment, or
        refuse to be read while its device is off.
        """
        there = self._there[path] = self._is_there(path)
        if not there:
            return None
        self.paths.append(path)
        return len(self.paths) - 1

    def still_holds(self, reader: Reader, admitted: frozenset[str]) -> bool:
        """Return whether looking again would find the same: all that was asked has one answer.

        That files with a number are still there is left to the reading of them.
        """
        self._reader, self._admitted = reader, admitted
        return (
            all(reader.list(path) == found for path, found in self._lists.items())
            and all(reader.small(path) == found for path, found in self._texts.items())
            and not any(
                self._is_there(path) is not there
                for path, there in self._there.items()
                if not (there and path in admitted)
            )
        )

    def _is_there(self, path: str) -> bool:
        content = self._reader.small(path)
        if path in self._admitted:
            return not (isinstance(content, Unreadable) and content.absent)
        if not isinstance(content, bytes):
            return False
        try:
            return not math.isnan(self._number(content))
        except ValueError:
            return False


Find: TypeAlias = Callable[[TreeDraft], None]


class FileTree:
    """A source that is many files.

    `find` must be a pure function of what it asks: where a look around has the same answers as the
    one before, it is not called, since that costs several times as much as asking.

    A file without a number at first sight ("N/A", not supported, no permission) is absent, and
    looked at again with every look around. Once it had a number it stays, NaN while it has none,
    until it is no longer there. As in `TextFile`, what is gone is believed the second time.

    Parameters
    ----------
    path
        The directory that it is about.
    find
        Says what files there are and what their numbers mean.
    remedy
        Why it matters when it is not there, and what to do.
    period_ns
        How long a reading may serve.
    number
        Converts one file's text: NaN where it says that it has no number, which is not counted as
        wrong. Raises ValueError for anything else.
    look_ns
        How long a look around may serve.
    """

    def __init__(
        self,
        path: str,
        find: Find,
        *,
        remedy: str,
        period_ns: int = SECOND_NS,
        number: Number = whole_number,
        look_ns: int = LOOK_NS,
    ) -> None:
        self.path = path
        self.remedy = remedy
        self.period_ns = period_ns
        self.problem = ""
        self.bad_fields = 0
        self.plan = Plan()
        self._find = find
        self._number = number
        self._look_ns = look_ns
        self._looked_ns: int | None = None
        self._files: tuple[str, ...] = ()
        self._found: TreeDraft | None = None
        self._lost = False

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Return the number of each file, NaN where there is none."""
        looked, found = self._looked_ns, self._found
        same = False
        if looked is None or self._lost or not 0 <= mono_ns - looked < self._look_ns:
            self._looked_ns = mono_ns
            same = found is not None and found.still_holds(reader, frozenset(self._files))
            if not same:
                self._look(reader)
        numbers, wrong, gone = self._read_all(reader)
        if same and gone:
            self._look(reader)
            numbers, wrong, _ = self._read_all(reader)
        self.bad_fields += wrong
        return numbers

    def _read_all(self, reader: Reader) -> tuple[list[float], int, bool]:
        """Return the numbers, how many were none, and whether a file is not there."""
        small, number = reader.small, self._number
        numbers: list[float] = []
        wrong, gone = 0, False
        for path in self._files:
            content = small(path)
            value = _NAN
            if isinstance(content, bytes):
                try:
                    value = number(content)
                except ValueError:
                    wrong += 1
            elif content.absent:
                gone = True
            numbers.append(value)
        return numbers, wrong, gone

    def _look(self, reader: Reader) -> None:
        self._found = None
        admitted = frozenset(self._files)
        draft = TreeDraft(reader, self._number, admitted)
        self._find(draft)
        plan = draft.plan()
        self.problem = self._problem(reader, draft)
        before, now = self.plan, plan
        lost = not set(before.channels) <= set(now.channels)
        if lost and not self._lost:
            # Perhaps it is torn, or being renamed: look again at the next reading.
            self._lost = True
            return
        self._lost = False
        self._found = draft if draft.fields else None
        self._files = tuple(draft.paths[at] for at, _ in draft.fields.values())
        if (now.fields, now.channels) != (before.fields, before.channels):
            self.plan = plan

    def _problem(self, reader: Reader, draft: TreeDraft) -> str:
        if draft.fields:
            return ""
        listed = reader.list(self.path)
        reason = "no number in it" if isinstance(listed, tuple) else listed.reason
        return f"{self.path}: {reason}"
