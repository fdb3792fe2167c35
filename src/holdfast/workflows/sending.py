"""Messages as they are stored: each with the item that brings it to a worker."""

from __future__ import annotations

from dataclasses import replace

from holdfast.store.codec import instant, plain_to_json
from holdfast.store.port import Change, Insert
from holdfast.workflows.burial import bell
from holdfast.workflows.messages import Message
from holdfast.workflows.records import ITEM, MESSAGE, MessageRecord


def sent(message: Message, now: int, due: int, queue: str) -> list[Change]:
    """What is to be stored for a message that is new. Raises TypeError or ValueError for one that is not JSON."""
    return [Insert(MESSAGE, record_of(message, now)), Insert(ITEM, bell(message.message_id, due, queue))]


def record_of(message: Message, now: int, dead_at: int | None = None, error: str | None = None) -> MessageRecord:
    """How a message is kept. Raises as `sent` does."""
    payload = plain_to_json(replace(message, created_at=instant(now)).to_document())
    return MessageRecord(
        message.message_id, 1, None, message.execution_id, message.kind, payload, message.attempts,
        message.max_attempts, now, dead_at, error,
    )  # fmt: skip
