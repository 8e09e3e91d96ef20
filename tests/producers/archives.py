"""Kernel files of other machines, as published with node_exporter and procfs.

They lie in ``shared/data/fixtures`` beside the checkout, not in it. A test that asks for them
where they are not is skipped.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from functools import cache
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[3] / "shared" / "data" / "fixtures"

_ARCHIVES = {
    "node_exporter/sys": "node_exporter/sys.ttar",
    "node_exporter/udev": "node_exporter/udev.ttar",
    "procfs": "procfs/fixtures.ttar",
}
_TOPS = {"procfs": "fixtures/"}
"""Folders in an archive that are no part of a file's path on its machine."""


def archive(name: str) -> dict[str, bytes]:
    """Return the files of a machine by path below its root, for a `MemoryReader`.

    Files that symbolic links lead to are there under both names.

    Parameters
    ----------
    name
        ``node_exporter/proc``, a tree of plain files; or a ttar archive: ``node_exporter/sys``,
        ``node_exporter/udev``, ``procfs`` (which has both ``proc/`` and ``sys/``).
    """
    return dict(_archive(name))


@cache
def _archive(name: str) -> dict[str, bytes]:
    path = FIXTURES / _ARCHIVES.get(name, name)
    if not path.exists():
        pytest.skip(f"{path} is not here: see shared/data")
    if path.is_dir():
        return {
            f"{path.name}/{p.relative_to(path).as_posix()}": p.read_bytes()
            for p in path.rglob("*")
            if p.is_file()
        }
    top = _TOPS.get(name, "")
    files, links = parse(path.read_bytes())
    files = {path.removeprefix(top): content for path, content in files.items()}
    links = {path.removeprefix(top): target.removeprefix(top) for path, target in links.items()}
    return followed(files, links)


def parse(text: bytes) -> tuple[dict[str, bytes], dict[str, str]]:
    """Read a ttar archive.

    An entry is ``Path: NAME`` and then ``SymlinkTo: TARGET``, or ``Lines: N`` and so many lines,
    in which NULLBYTE is a zero byte and EOF a missing end of line, unless a backslash is before it.

    Returns
    -------
    tuple
        Files and their content; links and where they lead, both as paths in the archive.
    """
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    lines = iter(text.split(b"\n"))
    path = ""
    for line in lines:
        key, _, value = line.partition(b": ")
        if key == b"Path":
            path = value.decode()
        elif key == b"SymlinkTo":
            target = posixpath.join(posixpath.dirname(path), value.decode())
            links[path] = posixpath.normpath(target)
        elif key == b"Lines":
            body = b"".join(next(lines) + b"\n" for _ in range(int(value)))
            files[path] = _plain(body)
    return files, links


def _plain(body: bytes) -> bytes:
    if body.endswith(b"EOF\n") and not body.endswith(rb"\EOF" + b"\n"):
        body = body.removesuffix(b"EOF\n")
    parts = body.replace(rb"\EOF", b"EOF").split(rb"\NULLBYTE")
    return b"NULLBYTE".join(part.replace(b"NULLBYTE", b"\x00") for part in parts)


def followed(files: dict[str, bytes], links: dict[str, str]) -> dict[str, bytes]:
    """Return the files, and again under the names that links give them.

    Links lead round in circles, so there has to be an end: a path goes through one link, or
    through two when it begins in ``class`` or ``bus``, as ``class/hwmon/hwmon0/device``. Those
    named ``subsystem`` lead back to all devices of a kind, and are left out.
    """
    links = {link: to for link, to in links.items() if not link.endswith("/subsystem")}
    outside = {link: to for link, to in links.items() if not link.startswith("sys/devices/")}
    every = dict(files)
    for some in (links, outside):
        names = sorted(every)
        for link, target in some.items():
            if target in every:
                every[link] = every[target]
            below = f"{target}/"
            at = bisect_left(names, below)
            while at < len(names) and names[at].startswith(below):
                every[link + names[at][len(target) :]] = every[names[at]]
                at += 1
    return every
