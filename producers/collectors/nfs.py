"""What the host asks NFS servers for: /proc/net/rpc/nfs.

Kernel: net/sunrpc/stats.c, fs/nfs (nfs2xdr.c, nfs3xdr.c, nfs4xdr.c) and include/linux/nfs4.h for
the order of the calls. The counters have 32 bits. A device is a version of the protocol, left out
until something is called with it. Of version 4 only calls are named whose places are the same in
all kernels; `calls` counts them all. The line ``net`` is not taken: for a client it stays 0.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from producers.collectors.nfs_mounts import MountStats
from producers.parsing import Draft, TextFile, numbered_lines
from producers.source import WRAPS_32, Collector, Doubles, Field
from schemas.records import Channel, Kind, Subsystem

Places: TypeAlias = NDArray[np.intp]

_PARTS = ("calls", "retransmits", "auth_refreshes")
_FIRST = 2
"""Place of a line's first count: before it are the version and how many counts there are."""

CALLS = {
    "proc2": (
        "- getattr setattr - lookup readlink read - write create remove rename - - mkdir rmdir "
        "readdir"
    ),
    "proc3": (
        "- getattr setattr lookup access readlink read write create mkdir - - remove rmdir rename "
        "- readdir readdirplus fsstat - - commit"
    ),
    "proc4": (
        "- read write commit open - open_noattr - close setattr - renew - - lock - locku access "
        "getattr lookup - remove rename - - create - statfs readlink readdir - delegreturn"
    ),
}
"""Calls by version, in the order of the counts; a dash where one has no channel, and none after."""


def plan(text: str) -> Draft:
    """Plan the file."""
    draft = Draft()
    versions: list[str] = []
    for at, words in numbered_lines(text):
        counts = words[_FIRST:]
        if words[0] == "rpc" and len(words) > len(_PARTS):
            for i, part in enumerate(_PARTS, start=1):
                draft.channel(at + i, _channel(part), modulus=WRAPS_32)
        elif words[0] in CALLS and words[0] not in versions and counts:
            if all(count == "0" for count in counts):
                for place in range(at + _FIRST, at + len(words)):
                    draft.watch(place)
                continue
            versions.append(words[0])
            # Where one is missing nobody can say which: all have the place of the version's name.
            whole = words[1] == str(len(counts))
            names = CALLS[words[0]].split() + ["-"] * len(counts)
            for i, name in enumerate(names[: len(counts)]):
                place = at + _FIRST + i if whole else at
                channel = _channel(f"call {i}" if name == "-" else name, version(words[0]))
                if name == "-":
                    draft.field(place, Field(channel.label, True, modulus=WRAPS_32))
                else:
                    draft.channel(place, channel, modulus=WRAPS_32)
    _derive(draft, [version(name) for name in versions])
    return draft


def version(name: str) -> str:
    """Return ``v4`` for ``proc4``."""
    return name.replace("proc", "v")


def _derive(draft: Draft, versions: list[str]) -> None:
    """Add the calls of each version, and the share that was sent again."""
    order = {key: i for i, key in enumerate(draft.fields)}
    ratios: dict[str, tuple[str, ...]] = {}
    places = [
        np.array([i for key, i in order.items() if key.endswith(f"[{v}]")], np.intp)
        for v in versions
    ]
    channels = [_channel("calls", v) for v in versions]
    both = ("nfs_client.calls", "nfs_client.retransmits")
    sent = None
    if set(both) <= set(order):
        sent = np.array([order[key] for key in both], np.intp)
        share = Channel("nfs_client.retransmit_share", "", Subsystem.STORAGE, "%", Kind.RATE)
        channels.append(share)
        ratios[share.label] = both
    if channels:
        draft.derived(channels, partial(_derived, places, sent), ratios)


def _derived(places: list[Places], sent: Places | None, rates: Doubles) -> Doubles:
    made = [float(rates[at].sum()) for at in places]
    if sent is not None:
        calls, again = rates[sent].tolist()
        made.append(100 * again / (calls + again) if calls + again else 0.0)
    return np.array(made)


def _channel(part: str, device: str = "") -> Channel:
    return Channel(f"nfs_client.{part}", device, Subsystem.STORAGE, "calls/s", Kind.RATE)


def collector() -> Collector:
    """Return a collector of the calls of an NFS client."""
    return Collector(
        "nfs",
        (
            TextFile(
                "proc/net/rpc/nfs",
                plan,
                remedy="Without it calls to NFS servers are not counted. It comes with the NFS "
                "client's kernel module.",
            ),
        ),
    )


def mounts_collector() -> Collector:
    """Return a collector of what is mounted from NFS servers."""
    return Collector("nfs_mounts", (MountStats(),))
