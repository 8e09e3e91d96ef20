"""Memory errors, and what was taken out of use because of them.

Calls: nvmlDeviceGetTotalEccErrors and nvmlDeviceGetMemoryErrorCounter (since the driver was loaded:
volatile; since the GPU was made: aggregate), nvmlDeviceGetRemappedRows (Ampere and later), fields
NVML_FI_DEV_RETIRED_* (before Ampere), nvmlDeviceGetMemoryErrorCounter for MIG devices where the
driver has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from producers.collectors.gpu.devices import Device
from producers.collectors.gpu.fields import field_call
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import Call, Find, GpuSource, Number, single
from producers.source import SECOND_NS, TEN_SECONDS_NS, Collector

TYPES = {"corrected": 0, "uncorrected": 1}
VOLATILE, AGGREGATE = 0, 1
LOCATIONS = {
    "l1_cache": 0,
    "l2_cache": 1,
    "dram": 2,
    "register_file": 3,
    "texture_memory": 4,
    "shared_memory": 5,
    "cbu": 6,
    "sram": 7,
}
REMAPPED = (
    Number("gpu.remapped_rows_corrected", "rows"),
    Number("gpu.remapped_rows_uncorrected", "rows"),
    Number("gpu.remapped_rows_pending", "0/1", high=1.0),
    Number("gpu.remapped_rows_failure", "0/1", high=1.0),
)
RETIRED = (
    (Number("gpu.retired_pages_single_bit", "pages"), 29, 0),
    (Number("gpu.retired_pages_double_bit", "pages"), 30, 0),
    (Number("gpu.retired_pages_pending", "0/1", high=1.0), 31, 0),
)


def errors(counter: int) -> Find:
    """Return what finds the errors of one counter, in all and by location.

    Volatile ones are channels of errors per second, aggregate ones of errors so far.
    """

    def number(name: str) -> Number:
        if counter == VOLATILE:
            return Number(f"gpu.ecc_{name}", "errors/s", counter=True)
        return Number(f"gpu.ecc_aggregate_{name}", "errors")

    def find(nvml: Nvml, device: Device) -> Iterable[Call]:
        handle = device.handle
        for name, kind in TYPES.items():
            if device.instance is None:
                yield single(number(name), nvml.nvmlDeviceGetTotalEccErrors, handle, kind, counter)
            for location, place in LOCATIONS.items():
                yield single(
                    number(f"{name}_{location}"),
                    nvml.nvmlDeviceGetMemoryErrorCounter,
                    *(handle, kind, counter, place),
                )

    return find


def find_remapped(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the rows that spare rows stand in for."""
    if device.instance is None:
        yield Call(REMAPPED, lambda: nvml.nvmlDeviceGetRemappedRows(device.handle))


def find_retired(nvml: Nvml, device: Device) -> Iterable[Call]:
    """Yield the pages that are out of use."""
    if device.instance is None:
        yield from field_call(nvml, device.handle, RETIRED)


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector(
        "gpu_ecc",
        (
            GpuSource(session, "ecc", errors(VOLATILE), period_ns=SECOND_NS),
            GpuSource(session, "ecc_aggregate", errors(AGGREGATE), period_ns=TEN_SECONDS_NS),
            GpuSource(session, "remapped_rows", find_remapped, period_ns=TEN_SECONDS_NS),
            GpuSource(session, "retired_pages", find_retired, period_ns=TEN_SECONDS_NS),
        ),
    )
