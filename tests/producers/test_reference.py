"""The table of reference: read off the collectors, one line a kind of metric."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

import producers
from producers.collectors import ALL
from producers.group import Group
from producers.reference import HEADERS, Metric, as_markdown, counts, print_reference, reference
from tests.producers.kernel import FIRST, Host
from tests.producers.metrics_page import page


def recorded() -> tuple[Group, list[Metric]]:
    host = Host()
    collectors = [make() for make in ALL]
    group = Group(collectors, host.reader)
    host.reader.files = FIRST
    group.collect(1)
    return group, reference(collectors)


def test_every_channel_is_in_one_line() -> None:
    group, metrics = recorded()
    assert len({m.metric for m in metrics}) == len(metrics)
    assert sum(m.channels for m in metrics) == len(group.channels)
    assert {m.metric for m in metrics} == {c.metric for c in group.channels}


def test_a_line_says_unit_kind_and_source() -> None:
    lines = {m.metric: m for m in recorded()[1]}
    assert lines["memory.mem_free"] == Metric(
        "memory.mem_free", "memory", "B", "gauge", 1, "0.2 s", "memory", "proc/meminfo"
    )
    user = lines["cpu.user"]
    assert (user.unit, user.kind, user.source) == ("%", "rate", "proc/stat")
    assert user.channels == sum(line.startswith(b"cpu") for line in FIRST["proc/stat"].split(b"\n"))


def test_printed_and_as_a_page() -> None:
    metrics = [
        Metric("a.b", "cpu", "%", "rate", 3, "every tick", "cpu", "proc/stat"),
        Metric("c.d", "gpu, cpu", "W", "gauge", 1, "1 s", "heat", "sys/class/hwmon"),
    ]
    assert counts(metrics) == "2 kinds of metric, 4 channels: 1 cpu, 1 gpu"
    out = io.StringIO()
    print_reference(metrics, Console(file=out, width=200))
    lines = out.getvalue().splitlines()
    assert lines[0].split() == list(HEADERS)
    assert lines[1].split() == ["a.b", "cpu", "%", "rate", "3", "every", "tick", "cpu", "proc/stat"]
    page = as_markdown(metrics)
    assert "## cpu" in page
    assert "| c.d | W | gauge | 1 s | heat | sys/class/hwmon |" in page.splitlines()


def test_on_a_terminal_nothing_is_cut() -> None:
    out = io.StringIO()
    metrics = [Metric("a.b" * 30, "cpu", "%", "rate", 3, "every tick", "cpu", "proc/stat" * 9)]
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    print_reference(metrics, console)
    text = out.getvalue()
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_page_is_what_the_collectors_say() -> None:
    written = Path(producers.__file__).with_name("METRICS.md").read_text()
    anew = "python -m tests.producers.metrics_page > producers/METRICS.md"
    assert written == page(), f"not up to date: {anew}"
