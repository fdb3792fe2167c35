"""`hold.workflows.dead`: items and messages that nobody could do anything with. None is thrown away by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.errors import Conflict, DeadLetterError, InvalidValue
from holdfast.store.codec import from_json, instant, micros
from holdfast.store.port import Delete, Store
from holdfast.store.query import Condition, Cursor, Where, equal
from holdfast.workflows.burial import revived
from holdfast.workflows.records import MESSAGE, WORKFLOW, MessageRecord
from holdfast.workflows.settling import WAKE


@dataclass(frozen=True, slots=True)
class DeadItem:
    """What was to be done, and why nobody could."""

    id: str
    workflow_id: str
    type: str
    """The class of a message, or the kind of an item: run, wait, start, limit."""
    error: str | None
    attempts: int
    max_attempts: int
    created_at: datetime
    dead_at: datetime
    payload: Mapping[str, Any]

    @property
    def stage(self) -> str | None:
        """The stage that it is about."""
        found = self.payload.get("ref") or self.payload.get("stage_id")
        return None if not found else str(found).removeprefix(f"{self.workflow_id}.")

    @property
    def cursor(self) -> str:
        """Where a page that ends with it goes on; for `after=`."""
        return f"{micros(self.dead_at):x}.{self.id}"


class DeadItems:
    """The dead items of one store, the last one first."""

    def __init__(self, store: Store, page_size: int = 100) -> None:
        self._store = store
        self._page_size = page_size

    def list(
        self, workflow: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> list[DeadItem]:
        """Raises ValueError for what is no cursor."""
        found = self._store.page(
            MESSAGE, _where(workflow), by="dead_at", descending=True, after=_cursor(after),
            limit=self._page_size if limit is None else limit,
        )  # fmt: skip
        return [_shown(one) for one in found]

    def count(self, workflow: str | None = None) -> int:
        return sum(self._store.tally(MESSAGE, (), _where(workflow)).values())

    def show(self, id: str) -> DeadItem:
        """Raises DeadLetterError for one that is not there."""
        return _shown(self._found(id))

    def replay(self, id: str) -> None:
        """Have it tried again, from its first attempt. Raises DeadLetterError for one that is not there."""
        while True:
            record = self._found(id)
            flow = self._store.get(WORKFLOW, [record.workflow])[0]
            queue = "default" if flow is None else flow.queue
            try:
                self._store.commit(revived(record, self._store.now(), queue), wake=WAKE)
            except Conflict:
                continue
            return

    def discard(self, id: str) -> None:
        """Forget it. Raises DeadLetterError for one that is not there."""
        while True:
            try:
                self._store.commit([Delete(MESSAGE, self._found(id))])
            except Conflict:
                continue
            return

    def _found(self, id: str) -> MessageRecord:
        record = self._store.get(MESSAGE, [id])[0]
        if record is None or record.dead_at is None:
            raise DeadLetterError(f"there is no dead item {id!r}; it may be replayed or discarded already")
        return record


def _where(workflow: str | None) -> Where:
    return (*equal(workflow=workflow), Condition("dead_at", "is set"))


def _cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    value, dot, id = text.partition(".")
    try:
        if dot and id:
            return Cursor(int(value, 16), id)
    except ValueError:
        pass
    raise InvalidValue(f"{text!r} is no cursor; use the `cursor` of the last item of a page")


def _shown(record: MessageRecord) -> DeadItem:
    try:
        payload = from_json(record.payload)
    except ValueError:
        payload = None
    return DeadItem(
        record.id, record.workflow, record.type, record.error, record.attempts, record.max_attempts,
        instant(record.created_at), instant(record.dead_at or 0),
        payload if isinstance(payload, dict) else {"text": record.payload},
    )  # fmt: skip
