"""One host's sample: layout, history, failures, and what hosts share."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest

from producers.collectors import ALL, MACHINE, NAMESPACE
from producers.group import Group
from producers.parsing import SLOW_ABOVE_BYTES
from producers.reading import MemoryReader, Reader, SystemReader
from producers.sampler import Sampler
from producers.source import Collector, Field, Plan
from schemas.records import Channel, Kind, Subsystem, layout_fingerprint
from tests.producers.kernel import BETWEEN_NS, FIRST, SECOND, Host, collector

SECOND_NS = 10**9


class Told:
    """A source that returns what it is told, or raises it."""

    path = "proc/told"
    remedy = ""
    problem = ""
    bad_fields = 0

    def __init__(self, *metrics: str, kind: Kind = Kind.RATE, period_ns: int = 0) -> None:
        self.period_ns = period_ns
        self.answer: Sequence[float] | Exception = [0.0] * len(metrics)
        self.reads = 0
        self.plan = Plan()
        self.mean(*metrics, kind=kind)

    def mean(self, *metrics: str, kind: Kind = Kind.RATE) -> None:
        channels = tuple(Channel(m, "", Subsystem.CPU, "/s", kind) for m in metrics)
        fields = tuple(Field(m, kind is Kind.RATE) for m in metrics)
        self.plan = Plan(fields, channels, tuple(range(len(metrics))))

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:  # noqa: ARG002
        self.reads += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def sampler(*collectors: Collector, shared: Sequence[Group] = ()) -> Sampler:
    return Sampler(
        collectors,
        MemoryReader(),
        host="h",
        interval_us=100_000,
        agent_version="1",
        boot_id="b",
        shared=shared,
    )


def test_the_layout_is_one_object_while_nothing_changes() -> None:
    source = Told("a")
    host = sampler(Collector("told", [source]))
    assert host.layout.channels == ()
    first = host.sample(1 * SECOND_NS)
    second = host.sample(2 * SECOND_NS)
    assert second.layout is first.layout is host.layout
    source.mean("a", "b")
    source.answer = [0.0, 0.0]
    third = host.sample(3 * SECOND_NS)
    assert third.layout is not first.layout
    assert [c.metric for c in third.layout.channels] == ["a", "b"]
    assert third.layout.fingerprint != first.layout.fingerprint
    for layout in (first.layout, third.layout):
        assert layout.fingerprint == layout_fingerprint(layout.channels, 100_000)
        assert (layout.host, layout.agent_version, layout.boot_id) == ("h", "1", "b")
        assert layout.interval_us == 100_000


def test_values_are_float32_and_nobody_may_write_to_them() -> None:
    values = sampler(Collector("told", [Told("a", "b")])).sample(SECOND_NS).values
    assert values.dtype == np.float32
    assert values.shape == (2,)
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1


def test_a_sample_is_not_changed_by_the_next() -> None:
    source = Told("a", kind=Kind.GAUGE)
    host = sampler(Collector("told", [source]))
    source.answer = [1.0]
    first = host.sample(SECOND_NS)
    source.answer = [2.0]
    host.sample(2 * SECOND_NS)
    assert first.values.tolist() == [1]


def test_a_collector_that_raises_costs_its_own_channels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, bad = Told("good"), Told("bad")
    host = sampler(Collector("good", [good]), Collector("bad", [bad]))
    with caplog.at_level(logging.WARNING):
        for n in range(6):
            good.answer = [10.0 * n]
            bad.answer = RuntimeError("broken") if n in {2, 3} else [7.0 * n]
            values = host.sample((n + 1) * SECOND_NS).values
            expected = [math.nan if n == 0 else 10, math.nan if n in {0, 2, 3} else 7]
            np.testing.assert_array_equal(values, np.array(expected, np.float32))
    assert host.stats["bad"].failures == {"proc/told: RuntimeError: broken": 2}
    assert host.stats["good"].failures == {}
    # Named once, counted each time.
    assert [r.getMessage() for r in caplog.records] == [
        "collector bad: proc/told: RuntimeError: broken"
    ]


def test_a_collector_that_never_works_has_no_channels() -> None:
    bad = Told()
    bad.answer = OSError(5, "Input/output error")
    host = sampler(Collector("bad", [bad]), Collector("good", [Told("a")]))
    assert [c.metric for c in host.sample(SECOND_NS).layout.channels] == ["a"]
    assert host.stats["bad"].failures.total() == 1


def test_too_few_numbers_are_a_failure() -> None:
    source = Told("a", "b")
    host = sampler(Collector("told", [source]))
    source.answer = [1.0]
    assert np.isnan(host.sample(SECOND_NS).values).all()
    assert host.stats["told"].failures == {"1 numbers for 2 fields": 1}


def test_a_derivation_that_raises_costs_what_it_derives() -> None:
    source = Told("a", kind=Kind.GAUGE)
    extra = Channel("b", "", Subsystem.CPU, "", Kind.GAUGE)

    def broken(levels: object) -> None:
        raise ZeroDivisionError("nothing there")

    source.plan = Plan(source.plan.fields, (*source.plan.channels, extra), (0,), broken)  # type: ignore[arg-type]
    source.answer = [4.0]
    host = sampler(Collector("told", [source]))
    np.testing.assert_array_equal(
        host.sample(SECOND_NS).values, np.array([4, math.nan], np.float32)
    )
    assert host.stats["told"].failures.total() == 1


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *((Kind.RATE, number) for number in (-1, 2**64 - 1, 10**400, -(10**400), math.inf)),
        *((Kind.GAUGE, number) for number in (2**64 - 1, 10**40, 10**400, -(10**400), -math.inf)),
    ],
)
def test_impossible_numbers_cost_themselves_and_are_counted(kind: Kind, number: float) -> None:
    source = Told("a", "b", kind=kind)
    host = sampler(Collector("told", [source]))
    for n in range(3):
        source.answer = [n, number]
        values = host.sample((n + 1) * SECOND_NS).values
    expected = 1 if kind is Kind.RATE else 2
    np.testing.assert_array_equal(values, np.array([expected, math.nan], np.float32))
    assert host.stats["told"].bad_fields == 3


def test_what_has_not_its_turn_keeps_its_values() -> None:
    """Its rate is over its own time; the others do not notice."""
    slow, quick = Told("slow", period_ns=SECOND_NS), Told("quick")
    host = sampler(Collector("slow", [slow]), Collector("quick", [quick]))
    seen = []
    for n in range(41):
        slow.answer = [3 * n]
        quick.answer = [n]
        if n == 35:
            quick.mean("quick", "new")
        if n >= 35:
            quick.answer = [n, n]
        seen.append(host.sample((n + 1) * SECOND_NS // 10).values.tolist())
    assert [row[0] for row in seen[20:]] == [30] * 21
    assert [row[1] for row in seen[1:]] == pytest.approx([10] * 40)
    assert slow.reads == 5


def test_all_are_read_when_the_whole_is_asked_for() -> None:
    slow = Told("slow", period_ns=10 * SECOND_NS)
    host = sampler(Collector("slow", [slow]))
    for n in range(3):
        slow.answer = [5 * n]
        values = host.sample((n + 1) * SECOND_NS, whole=True).values
    assert slow.reads == 3
    assert values.tolist() == [5]


def test_what_is_absent_is_looked_at_less_and_less() -> None:
    """It is seen at the latest when it has been absent twice as long, or after ten seconds."""
    absent, other = Told(), Told("b")
    host = sampler(Collector("absent", [absent]), Collector("other", [other]))
    looked = []
    for n in range(600):
        before = absent.reads
        host.sample((n + 1) * SECOND_NS // 10)
        if absent.reads > before:
            looked.append(n)
    assert looked[:2] == [0, 1]
    for last, now in itertools.pairwise(looked):
        assert now - last <= max(1, min(last, 100))
    assert len(looked) < 25
    assert other.reads == 600


@pytest.mark.parametrize("comes", [2, 5, 20, 150, 450])
def test_what_comes_late_is_seen_soon(comes: int) -> None:
    absent = Told()
    host = sampler(Collector("absent", [absent]))
    seen = None
    for n in range(600):
        if n == comes:
            absent.mean("late", kind=Kind.GAUGE)
            absent.answer = [7.0]
        if host.sample((n + 1) * SECOND_NS // 10).values.tolist() == [7] and seen is None:
            seen = n
    assert seen is not None
    assert comes <= seen <= min(2 * comes, comes + 100)
    assert absent.reads >= 600 - seen  # from then on at every tick


@dataclass(eq=False)
class Devices:
    """What sources share."""

    generation: object


class Together(Told):
    """A source that shares devices with others."""

    def __init__(self, devices: Devices, metric: str, period_ns: int) -> None:
        super().__init__(period_ns=period_ns)
        self.shared = devices
        self.metric = metric
        self.finds: object = None

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        if self.finds is not None:
            self.shared.generation = self.finds
        metrics = [f"{self.metric}{n}" for n in range(len(str(self.shared.generation)))]
        if len(metrics) != len(self.plan.fields):
            self.mean(*metrics)
        super().read(reader, mono_ns)
        return [float(mono_ns)] * len(self.plan.fields)


@pytest.mark.parametrize("finder", [0, 3, 7])
def test_what_is_shared_changes_for_all_in_one_tick(finder: int) -> None:
    """Whichever of them finds out, whoever's turn it is; the others' values are as without."""
    devices = Devices("x")
    periods = [0, 200_000_000, SECOND_NS, 10 * SECOND_NS] * 2
    sources = [Together(devices, f"m{n}_", period) for n, period in enumerate(periods)]
    other, alone = Told("other"), Told("other")
    host = sampler(
        *(Collector(f"c{n}", [source]) for n, source in enumerate(sources)),
        Collector("other", [other]),
    )
    without = sampler(Collector("other", [alone]))
    layouts: list[object] = []
    for n in range(400):
        if n == 205:
            sources[finder].finds = "xyz"  # found at its next turn
        other.answer = alone.answer = [float(n * n)]
        sample = host.sample((n + 1) * SECOND_NS // 10)
        if not layouts or sample.layout is not layouts[-1]:
            layouts.append(sample.layout)
        expected = without.sample((n + 1) * SECOND_NS // 10).values
        np.testing.assert_array_equal(sample.values[-1:], expected)
    assert len(layouts) == 2
    assert len(host.layout.channels) == 8 * 3 + 1


@pytest.mark.parametrize("finder", [0, 1, 2])
def test_what_was_read_of_a_device_that_left_in_that_tick_counts_no_more(finder: int) -> None:
    """It was read before the last of them found out, and is read again."""
    devices = Devices("x")
    sources = [Together(devices, f"m{n}_", 0) for n in range(3)]
    first, last = Told("first", kind=Kind.GAUGE), Told("last", kind=Kind.GAUGE)
    host = sampler(Collector("all", [first, *sources, last]))
    for n in range(5):
        first.answer, last.answer = [10.0 * n], [20.0 * n]
        if n == 3:
            sources[finder].finds = ""
        values = host.sample((n + 1) * SECOND_NS // 10).values
        assert (values[0], values[-1]) == (10 * n, 20 * n)
    assert [c.metric for c in host.layout.channels] == ["first", "last"]
    assert host.stats["all"].failures == {}


def test_a_collector_without_sources_has_nothing_that_is_old() -> None:
    host = sampler(Collector("empty"))
    for n in range(3):
        host.sample((n + 1) * SECOND_NS)
        assert host.stats["empty"].read_ns == (n + 1) * SECOND_NS


class Gathers(Devices):
    """Devices that hear what is due."""

    def __init__(self) -> None:
        super().__init__("x")
        self.heard: list[list[object]] = []
        self.works = True

    def due(self, sources: Sequence[object]) -> None:
        self.heard.append(list(sources))
        if not self.works:
            raise NO


@pytest.mark.parametrize("works", [True, False])
def test_what_is_shared_hears_what_is_read_next(works: bool) -> None:
    """In the order of reading, and nothing else; what it raises costs nobody."""
    devices = Gathers()
    devices.works = works
    sources = [Together(devices, f"m{n}_", period) for n, period in enumerate((0, SECOND_NS, 0))]
    host = sampler(Collector("one", sources[:2]), Collector("two", [Told("b"), sources[2]]))
    for n in range(40):
        before = [source.reads for source in sources]
        whole = n == 25
        host.sample((n + 1) * SECOND_NS // 10, whole=whole)
        read = [s for s, reads in zip(sources, before, strict=True) if s.reads > reads]
        assert devices.heard[n] == read
        assert not whole or len(read) == 3
    assert len(devices.heard) == 40
    assert {stats.failures.total() for stats in host.stats.values()} == {0}


def test_time_lent_is_not_a_collector_s() -> None:
    """It waited for others' readings, or others for its own."""

    class Lending(Told):
        elsewhere_ns = lent_ns = 0
        lends = 0

        def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
            self.lent_ns += self.lends
            return super().read(reader, mono_ns)

    waits, waited_for = Lending("a"), Lending("b")
    waits.lends, waited_for.lends = 300, -300
    clock = itertools.count(0, 1000)
    both = [Collector("a", [waits]), Collector("b", [waited_for])]
    group = Group(both, MemoryReader(), clock_ns=lambda: next(clock))
    for n in range(1, 4):
        group.collect(n)
    assert group.stats["a"].seconds == pytest.approx(3 * 700e-9)
    assert group.stats["b"].seconds == pytest.approx(3 * 1300e-9)


class Twice(Together):
    """A source that finds out that devices came, and at the next reading what they have."""

    def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
        if self.shared.generation == self.finds and not self.plan.fields:
            self.mean("a")
        if self.finds is not None:
            self.shared.generation = self.finds
        return Told.read(self, reader, mono_ns)


@pytest.mark.parametrize("first", [True, False])
def test_who_finds_out_that_devices_came_is_not_absent_for_long(first: bool) -> None:
    """It has been absent for a minute: that counts no longer, although it was its own turn."""
    source = Twice(Devices("x"), "a", 0)
    source.answer = [0.0]
    other = Collector("other", [Together(source.shared, "m", 10 * SECOND_NS)])
    both = [Collector("source", [source]), other]
    host = sampler(*(both if first else reversed(both)))
    changes = []
    for n in range(800):
        if n == 600:
            source.finds = "xyz"  # at its next turn
        before = host.layout
        host.sample((n + 1) * SECOND_NS // 10)
        if host.layout is not before:
            changes.append(n)
    start, came, then = changes
    assert start == 0
    assert 600 <= came <= 700
    assert then == came + 1
    assert {c.metric for c in host.layout.channels} == {"a", "m0", "m1", "m2"}


class Broken(Told):
    """A source of which one part does not work: it raises, or is what it should not be."""

    works = True
    elsewhere_ns = lent_ns = 0

    def __init__(self, part: str, instead: object) -> None:
        super().__init__("a")
        self.broken = {part: instead}

    def __getattribute__(self, name: str) -> object:
        get = super().__getattribute__
        if name == "works" or get("works") or name not in get("broken"):
            return get(name)
        instead = get("broken")[name]
        if isinstance(instead, Exception):
            raise instead
        return instead


NO = ValueError("no")
A = Channel("a", "", Subsystem.CPU, "/s", Kind.RATE)


@pytest.mark.parametrize(
    ("part", "instead", "reason"),
    [
        ("plan", NO, "proc/told: ValueError: no"),
        ("plan", None, "proc/told: AttributeError: 'NoneType' object has no attribute 'fields'"),
        (
            "plan",
            Plan((Field("a", counter=True),), (A,), (1,)),
            "proc/told: ValueError: of 1 fields the channels are (1,)",
        ),
        (
            "plan",
            Plan((Field("a", counter=True),), (), (0,)),
            "proc/told: ValueError: 0 channels for (0,)",
        ),
        ("problem", NO, "proc/told: ValueError: no"),
        ("bad_fields", NO, "proc/told: ValueError: no"),
        (
            "bad_fields",
            "many",
            "proc/told: TypeError: unsupported operand type(s) for -: 'str' and 'int'",
        ),
        ("read", RuntimeError("no"), "proc/told: RuntimeError: no"),
        ("elsewhere_ns", NO, "proc/told: ValueError: no"),
        ("lent_ns", NO, "proc/told: ValueError: no"),
    ],
)
def test_no_part_of_a_source_costs_more_than_itself(
    part: str, instead: object, reason: str
) -> None:
    broken, good, alone = Broken(part, instead), Told("good"), Told("good")
    host = sampler(Collector("broken", [broken]), Collector("good", [good]))
    without = sampler(Collector("good", [alone]))
    for n in range(60):
        broken.works = not 10 <= n < 30
        broken.answer, good.answer, alone.answer = [2.0 * n], [n * n], [n * n]
        sample = host.sample((n + 1) * SECOND_NS // 10)
        expected = without.sample((n + 1) * SECOND_NS // 10).values
        np.testing.assert_array_equal(sample.values[1:], expected)
        assert [c.metric for c in sample.layout.channels] == ["a", "good"]
        assert np.isnan(sample.values[0]) == (n == 0 or not broken.works)
    assert sample.values[0] == pytest.approx(20)
    assert host.stats["broken"].failures == {reason: 20}
    assert host.stats["good"].failures == {}


@pytest.mark.parametrize("instead", [NO, -1, None, math.nan, math.inf, "soon"])
def test_a_period_that_is_none_is_that_of_before(instead: object) -> None:
    """The readings are good, and so are kept; how often to take them is known from before."""
    broken, good = Broken("period_ns", instead), Told("good")
    host = sampler(Collector("broken", [broken]), Collector("good", [good]))
    for n in range(30):
        broken.works = not 10 <= n < 20
        broken.answer, good.answer = [n * n], [n * n]
        values = host.sample((n + 1) * SECOND_NS // 10).values
        assert n == 0 or values.tolist() == [pytest.approx(10 * (2 * n - 1))] * 2
    assert host.stats["broken"].failures.total() == 10
    assert len(host.stats["broken"].failures) == 1


def test_a_source_that_never_says_how_often_is_read_once_a_second() -> None:
    broken = Broken("period_ns", NO)
    broken.works = False
    host = sampler(Collector("broken", [broken]))
    for n in range(100):
        host.sample((n + 1) * SECOND_NS // 10)
    assert 10 <= broken.reads <= 12


def test_a_source_that_cannot_even_name_itself_costs_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, good = Broken("path", NO), Told("good", kind=Kind.GAUGE)
    broken.answer = RuntimeError("broken")
    broken.works = False
    good.answer = [3.0]
    host = sampler(Collector("odd", [broken]), Collector("good", [good]))
    assert host.sample(SECOND_NS).values.tolist() == [3]
    assert host.stats["odd"].failures == {"odd: RuntimeError: broken": 1}
    assert [r.getMessage() for r in caplog.records] == ["collector odd: odd: RuntimeError: broken"]


class Moody:
    """Shared devices that cannot always say whether they changed."""

    works = True

    @property
    def generation(self) -> object:
        if self.works:
            return "first"
        raise NO


def test_shared_devices_that_raise_cost_their_sources() -> None:
    devices = Moody()
    sharing, good = Told("a", kind=Kind.GAUGE), Told("good", kind=Kind.GAUGE)
    sharing.shared = devices  # type: ignore[attr-defined]
    host = sampler(Collector("sharing", [sharing]), Collector("good", [good]))
    for n in range(30):
        devices.works = not 10 <= n < 20
        sharing.answer = good.answer = [1.0 * n]
        values = host.sample((n + 1) * SECOND_NS // 10).values
        np.testing.assert_array_equal(values, [n if devices.works else math.nan, n])
    assert host.stats["sharing"].failures == {"proc/told: ValueError: no": 10}
    assert sharing.reads == 30


@pytest.mark.parametrize("part", ["shared", "elsewhere_ns"])
def test_a_source_that_cannot_say_what_else_it_is_is_read_all_the_same(part: str) -> None:
    broken = Broken(part, NO)
    broken.works = False
    host = sampler(Collector("broken", [broken]), Collector("good", [Told("good")]))
    for n in range(3):
        broken.answer = [2.0 * n]
        values = host.sample((n + 1) * SECOND_NS).values
    assert values.tolist() == [2, 0]
    assert host.stats["broken"].failures == {"proc/told: ValueError: no": 1}


@pytest.mark.parametrize("given", ["seven", "7", b"7", None, [7.0], {}, object(), 1 + 2j])
def test_what_is_no_number_costs_itself(given: object) -> None:
    odd, good = Told("a", "b", "c", kind=Kind.GAUGE), Told("good")
    host = sampler(Collector("odd", [odd]), Collector("good", [good]))
    for n in range(3):
        odd.answer = [1.0, cast(float, given) if n == 1 else 2.0, 3.0]
        good.answer = [1.0 * n]
        values = host.sample((n + 1) * SECOND_NS).values
        expected = [1, math.nan if n == 1 else 2, 3, math.nan if n == 0 else 1]
        np.testing.assert_array_equal(values, np.array(expected, np.float32))
    assert host.stats["odd"].bad_fields == 1
    assert host.stats["odd"].failures == {f"proc/told: no number but {type(given).__name__}": 1}
    assert host.stats["good"].bad_fields == 0


@pytest.mark.parametrize("answer", [None, 7, "ab", "12", iter([1.0, 2.0])])
def test_an_answer_that_is_no_list_costs_its_source(answer: object) -> None:
    odd, good = Told("a", "b", kind=Kind.GAUGE), Told("good")
    host = sampler(Collector("odd", [odd]), Collector("good", [good]))
    for n in range(3):
        odd.answer = cast(Sequence[float], answer) if n == 1 else [1.0, 2.0]
        good.answer = [1.0 * n]
        values = host.sample((n + 1) * SECOND_NS).values
        assert np.isnan(values[:2]).all() == (n == 1)
    assert values.tolist() == [1, 2, 1]


def test_a_period_that_grows_costs_no_rate() -> None:
    """What was read with all others goes on from its last reading."""
    source, other = Told("a"), Told("b")
    host = sampler(Collector("a", [source]), Collector("b", [other]))
    seen = []
    for n in range(60):
        if n == 20:
            source.period_ns = SECOND_NS
        if n == 40:
            source.period_ns = 0
        source.answer = [3 * n]
        other.answer = [n]
        seen.append(host.sample((n + 1) * SECOND_NS // 10).values.tolist())
    assert seen[1:] == [[pytest.approx(30), pytest.approx(10)]] * 59
    # It is looked at with each reading, and where a turn begins is its phase's.
    assert 20 + 2 + 10 <= source.reads <= 20 + 3 + 20


def test_a_stretched_collector_is_read_more_seldom_and_says_how_old_it_is() -> None:
    source = Told("a", kind=Kind.GAUGE)
    host = sampler(Collector("a", [source]), Collector("b", [Told("b")]))
    host.stats["a"].stretch = 4
    ages = []
    for n in range(12):
        source.answer = [n]
        values = host.sample((n + 1) * SECOND_NS // 10).values
        now = (n + 1) * SECOND_NS // 10
        ages.append((now - host.stats["a"].read_ns) // 100_000_000)
        assert host.stats["b"].read_ns == now
        assert values[0] == n - ages[-1]
    assert source.reads == 4
    assert max(ages) == 3


def test_sources_of_one_period_are_spread_over_the_ticks() -> None:
    sources = [Told(f"m{i}", period_ns=SECOND_NS) for i in range(20)]
    host = sampler(Collector("slow", sources))
    host.sample(SECOND_NS)
    per_tick = []
    for n in range(1, 41):
        before = sum(s.reads for s in sources)
        host.sample(SECOND_NS + n * SECOND_NS // 10)
        per_tick.append(sum(s.reads for s in sources) - before)
    assert max(per_tick) <= 3
    assert sum(per_tick) == 4 * 20


def test_a_large_interrupts_file_is_read_once_a_second() -> None:
    """The file of a machine with 300 sources and 16 cores, and its rates in between."""

    def text(n: int) -> bytes:
        cores = 16
        head = b" ".join(b"CPU%d" % c for c in range(cores))
        row = b" ".join(b"%10d" % (n * (c + 1)) for c in range(cores))
        rows = (b"%d: %s PCI-MSI %d-edge dev%d" % (i, row, i, i) for i in range(300))
        return head + b"\n" + b"\n".join(rows) + b"\n"

    assert len(text(1)) > SLOW_ABOVE_BYTES
    host = Host("interrupts")
    for n in range(31):
        values = host.read({"proc/interrupts": text(n)}, SECOND_NS // 10)
        if n >= 20:
            assert values["irq.source[dev7]"] == 10 * sum(range(1, 17))
            assert values["irq.core[cpu15]"] == 10 * 300 * 16
    assert set(values) == {
        *(f"irq.source[dev{i}]" for i in range(300)),
        *(f"irq.core[cpu{c}]" for c in range(16)),
        "irq.imbalance",
    }


def test_hotplug_of_an_interface_leaves_the_others_alone() -> None:
    head = b"Inter-|   Receive |  Transmit\n face |bytes packets|bytes packets\n"

    def text(n: int, *names: str) -> bytes:
        return head + b"".join(b"%s: %d 0 %d 0\n" % (m.encode(), n, 2 * n) for m in names)

    host = Host("network")
    seen = [
        host.read({"proc/net/dev": text(n, *names)}, SECOND_NS)
        for n, names in enumerate([("eth0",)] * 3 + [("eth1", "eth0")] * 4 + [("eth0",)] * 3)
    ]
    assert [v["net.rx_bytes[eth0]"] for v in seen[1:]] == [1] * 9
    assert [v["net.tx_bytes[eth0]"] for v in seen[1:]] == [2] * 9
    comes = [v.get("net.rx_bytes[eth1]") for v in seen]
    # Believed the second time, a rate from the third; when it goes, unknown once.
    assert comes[:4] == [None] * 4
    assert math.isnan(comes[4] or 0)
    assert comes[5:7] == [1, 1]
    assert math.isnan(comes[7] or 0)
    assert comes[8:] == [None] * 2


def test_hotplug_of_a_core() -> None:
    def text(n: int, cores: int) -> bytes:
        lines = [b"cpu%d %d 0 0 0\n" % (c, 50 * n) for c in range(cores)]
        return b"cpu %d 0 0 0\n" % (200 * n) + b"".join(lines)

    host = Host("cpu")
    seen = [
        host.read({"proc/stat": text(n, cores)}, SECOND_NS)
        for n, cores in enumerate([4, 4, 3, 3, 3, 4, 4, 4])
    ]
    assert [v["cpu.user[cpu2]"] for v in seen[1:]] == [50] * 7
    assert [v["cpu.user"] for v in seen[1:3]] == [50] * 2
    # Three cores, and the count of all: the kernel's total goes on over every core.
    assert seen[4]["cpu.user"] == pytest.approx(200 / 3)
    assert "cpu.user[cpu3]" not in seen[4]
    assert math.isnan(seen[6]["cpu.user[cpu3]"])
    assert seen[7]["cpu.user[cpu3]"] == 50


def test_two_hosts_share_a_group_that_reads_once() -> None:
    told = Told("machine")
    shared = Group([Collector("machine", [told])], MemoryReader())
    own = [Told("own"), Told("own")]
    hosts = [sampler(Collector("own", [one]), shared=[shared]) for one in own]
    for n in range(4):
        told.answer = [5 * n]
        for scale, one, host in zip((1, 2), own, hosts, strict=True):
            one.answer = [scale * n]
            sample = host.sample((n + 1) * SECOND_NS)
            if n:
                assert sample.values.tolist() == [5, scale]
    assert told.reads == 4
    assert [c.metric for c in hosts[0].layout.channels] == ["machine", "own"]
    assert set(hosts[0].stats) == {"machine", "own"}


OWN = ("proc/net", "proc/sys/net", "proc/1/", "sys/class/net")
"""What each network namespace has for itself."""


def test_two_ranks_of_a_recording_see_their_own_network() -> None:
    """A sampler over a shared machine gives what one over all files gives."""
    recorded = [
        {f"rank{r}:{p}" if p.startswith(OWN) else p: t for p, t in f.items()}
        for f, r in ((FIRST, 0), (SECOND, 0))
    ]
    for files, other in zip(recorded, (SECOND, FIRST), strict=True):
        files |= {f"rank1:{p}": t for p, t in other.items() if p.startswith(OWN)}
    machine = MemoryReader()
    shared = Group([make() for make in MACHINE], machine)
    ranks = [MemoryReader(prefix=f"rank{r}:") for r in (0, 1)]
    hosts = [
        Sampler(
            [make() for make in NAMESPACE],
            reader,
            host="r",
            interval_us=1,
            agent_version="",
            boot_id="",
            shared=[shared],
        )
        for reader in ranks
    ]
    for n, files in enumerate(recorded):
        machine.files = ranks[0].files = ranks[1].files = files
        samples = [host.sample(1 + n * BETWEEN_NS, whole=True) for host in hosts]
    labels = [c.label for c in samples[0].layout.channels]
    values = dict(zip(labels, samples[0].values.tolist(), strict=True))
    alone = Host().twice()
    assert values == pytest.approx(alone, nan_ok=True)
    # The other rank's counters went back: a reset.
    place = labels.index("net.rx_bytes[v0]")
    assert values["net.rx_bytes[v0]"] > 0
    assert math.isnan(samples[1].values[place])


def test_collectors_cost_is_measured() -> None:
    ticks, cpu = iter(range(0, 10**9, 1000)), iter(range(0, 10**9, 300))
    group = Group(
        [Collector("a", [Told("x")]), Collector("b", [Told("y"), Told("z")])],
        MemoryReader(),
        clock_ns=lambda: next(ticks),
        cpu_ns=lambda: next(cpu),
    )
    group.collect(1)
    group.collect(2)
    assert group.stats["b"].seconds == pytest.approx(2e-6)
    assert group.stats["b"].cpu_ns == 2 * 300


def test_the_cpu_time_of_other_threads_is_a_collector_s_too() -> None:
    class Busy(Told):
        elsewhere_ns = 0
        lent_ns = 0

        def read(self, reader: Reader, mono_ns: int) -> Sequence[float]:
            self.elsewhere_ns += 5_000
            return super().read(reader, mono_ns)

    group = Group([Collector("a", [Busy("x")])], MemoryReader(), cpu_ns=lambda: 0)
    for n in range(1, 4):
        group.collect(n)
    assert group.stats["a"].cpu_ns == 15_000


def test_two_collectors_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two collectors are called cpu"):
        Group([collector("cpu"), collector("cpu")], MemoryReader())


def test_this_machine() -> None:
    """Its own files: nothing raises, nothing is bad, and the layout settles."""
    with SystemReader() as reader:
        host = Sampler(
            [make() for make in ALL],
            reader,
            host="h",
            interval_us=100_000,
            agent_version="",
            boot_id="",
        )
        samples = [host.sample(n * SECOND_NS) for n in range(1, 5)]
    assert samples[-1].layout is samples[0].layout
    assert len(samples[-1].values) == len(samples[-1].layout.channels) > 100
    for name, stats in host.stats.items():
        assert not stats.failures, name
        assert stats.bad_fields == 0, name
        assert stats.seconds > 0, name
