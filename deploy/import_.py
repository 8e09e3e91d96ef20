"""``reveal import``: other people's recordings, as recordings that `reveal replay` takes."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from deploy.wording import count_of, date_time, duration, printable
from schemas.errors import RevealError
from schemas.flags import UserError

if TYPE_CHECKING:
    from streams.importing.parts import Read
    from streams.importing.recordings import Written

MEGABYTE = 1e6


class Source(Protocol):
    """A file whose line of names has been read."""

    path: Path
    size: int
    hosts: list[str]

    def read(self, directory: Path, on_bytes: Callable[[int], None] = ...) -> Read:
        """Read all rows; what they hold waits in `directory`."""


@click.group("import")
def import_() -> None:
    """Turn other people's recordings into ones that `reveal replay` takes, one for each host."""


def _options(command: Callable[..., None]) -> Callable[..., Any]:
    """Give a command what all imports have; `RevealError` becomes click's one-line error."""

    @functools.wraps(command)
    def run(**kwargs: Any) -> None:
        try:
            command(**kwargs)
        except RevealError as e:
            raise UserError(str(e)) from e

    wrapped: Any = run
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One object a line, for each host."),
        click.option("--force", is_flag=True, help="Replace recordings that are there."),
        click.option(
            "--interval-ms",
            type=click.IntRange(min=1),
            help="Place rows on this grid [what they are usually apart].",
        ),
        click.option(
            "--out",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(),
            help="Where HOST.avro is written [here].",
        ),
        click.argument(
            "files",
            nargs=-1,
            required=True,
            metavar="FILE...",
            type=click.Path(path_type=Path, dir_okay=False),
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


@import_.command("reveal-dataset")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host whose name has dots, where the names of columns do not tell; again for more.",
)
@_options
def reveal_dataset(files: Sequence[Path], hosts: Sequence[str], **options: Any) -> None:
    """Import the public files of the Reveal paper.

    They are text, parted by tabs or commas: the first column is a time, the others are named like
    Turbostat:IRQ.17.nserver08[count]. Several files are one recording for each host: of runs that
    have nothing to do with each other, import each into a directory of its own.
    """
    from streams.importing.reveal_dataset import Dataset

    _convert([Dataset(path, hosts) for path in files], **options)


@import_.command("nvidia-smi")
@click.option("--host", default="", metavar="NAME", help="Whose GPUs they are [the file's name].")
@click.option(
    "--columns",
    default="",
    metavar="FIELDS",
    help="Of a log with noheader: what stood after --query-gpu=.",
)
@_options
def nvidia_smi(files: Sequence[Path], host: str, columns: str, **options: Any) -> None:
    """Import logs of nvidia-smi --query-gpu=timestamp,uuid,... --format=csv -lms 100."""
    from streams.importing.nvidia_smi import GpuLog

    names = [name for name in columns.split(",") if name.strip()]
    _convert([GpuLog(path, host, names) for path in files], **options)


def _convert(
    sources: Sequence[Source], out: Path, interval_ms: int | None, *, force: bool, as_json: bool
) -> None:
    # numba takes a moment to import; --help and a wrong flag do not wait.
    from streams.importing.errors import InvalidImport, NothingThereError
    from streams.importing.parts import same_host
    from streams.importing.recordings import free_paths, write_host

    hosts = dict.fromkeys(host for source in sources for host in source.hosts)
    # Who has to say --force learns it before anything is read.
    paths = free_paths(out, list(hosts), force=force)
    with ExitStack() as stack:
        found = []
        with _progress(sum(source.size for source in sources)) as at:
            before = 0
            for source in sources:
                read = source.read(out, functools.partial(at, before))
                stack.callback(read.close)
                found.append(read)
                before += source.size
        parts = same_host([part for read in found for part in read.parts])
        for read in found:
            click.echo(_read_line(read), err=True)
            if read.doubt:
                click.echo(f"{read.path}: {read.doubt}", err=True)
        empty = []
        for host, own in parts.items():
            try:
                done = write_host(host, own, paths[host], wanted_ms=interval_ms, force=force)
            except NothingThereError as e:
                empty.append(str(e))
                click.echo(f"nothing to write: {e}", err=True)
                continue
            click.echo(_json(done) if as_json else _written_line(done))
        if len(empty) == len(parts):
            raise InvalidImport(empty[0])
        if as_json:
            click.echo(json.dumps({"summary": True, "files": [_file(read) for read in found]}))


def _read_line(read: Read) -> str:
    lost = read.lost

    def first(kind: str) -> str:
        return f" (first: line {lost.first[kind]})" if kind in lost.first else ""

    left_out = _listed(
        (lost.ragged, f"rows of another width{first('ragged')}"),
        (lost.untimed, f"rows without a time{first('untimed')}"),
        (lost.bad_cells, f"cells without a number{first('bad_cells')}"),
        (read.unnamed, "columns named otherwise"),
        (read.words, "columns of description"),
    )
    return (
        f"{read.path}: {read.rows:,} rows of {read.columns:,} columns; times are {read.times}"
        f"{'; left out: ' * bool(left_out)}{left_out}"
    )


def _written_line(done: Written) -> str:
    moved, ms = done.moved, done.interval_us / 1000
    usual = "" if math.isnan(done.distance_us) else f" (rows: {done.distance_us / 1000:.4g} ms)"
    left_out = _listed(
        (done.missing, "columns without a value"),
        (done.named_twice, "columns named twice"),
        (done.empty_rows, "rows without a value"),
        (moved.duplicates, "rows of a time that was there"),
        (moved.too_large, "cells too large"),
    )
    notes = _listed(
        (done.zero, "columns all zero"),
        (done.totals, "totals made rates"),
        (moved.together, "rows on the tick of another"),
        (moved.out_of_order, "rows out of order"),
        (moved.off_grid, "rows off the grid"),
        (done.missing_ticks, f"ticks missing in {count_of(done.gaps, 'gap')}"),
    )
    size = done.path.stat().st_size / MEGABYTE
    lasted = duration((done.last_us - done.first_us + done.interval_us) / 1e6)
    return (
        f"{printable(done.host)}: {done.rows:,} rows, {done.channels:,} channels "
        f"({done.ours:,} with the agent's names), every {ms:g} ms{usual}, "
        f"{date_time(done.first_us)} for {lasted}"
        f"{'; left out: ' * bool(left_out)}{left_out}{'; ' * bool(notes)}{notes}"
        f" -> {done.path}, {size:.1f} MB"
    )


def _listed(*counted: tuple[int, str]) -> str:
    """Return what there is: ``1 row of another width, 3 columns all zero``."""
    return ", ".join(
        f"{number:,} {what if number > 1 else what.replace('s ', ' ', 1)}"
        for number, what in counted
        if number
    )


def _json(done: Written) -> str:
    known = None if math.isnan(done.distance_us) else done.distance_us
    fields = {**asdict(done), "path": str(done.path), "distance_us": known}
    moved = fields.pop("moved")
    return json.dumps({**fields, **moved})


def _file(read: Read) -> dict[str, Any]:
    lost = asdict(read.lost)
    first = lost.pop("first")
    names = ("rows", "columns", "times", "unnamed", "words", "doubt")
    own = {name: getattr(read, name) for name in names}
    return {"path": str(read.path), **own, **lost, "first_lines": first}


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], None]]:
    """Show how far the files are read; yield what is called with two numbers of bytes."""
    console = Console(stderr=True)
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("reading", total=total)
        yield lambda before, at: progress.update(task, completed=before + at)
