"""The public files of the paper: a column for each metric of each host, a row for each tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from streams.importing.columns import Column, columns, odd_core
from streams.importing.errors import InvalidImport
from streams.importing.meaning import Meaning
from streams.importing.naming import meaning, own_name
from streams.importing.parts import Part, Read
from streams.importing.spool import Spool
from streams.importing.table import TextTable, shown


class Dataset:
    """A file of the paper's kind, its line of names read.

    Attributes
    ----------
    hosts
        That it has columns of, in order.
    size
        Bytes of the file.

    Raises
    ------
    InvalidImport
        It cannot be read, or is something else.
    """

    def __init__(self, path: Path, hosts: Iterable[str] = ()) -> None:
        self.table = TextTable(path)
        self._columns = columns(self.table.names, hosts)
        self.path, self.size = path, self.table.size
        self.hosts = list(dict.fromkeys(c.host for c in self._columns if c is not None))
        if not self.hosts:
            raise InvalidImport(
                f"{path} line 1 names no column like Group:metric.instance.host[unit], its first "
                f"is {shown(self.table.names[0])}: is this a file of the Reveal dataset?"
            )

    def read(self, directory: Path, on_bytes: Callable[[int], None] = lambda _: None) -> Read:
        """Read all rows; what they hold waits in `directory`.

        `on_bytes` is called with the number of bytes that have been read.

        Raises
        ------
        InvalidImport
            There are no rows, their first column is no time, or there is no room for them.
        """
        table = self.table
        spool = Spool(len(table.names), directory)
        try:
            for piece in table.pieces():
                spool.add(*piece)
                on_bytes(table.at)
            _has_rows(table, spool)
        except BaseException:
            spool.close()
            raise
        found = Read(table.path, self._parts(spool), spool.rows, len(table.names))
        found.times = table.clock.says if table.clock is not None else ""
        found.doubt = self._doubt()
        found.unnamed = sum(c is None for c in self._columns)
        found.lost = table.lost
        return found

    def _doubt(self) -> str:
        """Return what the names of hosts may have been taken for; empty where nothing is odd."""
        odd = odd_core(self._columns)
        if odd is None:
            return ""
        return (
            f"{odd.group}:{odd.metric} is taken for {shown(odd.instance)} of host "
            f"{shown(odd.host)}; if that is one name, say --host {odd.instance}.{odd.host}"
        )

    def _parts(self, spool: Spool) -> list[Part]:
        parts = {h: Part(h, str(self.table.path), spool, [], []) for h in self.hosts}
        taken: set[tuple[str, str, str]] = set()
        for at, column in enumerate(self._columns):
            if column is None:
                continue
            part = parts[column.host]
            found = _free_name(column, taken)
            if found is None:
                part.named_twice += 1
            else:
                part.columns.append(at)
                part.meanings.append(found)
        return list(parts.values())


def _has_rows(table: TextTable, spool: Spool) -> None:
    if not spool.rows:
        what = "no row after its line of names"
        if table.lost.ragged:
            first = table.lost.first["ragged"]
            what = f"no row of as many cells as line 1, {len(table.names) + 1}; see line {first}"
        raise InvalidImport(f"{table.path} has {what}")


def _free_name(column: Column, taken: set[tuple[str, str, str]]) -> Meaning | None:
    """Return what a column means, under a name that no column before it has."""
    for found in (meaning(column), own_name(column)):
        key = column.host, found.channel.metric, found.channel.device
        if key not in taken:
            taken.add(key)
            return found
    return None
