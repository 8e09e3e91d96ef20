"""Who stands for whom."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.prune import NOBODY, representatives


def test_channels_that_move_together_are_represented_by_one_of_them() -> None:
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(300, 3))
    z = np.repeat(causes, 4, axis=1) + 0.1 * rng.normal(size=(300, 12))
    z[:, 5] *= -1  # against the others, but with them all the same
    z[:, 11] = 0.0
    stands = representatives(z.astype(np.float32), 0.5)
    assert stands[11] == NOBODY
    blocks = [set(stands[:4].tolist()), set(stands[4:8].tolist()), set(stands[8:11].tolist())]
    assert [len(block) for block in blocks] == [1, 1, 1]
    assert blocks[0] <= {0, 1, 2, 3}


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    channels=st.integers(1, 15),
    most=st.floats(0.2, 1.0),
    mixed=st.floats(0, 1),
)
def test_each_is_stood_for_by_one_that_moves_with_it(
    seed: int, channels: int, most: float, mixed: float
) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, channels)) + mixed * rng.normal(size=(60, 1))
    z[:, ::5] *= 0.001
    stands = representatives(z.astype(np.float32), most)
    for channel, other in enumerate(stands.tolist()):
        if other == NOBODY:
            assert z[:, channel].std() < 0.05
            continue
        assert stands[other] == other
        if other != channel:
            r = np.corrcoef(z[:, channel].astype(float), z[:, other].astype(float))[0, 1]
            assert abs(r) >= most - 1e-6


def test_above_1_each_stands_for_itself() -> None:
    z = np.repeat(np.random.default_rng(0).normal(size=(50, 1)), 3, axis=1).astype(np.float32)
    assert representatives(z, 1.01).tolist() == [0, 1, 2]
