"""Taking up workflows in which something is missing: after a crash of the database, of a program, or of a person.

Workers that die are no case for this: whoever lives takes their items (`presence.py`). This frees what is theirs as
well, then looks at workflows that have begun, or should have, and lets go on what can. Any number of processes may do
it at the same time, and any number of times.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from holdfast.errors import ConfigurationError, PolicyError, RecoveryError, SchemaError, WorkflowError
from holdfast.machine.reconcile import give_up, stuck
from holdfast.machine.run import Advance
from holdfast.machine.workflow import S
from holdfast.store.codec import instant
from holdfast.store.port import Change
from holdfast.store.query import Condition, Cursor, among, equal
from holdfast.workflows.control import settled
from holdfast.workflows.items import items_of
from holdfast.workflows.log import last_entry
from holdfast.workflows.mending import mend
from holdfast.workflows.presence import Presence
from holdfast.workflows.queue import WorkflowQueue
from holdfast.workflows.records import ITEM, PROCESSED, WORKFLOW, WorkflowRecord
from holdfast.workflows.run import Run

if TYPE_CHECKING:
    from holdfast.workflows.store import WorkflowStore

PENDING: Final = (S.RUNNING, S.NOT_STARTED, S.BUFFERED)
GRACE_S: Final = 60.0
"""A workflow that was stored and not begun is left alone for so long: whoever stored it may be about to begin it."""
KEEP_S: Final = 3600.0
"""How long the ids of handled messages are kept at least, also of workflows that have ended."""
_MARKS: Final = 500
_STARTS: Final = equal(kind="start")
_log: Final = logging.getLogger("holdfast")


class RecoveryStatus(StrEnum):
    """What came of looking at a workflow."""

    RECOVERED = "recovered"
    SKIPPED = "skipped"
    """Nothing was missing, or it is older than what is taken up."""
    PARTIAL = "partial"
    """Something still waits, and nothing will wake it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What came of looking at a workflow, and why."""

    workflow_id: str
    status: RecoveryStatus
    message: str = ""
    found: tuple[str, ...] = ()
    """What was missing."""
    last_change: datetime | None = None


class WorkflowRecovery:
    """Looks after the workflows of one store. Those whose last change is longer ago than `max_recovery_age_hours` are
    listed, and left as they are; `recover` takes up one of any age.

    Raises PolicyError for an age or a size that cannot be.
    """

    def __init__(
        self,
        store: WorkflowStore,
        queue: WorkflowQueue | None = None,
        max_recovery_age_hours: float = 24,
        batch_size: int = 100,
    ) -> None:
        if not max_recovery_age_hours > 0:
            raise PolicyError(f"max_recovery_age_hours must be above 0, got {max_recovery_age_hours!r}; use 24")
        if type(batch_size) is not int or batch_size < 1:
            raise PolicyError(f"batch_size must be a whole number from 1, got {batch_size!r}; use 100")
        self._flows = store.workflows
        self._store = store.workflows.records
        self._queue = self._flows.queue if queue is None else queue
        self._oldest_us = round(max_recovery_age_hours * 3600e6)
        self._batch = batch_size
        self._after: Cursor | None = None
        self._marks_after: Cursor | None = None
        self._waits: Counter[str] = Counter()
        self._told: set[str] = set()

    def recover_pending_workflows(self) -> list[RecoveryResult]:
        """Free what the dead have left, then look at every workflow that has not ended. Raises StoreError."""
        presence = Presence(self._store, clock=self._flows.clock)
        presence.bury(patient=False)
        presence.adopt_orphans()
        return [self._recovered(record) for batch in self._pending() for record in batch]

    def recover(self, id: str) -> RecoveryResult:
        """Look at one workflow, whatever its age, and at what is to be done after its stages. Raises
        WorkflowNotFoundError."""
        result = self._recovered(self._flows.record(id), at_any_age=True)
        self._flows.finalizers.recover(id)
        return result

    def sweep(self) -> int:
        """One round of a worker: the next `batch_size` workflows, of which those without any item are looked at. How
        many were taken up. Raises StoreError."""
        records = self._page(self._after)
        self._after = None if len(records) < self._batch else Cursor(records[-1].created_at, records[-1].id)
        newest = self._store.now() - round(GRACE_S * 1e6)
        old = [one for one in records if one.status != S.BUFFERED and one.created_at <= newest]
        ids = tuple(one.id for one in old)
        busy = {id for (id,) in self._store.tally(ITEM, ("workflow",), (among("workflow", ids),))} if ids else set()
        results = [self._recovered(one) for one in old if one.id not in busy]
        for one in results:
            if one.status is not RecoveryStatus.RECOVERED and one.message and one.workflow_id not in self._told:
                self._told.add(one.workflow_id)  # once, and not every minute
                _log.warning("workflows: %s is not taken up: %s", one.workflow_id, one.message)
        return sum(one.status is RecoveryStatus.RECOVERED for one in results)

    def forget_marks(self) -> int:
        """Forget the ids of messages that were handled a while ago, of workflows that have ended; how many."""
        late = Condition("at", "<=", self._store.now() - round(KEEP_S * 1e6))
        marks = self._store.page(PROCESSED, (late,), by="at", after=self._marks_after, limit=_MARKS)
        self._marks_after = None if len(marks) < _MARKS else Cursor(marks[-1].at, marks[-1].id)
        if not marks:
            return 0
        flows = self._store.get(WORKFLOW, [one.workflow for one in marks])
        over = [mark.id for mark, flow in zip(marks, flows, strict=True) if flow is None or S(flow.status).is_complete]
        return self._store.sweep(PROCESSED, (among("id", over),)) if over else 0

    def _pending(self) -> Iterator[list[WorkflowRecord]]:
        after: Cursor | None = None
        while records := self._page(after):
            after = Cursor(records[-1].created_at, records[-1].id)
            yield records

    def _page(self, after: Cursor | None) -> list[WorkflowRecord]:
        where = (among("status", tuple(one.value for one in PENDING)),)
        return self._store.page(WORKFLOW, where, by="created_at", after=after, limit=self._batch)

    def _recovered(self, record: WorkflowRecord, *, at_any_age: bool = False) -> RecoveryResult:
        looked = _Look(self._last_change(record), at_any_age)
        try:
            if record.status == S.NOT_STARTED and self._queue.has(record.id):
                return RecoveryResult(record.id, RecoveryStatus.SKIPPED, "a message for it is on its way")
            self._flows.change(record.id, lambda run, step: self._mended(run, step, looked))
        except (SchemaError, WorkflowError, ConfigurationError) as error:
            return RecoveryResult(record.id, RecoveryStatus.FAILED, str(error), (), instant(looked.last_change))
        return RecoveryResult(
            record.id, looked.status, looked.message, tuple(looked.found), instant(looked.last_change)
        )

    def _mended(self, run: Run, step: Advance, looked: _Look) -> list[Change] | None:
        looked.found, changes = mend(self._store, run, step)
        if not looked.found:
            return self._waiting(run, step, looked)
        if not looked.at_any_age and looked.last_change < step.now - self._oldest_us:
            looked.status, hours = RecoveryStatus.SKIPPED, self._oldest_us / 3600e6
            looked.message = f"its last change is more than {hours:g} hours ago; recover({run.id!r}) takes it up"
            return None
        self._flows.drifting.tell(run, step)
        looked.status, looked.message = RecoveryStatus.RECOVERED, "; ".join(looked.found)
        return changes

    def _waiting(self, run: Run, step: Advance, looked: _Look) -> list[Change] | None:
        """Nothing was missing. Whoever waits for something that cannot come any more waits in vain, and fails once he
        was seen so too often."""
        looked.status, looked.message = RecoveryStatus.SKIPPED, "nothing is missing"
        # A stage whose time has come begins as soon as somebody takes its item.
        if run.state.status is not S.RUNNING or not (refs := stuck(step)) or any(items_of(self._store, run, _STARTS)):
            self._waits.pop(run.id, None)
            return None
        self._waits[run.id] += 1
        names, times, most = ", ".join(refs), self._waits[run.id], self._flows.configs.handler.max_stage_wait_retries
        looked.status, looked.message = RecoveryStatus.PARTIAL, f"{names}: waits for nothing that is under way"
        if times < most:
            return None
        del self._waits[run.id]
        give_up(step, refs, str(RecoveryError(f"it has waited for nothing that is under way, seen {times} times")))
        looked.status = RecoveryStatus.RECOVERED
        return settled(self._store, run, step)

    def _last_change(self, record: WorkflowRecord) -> int:
        last = last_entry(self._store, record.id)
        return record.created_at if last is None else last.at


class _Look:
    """What is found out about a workflow; again if somebody else changes it meanwhile."""

    def __init__(self, last_change: int, at_any_age: bool) -> None:
        self.last_change = last_change
        self.at_any_age = at_any_age
        self.status = RecoveryStatus.SKIPPED
        self.message = ""
        self.found: list[str] = []


def recover_on_startup(
    store: WorkflowStore, queue: WorkflowQueue | None = None, max_recovery_age_hours: float = 24
) -> list[RecoveryResult]:
    """Take up what can be, when a program starts. A worker does it by itself."""
    return WorkflowRecovery(store, queue, max_recovery_age_hours).recover_pending_workflows()
