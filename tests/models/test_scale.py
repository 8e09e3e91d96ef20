"""Location, scale and the floor under it."""

from __future__ import annotations

import numpy as np
import pytest

from models.channels import ChannelTable
from models.features import FEATURES
from models.scale import LIMIT, fit_scale, floors, standardize
from tests.models.hosts import table, windows

GIB = 2.0**30


def channels(*rows: tuple[str, str, str, str]) -> ChannelTable:
    """Rows of metric, subsystem, unit, kind."""
    metric, subsystem, unit, kind = zip(*rows, strict=True)
    return ChannelTable(metric, ("",) * len(rows), subsystem, unit, kind)


def test_a_level_counts_against_the_largest_of_its_subsystem() -> None:
    host = channels(
        ("memory.mem_total", "memory", "B", "gauge"),
        ("memory.anon_pages", "memory", "B", "gauge"),
        ("vmstat.nr_anon_pages", "memory", "pages", "gauge"),
        ("memory.vmalloc_total", "memory", "B", "gauge"),  # address space, not memory
        ("memory.dirty", "storage", "B", "gauge"),
        ("cpu.procs_running", "cpu", "threads", "gauge"),
    )
    level = np.array([64 * GIB, GIB, GIB / 4096, 2.0**45, 0.0, 2.0])
    floor = floors(level, host, 0 * level)
    wanted = [3.2 * GIB, 3.2 * GIB, 3.2 * GIB / 4096, 16 * 2**20, 1.0]
    np.testing.assert_allclose(np.delete(floor, 3), wanted)


def test_a_rate_counts_against_its_unit_its_level_and_the_busiest_counter() -> None:
    host = channels(
        ("net.rx_bytes", "network", "B/s", "rate"),
        ("net.tx_bytes", "network", "B/s", "rate"),
        ("tcp.retrans", "network", "segments/s", "rate"),
        ("tcp.delivered", "network", "/s", "rate"),
        ("disk.writes", "storage", "requests/s", "rate"),
        ("cpu.user", "cpu", "%", "rate"),
        ("disk.write_time", "storage", "ms/s", "rate"),
    )
    level = np.array([0.0, 1e9, 0.0, 40_000.0, 0.0, 90.0, 0.0])
    np.testing.assert_allclose(floors(level, host, 0 * level), [2**18, 5e7, 200, 2000, 20, 4.5, 20])


def test_ratios_and_imbalances_have_floors_of_their_own() -> None:
    host = channels(
        ("perf.ipc", "cpu", "instructions/cycle", "gauge"),
        ("softnet.imbalance", "cpu", "%", "gauge"),
        ("irq.imbalance", "cpu", "%", "rate"),
    )
    np.testing.assert_allclose(
        floors(np.array([1.5, 20.0, 20.0]), host, np.zeros(3)), [0.1, 10, 10]
    )


def test_a_level_without_a_unit_counts_against_its_own_range() -> None:
    host = channels(*((f"m{c}", "cpu", "", "gauge") for c in range(3)))
    floor = floors(np.array([0.5, 0.5, 0.0]), host, np.array([0.2, 0.0, 0.0]))
    np.testing.assert_allclose(floor, [0.002, 0.0005, 0.0001])


def test_location_and_scale_are_those_of_the_values_that_are_there() -> None:
    host = table(1)
    x = windows(host, 50)
    x[:20, 1] = np.nan
    x[:30, 2] = np.nan  # more than half
    scale = fit_scale(x, host)
    assert scale.location[0] == pytest.approx(x[:, 0].mean(), rel=1e-5)
    assert 1 / scale.inverse[0] == pytest.approx(x[:, 0].std(), rel=1e-5)
    assert scale.location[1] == pytest.approx(x[20:, 1].mean(), rel=1e-5)
    assert scale.inverse[2] == 0


def test_a_counter_near_1e9_keeps_its_digits() -> None:
    host = channels(*((f"m{c}", "network", "B", "gauge") for c in range(2)))
    x = windows(host, 60, level=0)
    x[:, 0] = 1e9 + np.arange(60) * 1e8
    scale = fit_scale(x, host)
    z = standardize(x, scale.location, scale.inverse)
    assert z[:, 0].mean() == pytest.approx(0, abs=1e-4)
    assert z[:, 0].std() == pytest.approx(1, rel=1e-4)


def test_what_drifts_where_nothing_is_wrong_is_not_scored() -> None:
    host = channels(
        ("cpu.load_1m", "cpu", "threads", "gauge"),
        ("cpu.procs_running", "cpu", "threads", "gauge"),
        ("agent.queue", "agent", "records", "gauge"),
        ("memory.mem_free", "memory", "B", "gauge"),
        ("memory.mem_available", "memory", "B", "gauge"),
        ("memory.inactive_file", "memory", "B", "gauge"),
        ("memory.inactive_anon", "memory", "B", "gauge"),
        ("vmstat.nr_zone_active_file", "memory", "pages", "gauge"),
        ("vmstat.workingset_refault_file", "memory", "/s", "rate"),
        ("vmstat.nr_dirty_threshold", "memory", "pages", "gauge"),
    )
    scored = fit_scale(windows(host, 40), host).inverse[: len(host)] > 0
    assert [m for m, s in zip(host.metric, scored.tolist(), strict=True) if s] == [
        "cpu.procs_running",
        "memory.mem_available",
        "memory.inactive_anon",
        "vmstat.workingset_refault_file",
    ]


def test_deviations_are_limited_and_absent_ones_are_0() -> None:
    one = np.ones(5, np.float32)
    x = np.array([[1e30, -np.inf, np.nan, 3.0, np.inf]], np.float32)
    z = standardize(x, one, np.array([1, 1, 1, 2, 0], np.float32))
    np.testing.assert_array_equal(z, [[LIMIT, -LIMIT, 0, 4, 0]])


def test_features_that_are_not_scored_are_not_looked_at() -> None:
    host = table()
    x = windows(host, 40)
    y = x.copy()
    y[:, FEATURES.index("max") * len(host) :] = 1e9
    np.testing.assert_array_equal(fit_scale(x, host).inverse, fit_scale(y, host).inverse)


def test_columns_of_different_length_are_no_table() -> None:
    with pytest.raises(ValueError, match=r"differ in length: \[1, 2\]"):
        ChannelTable(("a", "b"), ("", ""), ("cpu", "cpu"), ("%",), ("rate", "rate"))
