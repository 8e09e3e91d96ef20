"""Array data sets as recordings: one host, one tick a sample, its labels as events.

Data sets of monitored servers come as NumPy archives: `train` and `test`, both of shape
``(samples, channels)``, and `label`, shape ``(samples of test,)``, which is not 0 where a sample
is odd. If they know what their channels are, names are in `channels`. Values stay as they are:
levels without a unit, NaN where there was none.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deploy.changes import changed
from models.evaluation import UNNAMED, Event
from models.ranking import runs
from schemas.codec import encode
from schemas.errors import RevealError
from schemas.records import Channel, Kind, Layout, Subsystem, Telemetry, layout_fingerprint
from streams.config import LEAST_WINDOWS, WorkerSettings
from streams.recording import Recorded

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIX = ".npz"
WINDOW = 5
"""Samples in a window; there is one for every sample."""
RECORD = 100
"""Ticks in a record of telemetry."""


class InvalidArrays(RevealError, ValueError):
    """An archive of arrays is not such a data set. The text names the file and what is wrong."""


class ArrayRecording:
    """A data set, read.

    The train split comes first and is the baseline, the test split goes on from it, and only
    its windows are judged.

    Attributes
    ----------
    events
        Runs of odd samples. Times count from the first sample of the train split.
    first_us
        When the test split begins.

    Raises
    ------
    InvalidArrays
        The file is no archive of arrays, or they do not fit together.
    """

    def __init__(self, path: Path, sample_seconds: int) -> None:
        self.path = path
        arrays = _read(path)
        self._train, self._test = arrays["train"], arrays["test"]
        self._interval_us = sample_seconds * 1_000_000
        self._names = _names(path, arrays, self._train.shape[1])
        self.first_us = len(self._train) * self._interval_us
        self.events = [
            Event(
                UNNAMED,
                0,
                "",
                self.first_us + first * self._interval_us,
                self.first_us + (last + 1) * self._interval_us,
            )
            for first, last in runs(arrays["label"] != 0)
        ]

    def settings(self, worker: WorkerSettings) -> WorkerSettings:
        """Return settings with windows of samples; the train split is and stays the baseline."""
        stride_ms = self._interval_us // 1000
        return changed(
            worker,
            {
                "stride_ms": stride_ms,
                "window_ms": WINDOW * stride_ms,
                "baseline_seconds": (len(self._train) - WINDOW + 1) * stride_ms // 1000,
                # Neither longer than the train split, nor renewed from what is to be judged.
                "baseline_limit": 1.0,
                "drift_seconds": 0,
                "workload_seconds": 0,
            },
            str(self.path),
        )

    def __iter__(self) -> Iterator[Recorded]:
        """Yield the layout, then the samples in order."""
        channels = tuple(Channel(n, "", Subsystem.CPU, "", Kind.GAUGE) for n in self._names)
        name = layout_fingerprint(channels, self._interval_us)
        host = self.path.stem
        layout = Layout(host, name, "", "", self._interval_us, channels)
        yield Recorded(layout, encode(layout))
        samples = np.concatenate([self._train, self._test])
        for seq, start in enumerate(range(0, len(samples), RECORD)):
            values = np.ascontiguousarray(samples[start : start + RECORD].T)
            stamps = np.arange(start, start + values.shape[1], dtype=np.int64) * self._interval_us
            record = Telemetry(host, name, seq, self._interval_us, stamps, values)
            yield Recorded(record, encode(record))


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as e:
        raise InvalidArrays(f"{path} cannot be read: {e.strerror or e}") from None
    except (AttributeError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as e:
        raise InvalidArrays(f"{path} is no archive of plain NumPy arrays: {e}") from None
    missing = [name for name in ("train", "test", "label") if name not in arrays]
    if missing:
        raise InvalidArrays(
            f"{path} lacks {' and '.join(missing)}: it holds {', '.join(arrays) or 'nothing'}"
        )
    for name in ("train", "test"):
        if arrays[name].ndim != 2 or arrays[name].dtype.kind not in "fiub":
            raise InvalidArrays(
                f"{path}: {name} has to be numbers of shape (samples, channels), "
                f"not {_what(arrays[name])}"
            )
        arrays[name] = arrays[name].astype(np.float32)
    train, test, label = arrays["train"], arrays["test"], arrays["label"]
    if train.shape[1] != test.shape[1] or not train.shape[1]:
        raise InvalidArrays(
            f"{path}: train has {train.shape[1]} channels and test has {test.shape[1]}"
        )
    if label.shape != (len(test),) or label.dtype.kind not in "fiub":
        raise InvalidArrays(
            f"{path}: label has to be one number for each of the {len(test)} samples of test, "
            f"not {_what(label)}"
        )
    if len(train) < LEAST_WINDOWS + WINDOW:
        raise InvalidArrays(
            f"{path}: {len(train)} samples of train are too few to learn from: "
            f"{LEAST_WINDOWS + WINDOW} are needed"
        )
    if not len(test):
        raise InvalidArrays(f"{path}: test has no samples")
    return arrays


def _names(path: Path, arrays: dict[str, NDArray[Any]], channels: int) -> list[str]:
    if "channels" not in arrays:
        return [f"c{i}" for i in range(channels)]
    names = arrays["channels"]
    if names.shape != (channels,) or names.dtype.kind != "U" or len(set(names)) != channels:
        raise InvalidArrays(
            f"{path}: channels has to hold {channels} different names, not {_what(names)}"
        )
    return [str(name) for name in names]


def _what(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"
