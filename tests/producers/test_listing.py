from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from producers.listing import format_value, json_lines, print_channels
from schemas.records import Channel, Kind, Layout, Subsystem

CHANNELS = (
    Channel("cpu.user", "cpu3", Subsystem.CPU, "percent", Kind.RATE),
    Channel("memory.mem_free", "", Subsystem.MEMORY, "bytes", Kind.GAUGE),
    Channel("net.rx_bytes", "enp0s31f6" * 8, Subsystem.NETWORK, "bytes/s", Kind.RATE),
    Channel("agent.cpu", "", Subsystem.AGENT, "percent", Kind.RATE),
)
LAYOUT = Layout("node1", 1, "0", "boot", 100_000, CHANNELS)
VALUES = np.array([12.5, 8_219_000_832, np.nan, 1.25], np.float32)


def shown(*, everything: bool = False, terminal: bool = False, width: int = 80) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, color_system=None)
    print_channels(LAYOUT, VALUES, everything=everything, console=console)
    return out.getvalue()


def test_piped_every_channel_is_one_whole_line() -> None:
    lines = shown().splitlines()
    assert lines[0].split() == ["metric", "device", "subsystem", "value", "unit", "kind"]
    assert [line.split() for line in lines[1:4]] == [
        ["cpu.user", "cpu3", "cpu", "12.5", "percent", "rate"],
        ["memory.mem_free", "memory", "8219000832", "bytes", "gauge"],
        ["net.rx_bytes", "enp0s31f6" * 8, "network", "-", "bytes/s", "rate"],
    ]
    assert lines[-1] == (
        "3 channels of node1: 1 cpu, 1 memory, 1 network; 1 more are the agent's own (--all)"
    )


def test_columns_are_aligned() -> None:
    lines = shown().splitlines()[:4]
    words = ("subsystem", "cpu", "memory", "network")
    at = lines[0].index("subsystem")
    assert [line[at:].split()[0] for line in lines] == list(words)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_nothing_is_cut(width: int) -> None:
    text = shown(terminal=True, width=width)
    assert all(len(line) <= width for line in text.splitlines()[:-1])
    assert "…" not in text
    joined = "".join(text.split())
    assert joined.count("enp0s31f6") + joined.count("enp0s31f") >= 1
    assert "12.5" in text


def test_the_agents_own_channels_are_there_when_asked_for() -> None:
    assert "agent.cpu" not in shown()
    text = shown(everything=True)
    assert "agent.cpu" in text
    assert text.splitlines()[-1] == "4 channels of node1: 1 cpu, 1 memory, 1 network, 1 agent"


def test_json_has_one_object_a_channel_and_null_for_what_is_not_available() -> None:
    objects = [json.loads(line) for line in json_lines(LAYOUT, VALUES, everything=True)]
    assert len(objects) == 4
    assert objects[0] == {
        "metric": "cpu.user",
        "device": "cpu3",
        "subsystem": "cpu",
        "unit": "percent",
        "kind": "rate",
        "value": 12.5,
    }
    assert objects[2]["value"] is None
    assert len(list(json_lines(LAYOUT, VALUES, everything=False))) == 3


def test_a_host_without_channels_says_so() -> None:
    out = io.StringIO()
    nothing = Layout("node1", 1, "0", "", 100_000, ())
    values = np.empty(0, np.float32)
    print_channels(nothing, values, everything=False, console=Console(file=out))
    assert out.getvalue().splitlines()[-1] == "0 channels of node1: none"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (12.0, "12"),
        (12.345678, "12.3457"),
        (0.00012345, "0.00012345"),
        (0.00001, "1.00e-05"),
        (-3.25, "-3.25"),
        (123456.7, "123457"),
        (8_219_000_832.0, "8219000832"),
        (1e15, "1e+15"),
        (math.inf, "inf"),
        (math.nan, "-"),
    ],
)
def test_values_are_written_as_people_read_them(value: float, text: str) -> None:
    assert format_value(value) == text
