"""What the GPU collectors make of real machines, from the raw text of nvidia-smi.

The expected values are found here by pattern, apart from how the stand-in reads a capture.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.producers.fake_nvml import FakeNvml
from tests.producers.gpus import GpuHost

CAPTURES = Path(__file__).parents[3] / "shared/data/fixtures/nvidia_gpu_exporter"
H100 = "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt"
MIG = "linux-x86_64__nvidia-h100-mig__590.48.01.txt"
RTX = "linux-x86_64__nvidia-geforce-rtx-4080-super__595.71.05.txt"
GPU = "GPU-00000000-0000-0000-0000-000000000000"
MIB = 2**20

each_capture = pytest.mark.parametrize("name", [H100, MIG, RTX], ids=["h100", "mig", "rtx"])
each_state = pytest.mark.parametrize("state", ["idle", "load"])


def capture(name: str) -> Path:
    path = CAPTURES / name
    if not path.exists():
        pytest.skip(f"{path} is not here: see shared/data")
    return path


def text_of(path: Path, title: str) -> str:
    """Return what stands under a title, up to the next."""
    return path.read_text().split(f"# {title}")[1].split("\n# $")[1].split("\n####")[1]


def read(name: str, state: str) -> tuple[dict[str, float], GpuHost]:
    host = GpuHost(FakeNvml.from_capture(capture(name), state))
    return host.settle(), host


# Metric: the pattern of its line in `nvidia-smi -q`, and what its unit is worth. The GPU's own
# lines begin with four spaces, those of a MIG device further in.
NUMBER = r" +: (\S+)"
LINES = {
    "gpu.utilization": (r"\n    Utilization\n +GPU" + NUMBER, 1),
    "gpu.memory_utilization": (r"\n    Utilization\n.*\n +Memory" + NUMBER, 1),
    "gpu.encoder_utilization": (r"\n        Encoder" + NUMBER, 1),
    "gpu.decoder_utilization": (r"\n        Decoder" + NUMBER, 1),
    "gpu.jpeg_utilization": (r"\n        JPEG" + NUMBER, 1),
    "gpu.optical_flow_utilization": (r"\n        OFA" + NUMBER, 1),
    "gpu.temperature": (r"GPU Current Temp" + NUMBER, 1),
    "gpu.memory_temperature": (r"Memory Current Temp" + NUMBER, 1),
    "gpu.fan": (r"Fan Speed" + NUMBER, 1),
    "gpu.performance_state": (r"Performance State +: P(\S+)", 1),
    "gpu.power": (r"\n    GPU Power Readings\n +Average Power Draw" + NUMBER, 1),
    "gpu.power_instant": (r"\n    GPU Power Readings\n.*\n +Instantaneous Power Draw" + NUMBER, 1),
    "gpu.power_limit": (r"\n    GPU Power Readings\n.*\n.*\n +Current Power Limit" + NUMBER, 1),
    "gpu.memory_power": (r"\n    GPU Memory Power Readings *\n +Average Power Draw" + NUMBER, 1),
    "gpu.memory_total": (r"\n    FB Memory Usage\n +Total" + NUMBER, MIB),
    "gpu.memory_reserved": (r"\n    FB Memory Usage\n.*\n +Reserved" + NUMBER, MIB),
    "gpu.memory_used": (r"\n    FB Memory Usage\n.*\n.*\n +Used" + NUMBER, MIB),
    "gpu.memory_free": (r"\n    FB Memory Usage\n.*\n.*\n.*\n +Free" + NUMBER, MIB),
    "gpu.bar1_total": (r"\n    BAR1 Memory Usage\n +Total" + NUMBER, MIB),
    "gpu.bar1_used": (r"\n    BAR1 Memory Usage\n.*\n +Used" + NUMBER, MIB),
    "gpu.bar1_free": (r"\n    BAR1 Memory Usage\n.*\n.*\n +Free" + NUMBER, MIB),
    "gpu.graphics_clock": (r"\n    Clocks\n +Graphics" + NUMBER, 1),
    "gpu.sm_clock": (r"\n    Clocks\n.*\n +SM" + NUMBER, 1),
    "gpu.memory_clock": (r"\n    Clocks\n.*\n.*\n +Memory" + NUMBER, 1),
    "gpu.video_clock": (r"\n    Clocks\n.*\n.*\n.*\n +Video" + NUMBER, 1),
    "gpu.graphics_clock_max": (r"\n    Max Clocks\n +Graphics" + NUMBER, 1),
    "gpu.memory_clock_max": (r"\n    Max Clocks\n.*\n.*\n +Memory" + NUMBER, 1),
    "gpu.pcie_link_generation": (r"PCIe Generation\n.*\n +Current" + NUMBER, 1),
    "gpu.pcie_link_generation_max": (r"PCIe Generation\n +Max" + NUMBER, 1),
    "gpu.pcie_link_width": (r"Link Width\n.*\n +Current +: (\d+)x", 1),
    "gpu.pcie_tx_bytes": (r"Tx Throughput" + NUMBER, 1024),
    "gpu.pcie_rx_bytes": (r"Rx Throughput" + NUMBER, 1024),
}

COLUMNS = {
    "gpu.ecc_aggregate_corrected": "ecc.errors.corrected.aggregate.total",
    "gpu.ecc_aggregate_corrected_dram": "ecc.errors.corrected.aggregate.dram",
    "gpu.ecc_aggregate_uncorrected_sram": "ecc.errors.uncorrected.aggregate.sram",
    "gpu.ecc_aggregate_uncorrected_l2_cache": "ecc.errors.uncorrected.aggregate.l2_cache",
    "gpu.remapped_rows_corrected": "remapped_rows.correctable",
    "gpu.remapped_rows_uncorrected": "remapped_rows.uncorrectable",
    "gpu.retired_pages_single_bit": "retired_pages.single_bit_ecc.count",
}

REASONS = {
    "gpu.throttle_idle": "Idle",
    "gpu.throttle_clocks_setting": "Applications Clocks Setting",
    "gpu.throttle_sw_power_cap": "SW Power Cap",
    "gpu.throttle_hw_slowdown": "HW Slowdown",
    "gpu.throttle_hw_thermal_slowdown": "HW Thermal Slowdown",
    "gpu.throttle_hw_power_brake": "HW Power Brake Slowdown",
    "gpu.throttle_sync_boost": "Sync Boost",
    "gpu.throttle_sw_thermal_slowdown": "SW Thermal Slowdown",
    "gpu.throttle_display_clock_setting": "Display Clock Setting",
}


@each_capture
@each_state
def test_a_value_is_what_nvidia_smi_says(name: str, state: str) -> None:
    values, host = read(name, state)
    query = text_of(capture(name), f"{state} :: query (-q)")
    there = 0
    for metric, (pattern, scale) in LINES.items():
        found = re.search(pattern, query)
        text = found[1] if found else "N/A"
        label = f"{metric}[{GPU}]"
        if text == "N/A":
            assert label not in values
        else:
            there += 1
            assert values[label] == pytest.approx(float(text) * scale, rel=1e-6), label
    assert there > 20
    assert host.failures == set()
    assert host.bad_fields == 0


@each_capture
@each_state
def test_reasons_are_what_nvidia_smi_says(name: str, state: str) -> None:
    values, _ = read(name, state)
    reasons = text_of(capture(name), f"{state} :: query (-q)").split("Clocks Event Reasons\n")[1]
    for metric, line in REASONS.items():
        found = re.search(rf"\n? +{line} +: (Active|Not Active)\n", reasons)
        assert found
        assert values[f"{metric}[{GPU}]"] == float(found[1] == "Active"), line


@each_capture
@each_state
def test_errors_are_what_nvidia_smi_says(name: str, state: str) -> None:
    values, _ = read(name, state)
    header, row = text_of(capture(name), f"{state} :: query-gpu").strip("\n#").split("\n")[-2:]
    columns = dict(zip(header.split(", "), row.split(", "), strict=True))
    for metric, column in COLUMNS.items():
        label = f"{metric}[{GPU}]"
        if columns[column] == "[N/A]":
            assert label not in values
        else:
            assert values[label] == int(columns[column]), label


def test_what_each_gpu_offers() -> None:
    rtx, _ = read(RTX, "load")
    h100, _ = read(H100, "load")
    mig, _ = read(MIG, "load")
    ecc = f"gpu.ecc_corrected[{GPU}]"
    assert ecc in h100
    assert ecc not in rtx
    assert f"gpu.fan[{GPU}]" in rtx
    assert f"gpu.fan[{GPU}]" not in h100
    assert {label for label in h100 if label.startswith("gpu.nvlink_state")} == {
        f"gpu.nvlink_state[{GPU}/link{n}]" for n in range(18)
    }
    assert not any("nvlink" in label for label in (*rtx, *mig))
    # On a GPU without a margin of its own it is what is left to the highest operating temperature.
    assert rtx[f"gpu.temperature_margin[{GPU}]"] == 90 - 45
    assert h100[f"gpu.temperature_margin[{GPU}]"] == 26


def test_processes() -> None:
    h100, _ = read(H100, "load")
    rtx, _ = read(RTX, "load")
    assert h100[f"gpu.compute_processes[{GPU}]"] == 3  # gpu_burn and two of memhog
    assert h100[f"gpu.graphics_processes[{GPU}]"] == 0
    assert rtx[f"gpu.compute_processes[{GPU}]"] == 3  # two of type C, and kwin of type C+G
    assert rtx[f"gpu.graphics_processes[{GPU}]"] == 5


@each_state
def test_mig_devices(state: str) -> None:
    values, _ = read(MIG, state)
    query = text_of(capture(MIG), f"{state} :: query (-q)")
    found = re.findall(
        r"Shared FB Memory Usage\n +Total +: (\d+) MiB\n.*\n +Used +: (\d+) MiB", query
    )
    assert len(found) == 4
    for n, (total, used) in enumerate(found):
        device = f"{GPU}/MIG-{n:08x}-0000-0000-0000-{n:012x}"
        assert values[f"gpu.memory_total[{device}]"] == pytest.approx(int(total) * MIB)
        assert values[f"gpu.memory_used[{device}]"] == pytest.approx(int(used) * MIB)
        assert values[f"gpu.ecc_uncorrected_sram[{device}]"] == 0
    running = values[f"gpu.compute_processes[{GPU}/MIG-00000000-0000-0000-0000-000000000000]"]
    assert running == (3 if state == "load" else 0)
    assert f"gpu.utilization[{GPU}]" not in values


@each_capture
def test_nothing_is_unknown_but_the_code_of_an_xid_that_never_was(name: str) -> None:
    values, _ = read(name, "load")
    unknown = {label for label, value in values.items() if math.isnan(value)}
    assert unknown == {f"gpu.last_xid[{GPU}]", f"gpu.last_xid_logged[{GPU}]"}
