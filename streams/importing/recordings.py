"""Writes what was read as recordings, one for each host.

What belongs to one host stands side by side, from whichever files it came. Rows of the same tick
become one; where two files have the same channel at the same tick, the first one's value stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from schemas.codec import encode
from schemas.records import Channel, Floats, Layout, Longs, Telemetry, layout_fingerprint
from streams.importing.errors import InvalidImport, NothingThereError
from streams.importing.parts import Moved, Part, Track, totals
from streams.importing.times import interval_us
from streams.recording import ContainerWriter

BLOCK_CELLS = 1 << 20
SECOND_US = 1_000_000
_ODD = re.compile(r"[^\w.-]")
VERSION = "import"
"""What layouts say in place of the agent's version."""


@dataclass(slots=True)
class Written:
    """What one host's recording holds, and what was left out of it.

    `missing`, `named_twice` are columns that were left out; `zero` and `totals` are columns that
    hold nothing but zeros, and running totals that became rates. `empty_rows` are rows in which
    this host has no value: it was not there. `missing_ticks` are the ticks in the `gaps` between
    the first and the last.
    """

    host: str
    path: Path
    rows: int = 0
    channels: int = 0
    ours: int = 0
    interval_us: int = 0
    distance_us: float = math.nan
    first_us: int = 0
    last_us: int = 0
    missing: int = 0
    named_twice: int = 0
    zero: int = 0
    totals: int = 0
    empty_rows: int = 0
    gaps: int = 0
    missing_ticks: int = 0
    moved: Moved = field(default_factory=Moved)


def free_paths(directory: Path, hosts: Sequence[str], *, force: bool) -> dict[str, Path]:
    """Return where each host's recording goes; `directory` is made where it is not there.

    Raises
    ------
    InvalidImport
        A file is there already, unless `force`, or there can be no directory.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InvalidImport(f"{directory} cannot be made: {e.strerror}") from None
    paths: dict[str, Path] = {}
    for host in hosts:
        name = stem = _ODD.sub("_", host).lstrip(".")[:200] or "host"
        number = 1
        while directory / f"{name}.avro" in paths.values():
            number += 1
            name = f"{stem}-{number}"
        paths[host] = directory / f"{name}.avro"
    there = [path for path in paths.values() if path.exists()]
    if there and not force:
        raise InvalidImport(f"{there[0]} is there already: give another --out, or --force")
    return paths


def write_host(
    host: str,
    parts: Sequence[Part],
    path: Path,
    *,
    wanted_ms: int | None = None,
    force: bool = False,
) -> Written:
    """Write a host's recording.

    Parameters
    ----------
    parts
        All of it.
    wanted_ms
        The sampling interval, where it is not that of the rows.

    Raises
    ------
    InvalidImport
        No interval that windows can be made of; two files with different ones.
    NothingThereError
        No row or no value at all.
    InvalidRecording
        The file is there already, or cannot be written.
    """
    done = Written(host, path)
    _agree_on_interval(done, parts, wanted_ms)
    counted = totals(parts)
    tracks = [Track(part, done.interval_us, counted) for part in parts]
    places, channels = _side_by_side(done, tracks)
    ticks = np.unique(np.concatenate([track.ticks for track in tracks]))
    if not channels or not len(ticks):
        what = f"{host!r} has no value in any column" if len(ticks) else f"{host!r} has no row"
        raise NothingThereError(f"{parts[0].where}: {what}")
    fingerprint = layout_fingerprint(channels, done.interval_us)
    layout = Layout(host, fingerprint, VERSION, "", done.interval_us, tuple(channels))
    done.named_twice = sum(part.named_twice for part in parts)
    with ContainerWriter(path, force=force) as writer:
        writer.add(Layout, encode(layout))
        seq = 0
        for stamps, values in _records(layout, ticks, tracks, places):
            there = np.asarray(~np.isnan(values)).any(axis=0)
            if not there.all():
                stamps, values = stamps[there], np.ascontiguousarray(values[:, there])
            done.empty_rows += there.size - len(stamps)
            if not len(stamps):
                continue
            record = Telemetry(host, fingerprint, seq, done.interval_us, stamps, values)
            writer.add(Telemetry, encode(record))
            seq += 1
            _count(done, stamps)
        if not done.rows:
            raise NothingThereError(f"{parts[0].where}: no row of {host!r} has a value")
    for track in tracks:
        done.moved.duplicates += track.moved.duplicates
        done.moved.together += track.moved.together
        done.moved.out_of_order += track.moved.out_of_order
        done.moved.off_grid += track.moved.off_grid
        done.moved.too_large += track.moved.too_large
    return done


def _agree_on_interval(done: Written, parts: Sequence[Part], wanted_ms: int | None) -> None:
    found: dict[int, str] = {}
    for part in parts:
        distance = part.distance_us
        if math.isnan(distance) and len(parts) > 1 and wanted_ms is None:
            continue  # a single row beside others
        found.setdefault(interval_us(distance, wanted_ms, part.where), part.where)
        if math.isnan(done.distance_us):
            done.distance_us = distance
    if len(found) > 1:
        said = ", ".join(f"{us // 1000} ms in {where}" for us, where in found.items())
        raise InvalidImport(
            f"{done.host!r} was sampled at different intervals: {said}; import these apart, or "
            "place both on one grid with --interval-ms"
        )
    if not found:
        interval_us(math.nan, wanted_ms, parts[0].where)
    done.interval_us = next(iter(found))


def _side_by_side(done: Written, tracks: Sequence[Track]) -> tuple[list[Longs], list[Channel]]:
    """Return the place of each track's columns among the channels of the host, and those."""
    place: dict[tuple[str, str], int] = {}
    channels: list[Channel] = []
    places = []
    for track in tracks:
        mine = []
        for meaning in track.kept.meanings:
            channel = meaning.channel
            at = place.setdefault((channel.metric, channel.device), len(channels))
            if at == len(channels):
                channels.append(channel)
                done.ours += meaning.ours
            mine.append(at)
        places.append(np.array(mine, np.int64))
        done.missing += track.kept.missing
        done.zero += track.kept.zero
        done.totals += track.kept.totals
    done.channels = len(channels)
    return places, channels


def _count(done: Written, stamps: Longs) -> None:
    """Take a record's times into account."""
    steps = np.diff(stamps, prepend=done.last_us if done.rows else stamps[0]) // done.interval_us
    done.gaps += int((steps > 1).sum())
    done.missing_ticks += int((steps[steps > 1] - 1).sum())
    done.first_us = done.first_us if done.rows else int(stamps[0])
    done.last_us = int(stamps[-1])
    done.rows += len(stamps)


def _records(
    layout: Layout, ticks: Longs, tracks: Sequence[Track], places: Sequence[Longs]
) -> Iterator[tuple[Longs, Floats]]:
    """Yield times and values, shape ``(channels, ticks)``, of each second that has ticks."""
    stamps = ticks * layout.interval_us
    cuts = np.flatnonzero(np.diff(stamps // SECOND_US)) + 1
    cuts = np.concatenate((cuts, [len(ticks)]))
    most = max(1, BLOCK_CELLS // len(layout.channels))
    taken = [0] * len(tracks)
    start = 0
    while start < len(ticks):
        # Whole seconds, as many as fit, and one at least.
        at = int(np.searchsorted(cuts, start + most, "right")) - 1
        end = int(cuts[at]) if cuts[at] > start and at >= 0 else int(cuts[at + 1])
        block = np.full((end - start, len(layout.channels)), np.nan, np.float32)
        for i, (track, place) in enumerate(zip(tracks, places, strict=True)):
            upto = int(np.searchsorted(track.ticks, ticks[end - 1], "right"))
            rows = np.searchsorted(ticks[start:end], track.ticks[taken[i] : upto])
            where = np.ix_(rows, place)
            known = block[where]
            values = track.take(taken[i], upto)
            block[where] = np.where(np.isnan(known), values, known)
            taken[i] = upto
        within = cuts[(cuts > start) & (cuts < end)] - start
        turned = block.T
        for a, b in zip([0, *within.tolist()], [*within.tolist(), end - start], strict=True):
            yield stamps[start + a : start + b], np.ascontiguousarray(turned[:, a:b])
        start = end
