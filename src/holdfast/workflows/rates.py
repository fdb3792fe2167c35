"""`hold.workflows.rates`: how often the tasks of a type, or of a queue, are begun, by all workers of a store together.

What is over its rate is not claimed: it stays due, costs no attempt, and nobody holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from holdfast.machine.rate import Grant, Rate, grant
from holdfast.store.lease import move_end
from holdfast.store.port import Store
from holdfast.workflows.finalizing import PREFIX
from holdfast.workflows.spans import seconds

_TASK, _QUEUE = "workflow-rate.task.", "workflow-rate.queue."
_FREE: Final = 0.0


class Rates:
    """The limits that this program sets. What was granted is in the store: a lease without holder, whose end is the
    time up to which calls were granted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limits: dict[str, Rate] = {}
        self._shut: dict[str, int] = {}

    def limit_task(self, name: str, calls: float, *, per: float | timedelta = 1.0, burst: int = 1) -> None:
        """At most `calls` of a task are begun in `per` seconds, retries included; up to `burst` at once after a pause.

        Every program whose workers run it should say the same. Raises PolicyError for what is no rate.
        """
        self._limits[_TASK + name] = Rate(calls, seconds("per", per), burst)

    def limit_queue(self, name: str, calls: float, *, per: float | timedelta = 1.0, burst: int = 1) -> None:
        """The same for all tasks of a queue together."""
        self._limits[_QUEUE + name] = Rate(calls, seconds("per", per), burst)

    def limits(self, queues: Iterable[str], type: str) -> bool:
        """Whether a task of these queues has to ask."""
        return bool(self._limits) and any(self._names(queue, type) for queue in queues)

    def wait(self, queue: str, type: str) -> float:
        """In how many seconds it is worth asking for such a task, as far as is known here."""
        if not self._shut or not self._limits:
            return _FREE
        until = max((self._shut.get(name, 0) for name in self._names(queue, type)), default=0)
        return max(_FREE, (until - self._store.now()) / 1e6) if until else _FREE

    def take(self, queue: str, type: str, wanted: int) -> int:
        """How many of these may be begun now. Raises StoreError."""
        if not self._limits:
            return wanted
        granted, asked = wanted, list[str]()
        for name in self._names(queue, type):
            found = self._ask(name, granted)
            for other in asked:
                self._return(other, granted - found.calls)
            granted = found.calls
            if not granted:
                self._shut[name] = found.until
                return 0
            asked.append(name)
        return granted

    def give_back(self, queue: str, type: str, number: int) -> None:
        """So many were granted and are not begun after all. Raises StoreError."""
        if number > 0 and self._limits:
            for name in self._names(queue, type):
                self._return(name, number)

    def _names(self, queue: str, type: str) -> list[str]:
        if not type or type.startswith(PREFIX):
            return []  # no task of the user's
        return [name for name in (_TASK + type, _QUEUE + queue) if name in self._limits]

    def _ask(self, name: str, wanted: int) -> Grant:
        answer = Grant(0, 0)

        def step(until: int | None) -> int | None:
            nonlocal answer
            answer = grant(self._limits[name], until, self._store.now(), wanted)
            return answer.until if answer.calls else None

        move_end(self._store, name, step)
        return answer

    def _return(self, name: str, number: int) -> None:
        back = max(0, number) * self._limits[name].apart
        if back:
            move_end(self._store, name, lambda until: None if until is None else until - back)
