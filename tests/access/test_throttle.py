"""A bucket for each key, and a bound on how many are remembered."""

from __future__ import annotations

import pytest

from holdfast.access.throttle import Throttle
from holdfast.errors import PolicyError


def test_each_key_has_its_own_bucket() -> None:
    throttle = Throttle(1, 2)
    assert [throttle.take("a", 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert throttle.take("b", 0.0) == 0.0
    assert throttle.take("a", 1.0) == 0.0


def test_who_is_forgiven_begins_anew() -> None:
    throttle = Throttle(1, 1)
    throttle.take("a", 0.0)
    throttle.forgive("a")
    throttle.forgive("nobody")
    assert throttle.take("a", 0.0) == 0.0


def test_the_key_not_seen_for_longest_is_forgotten() -> None:
    throttle = Throttle(1, 1, most_keys=2)
    throttle.take("a", 0.0)
    throttle.take("b", 0.0)
    assert throttle.take("a", 0.0) > 0
    throttle.take("c", 0.0)  # b goes
    assert throttle.take("a", 0.0) > 0
    assert throttle.take("b", 0.0) == 0.0


def test_a_rate_that_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(PolicyError, match="rate_per_s"):
        Throttle(0, 1)
