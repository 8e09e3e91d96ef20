"""One file is not as it should be for a while: what that costs, and what it leaves alone.

Two hosts read the same recording; in the files of one of them something is wrong. Every value
must be that of the other host, or unknown, or the mean over the time in which it was unknown.
"""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.collectors import ALL
from schemas.records import Kind
from tests.producers.kernel import FIRST, MEANS, SECOND, Host

PATHS = sorted(p for p in SECOND if p in {s.path for made in ALL for s in made().sources})
NUMBER = re.compile(rb"(?<![\w.:-])\d+(?![\w.:-])")
SOME = 10
READINGS = [FIRST, SECOND, SECOND, SECOND]


def run(readings: list[dict[str, bytes]]) -> tuple[Host, list[dict[str, float]]]:
    host = Host()
    return host, [host.read(files) for files in readings]


CLEAN_HOST, CLEAN = run(READINGS)
KINDS = {c.label: c.kind for c in CLEAN_HOST.group.channels}
DERIVED_SHARES = {"tcp.retrans_share", "softnet.imbalance"}
DERIVED_SHARES |= {label for label in KINDS if MEANS.search(label)}
HIGHEST = {
    label: max((r[label] for r in CLEAN if not math.isnan(r[label])), default=0.0)
    for label in CLEAN[-1]
}


def check(path: str, torn: bytes | None, *, times: int = 2, lines_stay: bool = True) -> int:
    """Check a host whose file is `torn` for `times` readings; return its bad fields."""
    readings = [dict(files) for files in READINGS]
    for files in readings[1 : 1 + times]:
        if torn is None:
            del files[path]
        else:
            files[path] = torn
    host, seen = run(readings)
    for at, (values, clean) in enumerate(zip(seen, CLEAN, strict=True)):
        if lines_stay:
            assert values.keys() == clean.keys()
        for label, value in values.items():
            if math.isnan(value) or value == clean.get(label):
                continue
            assert label in clean, f"reading {at} has a channel that is not there: {label}"
            assert KINDS[label] is Kind.RATE or label in DERIVED_SHARES, (at, label, value)
            assert 0 <= value <= HIGHEST[label] * (1 + 1e-6), (at, label, value)
    for stats in host.group.stats.values():
        assert not [r for r in stats.failures if "Error" in r], stats.failures
    return host.bad_fields


@pytest.mark.parametrize("path", PATHS)
def test_a_missing_number_shifts_no_other(path: str) -> None:
    """Which number of a line is missing nobody can say: the line is unknown, its neighbours not."""
    text = SECOND[path]
    matches = list(NUMBER.finditer(text))
    for match in matches[:: 1 + len(matches) // SOME]:
        check(path, text[: match.start()] + text[match.end() :], lines_stay=False)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("proc/net/netstat", b"TcpExt: "),
        ("proc/net/snmp", b"Tcp: "),
        ("proc/net/dev", b"    v0: "),
        ("proc/stat", b"cpu1 "),
        ("proc/diskstats", b" 254       0 vda "),
        ("proc/interrupts", b"LOC: "),
    ],
)
def test_a_line_with_a_number_missing_stays_a_line(path: str, line: bytes) -> None:
    text = SECOND[path]
    start = text.rindex(b"\n" + line) + 1 + len(line)
    number = NUMBER.search(text, start)
    assert number is not None
    torn = text[: number.start()] + text[number.end() :]
    assert check(path, torn) > 0, "it was not counted"


@pytest.mark.parametrize("path", PATHS)
def test_a_file_that_goes_for_a_while(path: str) -> None:
    check(path, None)


@pytest.mark.parametrize("path", PATHS)
def test_a_file_that_is_empty_for_a_while(path: str) -> None:
    check(path, b"")


@pytest.mark.parametrize("text", [b"-5", b"+5", b"1_000", b"1e3", b"0x7", b"nan", b"inf"])
@pytest.mark.parametrize("path", ["proc/net/snmp", "proc/net/sockstat", "proc/meminfo"])
def test_what_python_reads_and_the_kernel_never_writes(path: str, text: bytes) -> None:
    numbers = [m for m in NUMBER.finditer(SECOND[path]) if m[0] != b"0"]
    for match in numbers[-4:]:
        torn = SECOND[path][: match.start()] + text + SECOND[path][match.end() :]
        assert check(path, torn) == 2, "each of two readings counts it"


@pytest.mark.parametrize("path", PATHS)
def test_a_counter_that_reads_too_low_for_once_is_no_spike(path: str) -> None:
    """Half of every number's digits are lost, for one reading; then it is as before."""
    text = NUMBER.sub(lambda m: m[0][: (len(m[0]) + 1) // 2], SECOND[path])
    readings = [dict(files) for files in READINGS]
    readings[1][path] = text
    _, seen = run(readings)
    for values in seen[2:]:
        for label, value in values.items():
            if KINDS[label] is Kind.RATE and not math.isnan(value):
                assert value <= HIGHEST[label] * (1 + 1e-6), label


@settings(deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_for_one_reading(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(PATHS))
    text = SECOND[path]
    check(path, text[: data.draw(st.integers(0, len(text) - 1))], times=1)
