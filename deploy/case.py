"""What is evaluated: a recording and its labels, or an array data set, and the settings for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from deploy.arrays import SUFFIX, ArrayRecording
from deploy.labels import InvalidLabels, check_hosts, read_labels
from deploy.replay import Source, open_recording
from deploy.watched import Means, Watched, watch
from models.evaluation import Evaluation, Event, evaluate
from schemas.errors import RevealError
from streams.config import WorkerSettings

GRACE_STRIDES = 10
"""Windows after an event in which an episode is still its own."""
SAMPLE_SECONDS = 60


class NothingWatched(RevealError, ValueError):
    """No host of a recording was learned within it. The text says what to do."""


@dataclass(frozen=True)
class Case:
    """One recording to be judged.

    Attributes
    ----------
    path, labels
        Its file, and that of its labels; None for arrays, which have their own.
    open
        Begins to read it, from the start each time.
    worker
        Settings that fit it.
    events
        Faults in any order; none where no labels were asked for.
    from_us
        What ends before is not judged.
    """

    path: Path
    labels: Path | None
    open: Callable[[], Source | ArrayRecording]
    worker: WorkerSettings
    events: Sequence[Event]
    from_us: int = 0

    def grace_us(self, worker: WorkerSettings | None = None) -> int:
        """Return the microseconds after an event in which an episode is still its own."""
        return GRACE_STRIDES * (worker or self.worker).stride_ms * 1000

    def watch(self, worker: WorkerSettings | None = None, means: Means | None = None) -> Watched:
        """Replay it, with other settings if they are given.

        Raises
        ------
        NothingWatched
            No host was learned.
        InvalidLabels
            They name hosts that are not in it.
        """
        worker = worker or self.worker
        source = self.open()
        seen = watch(source, worker, from_us=self.from_us, means=means)
        if not isinstance(source, ArrayRecording):
            self._check_whole(source)
            seen.dropped |= source.dropped()
        if not seen.hosts:
            raise NothingWatched(
                f"{self.path}: no host was learned within it with baseline_seconds = "
                f"{worker.baseline_seconds}, so there is nothing to evaluate: give a shorter "
                "--baseline-seconds"
            )
        if self.labels is not None:
            check_hosts(self.labels, self.events, sorted(seen.recorded))
        return seen

    def _check_whole(self, source: Source) -> None:
        """Say what could not be read: figures are of the rest."""
        lost = source.container
        if lost.lost:
            click.echo(
                f"{self.path}: {lost.lost:,} of {lost.size:,} bytes could not be read: "
                f"{lost.trouble}",
                err=True,
            )

    def judge(
        self, seen: Watched, worker: WorkerSettings | None = None
    ) -> tuple[Evaluation, list[Event]]:
        """Hold what was seen against the labels; also return the events that count.

        Raises
        ------
        InvalidLabels
            No fault lies in the part that was watched.
        """
        stride_s = (worker or self.worker).stride_ms / 1e3
        first_us, last_us = seen.span()
        began_us = first_us - int(stride_s * 1e6)
        counted = [
            e
            for e in self.events
            if began_us <= e.start_us < last_us and any(map(e.is_on, seen.hosts))
        ]
        if self.labels is not None and not counted:
            raise InvalidLabels(
                f"{self.labels}: none of its {len(self.events)} faults lies in the part of "
                f"{self.path} that was watched"
            )
        done = evaluate(
            counted,
            seen.told(),
            sorted(seen.hosts),
            seen.windows * stride_s,
            self.grace_us(worker) / 1e6,
        )
        return done, counted


def recorded_case(path: Path, labels: Path | None, worker: WorkerSettings) -> Case:
    """Return a recording of telemetry or raw kernel files, with labels if they are given."""
    events = [] if labels is None else read_labels(labels)
    open_recording(path)  # says at once what is wrong with it
    return Case(path, labels, lambda: open_recording(path), worker, events)


def array_case(path: Path, sample_seconds: int, worker: WorkerSettings) -> Case:
    """Return an array data set."""
    arrays = ArrayRecording(path, sample_seconds)
    settings = arrays.settings(worker)
    return Case(path, None, lambda: arrays, settings, arrays.events, arrays.first_us)


def is_array(path: Path) -> bool:
    """Return whether a file is an array data set, by its name."""
    return path.suffix == SUFFIX
