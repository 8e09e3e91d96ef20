"""Whatever is in a text of a tree: nothing raises, and the other texts' values stay right."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.producers.kernel import FIRST, SECOND, Host

TREES = {
    "numa": "sys/devices/system/node/node",
    "cgroup": "sys/fs/cgroup/",
    "lustre": "sys/kernel/debug/lustre/llite/",
    "lustre_targets": "sys/kernel/debug/lustre/",
}
TEXTS = sorted(
    (name, path)
    for name, top in TREES.items()
    for path, text in SECOND.items()
    if path.startswith(top) and len(text.split()) > 2
)
SNIPPETS = [
    b"\n",
    b":",
    b" ",
    b"-1",
    b"total=",
    b"samples",
    b"9" * 40,
    b"\xff",
    b"\x1c",
    b"=",
    b".",
]


def whole(name: str) -> dict[str, float]:
    return Host(name).twice()


WHOLE = {name: whole(name) for name in TREES}


@pytest.mark.parametrize(("name", "path"), TEXTS)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_bytes_are_changed(name: str, path: str, data: st.DataObject) -> None:
    host = Host(name)
    host.read(FIRST)
    text = bytearray(SECOND[path])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(text) - 1)))
        end = min(len(text), at + data.draw(st.integers(0, 30)))
        text[at:end] = data.draw(st.binary(max_size=10) | st.sampled_from(SNIPPETS))
    for _ in range(3):
        values = host.read(SECOND | {path: bytes(text)})
    assert not any("Error" in r for s in host.group.stats.values() for r in s.failures)
    assert not any("fields" in r for s in host.group.stats.values() for r in s.failures)
    fresh = Host(name)
    for _ in range(3):
        fresh.read(SECOND | {path: bytes(text)})
    assert not any("Error" in r for s in fresh.group.stats.values() for r in s.failures)
    # Levels of other devices are what they would be.
    for label, value in values.items():
        if "/" not in label and label in WHOLE[name] and _level(label) and not _of(label, path):
            assert value == WHOLE[name][label] or math.isnan(value), label


def _level(label: str) -> bool:
    return label.startswith(("numa.mem", "cgroup.memory[", "cgroup.tasks"))


def _of(label: str, path: str) -> bool:
    return label.partition("[")[2].rstrip("]") in path


@pytest.mark.parametrize(("name", "path"), TEXTS)
def test_cut_at_every_line_and_in_mid_line(name: str, path: str) -> None:
    """What is left is right, what is lost is unknown, and the layout stays."""
    text = SECOND[path]
    cuts = {0, *(i + 1 for i, byte in enumerate(text) if byte == 10)}
    cuts |= {*range(0, len(text), max(1, len(text) // 25))} - {len(text)}
    for at in sorted(cuts - {len(text)}):
        host = Host(name)
        host.read(FIRST)
        channels = host.group.channels
        values = host.read(SECOND | {path: text[:at]})
        assert host.group.channels is channels, at
        for label, value in values.items():
            assert math.isnan(value) or value == WHOLE[name][label], (at, label)
        assert host.read(SECOND).keys() == WHOLE[name].keys()


@pytest.mark.parametrize(("name", "path"), TEXTS)
def test_very_long_lines(name: str, path: str) -> None:
    for tail in (b" 7" * 500, b" word" * 500, b" " * 50000, b"x" * 50000):
        host = Host(name)
        long = b"\n".join(line + tail for line in FIRST[path].splitlines()) + b"\n"
        for _ in range(3):
            host.read(FIRST | {path: long})
        host.read(FIRST)
        assert not any("Error" in r for s in host.group.stats.values() for r in s.failures)
