"""A recording: telemetry and layouts in one Avro container file.

The file's schema is the union of ours, so any Avro tool reads it. Here records are not built by
fastavro, whose cost per value would rule: a block's bytes are taken as they are, and a body
between two of our messages differs only by its header.
"""

from __future__ import annotations

import contextlib
import heapq
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import fastavro
from fastavro.schema import to_parsing_canonical_form
from fastavro.write import Writer

from schemas.codec import HEADER_BYTES, decode_body, header, load_schema
from schemas.errors import InvalidRecord, RevealError
from schemas.floats import long_to_bytes, read_long
from schemas.records import Layout, Record, Telemetry

UNION: tuple[type[Layout | Telemetry], ...] = (Layout, Telemetry)
"""Branches of the file's schema, in order."""
BLOCK_BYTES = 1 << 20
"""Before compression."""
PARTIAL = ".partial"
MAGIC = b"Obj\x01"

_SCHEMA = [load_schema(cls) for cls in UNION]


class InvalidRecording(RevealError):
    """A file is not a recording, or not one that can be read. The text says what was found."""


class Recorded(NamedTuple):
    """One record of a recording, and the message that carries it."""

    record: Layout | Telemetry
    message: bytes


@dataclass(slots=True, eq=False)
class _Block:
    """What `Writer.write_block` wants of a block."""

    bytes_: io.BytesIO
    num_records: int = 0


class ContainerWriter:
    """Writes records of ours to an Avro container file, which gets its name when it is whole.

    Every flush leaves a file that can be read, whatever happens next.

    Parameters
    ----------
    path
        The file. An error if it is there, unless `force`.
    classes
        What it holds: one class, or several as a union.

    Raises
    ------
    InvalidRecording
        The file is there already, or cannot be written.
    """

    def __init__(
        self, path: Path, classes: Sequence[type[Record]] = UNION, *, force: bool = False
    ) -> None:
        if path.exists() and not force:
            raise InvalidRecording(f"{path} is there already: give another name, or --force")
        self.path = path
        self._partial = path.with_name(path.name + PARTIAL)
        self._block = _Block(io.BytesIO())
        self._branch = {cls: long_to_bytes(i) for i, cls in enumerate(classes)}
        schemas: Any = [load_schema(cls) for cls in classes]
        if len(classes) == 1:  # not a union: nothing goes before the body
            self._branch, schemas = {classes[0]: b""}, schemas[0]
        try:
            self._file = self._partial.open("wb")
            self._writer = Writer(self._file, schemas, best_codec())
            self._writer.flush()
        except OSError as e:
            raise InvalidRecording(f"{self._partial} cannot be written: {e.strerror}") from None

    def add(self, cls: type[Record], message: bytes) -> None:
        """Append a message of ours, as it travels."""
        block = self._block
        block.bytes_.write(self._branch[cls])
        block.bytes_.write(memoryview(message)[HEADER_BYTES:])
        block.num_records += 1
        if block.bytes_.tell() >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits to the file, as a block."""
        block, self._block = self._block, _Block(io.BytesIO())
        if not block.num_records:
            return
        try:
            self._writer.write_block(block)
            self._writer.flush()
        except OSError as e:
            raise InvalidRecording(
                f"{self._partial} cannot be written: {e.strerror}; what it holds can be replayed"
            ) from None

    @property
    def file_bytes(self) -> int:
        """Size of the file so far."""
        return self._file.tell()

    def close(self) -> None:
        """Write the rest and give the file its name."""
        self.flush()
        self._file.close()
        self._partial.replace(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:  # what was written stays, under the name that says that it is not whole
            with contextlib.suppress(OSError):
                self._file.close()


class Container:
    """An Avro container file, read block by block as far as it is whole.

    Attributes
    ----------
    schema
        What it was written with, as fastavro parsed it.
    size
        Bytes of the file.
    at
        Bytes that have been read: what a progress bar shows.
    lost
        Bytes that could not be read, known after a walk; `trouble` says why.

    Raises
    ------
    InvalidRecording
        It is empty, or not Avro.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0
        self.lost = 0
        self.trouble = ""
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                self.schema: Any = self._reader(file).writer_schema
                self._first = file.tell()
        except OSError as e:
            raise InvalidRecording(f"{path} cannot be read: {e.strerror}") from None

    def blocks(self) -> Iterator[Any]:
        """Yield fastavro's blocks from the first on; stop where the file is damaged."""
        self.at, self.lost, self.trouble = self._first, 0, ""
        with self.path.open("rb") as file:
            blocks = self._reader(file)
            while True:
                try:
                    block = next(blocks, None)
                except Exception as e:  # fastavro and the codecs raise whatever it leads them to
                    self.damaged(self.size - self.at, e)
                    return
                if block is None:
                    return
                self.at = block.offset + block.size
                yield block

    def blocks_at(self, offsets: Iterable[int]) -> Iterator[Any]:
        """Yield the blocks that start at `offsets`; they have been walked over before."""
        self.at = self._first
        with self.path.open("rb") as file:
            blocks = self._reader(file)
            for offset in offsets:
                file.seek(offset)
                block = next(blocks)
                self.at += block.size
                yield block

    def damaged(self, size: int, why: Exception) -> None:
        """Note that `size` bytes are lost."""
        self.lost += size
        self.trouble = str(why) or type(why).__name__

    def _reader(self, file: BinaryIO) -> Any:
        start = file.read(len(MAGIC))
        file.seek(0)
        if not start:
            raise InvalidRecording(f"{self.path} is empty")
        if start != MAGIC:
            raise InvalidRecording(
                f"{self.path} is not an Avro container file: it starts with {start.hex(' ')}"
            )
        try:
            return fastavro.block_reader(file)
        except Exception as e:  # fastavro raises whatever the bytes lead it to
            raise InvalidRecording(f"{self.path} is damaged or cut off in its head: {e}") from None


class Recording:
    """A recording of telemetry and layouts; see `Container` for damage.

    Attributes
    ----------
    in_order
        Whether it is known to be in time order as it is read.

    Raises
    ------
    InvalidRecording
        The file holds something else.
    """

    in_order = False

    def __init__(self, container: Container) -> None:
        self.container = container
        found = to_parsing_canonical_form(container.schema)
        if found != to_parsing_canonical_form(_SCHEMA):
            raise InvalidRecording(
                f"{container.path} {holds(container.schema)}, not the layouts and telemetry "
                "of this release"
            )

    def dropped(self) -> dict[str, int]:
        """Return what was left out on the way: nothing, here."""
        return {}

    def __iter__(self) -> Iterator[Recorded]:
        """Yield every record in the order of the file."""
        for block in self.container.blocks():
            yield from self._records(block)

    def in_time_order(self) -> Iterator[Recorded]:
        """Yield every layout, then telemetry ordered by its last tick.

        A recording is nearly in order; one that was taken from the start of a topic has its
        partitions one after another. So blocks are merged by their earliest record, and only
        those that overlap are in memory.
        """
        order: list[tuple[int, int]] = []
        for block in self.container.blocks():
            times = []
            for recorded in self._records(block):
                if isinstance(recorded.record, Layout):
                    yield recorded
                else:
                    times.append(_time(recorded.record))
            if times:
                order.append((min(times), block.offset))
        order.sort()
        waiting: list[tuple[int, int, Recorded]] = []
        number = itertools.count()
        blocks = self.container.blocks_at(offset for _, offset in order)
        for (earliest, _), block in zip(order, blocks, strict=True):
            while waiting and waiting[0][0] < earliest:
                yield heapq.heappop(waiting)[2]
            with contextlib.suppress(InvalidRecord):  # noted in the first walk
                for recorded in _records(block):
                    if isinstance(recorded.record, Telemetry):
                        entry = (_time(recorded.record), next(number), recorded)
                        heapq.heappush(waiting, entry)
        while waiting:
            yield heapq.heappop(waiting)[2]

    def _records(self, block: Any) -> Iterator[Recorded]:
        try:
            yield from _records(block)
        except InvalidRecord as e:
            self.container.damaged(block.size, e)


def _records(block: Any) -> Iterator[Recorded]:
    data, at = block.bytes_.getvalue(), 0
    for _ in range(block.num_records):
        branch, at = read_long(data, at)
        if not 0 <= branch < len(UNION):
            raise InvalidRecord(f"branch {branch} of a union of {len(UNION)} records")
        cls = UNION[branch]
        record, end = decode_body(cls, data, at)
        yield Recorded(record, header(cls) + data[at:end])
        at = end
    if at != len(data):
        raise InvalidRecord(
            f"{len(data) - at} bytes after the {block.num_records} records of a block"
        )


def best_codec() -> str:
    """Return the better of the codecs that fastavro has here."""
    try:
        fastavro.writer(io.BytesIO(), "null", [None], codec="zstandard")
    except ValueError:
        return "deflate"
    return "zstandard"


def holds(schema: Any) -> str:
    """Say what a container's schema is about."""
    branches = schema if isinstance(schema, list) else [schema]
    names = [b["name"] if isinstance(b, dict) and "name" in b else str(b) for b in branches]
    return f"holds {' and '.join(names)}"


def _time(record: Telemetry) -> int:
    return int(record.timestamps[-1])
