"""Holdfast's repositories, capture, sharing and replay, as a user has them."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from itertools import count
from typing import Any

import holdfast as hf
from benchmarks.store.measure import Task
from benchmarks.store.setup import CAP, CLAIMED, READ, REPLAYED, SERVICE, Setup, letter, taken
from holdfast.app import Holdfast
from holdfast.backends.open import open_store
from holdfast.breakers.repository import CircuitBreakerStateRepository
from holdfast.kinds import KINDS
from holdfast.letters.capture import DeadLetter
from holdfast.letters.overflow import Capacity
from holdfast.letters.pace import BatchPolicy
from holdfast.letters.repository import FailedOperationRepository
from holdfast.machine.letter_record import LETTER
from holdfast.store.query import equal

CHUNK = 1000
TOGETHER = 200
PENDING = {
    "status": "pending", "due_at": 1, "retry_count": 0, "attempts": 0, "token": None, "attempt_cap": None,
    "started_at": None, "last_retry_at": None, "heartbeat_at": None, "touched_at": None,
}  # fmt: skip
ROOM = Capacity(total=10**9, per_domain=10**9)


def options(store: str) -> dict[str, Any]:
    return {"durable": False} if store.endswith("-nowait") else {}


def fill(repository: FailedOperationRepository, letters: int, domain: str | None = None) -> None:
    for start in range(0, letters, CHUNK):
        repository.create_many(letter(number, domain) for number in range(start, min(start + CHUNK, letters)))


class Supply:
    """Letters to work on, taken from domains that nobody else works on. What runs out is made anew, untimed."""

    def __init__(self, repository: FailedOperationRepository, store: str) -> None:
        self._repository = repository
        self._acquired, self._completed = taken(store)
        self._found: list[Any] = []

    def pending(self, number: int) -> list[Any]:
        """Pending letters as a caller finds them."""
        if len(self._found) < number:
            self.ensure(self._acquired, number)
            self._found = self._repository.get_pending_by_domain(self._acquired, limit=20 * number)
        taken, self._found = self._found[:number], self._found[number:]
        return taken

    def pending_ids(self, number: int) -> list[str]:
        return [one.id for one in self.pending(number)]

    def acquired(self, number: int) -> list[Any]:
        self.ensure(self._completed, number)
        return self._repository.acquire_many(domain=self._completed, limit=number, max_retries=CAP)

    def give_back(self, domain: str) -> None:
        """What was claimed is pending again, and the first to be claimed.

        So the next sample claims letters that were written a moment ago, as a worker does, and not one after the other
        of those that were loaded: most of the time would go to pages that nobody has touched yet, and the more so the
        more pages there are.
        """
        store = self._repository.store
        store.sweep(LETTER, equal(domain=domain, status="replaying"), PENDING)
        if store.url.startswith("sqlite"):
            # A checkpoint waits for the disk, whatever was promised, and would be in some samples and not in others.
            with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def ensure(self, domain: str, number: int) -> None:
        """See that so many letters of the domain are pending."""
        missing = number - self._repository.get_pending_count_by_domain(domain)
        if missing > 0:
            fill(self._repository, missing, domain)


class Ours:
    """One store at one place. `label` is `ours`, or `grown` for the place with all the done letters."""

    serial = count(10**9)

    def __init__(self, setup: Setup, store: str, place: str = "small") -> None:
        self.setup = setup
        self.label = "ours" if place == "small" else place
        self.store_name = store
        self.url = setup.url(store, place)
        self.store = open_store(self.url, kinds=KINDS, **options(store))
        self.letters = FailedOperationRepository(self.store)
        self.breakers = CircuitBreakerStateRepository(self.store)
        self.supply = Supply(self.letters, store)
        if store == "memory":
            fill(self.letters, setup.letters)

    def create(self) -> Task:
        create = self.letters.create
        return Task(lambda fields: create(**fields), lambda number: [letter(next(self.serial)) for _ in range(number)])

    def get(self) -> Task:
        ids = [one.id for one in self.letters.find(domain=READ, limit=1000)]
        return Task(self.letters.get_by_id, lambda number: (ids * (number // len(ids) + 1))[:number])

    def acquire(self) -> Task:
        acquire = self.letters.try_acquire_for_replay
        return Task(lambda op: acquire(op.id, CAP, known=op), self.supply.pending)

    def acquire_by_id(self) -> Task:
        acquire = self.letters.try_acquire_for_replay
        return Task(lambda id: acquire(id, CAP), self.supply.pending_ids)

    def complete(self) -> Task:
        def complete(op: Any) -> bool:
            return self.letters.complete_replay(op.id, True, "manual_replay", attempt_token=op.attempt_token, known=op)

        return Task(complete, self.supply.acquired, lambda done: done is True)

    def complete_by_id(self) -> Task:
        def complete(op: Any) -> bool:
            return self.letters.complete_replay(op.id, True, "manual_replay", attempt_token=op.attempt_token)

        return Task(complete, self.supply.acquired, lambda done: done is True)

    def claim(self) -> Task:
        def prepare(number: int) -> list[None]:
            self.supply.give_back(CLAIMED)
            self.supply.ensure(CLAIMED, number * 100)
            return [None] * number

        def claim(_: None) -> list[Any]:
            return self.letters.acquire_many(domain=CLAIMED, limit=100, max_retries=CAP)

        return Task(claim, prepare, lambda claimed: len(claimed) == 100)

    def page(self) -> Task:
        return Task(
            lambda _: self.letters.find(status="pending", domain=READ, limit=50),
            proof=lambda found: len(found) == 50 and found[0].created_at >= found[-1].created_at,
        )

    def facets(self) -> Task:
        return Task(lambda _: self.letters.get_facet_counts(), proof=lambda found: self._is_all(found["by_domain"]))

    def statistics(self) -> Task:
        return Task(lambda _: self.letters.get_statistics(), proof=lambda found: self._is_all(found["by_domain"]))

    def count(self) -> Task:
        return Task(lambda _: self.letters.count_all(), proof=lambda number: number > self.setup.letters // 2)

    def _is_all(self, by_domain: dict[str, int]) -> bool:
        return sum(by_domain.values()) >= self.setup.letters

    def failure(self) -> Task:
        self._half_open()
        return Task(lambda _: self.breakers.record_failure(SERVICE))

    def success(self) -> Task:
        self._half_open()
        return Task(lambda _: self.breakers.record_success_with_close_check(SERVICE, 10**9))

    def slot(self) -> Task:
        self._half_open()
        return Task(
            lambda _: self.breakers.try_acquire_half_open_slot(SERVICE, 10**9, 60.0), proof=lambda answer: answer[0]
        )

    def _half_open(self) -> None:
        self.breakers.get_or_create(SERVICE)
        self.breakers.update_state(SERVICE, "half_open")

    @cached_property
    def hold(self) -> Holdfast:
        return Holdfast(self.url, capacity=ROOM, telemetry=hf.Hub(), **options(self.store_name))

    def capture(self) -> Task:
        guard = self.hold.guard("capture", dead_letter=DeadLetter(), telemetry=hf.Hub())
        return failing(guard)

    def shared_sync(self) -> Task:
        return Task(self._shared("shared-sync")(answer), proof=lambda answer: answer is None)

    def shared_async(self) -> Task:
        return Task(self._shared("shared-async")(async_answer), proof=lambda answer: answer is None)

    def _shared(self, name: str) -> Any:
        return self.hold.guard(name, circuit())

    def replay(self) -> Task:
        hold = self.hold
        hold.letters.handle(REPLAYED, Nothing())
        supply = Supply(hold.letters, self.store_name)
        policy = BatchPolicy(limit=TOGETHER)

        def prepare(number: int) -> list[None]:
            supply.ensure(REPLAYED, TOGETHER * number)
            return [None] * number

        def replay(_: None) -> Any:
            return hold.letters.replay_many(REPLAYED, policy=policy)

        return Task(replay, prepare, lambda result: result.counts["succeeded"] == TOGETHER, TOGETHER)


class Unshared(Ours):
    """The same guards without sharing, and a failing one that keeps nothing."""

    def __init__(self, setup: Setup, store: str) -> None:
        super().__init__(setup, store)
        self.label = "unshared"

    def _shared(self, name: str) -> Any:
        return self.hold.guard(f"un{name}", circuit(), shared=False)


class Nothing:
    """The empty handler."""

    def can_replay(self, op: Any) -> tuple[bool, str]:
        return True, ""

    def replay(self, op: Any) -> None:
        return None


def circuit() -> hf.Breaker:
    return hf.Breaker(hf.count(5, window=60), open_for=3600)


def answer(x: Any) -> Any:
    return x


async def async_answer(x: Any) -> Any:
    return x


def fail(order_id: str, amount: int, user_id: int) -> None:
    raise ConnectionError("the provider did not answer within 2 seconds")


def failing(guard: Callable[[Any], Any], then: Callable[[], Any] = lambda: None) -> Task:
    """Calls of a function that fails; `then` is done with each failure."""
    call = guard(fail)

    def run(_: Any) -> str:
        try:
            call("order-7", 1999, user_id=7)
        except ConnectionError:
            then()
            return "failed"
        return "succeeded"

    return Task(run, proof=lambda came: came == "failed")
