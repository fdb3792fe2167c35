"""The two operations that are built in: erase and rectify what an external system holds of a subject."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

from holdfast.audit.event import AuditEventType as Event
from holdfast.errors import ResolverContractError, ResolverError
from holdfast.outbox.entry import OutboxOperation
from holdfast.outbox.operation import Answer, CallContext, Done, Operation, OperationRegistry, Park, StepEvents
from holdfast.outbox.resolver import (
    ResolverErasure,
    ResolverRectification,
    ResolverScheduledErasure,
    ResolverVerification,
)
from holdfast.outbox.subject import utc

T = TypeVar("T")
EXTRAS: Final = ("idempotency_key", "context")


async def erase(resolver: Any, context: CallContext) -> Answer:
    """Erase, or have the erasure scheduled where the system can do no more."""
    if not hasattr(resolver, "schedule_erasure"):
        erased = await _ask(resolver, "erase_subject", context, ResolverErasure)
        return Done(facts={"strategy": "delete", "already_absent": erased.already_absent})
    scheduled = await _ask(resolver, "schedule_erasure", context, ResolverScheduledErasure)
    if scheduled.expires_at is None:
        return Done(facts={"verified_expiry": True, "already_absent": True})
    until = utc(scheduled.expires_at)
    return Park(until, facts={"expires_at": until.isoformat()})


async def rectify(resolver: Any, context: CallContext) -> Answer:
    """Raises ResolverError if the resolver cannot rectify."""
    if not hasattr(resolver, "rectify_subject"):
        raise ResolverError(f"resolver {context.target!r} cannot rectify: it has no rectify_subject")
    done = await _ask(resolver, "rectify_subject", context, ResolverRectification, context.corrections)
    return Done(facts={"already_consistent": done.already_consistent})


async def verify_absent(resolver: Any, context: CallContext) -> bool | None:
    """Whether the data is gone; None if the resolver cannot tell."""
    if not hasattr(resolver, "verify_absent"):
        return None
    return (await _ask(resolver, "verify_absent", context, ResolverVerification)).confirmed_absent


ERASE: Final = Operation(
    name=OutboxOperation.ERASE,
    call=erase,
    events=StepEvents(
        succeeded=Event.ERASURE_STEP_SUCCEEDED,
        failed=Event.ERASURE_STEP_FAILED,
        requeued=Event.ERASURE_REQUEUED,
        parked=Event.ERASURE_EXPIRY_SCHEDULED,
        completed=Event.ERASURE_COMPLETED,
        verified=Event.ERASURE_EXTERNAL_VERIFIED,
        unverified=Event.ERASURE_EXTERNAL_VERIFICATION_FAILED,
    ),
    facts=frozenset({"strategy", "already_absent", "verified_expiry", "expires_at"}),
    labels={"strategy": "delete"},
    grouped=True,
    verify=verify_absent,
    can_verify=lambda resolver: hasattr(resolver, "verify_absent"),
)
RECTIFY: Final = Operation(
    name=OutboxOperation.RECTIFY,
    call=rectify,
    events=StepEvents(
        succeeded=Event.RECTIFICATION_STEP_SUCCEEDED,
        failed=Event.RECTIFICATION_STEP_FAILED,
        requeued=Event.RECTIFICATION_REQUEUED,
        completed=Event.RECTIFICATION_COMPLETED,
    ),
    facts=frozenset({"already_consistent"}),
    grouped=True,
    needs_payload=True,
)


def built_in_operations() -> OperationRegistry:
    """A registry with erase and rectify."""
    return OperationRegistry(ERASE, RECTIFY)


async def _ask(resolver: Any, method: str, context: CallContext, expected: type[T], *args: Any) -> T:
    """The resolver's answer.

    Raises ResolverContractError for one of another type.
    """
    asked = getattr(resolver, method)
    given: dict[str, Any] = {"idempotency_key": context.entry_id, "context": context}
    wanted = {name: given[name] for name in wanted_extras(asked)}
    answer = asked(context.ref, *args, **wanted)
    if inspect.isawaitable(answer):
        answer = await answer
    if not isinstance(answer, expected):
        got = type(answer).__name__
        raise ResolverContractError(f"{context.target}.{method} must give a {expected.__name__}, gave a {got}")
    return answer


def wanted_extras(function: Callable[..., Any]) -> tuple[str, ...]:
    """Which of the things that a call may ask for by name this one asks for."""
    return _named(getattr(function, "__func__", function))


@lru_cache(maxsize=256)
def _named(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # something in C that does not tell
        return ()
    return tuple(name for name in EXTRAS if name in parameters)
