"""Values as people write them: ``1.9 GB/s``, ``81 %``, ``12.3k packets/s``."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SCALED = {
    # unit as sent: (factor to the base, base unit)
    "B": (1.0, "B"),
    "byte": (1.0, "B"),
    "bytes": (1.0, "B"),
    "kB": (1e3, "B"),
    "KiB": (1024.0, "B"),
    "MiB": (1024.0**2, "B"),
    "bit": (1.0, "bit"),
    "bits": (1.0, "bit"),
    "Hz": (1.0, "Hz"),
    "kHz": (1e3, "Hz"),
    "MHz": (1e6, "Hz"),
}
_SECONDS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SHARES = {"share", "ratio", "fraction"}
_AS_THEY_ARE = {"%": "%", "percent": "%", "°C": "°C", "W": "W", "V": "V", "A": "A", "rpm": "rpm"}
_COUNTS = {"", "1", "count"}

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_CLOCK = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def human(value: float, unit: str) -> str:
    """Return a value with three digits, its prefix and its unit; NaN is ``n/a``."""
    number, suffix = _split(value, unit)
    return number + suffix


def human_range(low: float, high: float, unit: str) -> str:
    """Return a range with its unit once, ``0-12 MB/s``, or twice where the ends are far apart."""
    (low_number, low_suffix), (high_number, high_suffix) = _split(low, unit), _split(high, unit)
    if low_number + low_suffix == high_number + high_suffix:
        return high_number + high_suffix
    if low == 0:
        return f"0-{high_number}{high_suffix}"
    if low < 0 or high < 0 or low_suffix != high_suffix:
        return f"{low_number}{low_suffix} to {high_number}{high_suffix}"
    return f"{low_number}-{high_number}{high_suffix}"


def _split(value: float, unit: str) -> tuple[str, str]:
    """Return the digits, and what comes after them with the space that belongs there."""
    if not math.isfinite(value):
        return ("n/a" if math.isnan(value) else f"{value:g}"), ""
    whole, slash, per = unit.partition("/")
    whole = "" if whole in _COUNTS else whole
    tail = f"/{per}" if slash else ""
    if whole in _SHARES:
        return _digits(value * 100), f" %{tail}"
    if whole in _SECONDS:
        # Time per second, as a disk's busy time, stays in seconds.
        number, name = _clock(value * _SECONDS[whole], _CLOCK[2:] if slash else _CLOCK)
        return number, name + tail
    if whole in _SCALED:
        factor, base = _SCALED[whole]
        number, prefix = _prefixed(value * factor)
        return number, f" {prefix}{base}{tail}"
    if whole in _AS_THEY_ARE:
        return _digits(value), f" {_AS_THEY_ARE[whole]}{tail}"
    number, prefix = _prefixed(value)
    return number, f"{prefix} {whole}{tail}" if whole else f"{prefix}{tail}"


def _prefixed(value: float) -> tuple[str, str]:
    rounded = _three_digits(value)
    for size, prefix in _PREFIXES:
        if abs(rounded) >= size:
            return _digits(rounded / size), prefix
    return _digits(rounded), ""


def _clock(seconds: float, steps: Sequence[tuple[float, str]]) -> tuple[str, str]:
    rounded = _three_digits(seconds)
    for size, name in steps:
        # Below two of them, hours and minutes read better in the next unit down.
        if abs(rounded) >= (size if size <= 1 else 2 * size):
            return _digits(rounded / size), f" {name}"
    return "0", " s"


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def _digits(value: float) -> str:
    """Return three significant digits without an exponent, up to seven places."""
    rounded = _three_digits(value)
    if abs(rounded) >= 100:
        return f"{rounded:.0f}"
    text = f"{rounded:.7f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
