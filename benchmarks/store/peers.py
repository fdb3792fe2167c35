"""The libraries that keep failed calls or share breakers: each in the fastest form that its documentation shows."""

import logging
import os
import sqlite3
from collections import defaultdict
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pybreaker
import redis
import structlog
from purgatory import AsyncCircuitBreakerFactory, AsyncRedisUnitOfWork
from purgatory.domain.model import Context
from purgatory.service._async.repository import AsyncRedisRepository

from benchmarks.store.measure import Task
from benchmarks.store.setup import CAP, CLAIMED, READ, SERVICE, Setup, letter, taken

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
logging.disable(logging.CRITICAL)


class BaldurLetters:
    """Baldur's dead letters on one store, which `open` gives."""

    label = "baldur"
    serial = count(10**9)

    def __init__(self, setup: Setup, store: str) -> None:
        self.setup = setup
        self.store = store
        self._acquired, self._completed = taken(store)
        self.letters = self.open()
        self._filed: dict[str, list[str]] = defaultdict(list)
        if self.letters.count_all() < setup.letters // 2:
            self.fill(setup.letters)

    def open(self) -> Any:
        from baldur.adapters.memory.failed_operation import InMemoryFailedOperationRepository

        return InMemoryFailedOperationRepository()

    def fill(self, letters: int, domain: str | None = None) -> None:
        for number in range(letters):
            made = self.letters.create(**letter(number, domain))
            self._filed[made.domain].append(made.id)

    def create(self) -> Task:
        create = self.letters.create
        return Task(lambda fields: create(**fields), lambda number: [letter(next(self.serial)) for _ in range(number)])

    def get(self) -> Task:
        ids = [one.id for one in self.letters.find(domain=READ, limit=1000)]
        return Task(self.letters.get_by_id, lambda number: (ids * (number // len(ids) + 1))[:number])

    def _ids(self, domain: str, number: int) -> list[str]:
        """Pending letters. Not by asking for them: on Redis it filters by domain only after it has taken `limit`."""
        ids = self._filed[domain]
        if len(ids) < number:
            self.fill(number - len(ids), domain)
        self._filed[domain] = ids[number:]
        return ids[:number]

    def acquire(self) -> Task:
        acquire = self.letters.try_acquire_for_replay
        return Task(lambda id: acquire(id, CAP), lambda number: self._ids(self._acquired, number))

    acquire_by_id = acquire

    def complete(self) -> Task:
        def prepare(number: int) -> list[str]:
            ids = self._ids(self._completed, number)
            for id in ids:
                self.letters.try_acquire_for_replay(id, CAP)
            return ids

        complete = self.letters.complete_replay
        return Task(lambda id: complete(id, True, "manual_replay"), prepare, lambda done: done is True)

    complete_by_id = complete

    def claim(self) -> Task:
        """There is no batch: what can be replayed is listed, and acquired one by one."""

        def prepare(number: int) -> list[None]:
            missing = number * 100 - self.letters.get_pending_count_by_domain(CLAIMED)
            if missing > 0:
                self.fill(missing, CLAIMED)
            return [None] * number

        def claim(_: None) -> list[Any]:
            found = self.letters.find_replayable(CAP, domain=CLAIMED, limit=100)
            return [self.letters.try_acquire_for_replay(one.id, CAP) for one in found]

        return Task(claim, prepare, lambda claimed: len(claimed) == 100)

    def page(self) -> Task:
        return Task(
            lambda _: self.letters.find(status="pending", domain=READ, limit=50), proof=lambda found: len(found) == 50
        )

    def facets(self) -> Task:
        return Task(lambda _: self.letters.get_facet_counts())

    def statistics(self) -> Task:
        return Task(lambda _: self.letters.get_statistics())

    def count(self) -> Task:
        return Task(lambda _: self.letters.count_all(), proof=lambda number: number > self.setup.letters // 2)


class BaldurSql(BaldurLetters):
    """It asks for a connection with every call and never closes it, so it gets the same one each time."""

    def open(self) -> Any:
        from baldur.adapters.sql.failed_operation import SQLFailedOperationRepository
        from baldur.settings.sql import SQLDialect

        waits = not self.store.endswith("-nowait")
        if self.store.startswith("sqlite"):
            self.connection: Any = sqlite3.connect(self.setup.path("peers"))
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute(f"PRAGMA synchronous={'FULL' if waits else 'NORMAL'}")
            dialect = SQLDialect.SQLITE
        else:
            self.connection = psycopg.connect(self.setup.url(self.store, "peers"))
            self.connection.execute(f"SET synchronous_commit = {'on' if waits else 'off'}")
            self.connection.commit()
            dialect = SQLDialect.POSTGRESQL
        self.connect = lambda: self.connection  # its schema cache goes by the identity of this function
        return SQLFailedOperationRepository(self.connect, dialect=dialect)

    def fill(self, letters: int, domain: str | None = None) -> None:
        from baldur.adapters.sql.base import sql_transaction

        self.letters.count_all()  # makes the tables
        with sql_transaction(self.connection):
            super().fill(letters, domain)
        if self.store.startswith("postgres"):
            self.connection.autocommit = True
            self.connection.execute("ANALYZE")
            self.connection.autocommit = False


class BaldurMemory(BaldurLetters):
    def __init__(self, setup: Setup, store: str) -> None:
        super().__init__(setup, store)
        self.breakers = self.open_breakers()

    def open_breakers(self) -> Any:
        from baldur.adapters.memory.circuit_breaker import InMemoryCircuitBreakerStateRepository

        return InMemoryCircuitBreakerStateRepository()

    def _half_open(self) -> Any:
        self.breakers.get_or_create(SERVICE)
        self.breakers.update_state(SERVICE, "half_open")
        return self.breakers

    def failure(self) -> Task:
        breakers = self._half_open()
        return Task(lambda _: breakers.record_failure(SERVICE))

    def success(self) -> Task:
        breakers = self._half_open()
        return Task(lambda _: breakers.record_success_with_close_check(SERVICE, 10**9))

    def slot(self) -> Task:
        breakers = self._half_open()
        return Task(lambda _: breakers.try_acquire_half_open_slot(SERVICE, 10**9, 60), proof=lambda answer: answer[0])


class BaldurRedis(BaldurMemory):
    def open(self) -> Any:
        from baldur.adapters.redis.dlq import RedisDLQRepository
        from baldur.adapters.resilient.backend import ResilientStorageBackend
        from baldur.settings.resilient_storage import ResilientStorageSettings

        folder = os.path.join(self.setup.folder, "baldur")
        os.makedirs(folder, exist_ok=True)
        settings = ResilientStorageSettings(redis_url=self.setup.url("redis", "peers"), wal_dir=folder)
        self.backend = ResilientStorageBackend(settings)
        return RedisDLQRepository(self.backend)

    def open_breakers(self) -> Any:
        from baldur.adapters.redis.circuit_breaker import RedisCircuitBreakerStateRepository

        return RedisCircuitBreakerStateRepository(self.backend)


class Pybreaker:
    """Counts in Redis; every guarded call asks it for the state."""

    label = "pybreaker"

    def __init__(self, setup: Setup, store: str) -> None:
        client = redis.Redis.from_url(setup.url(store, "peers"))
        self.storage = pybreaker.CircuitRedisStorage(pybreaker.STATE_CLOSED, client, namespace="bench")

    def failure(self) -> Task:
        """As its breaker does with a failed call: count, and look at the count."""

        def fail(_: Any) -> int:
            self.storage.increment_counter()
            return self.storage.counter

        return Task(fail)

    def shared_sync(self) -> Task:
        guard = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=3600, state_storage=self.storage)
        return Task(guard(lambda x: x), proof=lambda answer: answer is None)


class Purgatory:
    """Keeps its breakers in Redis; its sync form does not work there, since it uses the asyncio client."""

    label = "purgatory"

    def __init__(self, setup: Setup, store: str) -> None:
        self.url = setup.url(store, "peers")
        self.repository: Any = None

    def failure(self) -> Task:
        """As its breaker does with a failed call: read, and count."""

        async def fail(_: Any) -> Any:
            if self.repository is None:
                self.repository = AsyncRedisRepository(self.url)
                await self.repository.register(Context(name=SERVICE, threshold=10**9, ttl=30))
            found = await self.repository.get(SERVICE)
            await self.repository.inc_failures(SERVICE, 1)
            return found

        return Task(fail)

    def shared_async(self) -> Task:
        factory = AsyncCircuitBreakerFactory(default_threshold=5, default_ttl=3600, uow=AsyncRedisUnitOfWork(self.url))

        @factory("bench-shared")
        async def guarded(x: Any) -> Any:
            return x

        return Task(guarded, proof=lambda answer: answer is None)


def contenders(setup: Setup) -> dict[str, dict[str, "partial[Any]"]]:
    makers: dict[str, dict[str, Any]] = {
        "memory": {"baldur": BaldurMemory},
        "sqlite": {"baldur": BaldurSql},
        "sqlite-nowait": {"baldur": BaldurSql},
        "postgres": {"baldur": BaldurSql},
        "postgres-nowait": {"baldur": BaldurSql},
        "redis": {"baldur": BaldurRedis, "pybreaker": Pybreaker, "purgatory": Purgatory},
    }
    return {
        store: {label: partial(maker, setup, store) for label, maker in by_label.items()}
        for store, by_label in makers.items()
    }
