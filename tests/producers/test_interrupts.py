"""Tables of counters: interrupts and softirqs, on few cores and on many."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.collectors import interrupts
from producers.imbalance import imbalance
from producers.parsing import SLOW_ABOVE_BYTES
from producers.rates import PATIENCE, Rates
from producers.source import HALF_SECOND_NS, SECOND_NS, WRAPS_32, Field
from producers.table import CELL_BYTES, padded_numbers
from producers.unwrap import fresh, growth
from schemas.records import Subsystem
from tests.producers.archives import archive
from tests.producers.kernel import Host

SECOND = 10**9
Numbers = Sequence[Sequence[int]]


def table(numbers: Numbers, cores: Sequence[int] | None = None, names: Sequence[str] = ()) -> bytes:
    """Return a text as the kernel prints it, its rows called R0, R1 and so on."""
    cores = range(len(numbers[0])) if cores is None else cores
    lines = ["     " + "".join(f"{f'CPU{c}':<11}" for c in cores)]
    for i, row in enumerate(numbers):
        name = names[i] if names else f"R{i}"
        cells = "".join(f" {n % 2**32:>10}" for n in row)
        lines.append(f"{name:>4}:{cells}   Some interrupts")
    return "\n".join([*lines, " ERR:          3"]).encode() + b"\n"


def read(host: Host, text: bytes) -> dict[str, float]:
    return host.read({"proc/interrupts": text}, SECOND)


def sources(values: dict[str, float], rows: int) -> list[float]:
    return [values[f"irq.source[R{i}]"] for i in range(rows)]


def cores(values: dict[str, float], places: Sequence[int]) -> list[float]:
    return [values[f"irq.core[cpu{c}]"] for c in places]


def approx(numbers: Sequence[float]) -> object:
    return pytest.approx(list(numbers), rel=1e-6)


@settings(deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.sampled_from([0, 100]),
)
def test_sums_of_numbers_that_wrap(rows: int, columns: int, seed: int, padding: int) -> None:
    """Whether they are converted one by one or many at once."""
    rng = np.random.default_rng(seed)
    # After two readings the first of them wrap.
    now = 2**32 - rng.integers(2100, 9000, (rows, columns))
    idle = [[7] * columns] * padding
    host = Host("interrupts")
    read(host, table([*now.tolist(), *idle]))
    for _ in range(6):
        grown = rng.integers(500, 1001, now.shape)
        grown[(now + grown) % 2**32 == 0] += 1  # a zero is taken for a slip
        now = now + grown
        values = read(host, table([*now.tolist(), *idle]))
        assert sources(values, rows) == approx(grown.sum(axis=1).tolist())
        assert cores(values, range(columns)) == approx(grown.sum(axis=0).tolist())
        assert values["irq.imbalance"] == pytest.approx(imbalance(grown.sum(axis=0)), abs=1e-4)


@settings(deadline=None)
@given(
    st.data(),
    st.sampled_from([(4, 3), (40, 30)]),
    st.sampled_from([b"      oops", b"        -7", b"       1_0", b"         0", b"9" * 30]),
)
def test_a_number_that_is_none_costs_its_row_and_its_core(
    data: st.DataObject, shape: tuple[int, int], garbage: bytes
) -> None:
    """Everything else is to the bit what it is without; then the mean over both readings."""
    row, column = (data.draw(st.integers(0, n - 1)) for n in shape)
    texts = [
        table([[10**6 + (r + 1) * n * (c + 1) for c in range(shape[1])] for r in range(shape[0])])
        for n in range(5)
    ]
    lines = texts[2].split(b"\n")
    at = 5 + CELL_BYTES * column + 1
    lines[1 + row] = lines[1 + row][:at] + garbage + lines[1 + row][at + 10 :]
    clean, host = Host("interrupts"), Host("interrupts")
    lost = {f"irq.source[R{row}]", f"irq.core[cpu{column}]", "irq.imbalance"}
    for n, text in enumerate(texts):
        expected = read(clean, text)
        values = read(host, b"\n".join(lines) if n == 2 else text)
        if n == 2:
            assert {k for k, v in values.items() if math.isnan(v)} == lost
        elif n == 3:
            # Its growth is the same in every second, so the mean is too.
            assert math.isnan(values.pop("irq.imbalance"))
        for label in values.keys() - (lost if n == 2 else set()):
            assert values[label] == expected[label] or n == 0, label
    assert host.bad_fields == (0 if garbage.strip() == b"0" else 1)


def test_a_number_that_stays_broken_is_counted_at_every_reading() -> None:
    """Although its line does not change."""
    host = Host("interrupts")
    text = table([[1, 2], [3, 4]]).replace(b"         3 ", b"      oops ")
    for n in range(1, 4):
        values = read(host, text)
        assert host.bad_fields == n
        assert math.isnan(values["irq.source[R1]"])
        assert math.isnan(values["irq.core[cpu0]"])
    assert values["irq.source[R0]"] == values["irq.core[cpu1]"] == 0


def test_a_core_goes_and_another_comes() -> None:
    """The columns follow the header; no reading shows more than there was."""
    host = Host("interrupts")
    online: list[int] = []
    steady: dict[str, dict[int, float]] = {"irq.source[R0]": {}, "irq.source[R1]": {}}
    for n in range(12):
        online = [0, 1, 2] if n < 4 else [0, 2] if n < 8 else [0, 1, 2, 7]
        text = table([[10**6 * (c + 1) + 100 * n for c in online], [5 * n for _ in online]], online)
        values = read(host, text)
        for label, per_core in (("irq.source[R0]", 100), ("irq.source[R1]", 5)):
            value = values[label]
            assert math.isnan(value) or value <= per_core * len(online)
            steady[label][n] = value
        for c in online:
            value = values.get(f"irq.core[cpu{c}]", math.nan)
            assert math.isnan(value) or value == 105
    assert [steady["irq.source[R0]"][n] for n in (1, 2, 3)] == [300] * 3
    assert [steady["irq.source[R0]"][n] for n in (6, 7)] == [200] * 2
    # In the first second nothing was known of those that came: 200, and then 400, in two seconds.
    assert [steady["irq.source[R0]"][n] for n in (10, 11)] == [300, 400]
    assert steady["irq.source[R1]"][11] == 20
    assert [c.device for c in host.group.channels if c.metric == "irq.core"] == [
        f"cpu{c}" for c in online
    ]


def test_a_source_comes_and_another_goes() -> None:
    host = Host("interrupts")
    for n in range(4):
        before = read(host, table([[100 * n, 0], [n, n]], names=["LOC", "36"]))
    for n in range(4, 8):
        # 40 has counted more than 36 ever did: that is no growth.
        text = table([[100 * n, 0], [10**9 + n, n], [7, 7 * n]], names=["LOC", "40", "41"])
        values = read(host, text)
        assert not [v for v in values.values() if v > 107]
    assert before["irq.source[Some+interrupts]"] == 2
    names = [c.device for c in host.group.channels if c.metric == "irq.source"]
    assert names == ["ERR", "LOC", "Some+interrupts", "Some+interrupts#41"]
    assert values["irq.source[Some+interrupts]"] == 2
    assert values["irq.source[Some+interrupts#41]"] == 7
    assert values["irq.core[cpu0]"] == 101
    assert values["irq.core[cpu1]"] == 8


def test_counts_that_are_there_once() -> None:
    host = Host("interrupts")
    text = table([[1, 2]])
    read(host, text)
    values = read(host, text.replace(b"ERR:          3", b"ERR:          8"))
    assert values["irq.source[ERR]"] == 5
    values = read(host, text.replace(b"ERR:          3", b"ERR:       oops"))
    assert math.isnan(values["irq.source[ERR]"])
    assert values["irq.source[R0]"] == 0


def test_a_driver_that_starts_anew() -> None:
    """A row that dropped and goes on from there was reset; meanwhile it is unknown."""
    host = Host("interrupts")
    seen = [
        read(host, table([[number, 1], [9, 9]]))["irq.source[R0]"]
        for number in (5000, 5010, 40, 60, 80)
    ]
    assert seen[1] == 10
    assert math.isnan(seen[2])
    assert seen[3] == pytest.approx(10)  # 20, in the two seconds since the last good reading
    assert seen[4] == 20


def test_a_large_table_is_read_once_a_second() -> None:
    source = interrupts.collector().sources[0]
    for rows, expected in ((5, HALF_SECOND_NS), (500, SECOND_NS)):
        text = table([[0] * 30] * rows)
        host = Host()
        host.reader.files = {"proc/interrupts": text}
        source.read(host.reader, 0)
        assert (len(text) > SLOW_ABOVE_BYTES) == (expected == SECOND_NS)
        assert source.period_ns == expected


@given(st.lists(st.integers(0, 10**10 - 1), max_size=3000))
def test_padded_numbers(numbers: list[int]) -> None:
    text = "".join(f" {n:>10}" for n in numbers).encode()
    found = padded_numbers(text)
    assert found is not None
    assert found.tolist() == numbers


@given(st.integers(0, 10), st.binary(min_size=1, max_size=1), st.integers(0, 10**10 - 1))
def test_padded_numbers_take_nothing_else(at: int, byte: bytes, number: int) -> None:
    text = f" {number:>10}".encode()
    changed = text[:at] + byte + text[at + 1 :]
    found = padded_numbers(changed)
    if re.fullmatch(rb" +[0-9]+", changed):
        assert found is not None
        assert found.tolist() == [int(changed)]
    else:
        assert found is None


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(0, 30), st.integers(0, 10**6), st.just(math.nan)),
        max_size=3 * PATIENCE,
    )
)
def test_one_counter_is_told_apart_as_rates_do(readings: list[float]) -> None:
    """Far below where it wraps: what is unknown, what is no growth, and what is some."""
    rates = Rates([Field("x", True, modulus=WRAPS_32)])
    cells = fresh(np.array([math.nan]))
    peak = 0.0
    for n, reading in enumerate(readings):
        now = np.array([reading], float)
        expected = rates.update(now, (n + 1) * SECOND)[0]
        grown, cells = growth(now, cells, peak)
        peak = max(peak, float(np.nan_to_num(grown[0])))
        assert math.isnan(grown[0]) == math.isnan(expected)
        assert not grown[0] < 0
        assert (grown[0] == 0) == (expected == 0)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [([5, 5, 5, 5], 0), ([0, 0], 0), ([8, 0, 0, 0, 0, 0, 0, 0], 700), ([1, 3], 50)],
)
def test_imbalance(rates: list[float], expected: float) -> None:
    assert imbalance(np.array(rates, float)) == expected
    assert math.isnan(imbalance(np.array([*rates, math.nan])))


def grown_by(text: bytes, by: Callable[[int, int], int]) -> tuple[bytes, dict[str, list[int]]]:
    """Add ``by(row, column)`` to every number of a table; also return what each row grew."""
    lines = text.decode().split("\n")
    columns = len(lines[0].split())
    added: dict[str, list[int]] = {}
    for i, line in enumerate(lines[1:], start=1):
        label, colon, rest = line.partition(":")
        words = rest.split(None, columns)
        numbers = words[: columns if len(words) > 1 else 1]
        if not colon or not all(n.isdigit() for n in numbers):
            continue
        added[label.strip()] = [by(i, c) for c in range(len(numbers))]
        cells = [f"{int(n) + a:>10}" for n, a in zip(numbers, added[label.strip()], strict=True)]
        lines[i] = " ".join([f"{label}:", *cells, *words[columns:]])
    return "\n".join(lines).encode(), added


FIXTURES = [
    ("node_exporter/proc", "proc/interrupts", 4, 30),
    ("node_exporter/proc", "proc/interrupts_aarch64", 8, 59),
    ("procfs", "proc/interrupts", 4, 47),
]


@pytest.mark.parametrize(("machine", "path", "columns", "rows"), FIXTURES)
def test_interrupts_of_other_machines(machine: str, path: str, columns: int, rows: int) -> None:
    text = archive(machine)[path]
    more, added = grown_by(text, lambda i, c: 3 * i + c * c)
    assert len(added) == rows
    host = Host("interrupts")
    read(host, text)
    values = read(host, more)
    table_rows = {label: row for label, row in added.items() if len(row) == columns}
    for c in range(columns):
        expected = sum(row[c] for row in table_rows.values())
        assert values[f"irq.core[cpu{c}]"] == pytest.approx(expected)
    by_source = [v for label, v in values.items() if label.startswith("irq.source")]
    assert sorted(by_source) == approx(sorted(float(sum(row)) for row in added.values()))
    for label, row in added.items():
        if not label.isdigit():
            assert values[f"irq.source[{label}]"] == pytest.approx(sum(row))
    by_core = np.array([sum(row[c] for row in table_rows.values()) for c in range(columns)])
    assert values["irq.imbalance"] == pytest.approx(100 * by_core.max() / by_core.mean() - 100)
    assert host.bad_fields == host.failures == 0


def test_names_of_other_machines_interrupts() -> None:
    values = read(Host("interrupts"), archive("procfs")["proc/interrupts"])
    assert {"irq.source[ahci[0000:00:1f.2]]", "irq.source[xhci_hcd#33]", "irq.source[PIW]"} < set(
        values
    )


@pytest.mark.parametrize("machine", ["node_exporter/proc", "procfs"])
def test_softirqs_of_other_machines(machine: str) -> None:
    text = archive(machine)["proc/softirqs"]
    more, added = grown_by(text, lambda i, c: 10 * i + (90 * c if i == 4 else 0))
    assert len(added) == 10
    host = Host("softirqs")
    host.read({"proc/softirqs": text}, SECOND)
    values = host.read({"proc/softirqs": more}, SECOND)
    for label, row in added.items():
        assert values[f"softirq.{label.lower()}"] == sum(row)
    assert values["softirq.core[cpu0]"] == 550
    assert values["softirq.core[cpu1]"] == 640
    assert values["softirq.imbalance"] == pytest.approx(100 * (640 / 595 - 1))
    # 40 and 130 packets' worth of work: the busier does 45 more than the mean of 85.
    assert values["softirq.net_rx_imbalance"] == pytest.approx(100 * 45 / 85)
    subsystems = {c.metric: c.subsystem for c in host.group.channels}
    assert subsystems["softirq.net_rx_imbalance"] is Subsystem.NETWORK
    assert subsystems["softirq.imbalance"] is Subsystem.CPU


def test_softirqs_without_a_network() -> None:
    text = b"                    CPU0       CPU1\n          HI:         %2d          1\n"
    host = Host("softirqs")
    host.read({"proc/softirqs": text % 7}, SECOND)
    assert host.read({"proc/softirqs": text % 9}, SECOND) == {
        "softirq.hi": 2,
        "softirq.core[cpu0]": 2,
        "softirq.core[cpu1]": 0,
        "softirq.imbalance": 100,
    }
