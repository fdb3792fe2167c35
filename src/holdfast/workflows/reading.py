"""Looking at workflows: find them, see one as it is or was, read its log. It needs no worker and changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from holdfast.errors import InvalidValue, SchemaError, WorkflowNotFoundError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import from_json, instant, maybe_instant, micros
from holdfast.store.paging import every
from holdfast.store.port import FOREVER, Store
from holdfast.store.query import Condition, Cursor, Where, among, equal
from holdfast.store.record import Kind, Record
from holdfast.workflows.assembly import assembled
from holdfast.workflows.configs import Configs
from holdfast.workflows.drifting import Drifting
from holdfast.workflows.history import LogEntry, PastState, entries_of, state_after
from holdfast.workflows.log import Standing, entry_id, stands
from holdfast.workflows.model import Workflow
from holdfast.workflows.plan import Blueprint
from holdfast.workflows.records import EVENT, ITEM, STAGE, WORKFLOW, ItemRecord, WorkflowRecord
from holdfast.workflows.runs import Blueprints
from holdfast.workflows.serving import Stranded, stranded

R = TypeVar("R", bound=Record)
_MOST_READS: Final = 5


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """A workflow in a list."""

    id: str
    name: str
    application: str
    status: WorkflowStatus
    version: int
    """Also the number of a transaction in its log: of the last one, but for a workflow in a list that is under way.
    There it is the last one that has changed more than stages."""
    queue: str
    priority: int
    idempotency_key: str | None
    created_at: datetime
    start_time: datetime | None
    end_time: datetime | None
    reason: str | None
    parent: str | None = None
    """The workflow that has started it."""
    pipeline: str | None = None

    @property
    def cursor(self) -> str:
        """Where a page that ends with this workflow goes on; for `after=`."""
        return f"{micros(self.created_at):x}.{self.id}"


@dataclass(frozen=True, slots=True)
class TaskInHand:
    """A task that is to be run, or is being run."""

    stage: str
    position: int
    kind: str
    """run: a task is to be called; anything else: a time is waited for."""
    type: str
    """The task's, or nothing."""
    attempt: int
    owner: str | None
    """The worker that runs it; None: it waits."""
    due_at: datetime | None
    """When it can be run, or its waiting is over."""
    crashes: int


class Reading:
    """The workflows of one store, to look at."""

    def __init__(self, store: Store, blueprints: Blueprints, configs: Configs) -> None:
        self._store = store
        self._blueprints = blueprints
        self.configs = configs
        """What the engine was told."""
        self.drifting = Drifting(store, configs)
        self._page_size = configs.handler.default_page_size

    def find(
        self,
        *,
        status: WorkflowStatus | str | Collection[WorkflowStatus | str] | None = None,
        name: str | None = None,
        application: str | None = None,
        parent: str | None = None,
        pipeline: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[WorkflowSummary]:
        """Workflows, the newest first, `default_page_size` of them; both ends of the time are included. `parent` is the
        one that has started them.

        `after` is the `cursor` of the last one of the page before. Raises ValueError for what is no status or cursor.
        """
        where: Where = equal(name=name, application=application, parent=parent, pipeline=pipeline)
        if status is not None:
            where += (among("status", _statuses(status)),)
        if since is not None:
            where += (Condition("created_at", ">=", micros(since)),)
        if until is not None:
            where += (Condition("created_at", "<=", micros(until)),)
        most = self._page_size if limit is None else limit
        found = self._store.page(WORKFLOW, where, by="created_at", descending=True, after=_cursor_of(after), limit=most)
        return [_summary(one) for one in found]

    def summary(self, id: str) -> WorkflowSummary:
        """One workflow as in a list. Raises WorkflowNotFoundError."""
        return _summary(self.record(id))

    def counts(self) -> dict[WorkflowStatus, int]:
        """How many workflows there are of each status; those of which there are none are left out."""
        return {
            WorkflowStatus(status): number for (status,), number in self._store.tally(WORKFLOW, ("status",)).items()
        }

    def workflow(self, id: str) -> Workflow:
        """A workflow with its stages and tasks as they stand. Raises WorkflowNotFoundError."""
        record, reads = self.record(id), 0
        while True:
            stages = {one.ref: one for one in self._all(STAGE, id)}
            items = {one.ref: one for one in self._all(ITEM, id) if one.kind == "run"}
            again, reads = self.record(id), reads + 1
            # Every transition has a number: the same one again means that nothing came between.
            if again.version == record.version or reads == _MOST_READS:
                break
            record = again
        made = assembled(record, self._blueprint(record), stages, items, self._canceled_by(record))
        made.config_values = self.drifting.values_of(from_json(record.about))
        return made

    def work(self, id: str) -> list[TaskInHand]:
        """What is to be done for a workflow, and by whom it is done. Empty for one that has ended or is not there."""
        return [_in_hand(item) for item in self._all(ITEM, id)]

    def log(self, id: str, *, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        """What happened, the first first: the next `limit` transactions beyond the one numbered `after`.

        Raises WorkflowNotFoundError.
        """
        self._record(id)
        where = (*equal(workflow=id), Condition("id", ">", entry_id(id, after)))
        found = self._store.page(EVENT, where, by="id", limit=limit)
        return [entry for record in found for entry in entries_of(record)]

    def state_at(self, id: str, seq: int) -> PastState:
        """Where a workflow and its stages stood after the transaction of that number; 0: before the first one.

        Raises WorkflowNotFoundError, and ValueError for a number that its log has not reached.
        """
        record = self.record(id)
        if not 0 <= seq <= record.version:
            raise InvalidValue(f"the log of workflow {id} goes from 0 to {record.version}; there is no {seq}")
        where = (*equal(workflow=id), Condition("id", "<=", entry_id(id, seq)))
        entries = (entry for one in every(self._store, EVENT, where) for entry in entries_of(one))
        return state_after(self._blueprint(record).plan.stages, entries)

    def stranded(self, id: str | None = None, *, limit: int = 100) -> list[Stranded]:
        """Work that is due and that no worker can take, what has waited longest first; of all workflows, or of one.

        Workers say what they can do while they run; one that only looks in with `run_once` is not seen.
        """
        return stranded(self._store, limit, id)

    @property
    def blueprints(self) -> Blueprints:
        """The definitions that are known here."""
        return self._blueprints

    def blueprint(self, id: str) -> Blueprint:
        """The definition of a workflow. Raises WorkflowNotFoundError."""
        return self._blueprint(self._record(id))

    def record(self, id: str) -> WorkflowRecord:
        """A workflow as it stands; `version` is the number of the last transaction in its log. Raises
        WorkflowNotFoundError."""
        record, seq = self._standing(id)
        return WORKFLOW.changed(record, {"version": seq})

    def _standing(self, id: str) -> Standing:
        while (found := stands(self._store, self._record(id))) is None:  # gone in between: it may be there anew
            pass
        return found

    def _record(self, id: str) -> WorkflowRecord:
        """As it is stored. Raises WorkflowNotFoundError."""
        found = self._store.get(WORKFLOW, [id])[0]
        if found is None:
            raise WorkflowNotFoundError(f"there is no workflow {id!r}")
        return found

    def _blueprint(self, record: WorkflowRecord) -> Blueprint:
        found = self._blueprints.of([record.definition]).get(record.definition)
        if found is None:
            raise SchemaError(f"the definition {record.definition} of workflow {record.id} is not in the store")
        return found

    def _canceled_by(self, record: WorkflowRecord) -> str | None:
        if record.status != WorkflowStatus.CANCELED:
            return None
        # It is among the last things that happened: only finalizers come after it.
        for entry in every(self._store, EVENT, equal(workflow=record.id), descending=True):
            for one in from_json(entry.events):
                if one["type"] == "workflow_canceled":
                    by: str | None = one.get("by")
                    return by
        return None

    def _all(self, kind: Kind[R], id: str) -> Iterator[R]:
        return every(self._store, kind, equal(workflow=id))


def _statuses(given: WorkflowStatus | str | Collection[WorkflowStatus | str]) -> list[str]:
    wanted = [given] if isinstance(given, str) else list(given)
    if unknown := [one for one in wanted if one not in frozenset(WorkflowStatus)]:
        raise InvalidValue(f"{unknown[0]!r} is no status of a workflow; there are {', '.join(WorkflowStatus)}")
    return [WorkflowStatus(one).value for one in wanted]


def _cursor_of(text: str | None) -> Cursor | None:
    if text is None:
        return None
    value, dot, id = text.partition(".")
    try:
        if dot and id and id.isascii() and "\0" not in id and abs(at := int(value, 16)) <= FOREVER:
            return Cursor(at, id)
    except ValueError:
        pass
    raise InvalidValue(f"{text!r} is no cursor; use the `cursor` of the last workflow of a page")


def _summary(one: WorkflowRecord) -> WorkflowSummary:
    return WorkflowSummary(
        one.id, one.name, one.application, WorkflowStatus(one.status), one.version, one.queue, one.priority,
        one.idempotency_key, instant(one.created_at), maybe_instant(one.started_at), maybe_instant(one.ended_at),
        one.reason, one.parent, one.pipeline,
    )  # fmt: skip


def _in_hand(item: ItemRecord) -> TaskInHand:
    return TaskInHand(
        item.ref, item.at, item.kind, item.type, item.attempt, item.owner, maybe_instant(item.due_at), item.crashes
    )
