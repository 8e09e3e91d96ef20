"""Learning what is normal, and keeping it as bytes."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.archive import FORMAT
from models.bank import BaselineBank
from models.baseline import Baseline, CannotLearn, Tuning, fit_baseline
from models.channels import ChannelTable
from models.features import FEATURES
from models.mode import DETECTORS, FUSED, Mode
from tests.models.hosts import table, windows

HOST = table()
WIDE = table(60)


def columns(subsystem: str) -> NDArray[np.intp]:
    """Return where the means of a subsystem of `WIDE` are."""
    return np.flatnonzero(np.array(WIDE.subsystem) == subsystem)


def fields(baseline: Baseline) -> dict[str, Any]:
    return {f.name: getattr(baseline, f.name) for f in dataclasses.fields(baseline)}


def assert_same(a: Baseline, b: Baseline) -> None:
    for name, value in fields(a).items():
        other = getattr(b, name)
        assert type(value) is type(other), name
        np.testing.assert_array_equal(np.asarray(value), np.asarray(other), name)
        if isinstance(value, np.ndarray):
            assert value.dtype == other.dtype, name


@pytest.fixture(scope="module")
def learned() -> Baseline:
    return fit_baseline(windows(HOST, 60), HOST, seed=0, version=17)


# What is learned


def test_fresh_windows_of_a_normal_host_are_not_flagged() -> None:
    """Held-out scores: those of the training windows would have put nearly all over it.

    There are more features than windows, where components fit noise.
    """
    baseline = fit_baseline(windows(WIDE, 120), WIDE, seed=0, version=1)
    bank = BaselineBank(len(WIDE))
    bank.set(0, baseline)
    scores = bank.score(np.zeros(1000, np.int64), windows(WIDE, 1000, seed=1))
    assert not scores.flagged.any()
    # p-values of normal windows are about uniform, so their mean is about a half, or more: what is
    # fitted on all windows fits a fresh one better than what was fitted on four fifths.
    usual = scores.p_values[:, : len(FUSED)].mean(axis=0)
    assert (usual > 0.4).all()
    # So the fused score of a middling window is about 0, or less.
    assert -1.5 < np.median(scores.fused) < 0.4
    assert scores.fused.std() < 1.3


def test_the_papers_thresholds_are_the_99th_percentiles_of_the_training_windows() -> None:
    x = windows(HOST, 200)
    paper = Tuning(mode=Mode.PAPER)
    baseline = fit_baseline(x, HOST, seed=0, version=1, tuning=paper)
    bank = BaselineBank(len(HOST), Mode.PAPER)
    bank.set(0, baseline)
    scores = bank.score(np.zeros(200, np.int64), x)
    np.testing.assert_allclose(
        baseline.thresholds, np.quantile(scores.raw, 0.99, axis=0), rtol=1e-4
    )
    assert scores.over.mean(axis=0) == pytest.approx(0.01)


def test_the_threshold_follows_what_the_operator_states() -> None:
    x = windows(HOST, 200)
    found = [
        fit_baseline(
            x, HOST, seed=0, version=1, tuning=Tuning(false_alarms_per_day=per_day)
        ).open_at[0]
        for per_day in (0.05, 0.5, 5.0)
    ]
    assert found[0] > found[1] > found[2]


def test_a_sensitive_subsystem_has_a_lower_threshold_and_others_keep_theirs() -> None:
    x = windows(HOST, 60)
    plain = fit_baseline(x, HOST, seed=0, version=1).open_at
    tuned = fit_baseline(
        x, HOST, seed=0, version=1, tuning=Tuning(sensitivity={"network": 2.0, "cpu": 0.5})
    ).open_at
    order = sorted(set(HOST.subsystem))
    for name, times in {"cpu": 2.0, "memory": 1.0, "network": 0.5, "storage": 1.0}.items():
        place = order.index(name)
        assert tuned[place] == pytest.approx(times * plain[place])


def test_pruned_channels_are_not_looked_at_together_and_are_remembered() -> None:
    x = windows(HOST, 60)
    copies = x.reshape(60, len(FEATURES), len(HOST))
    copies[:, :, 3] = copies[:, :, 2]
    baseline = fit_baseline(x, HOST, seed=0, version=1, tuning=Tuning(prune=0.9))
    assert baseline.stands[3] == baseline.stands[2]
    other = 3 if baseline.stands[3] == 2 else 2
    assert not baseline.joint[other]
    assert not baseline.joint[len(HOST) + other]
    assert fit_baseline(x, HOST, seed=0, version=1).joint.all()


def test_a_disk_burst_that_came_once_does_not_hide_a_fault_of_the_cpu() -> None:
    x = windows(WIDE, 120)
    x[50:53, columns("storage")] *= 100
    bank = BaselineBank(len(WIDE))
    bank.set(0, fit_baseline(x, WIDE, seed=0, version=1))
    odd = windows(WIDE, 1, seed=1)
    odd[:, columns("cpu")] *= 2
    assert bank.score(np.zeros(1, np.int64), odd).flagged[0]


def test_a_disk_burst_that_came_in_the_baseline_is_normal() -> None:
    x = windows(WIDE, 120)
    x[50:53, columns("storage")] *= 100
    bank = BaselineBank(len(WIDE))
    bank.set(0, fit_baseline(x, WIDE, seed=0, version=1))
    again = windows(WIDE, 1, seed=1)
    again[:, columns("storage")] *= 100
    assert not bank.score(np.zeros(1, np.int64), again).flagged[0]


def test_a_host_that_hardly_moves_is_not_odd_at_a_twitch() -> None:
    x = np.zeros((60, len(FEATURES) * len(HOST)), np.float32)
    x[::7, 0] = 1.0
    bank = BaselineBank(len(HOST))
    bank.set(0, fit_baseline(x, HOST, seed=0, version=1))
    twitch = np.zeros((2, x.shape[1]), np.float32)
    twitch[0, 7] = 5.0  # events a second where there were none
    twitch[1, : len(HOST)] = 5000.0
    assert bank.score(np.zeros(2, np.int64), twitch).flagged.tolist() == [False, True]


def test_page_cache_that_grows_is_normal_and_memory_that_is_taken_is_not() -> None:
    share = {  # of 64 GiB
        "mem_total": 1.0,
        "mem_free": 0.7,
        "mem_available": 0.9,
        "cached": 0.2,
        "inactive_file": 0.1,
        "active_file": 0.1,
        "anon_pages": 0.05,
        "inactive_anon": 0.05,
        "committed_as": 0.1,
        "page_tables": 0.001,
        "shmem": 0.001,
        "mapped": 0.01,
    }
    host = ChannelTable(
        metric=tuple(f"memory.{name}" for name in share),
        device=("",) * len(share),
        subsystem=("memory",) * len(share),
        unit=("B",) * len(share),
        kind=("gauge",) * len(share),
    )

    def levels(*moved: str, by: float = 0.0) -> NDArray[np.float32]:
        """Return windows in which these grew by a share of all memory, and free memory fell."""
        means = {name: s + by * (name in moved) for name, s in share.items()}
        means["mem_free"] -= by
        x = np.zeros((60, len(FEATURES), len(share)))
        x[:, 0] = list(means.values())
        x += np.random.default_rng(0).normal(0, 1e-3, x.shape)
        return (x.reshape(60, -1) * 64 * 2.0**30).astype(np.float32)

    bank = BaselineBank(len(share))
    bank.set(0, fit_baseline(levels(), host, seed=0, version=1))
    slots = np.zeros(60, np.int64)
    cache = levels("cached", "inactive_file", by=0.6)
    assert not bank.score(slots, cache).flagged.any()
    hog = levels("anon_pages", "inactive_anon", "committed_as", by=0.2)
    assert bank.score(slots, hog).flagged.all()


def test_the_expected_range_is_that_of_the_means_and_its_floor(learned: Baseline) -> None:
    means = windows(HOST, 60)[:, : len(HOST)]
    low, high = np.percentile(means, (1, 99), axis=0)
    floor = 0.05 * means.mean(axis=0)
    np.testing.assert_allclose(learned.low, low - floor, rtol=1e-3)
    np.testing.assert_allclose(learned.high, high + floor, rtol=1e-3)


def test_what_was_never_negative_is_not_expected_to_be() -> None:
    x = windows(HOST, 60)
    x[:, 0] = 0.5
    x[:, 1] = np.nan
    baseline = fit_baseline(x, HOST, seed=0, version=1)
    assert (baseline.low[0], baseline.high[0]) == (0.0, pytest.approx(20.5, abs=6))
    assert np.isnan([baseline.low[1], baseline.high[1]]).all()


def test_the_same_windows_and_seed_give_the_same_baseline(learned: Baseline) -> None:
    again = fit_baseline(windows(HOST, 60), HOST, seed=0, version=17)
    assert_same(learned, again)
    other = fit_baseline(windows(HOST, 60), HOST, seed=1, version=17)
    assert (other.nodes.shape != again.nodes.shape) or (other.nodes != again.nodes).any()


def test_its_size_is_told(learned: Baseline) -> None:
    assert (learned.channels, learned.windows, learned.version) == (len(HOST), 60, 17)
    assert learned.nbytes > learned.nodes.nbytes + learned.calibration.nbytes
    assert learned.calibration.shape == (len(DETECTORS[Mode.DEFAULT]), 60)


# What cannot be learned


@pytest.mark.parametrize(
    ("x", "why"),
    [
        (windows(HOST, 29), "29 windows are too few to learn from: 30 are needed"),
        (np.repeat(windows(HOST, 1), 40, axis=0), "all are constant or absent"),
        (np.full((40, 4 * len(HOST)), np.nan, np.float32), "all are constant or absent"),
    ],
)
def test_it_abstains_with_the_reason(x: NDArray[np.float32], why: str) -> None:
    with pytest.raises(CannotLearn, match=why):
        fit_baseline(x, HOST, seed=0, version=1)


def test_a_host_of_which_only_the_agent_speaks_cannot_be_learned() -> None:
    host = table(0, agent=5)
    with pytest.raises(CannotLearn, match="all are constant or absent"):
        fit_baseline(windows(host, 40), host, seed=0, version=1)


def test_windows_of_another_layout_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="do not fit 20 channels"):
        fit_baseline(windows(table(6), 40), HOST, seed=0, version=1)


# Bytes


@settings(deadline=None, max_examples=10)
@given(
    per_subsystem=st.integers(1, 12),
    count=st.integers(30, 70),
    seed=st.integers(0, 2**31),
    version=st.integers(-(2**63), 2**63 - 1),
)
def test_bytes_bring_back_the_same_baseline(
    per_subsystem: int, count: int, seed: int, version: int
) -> None:
    host = table(per_subsystem, agent=1)
    x = windows(host, count, seed=seed)
    x[:, 1] = np.nan
    baseline = fit_baseline(x, host, seed=seed % 1000, version=version)
    data = baseline.to_bytes()
    assert_same(Baseline.from_bytes(data), baseline)
    assert Baseline.from_bytes(data).to_bytes() == data


def test_nobody_writes_to_a_baseline_that_was_read(learned: Baseline) -> None:
    read = Baseline.from_bytes(learned.to_bytes())
    with pytest.raises(ValueError, match="read-only"):
        read.nodes[0, 0] = 1


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_do_no_harm(learned: Baseline, data: st.DataObject) -> None:
    whole = learned.to_bytes()
    damaged = bytearray(whole)
    if data.draw(st.booleans(), "cut short"):
        del damaged[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = Baseline.from_bytes(bytes(damaged))
    except ValueError as e:
        assert "baseline" in str(e)  # noqa: PT017 - not raising is fine too
    else:
        assert_same(read, learned)  # a byte of the archive that means nothing


@pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"PK\x03\x04", b"\x80\x04K\x01."])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=rf"not a baseline: {len(data)} bytes that are no npz"):
        Baseline.from_bytes(data)


def forged(baseline: Baseline, **changed: Any) -> bytes:
    values = fields(baseline) | {"format": np.int64(FORMAT)} | changed
    arrays = {name: np.asarray(value) for name, value in values.items()}
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, **{n: a for n, a in arrays.items() if a.dtype != object})
    return out.getvalue()


def test_a_forgery_that_changes_nothing_is_read(learned: Baseline) -> None:
    assert_same(Baseline.from_bytes(forged(learned)), learned)


def with_links(baseline: Baseline, place: int, feature: int, left: int) -> NDArray[np.float32]:
    nodes = baseline.nodes.copy()
    nodes.view(np.uint16)[place, 2:] = feature, left
    return nodes


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: {"format": np.int64(1)}, "baseline of format 1: this release reads format 2"),
        (lambda _: {"norm": None}, "baseline lacks or has too much: norm"),
        (lambda _: {"more": 1}, "baseline lacks or has too much: more"),
        (lambda b: {"low": b.low[:-1]}, "baseline's low has shape"),
        (lambda b: {"stands": b.stands[:0]}, "baseline's stands has shape"),
        (lambda b: {"location": b.location.astype(float)}, "location has shape .* of float64"),
        (lambda b: {"thresholds": b.thresholds[:2]}, "thresholds has shape"),
        (lambda b: {"location": b.location[:5]}, "baseline's inverse has shape"),
        (lambda b: {"inverse": b.inverse * np.inf}, "inverse holds values that are not finite"),
        (lambda b: {"calibration": b.calibration[:, ::-1]}, "calibration is not sorted"),
        (lambda b: {"groups": b.groups - np.int8(1)}, "groups are not within 0 and 7"),
        (lambda b: {"groups": b.groups + np.int8(8)}, "groups are not within 0 and 7"),
        (lambda _: {"norm": 0.0}, "norm is 0.0, not positive"),
        (lambda _: {"mode": "other"}, "baseline of mode 'other', which this release has not"),
        (lambda _: {"mode": "paper"}, "6 detectors and 48 components: mode paper has 3 and 16"),
        (lambda b: {"stands": b.stands - np.int32(2)}, "stood for by some that there are not"),
        (lambda b: {"stands": b.stands + np.int32(1)}, "stood for by some that there are not"),
        (lambda b: {"references": b.references[:, :9]}, "references have 9 directions"),
        (lambda b: {"spreads": b.spreads * 0}, "spreads are not positive"),
        (lambda b: {"joint": b.joint.astype(int)}, "joint has shape .* of int64"),
        (lambda b: {"roots": b.roots + np.int32(1)}, "roots do not divide"),
        (lambda b: {"roots": b.roots[::-1]}, "roots do not divide"),
        # The first node of the first tree: a feature that is not there, a child that is itself or
        # in another tree.
        (lambda b: {"nodes": with_links(b, 0, 40, 1)}, "trees point outside themselves"),
        (lambda b: {"nodes": with_links(b, 1, 0, 1)}, "trees point outside themselves"),
        (lambda b: {"nodes": with_links(b, 0, 0, b.roots[1])}, "trees point outside themselves"),
        (lambda b: {"nodes": with_links(b, 0, 0, b.roots[1] - 1)}, "trees point outside"),
    ],
)
def test_a_baseline_that_cannot_be_scored_with_is_refused(
    learned: Baseline, change: Callable[[Baseline], dict[str, Any]], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Baseline.from_bytes(forged(learned, **change(learned)))
