"""Protocols, sockets, softnet and the network's tables, over other machines' files and faults."""

from __future__ import annotations

import math
import re

import pytest

from producers.collectors.protocols import without_types
from producers.parsing import snake_case
from producers.source import SECOND_NS
from tests.producers.archives import archive
from tests.producers.kernel import FIRST, Host

NAMES = ("network", "network_slow", "conntrack")
NET = "proc/net/"


def machine(name: str) -> dict[str, bytes]:
    return {p: t for p, t in archive(name).items() if p.startswith((NET, "proc/sys/net/"))}


def see(host: Host, **files: bytes) -> dict[str, float]:
    """Read these files of proc/net, a second after those before."""
    return host.read({NET + name: text for name, text in files.items()}, SECOND_NS)


def by_header(text: str) -> dict[str, int]:
    """Read snmp or netstat naively: ``TcpExt.TCPTimeouts`` and its number."""
    lines = [line.split() for line in text.splitlines()]
    return {
        f"{names[0][:-1]}.{name}": int(number)
        for names, numbers in zip(lines[::2], lines[1::2], strict=True)
        for name, number in zip(names[1:], numbers[1:], strict=True)
    }


def label_of(name: str) -> str:
    """Return our name of ``Tcp.RetransSegs``, ``TcpExt.TCPTimeouts``, ``Ip6.InReceives``."""
    group, column = name.split(".")
    if group == "TcpExt":
        column = re.sub("^TCP|^Tcp", "", column)
    return f"{snake_case(group)}.{snake_case(column)}"


LEFT_OUT = re.compile(
    r"IcmpMsg\.|MPTcpExt\.|Ip\.(Forwarding|DefaultTTL)|Tcp\.(RtoAlgorithm|RtoMin|RtoMax|MaxConn)"
)


@pytest.mark.parametrize("file", ["snmp", "netstat"])
def test_every_column_of_node_exporter_s_machine(file: str) -> None:
    """The second reading is written with all columns in another order, and one between them."""
    first = by_header(machine("node_exporter/proc")[NET + file].decode())
    second = {name: value + i for i, (name, value) in enumerate(sorted(first.items()), start=1)}
    host = Host("network")
    for numbers in (first, first, second):
        groups: dict[str, list[tuple[str, int]]] = {}
        for name, value in sorted(numbers.items(), reverse=True):
            groups.setdefault(name.split(".")[0], []).append((name.split(".")[1], value))
        text = "".join(
            " ".join([f"{group}:", *(str(cell[i]) for cell in cells)]) + "\n"
            for group, cells in groups.items()
            for i in (0, 1)
        )
        if numbers is first:
            text = machine("node_exporter/proc")[NET + file].decode()
        values = see(host, **{file: text.encode()})
    # Torn or another kernel's: what can be found by name is right at once.
    expected = {
        label_of(name): value if name == "Tcp.CurrEstab" else value - first[name]
        for name, value in second.items()
        if not LEFT_OUT.match(name)
    }
    assert {k: values[k] for k in expected} == expected
    made = {"tcp.retrans_share", *(f"protocol.packets[{p}]" for p in PACKETS)}
    assert set(values) - set(expected) <= made
    assert host.failures == host.bad_fields == 0


PACKETS = {
    "ip": ("Ip.InReceives", "Ip.OutRequests"),
    "icmp": ("Icmp.InMsgs", "Icmp.OutMsgs"),
    "tcp": ("Tcp.InSegs", "Tcp.OutSegs"),
    "udp": ("Udp.InDatagrams", "Udp.OutDatagrams"),
    "udp_lite": ("UdpLite.InDatagrams", "UdpLite.OutDatagrams"),
}


def test_packets_by_protocol_and_udp_s_errors() -> None:
    text = machine("node_exporter/proc")[NET + "snmp"].decode()
    host = Host("network")
    see(host, snmp=text.encode())
    text = text.replace("57740232", "57740302").replace("55365537", "55365567")  # +70, +30
    text = text.replace("57252008 54915039 227", "57252028 54915049 237")  # +20, +10, +10
    text = text.replace("88542 120 0 53028 9 8", "88545 121 0 53032 14 8")  # +3, +1, +4, +5
    values = see(host, snmp=text.encode())
    packets = {p: values[f"protocol.packets[{p}]"] for p in PACKETS}
    assert packets == {"ip": 100, "icmp": 0, "tcp": 30, "udp": 7, "udp_lite": 0}
    assert values["tcp.retrans_share"] == 50
    assert values["udp.rcvbuf_errors"] == 5
    assert values["udp.no_ports"] == 1


def by_line(text: str) -> dict[str, int]:
    lines = [line.split() for line in text.splitlines()]
    groups = ("UdpLite6", "Icmp6", "Udp6", "Ip6", "Xfrm", "Tls")
    found = {}
    for name, number in lines:
        group = next(g for g in groups if name.startswith(g))
        found[f"{group}.{name.removeprefix(group)}"] = int(number)
    return found


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("node_exporter/proc", "snmp6"),
        ("node_exporter/proc", "xfrm_stat"),
        ("procfs", "xfrm_stat"),
        ("procfs", "tls_stat"),
    ],
)
def test_every_line_of_other_machines(name: str, file: str) -> None:
    text = machine(name)[NET + file].decode()
    first = by_line(text)
    second = {name: value + i for i, (name, value) in enumerate(first.items(), start=1)}
    host = Host("network_slow")
    see(host, **{file: text.encode()})
    lines = [f"{name.replace('.', '')} {value}\n" for name, value in second.items()]
    values = see(host, **{file: "".join(lines).encode()})
    expected = {
        label_of(name): value if "Curr" in name else value - first[name]
        for name, value in second.items()
        if not re.match(r"Icmp6\.(In|Out)Type\d", name)
    }
    for protocol in ("ip6", "icmp6", "udp6") if file == "snmp6" else ():
        ways = [
            k
            for k in expected
            if re.fullmatch(rf"{protocol}\.(in_receives|out_requests|(in|out)_(msgs|datagrams))", k)
        ]
        expected[f"protocol.packets[{protocol}]"] = sum(expected[k] for k in ways)
    assert values == expected
    assert host.failures == host.bad_fields == 0


def test_types_of_icmp_that_were_never_seen_before_are_no_new_layout() -> None:
    host = Host("network", "network_slow")
    none = FIRST[NET + "snmp"]
    see(host, snmp=none, snmp6=b"Ip6InReceives 1\nIcmp6InMsgs 0\nUdp6NoPorts 5\n")
    channels = host.group.channels
    types = none.replace(b"\nTcp:", b"\nIcmpMsg: InType3 OutType3\nIcmpMsg: 5 6\nTcp:", 1)
    text6 = b"Ip6InReceives 2\nIcmp6InMsgs 1\nIcmp6InType135 1\nUdp6NoPorts 7\n"
    for _ in range(3):
        values = see(host, snmp=types, snmp6=text6)
        assert host.group.channels is channels
    assert values["icmp.in_msgs"] == 0
    assert without_types(types) == none
    for cut in range(len(types)):
        assert without_types(types[:cut]) in (
            types[:cut],
            none[: max(0, cut - (len(types) - len(none)))],
        )


TCP = "Tcp: ActiveOpens InSegs OutSegs RetransSegs\nTcp: {} {} {} {}\n"


def test_a_column_that_is_renamed() -> None:
    """The old name's channel is unknown, then gone; the new name is another channel."""
    host = Host("network")
    for n in (1, 2):
        see(host, snmp=TCP.format(n, 10 * n, 100 * n, n).encode())
    renamed = TCP.replace("ActiveOpens", "ActiveStarts")
    values = see(host, snmp=renamed.format(3, 30, 300, 3).encode())
    assert math.isnan(values["tcp.active_opens"])
    assert values["tcp.in_segs"] == 10
    see(host, snmp=renamed.format(4, 40, 400, 4).encode())
    values = see(host, snmp=renamed.format(6, 50, 500, 5).encode())
    assert values["tcp.active_starts"] == 2
    assert values["tcp.out_segs"] == 100
    assert "tcp.active_opens" not in values


def test_a_group_that_is_there_twice_counts_once() -> None:
    host = Host("network")
    for n in (1, 2, 3):
        text = TCP.format(n, 10 * n, 100 * n, 0) + TCP.format(7 * n, 70 * n, 700 * n, 0)
        values = see(host, snmp=text.encode())
    assert values["tcp.active_opens"] == 1
    assert values["tcp.out_segs"] == 100
    assert values["protocol.packets[tcp]"] == 110


@pytest.mark.parametrize("text", ["Tcp: ActiveOpens InSegs\n", "Tcp: ActiveOpens InSegs\nTcp:\n"])
def test_a_header_without_numbers(text: str) -> None:
    """Unknown, and what comes after it is read."""
    udp = "Udp: InDatagrams OutDatagrams\nUdp: {} {}\n"
    host = Host("network")
    for n in (1, 2, 3):
        values = see(host, snmp=(text + udp.format(n, 5 * n)).encode())
    assert values["udp.out_datagrams"] == 5
    assert all(math.isnan(v) for k, v in values.items() if k.startswith("tcp."))


@pytest.mark.parametrize("garbage", ["oops", "-3", "1_000", "+5", "9" * 400])
def test_a_number_of_snmp6_and_sockets_that_is_none(garbage: str) -> None:
    host = Host("network_slow")
    text = "Ip6InReceives {}\nIp6OutRequests {}\n"
    see(host, snmp6=text.format(5, 7).encode(), sockstat6=b"TCP6: inuse 17\n")
    channels = host.group.channels
    values = see(
        host,
        snmp6=text.format(garbage, 9).encode(),
        sockstat6=f"TCP6: inuse {garbage}\n".encode(),
    )
    unknown = {k for k, v in values.items() if math.isnan(v)}
    assert unknown == {"ip6.in_receives", "protocol.packets[ip6]", "sockets.tcp6_inuse"}
    assert values["ip6.out_requests"] == 2
    assert host.bad_fields == 2
    values = see(host, snmp6=text.format(9, 9).encode(), sockstat6=b"TCP6: inuse 18\n")
    assert values["ip6.in_receives"] == 2
    assert values["sockets.tcp6_inuse"] == 18
    assert host.group.channels is channels


@pytest.mark.parametrize("name", ["node_exporter/proc", "procfs"])
def test_sockets_of_other_machines(name: str) -> None:
    files = machine(name)
    host = Host("network", "network_slow")
    sockets = {NET + n: files[NET + n] for n in ("sockstat", "sockstat6")}
    values = host.read(sockets, SECOND_NS)
    expected: dict[str, float] = {}
    for text in sockets.values():
        for line in text.decode().splitlines():
            head, *pairs = line.replace(":", "").split()
            for key, number in zip(pairs[::2], pairs[1::2], strict=True):
                metric = key if head == "sockets" else f"{head.lower()}_{key}"
                expected[f"sockets.{metric}"] = int(number)
    assert values == expected
    assert expected["sockets.tcp6_inuse"] == 17


def test_sockets_by_protocol() -> None:
    text = machine("procfs")[NET + "protocols"]
    host = Host("network_slow")
    values = see(host, protocols=text)
    rows = [line.split() for line in text.decode().splitlines()[1:]]
    expected = {f"protocol.sockets[{row[0]}]": int(row[2]) for row in rows}
    expected |= {f"protocol.memory[{row[0]}]": int(row[3]) for row in rows if row[3] != "-1"}
    assert values == expected
    assert values["protocol.sockets[TCP]"] == 93064
    channels = host.group.channels
    # Memory pressure is a word that changes.
    relaxed = text.replace(b"1225378   yes", b"1225378   no ")
    assert relaxed != text
    see(host, protocols=relaxed)
    assert host.group.channels is channels
    assert host.bad_fields == 0


def hexadecimal(text: str) -> list[list[int]]:
    return [[int(word, 16) for word in line.split()] for line in text.splitlines()]


def test_softnet_of_node_exporter_s_machine() -> None:
    """A line for each core, eleven columns; no line's end is there at the end."""
    text = machine("node_exporter/proc")[NET + "softnet_stat"]
    first = hexadecimal(text.decode())
    second = [[v + (i + 1) * (c + 1) for c, v in enumerate(r)] for i, r in enumerate(first)]
    again = "\n".join(" ".join(f"{v:08x}" for v in row) for row in second)
    host = Host("network")
    see(host, softnet_stat=text)
    values = see(host, softnet_stat=again.encode())
    names = {0: "processed", 1: "dropped", 2: "time_squeeze", 9: "received_rps", 10: "flow_limit"}
    assert values.pop("softnet.imbalance") == pytest.approx(uneven([1, 2, 3, 4]), rel=1e-6)
    assert values == {f"softnet.{n}": (1 + 2 + 3 + 4) * (c + 1) for c, n in names.items()}


def uneven(shares: list[float]) -> float:
    """Return how much more the busiest core does than the mean, percent."""
    return 100 * (max(shares) / (sum(shares) / len(shares)) - 1)


def test_softnet_of_machines_with_other_columns() -> None:
    """Lines of several kernels in one file: those with most columns are believed."""
    text = machine("procfs")[NET + "softnet_stat"]
    rows = [row for row in hexadecimal(text.decode()) if len(row) == 13]
    assert len(rows) == 2
    host = Host("network")
    values = see(host, softnet_stat=text)
    assert values["softnet.backlog"] == sum(row[11] for row in rows) == 0xDC
    values = see(host, softnet_stat=text)
    assert values["softnet.processed"] == values["softnet.flow_limit"] == 0
    broken = machine("procfs")[NET + "softnet_stat.broken"]
    host = Host("network")
    see(host, softnet_stat=broken)
    values = see(host, softnet_stat=broken)
    assert values == {
        "softnet.processed": 0,
        "softnet.dropped": 0,
        "softnet.time_squeeze": 0,
        "softnet.imbalance": 0,
    }


LINE = "{:08x} {:08x} 00000000 0 0 0 0 0 {:08x} {:08x} 00000000 {:08x} {:08x} {:08x} {:08x}\n"


def test_numbers_with_letters_are_no_labels() -> None:
    """A queue of ten packets is written ``a``: that is no new layout, and no line is mixed up."""
    host = Host("network")
    see(host, softnet_stat="".join(LINE.format(0, 0, 0, 0, 0, c, 0, 0) for c in (0, 10)).encode())
    channels = host.group.channels
    for n in range(1, 12):
        lines = [LINE.format(0xABC * n, 0, n, n, n, core, n, 0) for core in (0, 10)]
        values = see(host, softnet_stat="".join(lines).encode())
        assert host.group.channels is channels
        assert values["softnet.backlog"] == 2 * n
    assert values["softnet.processed"] == 2 * 0xABC
    assert host.bad_fields == host.failures == 0


def test_cores_of_softnet_that_go_off_and_come_back() -> None:
    """By the core's own number: others stay, and none is taken for another."""
    host = Host("network")
    cores = [[0, 1, 2]] * 3 + [[0, 2]] * 3 + [[0, 1, 2]] * 4
    seen = []
    for n, on in enumerate(cores):
        lines = [LINE.format(10**6 * c + (c + 1) * n, 0, 0, 0, 0, c, 0, 0) for c in on]
        seen.append(see(host, softnet_stat="".join(lines).encode())["softnet.processed"])
    assert seen[1:3] == [6, 6]
    assert math.isnan(seen[3])
    assert seen[4:6] == [4, 4]
    assert all(math.isnan(v) or v in (4, 6) for v in seen)
    assert seen[-2:] == [6, 6]


def test_softnet_wraps_at_32_bits() -> None:
    host = Host("network")
    seen = [
        see(host, softnet_stat=LINE.format(n % 2**32, 0, 0, 0, 0, 0, 0, 0).encode())
        for n in range(2**32 - 350, 2**32 + 250, 100)
    ]
    assert [v["softnet.processed"] for v in seen[1:]] == [100] * 5


@pytest.mark.parametrize(
    ("file", "prefix"),
    [("nf_conntrack", "conntrack_stat"), ("arp_cache", "arp"), ("ndisc_cache", "ndisc")],
)
def test_tables_of_other_machines(file: str, prefix: str) -> None:
    """Every column, added up over the cores; the entries are the same in each line."""
    text = machine("node_exporter/proc")[f"{NET}stat/{file}"].decode()
    head, _, body = text.partition("\n")
    first = hexadecimal(body)
    second = [
        [v if c == 0 else v + (i + 1) * c for c, v in enumerate(row)] for i, row in enumerate(first)
    ]
    again = head + "\n" + "".join(" ".join(f"{v:08x}" for v in r) + "\n" for r in second)
    host = Host("conntrack")
    see(host, **{f"stat/{file}": text.encode()})
    values = see(host, **{f"stat/{file}": again.encode()})
    cores = len(first)
    expected = {
        f"{prefix}.{name}": first[0][0] if c == 0 else c * cores * (cores + 1) / 2
        for c, name in enumerate(head.split())
    }
    assert values == expected
    assert host.failures == host.bad_fields == 0


def test_the_table_of_connections_fills_up() -> None:
    files = machine("node_exporter/proc")
    host = Host("conntrack")
    folder = "proc/sys/net/netfilter/nf_conntrack_"
    only = {p: t for p, t in files.items() if p.startswith(folder)}
    assert host.read(only, SECOND_NS) == {
        "conntrack.entries": 123,
        "conntrack.limit": 65536,
        "conntrack.used": pytest.approx(100 * 123 / 65536, rel=1e-6),
    }
    values = host.read(only | {f"{folder}max": b"0\n"}, SECOND_NS)
    assert math.isnan(values["conntrack.used"])
    fresh = Host("conntrack")
    assert fresh.read({f"{folder}count": b"123\n"}, SECOND_NS) == {"conntrack.entries": 123}
