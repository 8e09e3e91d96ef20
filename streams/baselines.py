"""Baselines as messages of their topic: cut where they are too large, put together again.

The key is ``host:fingerprint``, and ``host:fingerprint/1`` and on for the further parts of a
baseline that is larger than `PIECE`: a broker takes 1 MB a message unless it is told otherwise.
A null under the first key takes a baseline back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from models.baseline import Baseline
from models.novelty import Usual
from schemas import records
from schemas.codec import decode_as, encode
from schemas.errors import InvalidRecord
from streams.fitting import Learned
from streams.lives import News

PIECE = 800_000
"""Bytes of a baseline in one message. The ranges of 10,000 channels fit in beside them."""
VERSIONS = 2
"""Versions looked at, the newest first: should that be damaged, the one before may still be there,
since compaction takes its time."""

_NONE = np.zeros(0, np.float32)

Place: TypeAlias = tuple[str, int]
"""Host and layout."""


def to_messages(news: News) -> list[tuple[str, bytes | None]]:
    """Return keys and values that tell of a baseline, or that there is none any more."""
    key = f"{news.host}:{news.layout}"
    learned = news.learned
    if learned is None:
        return [(key, None)]
    pieces = [learned.data[at : at + PIECE] for at in range(0, len(learned.data), PIECE)]
    return [
        (
            f"{key}/{part}" if part else key,
            encode(
                records.Baseline(
                    host=news.host,
                    layout=news.layout,
                    version=learned.version,
                    windows=learned.baseline.windows,
                    note=learned.note,
                    low=_NONE if part else learned.usual.low,
                    high=_NONE if part else learned.usual.high,
                    part=part,
                    parts=len(pieces),
                    data=piece,
                )
            ),
        )
        for part, piece in enumerate(pieces)
    ]


@dataclass(slots=True, eq=False)
class _Found:
    """What a topic says of one host and layout: parts by version, or that it is taken back."""

    withdrawn: bool = False
    versions: dict[int, dict[int, records.Baseline]] = field(default_factory=dict)


class Assembly:
    """Puts baselines together from messages in the order of their log.

    Parameters
    ----------
    reject
        Told of each message or baseline that is none, and why.
    """

    def __init__(self, reject: Callable[[str], None]) -> None:
        self._reject = reject
        self._found: dict[Place, _Found] = {}

    def add(self, key: bytes, value: bytes | None) -> None:
        """Take in a message."""
        if value is None:
            host, _, fingerprint = key.decode(errors="replace").rpartition(":")
            if fingerprint.removeprefix("-").isdecimal():
                self._found[host, int(fingerprint)] = _Found(withdrawn=True)
            return
        try:
            record = decode_as(records.Baseline, value)
        except InvalidRecord as e:
            self._reject(f"message {key.decode(errors='replace')!r}: {e}")
            return
        found = self._found.setdefault((record.host, record.layout), _Found())
        found.withdrawn = False
        found.versions.setdefault(record.version, {})[record.part] = record
        while len(found.versions) > VERSIONS:
            del found.versions[min(found.versions)]

    def take(self) -> Iterator[News]:
        """Yield what there is, the newest of each host and layout that can be read."""
        while self._found:
            (host, layout), found = self._found.popitem()
            if found.withdrawn:
                yield News(host, layout, None)
                continue
            for version in sorted(found.versions, reverse=True):
                # Parts left over from a larger baseline that was taken back are nobody's.
                if 0 not in found.versions[version]:
                    continue
                try:
                    yield News(host, layout, _joined(found.versions[version]))
                    break
                except ValueError as e:
                    self._reject(f"baseline of {host!r}, layout {layout}, version {version}: {e}")


def _joined(parts: dict[int, records.Baseline]) -> Learned:
    first = parts[0]
    if parts.keys() != set(range(first.parts)):
        raise ValueError(f"{len(parts)} of its {first.parts} parts are there")
    baseline = Baseline.from_bytes(b"".join(parts[i].data for i in range(first.parts)))
    if baseline.version != first.version:
        raise ValueError(f"it holds version {baseline.version}")
    if baseline.channels != len(first.low):
        raise ValueError(f"{len(first.low)} ranges for {baseline.channels} channels")
    return Learned(first.version, baseline, Usual(first.low, first.high), first.note)
