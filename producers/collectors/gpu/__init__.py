"""GPUs over NVML: one file for each group of metrics, all over one `Session`.

Subsystem GPU; the device of a channel is the GPU's UUID, of a MIG device ``<gpu>/<mig>``, of an
NVLink ``<gpu>/link<n>``. Files in the order of reading:

======== ==============================================================================
basics   utilisation, temperatures, fan, performance state, processes
power    power, energy, limit
memory   used, free, reserved; BAR1
clocks   clocks, and why they are not higher
pcie     bytes, errors, link
nvlink   bytes, errors, state of every link
gpm      SM, tensor and memory activity of Hopper and later
codec    encoder, decoder, JPEG, optical flow
ecc      memory errors, remapped rows, retired pages
events   XID and other events from NVML
xid      XID from the kernel's log
======== ==============================================================================
"""

from __future__ import annotations

from collections.abc import Callable

from producers.collectors.gpu import (
    basics,
    clocks,
    codec,
    ecc,
    events,
    gpm,
    memory,
    nvlink,
    pcie,
    power,
    xid,
)
from producers.collectors.gpu.session import Session
from producers.source import Collector, Options

COLLECTORS: tuple[Callable[[Session], Collector], ...] = (
    basics.collector,
    power.collector,
    memory.collector,
    clocks.collector,
    pcie.collector,
    nvlink.collector,
    gpm.collector,
    codec.collector,
    ecc.collector,
    events.collector,
    xid.collector,
)
"""Each makes a collector that shares the session with the others."""


def collectors(options: Options) -> tuple[Collector, ...]:  # noqa: ARG001
    """Return a collector for each group of metrics, over one session."""
    return over(Session())


def over(session: Session) -> tuple[Collector, ...]:
    """Return a collector for each group of metrics, over this session."""
    return tuple(make(session) for make in COLLECTORS)
