"""Values read as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.units import human, human_range


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.9e9, "bytes/s", "1.9 GB/s"),
        (0, "bytes/s", "0 B/s"),
        (999, "B", "999 B"),
        (999.9, "B", "1 kB"),
        (2048, "KiB", "2.1 MB"),
        (2400, "MHz", "2.4 GHz"),
        (98.04, "percent", "98 %"),
        (98.44, "%", "98.4 %"),
        (0.981, "share", "98.1 %"),
        (123456, "1/s", "123k/s"),
        (12345, "packets/s", "12.3k packets/s"),
        (17, "tasks", "17 tasks"),
        (17, "", "17"),
        (0.0004, "1/s", "0.0004/s"),
        (0.09, "s", "90 ms"),
        (90, "s", "90 s"),
        (300, "s", "5 min"),
        (0, "s", "0 s"),
        (150, "us", "150 us"),
        (250, "ms/s", "250 ms/s"),
        (7_000_000, "ms/s", "7000 s/s"),
        (250, "W", "250 W"),
        (-3.2, "°C", "-3.2 °C"),
        (-0.0, "percent", "0 %"),
        (float("nan"), "bytes", "n/a"),
        (float("inf"), "bytes", "inf"),
    ],
)
def test_human(value: float, unit: str, text: str) -> None:
    assert human(value, unit) == text


@pytest.mark.parametrize(
    ("low", "high", "unit", "text"),
    [
        (0, 12e6, "bytes/s", "0-12 MB/s"),
        (1e6, 2e7, "bytes", "1-20 MB"),
        (3e3, 12e6, "bytes", "3 kB to 12 MB"),
        (0, 12, "percent", "0-12 %"),
        (12e6, 12.001e6, "bytes", "12 MB"),
        (-5, 3, "°C", "-5 °C to 3 °C"),
        (float("nan"), float("nan"), "bytes", "n/a"),
    ],
)
def test_human_range(low: float, high: float, unit: str, text: str) -> None:
    assert human_range(low, high, unit) == text


FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@given(st.floats(1e-4, 9e17) | st.floats(-9e17, -1e-4))
def test_the_text_says_the_value_to_three_digits(value: float) -> None:
    found = re.fullmatch(r"(-?[0-9.]+) ([kMGTP]?)B", human(value, "bytes"))
    assert found is not None
    assert float(found[1]) * FACTORS[found[2]] == pytest.approx(value, rel=0.00501)
    assert len(found[1]) <= 8
