"""The same text of several devices: what is found, what is absent, and what comes and goes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from producers.group import Group
from producers.parsing import Draft, numbered_lines
from producers.reading import MemoryReader, Unreadable
from producers.source import SECOND_NS, Collector
from producers.texts import TextTree, within
from producers.tree import LOOK_NS
from schemas.records import Channel, Kind, Subsystem


def plan(device: str, text: str) -> Draft:
    """Plan ``level 5`` and ``count 7``, and the level's share of both."""
    draft = Draft()
    for at, words in numbered_lines(text):
        kind = {"level": Kind.GAUGE, "count": Kind.RATE}.get(words[0])
        if kind is not None and len(words) == 2:
            unit = "things" if kind is Kind.GAUGE else "things/s"
            channel = Channel(f"box.{words[0]}", device, Subsystem.MEMORY, unit, kind)
            draft.channel(at + 1, channel)
    if len(draft.fields) == 2:
        both = Channel("box.both", device, Subsystem.MEMORY, "things/s", Kind.RATE)
        keys = tuple(draft.fields)
        draft.derived([both], lambda v: np.array([v.sum()]), {both.label: keys})
    return draft


class Host:
    """A tree of texts in memory, a second between readings."""

    def __init__(self) -> None:
        self.reader = MemoryReader()
        find = within("sys/box", "box*", "stat")
        self.source = TextTree("sys/box", find, plan, remedy="Without it boxes are not seen.")
        self.group = Group([Collector("box", [self.source])], self.reader)
        self._at_ns = SECOND_NS

    def read(self, after_ns: int = SECOND_NS, **texts: str) -> dict[str, float]:
        """Read after so long, with these texts there."""
        self.reader.files = {f"sys/box/{d}/stat": t.encode() for d, t in texts.items()}
        self._at_ns += after_ns
        values = self.group.collect(self._at_ns).tolist()
        assert len(values) == len(self.group.channels)
        labels = [c.label for c in self.group.channels]
        assert len(set(labels)) == len(labels)
        return dict(zip(labels, values, strict=True))

    @property
    def failures(self) -> dict[str, int]:
        """Return the reasons and how often each."""
        return dict(self.group.stats["box"].failures)


def text(level: int, count: int) -> str:
    return f"level {level}\ncount {count}\n"


def test_levels_rates_and_what_is_derived_of_each() -> None:
    host = Host()
    host.read(box1=text(5, 100), box2=text(7, 1000), other=text(1, 1))
    assert host.read(box1=text(6, 110), box2=text(7, 1020), other=text(1, 1)) == {
        "box.level[box1]": 6,
        "box.count[box1]": 10,
        "box.level[box2]": 7,
        "box.count[box2]": 20,
        "box.both[box1]": 16,
        "box.both[box2]": 27,
    }
    assert host.failures == {}
    assert host.source.problem == ""


def test_nothing_there() -> None:
    host = Host()
    assert host.read() == {}
    assert host.source.problem == "sys/box: not in the recording"
    assert host.read(other=text(1, 1)) == {}
    assert host.failures == {}


def test_a_text_without_numbers_fails_nobody() -> None:
    host = Host()
    for _ in range(8):
        values = host.read(box1="what\n", box2=text(1, 1))
    assert set(values) == {"box.level[box2]", "box.count[box2]", "box.both[box2]"}
    assert host.failures == {}
    alone = Host()
    assert alone.read(box1="what\n") == {}
    assert alone.source.problem == "sys/box/box1/stat: no number where one was expected"


def test_one_field_costs_itself_and_what_is_made_of_it() -> None:
    host = Host()
    host.read(box1=text(5, 100), box2=text(7, 1000))
    channels = host.group.channels
    values = host.read(box1="level oops\ncount 110\n", box2=text(7, 1020))
    assert {k for k, v in values.items() if math.isnan(v)} == {"box.level[box1]", "box.both[box1]"}
    assert values["box.count[box1]"] == 10
    assert values["box.both[box2]"] == 27
    assert host.group.channels is channels
    assert host.source.bad_fields == host.group.stats["box"].bad_fields == 1


def test_ratios_go_to_their_own_channels() -> None:
    """After a gap one rate is a mean over two seconds, and is not put beside one of a second."""
    host = Host()
    host.read(box1=text(5, 100), box2="level 7\ncount 1000\ncount 9\n")
    host.read(box1=text(5, 110), box2=text(7, 1000))
    plan = host.source.plan
    label = {c.label: i for i, c in enumerate(plan.channels)}
    assert [at for at, _ in plan.ratios] == [label["box.both[box1]"], label["box.both[box2]"]]
    keys = [[plan.fields[f].key.split()[-1] for f in fields] for _, fields in plan.ratios]
    assert keys == [[f"box.level[{b}]", f"box.count[{b}]"] for b in ("box1", "box2")]


def test_a_device_that_comes_and_goes() -> None:
    host = Host()
    host.read(box1=text(5, 100))
    comes = [host.read(box1=text(5, 110 + n), box2=text(1, 50 + n)) for n in range(7)]
    assert comes[-1]["box.count[box2]"] == comes[-1]["box.count[box1]"] == 1
    assert [v["box.level[box1]"] for v in comes] == [5] * 7
    counts = [v["box.count[box1]"] for v in comes]
    assert counts == [10, *[1] * 6]  # a new layout is no gap
    goes = [host.read(box1=text(5, 200), box2="") for _ in range(2)]
    assert all(math.isnan(v["box.level[box2]"]) for v in goes)
    gone = [host.read(box1=text(5, 200)) for _ in range(LOOK_NS // SECOND_NS + 2)]
    assert all(math.isnan(v.get("box.level[box2]", math.nan)) for v in gone)
    assert set(gone[-1]) == {"box.level[box1]", "box.count[box1]", "box.both[box1]"}
    last = [host.read() for _ in range(LOOK_NS // SECOND_NS + 2)]
    assert last[-1] == {}
    assert not any("fields" in reason or "Error" in reason for reason in host.failures)


def test_a_file_that_is_gone_while_its_directory_stays() -> None:
    class Refusing(MemoryReader):
        refused = False

        def read(self, path: str) -> bytes | Unreadable:
            if self.refused and "box2" in path:
                return Unreadable(path, "Operation not supported", absent=False)
            return super().read(path)

    host = Host()
    host.reader = Refusing()
    host.group = Group([Collector("box", [host.source])], host.reader)
    host.read(box1=text(5, 100), box2=text(1, 1))
    host.reader.refused = True
    first = host.read(box1=text(5, 110), box2=text(1, 1))
    assert math.isnan(first["box.level[box2]"])
    assert first["box.count[box1]"] == 10
    for _ in range(7):
        values = host.read(box1=text(5, 110), box2=text(1, 1))
    assert "box.level[box2]" not in values
    host.reader.refused = False
    for _ in range(6):
        values = host.read(box1=text(5, 110), box2=text(3, 1))
    assert values["box.level[box2]"] == 3


def test_what_is_gone_for_one_look_changes_nothing() -> None:
    host = Host()
    host.read(box1=text(5, 100), box2=text(1, 1))
    channels = host.group.channels
    gone = host.read(after_ns=LOOK_NS, box1=text(5, 150))
    assert math.isnan(gone["box.level[box2]"])
    assert gone["box.count[box1]"] == 10
    assert host.read(box1=text(5, 150), box2=text(2, 1))["box.level[box2]"] == 2
    assert host.group.channels is channels


def test_the_plan_is_the_same_object_until_something_changes() -> None:
    host = Host()
    host.read(box1=text(5, 100))
    before = host.source.plan
    for _ in range(8):
        host.read(box1=text(6, 120))
    assert host.source.plan is before
    for _ in range(3):
        host.read(box1=text(6, 120) + "level 7 8\n")
    assert host.source.plan is not before


@pytest.mark.parametrize("damage", ["", "\n", "\0" * 99, "level\n", "count 7"])
def test_a_damaged_text_keeps_the_layout(damage: str) -> None:
    host = Host()
    host.read(box1=text(5, 100), box2=text(7, 1))
    channels = host.group.channels
    for _ in range(8):
        values = host.read(box1=damage, box2=text(7, 1))
        assert values["box.level[box2]"] == 7
        assert host.group.channels is channels
    assert host.read(box1=text(5, 100), box2=text(7, 1))["box.level[box1]"] == 5


def test_a_huge_number_in_a_text_whose_labels_changed() -> None:
    """It is beyond any float: dropped and counted, and nothing raises."""
    host = Host()
    host.read(box1=text(5, 100), box2=text(7, 1))
    for _ in range(3):
        values = host.read(box1=f"new 1\nlevel {'9' * 400}\ncount 100\n", box2=text(7, 1))
        assert math.isnan(values["box.level[box1]"])
        assert values["box.level[box2]"] == 7
    assert values["box.count[box1]"] == 0
    assert not any("Error" in reason for reason in host.failures)
