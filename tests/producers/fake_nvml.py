"""A stand-in for `pynvml`: the same functions, structures, constants and errors, over tables.

    fake = FakeNvml.h100s(4)                     # values that move with `fake.now_ns`
    fake = FakeNvml.from_capture(path, "load")   # what nvidia-smi said on a real machine
    Session(lambda: fake, lanes=Inline(), clock_ns=fake.clock_ns)

As with the library, devices are those that there were at nvmlInit, a handle is of no use after
nvmlShutdown, a lost GPU says so at every call, and what is not in a table is not supported.
"""

# ruff: noqa: ARG002, N802, N803
# The names are those of the library.

from __future__ import annotations

import ctypes
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pynvml

from tests.producers import nvml_tables
from tests.producers.nvml_tables import DOUBLE, Table

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 1, 2, 3, 6
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, GPU_IS_LOST = 9, 10, 12, 15
UNKNOWN = 999

STRUCTURES: Mapping[str, str] = {
    "nvmlDeviceGetUtilizationRates": "c_nvmlUtilization_t",
    "nvmlDeviceGetBAR1MemoryInfo": "c_nvmlBAR1Memory_t",
}
"""Functions that return a structure, of which the table has the members."""

UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t, by nvmlValueType_t."""


def error(code: int) -> Exception:
    """Return the real module's error."""
    made: Exception = pynvml.NVMLError(code)
    return made


def address(pointer: Any) -> int:
    """Return where a handle points to."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


@dataclass(slots=True)
class _Fault:
    code: int = 0
    value: Any = None
    slow_ns: int = 0
    gate: threading.Event | None = None


@dataclass(slots=True)
class _Sample:
    table: Table | None = None
    at_ns: int = 0


@dataclass(slots=True)
class _EventSet:
    masks: dict[str, int] = field(default_factory=dict)
    waiting: list[tuple[str, int, int]] = field(default_factory=list)


class FakeNvml:
    """What `pynvml` is to a caller.

    Attributes
    ----------
    calls
        How often each function was called.
    now_ns
        The time that values move with. Slow calls move it too.
    broken
        The code that nvmlInit fails with; 0 when it does not.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = list(tables)
        self.calls: Counter[str] = Counter()
        self.now_ns = 0
        self.broken = 0
        self.lost: set[str] = set()
        self._here: list[Table] = []
        self._handles: dict[int, Table] = {}
        self._next = 0x1000
        self._started = 0
        self._faults: dict[tuple[str, str], _Fault] = defaultdict(_Fault)
        self._field_faults: dict[tuple[str, int, int], tuple[int, float]] = {}
        self._samples: dict[int, _Sample] = {}
        self._sets: dict[int, _EventSet] = {}

    @classmethod
    def h100s(cls, count: int) -> Self:
        """Return so many GPUs like an H100 with NVLink and GPM, busy, each with its own values."""
        return cls(nvml_tables.h100(index) for index in range(count))

    @classmethod
    def from_capture(cls, path: Path, section: str) -> Self:
        """Return the GPU of a capture of nvidia-smi, ``idle`` or under ``load``."""
        return cls([nvml_tables.from_capture(path, section)])

    # What tests do to it.

    def clock_ns(self) -> int:
        """Return the time."""
        return self.now_ns

    def fail(self, function: str, code: int, uuid: str = "") -> None:
        """Let a function fail, of one GPU or of all."""
        self._faults[function, uuid].code = code

    def give(self, function: str, value: Any, uuid: str = "") -> None:
        """Let a function return this."""
        self._faults[function, uuid].value = value

    def give_field(self, uuid: str, number: int, scope: int, code: int, value: float) -> None:
        """Let a field of a GPU have this error, or this value when the code is 0."""
        self._field_faults[uuid, number, scope] = (code, value)

    def slow(self, function: str, slow_ns: int, uuid: str = "") -> None:
        """Let a function take so long, on this object's clock."""
        self._faults[function, uuid].slow_ns = slow_ns

    def hang(self, function: str, uuid: str = "") -> threading.Event:
        """Let a function wait until the event that is returned is set."""
        gate = self._faults[function, uuid].gate = threading.Event()
        return gate

    def mend(self) -> None:
        """End all of this."""
        self._faults.clear()
        self._field_faults.clear()
        self.lost.clear()
        self.broken = 0

    def report(self, uuid: str, event: int, data: int = 0) -> None:
        """Let an event happen."""
        for events in self._sets.values():
            if events.masks.get(uuid, 0) & event:
                events.waiting.append((uuid, event, data))

    # The module.

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlDeviceGet"):
            if not hasattr(pynvml, name):
                raise AttributeError(name)

            def ask(handle: Any, *arguments: Any) -> Any:
                return self._answer(name, handle, arguments)

            setattr(self, name, ask)
            return ask
        if name.startswith(("NVML", "c_nvml")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        self.calls["nvmlInit"] += 1
        self._wait("nvmlInit", "")
        if self.broken:
            raise error(self.broken)
        self._started += 1
        if self._started == 1:
            self._here = list(self.tables)

    def nvmlShutdown(self) -> None:
        self.calls["nvmlShutdown"] += 1
        if not self._started:
            raise error(UNINITIALIZED)
        self._started -= 1
        if not self._started:
            self._handles.clear()
            self._sets.clear()

    def nvmlDeviceGetCount(self) -> int:
        self.calls["nvmlDeviceGetCount"] += 1
        self._wait("nvmlDeviceGetCount", "")
        if not self._started:
            raise error(UNINITIALIZED)
        return len(self._here)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if not self._started:
            raise error(UNINITIALIZED)
        if not 0 <= index < len(self._here):
            raise error(INVALID_ARGUMENT)
        table = self._here[index]
        if table.uuid in self.lost:
            raise error(GPU_IS_LOST)
        return self._handle(table)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        table = self._table("nvmlDeviceGetUUID", handle)
        return table.mig_uuid or table.uuid

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        info = pynvml.nvmlPciInfo_t()
        info.busId = self._table("nvmlDeviceGetPciInfo", handle).bus_id.encode()
        return info

    def nvmlDeviceGetMigMode(self, device: Any) -> list[int]:
        table = self._table("nvmlDeviceGetMigMode", device)
        if table.migs is None:
            raise error(NOT_SUPPORTED)
        return [int(bool(table.migs)), int(bool(table.migs))]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any) -> int:
        self._table("nvmlDeviceGetMaxMigDeviceCount", device)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any:
        migs = self._table("nvmlDeviceGetMigDeviceHandleByIndex", device).migs or []
        if not 0 <= index < len(migs):
            raise error(NOT_FOUND)
        return self._handle(migs[index])

    def nvmlDeviceGetGpuInstanceId(self, device: Any) -> int:
        instance = self._table("nvmlDeviceGetGpuInstanceId", device).instance
        if instance is None:
            raise error(INVALID_ARGUMENT)
        return instance

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        name = "nvmlDeviceGetMemoryInfo"
        members = self._answer(name, handle, (2,) if version else ())
        kind = "c_nvmlMemory_v2_t" if version else "c_nvmlMemory_t"
        return _structure(kind, members)

    def nvmlDeviceGetFieldValues(self, handle: Any, fieldIds: Sequence[Any]) -> Any:
        name = "nvmlDeviceGetFieldValues"
        table = self._table(name, handle)
        self._wait(name, table.uuid)
        values = (pynvml.c_nvmlFieldValue_t * len(fieldIds))()
        for value, wanted in zip(values, fieldIds, strict=True):
            number, scope = wanted if isinstance(wanted, tuple) else (wanted, 0)
            value.fieldId, value.scopeId = number, scope
            kind, found = table.fields.get((number, scope), (DOUBLE, None))
            code, other = self._field_faults.get((table.uuid, number, scope), (0, None))
            found = found if other is None else other
            if found is None or code:
                value.nvmlReturn = code or NOT_SUPPORTED
                continue
            value.valueType = kind
            now = self._value(found)
            setattr(value.value, UNION[kind], now if kind == DOUBLE else int(now))
        return values

    def nvmlGpmQueryDeviceSupport(self, device: Any) -> Any:
        support = pynvml.c_nvmlGpmSupport_t()
        support.isSupportedDevice = int(
            self._table("nvmlGpmQueryDeviceSupport", device).gpm is not None
        )
        return support

    def nvmlGpmSampleAlloc(self) -> Any:
        self._next += 0x10
        self._samples[self._next] = _Sample()
        return ctypes.cast(ctypes.c_void_p(self._next), pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleGet(self, device: Any, gpmSample: Any) -> Any:
        table = self._table("nvmlGpmSampleGet", device)
        self._wait("nvmlGpmSampleGet", table.uuid)
        if table.gpm is None or table.migs:
            raise error(NOT_SUPPORTED)
        return self._sample(table, gpmSample)

    def nvmlGpmMigSampleGet(self, device: Any, gpuInstanceId: int, gpmSample: Any) -> Any:
        table = self._table("nvmlGpmMigSampleGet", device)
        for mig in table.migs or ():
            if mig.instance == gpuInstanceId and mig.gpm is not None:
                return self._sample(mig, gpmSample)
        raise error(NOT_SUPPORTED)

    def nvmlGpmMetricsGet(self, metricsGet: Any) -> Any:
        name = "nvmlGpmMetricsGet"
        self.calls[name] += 1
        if metricsGet.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
            raise error(INVALID_ARGUMENT)
        first = self._samples[address(metricsGet.sample1)]
        second = self._samples[address(metricsGet.sample2)]
        table = second.table
        if table is None or first.table is not table:
            raise error(INVALID_ARGUMENT)
        self._wait(name, table.uuid)
        for i in range(metricsGet.numMetrics):
            metric = metricsGet.metrics[i]
            value = (table.gpm or {}).get(metric.metricId)
            metric.nvmlReturn = NOT_SUPPORTED if value is None else 0
            if value is not None:
                metric.value = self._value(value, second.at_ns)
        return metricsGet

    def nvmlEventSetCreate(self) -> Any:
        self.calls["nvmlEventSetCreate"] += 1
        self._wait("nvmlEventSetCreate", "")
        self._next += 0x10
        self._sets[self._next] = _EventSet()
        return ctypes.cast(ctypes.c_void_p(self._next), pynvml.c_nvmlEventSet_t)

    def nvmlEventSetFree(self, eventSet: Any) -> None:
        if self._sets.pop(address(eventSet), None) is None:
            raise error(INVALID_ARGUMENT)

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:
        return self._table("nvmlDeviceGetSupportedEventTypes", handle).events

    def nvmlDeviceRegisterEvents(self, handle: Any, eventTypes: int, eventSet: Any) -> None:
        table = self._table("nvmlDeviceRegisterEvents", handle)
        if eventTypes & ~table.events:
            raise error(NOT_SUPPORTED)
        self._sets[address(eventSet)].masks[table.uuid] = eventTypes

    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> Any:
        name = "nvmlEventSetWait_v2"
        self.calls[name] += 1
        self._wait(name, "")
        events = self._sets.get(address(eventSet))
        if events is None:
            raise error(UNINITIALIZED if not self._started else INVALID_ARGUMENT)
        if not events.waiting:
            raise error(TIMEOUT)
        uuid, kind, data = events.waiting.pop(0)
        made = pynvml.c_nvmlEventData_t()
        made.device = self._handle(next(t for t in self._here if t.uuid == uuid))
        made.eventType, made.eventData = kind, data
        return made

    # How it does that.

    def _answer(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> Any:
        table = self._table(name, handle)
        if self._faults:
            given = self._wait(name, table.uuid)
            if given is not None:
                return given
        found = table.answers.get((name, *arguments))
        if found is None:
            raise error(NOT_SUPPORTED)
        value = self._value(found)
        kind = STRUCTURES.get(name)
        return value if kind is None else _structure(kind, value)

    def _value(self, found: Any, at_ns: int | None = None) -> Any:
        moves: Callable[[float], Any] | None = found if callable(found) else None
        at = self.now_ns if at_ns is None else at_ns
        return found if moves is None else moves(at / 1e9)

    def _wait(self, name: str, uuid: str) -> Any:
        """Do what a test wants of a function, and return what it is to return; None is nothing."""
        for key in ((name, uuid), (name, "")):
            fault = self._faults.get(key)
            if fault is None:
                continue
            self.now_ns += fault.slow_ns
            if fault.gate is not None:
                fault.gate.wait()
            if fault.code:
                raise error(fault.code)
            if fault.value is not None:
                return fault.value
        return None

    def _table(self, name: str, handle: Any) -> Table:
        self.calls[name] += 1
        if not self._started:
            raise error(UNINITIALIZED)
        table = self._handles.get(address(handle))
        if table is None:
            raise error(INVALID_ARGUMENT)
        if table.uuid in self.lost:
            raise error(GPU_IS_LOST)
        return table

    def _handle(self, table: Table) -> Any:
        for at, known in self._handles.items():
            if known is table:
                return ctypes.cast(ctypes.c_void_p(at), pynvml.c_nvmlDevice_t)
        self._next += 0x10
        self._handles[self._next] = table
        return ctypes.cast(ctypes.c_void_p(self._next), pynvml.c_nvmlDevice_t)

    def _sample(self, table: Table, sample: Any) -> Any:
        taken = self._samples[address(sample)]
        taken.table, taken.at_ns = table, self.now_ns
        return sample


def _structure(kind: str, members: Mapping[str, float]) -> Any:
    made = getattr(pynvml, kind)()
    for name, value in members.items():
        setattr(made, name, int(value))
    return made
