"""InfiniBand and RoCE ports: every file of other machines' trees, and what goes wrong there."""

from __future__ import annotations

import math
from functools import cache

import pytest

from producers.collectors.infiniband import rate_number, saturating, state_number
from producers.reading import MemoryReader, Unreadable
from producers.source import SECOND_NS
from tests.producers.archives import FIXTURES, archive
from tests.producers.kernel import Host

ROOT = "sys/class/infiniband"
NAMES = ("infiniband", "infiniband_port", "infiniband_hw")


@cache
def h100() -> dict[str, bytes]:
    """Return the tree of a machine with eight InfiniBand ports and a RoCE bond."""
    root = FIXTURES / "gpud_infiniband_h100" / "sys-class-infiniband-h100.0"
    if not root.exists():
        pytest.skip(f"{root} is not here: see shared/data")
    found = (p for p in root.rglob("*") if p.is_file())
    return {f"{ROOT}/{p.relative_to(root).as_posix()}": p.read_bytes() for p in found}


def machine(name: str) -> dict[str, bytes]:
    if name == "h100":
        return h100()
    return {p: t for p, t in archive(name).items() if p.startswith(f"{ROOT}/")}


FULL = {"excessive_buffer_overrun_errors": 15, "link_downed": 255, "port_xmit_wait": 2**32 - 1}
"""Where some of these machines' counters have stopped, so that they say nothing any more."""


def is_counter(path: str) -> bool:
    folder, name = path.split("/")[-2:]
    return "counters" in folder and name != "lifespan"


def number(text: bytes) -> int | None:
    return int(text) if text.strip().isdigit() else None


def added(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files a second later: each counter has grown by another number."""
    grown = dict(files)
    for i, (path, text) in enumerate(sorted(files.items()), start=1):
        value = number(text)
        if is_counter(path) and value is not None:
            grown[path] = b"%d\n" % (value + 3 * i)
    return grown


def expected(first: dict[str, bytes], second: dict[str, bytes]) -> dict[str, float]:
    """Say by file name alone what has to come out, a second between the two."""
    found: dict[str, float] = {}
    # The wider counters take the names of the others.
    for path in sorted(first, key=lambda p: "counters_ext" not in p):
        parts = path.removeprefix(f"{ROOT}/").split("/")
        card = parts[0]
        device = f"{card}/{parts[2]}" if parts[1:2] == ["ports"] else card
        name, folder = parts[-1], parts[-2]
        before, after = number(first[path]), number(second[path])
        if name in {"state", "phys_state"}:
            found[f"infiniband.{name}[{device}]"] = int(second[path].split(b":")[0])
        elif name == "rate":
            found[f"infiniband.rate[{device}]"] = float(second[path].split()[0]) * 125e6
        elif is_counter(path) and before is not None and after is not None:
            growth = after - before
            if before == FULL.get(name):
                continue
            short = name.lower().removeprefix("port_").removesuffix("_64")
            if folder == "hw_counters":
                label = f"infiniband_hw.{name}[{device}]"
            elif short in {"xmit_data", "rcv_data"}:
                label, growth = f"infiniband.{short.replace('data', 'bytes')}[{device}]", 4 * growth
            else:
                label = f"infiniband.{short}[{device}]"
            found.setdefault(label, growth)
    return found


@pytest.mark.parametrize("name", ["h100", "node_exporter/sys", "procfs"])
def test_every_file_of_other_machines(name: str) -> None:
    first = machine(name)
    assert len(first) > 50
    second = added(first)
    host = Host(*NAMES)
    host.read(first, SECOND_NS)
    values = host.read(second, SECOND_NS)
    assert values == pytest.approx(expected(first, second), rel=1e-6)
    assert host.failures == host.bad_fields == 0


def test_the_ports_of_an_h100_machine() -> None:
    """Spot checks, read from the files by eye."""
    host = Host(*NAMES)
    values = host.read(h100(), SECOND_NS)
    ports = {c.device for c in host.group.channels}
    assert ports == {*(f"mlx5_{n}/1" for n in (0, 1, 4, 5, 6, 7, 8, 9)), "mlx5_bond_0/1"}
    assert values["infiniband.state[mlx5_0/1]"] == 4
    assert values["infiniband.phys_state[mlx5_9/1]"] == 5
    assert values["infiniband.rate[mlx5_0/1]"] == pytest.approx(50e9, rel=1e-6)
    assert values["infiniband.rate[mlx5_bond_0/1]"] == pytest.approx(25e9, rel=1e-6)
    kinds = {c.metric for c in host.group.channels}
    # 21 counters of which one is full everywhere, 25 of the driver's own without its lifespan,
    # state, phys_state and rate; and one port has lost its link 255 times.
    assert len(kinds) == 20 + 25 + 3
    assert len(host.group.channels) == 9 * len(kinds) - 1
    assert "infiniband.link_downed[mlx5_1/1]" not in values
    units = {c.metric: c.unit for c in host.group.channels}
    assert units["infiniband.xmit_bytes"] == "B/s"
    assert units["infiniband.rcv_packets"] == "packets/s"
    assert units["infiniband.symbol_error"] == "/s"
    assert units["infiniband.rate"] == "B/s"


def test_what_says_not_applicable_is_no_channel_and_no_error() -> None:
    """The iWARP card of node_exporter's machine has no counters at all."""
    files = machine("node_exporter/sys")
    absent = {p for p, t in files.items() if t.startswith(b"N/A")}
    assert absent
    assert all(p.startswith(f"{ROOT}/i40iw0/") for p in absent)
    host = Host(*NAMES)
    host.read(files, SECOND_NS)
    values = host.read(added(files), SECOND_NS)
    assert {label for label in values if "[i40iw0/1]" in label} == {
        "infiniband.state[i40iw0/1]",
        "infiniband.phys_state[i40iw0/1]",
        "infiniband.rate[i40iw0/1]",
    }
    # Mellanox's port 2 has the wider counters too, and none of its errors.
    assert "infiniband.symbol_error[mlx4_0/2]" not in values


COUNTER = f"{ROOT}/mlx5_0/ports/1/counters/"


def port(**counters: str) -> dict[str, bytes]:
    state = f"{ROOT}/mlx5_0/ports/1/state"
    return {state: b"4: ACTIVE\n"} | {
        COUNTER + name: f"{text}\n".encode() for name, text in counters.items()
    }


def test_a_counter_that_says_not_applicable_for_a_while() -> None:
    host = Host("infiniband_port")
    host.read(port(symbol_error="3", link_downed="1"), SECOND_NS)
    channels = host.group.channels
    for n in range(8):
        values = host.read(port(symbol_error="N/A (no PMA)", link_downed=str(1 + n)), SECOND_NS)
        assert math.isnan(values["infiniband.symbol_error[mlx5_0/1]"])
    assert values["infiniband.link_downed[mlx5_0/1]"] == 1
    assert host.group.channels is channels
    assert host.bad_fields == host.failures == 0


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("port_xmit_data", 2**32 - 1),
        ("port_rcv_packets", 2**32 - 1),
        ("port_xmit_wait", 2**32 - 1),
        ("symbol_error", 65535),
        ("port_rcv_errors", 65535),
        ("link_downed", 255),
        ("local_link_integrity_errors", 15),
    ],
)
def test_a_counter_that_is_full_says_nothing(name: str, full: int) -> None:
    """It stays there: a rate of 0 would say that nothing happens."""
    host = Host(*NAMES)
    host.read(port(**{name: str(full - 10)}), SECOND_NS)
    grown = host.read(port(**{name: str(full - 8)}), SECOND_NS)
    label = next(label for label in grown if "state" not in label)
    assert grown[label] == (8 if "data" in name else 2)
    for _ in range(3):
        assert math.isnan(host.read(port(**{name: str(full)}), SECOND_NS)[label])
    assert host.bad_fields == 0
    fresh = Host(*NAMES)
    fresh.read(port(**{name: str(full)}), SECOND_NS)
    assert label not in fresh.read(port(**{name: str(full)}), SECOND_NS)


def test_data_of_sixty_four_bits() -> None:
    """No wrap and no limit at 32 bits, and a reset is a gap."""
    host = Host("infiniband")
    seen = [
        host.read(port(port_rcv_data=str(n)), SECOND_NS)["infiniband.rcv_bytes[mlx5_0/1]"]
        for n in (2**32 - 10, 2**32 + 90, 2**40, 5, 105, 0, 305)
    ]
    assert seen[1:3] == [400, pytest.approx(4 * (2**40 - 2**32 - 90))]
    assert math.isnan(seen[3])
    assert seen[4] == 400
    assert math.isnan(seen[5])
    assert seen[6] == 400


@pytest.mark.parametrize("text", ["oops", "-7", "", "9" * 400, "12 13"])
def test_a_counter_that_is_garbage_costs_itself(text: str) -> None:
    host = Host(*NAMES)
    host.read(port(symbol_error="3", port_xmit_discards="1"), SECOND_NS)
    values = host.read(port(symbol_error=text, port_xmit_discards="4"), SECOND_NS)
    assert math.isnan(values["infiniband.symbol_error[mlx5_0/1]"])
    assert values["infiniband.xmit_discards[mlx5_0/1]"] == 3
    assert host.bad_fields == 1
    values = host.read(port(symbol_error="7", port_xmit_discards="4"), SECOND_NS)
    assert values["infiniband.symbol_error[mlx5_0/1]"] == 2


class Off(MemoryReader):
    """Files of which some refuse to be read, as those of a port that is off."""

    refused: frozenset[str] = frozenset()

    def small(self, path: str) -> bytes | Unreadable:
        if path in self.refused:
            return Unreadable(path, "Invalid argument", absent=False)
        return super().small(path)


def test_a_port_that_goes_down_and_comes_back_keeps_the_layout() -> None:
    host = Host(*NAMES)
    reader = Off()
    host.reader = reader
    host.group._reader = reader
    files = dict(h100())
    host.read(files, SECOND_NS)
    channels = host.group.channels
    below = f"{ROOT}/mlx5_4/ports/1"
    down = files | {f"{below}/state": b"1: DOWN\n", f"{below}/phys_state": b"3: Disabled\n"}
    reader.refused = frozenset(p for p in files if p.startswith(f"{below}/hw_counters"))
    for _ in range(15):
        values = host.read(down, SECOND_NS)
        assert values["infiniband.state[mlx5_4/1]"] == 1
        assert values["infiniband.phys_state[mlx5_4/1]"] == 3
        assert math.isnan(values["infiniband_hw.out_of_buffer[mlx5_4/1]"])
        assert values["infiniband.state[mlx5_5/1]"] == 4
    reader.refused = frozenset()
    for _ in range(2):
        values = host.read(added(files), SECOND_NS)
    assert not any(math.isnan(v) for v in values.values())
    assert host.group.channels is channels
    assert host.failures == host.bad_fields == 0


def test_a_card_that_is_taken_out_and_another_that_comes() -> None:
    """A new layout, and no spike: others go on as they were."""
    files = h100()
    host = Host(*NAMES)
    host.read(files, SECOND_NS)
    without = {p: t for p, t in files.items() if "/mlx5_4/" not in p}
    for _ in range(8):
        values = host.read(without, SECOND_NS)
        assert values["infiniband.xmit_bytes[mlx5_0/1]"] == 0
    assert "mlx5_4/1" not in {c.device for c in host.group.channels}
    for _ in range(8):
        values = host.read(files, SECOND_NS)
        assert values["infiniband.xmit_bytes[mlx5_0/1]"] == 0
        back = values.get("infiniband.xmit_bytes[mlx5_4/1]", math.nan)
        assert math.isnan(back) or back == 0
    assert values["infiniband.xmit_bytes[mlx5_4/1]"] == 0
    assert host.failures == host.bad_fields == 0


def test_counters_of_a_whole_card_and_levels() -> None:
    """Drivers of iWARP and of other clouds count by card, or count things that are there now."""
    files = {
        f"{ROOT}/rocep1s0/hw_counters/ip4InOctets": "%d\n",
        f"{ROOT}/rocep1s0/hw_counters/tx_bytes": "%d0\n",
        f"{ROOT}/rocep1s0/ports/1/hw_counters/active_qps": "%d\n",
        f"{ROOT}/rocep1s0/ports/1/hw_counters/lifespan": "1%d\n",
    }
    host = Host("infiniband_hw")
    for n in (3, 7):
        values = host.read({p: (t % n).encode() for p, t in files.items()}, SECOND_NS)
    assert values == {
        "infiniband_hw.ip4in_octets[rocep1s0]": 4,
        "infiniband_hw.tx_bytes[rocep1s0]": 40,
        "infiniband_hw.active_qps[rocep1s0/1]": 7,
    }


def test_numbers_of_state_rate_and_full_counters() -> None:
    assert state_number(b"4: ACTIVE\n") == 4
    assert state_number(b"1: DOWN\n") == 1
    assert rate_number(b"400 Gb/sec (4X NDR)\n") == 400
    assert rate_number(b"2.5 Gb/sec (1X SDR)\n") == 2.5
    assert rate_number(b"56 Gb/sec\n") == 56
    for text in (b"", b"ACTIVE\n", b": ACTIVE\n", b"<unknown>\n"):
        with pytest.raises(ValueError, match="is no"):
            state_number(text)
    for text in (b"", b"fast\n", b"400\n", b"400 Mb/sec\n", b"4.0.0 Gb/sec\n", b"-4 Gb/sec\n"):
        with pytest.raises(ValueError, match="is no"):
            rate_number(text)
    assert saturating(8)(b"254\n") == 254
    assert math.isnan(saturating(8)(b"255\n"))
