"""What a GPU reports of itself the moment it happens: XID errors, ECC errors, lost pages.

Calls: nvmlEventSetCreate, nvmlDeviceGetSupportedEventTypes, nvmlDeviceRegisterEvents, and at every
reading nvmlEventSetWait_v2 with a timeout of 0 until nothing more is there. Meanings of XID codes:
NVIDIA's "XID Errors".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from producers.collectors.gpu.devices import Device, as_text
from producers.collectors.gpu.nvml import TIMEOUT, Nvml, code_of, in_short, is_absent
from producers.collectors.gpu.pace import Pace
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import NOWHERE, REMEDY, Number, make_plan
from producers.collectors.gpu.visits import Visit
from producers.reading import Reader
from producers.source import EVERY_TICK, Collector, Plan

PATH = "nvml/events"
XID = 0x8
EVENTS = {
    0x1: "single_bit_ecc_events",
    0x2: "double_bit_ecc_events",
    0x4: "performance_state_changes",
    XID: "xid",
    0x10: "clock_changes",
    0x80: "power_source_changes",
    0x100: "mig_changes",
    0x200: "single_bit_ecc_storms",
    0x400: "dram_retirements",
    0x800: "dram_retirement_failures",
    0x1000: "non_fatal_poison_errors",
    0x2000: "fatal_poison_errors",
    0x4000: "unavailable_errors",
    0x8000: "recovery_actions",
}
"""Names in the channels ``gpu.<name>``, by bit (nvmlEventType*)."""

LAST_XID = Number("gpu.last_xid", "code")
MOST = 256
"""Events that are taken at one reading; the others wait for the next."""

NAN = float("nan")
_NOBODY = "event set"


class GpuEvents:
    """A source of events, as counters, and of the newest XID's code (unknown before the first)."""

    remedy = REMEDY

    def __init__(self, session: Session) -> None:
        self.path = PATH
        self.problem = ""
        self.bad_fields = 0
        self.plan = Plan()
        self._session = session
        self._pace = Pace()
        self.elsewhere_ns = 0
        self.lent_ns = 0
        self._starts = 0
        self._set: Any = None
        self._counts: Counter[tuple[str, int]] = Counter()
        self._last_xid: dict[str, float] = {}
        self._masks: dict[str, int] = {}
        self._columns: list[tuple[str, int]] = []
        self._visits: Sequence[Visit[_Came]] = ()
        session.visits.join(self)

    @property
    def period_ns(self) -> int:
        """How long a reading may serve."""
        return self._pace.period_ns

    @property
    def shared(self) -> Session:
        """The session, whose devices come and go."""
        return self._session

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Return how many events of each kind there were."""
        session = self._session
        nvml = session.ready(reader, mono_ns)
        if nvml is None:
            self.path, self.problem = NOWHERE, f"{NOWHERE}: {session.problem}"
            return self.plan.blank
        self.path, self.problem = PATH, ""
        if session.starts != self._starts:
            self._starts = session.starts
            self._register(nvml, session.devices)
        if self._columns:
            answers = session.visits.ask(self, self._visits)
            self.elsewhere_ns += answers.cpu_ns
            self.lent_ns += answers.lent_ns
            self._pace.spent(sum(answers.spent_ns))
            (came,) = answers.results
            if came is None:
                self.problem = f"{self.path}: NVML does not answer"
                return self.plan.blank
            self._count(came)
            if came.error is not None:
                self.bad_fields += 1
                self.problem = f"{self.path}: {in_short(came.error)}"
                return self.plan.blank
        return [
            self._last_xid.get(uuid, NAN) if event == 0 else self._counts[uuid, event]
            for uuid, event in self._columns
        ]

    def wanted(self) -> Sequence[Visit[_Came]]:
        """Return what it asks at every tick; nothing before it has registered for events."""
        known = self._columns and self._session.starts == self._starts
        return self._visits if known and self._pace.period_ns == EVERY_TICK else ()

    def _register(self, nvml: Nvml, devices: tuple[Device, ...]) -> None:
        def create() -> Any:
            # The set of before went with the NVML that it was made by.
            try:
                return nvml.nvmlEventSetCreate()
            except Exception:
                return None

        session = self._session
        look = session.patience.look
        (self._set,) = session.visits.visit([Visit(_NOBODY, create)], look).results
        self._visits = [Visit(_NOBODY, _Drain(nvml, self._set))]
        gpus = [d for d in devices if d.instance is None]
        masks: Sequence[int | None] = [None] * len(gpus)
        if self._set is not None:
            visits: list[Visit[int | None]] = [
                Visit(d.uuid, _Register(nvml, d, self._set)) for d in gpus
            ]
            masks = session.visits.visit(visits, look).results
        numbers: list[tuple[Device, Number]] = []
        self._columns = []
        for gpu, new in zip(gpus, masks, strict=True):
            # One that is lost, or hangs, keeps its channels.
            mask = self._masks[gpu.uuid] = self._masks.get(gpu.uuid, 0) if new is None else new
            for event, name in EVENTS.items():
                if event & mask:
                    numbers.append((gpu, Number(f"gpu.{name}", "events/s", counter=True)))
                    self._columns.append((gpu.uuid, event))
            if XID & mask:
                numbers.append((gpu, LAST_XID))
                self._columns.append((gpu.uuid, 0))
        plan = make_plan(numbers)
        if plan.fields != self.plan.fields:
            self.plan = plan

    def _count(self, came: _Came) -> None:
        for uuid, event, data in came.events:
            self._counts[uuid, event] += 1
            if event == XID:
                self._last_xid[uuid] = data if data <= LAST_XID.high else NAN


class _Register:
    """Asks a GPU for all events that it has."""

    def __init__(self, nvml: Nvml, device: Device, events: Any) -> None:
        self._nvml = nvml
        self._handle = device.handle
        self._set = events

    def __call__(self) -> int | None:
        nvml, known = self._nvml, sum(EVENTS)
        try:
            mask = nvml.nvmlDeviceGetSupportedEventTypes(self._handle) & known
            nvml.nvmlDeviceRegisterEvents(self._handle, mask, self._set)
        except Exception as e:
            return 0 if is_absent(e) else None
        return mask


class _Came:
    """Events: a GPU's UUID, the kind, and what goes with it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int]] = []
        self.error: Exception | None = None


class _Drain:
    """Takes what events there are."""

    def __init__(self, nvml: Nvml, events: Any) -> None:
        self._nvml = nvml
        self._set = events

    def __call__(self) -> _Came:
        came = _Came()
        nvml = self._nvml
        try:
            for _ in range(MOST):
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
                uuid = as_text(nvml.nvmlDeviceGetUUID(event.device))
                came.events.append((uuid, int(event.eventType), int(event.eventData)))
        except Exception as e:
            if code_of(e) != TIMEOUT:
                came.error = e
        return came


def collector(session: Session) -> Collector:
    """Return the collector."""
    return Collector("gpu_events", (GpuEvents(session),))
