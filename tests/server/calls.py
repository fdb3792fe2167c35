"""A shop that calls through an outbox, and whose orders are sagas; for tests of the server and the console."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from holdfast import Holdfast, Saga, Step
from holdfast.core.clock import Clock
from holdfast.outbox.backoff import BackoffPolicy
from tests.server.served import kept

SECRET: Final = "hunter2"
QUICK: Final = BackoffPolicy(base_delay=timedelta(seconds=1), max_delay=timedelta(seconds=1))


class Calls:
    """`down` names the operations that raise, `denied` those whose targets say that a success did not happen."""

    def __init__(self, hold: Holdfast, attempts: int = 2) -> None:
        self.hold = hold
        self._attempts = attempts
        self.down: set[str] = set()
        self.denied: set[str] = set()
        self.made: list[str] = []
        for name in ("mail", "reserve", "release", "charge", "refund", "ship", "unship"):
            self._register(name, sensitive=False)
        self._register("pay", sensitive=True)
        hold.saga(
            Saga(
                "order",
                (
                    Step("reserve", "reserve", compensation="release"),
                    Step("charge", "charge", compensation="refund", pivot=True),
                    Step("ship", "ship"),
                ),
            )
        )

    def _register(self, name: str, **options: Any) -> None:
        def call(**payload: Any) -> dict[str, Any]:
            if name in self.down:
                raise ConnectionError("refused")
            self.made.append(name)
            return {"receipt": name, "token": SECRET}

        self.hold.operation(name, max_attempts=self._attempts, backoff=QUICK, **options)(call)

    def put(self, operation: str = "mail", payload: Any = None, **options: Any) -> UUID:
        """A call that must happen."""
        given: Any = {"order": 7, "to": "ann@example.org", "password": SECRET} if payload is None else payload
        with self.hold.sessions.begin() as session:
            return self.hold.outbox.put(session, operation, given, target=options.pop("target", "-"), **options)

    def start(self, subject_id: str = "o-1") -> UUID:
        """A saga."""
        with self.hold.sessions.begin() as session:
            return self.hold.sagas.start(session, "order", {"order": 7, "password": SECRET}, subject_id=subject_id)

    def run(self, clock: Any = None, rounds: int = 12) -> None:
        """Make calls until there is nothing to do; `clock` is moved on in between, so that retries come."""
        for _ in range(rounds):
            made = self._run_once()
            if clock is not None:
                clock.advance(2)
            elif not made:
                break

    def _run_once(self) -> int:
        # In a thread: a browser's test has an event loop in its own.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(self.hold.runner().run_once())).result()

    def give_up(self, clock: Any = None, operation: str = "mail", **options: Any) -> UUID:
        """An entry that was abandoned."""
        self.down.add(operation)
        id = self.put(operation, **options)
        self.run(clock, rounds=3)
        self.down.discard(operation)
        return id


@contextmanager
def calling(name: str, tmp_path: Path, clock: Clock | None = None) -> Iterator[Calls]:
    """The shop on a fresh store of this kind."""
    with kept(name, tmp_path, clock=clock) as hold:
        yield Calls(hold)
