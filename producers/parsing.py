"""Text files of numbers between labels, read by position.

Nearly every kernel file is words and numbers whose places hardly ever change. So a file is split
into tokens, the labels are compared with those of the plan in one go, and the numbers are taken
from where the plan says they are. Only when a label moved is the text looked at line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias, cast

import numpy as np

from producers.reading import Reader
from producers.source import EVERY_TICK, SECOND_NS, Derive, Field, Plan
from schemas.records import Channel, Kind

Tokens: TypeAlias = list[bytes]
Pick: TypeAlias = Callable[[Tokens], Sequence[bytes]]

SLOW_ABOVE_BYTES = 16 * 1024
"""A file whose `slow` is set and that is larger is read once a second."""

_NAN = float("nan")
_LARGEST = 2**63 - 1
# What parts words in str but not in bytes must part them in neither: places have to agree.
_NO_SEPARATORS = bytes.maketrans(b"\x1c\x1d\x1e\x1f", b"????")


class Draft:
    """What a planner found: which token is which number.

    Every other token is a label, unless it is all digits: when a label changes, the file is
    planned anew. Of several fields or channels with one name the first is taken.
    """

    def __init__(self) -> None:
        self.fields: dict[str, tuple[int, Field]] = {}
        self.direct: list[str] = []
        self.channels: dict[tuple[str, str], Channel] = {}
        self.derive: Derive | None = None
        self.ratios: dict[str, tuple[str, ...]] = {}
        self.watched: set[int] = set()

    def channel(
        self, at: int, channel: Channel, *, scale: float = 1.0, modulus: float = 0.0
    ) -> None:
        """Token `at` is this channel's level, or the counter whose rate it is."""
        if (channel.metric, channel.device) in self.channels:
            return
        counter = channel.kind is Kind.RATE
        self.field(at, Field(channel.label, counter, scale, modulus))
        self.channels[channel.metric, channel.device] = channel
        self.direct.append(channel.label)

    def field(self, at: int, field: Field) -> None:
        """Token `at` is a number from which channels are derived."""
        self.fields.setdefault(field.key, (at, field))

    def watch(self, at: int) -> None:
        """Token `at` is a label although it is a number: look again when it changes."""
        self.watched.add(at)

    def derived(
        self,
        channels: Iterable[Channel],
        derive: Derive,
        ratios: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Channels that `derive` makes from the levels and rates of all fields, in order.

        `ratios` are labels of channels among them, and the keys of the fields whose rates they
        compare.
        """
        for channel in channels:
            if (channel.metric, channel.device) in self.channels:
                raise ValueError(f"channel {channel.label} is there twice")
            self.channels[channel.metric, channel.device] = channel
        self.derive = derive
        self.ratios = dict(ratios or {})

    def plan(self) -> Plan:
        """Return what the numbers of a reading mean, fields in the order of `fields`."""
        order = {key: i for i, key in enumerate(self.fields)}
        return Plan(
            fields=tuple(field for _, field in self.fields.values()),
            channels=tuple(self.channels.values()),
            direct=tuple(order[key] for key in self.direct),
            derive=self.derive,
            ratios=tuple(
                (at, tuple(order[key] for key in self.ratios[channel.label]))
                for at, channel in enumerate(self.channels.values())
                if channel.label in self.ratios
            ),
        )


Planner: TypeAlias = Callable[[str], Draft]


def numbered_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each line that is not empty: the number of its first token in the text, its tokens."""
    at = 0
    for line in text.split("\n"):
        words = line.split()
        if words:
            yield at, words
        at += len(words)


def core_columns(header: Sequence[str]) -> list[str]:
    """Return ``["cpu0", "cpu2"]`` for a header ``CPU0 CPU2``, nothing for what is no such header.

    Cores that are offline have no column, so a place is no core's number.
    """
    cores = [name.lower() for name in header]
    named = all(re.fullmatch(r"cpu\d+", name) for name in cores)
    return cores if named and len(set(cores)) == len(cores) else []


def snake_case(name: str) -> str:
    """Return ``in_segs`` for ``InSegs``, ``active_anon`` for ``Active(anon)``."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z]{2})", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")


class TextFile:
    """A source that is one text file.

    What the labels say is believed when they say so twice: in the reading in between, the old
    channels have what can still be found by name, and NaN for the rest. So one torn reading
    changes no layout. A text without any number is never believed.

    Parameters
    ----------
    path
        The file, ``proc/meminfo``.
    planner
        Pure function from the text to what its numbers mean. Numbers of tokens are those of the
        text as `prepare` left it.
    remedy
        Why it matters when it cannot be read, and what to do.
    prepare
        Pure function that cuts out what nobody needs, or parts what is not apart.
    number
        Converts one token; int is twice as fast as float.
    period_ns
        How long a reading may serve.
    slow
        A second at least where the file is large (`SLOW_ABOVE_BYTES`).
    """

    def __init__(
        self,
        path: str,
        planner: Planner,
        *,
        remedy: str,
        prepare: Callable[[bytes], bytes] | None = None,
        number: Callable[[bytes], float] = int,
        period_ns: int = EVERY_TICK,
        slow: bool = False,
    ) -> None:
        self.path = path
        self.remedy = remedy
        self.problem = ""
        self.bad_fields = 0
        self._planner = planner
        self._prepare = prepare
        self._number = number
        self._whole = cast(object, number) is int
        self.period_ns = period_ns
        self._usual_ns = period_ns
        self._slow = slow
        self._whole_lines = True
        self._table = _NOTHING
        self._pending = _NOTHING
        # The newest text that fitted, its numbers, and how many of them were none.
        self._text: bytes | None = None
        self._newest: Sequence[float] = ()
        self._bad = 0

    @property
    def plan(self) -> Plan:
        """What the numbers of the newest reading mean."""
        return self._table.plan

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        """Read and parse the file."""
        text = reader.read(self.path)
        if not isinstance(text, bytes):
            self.problem = f"{self.path}: {text.reason}"
            return self.plan.blank
        if self._slow:
            large = len(text) > SLOW_ABOVE_BYTES
            self.period_ns = max(self._usual_ns, SECOND_NS) if large else self._usual_ns
        return self.parse(text)

    def parse(self, text: bytes) -> Sequence[float]:
        """Return the numbers of a text, as many as ``plan.fields``; NaN where unknown."""
        if text == self._text:  # of a disk that rests, a socket that waits
            self.problem = ""
            self.bad_fields += self._bad
            return self._newest
        self._text = None
        whole = text
        self.problem = ""
        if not text.endswith(b"\n"):
            text = self._without_torn_line(text)
        if self._prepare is not None:
            text = self._prepare(text)
        tokens = text.split()
        table = self._table
        if not table.fits(tokens):
            return self._replan(text, tokens)
        self._pending = _NOTHING
        before = self.bad_fields
        self._newest = self._numbers(table.pick(tokens))
        self._text, self._bad = whole, self.bad_fields - before
        return self._newest

    def _replan(self, text: bytes, tokens: Tokens) -> Sequence[float]:
        words = text.translate(_NO_SEPARATORS).decode("ascii", "replace")
        fresh = _Table.of(self._planner(words), tokens)
        numbers = self._numbers(fresh.pick(tokens))
        if all(number != number for number in numbers):  # NaN; isnan fails on very large integers
            self.problem = f"{self.path}: no number where one was expected"
            return self.plan.blank
        if self._table is _NOTHING or self._pending.fits(tokens):
            self._table, self._pending = fresh, _NOTHING
            return numbers
        self._pending = fresh
        found = {f.key: value for f, value in zip(fresh.plan.fields, numbers, strict=True)}
        return [found.get(f.key, _NAN) for f in self._table.plan.fields]

    def _numbers(self, tokens: Sequence[bytes]) -> Sequence[float]:
        together = b" ".join(tokens)
        digits = together.replace(b" ", b"")
        if self._whole and digits.isdigit():
            # What `int` makes of each, in half the time.
            numbers = np.fromstring(together, np.int64, sep=" ")
            # What is too large is cut to the largest, so that one may be any number.
            if numbers.max() < _LARGEST:
                whole: list[float] = numbers.tolist()
                return whole
        if _is_plain(digits):
            try:
                return list(map(self._number, tokens))
            except ValueError:
                pass
        return [self._one(token) for token in tokens]

    def _one(self, token: bytes) -> float:
        try:
            if _is_plain(token):
                return self._number(token)
        except ValueError:
            pass
        self.bad_fields += 1
        return _NAN

    def _without_torn_line(self, text: bytes) -> bytes:
        """Drop the last line where it is torn: half a number would pass for a whole one."""
        if self._table is _NOTHING:
            self._whole_lines = False
        return text[: text.rfind(b"\n") + 1] if self._whole_lines else text


def _is_plain(token: bytes) -> bool:
    """Return False for ``-5``, ``+5`` and ``1_000``, which int and float take."""
    return token.replace(b".", b"").isalnum()


class _Table:
    """A plan with the places of its labels and numbers among the tokens."""

    def __init__(self, plan: Plan, size: int, labels: Pick, names: Sequence[bytes], pick: Pick):
        self.plan = plan
        self.pick = pick
        self._size = size
        self._labels = labels
        self._names = names

    @staticmethod
    def of(draft: Draft, tokens: Tokens) -> _Table:
        places = [at for at, _ in draft.fields.values()]
        taken = set(places)
        labels = _picker(
            [
                i
                for i, token in enumerate(tokens)
                if i not in taken and (i in draft.watched or not token.isdigit())
            ]
        )
        plan = draft.plan()
        return _Table(plan, len(tokens), labels, labels(tokens), _picker(places))

    def fits(self, tokens: Tokens) -> bool:
        return len(tokens) == self._size and self._labels(tokens) == self._names


def _picker(places: Sequence[int]) -> Pick:
    if len(places) == 1:
        only = places[0]
        return lambda tokens: (tokens[only],)
    if not places:
        return lambda _: ()
    pick: Pick = itemgetter(*places)
    return pick


_NOTHING = _Table(Plan(), -1, _picker(()), (), _picker(()))
