"""Logs of ``nvidia-smi --query-gpu=... --format=csv``: a row for each GPU, again and again.

The GPUs of one query follow each other with times a few milliseconds apart, which may lie on both
sides of a grid point. So the rows from one GPU's to the same one's next are one query, and have
the time of its first row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from schemas.records import Longs
from streams.importing.errors import InvalidImport
from streams.importing.gpu_cells import Cells
from streams.importing.gpu_names import field_meaning
from streams.importing.parts import Part, Read
from streams.importing.spool import Spool
from streams.importing.table import BOM, Lost, first_line, shown, split, whole_lines
from streams.importing.times import Clock, clock_of

PIECE_ROWS = 1024

DESCRIPTIONS = re.compile(
    r"timestamp|index|(gpu_)?(name|uuid|bus_id|serial)|count|hostname|(driver|kmd|vbios)_version"
    r"|pci\..*|inforom\..*|compute_cap|accounting\.buffer_size|platform\..*|fabric\.cl.*"
    r"|clocks_(throttle|event)_reasons\.(supported|active)"
)
"""Fields that say which GPU it is, or what; and bit masks, whose bits are fields too."""

TIME, HOST = "timestamp", "hostname"
DEVICES = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id")
"""Fields that tell GPUs apart, the best first."""

BUNCHED = 0.1
"""A tenth of the rows that follow within a tenth of the usual distance are no rows of one GPU."""

_NAME = re.compile(r"([a-z_0-9.]+)\s*(?:\[(.*)\])?", re.IGNORECASE)


class GpuLog:
    """A log, its line of names read.

    Parameters
    ----------
    path
        The file.
    host
        Whose GPUs they are; empty: what its column `hostname` says, or the file's name.
    names
        The fields of the query, where the file has no line of names.

    Attributes
    ----------
    hosts
        The host that its GPUs are in.
    size
        Bytes of the file.

    Raises
    ------
    InvalidImport
        It cannot be read, is something else, has no line of names, or no times.
    """

    def __init__(self, path: Path, host: str = "", names: Sequence[str] = ()) -> None:
        self.path = path
        self.size, line = first_line(path)
        self._first = split(line, ",")
        fields = [_NAME.fullmatch(name.strip()) for name in names or self._first]
        self._names = [m[1].lower() if m is not None else "" for m in fields]
        if TIME not in self._names:
            self._refuse(bool(names))
        self._time = self._names.index(TIME)
        self._devices = [self._names.index(name) for name in DEVICES if name in self._names]
        self._cells = {
            i: Cells((m[2] or "") if m is not None else "")
            for i, (m, name) in enumerate(zip(fields, self._names, strict=True))
            if name and not DESCRIPTIONS.fullmatch(name)
        }
        self._clock: Clock | None = None
        self._lost = Lost()
        name = host or self._host_name() or path.name.partition(".")[0] or "host"
        self.hosts = [name]

    def read(self, directory: Path, on_bytes: Callable[[int], None] = lambda _: None) -> Read:
        """Read all rows; what they hold waits in `directory`.

        `on_bytes` is called with the number of bytes that have been read.

        Raises
        ------
        InvalidImport
            There are no rows, the first has no time, or there is no room for them.
        """
        gpus: dict[str, _Gpu] = {}
        asked: set[str] = set()
        rows, query_us = 0, 0
        try:
            for line, cells in self._rows(on_bytes):
                us = self._us(cells[self._time], line)
                if us is None:
                    continue
                device = self._device(cells)
                if device in asked or not asked:
                    query_us, asked = us, set()
                asked.add(device)
                gpu = gpus.get(device)
                if gpu is None:
                    gpu = gpus[device] = _Gpu(Spool(len(self._cells), directory))
                gpu.add(query_us, [c.number(cells[i], line) for i, c in self._cells.items()])
                rows += 1
            for gpu in gpus.values():
                gpu.flush()
            self._has_rows(rows)
            if "" in gpus:
                self._are_of_one_gpu(gpus[""].spool.stamps)
        except BaseException:
            for gpu in gpus.values():
                gpu.spool.close()
            raise
        found = Read(self.path, [self._part(*item) for item in gpus.items()])
        found.rows, found.columns = rows, len(self._names)
        found.times = self._clock.says if self._clock is not None else ""
        found.unnamed = self._names.count("")
        found.words = len(self._names) - len(self._cells) - found.unnamed
        for column in self._cells.values():
            # Words in a column of words are not numbers that went wrong.
            if column.numbers and column.bad:
                self._lost.bad_cells += column.bad
                self._lost.note("bad_cells", column.first_bad)
        found.lost = self._lost
        return found

    def _refuse(self, asked: bool) -> None:
        if asked:
            raise InvalidImport(f"--columns names no {TIME}, without which there is no time")
        if len(self._first) == 1 and clock_of(self._first[0]) is None:
            raise InvalidImport(
                f"{self.path} line 1 is {shown(self._first[0])}: a log of nvidia-smi "
                f"--query-gpu={TIME},uuid,... --format=csv was expected"
            )
        raise InvalidImport(
            f"{self.path} line 1 names no column {TIME}: of a log without a line of names "
            f"(noheader), say the fields of the query with --columns {TIME},uuid,..."
        )

    def _host_name(self) -> str:
        if HOST not in self._names:
            return ""
        at = self._names.index(HOST)
        return next(
            (name for _, c in self._rows(lambda _: None) if (name := c[at]) and name[0] != "["), ""
        )

    def _rows(self, on_bytes: Callable[[int], None]) -> Iterator[tuple[int, list[str]]]:
        """Yield numbers of lines and their cells, of those that have one for each name."""
        line = 0
        self._lost = Lost()
        try:
            with self.path.open("rb") as file:
                for block in whole_lines(file, self.path):
                    on_bytes(file.tell())
                    for raw in block.removeprefix(b"" if line else BOM).split(b"\n")[:-1]:
                        line += 1
                        cells = split(raw.decode(errors="replace").rstrip("\r"), ",")
                        if cells == [""]:
                            continue
                        if len(cells) != len(self._names):
                            self._lost.ragged += 1
                            self._lost.note("ragged", line)
                        elif cells[self._time].lower() != TIME:  # the names, maybe again
                            yield line, cells
        except OSError as e:
            raise InvalidImport(f"{self.path} cannot be read: {e.strerror}") from None

    def _us(self, text: str, line: int) -> int | None:
        if self._clock is None:
            self._clock = clock_of(text)
            if self._clock is None:
                raise InvalidImport(
                    f"{self.path} line {line} has {shown(text)} for a {TIME}, which is no time: "
                    "it should look like 2025/01/31 12:00:00.100"
                )
        us = self._clock.read(text)
        if us is None:
            self._lost.untimed += 1
            self._lost.note("untimed", line)
        return us

    def _device(self, cells: Sequence[str]) -> str:
        """Return which GPU a row is of; the empty string where only one can be meant."""
        return next((cells[i] for i in self._devices if cells[i] and cells[i][0] != "["), "")

    def _has_rows(self, rows: int) -> None:
        if rows:
            return
        if "ragged" in self._lost.first:
            raise InvalidImport(
                f"{self.path} line {self._lost.first['ragged']} does not have the "
                f"{len(self._names)} cells that the names say, and no other line has"
            )
        raise InvalidImport(f"{self.path} has no row after its line of names")

    def _are_of_one_gpu(self, stamps: Longs) -> None:
        """Refuse rows of several GPUs that nothing tells apart: they come in bunches.

        Raises
        ------
        InvalidImport
            They do.
        """
        apart = np.diff(stamps)
        if len(apart) and (apart < BUNCHED * np.quantile(apart, 0.9)).mean() > BUNCHED:
            raise InvalidImport(
                f"{self.path} has several rows at a time and no column that says of which GPU they "
                "are: query uuid, too, as in --query-gpu=timestamp,uuid,..."
            )

    def _part(self, device: str, gpu: _Gpu) -> Part:
        part = Part(self.hosts[0], str(self.path), gpu.spool, [], [])
        taken = set()
        for at, (i, column) in enumerate(self._cells.items()):
            found = field_meaning(self._names[i], column.unit, device)
            if found.channel.metric in taken:
                part.named_twice += 1
                continue
            taken.add(found.channel.metric)
            part.columns.append(at)
            part.meanings.append(found)
        return part


class _Gpu:
    """One GPU's rows on their way to its spool."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self._times: list[int] = []
        self._rows: list[list[float]] = []

    def add(self, us: int, row: list[float]) -> None:
        self._times.append(us)
        self._rows.append(row)
        if len(self._rows) == PIECE_ROWS:
            self.flush()

    def flush(self) -> None:
        values = np.array(self._rows, np.float64).reshape(len(self._rows), self.spool.columns)
        self.spool.add(np.array(self._times, np.int64), values)
        self._times, self._rows = [], []
