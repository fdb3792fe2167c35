"""`hold.workflows.queue`: messages on their way to a workflow. Any worker delivers them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.errors import Conflict, WorkflowDefinitionError
from holdfast.store.port import Change, Store
from holdfast.store.query import Condition, equal
from holdfast.workflows.messages import CLASSES, Message
from holdfast.workflows.records import MESSAGE, PROCESSED, WORKFLOW
from holdfast.workflows.sending import sent
from holdfast.workflows.settling import WAKE
from holdfast.workflows.spans import seconds


class WorkflowQueue:
    """The messages of one store. A message whose id waits already, or was handled, is not taken again."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def push(self, message: Message, delay: float | timedelta | None = None, *, connection: Any = None) -> bool:
        """Put a message into the queue, due after `delay`; False: one of that id is there, dead, or was handled.

        With a `connection` it joins the caller's own transaction (SQL stores only). Raises WorkflowDefinitionError for
        what is no message, TypeError or ValueError for one that is not JSON.
        """
        while True:
            changes = self.changes([(message, delay)])
            if not changes:
                return False
            try:
                self._store.commit(changes, wake=WAKE, connection=connection)
            except Conflict:
                if connection is not None:
                    return False  # the caller's transaction may see what we cannot
            else:
                return True

    def size(self) -> int:
        """How many messages wait."""
        return sum(self._store.tally(MESSAGE, (), (Condition("dead_at", "is null"),)).values())

    def has(self, workflow: str) -> bool:
        """Whether a message for a workflow waits."""
        where = (*equal(workflow=workflow), Condition("dead_at", "is null"))
        return bool(self._store.page(MESSAGE, where, by="id", limit=1))

    def changes(self, pushed: Sequence[tuple[Message, float | timedelta | None]]) -> list[Change]:
        """What is to be stored for these messages: nothing of those that are there already."""
        messages = {one.message_id: (one, delay) for one, delay in pushed if _checked(one)}
        ids, now = list(messages), self._store.now()
        there = [*self._store.get(MESSAGE, ids), *self._store.get(PROCESSED, ids)]
        fresh = [messages[id] for id in ids if id not in {one.id for one in there if one is not None}]
        flows = self._store.get(WORKFLOW, [one.execution_id for one, _ in fresh])
        changes: list[Change] = []
        for (message, delay), flow in zip(fresh, flows, strict=True):
            due = now + round((seconds("delay", delay) if delay else 0.0) * 1e6)
            queue = "default" if flow is None else flow.queue
            changes += sent(message, now, due, queue)
        return changes


def _checked(message: object) -> bool:
    if type(message).__name__ not in CLASSES or not isinstance(message, Message):
        story = f"{message!r} is no message; push one of {', '.join(sorted(CLASSES))}"
        raise WorkflowDefinitionError("not_a_message", story)
    return True
