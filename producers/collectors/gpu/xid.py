"""XID errors as the driver writes them to the kernel's log: also those that NVML never reports.

A GPU that fell off its bus (79), or whose firmware stopped answering (119), takes NVML with it; the
kernel still says so: ``NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.``
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from producers.collectors import kmsg
from producers.collectors.gpu.session import Session
from producers.collectors.gpu.source import NOWHERE, REMEDY
from producers.reading import Reader
from producers.source import EVERY_TICK, Collector, Field, Plan
from schemas.records import Channel, Kind, Subsystem

MOST_GPUS = 64
"""A log that names more has something else wrong with it."""

_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.\d)?\): (\d{1,6})\b", re.I
)


def parse(text: str) -> tuple[str, int] | None:
    """Return bus id (``0000:3b:00``) and code of a message that reports an XID."""
    found = _XID.search(text)
    return (_slot(found[1]), int(found[2])) if found else None


class LoggedXids:
    """A source of XIDs, by GPU: how many, and the newest one's code."""

    period_ns = EVERY_TICK

    def __init__(self, session: Session, tail: kmsg.Tail) -> None:
        self.path = kmsg.PATH
        self.problem = ""
        self.plan = Plan()
        self._session = session
        self._tail = tail
        self._counts: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._seen: tuple[object, object] | None = None
        self._uuids: dict[str, str] = {}
        self._slots: tuple[str, ...] = ()
        self._plan_of: tuple[tuple[str, ...], dict[str, str]] | None = None

    @property
    def bad_fields(self) -> int:
        """Records that were none."""
        return self._tail.bad

    @property
    def remedy(self) -> str:
        """Where there are GPUs, that of the log; else that of all that asks GPUs."""
        return REMEDY if self.path == NOWHERE else kmsg.REMEDY

    @property
    def shared(self) -> Session:
        """The session, whose devices come and go."""
        return self._session

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        """Return how many XIDs each GPU had since the log was opened, and the newest code."""
        session = self._session
        session.ready(reader, mono_ns)
        if (
            self._seen is None
            or session.devices is not self._seen[0]
            or (session.listed != self._seen[1])
        ):
            self._seen = (session.devices, session.listed)
            self._look()
        if not self._slots:
            # The log may well be there: what lacks is what all GPU metrics lack.
            self.path, self.problem = NOWHERE, f"{NOWHERE}: {session.problem}"
            return self.plan.blank
        self.path = kmsg.PATH
        for message in self._tail.read(mono_ns):
            self._count(message.text)
        self.problem = self._tail.problem
        if self._tail.is_open and self._plan_of != (self._slots, self._uuids):
            self._plan_of = (self._slots, self._uuids)
            self.plan = _plan([self._uuids.get(slot, slot) for slot in self._slots])
        if self.problem:
            return self.plan.blank
        counts = [self._counts[slot] for slot in self._slots]
        return [*counts, *(self._last.get(slot, float("nan")) for slot in self._slots)]

    def _look(self) -> None:
        """Find the GPUs: those that NVML has, those of the driver, and those that had an XID."""
        self._uuids = {_slot(bus_id): uuid for bus_id, uuid in self._session.uuids.items()}
        there = [_slot(name) for name in self._session.listed or ()]
        had = [slot for slot in self._slots if self._counts[slot]]
        self._slots = tuple(dict.fromkeys((*self._uuids, *there, *had)))

    def _count(self, text: str) -> None:
        xid = parse(text)
        if xid is None:
            return
        slot, code = xid
        if slot not in self._slots:
            if len(self._slots) == MOST_GPUS:
                return
            self._slots = (*self._slots, slot)
        self._counts[slot] += 1
        self._last[slot] = code


def _plan(labels: Sequence[str]) -> Plan:
    channels = (
        *(Channel("gpu.xid_logged", n, Subsystem.GPU, "events/s", Kind.RATE) for n in labels),
        *(Channel("gpu.last_xid_logged", n, Subsystem.GPU, "code", Kind.GAUGE) for n in labels),
    )
    fields = tuple(Field(c.label, counter=c.kind is Kind.RATE) for c in channels)
    return Plan(fields, channels, tuple(range(len(fields))))


def _slot(bus_id: str) -> str:
    """Return a bus id as the log writes it: four digits of domain, and no function."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


def collector(session: Session, tail: kmsg.Tail | None = None) -> Collector:
    """Return the collector."""
    return Collector("gpu_xid", (LoggedXids(session, kmsg.Tail() if tail is None else tail),))
