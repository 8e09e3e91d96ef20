"""Cases for tests of rules: windows of a real recording, and ones made by hand.

``windows.npz`` is cut from a recording of our own: two ranks of a training job on one machine of
two cores, with labelled faults. It holds for each host where its channels usually are, two windows
of each fault (the third after it began to show, and one from its middle) and fifty normal ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.channels import ChannelTable
from models.diagnosis import Case

WINDOWS = Path(__file__).parents[2] / "fixtures" / "campaign" / "windows.npz"


@dataclass(frozen=True)
class Seen:
    """One window: `fault` is empty on a normal one."""

    host: str
    fault: str
    when: str
    case: Case

    @property
    def label(self) -> str:
        return f"{self.fault}-{self.host}-{self.when}"


def recorded() -> list[Seen]:
    """Return all windows of the recording."""
    with np.load(WINDOWS, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    found = []
    for (host, fault, _, when), means in zip(
        arrays["labels"].tolist(), arrays["means"], strict=True
    ):
        columns = (arrays[n].tolist() for n in ("metric", f"device_{host}", "subsystem"))
        metric, device, subsystem = (tuple(column) for column in columns)
        unit, kind = tuple(arrays["unit"].tolist()), tuple(arrays["kind"].tolist())
        table = ChannelTable(metric, device, subsystem, unit, kind)
        case = Case(table, means, arrays[f"low_{host}"], arrays[f"high_{host}"])
        found.append(Seen(host, fault, when, case))
    return found


def made(channels: dict[str, tuple[float, float, float]]) -> Case:
    """Return a case of channels by label, ``metric[device]``: value, and where it usually lies."""
    names = [label.rstrip("]").partition("[") for label in channels]
    count = len(names)
    table = ChannelTable(
        metric=tuple(metric for metric, _, _ in names),
        device=tuple(device for _, _, device in names),
        subsystem=("gpu",) * count,
        unit=("",) * count,
        kind=("gauge",) * count,
    )
    values = np.array(list(channels.values()), np.float32).T
    return Case(table, *values)
