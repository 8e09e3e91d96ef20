"""The page of reference, `producers/METRICS.md`: every kind of metric that the agent can tell.

No machine has everything, so it is read off several that are made up: a host of two sockets, 48
cores and four H100s; one with Lustre, RAID and what else stands in `tests/fixtures/kernel`; an
older GPU that knows fewer calls; an Intel and an AMD processor; a driver's network card. It says
the same on every machine, and a test compares it. To write it anew::

    python -m tests.producers.metrics_page > producers/METRICS.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import cast

import numpy as np
from numpy.typing import NDArray

from producers.collectors import ALL, frequency, gpu, kmsg, perf
from producers.collectors.agent import CollectorCosts, OwnCost
from producers.collectors.agent import collector as own_collector
from producers.collectors.ethtool import Statistics
from producers.collectors.gpu.ecc import RETIRED
from producers.collectors.gpu.lanes import Inline
from producers.collectors.gpu.nvml import Nvml
from producers.collectors.gpu.pcie import BYTES
from producers.collectors.gpu.power import TOTAL_ENERGY
from producers.collectors.gpu.session import Session
from producers.group import Group
from producers.perf.catalog import MODALIAS, PMUS
from producers.reading import MemoryReader
from producers.reference import as_markdown, reference
from producers.source import Collector, Options
from tests.producers.bighost import BigHost, Size
from tests.producers.fake_nvml import FakeNvml
from tests.producers.fake_perf import FakeKernel
from tests.producers.gpus import FakeLog
from tests.producers.kernel import FIRST, SECOND

INTRO = """\
# What the agent tells

Every kind of metric, with the unit and the kind in which it is sent, how often it is read when
the agent samples every 100 ms, the collector that reads it, and the file below the root or the
call it comes from. Made from the collectors themselves over made-up hosts that between them have
everything; `reveal-agent list --all` prints the same of your host, with how many channels each
has there, and `reveal-agent doctor` says what is absent and why.

- Between two readings a channel keeps its value. An interval longer than 100 ms, many cores
  and the budget for the agent's own CPU make some readings rarer; `agent.collector_age` and
  `agent.collector_stretch` say so.
- `rate`: what a counter grew by, per second; `gauge`: the value as it is. What is not known at an
  instant is NaN, what a host lacks has no channel.
- `ethtool.*` are the statistics of the card's driver, chosen by name, so yours may be others.
- The subsystem `agent` is the agent's own cost. It is recorded and never scored.
"""

SECOND_NS = 1_000_000_000
NOT_SUPPORTED = 3
CPUS = "sys/devices/system/cpu"
PROCESSORS = (
    b"cpu:type:x86,ven0000fam0006mod0055:feature:,0000\n",
    b"cpu:type:x86,ven0002fam0019mod0011:feature:,0000\n",
)
CARD = [
    "rx_out_of_buffer",
    "rx_discards_phy",
    "tx_discards_phy",
    "tx_errors_phy",
    "rx_crc_errors_phy",
    "link_down_events_phy",
    "rx_pause_ctrl_phy",
    "tx_pause_ctrl_phy",
    "rx_prio3_pause",
    "tx_queue_dropped",
    "rx_symbol_err_phy",
    "outbound_pci_stalled_wr",
]


class _Anything(defaultdict[tuple[int, int], int]):
    """A processor that counts whatever it is asked to."""

    def __contains__(self, event: object) -> bool:
        return True


class _Card:
    """A network card whose driver has statistics."""

    def count(self, interface: str) -> int:  # noqa: ARG002
        return len(CARD)

    def names(self, interface: str, count: int) -> list[str]:  # noqa: ARG002
        return CARD

    def values(self, interface: str, count: int) -> NDArray[np.uint64]:  # noqa: ARG002
        return np.ones(count, np.uint64)

    def close(self) -> None:
        pass


def every_collector() -> Iterator[Collector]:
    """Return collectors that have read, and so know what they tell."""
    yield from _over_files()
    yield from _over_gpus(FakeNvml.h100s(4))
    yield from _over_gpus(_older())
    for processor in PROCESSORS:
        yield from _over_events(processor)
    scaling = {f"{CPUS}/cpu{n}/cpufreq/scaling_cur_freq": b"2000000\n" for n in range(2)}
    files = {f"{CPUS}/online": b"0-1\n", **scaling}
    yield from _read(frequency.collectors(Options(), FakeKernel()), [files])


def _older() -> FakeNvml:
    """Return a GPU that retires pages, and has energy and bytes in calls of their own."""
    fake = FakeNvml.h100s(1)
    uuid = fake.tables[0].uuid
    for number in (TOTAL_ENERGY, *(number for _, number, _ in BYTES)):
        fake.give_field(uuid, number, 0, NOT_SUPPORTED, 0)
    for _, number, _ in RETIRED:
        fake.give_field(uuid, number, 0, 0, 0)
    fake.fail("nvmlDeviceGetRemappedRows", NOT_SUPPORTED)
    fake.give("nvmlDeviceGetPcieThroughput", 1)
    return fake


def _over_files() -> Iterator[Collector]:
    host = BigHost(Size(cores=48))
    for readings in ([host.files(), host.files()], [FIRST, SECOND]):
        collectors = [*(make() for make in ALL), own_collector(OwnCost(), CollectorCosts(["cpu"]))]
        yield from _read(collectors, readings)
    card = {"sys/class/net/eth0/device/vendor": b"0x15b3\n"}
    log = kmsg.KernelLog(kmsg.Tail(FakeLog))
    yield from _read(
        [Collector("ethtool", [Statistics(_Card())]), Collector("kmsg", [log])], [card]
    )


def _over_gpus(fake: FakeNvml) -> Iterable[Collector]:
    collectors = gpu.over(Session(lambda: cast(Nvml, fake), lanes=Inline(), clock_ns=fake.clock_ns))
    return _read(collectors, [{}] * 4)


def _over_events(processor: bytes) -> Iterator[Collector]:
    files = {MODALIAS: processor, f"{CPUS}/online": b"0-1\n", f"{PMUS}/msr/type": b"9\n"}
    files |= {f"{PMUS}/amd_l3/{name}": text for name, text in AMD_L3.items()}
    files |= {
        f"{PMUS}/msr/events/{name}": f"event=0x{code:02x}\n".encode()
        for name, code in (("tsc", 0), ("aperf", 1), ("mperf", 2), ("smi", 4))
    }
    kernel = FakeKernel(pace=_Anything(int), counters=99)
    for perf_setting in ("total", "per-core"):
        options = Options(perf_setting)
        yield from _read(
            [*perf.collectors(options, kernel), *frequency.collectors(options, kernel)], [files]
        )


AMD_L3 = {"type": b"12\n", "cpumask": b"0\n"}


def _read(collectors: Iterable[Collector], readings: list[dict[str, bytes]]) -> list[Collector]:
    collectors = list(collectors)
    reader = MemoryReader()
    group = Group(collectors, reader)
    for second, files in enumerate(readings, start=1):
        reader.files = files
        group.collect(second * SECOND_NS, whole=True)
    failures = {r for stats in group.stats.values() for r in stats.failures}
    if failures:
        raise RuntimeError(f"the page would lack what failed: {failures}")
    return collectors


def page() -> str:
    """Return the page."""
    return INTRO + as_markdown(reference(every_collector()))


if __name__ == "__main__":
    sys.stdout.write(page())
