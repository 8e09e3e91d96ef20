"""Text files by position: what changes a plan, and what only costs a reading."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.parsing import SLOW_ABOVE_BYTES, Draft, TextFile, numbered_lines, snake_case
from producers.reading import MemoryReader
from producers.source import EVERY_TICK, SECOND_NS
from schemas.records import Channel, Kind, Subsystem

NAN = float("nan")


def plan(text: str) -> Draft:
    draft = Draft()
    for at, words in numbered_lines(text):
        if len(words) == 2:
            draft.channel(at + 1, Channel(words[0], "", Subsystem.CPU, "", Kind.GAUGE))
    return draft


def file(*, slow: bool = False) -> TextFile:
    return TextFile("proc/x", plan, remedy="", slow=slow)


def names(source: TextFile) -> list[str]:
    return [f.key for f in source.plan.fields]


def same(got: Sequence[float], expected: Sequence[float]) -> bool:
    """Compare with NaN equal to NaN."""
    return repr(list(map(float, got))) == repr(list(map(float, expected)))


def test_numbers_by_position() -> None:
    source = file()
    assert source.parse(b"a 1\nb 2\n") == [1, 2]
    before = source.plan
    assert source.parse(b"a 3\nb 40\n") == [3, 40]
    assert source.plan is before
    assert names(source) == ["a", "b"]


def test_the_same_text_says_the_same_and_its_bad_fields_count_each_time() -> None:
    source = file()
    reader = MemoryReader({"proc/x": b"a 1\nb oops\n"})
    source.read(reader, 0)
    for n in range(2, 6):
        assert same(source.read(reader, 0), [1, NAN])
        assert source.bad_fields == n
    texts, reader.files = reader.files, {}
    assert same(source.read(reader, 0), [NAN, NAN])
    assert source.problem
    reader.files = texts
    assert same(source.read(reader, 0), [1, NAN])
    assert source.problem == ""
    reader.files = {"proc/x": b"a 1\nb 2\n"}
    assert source.read(reader, 0) == [1, 2]
    assert source.bad_fields == 6


def test_a_new_label_is_believed_the_second_time() -> None:
    source = file()
    source.parse(b"a 1\nb 2\n")
    before = source.plan
    assert same(source.parse(b"a 3\nc 4\nb 5\n"), [3, 5])
    assert source.plan is before
    assert source.parse(b"a 3\nc 4\nb 5\n") == [3, 4, 5]
    assert names(source) == ["a", "c", "b"]


def test_a_label_that_flickers_changes_nothing() -> None:
    source = file()
    source.parse(b"a 1\nb 2\n")
    before = source.plan
    for _ in range(3):
        assert same(source.parse(b"a 3\n\xff\xfe 4\n"), [3, NAN])
        assert source.parse(b"a 3\nb 4\n") == [3, 4]
    assert source.plan is before


def test_a_number_that_is_none_costs_itself() -> None:
    source = file()
    source.parse(b"a 1\nb 2\n")
    assert same(source.parse(b"a oops\nb 3\n"), [NAN, 3])
    assert source.bad_fields == 1
    assert source.parse(b"a 2\nb 4\n") == [2, 4]


def test_a_bad_number_in_the_first_reading_has_its_channel() -> None:
    source = file()
    assert same(source.parse(b"a oops\nb 3\n"), [NAN, 3])
    assert source.parse(b"a 1\nb 3\n") == [1, 3]


def test_a_torn_line_gives_no_half_number() -> None:
    source = file()
    source.parse(b"a 1000\nb 2000\n")
    assert same(source.parse(b"a 1001\nb 20"), [1001, NAN])
    assert same(source.parse(b"a 10"), [NAN, NAN])


def test_a_file_that_never_ends_in_a_newline_is_whole() -> None:
    source = file()
    assert source.parse(b"a 1\nb 2") == [1, 2]
    assert source.parse(b"a 1\nb 3") == [1, 3]


@pytest.mark.parametrize("text", [b"", b"\n", b"nothing here\n", b"\x00\n", b"a\n"])
def test_a_text_without_numbers_is_never_believed(text: bytes) -> None:
    source = file()
    source.parse(b"a 1\n")
    for _ in range(3):
        assert same(source.parse(text), [NAN])
        assert "proc/x" in source.problem
    assert source.parse(b"a 2\n") == [2]
    assert source.problem == ""


def test_a_file_that_goes_keeps_its_channels() -> None:
    source = file()
    reader = MemoryReader()
    assert source.read(reader, 0) == ()
    assert source.problem == "proc/x: not in the recording"
    reader.files = {"proc/x": b"a 1\n"}
    assert source.read(reader, 1) == [1]
    reader.files = {}
    assert same(source.read(reader, 2) or [], [NAN])


def test_a_large_slow_file_wants_to_be_read_once_a_second() -> None:
    large = b"".join(b"n%d %d\n" % (i, i) for i in range(SLOW_ABOVE_BYTES // 6))
    reader = MemoryReader({"proc/x": large})
    slow, quick = file(slow=True), file()
    for source, period_ns in ((slow, SECOND_NS), (quick, EVERY_TICK)):
        source.read(reader, 0)
        assert source.period_ns == period_ns
    reader.files = {"proc/x": b"a 1\n"}
    slow.read(reader, 1)
    assert slow.period_ns == EVERY_TICK


def test_one_name_twice_is_taken_once() -> None:
    source = file()
    assert source.parse(b"a 1\na 2\n") == [1]


def test_derived_channels_may_not_repeat_others() -> None:
    draft = plan("a 1\n")
    channel = Channel("a", "", Subsystem.CPU, "", Kind.GAUGE)
    with pytest.raises(ValueError, match="channel a is there twice"):
        draft.derived([channel], lambda levels: levels)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("InSegs", "in_segs"),
        ("Active(anon)", "active_anon"),
        ("HugePages_Total", "huge_pages_total"),
        ("Committed_AS", "committed_as"),
        ("DirectMap2M", "direct_map2m"),
        ("DelayedACKs", "delayed_acks"),
        ("PAWSOldAck", "paws_old_ack"),
        ("InECT0Pkts", "in_ect0_pkts"),
        ("MD5NotFound", "md5_not_found"),
        ("OFOQueue", "ofo_queue"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


@given(st.text(alphabet=" \t\nab1\x0b\x0c\r", max_size=60))
def test_lines_count_tokens_as_bytes_do(text: str) -> None:
    """A plan made from the lines of a text fits the tokens of its bytes."""
    tokens = text.encode().split()
    for at, words in numbered_lines(text):
        assert [w.encode() for w in words] == tokens[at : at + len(words)]


@given(st.binary(max_size=200), st.lists(st.binary(max_size=80), max_size=4))
def test_whatever_the_bytes_are(first: bytes, others: list[bytes]) -> None:
    source = file()
    for text in (first, *others, first):
        numbers = source.parse(text)
        assert len(numbers) == len(source.plan.fields)
        assert all(isinstance(n, int) or math.isnan(n) for n in numbers)


@pytest.mark.parametrize("digits", [18, 19, 20, 30, 400, 5000])
def test_numbers_of_any_length(digits: int) -> None:
    source = file()
    source.parse(b"a 1\nb 2\n")
    long = b"9" * digits
    a, b = source.parse(b"a 00012\nb " + long + b"\n")
    assert a == 12
    if digits > 4300:  # more than int takes
        assert math.isnan(b)
    else:
        assert b == int(long)
    largest = 2**63
    for number in range(largest - 3, largest + 3):
        assert source.parse(b"a 0\nb %d\n" % number) == [0, number]
