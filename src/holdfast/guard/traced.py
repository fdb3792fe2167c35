"""A call under a span of its own, where a listener makes spans of calls: what happens inside is below it in the trace.

Calls take this way only while there is such a listener; it hears every call, so none of them is on the fused path.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.context import CURRENT, context_of
from holdfast.core.outcome import Outcome
from holdfast.guard.call import Call, Next
from holdfast.guard.perform import interruption, perform
from holdfast.telemetry.causation import CAUSATION, causation_id
from holdfast.telemetry.tracing import CallSpans


async def traced(call: Call, chain: Next, spans: CallSpans, *, enters: bool = True) -> Outcome[Any]:
    """`perform`, in a span. Without `enters` it is current nowhere: in a loop of attempts it is those that enter."""
    span = call.span = spans.begin(call.operation_key)
    token = span.enter() if enters else None
    outcome: Outcome[Any] | None = None
    kind = "interrupted"
    try:
        outcome = await perform(call, chain)
        return outcome
    except BaseException as error:
        kind = interruption(error, call.setting)
        raise
    finally:
        if token is not None:
            span.leave(token)
        span.end(_facts(call, kind if outcome is None else outcome.kind.value, outcome), _failure(outcome))


def _facts(call: Call, kind: str, outcome: Outcome[Any] | None) -> dict[str, str | int]:
    around = context_of(CURRENT.get()) if call.setting.context else None
    facts: dict[str, str | int] = {
        "guard.call_id": call.call_id, "guard.outcome": kind, "guard.attempts": len(call.trail),
        CAUSATION.name: causation_id() or call.call_id,
    }  # fmt: skip
    if around is not None:
        facts["guard.parent_call_id"] = around.call_id
    if outcome is not None and outcome.error is not None:
        facts["guard.error_type"] = type(outcome.error).__name__
    if outcome is not None and outcome.reason is not None:
        facts["guard.reason"] = outcome.reason
    return facts


def _failure(outcome: Outcome[Any] | None) -> str | None:
    """What the status of the span says; never a message. A call that was interrupted has not failed."""
    if outcome is None or outcome.kind.has_value:
        return None
    return outcome.reason or (outcome.kind.value if outcome.error is None else type(outcome.error).__name__)
