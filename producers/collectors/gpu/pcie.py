"""The PCIe link of a GPU.

Calls: fields NVML_FI_DEV_PCIE_COUNT_TX_BYTES and ..._RX_BYTES; where they are not supported
nvmlDeviceGetPcieThroughput, which measures for 20 ms and is therefore asked in the background;
nvmlDeviceGetPcieReplayCounter, nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkWidth,
nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkWidth, and the error counters
NVML_FI_DEV_PCIE_COUNT_* of newer GPUs. What the GPU sends is tx.
"""

from __future__ import annotations

from collections.abc import Iterable

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.fields import field_call
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import TOTAL_MOST, Call, GpuSource, Number, single
from producers.source import SECOND_NS, TEN_SECONDS_NS, Collector

TX, RX = 0, 1
MOST_KB = 1e9
"""KB/s; of 2^10 bytes, as NVML's samples tell."""

BYTES = (
    (Number("gpu.pcie_tx_bytes", "B/s", high=TOTAL_MOST, counter=True), 197, 0),
    (Number("gpu.pcie_rx_bytes", "B/s", high=TOTAL_MOST, counter=True), 198, 0),
)
MEASURED = {
    TX: Number("gpu.pcie_tx_bytes", "B/s", high=MOST_KB, scale=1024, rate=True),
    RX: Number("gpu.pcie_rx_bytes", "B/s", high=MOST_KB, scale=1024, rate=True),
}
REPLAYS = Number("gpu.pcie_replays", "/s", counter=True)
ERRORS = {
    "l0_to_recovery": 169,
    "correctable_errors": 173,
    "naks_received": 174,
    "receiver_errors": 175,
    "bad_tlps": 176,
    "naks_sent": 177,
    "bad_dllps": 178,
    "non_fatal_errors": 179,
    "fatal_errors": 180,
    "unsupported_requests": 181,
    "lcrc_errors": 182,
    "lane_errors": 183,
}
"""Fields, by the name in the channel ``gpu.pcie_<name>``."""

MOST_GENERATION, MOST_LANES = 15.0, 64.0


def find_bytes(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the counters of bytes."""
    if device.instance is None:
        yield from field_call(nvml, device.handle, BYTES)


def find_measured(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the throughput that NVML measures, where there are no counters."""
    if device.instance is None and not list(find_bytes(nvml, device)):
        for direction, number in MEASURED.items():
            yield single(number, nvml.nvmlDeviceGetPcieThroughput, device.handle, direction)


def find_errors(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield packets sent again, and what else went wrong on the link."""
    if device.instance is None:
        yield single(REPLAYS, nvml.nvmlDeviceGetPcieReplayCounter, device.handle)
        numbers = [Number(f"gpu.pcie_{name}", "/s", counter=True) for name in ERRORS]
        wanted = zip(numbers, ERRORS.values(), (0,) * len(numbers), strict=True)
        yield from field_call(nvml, device.handle, wanted)


def find_link(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the link as it is now: it slows down when there is nothing to do."""
    if device.instance is None:
        generation = Number("gpu.pcie_link_generation", "gen", 1.0, MOST_GENERATION)
        width = Number("gpu.pcie_link_width", "lanes", 1.0, MOST_LANES)
        yield single(generation, nvml.nvmlDeviceGetCurrPcieLinkGeneration, device.handle)
        yield single(width, nvml.nvmlDeviceGetCurrPcieLinkWidth, device.handle)


def find_most(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield what GPU and slot can do together."""
    if device.instance is None:
        generation = Number("gpu.pcie_link_generation_max", "gen", 1.0, MOST_GENERATION)
        width = Number("gpu.pcie_link_width_max", "lanes", 1.0, MOST_LANES)
        yield single(generation, nvml.nvmlDeviceGetMaxPcieLinkGeneration, device.handle)
        yield single(width, nvml.nvmlDeviceGetMaxPcieLinkWidth, device.handle)


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector(
        "gpu_pcie",
        (
            GpuSource(session, "pcie_bytes", find_bytes),
            GpuSource(
                *(session, "pcie_throughput", find_measured),
                period_ns=SECOND_NS,
                background=True,
            ),
            GpuSource(session, "pcie_errors", find_errors, period_ns=SECOND_NS),
            GpuSource(session, "pcie_link", find_link, period_ns=SECOND_NS),
            GpuSource(session, "pcie_link_max", find_most, period_ns=TEN_SECONDS_NS),
        ),
    )
