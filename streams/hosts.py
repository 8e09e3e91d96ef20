"""What the scoring stage knows of each host, and the banks that hosts of a width share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.bank import BaselineBank
from models.drift import DriftBank
from models.episode import EpisodeBank
from models.lifecycle import Life
from models.mode import DETECTORS, Mode

if TYPE_CHECKING:
    from models.channels import ChannelTable
    from models.lifecycle import Look
    from streams.episode import Episode
    from streams.fitting import Learned

LAYOUTS_KEPT = 4
"""Layouts of a host whose baselines are remembered: its devices come and go."""


@dataclass(slots=True, eq=False)
class Host:
    """What is known of one host under one layout."""

    name: str
    layout: int
    group: Group
    slot: int
    clock: int
    life: Life
    last_end: int = 0
    most_known: int = 0
    """Channels that had a value in the fullest window so far."""
    fitting: Future[Learned] | None = None
    learned: Learned | None = None
    """What it is judged by; None while it is learned."""
    version: int = 0
    """Newest version so far; another one is larger, whatever the host's clock says."""
    channels: ChannelTable | None = None
    episode: Episode | None = None
    long: Look | None = None
    """What was found when the open episode had become a long one."""


class Group:
    """Banks of all hosts with the same number of channels.

    Attributes
    ----------
    detectors
        Names of the detectors, in the order of every array of them.
    attended
        Of each slot whether its host drifts, so that its windows are looked at one by one.
    """

    def __init__(self, channels: int, drift_windows: float, mode: Mode) -> None:
        self.channels = channels
        self.detectors = DETECTORS[mode]
        self.baselines = BaselineBank(channels, mode)
        self.episodes = EpisodeBank()
        self.drift = DriftBank(drift_windows)
        self.attended = np.zeros(0, bool)
        self._free: list[int] = []

    def take_slot(self) -> int:
        """Return a slot that no host has."""
        if not self._free:
            size = len(self.attended)
            self.attended = np.concatenate([self.attended, np.zeros(max(1, size), bool)])
            self._free.extend(reversed(range(size, len(self.attended))))
        return self._free.pop()

    def free_slot(self, slot: int) -> None:
        """Take a slot back."""
        self.attended[slot] = False
        self._free.append(slot)

    def judge_by(self, slot: int, learned: Learned) -> None:
        """Put another baseline in force."""
        self.baselines.set(slot, learned.baseline)
        self.drift.reset(slot)
        self.attended[slot] = False


class Shelf:
    """Baselines that are not in force: of layouts that a host had before, or loaded for it."""

    def __init__(self) -> None:
        self._hosts: dict[str, dict[int, Learned]] = {}

    def put(self, host: str, layout: int, learned: Learned) -> None:
        """Keep a baseline unless a newer one is there; the oldest layouts of a host go."""
        mine = self._hosts.setdefault(host, {})
        there = mine.pop(layout, None)
        mine[layout] = learned if there is None or learned.version >= there.version else there
        while len(mine) > LAYOUTS_KEPT:
            del mine[next(iter(mine))]

    def take(self, host: str, layout: int) -> Learned | None:
        """Return a baseline, which is no longer kept here."""
        mine = self._hosts.get(host)
        if mine is None:
            return None
        learned = mine.pop(layout, None)
        if not mine:
            del self._hosts[host]
        return learned

    def forget(self, host: str) -> None:
        """Drop a host."""
        self._hosts.pop(host, None)


def rounds(hosts: tuple[str, ...]) -> Iterator[list[int]]:
    """Split rows so that each part has a host at most once, in order."""
    parts: list[list[int]] = []
    turns: dict[str, int] = {}
    for i, host in enumerate(hosts):
        turn = turns.get(host, 0)
        turns[host] = turn + 1
        if turn == len(parts):
            parts.append([])
        parts[turn].append(i)
    yield from parts
