"""The seam that every call on the general path runs through, whatever guards it.

`perform` checks the deadline, publishes the context, walks the chain of strategies, and tells telemetry exactly once
how it ended.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

from holdfast.core.context import (
    CONTEXT,
    CURRENT,
    LIMIT,
    Link,
    ResilienceContext,
    ambient_deadline,
    context_of,
    forbid_retry,
    new_link,
    withdraw,
)
from holdfast.core.outcome import Outcome
from holdfast.errors import DeadlineExpired
from holdfast.guard.call import ENDPOINT, Call, Next, ResilienceStrategy, Setting, TimeLimit
from holdfast.guard.invoke import invoke
from holdfast.telemetry.events import CallCompleted, CallInterrupted


async def perform(call: Call, chain: Next) -> Outcome[Any]:
    """Run the call through its strategies; exactly one completion record, whatever happens."""
    setting, clock = call.setting, call.setting.clock
    parent = CURRENT.get() if setting.context else None
    ctx = _open_context(call, parent)
    deadline = ctx.deadline
    if deadline.at != math.inf and call.replay is None and deadline.at <= clock.monotonic():
        outcome = call.refuse(
            DeadlineExpired(setting.name, None, "the deadline had passed before the call"), setting.name
        )
        return await _concluded(call, ctx, outcome)
    token = None
    if setting.context:
        unbound = parent is None and deadline.at == math.inf
        token = CURRENT.set([call, None, None, ctx] if unbound else new_link(call, parent, ctx))
    try:
        if deadline.at == math.inf:
            outcome = await chain(ctx)
        else:
            outcome = await within(call, chain, ctx, None, "deadline")
    except BaseException as error:
        tell_interruption(call, error)
        raise
    finally:
        withdraw(token)
    if outcome.stopped_by == "budget":
        forbid_retry(parent, outcome.error)
    return await _concluded(call, ctx, outcome)


async def _concluded(call: Call, ctx: ResilienceContext, outcome: Outcome[Any]) -> Outcome[Any]:
    """Tell of the outcome, and let it be kept before anybody sees it."""
    _completed(call, ctx, outcome)
    if call.setting.keeper is not None:
        await call.setting.keeper.keep(call, ctx, outcome)
    return outcome


async def bypass(call: Call) -> Outcome[Any]:
    """Just run the function, for a guard that is switched off: no strategy, no deadline, no record."""
    ctx = ResilienceContext(call.operation_key, properties=call.properties, call=call)
    parent = CURRENT.get()
    token = CURRENT.set([call, parent, None if parent is None else parent[LIMIT], ctx])
    try:
        return await invoke(ctx)
    finally:
        withdraw(token)


def _open_context(call: Call, parent: Link | None) -> ResilienceContext:
    replay = call.replay
    unseen = replay is None or replay.link is None or replay.link[CONTEXT] is None
    if parent is None and unseen and call.deadline is None and not call.properties:
        return ResilienceContext(call.operation_key, ambient_deadline(None, call.setting.clock), call=call)
    return _inherit(call, parent)


def _inherit(call: Call, parent: Link | None) -> ResilienceContext:
    """The context of a call that has a caller, a deadline, properties or a past."""
    clock = call.setting.clock
    deadline = ambient_deadline(parent, clock)
    if call.deadline is not None:
        given = call.deadline
        at = given.at if given.clock is clock else clock.monotonic() + given.remaining()
        deadline = deadline.tighten(at)
        if given.at == deadline.at and given.clock is clock:
            deadline = given
    outer = context_of(parent)
    seen = None if call.replay is None or call.replay.link is None else call.replay.link[CONTEXT]
    bag = {} if outer is None else outer.properties
    if seen is not None:
        bag.update(seen.properties)
    bag.pop(ENDPOINT, None)  # the caller's: an attempt has an endpoint only where its own call chose one
    if call.properties:
        bag.update(call.properties)
    call._call_id = None if seen is None else seen.call_id
    return ResilienceContext(call.operation_key, deadline, None, None if outer is None else outer.call_id, bag, call)


async def within(call: Call, nxt: Next, ctx: ResilienceContext, limit: float | None, which: TimeLimit) -> Outcome[Any]:
    """Go on under `ctx.deadline` and end by then: cut where code can be cut, marked late where it cannot."""
    at = ctx.deadline.at
    outcome = await call.driver.bounded(lambda: nxt(ctx), at, call)
    if isinstance(outcome, Outcome):
        return in_time(call, outcome, at, limit, which)
    return call.time_out(which, limit, "ran out")


def in_time(call: Call, outcome: Outcome[Any], at: float, limit: float | None, which: TimeLimit) -> Outcome[Any]:
    """The outcome, or TIMEOUT for a value that came after the instant `at`."""
    if not outcome.kind.has_value or call.clock.monotonic() <= at:
        return outcome
    late = call.time_out(which, limit, "ran out; the result came late")
    return late.evolve(metadata={"late": True, "result": outcome.value})


def _completed(call: Call, ctx: ResilienceContext, outcome: Outcome[Any]) -> None:
    setting = call.setting
    duration = setting.clock.monotonic() - call.started
    if setting.meter is not None:
        setting.meter.add(outcome.kind, duration)
    if setting.hub.loud:
        call.report_attempts(last=True)
        error = None if outcome.error is None else type(outcome.error).__name__
        setting.hub.emit_loud(
            CallCompleted(
                call.operation_key,
                call.call_id,
                duration,
                outcome.kind,
                error,
                ctx.parent_call_id,
                outcome.attempts,
                outcome.reason,
            )
        )


def tell_interruption(call: Call, error: BaseException) -> None:
    """Tell who listens of a call that ends without an outcome."""
    setting = call.setting
    if setting.hub.loud:
        call.report_attempts(last=True)
        duration = setting.clock.monotonic() - call.started
        reason = interruption(error, setting)
        setting.hub.emit_loud(CallInterrupted(call.operation_key, call.call_id, reason, duration))


def interruption(error: BaseException, setting: Setting) -> Literal["cancelled", "passthrough", "interrupted"]:
    """What kind of end without an outcome an exception is."""
    if isinstance(error, setting.passthrough):
        return "passthrough"
    # By name: asyncio is not loaded for this.
    return "cancelled" if type(error).__name__ == "CancelledError" else "interrupted"


def link_chain(strategies: tuple[ResilienceStrategy, ...]) -> Next:
    """Strategies, outermost first, closed over `invoke`: built once, walked by every call."""
    chain: Next = invoke
    for strategy in reversed(strategies):
        chain = _joined(strategy, chain)
    return chain


def _joined(strategy: ResilienceStrategy, inner: Next) -> Next:
    execute = strategy.execute
    if getattr(strategy, "passes_context", False):
        return partial(execute, inner)  # type: ignore[return-value]  # our own: coroutine functions, one frame each

    async def step(ctx: ResilienceContext) -> Outcome[Any]:
        async def nxt(given: ResilienceContext | None = None) -> Outcome[Any]:
            return await inner(ctx if given is None else given)

        outcome = execute(nxt, ctx)
        return outcome if isinstance(outcome, Outcome) else await outcome

    return step
