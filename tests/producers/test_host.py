"""What a host is sampled with, as the settings say."""

from __future__ import annotations

import pytest

from producers.collectors import ALL
from producers.config import AgentSettings
from producers.host import Host, cores, make_collectors
from producers.reading import MemoryReader
from producers.source import Collector, Options
from schemas.errors import InvalidSettings
from tests.producers.hosts import Numbers

NAMES = [make().name for make in ALL]


def device(options: Options) -> list[Collector]:
    return [Collector(f"device_{options.perf}", (Numbers(1.0),))]


def settings(**values: object) -> AgentSettings:
    return AgentSettings.model_validate({"host": "node1", **values})


def test_every_collector_is_made_and_devices_get_the_options() -> None:
    made = make_collectors(settings(perf="per-core"), [device])
    assert [c.name for c in made] == [*NAMES, "device_per-core"]


def test_what_is_left_out_is_not_there() -> None:
    made = make_collectors(settings(without=" device_total, memory,"), [device])
    assert [c.name for c in made] == [n for n in NAMES if n != "memory"]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="'memroy'; do you mean 'memory'"):
        make_collectors(settings(without="memroy"), [device])
    with pytest.raises(InvalidSettings, match="no collector is called 'x'; there are cpu, "):
        make_collectors(settings(without="x"), [device])


def test_a_host_has_a_name_a_boot_and_an_interval() -> None:
    reader = MemoryReader({"proc/sys/kernel/random/boot_id": b"abc\n"})
    host = Host.of(settings(interval_ms=600), reader, [device])
    layout = host.sampler.sample(1).layout
    assert (layout.host, layout.boot_id, layout.interval_us) == ("node1", "abc", 600_000)
    labels = [c.label for c in layout.channels]
    assert labels[0] == "test.n0"
    assert "agent.collector_time[device_total]" in labels


@pytest.mark.parametrize(
    ("text", "count"), [(b"0-47\n", 48), (b"0\n", 1), (b"0-3,8,10-11\n", 7), (b"0-1,3\n", 3)]
)
def test_cores(text: bytes, count: int) -> None:
    assert cores(MemoryReader({"sys/devices/system/cpu/online": text})) == count


@pytest.mark.parametrize("text", [b"", b"x\n", b"0-\xff\n"])
def test_cores_where_the_kernel_does_not_say(text: bytes) -> None:
    assert cores(MemoryReader({"sys/devices/system/cpu/online": text})) >= 1


class Held(Numbers):
    """A source that holds something open."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_what_is_held_open_is_closed_at_the_end() -> None:
    held = Held(1.0)
    made = [Collector("held", (held, Numbers(2.0)))]
    with Host.of(settings(), MemoryReader(), [lambda _: made]) as host:
        host.sampler.sample(1)
        assert held.closed == 0
    assert held.closed == 1
