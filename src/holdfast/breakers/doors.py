"""The repository of breaker states by the name of its store."""

from __future__ import annotations

from typing import Any

from holdfast.backends.memory import MemoryStore
from holdfast.backends.open import open_store
from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.machine.breaker_record import BREAKER


class InMemoryCircuitBreakerStateRepository(CircuitBreakerStateRepository):
    """Breaker states that end with the process."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(MemoryStore(SYSTEM_CLOCK if clock is None else clock), clock)


class SQLCircuitBreakerStateRepository(CircuitBreakerStateRepository):
    """Breaker states in SQLite, PostgreSQL or MariaDB; `options` are those of the store."""

    def __init__(self, url: str, clock: Clock | None = None, **options: Any) -> None:
        super().__init__(open_store(url, clock=clock, kinds=(BREAKER,), **options), clock)


class RedisCircuitBreakerStateRepository(CircuitBreakerStateRepository):
    """Breaker states in Redis or Valkey; `options` are those of the store."""

    def __init__(self, url: str = "redis://localhost:6379/0", clock: Clock | None = None, **options: Any) -> None:
        super().__init__(open_store(url, clock=clock, kinds=(BREAKER,), **options), clock)
