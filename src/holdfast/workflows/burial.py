"""How an item or a message becomes a dead one: kept with its last error until somebody replays or discards it."""

from __future__ import annotations

from typing import Any, Final

from holdfast.store.codec import from_json, plain_to_json
from holdfast.store.port import Change, Delete, Insert, Swap
from holdfast.store.record import evolve
from holdfast.workflows.records import ITEM, MESSAGE, ItemRecord, MessageRecord
from holdfast.workflows.story import named

_KINDS: Final = frozenset({"run", "wait", "start", "limit", "child", "cancel", "retry", "finalize"})
MESSAGES: Final = "message"
"""The kind of an item that has a message."""


def buried(item: ItemRecord, error: BaseException, now: int) -> list[Change]:
    """An item that nothing can be done with."""
    payload = plain_to_json(item._asdict())
    dead = MessageRecord(
        item.id, 1, None, item.workflow, item.kind, payload, item.attempt, item.attempt, now, now, named(error)
    )
    return [Delete(ITEM, item), Insert(MESSAGE, dead)]


def dead_message(record: MessageRecord, error: BaseException, now: int) -> MessageRecord:
    """A message that could not be handled."""
    return evolve(record, dead_at=now, error=named(error))


def revived(record: MessageRecord, now: int, queue: str) -> list[Change]:
    """The changes that let a dead one be tried again, from its first attempt."""
    payload: Any = from_json(record.payload)
    if is_item(record):
        item = ItemRecord(**payload)
        fresh = item._replace(version=1, due_at=now, owner=None, attempt=1, crashes=0, held=None)
        return [Delete(MESSAGE, record), Insert(ITEM, fresh)]
    again = evolve(record, dead_at=None, attempts=0, error=None)
    return [Swap(MESSAGE, record, again), Insert(ITEM, bell(record.id, now, queue))]


def is_item(record: MessageRecord) -> bool:
    """Whether it is an item of the engine's own, and no message."""
    return record.type in _KINDS


def bell(id: str, due: int, queue: str) -> ItemRecord:
    """The item that brings a message to a worker. It is before all others, and no workflow's own: pausing or ending
    one leaves it."""
    return ItemRecord(id, 1, due, queue, 1, MESSAGES, "", None, "", "", 0, 0, 1, 0)
