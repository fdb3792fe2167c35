"""Operations that are plain functions of the application's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, Final

from holdfast.outbox.operation import Answer, CallContext, Discard, Done, Operation, Park, RetryAfter
from holdfast.outbox.subject_operations import wanted_extras

_ANSWERS: Final = (Done, Park, RetryAfter, Discard)


class NoTarget:
    """Where a function needs no target: whatever name an entry gives."""

    def get(self, name: str) -> None:
        return None


def operation_of(name: str, function: Callable[..., Any], **options: Any) -> Operation:
    """An operation that calls a function with the entry's payload as its keyword arguments.

    What it returns is the result that the next step of a saga gets. Parameters named `idempotency_key` and `context`
    get the entry's id and the `CallContext`. `options` are those of `Operation`. Payloads are kept until they are
    pruned, so that an abandoned entry can be requeued, unless `sensitive=True`; outcomes are audited, unless
    `events=None`.
    """
    options.setdefault("sensitive", False)
    options.setdefault("targets", NoTarget())
    extras = wanted_extras(function)
    options.setdefault("signature", _payloads(function, extras))

    wants_context = "context" in extras
    options.setdefault("takes_entry", not wants_context)

    def arguments(context: CallContext) -> dict[str, Any]:
        given: dict[str, Any] = dict(context.payload or {})
        if "idempotency_key" in extras:
            given["idempotency_key"] = context.entry_id
        if wants_context:
            given["context"] = context
        return given

    if inspect.iscoroutinefunction(function):

        async def acall(target: Any, context: CallContext) -> Any:
            return _answer(await function(**arguments(context)))

        acall.__wrapped__ = function  # type: ignore[attr-defined]  # for who wants to know what is called
        return Operation(name=name, call=acall, **options)

    def call(target: Any, context: CallContext) -> Any:
        return _answer(function(**arguments(context)))

    call.__wrapped__ = function  # type: ignore[attr-defined]  # as above
    return Operation(name=name, call=call, **options)


def _payloads(function: Callable[..., Any], extras: Collection[str]) -> inspect.Signature | None:
    """The signature, without what is not in a payload."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # something in C that does not tell
        return None
    left = [one for name, one in signature.parameters.items() if name not in extras]
    return signature.replace(parameters=left, return_annotation=inspect.Signature.empty)


def _answer(value: Any) -> Answer | None:
    return value if value is None or isinstance(value, _ANSWERS) else Done(value)
