"""Interfaces: those that last, and those that come and go by the hundred."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producers.collectors.interfaces import FOLDED, folded_into
from producers.reading import MemoryReader
from producers.sampler import Sampler
from producers.source import SECOND_NS
from tests.producers.archives import archive
from tests.producers.kernel import Host, collector

DEV = "proc/net/dev"
HEAD = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)
RECEIVE, TRANSMIT = HEAD.splitlines()[1].split("|")[1:]
COLUMNS = [*(f"rx_{c}" for c in RECEIVE.split()), *(f"tx_{c}" for c in TRANSMIT.split())]


def row(name: str, *numbers: object) -> str:
    """Return a line of the file; missing numbers are 0."""
    cells = [*map(str, numbers), *["0"] * (len(COLUMNS) - len(numbers))]
    return f"{name:>6}: {' '.join(cells)}\n"


def dev(*rows: str) -> dict[str, bytes]:
    return {DEV: (HEAD + "".join(rows)).encode()}


class Network(Host):
    """The collector over one file, a second between readings."""

    def __init__(self) -> None:
        super().__init__("network")

    def see(self, *rows: str) -> dict[str, float]:
        return self.read(dev(*rows), SECOND_NS)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("veth7a3b", "veth*"),
        ("cali0123456789a", "cali*"),
        ("lxc_health", "lxc*"),
        ("lxc1f2e3d4c5b6a", "lxc*"),
        ("tap3", "tap*"),
        ("tapb1c2d3e4-f5", "tap*"),
        ("macvtap0", "tap*"),
        ("vnet12", "vnet*"),
        ("eni3d1f0a9bc2e", "eni*"),
        ("azv0c1d2e3f4a5", "azv*"),
        ("gke0a1b2c3d4e5", "gke*"),
        ("vif3.0", "vif*"),
        ("qvob1c2d3e4-f5", "qvo*"),
        ("qr-b1c2d3e4-f5", "qvo*"),
        ("fwpr101p0", "fwpr*"),
    ],
)
def test_which_interfaces_are_folded(name: str, device: str) -> None:
    assert folded_into(name) == device
    assert device in FOLDED


def test_which_interfaces_last() -> None:
    names = """
        lo eth0 eno1 enp3s0f1np1 ens5 ib0 ibp65s0 bond0 bond0.12 vlan7 wg0 tun0 gre0 ifb0 dummy0
        br0 br-9f3c docker0 cni0 flannel.1 vxlan.calico cilium_host lxcbr0 virbr0 vmbr0 tailscale0
    """
    assert [name for name in names.split() if folded_into(name)] == []


def test_every_column_of_every_kind() -> None:
    """Lasting interfaces have their own channels, the others a sum and a number."""
    host = Network()
    names = ["lo", "eth0", "veth1", "bond0", "veth2", "cali9", "ib0"]
    first = {n: [1000 * i + 7 * c for c in range(16)] for i, n in enumerate(names)}
    grown = {n: [(i + 1) * (c + 2) for c in range(16)] for i, n in enumerate(names)}
    host.see(*(row(n, *first[n]) for n in names))
    second = {n: [a + b for a, b in zip(first[n], grown[n], strict=True)] for n in names}
    values = host.see(*(row(n, *second[n]) for n in names))
    for c, column in enumerate(COLUMNS):
        for n in ("lo", "eth0", "bond0", "ib0"):
            assert values.pop(f"net.{column}[{n}]") == grown[n][c]
        assert values.pop(f"net.{column}[veth*]") == grown["veth1"][c] + grown["veth2"][c]
        assert values.pop(f"net.{column}[cali*]") == grown["cali9"][c]
    assert values == {"net.interfaces[veth*]": 2, "net.interfaces[cali*]": 1}
    units = {c.metric: c.unit for c in host.group.channels if c.device == "veth*"}
    assert (units["net.rx_bytes"], units["net.tx_packets"]) == ("B/s", "packets/s")


def test_hundreds_of_pods_come_and_go() -> None:
    """The layout is one object, the sum is that of a naive program, and never below zero."""
    chance = random.Random(7)
    reader = MemoryReader()
    sampler = Sampler(
        [collector("network")], reader, host="h", interval_us=100_000, agent_version="", boot_id=""
    )
    pods: dict[str, int] = {f"veth{i}": 10**9 * i for i in range(50)}
    before: dict[str, int] = {}
    layout = None
    eth0 = 0
    for tick in range(1, 300):
        for name in chance.sample(sorted(pods), k=chance.randrange(6)):
            del pods[name]
        for _ in range(chance.randrange(6)):
            pods[f"veth{chance.getrandbits(40):x}"] = chance.randrange(10**12)
        pods = {name: total + chance.randrange(1000) for name, total in pods.items()}
        eth0 += 5
        order = chance.sample(sorted(pods), k=len(pods))
        reader.files = dev(row("eth0", eth0), *(row(n, pods[n], 1) for n in order))
        sample = sampler.sample(tick * SECOND_NS)
        values = {
            c.label: v for c, v in zip(sample.layout.channels, sample.values.tolist(), strict=True)
        }
        if tick == 1:
            layout = sample.layout
        else:
            grown = sum(pods[n] - before[n] for n in pods if n in before)
            assert values["net.rx_bytes[veth*]"] == grown
            assert values["net.rx_packets[veth*]"] == 0
            assert values["net.rx_bytes[eth0]"] == 5
        assert values["net.interfaces[veth*]"] == len(pods)
        assert sample.layout is layout
        before = dict(pods)
    assert sampler.stats["network"].bad_fields == 0
    assert not sampler.stats["network"].failures


def test_the_first_pod_and_after_the_last() -> None:
    host = Network()
    host.see(row("eth0", 1))
    assert "net.rx_bytes[veth*]" not in host.see(row("eth0", 2))
    values = host.see(row("eth0", 3), row("veth1", 10**12))
    assert math.isnan(values["net.rx_bytes[veth*]"])
    assert values["net.rx_bytes[eth0]"] == 1
    channels = host.group.channels
    assert host.see(row("eth0", 4), row("veth1", 10**12 + 9))["net.rx_bytes[veth*]"] == 9
    values = host.see(row("eth0", 5))
    assert values["net.rx_bytes[veth*]"] == values["net.interfaces[veth*]"] == 0
    # A name that was used before is another interface, whatever its counters are.
    assert math.isnan(host.see(row("eth0", 6), row("veth1", 5))["net.rx_bytes[veth*]"])
    assert host.see(row("eth0", 7), row("veth1", 8))["net.rx_bytes[veth*]"] == 3
    assert host.group.channels is channels
    assert host.failures == host.bad_fields == 0


def test_counters_of_a_pod_that_wrap_step_back_or_start_anew() -> None:
    """As those of any interface: over the wrap, 0, unknown; never below zero."""
    host = Network()
    seen = [
        host.see(row("eth0", n), row("veth1", value), row("veth2", 7 * n))["net.rx_bytes[veth*]"]
        for n, value in enumerate(
            [2**32 - 3000, 2**32 - 2000, 2**32 - 1000, 500, 1500, 1499, 2499, 3, 1003, 0, 3003]
        )
    ]
    assert seen[1:7] == [1007, 1007, 1507, 1007, 7, 1006]
    assert math.isnan(seen[7])  # it started anew
    assert seen[8] == 1007
    assert math.isnan(seen[9])  # a zero for a moment
    assert seen[10] == 1007


@pytest.mark.parametrize("garbage", ["oops", "-", "-7", "1z", "", "9" * 400, "9" * 5000])
def test_a_field_of_a_pod_that_is_no_number(garbage: str) -> None:
    """Its sum is unknown and counted; every other channel is as it would be."""
    host, other = Network(), Network()
    for n in (1, 2):
        rows = row("eth0", n, 3 * n), row("veth1", 5 * n, 7 * n), row("veth2", 11 * n, 13 * n)
        host.see(*rows)
        other.see(*rows)
    channels = host.group.channels
    rows = row("eth0", 3, 9), row("veth1", 15, 21), row("veth2", 33, 39)
    expected = other.see(*rows)
    values = host.see(rows[0], row("veth1", garbage, 21), rows[2])
    lost = {label for label, v in values.items() if math.isnan(v)}
    if garbage:
        assert lost == {"net.rx_bytes[veth*]"}
    else:
        # A number is missing, and nobody can say which.
        assert lost == {f"net.{c}[veth*]" for c in COLUMNS}
    assert {k: v for k, v in values.items() if k not in lost} == {
        k: v for k, v in expected.items() if k not in lost
    }
    assert host.bad_fields == (1 if garbage else len(COLUMNS))
    after = host.see(row("eth0", 4, 12), row("veth1", 20, 28), row("veth2", 44, 52))
    assert after["net.rx_bytes[veth*]"] == 5 + 11
    assert host.group.channels is channels


def test_a_pod_that_is_listed_twice_counts_once() -> None:
    host = Network()
    for n in (1, 2):
        values = host.see(row("eth0", n), row("veth1", 5 * n), row("veth1", 5 * n))
    assert values["net.rx_bytes[veth*]"] == 5
    assert values["net.interfaces[veth*]"] == 1


def test_a_torn_line_and_a_torn_header() -> None:
    host = Network()
    rows = [[row("eth0", n), row("veth1", 100 * n), row("veth2", 300 * n)] for n in range(1, 7)]
    host.see(*rows[0])
    host.see(*rows[1])
    channels = host.group.channels
    torn = (HEAD + "".join(rows[2])).encode()[:-20]
    assert host.read({DEV: torn}, SECOND_NS)["net.rx_bytes[veth*]"] == 100
    host.see(*rows[3])
    half = HEAD.replace("|bytes    packets errs drop fifo colls", "|byt") + "".join(rows[4])
    values = host.read({DEV: half.encode()}, SECOND_NS)
    assert math.isnan(values["net.rx_bytes[veth*]"])
    values = host.see(*rows[5])
    assert values["net.rx_bytes[veth*]"] == 400
    assert host.group.channels is channels
    gone = host.read({}, SECOND_NS)
    assert all(math.isnan(v) for v in gone.values())


def test_another_kernel_has_another_column() -> None:
    host = Network()
    text = HEAD.replace("|bytes    packets", "|bytes    shiny packets")
    for n in range(1, 5):
        cells = " ".join(str(n * c) for c in range(1, 19))
        rows = f"eth0: {cells}\nveth1: {cells}\nveth2: {cells}\n"
        host.see(row("eth0", n), row("veth1", n)) if n < 3 else None
        values = host.read({DEV: (text + rows).encode()}, SECOND_NS)
    assert values["net.rx_shiny[veth*]"] == 4
    assert values["net.rx_packets[veth*]"] == 6
    assert values["net.tx_bytes[eth0]"] == 10


def test_only_pods_in_the_file() -> None:
    host = Network()
    for n in range(3):
        values = host.see(row("veth1", n))
    assert values["net.rx_bytes[veth*]"] == 1
    assert host.failures == 0


def test_a_large_file_is_read_once_a_second() -> None:
    source = next(s for s in collector("network").sources if s.path == DEV)
    reader = MemoryReader(dev(*(row(f"veth{i}", i) for i in range(50))))
    source.read(reader, 1)
    assert source.period_ns == 0
    reader.files = dev(*(row(f"veth{i}", i) for i in range(500)))
    assert len(source.read(reader, 2)) == len(COLUMNS) + 1
    assert source.period_ns == SECOND_NS


def test_the_interfaces_of_procfs() -> None:
    """The file of another machine, and again with more in it."""
    text = archive("procfs")[DEV].decode()
    cells = {
        line.split(":")[0].strip(): [int(c) for c in line.split(":")[1].split()]
        for line in text.splitlines()[2:]
    }
    assert set(cells) == {"vethf345468", "lo", "docker0", "eth0"}
    more = {n: [v + 3 * i + 1 for i, v in enumerate(c)] for n, c in cells.items()}
    host = Network()
    host.read({DEV: text.encode()}, SECOND_NS)
    values = host.see(*(row(n, *c) for n, c in more.items()))
    expected = {
        f"net.{column}[{'veth*' if n.startswith('veth') else n}]": 3 * i + 1
        for n in cells
        for i, column in enumerate(COLUMNS)
    }
    assert values == expected | {"net.interfaces[veth*]": 1}


TEXT = dev(
    row("lo", 1, 2), row("eth0", 300, 400), row("veth1", 5000, 6000), row("cali2", 70000, 80000)
)[DEV]


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_bytes_are_changed(data: st.DataObject) -> None:
    """Nothing raises, no rate is negative, and what was there before is right afterwards."""
    host = Network()
    for _ in range(2):
        host.read({DEV: TEXT}, SECOND_NS)
    text = bytearray(TEXT)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 40)))
        noise = st.sampled_from(
            [b"\n", b":", b" ", b"|", b"veth1: 3", b"\nveth1:", b"-9", b"9" * 30]
        )
        text[at:end] = data.draw(st.binary(max_size=8) | noise)
    for _ in range(data.draw(st.integers(1, 3))):
        values = host.read({DEV: bytes(text)}, SECOND_NS)
        assert not [k for k, v in values.items() if v < 0]
    for _ in range(13):
        values = host.read({DEV: TEXT}, SECOND_NS)
    for metric in ("rx_bytes", "tx_carrier"):
        for device in ("lo", "eth0", "veth*", "cali*"):
            assert values[f"net.{metric}[{device}]"] == 0
    assert not any("Error" in r for s in host.group.stats.values() for r in s.failures)
