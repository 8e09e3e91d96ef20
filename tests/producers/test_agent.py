from __future__ import annotations

import math

import numpy as np
import pytest
from confluent_kafka import KafkaError

from deploy.local import Broker
from producers.report import merged
from schemas.codec import decode
from schemas.records import Layout, Subsystem, Telemetry, layout_fingerprint
from schemas.topics import LAYOUTS, TELEMETRY
from tests.producers.hosts import INTERVAL_US, SECOND_NS, START_NS, Host, Numbers
from tests.producers.kafka import read_topic

START_US = START_NS // 1000


def sent(host: Host) -> list[tuple[str, Layout | Telemetry]]:
    """What the fake producer was given: topic and record."""
    found = []
    for producer in host.producers:
        for topic, value in producer.given:
            record = decode(value)
            assert isinstance(record, Layout | Telemetry)
            found.append((topic, record))
    return found


def layouts(host: Host) -> list[Layout]:
    return [r for _, r in sent(host) if isinstance(r, Layout)]


def telemetry(host: Host) -> list[Telemetry]:
    return [r for _, r in sent(host) if isinstance(r, Telemetry)]


def test_what_is_sampled_is_what_a_reader_gets(broker: Broker) -> None:
    host = Host(1.5, math.nan, -3.0, brokers=broker.bootstrap)
    samples = []

    def change(number: int) -> None:
        host.numbers.levels = (number, math.nan if number % 3 else 0.25, -number / 7)
        host.cpu_ns += 1_000_000

    original = host.sampler.sample

    def remember(mono_ns: int) -> object:
        sample = original(mono_ns)
        samples.append(sample.values.copy())
        return sample

    host.sampler.sample = remember  # type: ignore[method-assign, assignment]
    host.clock.run(370_000_000)  # starts in mid-second
    host.ticks(38, change)
    summary = host.agent.run(0, 20)
    assert (summary.ticks, summary.missed, summary.dropped) == (38, 0, 0)
    (layout_key, layout), *others = read_topic(broker.bootstrap, LAYOUTS)
    assert not others
    assert isinstance(layout, Layout)
    assert layout_key == f"node1:{layout.fingerprint}"
    assert layout.fingerprint == layout_fingerprint(layout.channels, INTERVAL_US)
    assert (layout.host, layout.boot_id, layout.interval_us) == ("node1", "boot", INTERVAL_US)
    found = read_topic(broker.bootstrap, TELEMETRY)
    assert {key for key, _ in found} == {"node1"}
    records = [r for _, r in found if isinstance(r, Telemetry)]
    assert [len(r.timestamps) for r in records] == [6, 10, 10, 10, 2]
    assert [r.seq for r in records] == [0, 1, 2, 3, 4]
    assert {r.layout for r in records} == {layout.fingerprint}
    stamps = np.concatenate([r.timestamps for r in records])
    assert stamps.tolist() == [START_US + 400_000 + i * INTERVAL_US for i in range(38)]
    values = np.concatenate([r.values for r in records], axis=1)
    # To eleven significant bits (test_precision.py).
    np.testing.assert_allclose(values, np.stack(samples, axis=1), rtol=2.0**-11)
    assert values[0].tolist() == list(range(38))
    assert np.isnan(values[1, 1])
    assert values[1, 3] == 0.25


def test_the_layout_goes_first_and_again_every_minute() -> None:
    host = Host(1.0, 2.0)
    host.producers[0].obliging = True
    host.ticks(1)
    assert [topic for topic, _ in sent(host)] == [LAYOUTS.name]
    host.ticks(599)
    assert len(layouts(host)) == 1
    host.ticks(1)
    assert len(layouts(host)) == 2
    host.ticks(600)
    assert len(layouts(host)) == 3
    assert len({layout.fingerprint for layout in layouts(host)}) == 1


def test_a_changed_layout_is_sent_before_its_ticks() -> None:
    host = Host(1.0, 2.0)
    host.ticks(4)
    host.numbers.levels = (5.0, 6.0, 7.0)
    host.ticks(6)
    (_, a), (_, b), (_, c), (_, d) = sent(host)
    assert isinstance(a, Layout)
    assert isinstance(b, Layout)
    assert isinstance(c, Telemetry)
    assert isinstance(d, Telemetry)
    assert len(b.channels) == len(a.channels) + 1
    assert (c.layout, c.values.shape) == (a.fingerprint, (len(a.channels), 4))
    assert (d.layout, d.values.shape) == (b.fingerprint, (len(b.channels), 6))
    assert d.values[:3].tolist() == [[5] * 6, [6] * 6, [7] * 6]


def test_missed_ticks_are_missing_and_counted() -> None:
    host = Host(1.0)
    host.ticks(5)
    host.clock.run(320_000_000)
    host.ticks(3)
    (record,) = telemetry(host)
    tenths = [(t - START_US) // 100_000 for t in record.timestamps.tolist()]
    assert tenths == [0, 1, 2, 3, 4, 7, 8, 9]
    assert own(host, "agent.missed_ticks")[-2:].tolist() == [25.0, 0.0]  # two in 80 ms


def own(host: Host, label: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A channel's values so far."""
    row = [c.label for c in layouts(host)[-1].channels].index(label)
    return np.concatenate([r.values[row] for r in telemetry(host)])


def test_the_agent_reports_its_own_cost_of_the_tick_before() -> None:
    host = Host(1.0)

    def spend(number: int) -> None:
        host.cpu_ns += 2_000_000  # of 100 ms
        host.clock.oversleep_ns = 1000 * number

    host.ticks(20, spend)
    layout = layouts(host)[0]
    ours = [c for c in layout.channels if c.subsystem is Subsystem.AGENT]
    assert [c.label for c in ours] == [
        "agent.cpu",
        "agent.missed_ticks",
        "agent.dropped",
        "agent.payload",
        "agent.queued",
        "agent.jitter",
        "agent.collector_time[numbers]",
        "agent.collector_age[numbers]",
        "agent.collector_stretch[numbers]",
    ]
    cpu = own(host, "agent.cpu")
    assert np.isnan(cpu[:2]).all()
    assert cpu[5:] == pytest.approx(2.0, rel=1e-3)
    assert own(host, "agent.jitter")[1:].tolist() == list(range(19))
    payload = own(host, "agent.payload")
    assert payload[10] > 0
    assert payload[11] == 0
    spent = own(host, "agent.collector_time[numbers]")
    assert np.isnan(spent[0])
    assert (spent[11:] > 0).all()
    assert own(host, "agent.collector_age[numbers]")[1:].tolist() == [0] * 19
    assert own(host, "agent.collector_stretch[numbers]")[1:].tolist() == [1] * 19


def test_a_run_ends_after_its_seconds_and_sends_what_is_left() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True
    summary = host.agent.run(2.55, 5)
    assert summary.ticks == 26
    assert [len(r.timestamps) for r in telemetry(host)] == [10, 10, 6]
    assert (summary.delivered, summary.dropped) == (4, 0)
    assert str(summary).startswith("26 ticks of 10 channels, 0 missed; 4 messages delivered, 0 dro")


def test_a_stop_ends_a_run() -> None:
    host = Host(1.0, waits=12)
    host.producers[0].obliging = True
    summary = host.agent.run(None, 5)
    assert (summary.ticks, summary.delivered) == (12, 3)


def break_off(host: Host) -> None:
    producer = host.producers[0]
    producer.obliging = False
    producer.config["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))


def test_trouble_is_said_soon_then_once_a_minute_and_its_end() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True
    host.ticks(30)
    break_off(host)
    host.ticks(21)
    assert host.said == ["not sending: 1/1 brokers are down; messages waiting: 2"]
    host.ticks(600)
    assert host.said[1:] == ["not sending: 1/1 brokers are down; messages waiting: 63"]
    host.producers[0].obliging = True
    host.ticks(600)
    assert host.said[2:] == ["sending again"]
    host.ticks(1300)
    assert len(host.said) == 3


def test_a_connection_that_is_made_again_at_once_is_not_worth_a_word() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True
    for _ in range(20):
        host.ticks(30)
        break_off(host)
        host.ticks(5)
        host.producers[0].obliging = True
    assert host.said == []


def test_what_is_lost_is_said_once_a_minute_with_its_number() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True
    host.ticks(20)
    host.clock.run(SECOND_NS)
    host.clock.step(-10 * SECOND_NS)
    host.ticks(20)
    assert host.said == []
    host.ticks(600)
    assert host.said == ["ticks missed: 9; clock steps: 1"]
    host.ticks(1300)
    assert len(host.said) == 1


def test_fields_that_are_no_numbers_are_lost_too() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True
    host.ticks(20)
    host.numbers.bad_fields = 4
    host.ticks(600)
    assert host.said == ["fields that were no numbers: 4"]


def test_trouble_does_not_wait_for_what_is_lost() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True
    host.ticks(20)
    host.clock.run(SECOND_NS)
    host.ticks(5)
    break_off(host)
    host.ticks(20)
    assert host.said == ["not sending: 1/1 brokers are down; messages waiting: 2"]


def test_there_is_never_more_than_a_line_a_minute() -> None:
    host = Host(1.0)
    times = []
    host.agent._report._say = lambda _: times.append(host.clock.mono)
    for number in range(60):
        host.numbers.problem = f"proc/numbers: {number % 3}" if number % 3 else ""
        host.producers[0].obliging = number % 2 == 0
        if number % 2:
            break_off(host)
        host.clock.run(SECOND_NS if number % 5 == 0 else 0)
        host.ticks(70)
    assert len(times) > 5
    assert min(np.diff(times)) >= 60 * SECOND_NS


def test_what_is_absent_is_said_once() -> None:
    host = Host(1.0)
    host.numbers.problem = "proc/numbers: No such file or directory"
    host.producers[0].obliging = True
    host.ticks(1300)
    assert host.said == ["absent: proc/numbers: No such file or directory"]
    host.numbers.problem = ""
    host.ticks(20)
    assert host.said[1:] == ["no longer: proc/numbers: No such file or directory"]


def test_a_source_that_raises_costs_its_channels_and_is_said_once() -> None:
    host = Host(1.0)
    host.producers[0].obliging = True
    host.ticks(10)
    host.numbers.error = ValueError("odd file")
    host.ticks(1200)
    assert host.said == ["failed: proc/numbers: ValueError: odd file"]
    values = own(host, "test.n0")
    assert values[:10].tolist() == [1.0] * 10
    assert np.isnan(values[10:]).all()
    assert len(layouts(host)) == 3


def test_what_many_lack_for_one_reason_is_said_once() -> None:
    assert merged(
        [("b", "no driver"), ("a", "no driver"), ("c", "no file"), ("d", "no driver")]
    ) == [
        "a and 2 more: no driver",
        "c: no file",
    ]


def test_where_much_is_absent_only_what_can_be_mended_is_named() -> None:
    host = Host(1.0)
    sources = [Numbers() for _ in range(6)]
    for n, source in enumerate(sources):
        source.path = f"sys/n{n}"
        source.problem = f"sys/n{n}: reason {n}" if n else "sys/n0: Permission denied"
    host.agent._report._sources = [*sources]
    assert host.agent.prepare() == [
        "sys/n0: Permission denied",
        "5 more sources (`reveal-agent doctor` says which and why)",
    ]
    sources[0].problem = ""
    assert host.agent.prepare() == ["5 sources (`reveal-agent doctor` says which and why)"]


def test_preparing_gives_the_first_tick_its_rates_and_says_what_is_absent() -> None:
    host = Host(1.0)
    host.numbers.problem = "proc/numbers: No such file or directory"
    host.own.missed_ticks = 0
    assert host.agent.prepare() == ["proc/numbers: No such file or directory"]
    host.clock.run(SECOND_NS)
    host.producers[0].obliging = True
    host.ticks(620)
    assert host.said == []
    assert own(host, "agent.missed_ticks")[0] == 0
