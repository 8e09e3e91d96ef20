"""A host that does not exist: two sockets, 48 cores, 512 GiB, as its kernel would show it.

Everything is written here, in the formats of Linux 6.1 and of the drivers that such a host has,
and moves. It serves where a large host is needed and none is at hand: in tests from memory, and
on a tmpfs for the agent itself::

    python -m tests.producers.bighost /dev/shm/big --seconds 60
    reveal-agent list --proc-root /dev/shm/big/proc --sys-root /dev/shm/big/sys

What it cannot show is what the kernel itself spends on making such files: those are ready here.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.producers.bighost import (
    cores,
    hardware,
    memory,
    network,
    pressure,
    protocols,
    rdma,
    storage,
)
from tests.producers.bighost.size import Size
from tests.producers.bighost.state import Files

__all__ = ["BigHost", "Size", "Tree"]


class BigHost:
    """The host. `step` lets time pass, `files` are its files as they are now."""

    def __init__(self, size: Size | None = None, seed: int = 1) -> None:
        self.size = size or Size()
        self._files = Files(seed)
        for part in (cores, memory, pressure, storage, network, protocols, rdma, hardware):
            part.add(self._files, self.size)
        self._files.ready()

    def step(self, seconds: float) -> None:
        """Let time pass."""
        self._files.step(seconds)

    def files(self) -> dict[str, bytes]:
        """Return every file by its path, ``proc/stat``: what a `MemoryReader` takes."""
        return self._files.linked()

    @property
    def links(self) -> dict[str, str]:
        """Other names of directories, and what they lead to."""
        return self._files.links

    def once(self) -> dict[str, bytes]:
        """Return every file by one of its paths."""
        return self._files.every()

    def changed(self) -> dict[str, bytes]:
        """Return the files that move, as they are now."""
        return dict(self._files.changed())


@dataclass(slots=True)
class _Open:
    descriptor: int
    size: int


class Tree:
    """The host's files in a directory, below ``proc`` and ``sys``.

    They are written over in place, so that whoever has them open sees them move. Nearly always a
    text is as long as the one before, and whoever reads meanwhile finds numbers of both.
    """

    def __init__(self, host: BigHost, root: Path) -> None:
        self._host = host
        self._stack = ExitStack()
        self._open: dict[str, _Open] = {}
        moving = host.changed()
        for link, target in host.links.items():
            (root / target).mkdir(parents=True, exist_ok=True)
            at = root / link
            at.parent.mkdir(parents=True, exist_ok=True)
            at.symlink_to(os.path.relpath(root / target, at.parent.resolve()))
        for path, text in host.once().items():
            at = root / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(text)
            if path in moving:
                descriptor = os.open(at, os.O_WRONLY | os.O_CLOEXEC)
                self._stack.callback(os.close, descriptor)
                self._open[path] = _Open(descriptor, len(text))

    def step(self, seconds: float) -> None:
        """Let time pass, and write down what moved."""
        self._host.step(seconds)
        for path, text in self._host.changed().items():
            file = self._open[path]
            os.pwrite(file.descriptor, text, 0)
            if len(text) < file.size:
                os.ftruncate(file.descriptor, len(text))
            file.size = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self._stack.close()
