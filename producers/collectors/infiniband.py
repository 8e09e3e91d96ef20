"""InfiniBand and RoCE ports: /sys/class/infiniband.

Kernel: Documentation/ABI/stable/sysfs-class-infiniband; drivers/infiniband/core/sysfs.c. A port is
called ``mlx5_0/1``. Every file below `counters` is a question to the card's firmware, tens of
microseconds each, so that only the data counters are read at every tick.

- `port_xmit_data` and `port_rcv_data` count words of 4 bytes, here and below `counters_ext`; the
  channels are in bytes.
- Counters of cards without the extended ones stay at their highest number when they are full, 4 to
  32 bits: nothing is known then.
- `port_xmit_wait` counts ticks in which there was data to send and the other side had no room. How
  long a tick is depends on the card, so it stays a rate of ticks.
- `hw_counters` are each driver's own. The driver asks the card for all of them at once.
- A file that says ``N/A (no PMA)`` is no channel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from producers.parsing import snake_case
from producers.source import EVERY_TICK, SECOND_NS, TEN_SECONDS_NS, Collector
from producers.tree import FileTree, TreeDraft, whole_number
from schemas.records import Channel, Kind, Subsystem

PATH = "sys/class/infiniband"

_NAN = float("nan")
_WORD_BYTES = 4
_GIGABIT = 1e9 / 8

DATA = {
    "counters_ext/port_xmit_data_64": "xmit_bytes",
    "counters_ext/port_rcv_data_64": "rcv_bytes",
    "counters/port_xmit_data": "xmit_bytes",
    "counters/port_rcv_data": "rcv_bytes",
}
"""Data by file; of two with one metric the first is taken."""

COUNTERS = {
    "counters_ext/port_xmit_packets_64": ("xmit_packets", 32),
    "counters_ext/port_rcv_packets_64": ("rcv_packets", 32),
    "counters_ext/port_unicast_xmit_packets": ("unicast_xmit_packets", 64),
    "counters_ext/port_unicast_rcv_packets": ("unicast_rcv_packets", 64),
    "counters_ext/port_multicast_xmit_packets": ("multicast_xmit_packets", 64),
    "counters_ext/port_multicast_rcv_packets": ("multicast_rcv_packets", 64),
    "counters/port_xmit_packets": ("xmit_packets", 32),
    "counters/port_rcv_packets": ("rcv_packets", 32),
    "counters/unicast_xmit_packets": ("unicast_xmit_packets", 64),
    "counters/unicast_rcv_packets": ("unicast_rcv_packets", 64),
    "counters/multicast_xmit_packets": ("multicast_xmit_packets", 64),
    "counters/multicast_rcv_packets": ("multicast_rcv_packets", 64),
    "counters/port_xmit_wait": ("xmit_wait", 32),
    "counters/port_xmit_discards": ("xmit_discards", 16),
    "counters/port_rcv_discards": ("rcv_discards", 16),
    "counters/port_rcv_errors": ("rcv_errors", 16),
    "counters/port_rcv_remote_physical_errors": ("rcv_remote_physical_errors", 16),
    "counters/port_rcv_switch_relay_errors": ("rcv_switch_relay_errors", 16),
    "counters/symbol_error": ("symbol_error", 16),
    "counters/VL15_dropped": ("vl15_dropped", 16),
    "counters/port_xmit_constraint_errors": ("xmit_constraint_errors", 8),
    "counters/port_rcv_constraint_errors": ("rcv_constraint_errors", 8),
    "counters/link_downed": ("link_downed", 8),
    "counters/link_error_recovery": ("link_error_recovery", 8),
    "counters/local_link_integrity_errors": ("local_link_integrity_errors", 4),
    "counters/excessive_buffer_overrun_errors": ("excessive_buffer_overrun_errors", 4),
}
"""Metric by file, and the bits that the InfiniBand specification gives it (PortCounters).

Files with one metric stand with the same bits, as of one metric the first that is there is taken.
"""

_BITS = sorted({bits for _, bits in COUNTERS.values()})

STATE = {"state": ("state", "state"), "phys_state": ("phys_state", "state")}
"""1 down, 2 initialising, 3 armed, 4 active; and 2 polling, 3 disabled, 5 up, 6 recovering."""

_NO_COUNTERS = {"lifespan"}
"""How long the driver keeps hardware counters before it asks for them again, milliseconds."""

_LEVELS = ("active_", "max_", "num_active_")
"""How hardware counters begin that go up and down."""


def counter_number(content: bytes) -> float:
    """Return the number that is all of a text; NaN for ``N/A (no PMA)``."""
    return _NAN if content.startswith(b"N/A") else whole_number(content)


def saturating(bits: int) -> Callable[[bytes], float]:
    """Return a function from text to number, NaN for a counter of so many bits that is full."""
    full = 2**bits - 1

    def number(content: bytes) -> float:
        value = counter_number(content)
        return _NAN if value == full else value

    return number


def state_number(content: bytes) -> float:
    """Return 4 for ``4: ACTIVE``."""
    return whole_number(content.partition(b":")[0])


def rate_number(content: bytes) -> float:
    """Return 400 for ``400 Gb/sec (4X NDR)``.

    Raises
    ------
    ValueError
        It is something else.
    """
    rate, _, unit = content.strip().partition(b" ")
    if not unit.startswith(b"Gb/sec") or not rate.replace(b".", b"", 1).isdigit():
        raise ValueError(f"{content[:40]!r} is no rate")
    return float(rate)


def unit_of(name: str) -> str:
    """Return the unit of a driver's counter, by its name: bytes, packets, or just times."""
    words = set(name.split("_"))
    if "bytes" in words:
        return "B/s"
    return "packets/s" if words & {"packets", "pkts"} else "/s"


def _ports(tree: TreeDraft) -> list[tuple[str, str]]:
    """Return the device and the path of each port."""
    return [
        (f"{card}/{port}", f"{PATH}/{card}/ports/{port}")
        for card in tree.names(PATH)
        for port in tree.names(f"{PATH}/{card}/ports")
    ]


def _channel(metric: str, device: str, unit: str, kind: Kind = Kind.RATE) -> Channel:
    return Channel(f"infiniband.{metric}", device, Subsystem.NETWORK, unit, kind)


def _known(tree: TreeDraft, channel: Channel) -> bool:
    return (channel.metric, channel.device) in tree.channels


def find_data(tree: TreeDraft) -> None:
    """Find how much each port sends and receives."""
    for device, path in _ports(tree):
        for file, metric in DATA.items():
            channel = _channel(metric, device, "B/s")
            at = None if _known(tree, channel) else tree.file(f"{path}/{file}")
            if at is not None:
                tree.channel(at, channel, scale=_WORD_BYTES)


def find_counters(tree: TreeDraft, *, bits: int) -> None:
    """Find packets and errors whose counters have so many bits."""
    for device, path in _ports(tree):
        for file, (metric, width) in COUNTERS.items():
            channel = _channel(metric, device, unit_of(metric))
            at = None
            if width == bits and not _known(tree, channel):
                at = tree.file(f"{path}/{file}")
            if at is not None:
                tree.channel(at, channel)


def find_state(tree: TreeDraft) -> None:
    """Find the state of each port and of its link, as the numbers that they have."""
    for device, path in _ports(tree):
        for file, (metric, unit) in STATE.items():
            at = tree.file(f"{path}/{file}")
            if at is not None:
                tree.channel(at, _channel(metric, device, unit, Kind.GAUGE))


def find_rate(tree: TreeDraft) -> None:
    """Find the rate of each port: a cable that is bad comes up with fewer lanes, or slower."""
    for device, path in _ports(tree):
        at = tree.file(f"{path}/rate")
        if at is not None:
            tree.channel(at, _channel("rate", device, "B/s", Kind.GAUGE), scale=_GIGABIT)


def find_hardware(tree: TreeDraft) -> None:
    """Find the counters of each driver's own, of ports and of whole cards."""
    cards = [(card, f"{PATH}/{card}") for card in tree.names(PATH)]
    for device, path in [*cards, *_ports(tree)]:
        for name in tree.names(f"{path}/hw_counters"):
            if name in _NO_COUNTERS:
                continue
            at = tree.file(f"{path}/hw_counters/{name}")
            if at is None:
                continue
            metric = snake_case(name)
            if metric.startswith(_LEVELS):
                channel = Channel(
                    f"infiniband_hw.{metric}", device, Subsystem.NETWORK, "count", Kind.GAUGE
                )
            else:
                channel = Channel(
                    f"infiniband_hw.{metric}",
                    device,
                    Subsystem.NETWORK,
                    unit_of(metric),
                    Kind.RATE,
                )
            tree.channel(at, channel)


_REMEDY = (
    "Without it traffic and errors of InfiniBand and RoCE are not seen. It is there when the "
    "card's RDMA driver is loaded; in a container, mount the host's /sys."
)


def _tree(
    find: Callable[[TreeDraft], None],
    *,
    period_ns: int = SECOND_NS,
    number: Callable[[bytes], float],
) -> FileTree:
    return FileTree(PATH, find, remedy=_REMEDY, period_ns=period_ns, number=number)


def collector() -> Collector:
    """Return a collector of the data of each port, at every tick."""
    tree = _tree(find_data, period_ns=EVERY_TICK, number=saturating(32))
    return Collector("infiniband", (tree,))


def port_collector() -> Collector:
    """Return a collector of packets, errors, state and rate of each port."""
    return Collector(
        "infiniband_port",
        (
            *(_tree(partial(find_counters, bits=b), number=saturating(b)) for b in _BITS),
            _tree(find_state, number=state_number),
            _tree(find_rate, period_ns=TEN_SECONDS_NS, number=rate_number),
        ),
    )


def hardware_collector() -> Collector:
    """Return a collector of the counters that each driver has of its own."""
    return Collector("infiniband_hw", (_tree(find_hardware, number=counter_number),))
