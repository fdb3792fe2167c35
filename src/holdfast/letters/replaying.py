"""What code can know of the replay it runs in: which letter, which attempt, and the key that makes repeating safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from holdfast.core.context import ResilienceContext, TypedKey, current_context, new_link, publish, withdraw
from holdfast.letters.capture import IDEMPOTENCY_KEY, REPLAYING
from holdfast.letters.data import FailedOperationData, may_hold
from holdfast.telemetry.causation import CAUSATION, CAUSATION_FIELD
from holdfast.telemetry.tracing import TRACE_HEADERS, TRACEPARENT

T = TypeVar("T")


class Replayed:
    """The replay under way. `lost` turns True when another worker may have taken the letter over."""

    __slots__ = ("attempt", "cause", "domain", "id", "key", "lost", "token")

    def __init__(self, op: FailedOperationData) -> None:
        self.id = op.id
        self.domain = op.domain
        self.attempt = op.retry_count
        self.token = op.attempt_token or ""
        self.key = idempotency_key_of(op)
        self.cause = causation_id_of(op)
        self.lost = False


REPLAYED: Final = TypedKey[Replayed]("holdfast.replayed")


def idempotency_key_of(op: FailedOperationData) -> str:
    """The original call's own key, or one made from the letter: the same for every attempt."""
    kept = op.metadata.get("idempotency_key") if may_hold(op, "metadata", "idempotency_key") else None
    return kept if isinstance(kept, str) and kept else f"letter-{op.id}"


def causation_id_of(op: FailedOperationData) -> str:
    """The id of what the letter follows from: its own, when it says nothing else."""
    kept = op.metadata.get(CAUSATION_FIELD) if may_hold(op, "metadata", CAUSATION_FIELD) else None
    return kept if isinstance(kept, str) and kept else op.id


def trace_of(op: FailedOperationData) -> dict[str, str]:
    """The headers of the span in which the letter's call failed."""
    if not may_hold(op, "metadata", TRACEPARENT):
        return {}
    return {name: str(op.metadata[name]) for name in TRACE_HEADERS if name in op.metadata}


def current_replay() -> Replayed | None:
    """The replay that this code runs in, or None in an ordinary call."""
    context = current_context()
    return None if context is None else context.get(REPLAYED)


def current_idempotency_key() -> str | None:
    """The key to send along with what this code does: equal keys mean the same effect, however often it is tried."""
    context = current_context()
    return None if context is None else context.get(IDEMPOTENCY_KEY)


def as_replay(replayed: Replayed, run: Callable[[], T]) -> T:
    """What the function gives, run as this replay."""
    properties: dict[TypedKey[Any], Any] = {
        IDEMPOTENCY_KEY: replayed.key,
        REPLAYED: replayed,
        CAUSATION: replayed.cause,
    }
    context = ResilienceContext(replayed.domain, properties=properties)
    link, token = publish(new_link(context, None, context)), REPLAYING.set(replayed.id)
    try:
        return run()
    finally:
        REPLAYING.reset(token)
        withdraw(link)
