"""Every source of numbers. To add one, see `producers.collector`, then add a line here."""

from __future__ import annotations

from collections.abc import Callable

from producers.collector import Collector
from producers.collectors.cpu import Cpu
from producers.collectors.interrupts import Interrupts
from producers.collectors.memory import Meminfo, Vmstat
from producers.collectors.network import Interfaces, Netstat, Snmp
from producers.collectors.pressure import Pressure
from producers.collectors.softirqs import Softirqs
from producers.collectors.storage import Disks

ALL: tuple[Callable[[], Collector], ...] = (
    Cpu,
    Interrupts,
    Softirqs,
    Meminfo,
    Vmstat,
    Pressure,
    Interfaces,
    Snmp,
    Netstat,
    Disks,
)


def new_collectors() -> list[Collector]:
    """Return one of each, in the order of the table."""
    return [new() for new in ALL]
