"""NVLink: state and errors of every link, bytes over all of them.

Calls: nvmlDeviceGetFieldValues, one for all links: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX
(KiB, all links), NVML_FI_DEV_NVLINK_GET_STATE, and the error counters: of Hopper and later
NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, _RECOVERY and _CRC by link, before
NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L<n> and so on. nvmlDeviceGetNvLinkState where there is no
field for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.fields import ALL_LINKS, field_call
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import TOTAL_MOST, Call, GpuSource, Number, single
from producers.source import SECOND_NS, Collector

LINKS = 18
"""Of one GPU, at most."""
OLD_LINKS = 12

TX, RX = 138, 139
STATE = 165
REPLAY, RECOVERY, CRC = 161, 162, 163

BYTES = (
    (Number("gpu.nvlink_tx_bytes", "B/s", high=TOTAL_MOST, counter=True, scale=1024), TX),
    (Number("gpu.nvlink_rx_bytes", "B/s", high=TOTAL_MOST, counter=True, scale=1024), RX),
)
ERRORS = {"crc_errors": CRC, "replays": REPLAY, "recoveries": RECOVERY}
"""Fields whose scope is the link, by the name in the channel ``gpu.nvlink_<name>``."""

OLD_ERRORS = {
    "crc_flit_errors": (32, 96),
    "crc_data_errors": (39, 102),
    "replays": (46, 108),
    "recoveries": (53, 114),
}
"""The fields of links 0 and 6, which those of the links after them follow."""


def find_bytes(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield what went over all links."""
    if device.instance is None:
        wanted = [(number, field, ALL_LINKS) for number, field in BYTES]
        yield from field_call(nvml, device.handle, wanted)


def find_states(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield 1 for a link that is up."""
    if device.instance is not None:
        return
    numbers = [
        Number("gpu.nvlink_state", "0/1", high=1.0, part=f"link{link}") for link in range(LINKS)
    ]
    wanted = [(number, STATE, link) for link, number in enumerate(numbers)]
    calls = list(field_call(nvml, device.handle, wanted))
    if calls:
        for call in calls:
            yield _up_or_down(call)
        return
    for link, number in enumerate(numbers):
        yield single(number, nvml.nvmlDeviceGetNvLinkState, device.handle, link)


def _up_or_down(call: Call) -> Call:
    """Return a call that tells the state ACTIVE (1) from all others, INACTIVE, SLEEP and so on."""
    ask = call.ask
    most = 3
    return Call(call.numbers, lambda: [float(v == 1) if 0 <= v <= most else v for v in ask()])


def find_errors(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the errors of each link."""
    if device.instance is not None:
        return
    wanted = [
        (_errors(name, link), field, link)
        for link in range(LINKS)
        for name, field in ERRORS.items()
    ]
    calls = list(field_call(nvml, device.handle, wanted))
    if not calls:
        half = OLD_LINKS // 2
        wanted = [
            (_errors(name, link), (second - half if link >= half else first) + link, 0)
            for link in range(OLD_LINKS)
            for name, (first, second) in OLD_ERRORS.items()
        ]
        calls = list(field_call(nvml, device.handle, wanted))
    yield from calls


def _errors(name: str, link: int) -> Number:
    return Number(f"gpu.nvlink_{name}", "/s", counter=True, part=f"link{link}")


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector(
        "gpu_nvlink",
        (
            GpuSource(session, "nvlink_bytes", find_bytes),
            GpuSource(session, "nvlink_state", find_states, period_ns=SECOND_NS),
            GpuSource(session, "nvlink_errors", find_errors, period_ns=SECOND_NS),
        ),
    )
