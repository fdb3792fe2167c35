"""Handling messages: each is one step of its workflow, in which the message goes away and its id is taken.

What cannot be done now is tried again, later each time, until its attempts are used up; then, and at once if nobody can
read it, the message is a dead one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConcurrencyError, Conflict, DeadLetterError, SchemaError, StoreError, TaskNotFoundError
from holdfast.store.codec import from_json, instant
from holdfast.store.port import Change, Delete, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.workflows.acting import ACTS, Act
from holdfast.workflows.burial import dead_message
from holdfast.workflows.config import HandlerConfig
from holdfast.workflows.messages import Message, message_of
from holdfast.workflows.presence import MOST_CRASHES
from holdfast.workflows.records import ITEM, MESSAGE, PROCESSED, ItemRecord, MessageRecord, ProcessedRecord
from holdfast.workflows.story import named

if TYPE_CHECKING:
    from holdfast.workflows.operating import Operating

Handler = Callable[[Any, Sequence[Change]], None]
"""Does what a message asks for, and commits these changes with it."""
_log: Final = logging.getLogger("holdfast")


class Delivery:
    """Handles the messages of one store's workflows. `handlers` are asked before the acts of the table."""

    def __init__(self, store: Store, workflows: Operating, config: HandlerConfig) -> None:
        self._store = store
        self._workflows = workflows
        self._config = config
        self.handlers: dict[str, Handler] = {}
        self._acts: dict[str, Act] = dict(ACTS)

    def deliver(self, item: ItemRecord) -> None:
        """Handle the message of an item that is ours. Raises StoreError; the item is still ours then."""
        record = self._store.get(MESSAGE, [item.id])[0]
        if record is None or record.dead_at is not None:
            self._commit([Delete(ITEM, item)])  # somebody has discarded it
            return
        gone: list[Change] = [Delete(ITEM, item), Delete(MESSAGE, record)]
        if self._store.get(PROCESSED, [item.id])[0] is not None:
            self._commit(gone)
            return
        try:
            if item.crashes >= MOST_CRASHES:
                raise DeadLetterError(f"{item.crashes} workers died while they handled it")
            message = _read(item, record)
            mark = ProcessedRecord(item.id, 1, None, record.workflow, record.type, self._store.now())
            self._handler(message.kind)(message, [*gone, Insert(PROCESSED, mark)])
        except (StoreError, ConcurrencyError, DeadLetterError) as error:
            self._refused(item, record, error)
        except Conflict:
            if self._store.get(ITEM, [item.id])[0] == item:
                self.deliver(item)  # its id was taken meanwhile
        except Exception as error:  # a refusal, or an error of the engine's own: the message waits for a better time
            self._again(item, record, error)

    def _handler(self, kind: str) -> Handler:
        if kind in self.handlers:
            return self.handlers[kind]
        act = self._acts.get(kind)
        if act is None:
            raise TaskNotFoundError(f"this program has no handler for {kind}")

        def handle(message: Message, extra: Sequence[Change]) -> None:
            def step(run: Any, step: Any) -> list[Change] | None:
                return act(self._store, run, step, message, self._config.signal_buffer_max)

            self._workflows.change(message.execution_id, step, extra=extra, in_place=True)

        return handle

    def _refused(self, item: ItemRecord, record: MessageRecord, error: Exception) -> None:
        if isinstance(error, ConcurrencyError):  # others are busy with the workflow: that costs no attempt
            wait = self._config.concurrency_backoff.delay(0, random.random)
            due = self._store.now() + round(wait * 1e6)
            self._commit([Swap(ITEM, item, evolve(item, owner=None, due_at=due))])
        elif isinstance(error, DeadLetterError | SchemaError):
            self._bury(item, record, error)
        else:
            raise error

    def _again(self, item: ItemRecord, record: MessageRecord, error: Exception) -> None:
        attempts = item.attempt
        if attempts >= record.max_attempts:
            self._bury(item, record._replace(attempts=attempts), error)
            return
        later = evolve(item, owner=None, due_at=self._due(attempts - 1), attempt=attempts + 1)
        noted = evolve(record, attempts=attempts, error=named(error))
        self._commit([Swap(ITEM, item, later), Swap(MESSAGE, record, noted)])
        _log.warning("workflows: %s %s of %s: %s", record.type, record.id, record.workflow, noted.error)

    def _bury(self, item: ItemRecord, record: MessageRecord, error: Exception) -> None:
        dead = dead_message(record, error, self._store.now())
        self._commit([Delete(ITEM, item), Swap(MESSAGE, record, dead)])
        _log.error("workflows: %s %s of %s is dead: %s", record.type, record.id, record.workflow, dead.error)

    def _due(self, k: int) -> int:
        wait = self._config.error_handling_backoff.delay(k, random.random)
        return self._store.now() + round(min(wait, self._config.handler_retry_delay_seconds) * 1e6)

    def _commit(self, changes: list[Change]) -> None:
        try:
            self._store.commit(changes)
        except Conflict:
            pass  # it is somebody else's by now


def _read(item: ItemRecord, record: MessageRecord) -> Message:
    """Raises SchemaError for what nobody can read."""
    try:
        document = from_json(record.payload)
    except ValueError as error:
        raise SchemaError(f"message {record.id} is no JSON: {error}") from error
    message = message_of(document)
    return replace(message, attempts=item.attempt - 1, last_error=record.error, created_at=instant(record.created_at))
