"""Reading kernel files: from this machine, or from memory.

Collectors name files by their path below the root, ``proc/stat`` or ``sys/class/net``, and never
open one themselves. So the same collectors run on a host, in a container that has the host's
/proc mounted elsewhere, in tests and over raw recordings.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys as python
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

_PAGE_BYTES = 4096
_FIRST_BYTES = 65536
_MARGIN_BYTES = 512
_OTHER_FILES = 256
_NOT_RECORDED = "not in the recording"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why there is no text. `absent` tells what does not exist from what may not be read."""

    path: str
    reason: str
    absent: bool


class Reader(Protocol):
    """Gives the text of kernel files."""

    def read(self, path: str) -> bytes | Unreadable:
        """Return the whole file as it is now, or why not. Raises nothing."""

    def small(self, path: str) -> bytes | Unreadable:
        """Return a file of at most a page, in one system call: an attribute in sysfs."""

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory, sorted, or why not. Raises nothing."""


@dataclass(slots=True)
class _File:
    descriptor: int
    size: int


class SystemReader:
    """Reads the kernel's own files, each opened once and read again from its start.

    A read asks for a little more than the file had last time: a buffer that is much too large
    costs more than opening the file anew. It goes on until the kernel says that there is no more,
    since one read gives at most a page of a file that the kernel makes line by line (seq_file).

    Parameters
    ----------
    proc, sys
        Where these are mounted: ``/host/proc`` in a container. With another root, files below
        ``proc/net`` are still those of the network namespace that the reader itself is in.
    keep
        How many files stay open; the rest are opened each time. By default all that this process
        may have open, less some for others: `allow_many_files` makes that more.
    """

    def __init__(
        self, proc: Path = Path("/proc"), sys: Path = Path("/sys"), keep: int | None = None
    ) -> None:
        self._keep = _room_for_files() if keep is None else keep
        # Strings: putting a Path together costs as much as opening it.
        self._roots = {"proc": str(proc), "sys": str(sys)}
        self._files: dict[str, _File] = {}

    def read(self, path: str) -> bytes | Unreadable:
        """Return the whole file as it is now, or why not."""
        return self._get(path, _whole)

    def small(self, path: str) -> bytes | Unreadable:
        """Return the file's first page, with one system call."""
        return self._get(path, _first_page)

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory, sorted, or why not."""
        top, _, rest = path.partition("/")
        try:
            return tuple(sorted(os.listdir(f"{self._roots[top]}/{rest}")))  # noqa: PTH208 - names
        except OSError as e:
            return _unreadable(path, e)

    def _get(self, path: str, how: Callable[[_File], bytes]) -> bytes | Unreadable:
        file = self._files.get(path)
        if file is not None:
            try:
                return how(file)
            except OSError:
                # The device left, or its driver was loaded again: the name may be there anew.
                self._forget(path)
        return self._open(path)

    def close(self) -> None:
        """Close every file. A later read opens it again."""
        for path in list(self._files):
            self._forget(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: str) -> bytes | Unreadable:
        top, _, rest = path.partition("/")
        descriptor = -1
        try:
            descriptor = os.open(f"{self._roots[top]}/{rest}", os.O_RDONLY | os.O_CLOEXEC)
            file = _File(descriptor, _FIRST_BYTES)
            text = _whole(file)
        except OSError as e:
            if descriptor >= 0:
                os.close(descriptor)
            return _unreadable(path, e)
        if len(self._files) >= self._keep:
            os.close(descriptor)
            return text
        file.size = len(text) + _MARGIN_BYTES
        self._files[path] = file
        return text

    def _forget(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.close(self._files.pop(path).descriptor)


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as it may: a large host has thousands."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _room_for_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return python.maxsize if soft == resource.RLIM_INFINITY else max(0, soft - _OTHER_FILES)


def _unreadable(path: str, error: OSError) -> Unreadable:
    absent = isinstance(error, FileNotFoundError | NotADirectoryError)
    return Unreadable(path, error.strerror or type(error).__name__, absent)


def _first_page(file: _File) -> bytes:
    return os.pread(file.descriptor, _PAGE_BYTES, 0)


def _whole(file: _File) -> bytes:
    text = os.pread(file.descriptor, file.size, 0)
    more = os.pread(file.descriptor, file.size, len(text)) if text else b""
    if not more:
        return text
    parts = [text]
    at = len(text)
    while more:
        parts.append(more)
        at += len(more)
        more = os.pread(file.descriptor, file.size, at)
    if len(parts[0]) == file.size:
        file.size = at + _MARGIN_BYTES
    return b"".join(parts)


class MemoryReader:
    """Files from a mapping of path to text: for tests, and for raw recordings.

    Assign `files` to move on to the next sample. `prefix` goes before every path: what one of
    several hosts in a recording has for itself (``rank0:proc/net/dev``).
    """

    def __init__(self, files: Mapping[str, bytes] | None = None, prefix: str = "") -> None:
        self.files: Mapping[str, bytes] = {} if files is None else files
        self.prefix = prefix

    def read(self, path: str) -> bytes | Unreadable:
        """Return the text under this path."""
        text = self.files.get(self.prefix + path)
        return Unreadable(path, _NOT_RECORDED, absent=True) if text is None else text

    def small(self, path: str) -> bytes | Unreadable:
        """Return the text under this path."""
        return self.read(path)

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return what comes next after this path in the paths of the recording."""
        below = f"{self.prefix}{path}/"
        names = {p[len(below) :].partition("/")[0] for p in self.files if p.startswith(below)}
        return tuple(sorted(names)) or Unreadable(path, _NOT_RECORDED, absent=True)
