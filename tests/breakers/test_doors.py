from __future__ import annotations

import pytest

from holdfast.breakers.doors import (
    InMemoryCircuitBreakerStateRepository,
    RedisCircuitBreakerStateRepository,
    SQLCircuitBreakerStateRepository,
)
from holdfast.errors import StoreUnavailable
from holdfast.testing.clock import ManualClock
from tests.services import redis


def test_each_door_leads_to_the_same_repository(tmp_path):
    clock = ManualClock()
    doors = [
        InMemoryCircuitBreakerStateRepository(clock),
        SQLCircuitBreakerStateRepository(f"sqlite:///{tmp_path}/breakers.db", clock),
        RedisCircuitBreakerStateRepository(redis.server().fresh(), clock),
    ]
    told = []
    for breakers in doors:
        breakers.record_failure_with_open_check("api", 1)
        breakers.atomic_force_close("api", "fixed", 7)
        told.append(breakers.get_all_states())
        breakers.store.close()
    assert told[0] == told[1] == told[2]
    assert told[0][0].updated_at == clock.wall()


def test_a_door_opens_nothing_until_it_is_used(tmp_path):
    SQLCircuitBreakerStateRepository(f"sqlite:///{tmp_path}/breakers.db")
    assert list(tmp_path.iterdir()) == []
    nowhere = RedisCircuitBreakerStateRepository("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable):
        nowhere.get_or_create("api")


def test_what_was_stored_outlives_the_repository(tmp_path):
    url = f"sqlite:///{tmp_path}/breakers.db"
    first = SQLCircuitBreakerStateRepository(url)
    first.atomic_force_open("api", "drill")
    first.store.close()
    again = SQLCircuitBreakerStateRepository(url)
    found = again.get_by_service_name("api")
    assert found is not None
    assert found.control_reason == "drill"
    again.store.close()
