"""Fixtures that several packages' tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A fresh embedded broker with every topic of ours, gone after the test.

    One per test starts in less than a tenth of a second and keeps tests apart. For several brokers:
    ``with Broker(3) as broker``.
    """
    with Broker(rebalance_delay_ms=100) as running:
        yield running
