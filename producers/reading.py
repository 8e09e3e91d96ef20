"""How collectors read kernel files: one object, whatever the files come from.

Paths are relative to the root of the machine: ``proc/stat``, ``sys/block/sda/stat``.
"""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

_SLACK = 2
_PAGE = 4096
_GONE = (errno.ENODEV, errno.ESTALE, errno.ENOENT, errno.EBADF)


class Reader(Protocol):
    """What a collector sees of a machine."""

    def read(self, path: str) -> bytes:
        """Return a file's content; OSError says why it cannot be had."""
        ...

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern, sorted."""
        ...


class FileReader:
    """Reads the files of a running kernel.

    Descriptors stay open and files are read again with `pread`, into a buffer a little larger
    than the file was: opening each time costs more than twice as much, and so does a buffer that
    is much too large, since the kernel clears it.

    Parameters
    ----------
    proc, sys
        Where the two file systems are mounted, for example ``/host/proc`` in a container.
    """

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._roots = {"proc": proc, "sys": sys}
        self._open: dict[str, tuple[int, int]] = {}

    def read(self, path: str) -> bytes:
        """Return a file's content, read in one piece."""
        entry = self._open.get(path)
        if entry is not None:
            try:
                return self._read(path, *entry)
            except OSError as e:
                self._close(path)
                if e.errno not in _GONE:
                    raise
        fd = os.open(self._real(path), os.O_RDONLY | os.O_CLOEXEC)
        return self._read(path, fd, _PAGE)

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern, sorted."""
        top, _, rest = pattern.partition("/")
        root = self._roots[top]
        return sorted(f"{top}/{p.relative_to(root)}" for p in root.glob(rest))

    def close(self) -> None:
        """Close every file."""
        for path in list(self._open):
            self._close(path)

    def _read(self, path: str, fd: int, size: int) -> bytes:
        while True:
            try:
                data = os.pread(fd, size, 0)
            except OSError:
                self._open[path] = fd, size
                raise
            if len(data) < size:
                break
            size *= _SLACK
        # Next time, room for what it was and half as much.
        fit = -(-(len(data) * 3 // 2 + 1) // _PAGE) * _PAGE
        self._open[path] = fd, max(fit, _PAGE)
        return data

    def _real(self, path: str) -> Path:
        top, _, rest = path.partition("/")
        return self._roots[top] / rest

    def _close(self, path: str) -> None:
        fd, _ = self._open.pop(path)
        os.close(fd)


class MemoryReader:
    """Reads files from a dictionary: tests, and recordings of raw kernel files.

    Parameters
    ----------
    files
        Contents by path; replace it by assigning to `files`.
    host
        Prefix of files that are this host's own: with ``rank0``, ``rank0:proc/net/dev`` is
        found as ``proc/net/dev``.
    """

    def __init__(self, files: Mapping[str, bytes], host: str = "") -> None:
        self.files = files
        self._prefix = f"{host}:" if host else ""

    def read(self, path: str) -> bytes:
        """Return a file's content; FileNotFoundError when there is none."""
        files = self.files
        data = files.get(self._prefix + path) if self._prefix else None
        if data is None:
            data = files.get(path)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return data

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern, sorted."""
        size = len(self._prefix)
        names = (n[size:] if size and n.startswith(self._prefix) else n for n in self.files)
        return sorted({n for n in names if fnmatch.fnmatchcase(n, pattern)})
