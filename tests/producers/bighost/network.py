"""Network interfaces."""

from __future__ import annotations

from tests.producers.bighost.size import Size
from tests.producers.bighost.state import ZERO, Files, Number, counter, fixed

HEADER = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|"
    "bytes    packets errs drop fifo colls carrier compressed\n"
)
ERRORS = (
    *("rx_crc_errors", "rx_length_errors", "rx_missed_errors", "rx_over_errors"),
    *("tx_aborted_errors", "tx_heartbeat_errors", "tx_window_errors", "rx_nohandler"),
)


def add(files: Files, size: Size) -> None:
    """Add the files."""
    ethernet = {i: 200_000 for _, i, _ in size.adapters[size.infiniband :]}
    infiniband = {i: 400_000 for _, i, _ in size.adapters[: size.infiniband]}
    speeds = {"lo": 0, "eno1": 1000, **ethernet, **infiniband, "docker0": -1}
    lines = [HEADER]
    columns = "%7d %7d %4d %4d %4d %5d %10d %9d %8d %7d %4d %4d %4d %5d %7d %10d"
    numbers: list[Number] = []
    for index, (name, speed) in enumerate(speeds.items()):
        lines.append(f"{name:>6}: {columns}\n")
        packets = 4000.0 if name == "lo" else max(1.0, speed * 0.4)
        size_b = 120.0 if name in {"lo", "docker0"} else 4100.0
        mine = {
            "rx_bytes": counter(size_b * packets),
            "rx_packets": counter(packets),
            "rx_errors": ZERO,
            "rx_dropped": counter(packets / 1e6),
            "rx_fifo_errors": ZERO,
            "rx_frame_errors": ZERO,
            "rx_compressed": ZERO,
            "multicast": counter(0.5),
            "tx_bytes": counter(0.9 * size_b * packets),
            "tx_packets": counter(0.9 * packets),
            "tx_errors": ZERO,
            "tx_dropped": ZERO,
            "tx_fifo_errors": ZERO,
            "collisions": ZERO,
            "tx_carrier_errors": ZERO,
            "tx_compressed": ZERO,
        }
        numbers += mine.values()
        _interface(files, name, index + 1, speed, mine)
    files.add("proc/net/dev", "".join(lines), *numbers)


def _interface(files: Files, name: str, index: int, speed: int, mine: dict[str, Number]) -> None:
    root = f"sys/class/net/{name}"
    kinds = {"lo": 772} | {f"ib{n}": 32 for n in range(16)}
    texts = {
        "address": f"02:00:00:00:00:{index:02x}",
        "ifindex": str(index),
        "iflink": str(index),
        "operstate": "unknown" if name == "lo" else "down" if speed < 0 else "up",
        "mtu": "65536" if name == "lo" else "9000",
        "type": str(kinds.get(name, 1)),
        "flags": "0x9" if name == "lo" else "0x1003",
        "tx_queue_len": "1000",
        "dev_id": "0x0",
        "carrier": "0" if speed < 0 else "1",
        "dormant": "0",
        "link_mode": "0",
        "addr_assign_type": "0",
        "addr_len": "6",
        "name_assign_type": "4",
        "proto_down": "0",
        "dev_port": "0",
        "gro_flush_timeout": "0",
        "netdev_group": "0",
    }
    for label, text in texts.items():
        files.text(f"{root}/{label}", text)
    if name != "lo":  # reading it of `lo` is an error
        files.text(f"{root}/speed", str(speed))
        files.text(f"{root}/duplex", "unknown" if speed < 0 else "full")
    for label, changes in (("carrier_changes", 6), ("carrier_up_count", 3)):
        files.one(f"{root}/{label}", ZERO if name == "lo" else Number(changes, 0.001))
    files.one(f"{root}/carrier_down_count", ZERO if name == "lo" else fixed(3))
    for label, number in {**mine, **dict.fromkeys(ERRORS, ZERO)}.items():
        files.one(f"{root}/statistics/{label}", number)
