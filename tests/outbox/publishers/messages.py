"""Messages to publish, as the outbox would make them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from holdfast.outbox.operation import CallContext
from holdfast.outbox.publishing import Message, message_of
from holdfast.outbox.subject import SubjectRef

AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def a_context(topic: str = "orders.created", data: Any = None, **changes: Any) -> CallContext:
    """The call of an entry that publishes `data` on a topic."""
    fields: dict[str, Any] = {
        "entry_id": uuid.uuid4(),
        "operation": "publish",
        "target": "broker",
        "attempt": 1,
        "subject_id": topic,
        "ref": SubjectRef(kind="topic", value=topic),
        "payload": {"data": {"id": 7, "note": "grüße"} if data is None else data},
        "corrections": (),
        "deadline": None,
        "headers": {"traceparent": TRACE},
        "ordering_key": "order-7",
        "enqueued_at": AT,
    }
    return CallContext(**{**fields, **changes})


def a_message(topic: str = "orders.created", data: Any = None, **changes: Any) -> Message:
    return message_of(a_context(topic, data, **changes), "https://shop.example/orders")
