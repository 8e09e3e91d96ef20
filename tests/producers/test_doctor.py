from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from deploy.local import Broker
from producers import doctor
from producers.collectors import ALL
from producers.config import AgentSettings
from producers.doctor import Finding
from producers.reading import MemoryReader, SystemReader
from producers.source import Collector
from schemas.topics import LAYOUTS
from tests.producers.hosts import Numbers

HAS_ALL = Finding("a", True, True, "here")
LACKS = Finding("b", False, False, "not here", "it matters", "do this")
FAILS = Finding("c", False, True, "broken", "it matters", "do that")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with nothing in it."""
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def write(folder: Path, path: str, text: str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="ascii")


def test_this_machine_is_fit_to_run() -> None:
    findings = list(doctor.examine(AgentSettings.model_validate({"host": "node1"}), ""))
    by_name = {f.what: f for f in findings}
    assert doctor.healthy(findings)
    assert by_name["proc/stat"].well
    assert by_name["host name"].found == "node1"
    assert "sampling" in by_name
    assert "brokers" not in by_name
    assert all(f.why or f.remedy for f in findings if not f.well)


def test_a_wrong_root_is_said_file_by_file_with_what_to_do(proc: Path, tmp_path: Path) -> None:
    settings = AgentSettings.model_validate({"proc_root": proc, "sys_root": tmp_path})
    findings = list(doctor.examine(settings, ""))
    by_name = {f.what: f for f in findings}
    assert not doctor.healthy(findings)
    stat = by_name["proc/stat"]
    assert (stat.well, stat.essential, stat.found) == (False, True, "No such file or directory")
    assert stat.why
    for name in ("boot id", "interfaces", "proc/pressure/cpu", "proc/diskstats"):
        assert not by_name[name].well
        assert not by_name[name].essential
    assert doctor.verdict(findings).startswith("Not fit to run: proc/stat")


def test_pressure_that_the_kernel_was_booted_without(proc: Path) -> None:
    write(proc, "stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\n")
    with SystemReader(proc) as reader:
        findings = [f for make in ALL for f in doctor.check_collector(make(), reader)]
    by_name = {f.what: f for f in findings}
    assert by_name["proc/stat"].well
    assert not by_name["proc/pressure/memory"].well
    assert "psi=1" in by_name["proc/pressure/memory"].why


def findings_of(source: Numbers, reader: Any = None) -> Finding:
    collector = Collector("numbers", (source,))
    (finding,) = doctor.check_collector(collector, reader or MemoryReader())
    return finding


def test_a_source_that_works_says_how_much_it_gives() -> None:
    assert findings_of(Numbers(1.0, 2.0)) == Finding(
        "proc/numbers", True, False, "2 channels of numbers"
    )


def test_a_source_that_raises_costs_itself() -> None:
    source = Numbers(1.0)
    source.error = ValueError("what is this")
    finding = findings_of(source)
    assert not finding.well
    assert finding.found == "ValueError: what is this"
    assert finding.why == "Without it there are no numbers."


def test_a_file_without_permission_says_so() -> None:
    source = Numbers()
    source.problem = "proc/numbers: Permission denied"
    assert findings_of(source).remedy == "run the agent as root, or let its user read the file"


def test_fields_that_are_no_numbers_are_counted() -> None:
    source = Numbers(1.0, 2.0)
    source.bad_fields = 1
    finding = findings_of(source)
    assert not finding.well
    assert finding.found == "2 channels of numbers, 1 fields are no numbers"


def test_the_boot_has_a_name(proc: Path) -> None:
    assert not doctor.check_boot_id(proc).well
    write(proc, "sys/kernel/random/boot_id", "0000-1111\n")
    assert doctor.check_boot_id(proc) == Finding("boot id", True, False, "0000-1111")


HEADER = "Inter-|   Receive\n face |bytes\n"


@pytest.mark.parametrize(
    ("interfaces", "well"),
    [("    lo: 1 2\n", False), ("    lo: 1\n  eth0: 1\n", True), ("", False)],
)
def test_a_host_with_lo_alone_is_a_container(proc: Path, interfaces: str, well: bool) -> None:
    write(proc, "net/dev", HEADER + interfaces)
    finding = doctor.check_network(proc)
    assert finding.well is well
    assert ("network namespace" in finding.remedy) is not well


@pytest.mark.parametrize(
    ("name", "well"), [("node1", True), ("localhost", False), ("localhost.localdomain", False)]
)
def test_localhost_is_no_name(name: str, well: bool) -> None:
    assert doctor.check_name(name).well is well


def test_a_clock_that_was_never_set_is_essential() -> None:
    assert doctor.check_date(1_800_000_000).well
    finding = doctor.check_date(86_400)
    assert (finding.well, finding.essential, finding.found) == (
        *(False, True),
        "1970-01-02 00:00:00 UTC",
    )


@pytest.mark.parametrize(
    ("state", "well", "found"),
    [
        (0, True, "kept right by NTP or PTP"),
        (5, False, "not synchronised"),
        (None, False, "not known"),
    ],
)
def test_a_clock_that_nobody_keeps(state: int | None, well: bool, found: str) -> None:
    finding = doctor.check_synchronised(state)
    assert (finding.well, finding.essential, finding.found) == (well, False, found)


@pytest.mark.parametrize(("name", "well"), [("tsc", True), ("hpet", False), ("kvm-clock", True)])
def test_a_slow_clock_source(tmp_path: Path, name: str, well: bool) -> None:
    write(tmp_path, "devices/system/clocksource/clocksource0/current_clocksource", name + "\n")
    finding = doctor.check_clock_source(tmp_path)
    assert (finding.well, finding.found) == (well, name)


def test_waking_late_is_measured_against_half_an_interval() -> None:
    assert doctor.check_wakes([0.1, 0.2, 49.0], 100).well
    finding = doctor.check_wakes([0.1, 0.2, 51.0], 100)
    assert not finding.well
    assert finding.found == "0.20 ms late in the median, 51.00 at most, of 3"


def test_sampling_that_takes_much_of_the_interval() -> None:
    assert doctor.check_cost(1.2, 100).found == "1.2 ms of every 100, 1.2 % of a core"
    assert doctor.check_cost(1.2, 100).well
    assert not doctor.check_cost(12, 100).well


def test_a_broker_with_our_topics(broker: Broker) -> None:
    finding = doctor.check_brokers(broker.bootstrap)
    assert finding.well
    assert finding.found == f"{broker.bootstrap}: reveal.telemetry, reveal.layouts"


def test_a_broker_that_is_not_there_is_essential_and_says_why() -> None:
    class Unreachable:
        def __init__(self, config: dict[str, Any]) -> None:
            text = "a:1/bootstrap: Connect to ipv4#a:1 failed: Refused (after 0ms in state CONNECT)"
            config["error_cb"](KafkaError(KafkaError._TRANSPORT, text))

        def list_topics(self, timeout: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"timed out after {timeout}"))

        def poll(self, timeout: float) -> None: ...

    finding = doctor.check_brokers("a:1", Unreachable)
    assert (finding.well, finding.essential) == (False, True)
    assert finding.found == "a:1: Connect to ipv4#a:1 failed: Refused"


def test_a_broker_without_our_topics_says_how_to_make_them() -> None:
    class Bare:
        def __init__(self, _config: dict[str, Any]) -> None:
            self.topics = {LAYOUTS.name: None}

        def list_topics(self, timeout: float) -> Bare:
            assert timeout > 0
            return self

    finding = doctor.check_brokers("a:1", Bare)
    assert (finding.well, finding.essential) == (False, True)
    assert finding.found == "a:1: reached, without topic reveal.telemetry"
    assert finding.remedy == "create the topics: reveal topics create"


@pytest.mark.parametrize(
    ("findings", "healthy", "verdict"),
    [
        ([HAS_ALL], True, "Fit to run, with everything that the agent can read."),
        ([HAS_ALL, LACKS], True, "Fit to run, without: b."),
        ([HAS_ALL, LACKS, FAILS], False, "Not fit to run: c."),
    ],
)
def test_only_what_is_essential_decides(
    findings: list[Finding], healthy: bool, verdict: str
) -> None:
    assert doctor.healthy(findings) is healthy
    assert doctor.verdict(findings) == verdict


def test_a_finding_is_a_line_and_what_is_not_well_has_its_reason_below() -> None:
    assert list(doctor.as_text(HAS_ALL, 80)) == [f"ok       {'a':<30}here"]
    assert list(doctor.as_text(LACKS, 80)) == [
        f"absent   {'b':<30}not here",
        "         it matters",
        "         do this",
    ]
    assert next(doctor.as_text(FAILS, 80)).startswith("FAILED   c")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_text_is_wrapped_and_whole(width: int) -> None:
    words = [f"word{i}" for i in range(60)]
    lines = list(doctor.as_text(Finding("a", False, False, " ".join(words), "why", ""), width))
    assert all(len(line) <= width for line in lines)
    assert " ".join(lines).split()[2:-1] == words


def test_json_has_every_field() -> None:
    assert json.loads(doctor.as_json(LACKS)) == {
        "what": "b",
        "well": False,
        "essential": False,
        "found": "not here",
        "why": "it matters",
        "remedy": "do this",
    }


class Way(Numbers):
    """A source that says which way it went."""

    note = "the long way"


def test_what_is_missing_is_said_once() -> None:
    a, b, c = (doctor.Finding(w, False, False, "no driver", "why", "do this") for w in "abc")
    well = [doctor.Finding(w, True, False, "1 channels of x") for w in "xy"]
    other = doctor.Finding("d", False, False, "not here", "why", "do this")
    found = [*doctor.merged([a, well[0], b, other, well[1], c, a])]
    assert [f.what for f in found] == ["a and 2 more", "x", "d", "y"]
    essential = doctor.Finding("a", False, True, "no driver", "why", "do this")
    assert [f.essential for f in doctor.merged([a, essential])] == [True]


def test_which_way_was_taken_is_said() -> None:
    (found,) = doctor.check_collector(Collector("numbers", (Way(1.0),)), MemoryReader())
    assert found.found == "1 channels of numbers; the long way"


def test_what_has_nothing_here_and_misses_nothing_is_not_mentioned() -> None:
    assert [*doctor.check_collector(Collector("numbers", (Numbers(),)), MemoryReader())] == []
