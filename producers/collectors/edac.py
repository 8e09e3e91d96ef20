"""Memory errors: ``sys/devices/system/edac/mc/mc*``.

Kernel: Documentation/admin-guide/ras.rst. Each memory controller counts the errors that it
corrected (`ce_count`) and those that it could not (`ue_count`), and those of each row
(`csrow*/ce_count`) or memory module (`dimm*/dimm_ce_count`, `rank*/...`) that it could tell; those
it could not are in `ce_noinfo_count`.
"""

from __future__ import annotations

import re

import numpy as np

from producers.source import SECOND_NS, Collector
from producers.tree import FileTree, TreeDraft
from schemas.records import Channel, Kind, Subsystem

CONTROLLERS = "sys/devices/system/edac/mc"
ERRORS = {"ce": "corrected", "ue": "uncorrected"}


def find(tree: TreeDraft) -> None:
    """Errors of each controller, of all of them, and of each row or module."""
    totals: dict[str, list[int]] = {}
    for controller in tree.names(CONTROLLERS):
        folder = f"{CONTROLLERS}/{controller}"
        if not re.fullmatch(r"mc\d+", controller):
            continue
        for short, kind in ERRORS.items():
            for stem, metric in ((short, kind), (f"{short}_noinfo", f"{kind}_anywhere")):
                at = tree.file(f"{folder}/{stem}_count")
                if at is not None:
                    totals.setdefault(metric, []).append(len(tree.fields))
                    tree.channel(at, _channel(metric, controller))
        for part in tree.names(folder):
            _find_part(tree, controller, part)
    if totals:
        places = list(totals.values())
        tree.derived(
            [_channel(metric, "") for metric in totals],
            lambda rates: np.array([rates[at].sum() for at in places]),
        )


def _find_part(tree: TreeDraft, controller: str, part: str) -> None:
    """Errors of one row or module of a controller."""
    match = re.fullmatch(r"(csrow|dimm|rank)\d+", part)
    if match is None:
        return
    folder = f"{CONTROLLERS}/{controller}/{part}"
    prefix = "" if match[1] == "csrow" else "dimm_"
    for short, kind in ERRORS.items():
        at = tree.file(f"{folder}/{prefix}{short}_count")
        if at is not None:
            tree.channel(at, _channel(f"{match[1]}_{kind}", f"{controller}/{part}"))


def _channel(metric: str, device: str) -> Channel:
    return Channel(f"edac.{metric}", device, Subsystem.MEMORY, "errors/s", Kind.RATE)


def collector() -> Collector:
    """Return a collector of memory errors."""
    return Collector(
        "edac",
        (
            FileTree(
                CONTROLLERS,
                find,
                remedy="Without it failing memory is not seen before it fails. Load the EDAC "
                "driver of the memory controller; virtual machines have none.",
                period_ns=SECOND_NS,
            ),
        ),
    )
