"""Each rule is right where its cause was, and silent, or not first, where its nearest relative was.

What the recording holds is told by the recording. Remote NUMA memory, InfiniBand, GPUs, ECC and one
core's softirqs are in no recording of ours: those cases are made by hand, with the agent's metrics.
"""

from __future__ import annotations

import math

import pytest

from models.diagnosis import RULES, Case, diagnose
from models.evaluation import RULE_OF
from tests.models.diagnosis.cases import Seen, made, recorded

ALL = recorded()
FAULTS = [seen for seen in ALL if seen.fault]
NORMAL = [seen for seen in ALL if not seen.fault]

by_fault = pytest.mark.parametrize("seen", FAULTS, ids=lambda seen: seen.label)

RELATIVES = {
    "hugepages": ("memory_hog",),
    "memory_exhaustion": ("hugepages_preallocated", "memory_bandwidth"),
    "memory_bandwidth": ("cpu_contention", "memory_hog"),
    "page_fault_storm": ("memory_hog", "metadata_storm"),
    "writeback_burst": ("metadata_storm", "page_fault_storm"),
    "metadata_storm": ("writeback_burst", "page_fault_storm"),
    "cpu_contention": ("affinity_one_core", "timer_irq_storm", "context_switch_storm"),
    "affinity_one_core": ("cpu_contention", "rank_stall"),
    "context_switch_storm": ("udp_flood", "writeback_burst"),
    "interrupt_storm": ("udp_flood", "page_fault_storm", "context_switch_storm"),
    "stalled_rank": ("bandwidth_cap",),
    "bandwidth_cap": ("packet_loss", "cpu_contention"),
    "packet_loss": ("bandwidth_cap", "udp_flood"),
    "udp_flood": ("packet_loss", "context_switch_storm"),
}
"""Rules, and faults that look like theirs."""
DOUBTFUL = {("rank_stall", "early"), ("memory_bandwidth", "early")}
"""Windows in which a fault is still coming up: the last bytes of a rank that stops, buffers that
are mapped. Episodes tell by several windows."""


def first(seen: Seen) -> str:
    causes = diagnose(seen.case)
    return causes[0].rule if causes else ""


@by_fault
def test_the_right_cause_comes_first(seen: Seen) -> None:
    if (seen.fault, seen.when) not in DOUBTFUL:
        assert first(seen) == RULE_OF.get(seen.fault, seen.fault)


def test_the_recording_holds_each_rule_that_has_relatives() -> None:
    assert {RULE_OF.get(seen.fault, seen.fault) for seen in FAULTS} == set(RELATIVES)


@pytest.mark.parametrize("rule", RELATIVES)
def test_a_rule_does_not_speak_first_where_its_relatives_are(rule: str) -> None:
    near = [seen for seen in FAULTS if seen.fault in RELATIVES[rule] and seen.when == "middle"]
    assert len(near) >= 2
    for seen in near:
        assert first(seen) != rule, seen.label


@pytest.mark.parametrize("seen", NORMAL, ids=lambda seen: seen.host)
def test_no_rule_speaks_on_a_normal_window(seen: Seen) -> None:
    assert diagnose(seen.case) == ()


@by_fault
def test_each_cause_has_evidence_in_numbers_and_something_to_type(seen: Seen) -> None:
    for cause in diagnose(seen.case):
        assert 0 < cause.confidence <= 1
        assert cause.evidence
        assert all("usually" in told or "never seen" in told for told in cause.evidence)
        assert not any("nan" in told for told in cause.evidence)
        assert any(not remedy.changes_host for remedy in cause.remedies)


# Made by hand

USUAL = {"gpu.throttle_hw_thermal_slowdown[0]": (0.0, 0.0, 0.0)}
HOT = {
    "gpu.throttle_hw_thermal_slowdown[0]": (1.0, 0.0, 0.0),
    "gpu.throttle_sw_power_cap[0]": (0.0, 0.0, 0.0),
    "gpu.temperature[0]": (91.0, 55.0, 70.0),
    "gpu.sm_clock[0]": (900.0, 1900.0, 1980.0),
}
POWER = {
    "gpu.throttle_hw_thermal_slowdown[0]": (0.0, 0.0, 0.0),
    "gpu.throttle_sw_power_cap[0]": (0.97, 0.0, 0.1),
    "gpu.power[0]": (350.0, 300.0, 690.0),
    "gpu.power_limit[0]": (350.0, 700.0, 700.0),
}
XID = {"gpu.xid[3]": (0.03, 0.0, 0.0), "gpu.last_xid[3]": (79.0, 0.0, 0.0)}
ECC_GPU = {"gpu.ecc_uncorrected_dram[1]": (0.0, 0.0, 0.0), "gpu.ecc_corrected[1]": (2.0, 0.0, 0.0)}
ECC_HOST = {"edac.uncorrected[mc0]": (0.03, 0.0, 0.0), "edac.corrected[mc0]": (0.0, 0.0, 0.0)}
PCIE = {
    "gpu.pcie_link_width[2]": (8.0, 16.0, 16.0),
    "gpu.pcie_link_generation[2]": (1.0, 5.0, 5.0),
    "gpu.utilization[2]": (0.0, 0.0, 99.0),
}
NUMA = {
    "numa.mem_total[node0]": (1e11, 1e11, 1e11),
    "numa.mem_total[node1]": (1e11, 1e11, 1e11),
    "numa.miss_share[node1]": (45.0, 0.0, 0.4),
}
PORTS = {
    **{f"infiniband.xmit_bytes[mlx5_{n}/1]": (1e6, 9e9, 1.1e10) for n in range(3)},
    "infiniband.xmit_bytes[mlx5_3/1]": (2.2e10, 9e9, 1.1e10),
}
ONE_CORE = {
    **{f"cpu.softirq[cpu{n}]": (0.5, 4.0, 9.0) for n in range(7)},
    "cpu.softirq[cpu7]": (80.0, 4.0, 9.0),
    "softirq.net_rx_imbalance": (97.0, 5.0, 20.0),
}


@pytest.mark.parametrize(
    ("rule", "channels"),
    [
        ("gpu_thermal_throttle", HOT),
        ("gpu_power_throttle", POWER),
        ("xid", XID),
        ("ecc", ECC_GPU),
        ("ecc", ECC_HOST),
        ("pcie_link", PCIE),
        ("numa_remote", NUMA),
        ("single_queue_pair", PORTS),
        ("irq_imbalance", ONE_CORE),
    ],
)
def test_what_no_recording_holds(
    rule: str, channels: dict[str, tuple[float, float, float]]
) -> None:
    (cause,) = diagnose(made(channels))
    assert cause.rule == rule
    assert cause.evidence
    assert cause.remedies
    usual = {label: (low, low, high) for label, (_, low, high) in channels.items()}
    assert diagnose(made(usual)) == ()


def test_heat_is_told_from_power() -> None:
    both = HOT | POWER
    assert [c.rule for c in diagnose(made(HOT))] == ["gpu_thermal_throttle"]
    assert {c.rule for c in diagnose(made(both | HOT))} == {"gpu_thermal_throttle"}
    assert "the limit was lowered" in diagnose(made(POWER))[0].summary


def test_an_idle_gpu_lowers_its_link_by_itself() -> None:
    idle = PCIE | {"gpu.pcie_link_width[2]": (16.0, 16.0, 16.0)}
    assert diagnose(made(idle)) == ()
    busy = idle | {"gpu.utilization[2]": (95.0, 0.0, 99.0)}
    assert [c.rule for c in diagnose(made(busy))] == ["pcie_link"]


def test_errors_that_were_corrected_are_told_from_those_that_were_not() -> None:
    assert "corrects errors" in diagnose(made(ECC_GPU))[0].summary
    (fatal,) = diagnose(made(ECC_HOST))
    assert "could not be corrected" in fatal.summary
    assert fatal.subsystem == "memory"


def test_one_node_has_no_remote_memory() -> None:
    one = {k: v for k, v in NUMA.items() if k != "numa.mem_total[node1]"}
    assert diagnose(made(one)) == ()


def test_a_host_that_always_used_one_port_is_well() -> None:
    always = {k: (v, v / 2, v * 1.1) for k, (v, _, _) in PORTS.items()}
    assert diagnose(made(always)) == ()


def test_reordering_is_told_from_loss() -> None:
    resent = {
        "tcp.retrans_segs": (900.0, 0.0, 300.0),
        "tcp_ext.sack_recovery": (40.0, 0.0, 5.0),
        "tcp_ext.dsack_recv_segs": (5.0, 0.0, 5.0),
    }
    assert [c.rule for c in diagnose(made(resent))] == ["packet_loss"]
    late = resent | {"tcp_ext.dsack_recv_segs": (590.0, 0.0, 5.0)}
    assert diagnose(made(late)) == ()


def test_loss_that_slows_traffic_down_is_no_cap() -> None:
    slow = {
        "net.rx_bytes[eth0]": (1e6, 6e7, 7e7),
        "net.tx_bytes[eth0]": (1e6, 6e7, 7e7),
        "cpu.busy": (10.0, 55.0, 60.0),
        "tcp.retrans_segs": (90.0, 0.0, 500.0),
        "tcp.retrans_share": (9.0, 0.0, 1.1),
        "tcp_ext.timeouts": (4.0, 0.0, 0.0),
    }
    assert [c.rule for c in diagnose(made(slow))] == ["packet_loss"]
    capped = slow | {"tcp.retrans_share": (0.02, 0.0, 1.1), "tcp_ext.timeouts": (0.0, 0.0, 0.0)}
    assert [c.rule for c in diagnose(made(capped))] == ["bandwidth_cap"]


def test_loss_of_which_little_is_sent_again_is_found_by_its_share() -> None:
    few = {
        "tcp.retrans_segs": (30.0, 20.0, 40.0),
        "tcp.retrans_share": (10.0, 0.2, 0.4),
        "tcp_ext.sack_recovery": (12.0, 0.5, 2.0),
        "tcp_ext.dsack_recv_segs": (1.0, 0.0, 2.0),
    }
    assert [c.rule for c in diagnose(made(few))] == ["packet_loss"]


def test_a_slower_link_is_told_where_workers_poll() -> None:
    polling = {
        "net.rx_bytes[eth0]": (1e9, 6e9, 7e9),
        "net.tx_bytes[eth0]": (1e9, 6e9, 7e9),
        "cpu.busy": (99.0, 98.0, 100.0),
        "link.speed[eth0]": (1.25e9, 1.25e10, 1.25e10),
    }
    assert [c.rule for c in diagnose(made(polling))] == ["bandwidth_cap"]
    same = polling | {"link.speed[eth0]": (1.25e10, 1.25e10, 1.25e10)}
    assert diagnose(made(same)) == ()
    port = {
        k.replace("link.speed[eth0]", "infiniband.rate[mlx5_0/1]"): v for k, v in polling.items()
    }
    assert [c.rule for c in diagnose(made(port))] == ["bandwidth_cap"]


def test_one_of_two_ports_with_all_the_traffic_is_told() -> None:
    two = {
        "infiniband.xmit_bytes[mlx5_0/1]": (2e10, 9e9, 1.1e10),
        "infiniband.xmit_bytes[mlx5_1/1]": (1e5, 9e9, 1.1e10),
    }
    assert [c.rule for c in diagnose(made(two))] == ["single_queue_pair"]


def test_huge_pages_that_programs_no_longer_get() -> None:
    off = {
        "memory.anon_huge_pages": (0.0, 4e10, 5e10),
        "memory.anon_pages": (5e10, 4.5e10, 5.5e10),
    }
    assert [c.rule for c in diagnose(made(off))] == ["hugepages"]
    ended = off | {"memory.anon_pages": (1e9, 4.5e10, 5.5e10)}
    assert diagnose(made(ended)) == ()


def test_with_hardware_counters_the_memory_bus_is_told_from_the_cores() -> None:
    cores = {
        "cpu.user": (90.0, 40.0, 48.0),
        "cpu.idle": (5.0, 40.0, 45.0),
        "pressure.cpu_some": (40.0, 5.0, 15.0),
        "perf.l3_misses": (3e6, 1e6, 3e6),
        "perf.ipc": (1.4, 1.2, 1.6),
    }
    assert [c.rule for c in diagnose(made(cores))] == ["cpu_contention"]
    bus = cores | {"perf.l3_misses": (4e7, 1e6, 3e6), "perf.ipc": (0.5, 1.2, 1.6)}
    assert [c.rule for c in diagnose(made(bus))] == ["memory_bandwidth", "cpu_contention"]


def test_an_absent_channel_speaks_for_nothing() -> None:
    nothing = {label: (math.nan, low, high) for label, (_, low, high) in (HOT | NUMA).items()}
    assert diagnose(made(nothing)) == ()
    assert diagnose(made(USUAL)) == ()


def test_a_rule_that_fails_costs_only_its_own_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(case: Case) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(RULES, "hugepages", broken)
    assert [c.rule for c in diagnose(made(XID))] == ["xid"]
    assert "rule hugepages failed" in caplog.text
