"""Damage kernel files, GPUs' answers and log lines at random, for as long as one likes.

``python -m tests.producers.fuzz --seconds 300`` (`make fuzz`). In each round some files of a host
are damaged between two readings and mended after them. It holds that nothing raises, that every
value is a number or unknown, and that the channels of all collectors whose files were left alone
are, bit for bit, what they are without the damage. The first round that breaks this is printed
with its seed: ``--seed N --rounds 1`` runs it again.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import cast
from unittest.mock import patch

import click
import numpy as np
import pytest

from producers.collectors import ALL, gpu, kmsg
from producers.collectors.ethtool import Statistics
from producers.collectors.gpu.lanes import Inline
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.group import Group
from producers.part import Part
from producers.reading import MemoryReader, Unreadable
from producers.source import Collector
from tests.producers.archives import archive
from tests.producers.bighost import BigHost, Size
from tests.producers.fake_nvml import FakeNvml
from tests.producers.gpus import FakeLog
from tests.producers.kernel import FIRST, SECOND

SECOND_NS = 1_000_000_000
Files = Mapping[str, bytes]
Readings = list[Files]

TOKENS = (
    *(b"", b"0", b"-1", b"-0", b"1e9", b"nan", b"inf", b"N/A", b"0x1f", b"1_000", b"+5", b"1.5"),
    *(b"9" * 19, b"9" * 20, b"9" * 400, b"4294967296", b"18446744073709551615", b"\xd9\xa3"),
    *(
        b"\n",
        b" ",
        b"\t",
        b":",
        b"=",
        b"kB",
        b"cpu",
        b"total=",
        b"\x00",
        b"\xff\xfe",
        b"\x1c",
        b"%",
    ),
)
NVML_VALUES: tuple[object, ...] = (
    *(0, -1, 2**32 - 1, 2**63, 2**64 - 1, 10**400, 1.5, float("nan"), float("inf"), -7.0),
    *(None, "", "N/A", b"x", [], [1], (1, 2), {}, object()),
)
NVML_CODES = (1, 2, 3, 4, 6, 8, 9, 13, 14, 15, 17, 19, 24, 999, 12345)
WORDS = ("NVRM: Xid", "(PCI:0000:3b:00)", ":", "79", "EDAC", "I/O error", "eth0", "\x1b", "Out of")


def let_out(_: Part, error: Exception) -> None:
    """Let out what a source raises."""
    raise error


def damaged(text: bytes, rng: random.Random) -> bytes:
    """Return the text with some of it changed."""
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        lines = text.split(b"\n")
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(9):
            case 0:
                words = lines[at].split(b" ")
                words[rng.randrange(len(words))] = rng.choice(TOKENS)
                lines[at] = b" ".join(words)
            case 1:
                words = lines[at].split(b" ")
                words.insert(rng.randrange(len(words) + 1), rng.choice(TOKENS))
                lines[at] = b" ".join(words)
            case 2:
                words = lines[at].split(b" ")
                del words[rng.randrange(len(words))]
                lines[at] = b" ".join(words)
            case 3:
                lines[at], lines[other] = lines[other], lines[at]
            case 4:
                lines.insert(other, lines[at])
            case 5:
                del lines[at]
            case 6:
                lines = lines[:at]
            case 7:
                place = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:place] + rng.choice(TOKENS) + lines[at][place:]
            case _:
                place = rng.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:place] + rng.randbytes(rng.randrange(9))
        text = b"\n".join(lines)
    return text if rng.random() < 0.95 else rng.randbytes(rng.randrange(200))


def collected(group: Group, reader: MemoryReader, readings: Iterable[Files]) -> list[Values]:
    """Return the values of each reading, by label, each a second after the one before."""
    every: list[Values] = []
    for second, files in enumerate(readings, start=5):
        reader.files = files
        values = group.collect(second * SECOND_NS, whole=True)
        assert len(values) == len(group.channels)
        assert not np.isinf(values).any(), "an infinite value"
        every.append({c.label: v for c, v in zip(group.channels, values.tolist(), strict=True)})
    return every


Values = dict[str, float]


class Tree(MemoryReader):
    """Files in directories that are looked up, and what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()
        self._directories: dict[str, set[str]] = {}
        self._of: Files | None = None

    def read(self, path: str) -> bytes | Unreadable:
        """Return a file's content."""
        self.asked.add(path)
        return super().read(path)

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory."""
        self.asked.add(path)
        if self._of is not self.files:
            self._of, self._directories = self.files, _directories(frozenset(self.files))
        names = self._directories.get(path)
        return tuple(sorted(names)) if names else Unreadable(path, "not there", absent=True)


@lru_cache(maxsize=64)
def _directories(files: frozenset[str]) -> dict[str, set[str]]:
    """Return the names in each directory."""
    found: dict[str, set[str]] = {}
    for file in files:
        while "/" in file:
            file, _, name = file.rpartition("/")
            found.setdefault(file, set()).add(name)
    return found


class FileHost:
    """Collectors over the files of one host, as two readings of it."""

    def __init__(self, first: Files, second: Files) -> None:
        self.readings: Readings = [first, second, first, second]
        self.paths = sorted(second)
        self.whole: dict[str, list[Values]] = {}
        self.asked: dict[str, set[str]] = {}
        for make in ALL:
            collector, reader = make(), Tree()
            group = Group([collector], reader)
            self.whole[collector.name] = collected(group, reader, self.readings)
            self.asked[collector.name] = reader.asked

    def round(self, rng: random.Random) -> None:
        """Damage some files in the second and third reading."""
        chosen = rng.sample(self.paths, min(len(self.paths), rng.choice((1, 1, 2, 5, 40))))
        readings = list(self.readings)
        for n in (1, 2):
            harm = {p: damaged(readings[n][p], rng) for p in chosen if p in readings[n]}
            gone = {p for p in chosen if rng.random() < 0.05}
            readings[n] = {p: t for p, t in {**readings[n], **harm}.items() if p not in gone}
        reader = Tree()
        group = Group([make() for make in ALL], reader)
        found = collected(group, reader, readings)
        # A file that goes is missing in the directories above it.
        touched = {str(top) for path in chosen for top in (path, *PurePosixPath(path).parents)}
        for name, asked in self.asked.items():
            if touched.isdisjoint(asked):
                for now, was in zip(found, self.whole[name], strict=True):
                    wrong = [label for label in was if not _same(now.get(label), was[label])]
                    assert not wrong, f"{name} changed: {wrong}; damaged: {chosen}"


def _same(now: float | None, was: float) -> bool:
    return now is not None and (now == was or (math.isnan(now) and math.isnan(was)))


class Gpus:
    """The collectors of GPUs over answers that are odd."""

    def round(self, rng: random.Random) -> None:
        """Let some functions give nonsense or fail, then mend them."""
        fake = FakeNvml.h100s(rng.choice((1, 2)))
        names = [n for n in dir(Nvml) if n.startswith("nvml")]
        session = Session(lambda: cast(Nvml, fake), lanes=Inline(), clock_ns=fake.clock_ns)
        group = Group(gpu.over(session), MemoryReader())
        for tick in range(1, 12):
            fake.now_ns = tick * SECOND_NS
            if tick in (1, 4):
                for name in rng.sample(names, rng.choice((1, 3, 10))):
                    if rng.random() < 0.5:
                        fake.fail(name, rng.choice(NVML_CODES))
                    else:
                        fake.give(name, rng.choice(NVML_VALUES))
                for _ in range(rng.randrange(5)):
                    uuid = rng.choice(fake.tables).uuid
                    value = rng.choice([v for v in NVML_VALUES if isinstance(v, int | float)])
                    if abs(value) < 2**63:
                        fake.give_field(uuid, rng.randrange(1, 280), 0, 0, value)
            if tick == 8:
                fake.mend()
            values = group.collect(fake.now_ns, whole=True)
            assert not np.isinf(values).any(), "an infinite value"


class Logs:
    """The collectors of the kernel's log, over lines that are none."""

    def round(self, rng: random.Random) -> None:
        """Read a few odd records."""
        records = [self._record(rng) for _ in range(rng.randrange(1, 30))]
        log = FakeLog(*records)
        group = Group([Collector("kmsg", [kmsg.KernelLog(kmsg.Tail(lambda: log))])], MemoryReader())
        for tick in range(1, 4):
            values = group.collect(tick * SECOND_NS, whole=True)
            assert not np.isinf(values).any(), "an infinite value"

    @staticmethod
    def _record(rng: random.Random) -> bytes:
        head = ",".join(
            str(rng.choice((3, -1, 6, 2**70, "x", ""))) for _ in range(rng.randrange(5))
        )
        body = " ".join(rng.choices(WORDS, k=rng.randrange(6)))
        return damaged(f"{head};{body}\n".encode(), rng) or b"\n"


class Cards:
    """The statistics of drivers whose names and numbers are odd."""

    def round(self, rng: random.Random) -> None:
        """Read cards that change."""
        card = _OddCard(rng)
        files = {f"sys/class/net/{n}/device/vendor": b"1\n" for n in ("a0", "b0")}
        group = Group([Collector("ethtool", [Statistics(card)])], MemoryReader(files))
        for tick in range(1, 6):
            values = group.collect(tick * 10 * SECOND_NS, whole=True)
            assert not np.isinf(values).any(), "an infinite value"


class _OddCard:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def count(self, interface: str) -> int:  # noqa: ARG002
        if self._rng.random() < 0.1:
            raise OSError(self._rng.choice((1, 19, 22, 95)), "no")
        return self._rng.choice((0, 1, 7, 300))

    def names(self, interface: str, count: int) -> list[str]:  # noqa: ARG002
        parts = ["rx", "tx", "_", "drop", "err", "7", "[0]:", "prio", "phy", "ÿ", " ", "pause", ""]
        return ["".join(self._rng.choices(parts, k=self._rng.randrange(7))) for _ in range(count)]

    def values(self, interface: str, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:  # noqa: ARG002
        if self._rng.random() < 0.1:
            raise OSError(5, "no")
        numbers = [self._rng.choice((0, 5, 2**32, 2**63, 2**64 - 1)) for _ in range(count)]
        return np.array(numbers, np.uint64)

    def close(self) -> None:
        pass


def hosts() -> dict[str, Callable[[random.Random], None]]:
    """Return what can be damaged here, by name."""
    big = BigHost(Size(cores=8))
    before = big.files()
    big.step(1.0)
    found: dict[str, Callable[[random.Random], None]] = {
        "recording": FileHost(FIRST, SECOND).round,
        "made-up host": FileHost(before, big.files()).round,
        "GPUs": Gpus().round,
        "log": Logs().round,
        "cards": Cards().round,
    }
    for name in ("node_exporter/proc", "node_exporter/sys", "procfs"):
        try:
            files = archive(name)
        except pytest.skip.Exception as e:
            click.echo(f"without {name}: {e}")
        else:
            found[name] = FileHost(files, files).round
    return found


@click.command()
@click.option("--seconds", type=float, default=300.0, show_default=True)
@click.option("--rounds", type=int, help="So many rounds instead.")
@click.option("--seed", type=int, default=lambda: int(time.time()), help="Of the first round.")
def main(seconds: float, rounds: int | None, seed: int) -> None:
    """Damage at random what the agent reads, until something breaks or the time is over."""
    logging.disable()  # what is damaged is named all the time
    with patch.object(Part, "raised", let_out):
        done = run(hosts(), seconds, rounds, seed)
    click.echo(f"{done.total()} rounds from seed {seed} on, nothing broke: {dict(done)}")


def run(
    kinds: Mapping[str, Callable[[random.Random], None]],
    seconds: float,
    rounds: int | None,
    seed: int,
) -> Counter[str]:
    """Return how many rounds of each kind nothing broke in."""
    until = time.monotonic() + seconds
    done: Counter[str] = Counter()
    for number in itertools.count(seed):
        if done.total() == rounds or (rounds is None and time.monotonic() > until):
            break
        rng = random.Random(number)
        name = rng.choice([*kinds])
        try:
            kinds[name](rng)
        except Exception:
            click.echo(f"seed {number} ({name}):", err=True)
            raise
        done[name] += 1
    return done


if __name__ == "__main__":
    main()
