"""Trees of small files: what is found, what is absent, and what comes and goes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from producers.group import Group
from producers.reading import MemoryReader
from producers.source import SECOND_NS, Collector
from producers.tree import LOOK_NS, FileTree, TreeDraft, whole_number
from schemas.records import Channel, Kind, Subsystem


def find(tree: TreeDraft) -> None:
    """Each zone's temperature, and the mean of all."""
    for zone in tree.names("sys/heat"):
        at = tree.file(f"sys/heat/{zone}/temp")
        if at is not None:
            name = tree.text(f"sys/heat/{zone}/name") or zone
            channel = Channel("heat.zone", name, Subsystem.CPU, "degC", Kind.GAUGE)
            tree.channel(at, channel, scale=1e-3)
    mean = Channel("heat.mean", "", Subsystem.CPU, "degC", Kind.GAUGE)
    if tree.fields:
        tree.derived([mean], lambda levels: np.array([levels.mean()]))


class Host:
    """A tree over files in memory, a second between readings."""

    def __init__(self) -> None:
        self.reader = MemoryReader()
        self.source = FileTree("sys/heat", find, remedy="Without it heat is not seen.")
        self.group = Group([Collector("heat", [self.source])], self.reader)
        self._at_ns = SECOND_NS

    def read(self, after_ns: int = SECOND_NS, **temperatures: str) -> dict[str, float]:
        """Read after so long, with these zones there."""
        self.reader.files = {f"sys/heat/{z}/temp": t.encode() for z, t in temperatures.items()}
        self._at_ns += after_ns
        values = self.group.collect(self._at_ns).tolist()
        labels = [c.label for c in self.group.channels]
        return dict(zip(labels, values, strict=True))


def test_numbers_labels_and_what_is_made_of_them() -> None:
    host = Host()
    host.reader.files = {}
    assert host.read(a="20000\n", b="40500\n") == {
        "heat.zone[a]": 20,
        "heat.zone[b]": 40.5,
        "heat.mean": 30.25,
    }
    assert host.source.problem == ""


def test_nothing_there() -> None:
    host = Host()
    assert host.read() == {}
    assert host.source.problem == "sys/heat: not in the recording"
    assert host.group.stats["heat"].failures == {}


@pytest.mark.parametrize("text", ["N/A (no PMA)\n", "", "\n", "+5\n", "1_000\n", "5 6\n", "0x7\n"])
def test_what_has_no_number_at_first_sight_is_absent(text: str) -> None:
    host = Host()
    assert host.read(a="20000\n", b=text) == {"heat.zone[a]": 20, "heat.mean": 20}
    for _ in range(8):
        host.read(a="20000\n", b=text)
    assert host.source.bad_fields == 0
    for _ in range(LOOK_NS // SECOND_NS):
        values = host.read(a="20000\n", b="-40000\n")
    assert values == {"heat.zone[a]": 20, "heat.zone[b]": -40, "heat.mean": -10}


def test_nothing_but_what_has_no_number() -> None:
    host = Host()
    assert host.read(a="N/A\n") == {}
    assert host.source.problem == "sys/heat: no number in it"


def test_what_had_a_number_is_unknown_while_it_has_none() -> None:
    host = Host()
    host.read(a="20000\n", b="40000\n")
    channels = host.group.channels
    for _ in range(2 * LOOK_NS // SECOND_NS):
        values = host.read(a="20000\n", b="N/A\n")
        assert math.isnan(values["heat.zone[b]"])
        assert values["heat.zone[a]"] == 20
    assert host.group.channels is channels
    assert host.source.bad_fields == 2 * LOOK_NS // SECOND_NS
    assert host.read(a="20000\n", b="41000\n")["heat.zone[b]"] == 41


def test_a_device_that_comes_and_goes() -> None:
    host = Host()
    host.read(a="20000\n")
    comes = [host.read(a="20000\n", b="30000\n") for _ in range(LOOK_NS // SECOND_NS)]
    assert [v["heat.zone[a]"] for v in comes] == [20] * len(comes)
    assert comes[-1]["heat.zone[b]"] == 30
    assert comes[-1]["heat.mean"] == 25
    goes = [host.read(a="20000\n") for _ in range(LOOK_NS // SECOND_NS + 1)]
    assert all(math.isnan(v.get("heat.zone[b]", math.nan)) for v in goes)
    assert goes[-1] == {"heat.zone[a]": 20, "heat.mean": 20}


def test_what_is_gone_for_one_look_changes_nothing() -> None:
    host = Host()
    host.read(a="20000\n", b="30000\n")
    channels = host.group.channels
    gone = host.read(after_ns=LOOK_NS, a="20000\n")
    assert math.isnan(gone["heat.zone[b]"])
    assert host.read(a="20000\n", b="30000\n")["heat.zone[b]"] == 30
    assert host.group.channels is channels


def test_the_clock_of_another_boot() -> None:
    host = Host()
    host.read(a="20000\n")
    host.read(after_ns=-SECOND_NS // 2, a="20000\n", b="1000\n")
    assert len(host.group.channels) == 3


def test_whole_numbers() -> None:
    assert whole_number(b" -12\n") == -12
    with pytest.raises(ValueError, match="is no number"):
        whole_number(b"-\n")


def test_what_is_the_same_is_not_found_again() -> None:
    """Listings, labels, files without a number, and files that are there: all are asked again."""
    calls: list[int] = []

    def counted(tree: TreeDraft) -> None:
        calls.append(len(calls))
        find(tree)

    source = FileTree("sys/heat", counted, remedy="Without it heat is not seen.")
    reader = MemoryReader()
    at_ns = 0

    def read(**files: str) -> int:
        """Return how often it was looked for, a look around later."""
        nonlocal at_ns
        at_ns += LOOK_NS
        reader.files = {f"sys/heat/{k.replace('_', '/')}": v.encode() for k, v in files.items()}
        before = len(calls)
        source.read(reader, at_ns)
        return len(calls) - before

    same = {"a_temp": "1\n", "a_name": "x", "b_temp": "N/A\n"}
    assert read(**same) == 1
    assert read(**same) == read(**same | {"a_temp": "7\n"}) == 0
    assert read(**same | {"a_temp": "broken\n"}) == 0
    assert source.bad_fields == 1
    assert read(**same | {"b_temp": "2\n"}) == 1  # it has a number now
    more = same | {"b_temp": "2\n"}
    assert read(**more) == 0
    assert read(**more | {"c_temp": "2\n"}) == 1
    more["c_temp"] = "2\n"
    assert read(**more | {"a_name": "other"}) == 1
    assert read(**more) == 1
    assert read(**more) == 0
    del more["b_temp"]
    more["b_name"] = "still a folder"
    assert read(**more) == 1


def test_a_file_that_goes_while_all_else_is_the_same() -> None:
    host = Host()
    both = {"sys/heat/a/temp": b"20000\n", "sys/heat/b/temp": b"30000\n", "sys/heat/b/x": b""}
    seconds = LOOK_NS // SECOND_NS
    for n in range(3 * seconds):
        host.reader.files = dict(both)
        if n >= seconds:
            del host.reader.files["sys/heat/b/temp"]
        host.group.collect(n * SECOND_NS)
    assert [c.label for c in host.group.channels] == ["heat.zone[a]", "heat.mean"]
    assert host.source.bad_fields == 0
