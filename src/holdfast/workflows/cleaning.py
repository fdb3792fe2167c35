"""Items of stages that are over: their finalizers are run in threads of their own, apart from the slots of tasks."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.errors import Conflict
from holdfast.machine.finalizer import FinalizerForm
from holdfast.store.ids import new_record_id
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.workflows.calling import USUAL
from holdfast.workflows.crew import Crew
from holdfast.workflows.finalizers import FinalizerRegistry
from holdfast.workflows.finalizing import Caller, Left
from holdfast.workflows.records import ITEM, ItemRecord
from holdfast.workflows.settling import WAKE

AT_ONCE: Final = 4
"""How many stages are cleaned up at the same time."""
LOCAL_ONLY: Final = -2
"""In the place of a task's position: of the finalizers only those whose callback is here."""


class Cleaning:
    """`done` hears of items that are not ours any more, `troubled` of one that could not be seen to."""

    def __init__(
        self,
        store: Store,
        finalizers: FinalizerRegistry,
        *,
        owner: Callable[[], str],
        caller: Caller,
        done: Callable[[ItemRecord], None],
        troubled: Callable[[ItemRecord, Exception], None],
        crew: Crew,
    ) -> None:
        self._store = store
        self._finalizers = finalizers
        self._owner = owner
        self._caller = caller
        self._done = done
        self._troubled = troubled
        self._lock = threading.Lock()
        self._waiting: deque[ItemRecord] = deque()
        self._busy = 0
        self._threads = crew.threads("holdfast-finalizers", 10.0)

    def take(self, item: ItemRecord) -> None:
        """Have the finalizers of a stage run. The item is ours."""
        with self._lock:
            self._waiting.append(item)
            if self._busy >= AT_ONCE:
                return
            self._busy += 1
        if not self._threads.run(self._work):
            with self._lock:
                self._busy -= 1  # no thread to be had; whoever takes the next one tries again

    def drop_waiting(self) -> list[ItemRecord]:
        """Take back what has not begun."""
        with self._lock:
            dropped = list(self._waiting)
            self._waiting.clear()
        return dropped

    def close(self) -> None:
        self._threads.close()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            try:
                self._see_to(item)
            except Exception as error:
                self._troubled(item, error)
            else:
                self._done(item)
        self._threads.about_to_be_free()

    def _next(self) -> ItemRecord | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._busy -= 1
            return None

    def _see_to(self, item: ItemRecord) -> None:
        """Run the finalizers of a stage; what cannot be done here, or now, is another item."""

        def wanted(form: str, type: str) -> bool:
            return form == FinalizerForm.LOCAL if item.at == LOCAL_ONLY else item.type in ("", type)

        session = self._finalizers.session(self._caller, self._owner())
        left = session.stage(item.workflow, item.ref, item.incarnation, item.at, wanted)
        now = self._store.now()
        changes: list[Change] = [Insert(ITEM, one) for one in _handed_on(item, left, now)]
        if left.again:
            due = now + round(1e6 * USUAL.schedule.delay(max(0, left.tries - 1), random.random))
            changes.append(Swap(ITEM, item, evolve(item, owner=None, due_at=due)))
        else:
            changes.append(Delete(ITEM, item))
        try:
            self._store.commit(changes, wake=WAKE if len(changes) > 1 else None)
        except Conflict:
            pass  # it is somebody else's by now


def _handed_on(item: ItemRecord, left: Left, now: int) -> Iterator[ItemRecord]:
    fresh = item._replace(version=1, attempt=1, crashes=0)
    for type in sorted(left.unknown):
        yield fresh._replace(id=new_record_id(now), type=type, owner=None, due_at=now)
    for owner in sorted(left.owners):
        yield fresh._replace(id=new_record_id(now), at=LOCAL_ONLY, owner=owner, due_at=None)
