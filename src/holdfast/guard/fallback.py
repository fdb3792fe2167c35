"""Fallback: an answer for when there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.call import Call, Next
from holdfast.telemetry.events import FellBack

_UNSET: Final = object()


@dataclass(frozen=True, slots=True)
class Fallback:
    """Answer failures with `value`, or with what `function` returns.

    The function takes nothing or the outcome, and may be async under an async call. Refusals and partial results
    are left alone unless `rejected` or `partial` asks for them.
    """

    function: Callable[..., Any] | None = None
    value: Any = _UNSET
    rejected: bool = False
    partial: bool = False
    id: str | None = None

    def __post_init__(self) -> None:
        if (self.function is None) == (self.value is _UNSET):
            raise PolicyError(
                "Fallback needs a function or value=..., exactly one of them; use Fallback(value=None) for None"
            )
        if self.function is not None and not callable(self.function):
            raise PolicyError(
                f"Fallback.function must be callable, got {self.function!r}; use Fallback(value=...) for a value"
            )

    def handles(self, kind: OutcomeKind) -> bool:
        return (
            kind.is_failure
            or (self.rejected and kind is OutcomeKind.REJECTED)
            or (self.partial and kind is OutcomeKind.PARTIAL)
        )


class FallbackStrategy:
    """Replaces an outcome that the policy handles. Cancellations and passthrough exceptions are not outcomes."""

    kind = "fallback"
    passes_context = True

    def __init__(self, function: Callable[..., Any] | None = None, *, policy: Fallback | None = None) -> None:
        self.policy = Fallback(function) if policy is None else policy
        self._wants_outcome = _takes_argument(self.policy.function)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        outcome = await nxt(ctx)
        if not self.policy.handles(outcome.kind):
            return outcome
        return await self.answer(ctx.call, outcome)

    async def answer(self, call: Call, outcome: Outcome[Any]) -> Outcome[Any]:
        """The outcome to give instead."""
        function = self.policy.function
        try:
            value = self.policy.value if function is None else function(*((outcome,) if self._wants_outcome else ()))
            if function is not None and hasattr(value, "__await__"):
                if not call.driver.is_async:
                    value.close()
                    raise TypeError(f"{call.operation_key}: an async fallback needs an async call")
                value = await value
        except call.setting.passthrough:
            raise
        except Exception as error:  # user code; its failure is the call's outcome
            if error.__cause__ is None and error is not outcome.error:
                error.__cause__ = outcome.error
            call.emit(FellBack(call.operation_key, call.call_id, outcome.kind, outcome.reason, succeeded=False))
            return Outcome(
                OutcomeKind.TRANSIENT_FAILURE, None, error, None, {**call.notes(), "original": outcome},
                attempts=outcome.attempts,
            )  # fmt: skip
        call.emit(FellBack(call.operation_key, call.call_id, outcome.kind, outcome.reason))
        return Outcome(
            OutcomeKind.SUCCESS, value, None, "fallback value", {**call.notes(), "original": outcome},
            attempts=outcome.attempts,
        )  # fmt: skip

    def describe(self) -> str:
        what = "a value" if self.policy.function is None else getattr(self.policy.function, "__name__", "a function")
        return f"fallback: {what}"


def _takes_argument(function: Callable[..., Any] | None) -> bool:
    """Whether the function can be given the outcome; one that cannot be inspected is called without."""
    import inspect

    if function is None:
        return False
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if isinstance(function, type):  # `Fallback(list)` asks for an empty list, not for a list of the outcome
        return any(p.kind in positional and p.default is p.empty for p in parameters)
    return any(p.kind in positional or p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
