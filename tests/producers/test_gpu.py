"""GPUs with faults: each costs what it touches, and nothing else."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producers.collectors.gpu import power
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.pace import MOST_NS, SHARE, TICK_NS, Pace
from schemas.records import Channel, Kind, Subsystem
from tests.producers import nvml_tables
from tests.producers.fake_nvml import GPU_IS_LOST, NOT_SUPPORTED, TIMEOUT, UNKNOWN, FakeNvml
from tests.producers.gpus import GpuHost

NO_PERMISSION, FUNCTION_NOT_FOUND = 4, 13
ALL_BITS = 0xFFFFFFFF

METRICS = {
    # A function, and what it is asked for.
    "nvmlDeviceGetUtilizationRates": {"utilization", "memory_utilization"},
    "nvmlDeviceGetMarginTemperature": {"temperature_margin"},
    "nvmlDeviceGetTemperature": {"temperature"},
    "nvmlDeviceGetPerformanceState": {"performance_state"},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"compute_processes"},
    "nvmlDeviceGetPowerUsage": {"power"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit"},
    "nvmlDeviceGetMemoryInfo": {"memory_used", "memory_free", "memory_total", "memory_reserved"},
    "nvmlDeviceGetBAR1MemoryInfo": {"bar1_used", "bar1_free", "bar1_total"},
    "nvmlDeviceGetClockInfo": {"sm_clock", "memory_clock", "graphics_clock", "video_clock"},
    "nvmlDeviceGetPcieReplayCounter": {"pcie_replays"},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"pcie_link_generation"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"pcie_link_width"},
    "nvmlDeviceGetRemappedRows": {
        *("remapped_rows_corrected", "remapped_rows_uncorrected"),
        *("remapped_rows_pending", "remapped_rows_failure"),
    },
    "nvmlDeviceGetEncoderUtilization": {"encoder_utilization"},
    "nvmlDeviceGetOfaUtilization": {"optical_flow_utilization"},
    "nvmlDeviceGetTotalEccErrors": {
        *("ecc_corrected", "ecc_uncorrected"),
        *("ecc_aggregate_corrected", "ecc_aggregate_uncorrected"),
    },
}
FIELD_METRICS = {
    (82, 0): "memory_temperature",
    (83, 0): "energy",
    (186, 0): "power_instant",
    (197, 0): "pcie_tx_bytes",
    (139, ALL_BITS): "nvlink_rx_bytes",
    (74, 0): "throttled_sw_power_cap",
    (173, 0): "pcie_correctable_errors",
}

each_field = pytest.mark.parametrize("field", FIELD_METRICS)


def uuid(index: int) -> str:
    return nvml_tables.h100(index).uuid


def labels(index: int, metrics: set[str]) -> set[str]:
    return {f"gpu.{metric}[{uuid(index)}]" for metric in metrics}


def of(index: int, values: dict[str, float]) -> set[str]:
    return {label for label in values if uuid(index) in label}


def known(values: dict[str, float]) -> dict[str, float]:
    return {label: value for label, value in values.items() if not math.isnan(value)}


@cache
def undisturbed() -> tuple[dict[str, float], ...]:
    """Return three readings without a fault."""
    host = GpuHost(FakeNvml.h100s(2))
    host.settle()
    return tuple(host.tick(whole=True) for _ in range(3))


def compare(fault: Callable[[FakeNvml], None], lost: set[str]) -> tuple[GpuHost, FakeNvml]:
    """Let a fault happen in mid-run: all but `lost` is exactly as it is without."""
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.settle()
    channels = host.group.channels
    fault(fake)
    for expected in undisturbed():
        values = host.tick(whole=True)
        assert host.group.channels is channels
        assert {label for label in known(expected) if math.isnan(values[label])} == lost
        kept = {label: v for label, v in expected.items() if label not in lost}
        assert {label: values[label] for label in kept} == pytest.approx(kept, nan_ok=True, rel=0)
    return host, fake


def test_the_stand_in_has_the_functions_of_the_library() -> None:
    """The same names, and parameters of the same names in the same order."""
    for name, function in inspect.getmembers(Nvml, inspect.isfunction):
        if name.startswith("nvml"):
            wanted = list(inspect.signature(function).parameters)[1:]
            real = list(inspect.signature(getattr(pynvml, name)).parameters)
            assert [w.lower() for w in wanted] == [r.lower() for r in real][: len(wanted)], name
            assert hasattr(FakeNvml.h100s(1), name), name
    for name, function in inspect.getmembers(FakeNvml, inspect.isfunction):
        if name.startswith("nvml"):
            mine = list(inspect.signature(function).parameters)[1:]
            assert mine == list(inspect.signature(getattr(pynvml, name)).parameters), name


def test_values_of_gpus() -> None:
    """Each computed here from the table: the time is that of the reading."""
    host = GpuHost(FakeNvml.h100s(2))
    host.settle()
    values = host.tick(whole=True)
    now_s = host.fake.now_ns / 1e9
    for index, table in enumerate(host.fake.tables):
        use = table.answers["nvmlDeviceGetUtilizationRates",](now_s)
        assert values[f"gpu.utilization[{uuid(index)}]"] == use["gpu"]
        power_w = table.answers["nvmlDeviceGetPowerUsage",](now_s) / 1000
        assert values[f"gpu.power[{uuid(index)}]"] == pytest.approx(power_w)
        # 650 J/s for the first, a tenth more for each after it.
        assert values[f"gpu.energy[{uuid(index)}]"] == pytest.approx(
            650 * (1 + index / 10), rel=1e-3
        )
        assert values[f"gpu.pcie_tx_bytes[{uuid(index)}]"] == pytest.approx(
            2e9 * (1 + index / 10), rel=1e-3
        )
        assert values[f"gpu.nvlink_tx_bytes[{uuid(index)}]"] == pytest.approx(
            1e8 * 1024 * (1 + index / 10), rel=1e-3
        )
        # 0.2 s in every second.
        assert values[f"gpu.throttled_sw_power_cap[{uuid(index)}]"] == pytest.approx(
            20 * (1 + index / 10), rel=1e-3
        )
        assert table.gpm is not None
        assert values[f"gpu.sm_occupancy[{uuid(index)}]"] == pytest.approx(table.gpm[3](now_s))
        assert values[f"gpu.gpm_pcie_rx_bytes[{uuid(index)}]"] == pytest.approx(
            table.gpm[21](now_s) * 2**20
        )
        mask = table.answers["nvmlDeviceGetCurrentClocksEventReasons",](now_s)
        assert values[f"gpu.throttle_sw_power_cap[{uuid(index)}]"] == float(mask & 4 > 0)
        assert values[f"gpu.nvlink_state[{uuid(index)}/link17]"] == 1
    assert host.failures == set()
    assert host.bad_fields == 0


def test_names_units_and_subsystem() -> None:
    host = GpuHost(FakeNvml.h100s(1))
    host.settle()
    for c in host.group.channels:
        assert c.metric.startswith("gpu.")
        assert c.subsystem is Subsystem.GPU
        assert c.unit == "%" or (c.kind is Kind.RATE) == c.unit.endswith("/s"), c
    assert Channel("gpu.power", uuid(0), Subsystem.GPU, "W", Kind.GAUGE) in host.group.channels
    assert len({c.name for c in host.collectors}) == len(host.collectors) == 11
    paths = [s.path for c in host.collectors for s in c.sources]
    assert len(set(paths)) == len(paths)
    assert all(20 < len(s.remedy) < 300 for c in host.collectors for s in c.sources)


def test_the_layout_stays() -> None:
    host = GpuHost(FakeNvml.h100s(2))
    host.settle()
    channels = host.group.channels
    host.tick(200)
    assert host.group.channels is channels


@pytest.mark.parametrize(
    ("function", "code"),
    [
        *((function, UNKNOWN) for function in METRICS),
        *(("nvmlDeviceGetPowerUsage", code) for code in (TIMEOUT, NOT_SUPPORTED, NO_PERMISSION)),
    ],
)
def test_a_call_that_fails_costs_its_numbers_of_that_gpu(function: str, code: int) -> None:
    lost = labels(1, METRICS[function])
    host, fake = compare(lambda f: f.fail(function, code, uuid(1)), lost)
    assert host.bad_fields >= 3
    assert any(pynvml.NVMLError(code).__class__.__name__ in reason for reason in host.failures)
    fake.mend()
    host.tick(whole=True)
    again = host.tick(whole=True)
    assert not [label for label in lost if math.isnan(again[label])]


@each_field
def test_a_field_that_fails_costs_itself(field: tuple[int, int]) -> None:
    lost = labels(1, {FIELD_METRICS[field]})
    host, _ = compare(lambda f: f.give_field(uuid(1), *field, UNKNOWN, 0), lost)
    assert host.bad_fields == 3


@pytest.mark.parametrize(
    ("function", "code"),
    [
        # For the margin another function stands in: tested below.
        *((f, NOT_SUPPORTED) for f in METRICS if f != "nvmlDeviceGetMarginTemperature"),
        *(("nvmlDeviceGetPowerUsage", code) for code in (NO_PERMISSION, FUNCTION_NOT_FOUND)),
    ],
)
def test_what_is_not_supported_is_absent_and_not_asked_again(function: str, code: int) -> None:
    fake = FakeNvml.h100s(2)
    fake.fail(function, code, uuid(1))
    host = GpuHost(fake)
    values = host.settle()
    absent = labels(1, METRICS[function])
    assert not absent & set(values)
    assert labels(0, METRICS[function]) <= set(values)
    everything = set(GpuHost(FakeNvml.h100s(2)).settle())
    assert set(values) == everything - absent
    before = fake.calls[function]
    host.tick(5, whole=True)
    per_gpu = len(METRICS[function]) if "Ecc" in function or "Clock" in function else 1
    assert fake.calls[function] - before == 5 * per_gpu
    assert host.failures == set()
    assert host.bad_fields == 0


def test_memory_of_a_driver_that_tells_no_reserve() -> None:
    fake = FakeNvml.h100s(1)
    for table in fake.tables:
        del table.answers["nvmlDeviceGetMemoryInfo", 2]
    values = GpuHost(fake).settle()
    assert f"gpu.memory_reserved[{uuid(0)}]" not in values
    assert values[f"gpu.memory_total[{uuid(0)}]"] == pytest.approx(81559 * 2**20)


def test_a_margin_from_the_threshold() -> None:
    fake = FakeNvml.h100s(1)
    answers = fake.tables[0].answers
    del answers["nvmlDeviceGetMarginTemperature",]
    answers["nvmlDeviceGetTemperature", 0] = 71
    answers["nvmlDeviceGetTemperatureThreshold", 3] = 90
    assert GpuHost(fake).settle()[f"gpu.temperature_margin[{uuid(0)}]"] == 19


def test_energy_that_is_no_field() -> None:
    fake = FakeNvml.h100s(1)
    del fake.tables[0].fields[83, 0]
    host = GpuHost(fake)
    host.settle()
    assert host.tick()[f"gpu.energy[{uuid(0)}]"] == pytest.approx(650, rel=1e-3)
    assert fake.calls["nvmlDeviceGetTotalEnergyConsumption"] > 10


def test_reasons_of_an_older_driver() -> None:
    fake = FakeNvml.h100s(1)
    answers = fake.tables[0].answers
    for name in ("Current", "Supported"):
        del answers[f"nvmlDeviceGet{name}ClocksEventReasons",]
        answers[f"nvmlDeviceGet{name}ClocksThrottleReasons",] = 0x48
    values = GpuHost(fake).settle()
    reasons = {label: v for label, v in values.items() if label.startswith("gpu.throttle_")}
    assert reasons == dict.fromkeys(
        labels(0, {"throttle_hw_slowdown", "throttle_hw_thermal_slowdown"}), 1
    )


def test_nvlink_errors_of_gpus_before_hopper() -> None:
    fake = FakeNvml.h100s(1)
    fields = fake.tables[0].fields
    for link in range(18):
        for number in (161, 162, 163, 165):
            fields.pop((number, link))
        if link < 12:
            fake.tables[0].answers["nvmlDeviceGetNvLinkState", link] = int(link != 7)
    # CRC flit errors of link 0 are field 32, of link 6 field 96; ten a second on link 7.
    fields |= {(32 + link, 0): (3, 0) for link in range(6)}
    fields |= {(96 + link, 0): (3, 0) for link in range(6)}
    fields[97, 0] = (3, lambda s: round(10 * s))
    host = GpuHost(fake)
    host.settle()
    values = host.tick(10)
    errors = {label: v for label, v in values.items() if "nvlink_crc_flit" in label}
    assert len(errors) == 12
    assert errors[f"gpu.nvlink_crc_flit_errors[{uuid(0)}/link7]"] == pytest.approx(10)
    assert sum(errors.values()) == pytest.approx(10)
    assert values[f"gpu.nvlink_state[{uuid(0)}/link7]"] == 0
    assert values[f"gpu.nvlink_state[{uuid(0)}/link6]"] == 1


SENTINELS: list[tuple[str, Any, set[str]]] = [
    ("nvmlDeviceGetTemperature", ALL_BITS, {"temperature"}),
    ("nvmlDeviceGetTemperature", 2000, {"temperature"}),
    ("nvmlDeviceGetPowerUsage", ALL_BITS, {"power"}),
    ("nvmlDeviceGetPowerUsage", 10**9, {"power"}),
    ("nvmlDeviceGetPowerUsage", -1, {"power"}),
    ("nvmlDeviceGetPowerUsage", "N/A", {"power"}),
    ("nvmlDeviceGetPowerUsage", 10**400, {"power"}),
    ("nvmlDeviceGetPerformanceState", 32, {"performance_state"}),
    ("nvmlDeviceGetEncoderUtilization", [ALL_BITS, 0], {"encoder_utilization"}),
    ("nvmlDeviceGetEncoderUtilization", [101, 0], {"encoder_utilization"}),
    ("nvmlDeviceGetEncoderUtilization", [], {"encoder_utilization"}),
    ("nvmlDeviceGetPcieReplayCounter", ALL_BITS, {"pcie_replays"}),
    ("nvmlDeviceGetCurrPcieLinkWidth", 0, {"pcie_link_width"}),
    (
        "nvmlDeviceGetRemappedRows",
        (ALL_BITS, 0, 7, 0),
        {"remapped_rows_corrected", "remapped_rows_pending"},
    ),
    ("nvmlDeviceGetRemappedRows", (0, 0), METRICS["nvmlDeviceGetRemappedRows"]),
    (
        "nvmlDeviceGetCurrentClocksEventReasons",
        2**64 - 1,
        {
            *("throttle_idle", "throttle_clocks_setting", "throttle_sw_power_cap"),
            *("throttle_hw_slowdown", "throttle_sync_boost", "throttle_sw_thermal_slowdown"),
            *("throttle_hw_thermal_slowdown", "throttle_hw_power_brake"),
            "throttle_display_clock_setting",
        },
    ),
]


@pytest.mark.parametrize(("function", "value", "lost"), SENTINELS)
def test_a_number_that_is_none(function: str, value: Any, lost: set[str]) -> None:
    host, _ = compare(lambda f: f.give(function, value, uuid(1)), labels(1, lost))
    assert host.bad_fields == 3 * len(lost)


def test_a_utilisation_of_more_than_all() -> None:
    def fault(fake: FakeNvml) -> None:
        rates = pynvml.c_nvmlUtilization_t()
        rates.gpu, rates.memory = 1000, 20
        fake.give("nvmlDeviceGetUtilizationRates", rates, uuid(1))

    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.settle()
    fault(fake)
    values = host.tick()
    assert math.isnan(values[f"gpu.utilization[{uuid(1)}]"])
    assert values[f"gpu.memory_utilization[{uuid(1)}]"] == 20
    assert host.bad_fields == 1


def test_gpm_gives_nonsense() -> None:
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.settle()
    assert fake.tables[1].gpm is not None
    fake.tables[1].gpm |= {3: 1e300, 5: float("nan"), 10: -3.0}
    del fake.tables[1].gpm[12]
    values = host.tick()
    bad = {label for label in of(1, values) if math.isnan(values[label]) and "xid" not in label}
    assert bad == labels(1, {"sm_occupancy", "tensor_active", "dram_active", "fp32_active"})
    assert host.bad_fields == 3  # NaN is no number to begin with
    assert not math.isnan(values[f"gpu.sm_occupancy[{uuid(0)}]"])


def test_gpm_of_mig_devices() -> None:
    fake = FakeNvml.h100s(1)
    gpu = fake.tables[0]
    mig = nvml_tables.Table(gpu.uuid, "", gpm={2: 40.0, 3: 12.5}, mig_uuid="MIG-a", instance=3)
    mig.answers["nvmlDeviceGetMemoryInfo", 2] = {"total": 10, "used": 3, "free": 7, "reserved": 0}
    gpu.migs = [mig]
    values = GpuHost(fake).settle()
    device = f"{gpu.uuid}/MIG-a"
    assert values[f"gpu.sm_active[{device}]"] == 40
    assert values[f"gpu.sm_occupancy[{device}]"] == 12.5
    assert values[f"gpu.memory_used[{device}]"] == 3
    assert f"gpu.sm_active[{gpu.uuid}]" not in values  # NVML has it by instance only


def test_throughput_that_takes_long_to_measure_is_awaited_by_nobody() -> None:
    fake = FakeNvml.h100s(1)
    for number in (197, 198):
        del fake.tables[0].fields[number, 0]
    fake.tables[0].answers["nvmlDeviceGetPcieThroughput", 0] = lambda s: round(1000 * s)
    fake.tables[0].answers["nvmlDeviceGetPcieThroughput", 1] = 7
    host = GpuHost(fake, only=["gpu_pcie"])
    host.tick(30)
    calls = fake.calls["nvmlDeviceGetPcieThroughput"]
    values = host.tick(50)
    assert 8 <= fake.calls["nvmlDeviceGetPcieThroughput"] - calls <= 12  # two a second
    assert values[f"gpu.pcie_rx_bytes[{uuid(0)}]"] == 7 * 1024
    age_s = host.fake.now_ns / 1e9 - values[f"gpu.pcie_tx_bytes[{uuid(0)}]"] / 1024 / 1000
    assert -0.01 < age_s < 1.2


def test_a_slow_call_is_made_less_often_and_the_others_as_before() -> None:
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    host.tick(20)
    fake.slow("nvmlDeviceGetPowerUsage", 3_000_000)  # 6 ms for both, 3 s at 0.2 %
    host.tick(40)
    sources = {s.path: s for c in host.collectors for s in c.sources}
    assert sources["nvml/power"].period_ns == 3_200_000_000
    assert sources["nvml/utilization"].period_ns == 0
    calls = fake.calls.copy()
    host.tick(320)
    assert (fake.calls - calls)["nvmlDeviceGetPowerUsage"] == 2 * 10
    assert (fake.calls - calls)["nvmlDeviceGetUtilizationRates"] == 2 * 320
    fake.mend()
    host.tick(400)
    assert sources["nvml/power"].period_ns == 0


def test_a_pace_does_not_flap() -> None:
    pace = Pace()
    for _ in range(10):
        pace.spent(int(SHARE * TICK_NS))
    assert pace.period_ns == 0
    periods = set()
    for n in range(100):
        # Up and down by a third around what one tick allows.
        pace.spent(int(SHARE * TICK_NS * (1.3 if n % 2 else 0.7)))
        periods.add(pace.period_ns)
    assert periods <= {0, 2 * TICK_NS}
    assert len(periods) <= 2


def test_one_hiccup_changes_no_pace() -> None:
    pace = Pace()
    for cost in (1000, 1000, 1000, 10**9, 1000, 1000):
        pace.spent(cost)
        assert pace.period_ns == 0


def test_a_pace_has_bounds() -> None:
    pace = Pace(10**9)
    assert pace.period_ns == 10**9
    for _ in range(10):
        pace.spent(10**12)
    assert pace.period_ns == MOST_NS
    for _ in range(20):
        pace.spent(0)
    assert pace.period_ns == 10**9


def test_a_lost_gpu_costs_its_channels_only() -> None:
    everything = of(1, known(GpuHost(FakeNvml.h100s(2)).settle()))
    logged = labels(1, {"xid_logged", "last_xid_logged"})  # the kernel's log still speaks of it
    # What its events are is not forgotten, nor is what they were.
    events = {label for label in everything if "events" in label or "xid" in label}
    events |= labels(1, {"mig_changes", "recovery_actions"})
    fake_lost = everything - logged - events
    host, _ = compare(lambda f: f.lost.add(uuid(1)), fake_lost)
    assert any("NVMLError_GpuIsLost" in reason for reason in host.failures)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_nvml_answers(data: st.DataObject) -> None:
    """Nothing raises, and what is published is a number in its bounds, or none."""
    fake = FakeNvml.h100s(2)
    host = GpuHost(fake)
    if data.draw(st.booleans(), "in mid-run"):
        host.tick(3, whole=True)
    numbers = st.integers(-(2**70), 2**70) | st.floats() | st.just(ALL_BITS)
    anything = (
        numbers
        | st.none()
        | st.text(max_size=3)
        | st.lists(numbers, max_size=4)
        | st.binary(max_size=3)
        | st.just(object())
    )
    functions = [*METRICS, "nvmlDeviceGetFieldValues", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"]
    functions += ["nvmlEventSetWait_v2"]
    for function in data.draw(st.lists(st.sampled_from(functions), max_size=6)):
        if data.draw(st.booleans()):
            fake.give(function, data.draw(anything), uuid(1))
        else:
            fake.fail(function, data.draw(st.integers(1, 31) | st.just(999)), uuid(1))
    for field in data.draw(st.lists(st.sampled_from([*FIELD_METRICS]), max_size=4)):
        code, value = (
            data.draw(st.sampled_from([0, 0, 3, 15, 999])),
            data.draw(st.integers(0, 2**64 - 1)),
        )
        fake.give_field(uuid(1), *field, code, value)
    for index in data.draw(st.lists(st.integers(0, 1), max_size=1)):
        fake.lost.add(uuid(index))
    for _ in range(4):
        host.tick(whole=True)
    fake.mend()
    values = host.tick(whole=True)
    shares = {c.label for c in host.group.channels if c.metric == "gpu.utilization"}
    assert all(0 <= values[label] <= 100 for label in shares if not math.isnan(values[label]))
    raised = [r for r in host.failures if "Error:" in r and "nvml/" not in r.split(":")[0]]
    assert raised == []


def test_a_device_without_power_has_no_such_source() -> None:
    fake = FakeNvml.h100s(1)
    host = GpuHost(fake, only=["gpu_power"])
    del fake.tables[0].answers["nvmlDeviceGetPowerUsage",]
    host.tick()
    (collector,) = host.collectors
    assert collector.name == power.collector(host.session).name == "gpu_power"
    assert collector.sources[0].plan.fields == ()
    assert collector.sources[0].problem == ""
    assert GPU_IS_LOST == pynvml.NVML_ERROR_GPU_IS_LOST
