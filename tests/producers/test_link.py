"""Links: up or down, how fast, and the legs of a bond."""

from __future__ import annotations

import math

import pytest

from producers.collectors import link
from producers.collectors.link import number
from producers.group import Group
from producers.reading import MemoryReader, Unreadable
from producers.source import SECOND_NS
from tests.producers.archives import archive
from tests.producers.kernel import Host

NAMES = ("link", "link_settings")
ROOT = "sys/class/net"
METRICS = {
    "operstate": "link.up",
    "carrier_changes": "link.carrier_changes",
    "carrier_up_count": "link.carrier_up",
    "carrier_down_count": "link.carrier_down",
    "speed": "link.speed",
    "duplex": "link.full_duplex",
    "mtu": "link.mtu",
    "tx_queue_len": "link.tx_queue_len",
}
WORDS = {"up": 1.0, "down": 0.0, "full": 1.0, "half": 0.0}


def machine(name: str) -> dict[str, bytes]:
    """Return what /sys/class/net has; links to devices that the archive leaves out are made."""
    files = archive(name)
    net = {p: t for p, t in files.items() if p.startswith(f"{ROOT}/")}
    for path, text in files.items():
        if path.startswith("sys/devices/pci") and "/net/" in path:
            net.setdefault(f"{ROOT}/{path.split('/net/', 1)[1]}", text)
    return net


def expected(first: dict[str, bytes], second: dict[str, bytes]) -> dict[str, float]:
    found: dict[str, float] = {}
    for path, raw in second.items():
        parts, text = path.removeprefix(f"{ROOT}/").split("/"), raw.decode().strip()
        device, name = parts[0], parts[-1]
        if name == "mii_status" and parts[1].startswith(("slave_", "lower_")):
            found[f"link.bond_up[{device}/{parts[1][6:]}]"] = WORDS[text]
        elif len(parts) == 2 and name in METRICS and text not in {"", "-1", "unknown"}:
            value = WORDS[text] if text in WORDS else float(text)
            if name.startswith("carrier"):
                value -= int(first[path])
            found[f"{METRICS[name]}[{device}]"] = value * (125_000 if name == "speed" else 1)
    return found


@pytest.mark.parametrize("name", ["node_exporter/sys", "procfs"])
def test_every_link_of_other_machines(name: str) -> None:
    first = machine(name)
    second = {
        p: b"%d\n" % (int(t) + 2 + i) if "/carrier_" in p else t
        for i, (p, t) in enumerate(sorted(first.items()))
    }
    host = Host(*NAMES)
    host.read(first, SECOND_NS)
    values = host.read(second, SECOND_NS)
    assert values == pytest.approx(expected(first, second), rel=1e-6)
    assert len(values) > 8
    assert host.failures == host.bad_fields == 0


def test_what_node_exporter_s_machine_has() -> None:
    host = Host(*NAMES)
    values = host.read(machine("node_exporter/sys"), SECOND_NS)
    assert values["link.up[dmz]"] == 1
    assert values["link.speed[dmz]"] == 125e6
    assert values["link.bond_up[dmz/eth0]"] == 1
    assert values["link.bond_up[int/eth1]"] == 0
    assert "link.speed[bond0]" not in values  # -1
    units = {c.metric: c.unit for c in host.group.channels}
    assert units["link.speed"] == "B/s"


class Reader(MemoryReader):
    """Files of which some refuse to be read, as the speed of a link that is down."""

    refused: frozenset[str] = frozenset()

    def small(self, path: str) -> bytes | Unreadable:
        if path in self.refused:
            return Unreadable(path, "Invalid argument", absent=False)
        return super().small(path)


def nic(name: str, **files: str) -> dict[str, bytes]:
    return {f"{ROOT}/{name}/{file}": f"{text}\n".encode() for file, text in files.items()}


def group_over(reader: Reader) -> Group:
    return Group([link.collector(), link.settings_collector()], reader)


@pytest.mark.parametrize("refuses", [True, False])
def test_a_link_that_goes_down_and_comes_back_keeps_the_layout(refuses: bool) -> None:
    """Its speed is unknown meanwhile, which is nothing wrong; the other link goes on."""
    reader = Reader()
    group = group_over(reader)
    other = nic("eth1", operstate="up", speed="1000", carrier_down_count="0")

    def see(second: int) -> dict[str, float]:
        values = group.collect(second * SECOND_NS, whole=True).tolist()
        return dict(zip([c.label for c in group.channels], values, strict=True))

    reader.files = other | nic("eth0", operstate="up", speed="400000", carrier_down_count="0")
    values = see(1)
    assert values["link.speed[eth0]"] == pytest.approx(50e9, rel=1e-6)
    channels = group.channels
    reader.files = other | nic("eth0", operstate="down", speed="-1", carrier_down_count="1")
    if refuses:
        reader.refused = frozenset({f"{ROOT}/eth0/speed"})
    assert see(2)["link.carrier_down[eth0]"] == 1
    for second in range(3, 30):
        values = see(second)
        assert values["link.up[eth0]"] == 0
        assert math.isnan(values["link.speed[eth0]"])
        assert values["link.carrier_down[eth0]"] == 0
        assert values["link.speed[eth1]"] == 125e6
    reader.refused = frozenset()
    reader.files = other | nic("eth0", operstate="up", speed="200000", carrier_down_count="1")
    assert see(30)["link.speed[eth0]"] == pytest.approx(25e9, rel=1e-6)
    assert group.channels is channels
    assert all(not s.failures and not s.bad_fields for s in group.stats.values())


def test_links_that_nobody_looks_at() -> None:
    """Loopback, those of containers, and files that are no interface."""
    host = Host(*NAMES)
    files = nic("lo", operstate="unknown", mtu="65536", carrier_changes="0")
    files |= nic("veth12", operstate="up", mtu="1500") | nic("cali7", operstate="up", mtu="1500")
    files |= {f"{ROOT}/bonding_masters": b"bond0\n"}
    assert host.read(files, SECOND_NS) == {}
    values = host.read(files | nic("ens5", operstate="up", mtu="9001"), 10 * SECOND_NS)
    assert values == {"link.up[ens5]": 1, "link.mtu[ens5]": 9001}


def test_a_virtual_machine_s_card_does_not_know_its_speed() -> None:
    host = Host(*NAMES)
    values = host.read(nic("eth0", operstate="up", speed="-1", duplex="unknown"), SECOND_NS)
    assert values == {"link.up[eth0]": 1}
    assert host.bad_fields == 0


def test_hundreds_of_pods_change_nothing() -> None:
    host = Host(*NAMES)
    own = nic("eth0", operstate="up", carrier_changes="1", mtu="1500")
    host.read(own, SECOND_NS)
    channels = host.group.channels
    for n in range(20):
        pods = [nic(f"veth{n}{i}", operstate="up", carrier_changes="2") for i in range(n)]
        host.read(own | {p: t for pod in pods for p, t in pod.items()}, SECOND_NS)
        assert host.group.channels is channels


def test_a_card_that_is_plugged_in_and_pulled_out() -> None:
    host = Host(*NAMES)
    own = nic("eth0", carrier_changes="5")
    host.read(own, SECOND_NS)
    both = own | nic("eth1", carrier_changes="7000")
    for _ in range(7):
        values = host.read(both, SECOND_NS)
        assert values["link.carrier_changes[eth0]"] == 0
    assert values["link.carrier_changes[eth1]"] == 0
    for _ in range(8):
        values = host.read(own, SECOND_NS)
        assert values["link.carrier_changes[eth0]"] == 0
    assert set(values) == {"link.carrier_changes[eth0]"}


@pytest.mark.parametrize("text", ["oops", "", "-7", "9" * 400])
def test_a_file_that_is_garbage_costs_itself(text: str) -> None:
    host = Host(*NAMES)
    host.read(nic("eth0", operstate="up", carrier_changes="5", mtu="1500"), SECOND_NS)
    channels = host.group.channels
    values = host.read(nic("eth0", operstate="up", carrier_changes=text, mtu="1500"), SECOND_NS)
    assert math.isnan(values.pop("link.carrier_changes[eth0]"))
    assert values == {"link.up[eth0]": 1, "link.mtu[eth0]": 1500}
    assert host.bad_fields == 1
    assert host.group.channels is channels


def test_what_the_words_mean() -> None:
    for text, value in {b"up\n": 1, b"lowerlayerdown\n": 0, b"full\n": 1, b"12\n": 12}.items():
        assert number(text) == value
    assert math.isnan(number(b"-1\n"))
    assert math.isnan(number(b"unknown\n"))
    for text in (b"", b"Up\n", b"1.5\n", b"-2\n", b"+1\n"):
        with pytest.raises(ValueError, match="says nothing"):
            number(text)
