"""Files that the kernel keeps: open ones, inodes and names: /proc/sys/fs.

Kernel: Documentation/admin-guide/sysctl/fs.rst. Each file is one line of numbers. A leak of open
files and a storm of metadata, as many small files make it, are seen here first.
"""

from __future__ import annotations

from functools import partial

from producers.parsing import Draft, TextFile
from producers.source import SECOND_NS, Collector
from schemas.records import Channel, Kind, Subsystem

FILES: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = {
    "file-nr": (3, (("open", "files"),)),
    "inode-nr": (2, (("inodes", "inodes"), ("free_inodes", "inodes"))),
    "dentry-state": (6, (("dentries", "dentries"), ("unused_dentries", "dentries"))),
}
"""How many numbers there are, and the metrics and units of the first."""


def plan(count: int, metrics: tuple[tuple[str, str], ...], text: str) -> Draft:
    """Plan one of the files. Where a number is missing nobody can say which, so none is taken."""
    draft = Draft()
    if len(text.split()) == count:
        for at, (metric, unit) in enumerate(metrics):
            channel = Channel(f"files.{metric}", "", Subsystem.STORAGE, unit, Kind.GAUGE)
            draft.channel(at, channel)
    return draft


def collector() -> Collector:
    """Return a collector of the kernel's files."""
    return Collector(
        "files",
        tuple(
            TextFile(
                f"proc/sys/fs/{name}",
                partial(plan, *numbers),
                period_ns=SECOND_NS,
                remedy="Without it leaks of open files are seen only when none can be opened. "
                "Mount the host's /proc and name it with --path.proc.",
            )
            for name, numbers in FILES.items()
        ),
    )
