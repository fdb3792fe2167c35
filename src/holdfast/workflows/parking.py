"""Tasks that an open breaker has refused wait for the time that it named. If it closes before, they are due at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from holdfast.errors import CircuitOpen
from holdfast.machine.breaker import CircuitState
from holdfast.store.codec import from_json
from holdfast.store.port import Store
from holdfast.store.query import Condition, Cursor, among, equal
from holdfast.store.record import evolve
from holdfast.telemetry.events import CircuitStateChanged, GuardEvent
from holdfast.workflows.records import ITEM, STAGE, ItemRecord, StageRecord

_PAGE: Final = 500


class Parking:
    """Hears of breakers that close, those of other processes included. `woken` is called for each."""

    quiet = True
    wants = (CircuitStateChanged,)

    def __init__(self, store: Store, woken: Callable[[], object]) -> None:
        self._store = store
        self._woken = woken
        self._lock = threading.Lock()
        self._closed: set[str] = set()

    def on_event(self, event: GuardEvent) -> None:
        if isinstance(event, CircuitStateChanged) and event.to_state == CircuitState.CLOSED:
            with self._lock:
                self._closed.add(event.name)
            self._woken()

    def bring_forward(self, queues: Sequence[str], priorities: Sequence[int], types: Collection[str]) -> int:
        """Make due what waits for a breaker that has closed since; how many items that were. Raises StoreError."""
        with self._lock:
            closed, self._closed = self._closed, set()
        if not closed:
            return 0
        try:
            return sum(
                self._forward(closed, (*equal(queue=queue, priority=priority), among("type", tuple(types))))
                for queue in queues
                for priority in priorities
            )
        except BaseException:
            with self._lock:
                self._closed |= closed
            raise

    def _forward(self, closed: set[str], where: tuple[Condition, ...]) -> int:
        now, after, forwarded = self._store.now(), None, 0
        later = (*where, *equal(kind="run"), Condition("due_at", ">", now))
        while found := self._store.page(ITEM, later, by="due_at", after=after, limit=_PAGE):
            after = Cursor(found[-1].due_at, found[-1].id)
            stages = self._store.get(STAGE, [f"{item.workflow}.{item.ref}" for item in found])
            parked = [item.id for item, one in zip(found, stages, strict=True) if _waits_for(closed, item, one)]
            if parked:
                here = (among("id", parked), Condition("due_at", "is set"))
                forwarded += len(self._store.claim(ITEM, here, lambda item: _due(item, now), by="id", limit=_PAGE))
        return forwarded


def _due(item: ItemRecord, now: int) -> ItemRecord | None:
    return evolve(item, due_at=now) if item.owner is None and (item.due_at or 0) > now else None


def _waits_for(closed: set[str], item: ItemRecord, stage: StageRecord | None) -> bool:
    """Whether the last word of a task was the refusal of one of these breakers."""
    if stage is None or stage.incarnation != item.incarnation:
        return False
    error: dict[str, Any] | None = from_json(stage.state)["tasks"][item.at][-1]
    if not error or error.get("type") != CircuitOpen.__name__:
        return False
    return str(error.get("message", "")).partition(": ")[0] in closed
