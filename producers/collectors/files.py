"""Files that the kernel keeps: open ones, inodes and names: /proc/sys/fs.

Kernel: Documentation/admin-guide/sysctl/fs.rst. Each file is one line of numbers. A leak of open
files and a storm of metadata, as many small files make it, are seen here first.
"""

from __future__ import annotations

from functools import partial

from producers.parsing import Draft, TextFile
from producers.source import SECOND_NS, Collector
from schemas.records import Channel, Kind, Subsystem

FILES: dict[str, tuple[tuple[int, str, str], ...]] = {
    "file-nr": ((0, "open", "files"),),
    "inode-nr": ((0, "inodes", "inodes"), (1, "free_inodes", "inodes")),
    "dentry-state": ((0, "dentries", "dentries"), (1, "unused_dentries", "dentries")),
}
"""Places of the numbers that are taken, their metrics and units."""


def plan(numbers: tuple[tuple[int, str, str], ...], text: str) -> Draft:
    """Plan one of the files."""
    draft = Draft()
    count = len(text.split())
    for place, metric, unit in numbers:
        if place < count:
            channel = Channel(f"files.{metric}", "", Subsystem.STORAGE, unit, Kind.GAUGE)
            draft.channel(place, channel)
    return draft


def collector() -> Collector:
    """Return a collector of the kernel's files."""
    return Collector(
        "files",
        tuple(
            TextFile(
                f"proc/sys/fs/{name}",
                partial(plan, numbers),
                period_ns=SECOND_NS,
                remedy="Without it leaks of open files are seen only when none can be opened. "
                "Mount the host's /proc and name it with --proc-root.",
            )
            for name, numbers in FILES.items()
        ),
    )
