"""Software RAID: /sys/block/md*/md.

Kernel: Documentation/admin-guide/md.rst. An array that lost disks goes on, slower, and one that
gets a new one reads all others for hours. /proc/mdstat says the same in prose, and is not read.
"""

from __future__ import annotations

import re

from producers.source import SECOND_NS, Collector
from producers.tree import FileTree, TreeDraft, whole_number
from schemas.records import Channel, Kind, Subsystem

TOP = "sys/block"
ACTIONS = {b"idle": 0, b"frozen": 0}
"""What ``sync_action`` may say while no disk is read for it."""


def number(content: bytes) -> float:
    """Return a count, or 1 for a word that says that an array is being gone through, else 0."""
    word = content.strip()
    if word in ACTIONS:
        return ACTIONS[word]
    if word in {b"resync", b"recover", b"check", b"repair", b"reshape"}:
        return 1
    return whole_number(content)


def find(tree: TreeDraft) -> None:
    """Find the arrays: how many disks each lacks, whether it is gone through, and its errors."""
    for array in tree.names(TOP):
        if not re.fullmatch(r"md\w+", array):
            continue
        top = f"{TOP}/{array}/md"
        for metric, unit, file in (
            ("degraded", "disks", "degraded"),
            ("syncing", "arrays", "sync_action"),
            ("mismatches", "sectors", "mismatch_cnt"),
        ):
            at = tree.file(f"{top}/{file}")
            if at is not None:
                channel = Channel(f"raid.{metric}", array, Subsystem.STORAGE, unit, Kind.GAUGE)
                tree.channel(at, channel)
        for name in tree.names(top):
            at = tree.file(f"{top}/{name}/errors") if name.startswith("dev-") else None
            if at is not None:
                device = f"{array}/{name.removeprefix('dev-')}"
                channel = Channel("raid.errors", device, Subsystem.STORAGE, "/s", Kind.RATE)
                tree.channel(at, channel)


def collector() -> Collector:
    """Return a collector of software RAID."""
    return Collector(
        "raid",
        (
            FileTree(
                TOP,
                find,
                number=number,
                period_ns=SECOND_NS,
                remedy="Without it an array that lost a disk is seen only by being slow. Nothing "
                "to do where there is no software RAID.",
            ),
        ),
    )
