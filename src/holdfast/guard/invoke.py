"""The inner end of every chain: run the function and say what came of it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isasyncgenfunction, isgeneratorfunction
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.classify import retry_after_hint
from holdfast.core.context import CURRENT, Link, ResilienceContext, retry_forbidden
from holdfast.core.outcome import Outcome, OutcomeKind, Verdict, outcome_of
from holdfast.core.redact import redact
from holdfast.errors import GuardTimeout
from holdfast.guard.call import ENDPOINT, Call, Replay, attempt_of

if TYPE_CHECKING:
    from holdfast.telemetry.tracing import CallSpan

# Looking a member up in its class costs as much as a call.
SUCCESS, REJECTED = OutcomeKind.SUCCESS, OutcomeKind.REJECTED
TERMINAL_FAILURE, TIMEOUT = OutcomeKind.TERMINAL_FAILURE, OutcomeKind.TIMEOUT

LAZY: Final = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
"""Results of which a call may have run nothing yet."""


async def invoke(ctx: ResilienceContext) -> Outcome[Any]:
    """Run the function itself and say what came of it. The inner end of every chain."""
    call: Call = ctx.call
    if call.span is not None and call.replay is None:
        return await _traced(call, ctx, call.span)
    setting = call.setting
    monotonic = setting.clock.monotonic
    replay = call.replay
    if replay is not None:
        call.replay = None
        try:
            return _replayed(call, ctx, replay)
        finally:
            del call, ctx, replay  # a passthrough exception has this frame in its traceback: no cycle
    if call.trail and setting.hub.loud:
        call.report_attempts(last=False)
    started = monotonic()
    try:
        value = call.fn(*call.args, **call.kwargs)
        if call.driver.is_async and hasattr(value, "__await__"):
            value = await value
    except setting.passthrough:
        raise
    except Exception as error:
        # The error's frames refer to this one, which refers to the call, and the call to the error. Letting go of the
        # call leaves no cycle to collect; our own line in the traceback is of no use to anybody.
        error.with_traceback(error.__traceback__.tb_next if error.__traceback__ is not None else None)
        try:
            return failed(call, ctx, error, monotonic() - started, CURRENT.get())
        finally:
            del call, ctx
    except BaseException:
        if call.cut:
            call.record(TIMEOUT, monotonic() - started, None, ctx.get(ENDPOINT))
        raise
    if type(value) in LAZY:
        refuse_lazy(call.fn, value)
    return returned(call, ctx, value, monotonic() - started)


async def _traced(call: Call, ctx: ResilienceContext, around: CallSpan) -> Outcome[Any]:
    """The same under a span of the attempt's own."""
    number = len(call.trail)
    span = around.attempt(number)
    token, call.span = span.enter(), None
    outcome: Outcome[Any] | None = None
    try:
        outcome = await invoke(ctx)
        return outcome
    finally:
        call.span = around
        span.leave(token)
        span.end(*attempt_facts(number, outcome, ctx))


def attempt_facts(
    number: int, outcome: Outcome[Any] | None, ctx: ResilienceContext
) -> tuple[dict[str, str | int], str | None]:
    """What the span of an attempt says when it ends, and how it failed if it has."""
    facts: dict[str, str | int] = {"guard.attempt": number}
    if (endpoint := ctx.get(ENDPOINT)) is not None:
        facts["guard.endpoint"] = redact(str(endpoint), 200)
    if outcome is None:
        return {**facts, "guard.outcome": "interrupted"}, None
    facts["guard.outcome"] = outcome.kind.value
    if outcome.kind.has_value:
        return facts, None
    return facts, outcome.kind.value if outcome.error is None else type(outcome.error).__name__


def refuse_lazy(fn: Callable[..., Any], result: Any) -> None:
    """Raises TypeError when the body of `fn` has not run: an async function in a sync call, or a generator function.

    A generator that a plain function made and returned is a result like any other.
    """
    name = getattr(fn, "__qualname__", fn)
    if type(result) is CoroutineType:
        result.close()
        raise TypeError(f"{name} is async; use acall() or arun() for it")
    if is_generator_function(fn):
        raise TypeError(f"{name} is a generator, whose body runs after the call; guard what it calls instead")


def is_generator_function(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a generator, sync or async, and runs nothing; sees through partials."""
    if isgeneratorfunction(fn) or isasyncgenfunction(fn):
        return True
    called = None if isinstance(fn, FunctionType | type) else getattr(fn, "__call__", None)  # noqa: B004
    return isgeneratorfunction(called) or isasyncgenfunction(called)


def _replayed(call: Call, ctx: ResilienceContext, replay: Replay) -> Outcome[Any]:
    service = replay.ended - replay.admitted
    call.wait = replay.admitted - replay.started
    if replay.timed_out:
        call.record(TIMEOUT, service, None, None)
        return call.time_out(replay.which, replay.limit, "ran out")
    if replay.error is not None:
        if isinstance(replay.error, call.setting.passthrough):
            error = replay.error
            try:
                raise error
            finally:
                del error, replay, call, ctx  # this frame is in its traceback: no cycle
        return failed(call, ctx, replay.error, service, replay.link)
    return returned(call, ctx, replay.value, service)


def returned(call: Call, ctx: ResilienceContext, value: Any, service: float) -> Outcome[Any]:
    judge = call.setting.judge
    verdict: OutcomeKind | Verdict | None = None
    if judge is not None:
        try:
            verdict = judge(value)
        except Exception as error:  # a classifier is user code; its failure is the call's failure
            return _note(call, ctx, TERMINAL_FAILURE, service, error=error)
    if verdict is None or verdict is SUCCESS:
        call.record(SUCCESS, service, None, ctx.get(ENDPOINT))
        made = len(call.trail)
        notes = call.notes() if made > 1 else None
        return outcome_of(SUCCESS, value, None, None, notes, None, None, made, None)
    return _note(call, ctx, verdict, service, value=value)


def failed(
    call: Call, ctx: ResilienceContext, error: BaseException, service: float, link: Link | None = None
) -> Outcome[Any]:
    setting, trail = call.setting, call.trail
    try:
        verdict = setting.classify(error)
    except Exception as fault:  # as above
        if fault is not error:
            fault.__context__ = error
        error, verdict = fault, TERMINAL_FAILURE
    if type(verdict) is not OutcomeKind or verdict is REJECTED:
        return _note(call, ctx, verdict, service, error=error)
    made = len(trail)
    trail.append(attempt_of(made, verdict, call.wait, call.delay, service, error, ctx.get(ENDPOINT)))
    call.wait = call.delay = 0.0
    hint = retry_after_hint(error, setting.clock.wall)
    notes: dict[str, Any] = {"trail": trail}
    if retry_forbidden(link, error):
        notes["stopped_by"] = "budget"
    return outcome_of(verdict, None, error, None, notes, None, hint, made + 1, None)


def _note(
    call: Call,
    ctx: ResilienceContext,
    verdict: OutcomeKind | Verdict,
    service: float,
    value: Any = None,
    error: BaseException | None = None,
) -> Outcome[Any]:
    """The outcome of an attempt that was not a plain success, with the classifier's word and any retry hint."""
    retry_after = evidence = None
    if isinstance(verdict, Verdict):
        kind, retry_after, evidence = verdict.kind, verdict.retry_after, verdict.evidence
    elif isinstance(verdict, OutcomeKind):
        kind = verdict
    else:
        fault = TypeError(
            f"guard {call.setting.name!r}: a classifier must give an OutcomeKind or Verdict, got {verdict!r}"
        )
        fault.__context__ = error
        error, kind = fault, TERMINAL_FAILURE
    if retry_after is None or retry_after < 0:
        retry_after = retry_after_hint(value if error is None else error, call.setting.clock.wall)
    trail = call.trail
    call.record(kind, service, error, ctx.get(ENDPOINT))
    notes: dict[str, Any] = {"trail": trail}
    reason = None
    if error is None:
        if kind.has_value:
            return Outcome(kind, value, None, None, notes, None, retry_after, len(trail), evidence)
        notes["result"] = value
        if kind is TIMEOUT:
            error = GuardTimeout(call.setting.name, None, "the result says that it timed out")
    elif kind is REJECTED:
        reason = getattr(error, "reason", None)
    return Outcome(kind, None, error, None, notes, reason, retry_after, len(trail), evidence)
