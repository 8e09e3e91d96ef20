"""Statistics of cards' drivers: which are chosen, and what happens when cards or queues change."""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from producers.collectors import DEVICES, ethtool
from producers.collectors.ethtool import MOST_METRICS, Statistics, choose, unit_of, without_index
from producers.ethtool_ioctl import SystemEthtool
from producers.group import Group
from producers.reading import MemoryReader, SystemReader
from producers.source import SECOND_NS, Collector, Options
from tests.producers.archives import FIXTURES


class FakeEthtool:
    """Cards whose statistics a test sets."""

    def __init__(self, **cards: dict[str, int]) -> None:
        self.cards: dict[str, list[tuple[str, int]]] = {}
        self.asked = 0
        self.closed = False
        for name, statistics in cards.items():
            self.set(name, statistics)

    def set(self, name: str, statistics: dict[str, int]) -> None:
        self.cards[name] = list(statistics.items())

    def count(self, interface: str) -> int:
        return len(self._card(interface))

    def names(self, interface: str, count: int) -> Sequence[str]:
        assert count == len(self._card(interface))
        self.asked += 1
        return [name for name, _ in self._card(interface)]

    def values(self, interface: str, count: int) -> NDArray[np.uint64]:
        assert count == len(self._card(interface))
        return np.array([value for _, value in self._card(interface)], np.uint64)

    def close(self) -> None:
        self.closed = True

    def _card(self, interface: str) -> list[tuple[str, int]]:
        if interface not in self.cards:
            raise OSError(errno.ENODEV, "No such device")
        if not self.cards[interface]:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return self.cards[interface]


class Host:
    """The collector over cards in memory, a second between readings."""

    def __init__(self, cards: FakeEthtool, *interfaces: str) -> None:
        self.cards = cards
        self.reader = MemoryReader()
        self.source = Statistics(cards)
        self.group = Group([Collector("ethtool", [self.source])], self.reader)
        self.there(*interfaces)
        self._at_ns = SECOND_NS

    def there(self, *interfaces: str) -> None:
        self.reader.files = {f"sys/class/net/{i}/device/vendor": b"0x15b3\n" for i in interfaces}

    def read(self) -> dict[str, float]:
        self._at_ns += SECOND_NS
        values = self.group.collect(self._at_ns, whole=True).tolist()
        return dict(zip([c.label for c in self.group.channels], values, strict=True))


def statistics_of(name: str) -> dict[str, int]:
    """Return a driver's statistics from the text that ``ethtool -S`` prints."""
    path = FIXTURES / "node_exporter" / "ethtool" / name / "statistics"
    if not path.exists():
        pytest.skip(f"{path} is not here: see shared/data")
    pairs = [line.rsplit(": ", 1) for line in path.read_text().splitlines() if ": " in line]
    return {key.strip(): int(number) for key, number in pairs if key != "ERROR"}


def test_the_card_of_node_exporter_s_machine() -> None:
    first = statistics_of("eth0")
    assert first["port.rx_dropped"] == 12028
    second = {name: value + i for i, (name, value) in enumerate(first.items(), start=1)}
    host = Host(FakeEthtool(eth0=first), "eth0")
    host.read()
    host.cards.set("eth0", second)
    values = host.read()
    assert values == {
        "ethtool.tx_errors[eth0]": 3,
        "ethtool.rx_errors[eth0]": 4,
        "ethtool.port_rx_dropped[eth0]": 5,
        "ethtool.rx_missed[eth0]": 6,
        "ethtool.align_errors[eth0]": 7,
        "ethtool.tx_underrun[eth0]": 14,
    }
    bond = statistics_of("bond0")
    assert bond == {}
    assert Host(FakeEthtool(bond0=bond), "bond0").read() == {}


MLX5 = """
    rx_packets rx_bytes tx_packets tx_bytes tx_tso_packets rx_lro_packets rx_csum_none rx_ecn_mark
    rx_xdp_drop rx_wqe_err rx_buff_alloc_err rx_oversize_pkts_buffer tx_queue_stopped
    tx_queue_dropped tx_cqe_err ch_events rx_out_of_buffer rx_steer_missed_packets
    rx_vport_unicast_bytes rx_vport_rdma_unicast_packets rx_vport_rdma_unicast_bytes
    tx_vport_rdma_unicast_bytes tx_packets_phy rx_packets_phy rx_crc_errors_phy tx_bytes_phy
    rx_bytes_phy rx_discards_phy tx_discards_phy tx_errors_phy rx_symbol_err_phy
    rx_64_bytes_phy rx_65_to_127_bytes_phy rx_1024_to_1518_bytes_phy link_down_events_phy
    rx_pcs_symbol_err_phy rx_corrected_bits_phy rx_pause_ctrl_phy tx_pause_ctrl_phy
    rx_err_lane_0_phy rx_err_lane_1_phy rx_err_lane_2_phy rx_err_lane_3_phy
    outbound_pci_stalled_wr outbound_pci_buffer_overflow
    rx_global_pause rx_global_pause_duration tx_pause_storm_warning_events module_bus_stuck
    module_high_temp rx_prio0_bytes rx_prio0_pause rx_prio0_pause_duration rx_prio0_discards
    rx_prio0_cong_discard rx_prio3_bytes rx_prio3_pause rx_prio3_pause_duration rx_prio3_discards
    rx_prio3_cong_discard ch0_events ch0_poll rx0_packets rx0_wqe_err rx0_xdp_drop tx0_stopped
    tx0_dropped rx1_packets rx1_wqe_err rx1_xdp_drop tx1_stopped tx1_dropped
"""
ICE = """
    tx_bytes rx_bytes rx_dropped rx_alloc_fail rx_pg_alloc_fail tx_linearize tx_busy tx_restart
    tx_queue_0_packets tx_queue_0_bytes rx_queue_0_packets rx_queue_0_bytes rx_queue_1_packets
    tx_bytes.nic rx_bytes.nic tx_errors.nic rx_size_64.nic rx_size_127.nic tx_size_1522.nic
    link_xon_rx.nic link_xoff_tx.nic tx_timeout.nic rx_jabber.nic rx_crc_errors.nic
    rx_dropped.nic illegal_bytes.nic mac_local_faults.nic
    rx_priority_0_xon.nic rx_priority_0_xoff.nic rx_priority_7_xoff.nic tx_priority_7_xoff.nic
"""
BNXT = """
    [0]:_rx_ucast_packets [0]:_rx_discards [0]:_rx_errors [0]:_missed_irqs [1]:_rx_ucast_packets
    [1]:_rx_discards [1]:_rx_errors [1]:_missed_irqs rx_total_discard_pkts rx_64b_frames
    rx_65b_127b_frames rx_fcs_err_frames rx_pause_frames rx_pfc_ena_frames_pri0
    rx_pfc_ena_frames_pri3 rx_bytes rx_bytes_cos0 rx_bytes_cos1 pfc_pri0_rx_duration_us
    pfc_pri3_rx_duration_us rx_discard_packets_cos0 rx_discard_packets_cos5 link_down_events
    rx_pcs_symbol_err rx_corrected_bits
"""


def names_of(text: str) -> list[str]:
    """Return the names as the driver writes them; the underscore after a colon is a blank."""
    return [word.replace(":_", ": ") for word in text.split()]


def chosen(text: str) -> dict[str, list[str]]:
    """Return what is chosen of a driver's names, and which names each adds up."""
    names = names_of(text)
    choice = choose(names)
    ends = [*choice.starts[1:], len(choice.places)]
    return {
        metric: [names[at] for at in choice.places[start:end]]
        for metric, start, end in zip(choice.metrics, choice.starts, ends, strict=True)
    }


def test_what_is_taken_of_mlx5() -> None:
    found = chosen(MLX5)
    alone = {metric for metric, names in found.items() if names == [metric]}
    # The driver has these sums itself: its own are taken, not those of the queues too.
    assert alone >= {
        *("rx_out_of_buffer", "rx_wqe_err", "rx_xdp_drop", "rx_buff_alloc_err", "rx_discards_phy"),
        *("tx_discards_phy", "rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pause_ctrl_phy"),
        *("tx_pause_ctrl_phy", "rx_global_pause", "link_down_events_phy", "rx_bytes_phy"),
        *("tx_bytes_phy", "rx_ecn_mark", "rx_vport_rdma_unicast_bytes", "module_high_temp"),
        *("outbound_pci_stalled_wr", "outbound_pci_buffer_overflow", "rx_steer_missed_packets"),
    }
    assert found["rx_prio_pause"] == ["rx_prio0_pause", "rx_prio3_pause"]
    assert found["rx_prio_cong_discard"] == ["rx_prio0_cong_discard", "rx_prio3_cong_discard"]
    assert found["rx_err_lane_phy"] == [f"rx_err_lane_{n}_phy" for n in range(4)]
    assert found["tx_dropped"] == ["tx0_dropped", "tx1_dropped"]
    taken = {name for names in found.values() for name in names}
    assert not taken & {"rx_packets", "tx_tso_packets", "rx_csum_none", "ch_events", "ch0_poll"}
    assert not [name for name in taken if "64_bytes" in name or "_to_" in name]
    assert len(found) <= MOST_METRICS


def test_what_is_taken_of_ice() -> None:
    found = chosen(ICE)
    assert set(found) >= {
        *("rx_dropped", "rx_alloc_fail", "tx_restart", "tx_bytes_nic", "rx_bytes_nic"),
        *("tx_errors_nic", "link_xon_rx_nic", "tx_timeout_nic", "rx_crc_errors_nic"),
        *("rx_dropped_nic", "rx_jabber_nic"),
    }
    assert found["rx_priority_xoff_nic"] == ["rx_priority_0_xoff.nic", "rx_priority_7_xoff.nic"]
    taken = {name for names in found.values() for name in names}
    assert not [name for name in taken if "size" in name or "queue_" in name]


def test_what_is_taken_of_bnxt() -> None:
    found = chosen(BNXT)
    assert found["rx_discards"] == ["[0]: rx_discards", "[1]: rx_discards"]
    assert found["rx_errors"] == ["[0]: rx_errors", "[1]: rx_errors"]
    assert found["rx_total_discard_pkts"] == ["rx_total_discard_pkts"]
    assert found["rx_pfc_ena_frames_pri"] == ["rx_pfc_ena_frames_pri0", "rx_pfc_ena_frames_pri3"]
    assert found["rx_discard_packets_cos"] == [f"rx_discard_packets_cos{n}" for n in (0, 5)]
    assert {"rx_fcs_err_frames", "rx_pause_frames", "link_down_events"} < set(found)
    assert "rx_bytes_cos" not in found
    assert not [name for name in found if "64b" in name or "127b" in name]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("rx0_drops", "rx_drops"),
        ("rx-12.rx_drops", "rx_rx_drops"),
        ("queue_7_rx_drops", "rx_drops"),
        ("rxq31_l2_err", "rx_l2_err"),
        ("rx_drop_cnt[4]", "rx_drop_cnt"),
        ("3: rcv_errors", "rcv_errors"),
        ("veb.tc_0_tx_drops", "veb.tc_tx_drops"),
        ("rx_prio3_pause", "rx_prio_pause"),
        ("rx_l2_err", "rx_l2_err"),
        ("tx_queue_stopped", "tx_queue_stopped"),
        ("rx_oversize_1519", "rx_oversize_1519"),
        ("ip4_errors", "ip4_errors"),
    ],
)
def test_numbers_of_queues_and_priorities(name: str, short: str) -> None:
    assert without_index(name) == short


def test_units() -> None:
    assert unit_of("rx_bytes_phy") == "B/s"
    assert unit_of("rx_pause_frames") == "packets/s"
    assert unit_of("rx_steer_missed_packets") == "packets/s"
    assert unit_of("tx_timeout") == "/s"


def test_a_card_with_two_thousand_statistics() -> None:
    """No more than so many channels, and what matters most is among them."""
    names = [f"strange{n:x}_errors" for n in range(2000)] + ["rx_out_of_buffer", "tx_prio0_pause"]
    choice = choose(names)
    assert len(choice.metrics) == MOST_METRICS
    assert {"rx_out_of_buffer", "tx_prio_pause"} < set(choice.metrics)


def test_sums_over_queues_that_come_and_go() -> None:
    """More queues are the same channels; with fewer the sum falls, which is a gap and no spike."""
    cards = FakeEthtool(eth0={"rx0_drops": 10, "rx1_drops": 20})
    host = Host(cards, "eth0")
    host.read()
    channels = host.group.channels
    cards.set("eth0", {"rx0_drops": 11, "rx1_drops": 25})
    assert host.read() == {"ethtool.rx_drops[eth0]": 6}
    cards.set("eth0", {"rx0_drops": 12, "rx1_drops": 25, "rx2_drops": 3})
    assert host.read() == {"ethtool.rx_drops[eth0]": 4}
    cards.set("eth0", {"rx0_drops": 13})
    assert math.isnan(host.read()["ethtool.rx_drops[eth0]"])
    cards.set("eth0", {"rx0_drops": 15})
    assert host.read() == {"ethtool.rx_drops[eth0]": 2}
    assert host.group.channels is channels
    assert cards.asked == 3


def test_names_that_are_there_twice() -> None:
    """A driver lists one name for each queue: summed. Two that only look alike: the first."""
    names = ["pkts rx dropped", "pkts rx dropped", "pkts_rx_dropped", "rx_errors"]
    choice = choose(names)
    assert choice.metrics == ("pkts_rx_dropped", "rx_errors")
    assert choice.places.tolist() == [0, 1, 3]
    assert choice.starts.tolist() == [0, 2]


def test_a_card_that_does_not_answer_costs_itself() -> None:
    cards = FakeEthtool(eth0={"rx_dropped": 1}, eth1={"rx_dropped": 5, "rx_errors": 1})
    host = Host(cards, "eth0", "eth1")
    host.read()
    channels = host.group.channels
    gone = cards.cards.pop("eth1")
    cards.set("eth0", {"rx_dropped": 3})
    values = host.read()
    assert values["ethtool.rx_dropped[eth0]"] == 2
    assert math.isnan(values["ethtool.rx_dropped[eth1]"])
    assert host.source.bad_fields == 2
    cards.cards["eth1"] = gone
    assert host.read()["ethtool.rx_dropped[eth1]"] == 0
    assert host.group.channels is channels
    assert host.group.stats["ethtool"].failures == {}


def test_a_card_that_is_pulled_out_and_plugged_in() -> None:
    cards = FakeEthtool(eth0={"rx_dropped": 1}, eth1={"rx_dropped": 500})
    host = Host(cards, "eth0")
    assert set(host.read()) == {"ethtool.rx_dropped[eth0]"}
    host.there("eth0", "eth1")
    for _ in range(7):
        values = host.read()
        assert values["ethtool.rx_dropped[eth0]"] == 0
    assert values["ethtool.rx_dropped[eth1]"] == 0
    host.there("eth0")
    del cards.cards["eth1"]
    for _ in range(12):
        values = host.read()
        assert values["ethtool.rx_dropped[eth0]"] == 0
    assert set(values) == {"ethtool.rx_dropped[eth0]"}


def test_what_is_no_card() -> None:
    """No hardware behind it, a guest's share of a card, or a driver without statistics."""
    cards = FakeEthtool(br0={"rx_dropped": 1}, vf0={"rx_dropped": 1}, eth0={}, eth1={"rx_ok": 1})
    host = Host(cards, "eth0", "eth1", "vf0")
    assert isinstance(host.reader.files, dict)
    host.reader.files |= {
        "sys/class/net/br0/operstate": b"up\n",
        "sys/class/net/vf0/device/physfn/vendor": b"0x15b3\n",
    }
    assert host.read() == {}
    assert host.source.problem == "sys/class/net: no card whose driver has statistics"
    assert host.group.stats["ethtool"].failures == {}


def test_it_is_closed_with_the_collector() -> None:
    cards = FakeEthtool()
    Collector("ethtool", [Statistics(cards)]).close()
    assert cards.closed


def test_no_sysfs() -> None:
    host = Host(FakeEthtool(), "eth0")
    host.reader.files = {}
    assert host.read() == {}
    assert host.source.problem == "sys/class/net: not in the recording"


def test_counters_beyond_all_bounds() -> None:
    """Some drivers say all ones for what they do not know."""
    cards = FakeEthtool(eth0={"rx_dropped": 1, "rx_errors": 7})
    host = Host(cards, "eth0")
    host.read()
    cards.set("eth0", {"rx_dropped": 2**64 - 1, "rx_errors": 8})
    values = host.read()
    assert math.isnan(values["ethtool.rx_dropped[eth0]"])
    assert values["ethtool.rx_errors[eth0]"] == 1
    assert host.group.stats["ethtool"].bad_fields == 1


def test_this_machine_s_cards() -> None:
    """Whatever they are: names once, and as many values as names."""
    system = SystemEthtool()
    with SystemReader() as reader:
        names = reader.list("sys/class/net")
        if not isinstance(names, tuple) or not names:
            pytest.skip("no interface here")
        with pytest.raises(OSError, match="No such device"):
            system.count("nothing0")
        group = Group([Collector("ethtool", [Statistics(system)])], reader)
        for n in range(1, 3):
            group.collect(n * SECOND_NS, whole=True)
        assert group.stats["ethtool"].failures == {}
        asked = 0
        for name in names:
            try:
                count = system.count(name)
                strings, values = system.names(name, count), system.values(name, count)
            except OSError:
                continue
            assert len(strings) == len(values) == count
            assert all(strings)
            asked += 1
            with pytest.raises(OSError, match=r"a moment ago|supported"):
                system.values(name, count + 1)
        system.close()
    if not asked:
        pytest.skip("no driver here has statistics")


def test_the_table_s_line() -> None:
    assert ethtool.collectors in DEVICES
    assert [c.name for c in ethtool.collectors(Options())] == ["ethtool"]
