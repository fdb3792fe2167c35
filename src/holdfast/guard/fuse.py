"""Fuse a guard's success path into one function.

A call that succeeds at the first attempt needs no outcome, no context object and no coroutine per strategy. `fuse`
writes the few lines that such a call needs, with the guarded function's own signature, and compiles them once.
Everything else leaves to the general path, where the rules are: by `divert` before anything was taken or run, by
`resume` after a first attempt that did not simply succeed. Under a plan with a `ShortWay` the machine's answers to a
plain failure are known beforehand: the next attempt is made here, or the failure raised, and `carry_on` leaves. Nothing
is decided here; a test runs random traces through both paths. `guard/source.py` writes the lines.

`Guard.source(fn)` shows what was written for a function.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import count
from operator import attrgetter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from holdfast.core.context import CURRENT, Scope, withdraw
from holdfast.core.outcome import Outcome, OutcomeKind, outcome_of
from holdfast.errors import CircuitOpen
from holdfast.guard.bulkhead import BulkheadStrategy
from holdfast.guard.circuit import CircuitBreakerStrategy
from holdfast.guard.fallback import FallbackStrategy
from holdfast.guard.invoke import refuse_lazy
from holdfast.guard.rate_limit import RateLimiterStrategy
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.short_way import annotate
from holdfast.guard.signature import Signature
from holdfast.guard.source import Writer
from holdfast.guard.timeout import TimeoutStrategy

if TYPE_CHECKING:
    from holdfast.guard.plan import Plan

FUSED_ORDER: Final = ("fallback", "timeout", "rate_limit", "bulkhead", "retry", "breaker", "attempt_timeout")
_serial = count(1)


class Parts:
    """The strategies of a fusable plan, by kind, and its time limits with the shortest one first."""

    __slots__ = ("breaker", "bulkhead", "fallback", "limits", "rate_limit", "retry")

    def __init__(self) -> None:
        self.fallback: FallbackStrategy | None = None
        self.rate_limit: RateLimiterStrategy | None = None
        self.bulkhead: BulkheadStrategy | None = None
        self.retry: RetryStrategy | None = None
        self.breaker: CircuitBreakerStrategy | None = None
        self.limits: list[TimeoutStrategy] = []

    @property
    def limit(self) -> float | None:
        """The seconds that the first attempt has."""
        return self.limits[0].timeout_s if self.limits else None


def fusable(plan: Plan) -> Parts | None:
    """The parts of a plan whose success path can be fused; None if something must see every call."""
    if plan.setting.judge is not None:
        return None
    parts, position = Parts(), -1
    for strategy in plan.strategies:
        kind = getattr(strategy, "kind", None)
        if kind == "chaos" and strategy.is_off:
            continue
        if kind not in FUSED_ORDER or FUSED_ORDER.index(kind) <= position:
            return None
        position = FUSED_ORDER.index(kind)
        if type(strategy) is TimeoutStrategy and not strategy.abandon:
            parts.limits = sorted([*parts.limits, strategy], key=attrgetter("timeout_s"))
        elif type(strategy) in _PLAIN and not _needs_context(strategy):
            setattr(parts, kind, strategy)
        else:
            return None
    return parts


_PLAIN: Final = frozenset(
    {FallbackStrategy, RateLimiterStrategy, BulkheadStrategy, RetryStrategy, CircuitBreakerStrategy}
)


def _needs_context(strategy: Any) -> bool:
    """A limiter that asks the context for its key, or makes calls wait, is not on the fused path."""
    return type(strategy) is RateLimiterStrategy and not (
        strategy.policy.by is None and strategy.policy.max_wait is None
    )


def fuse(
    plan: Plan, parts: Parts | None, fn: Callable[..., Any] | None, *, is_async: bool, outcome: bool
) -> Callable[..., Any]:
    """The guarded form of `fn`, or for None a caller that takes the function as its first argument."""
    signature = Signature.of(fn)
    writer = Writer(plan, parts or Parts(), signature, is_async, outcome, fn is None)
    source = writer.bare_text() if parts is None else writer.text()
    filename = f"<holdfast guard {plan.setting.name} {next(_serial)}>"
    # Tracebacks and debuggers find the text here.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    names = _names(plan, parts, fn, is_async) | signature.defaults
    exec(compile(source, filename, "exec"), names)  # fixed templates and checked parameter names
    made: Callable[..., Any] = names.pop("guarded")  # or the function and its globals were a cycle
    made.__holdfast_source__ = source  # type: ignore[attr-defined]
    finalize(made, linecache.cache.pop, filename, None)
    return made


def _names(plan: Plan, parts: Parts | None, fn: Callable[..., Any] | None, is_async: bool) -> dict[str, Any]:
    """What the lines refer to."""
    from holdfast.guard.plan import delivered, failed

    setting, meter = plan.setting, plan.setting.meter
    names: dict[str, Any] = {
        "plan_": plan, "fn_": fn, "monotonic_": setting.clock.monotonic,
        "divert_": plan.divert(fn, is_async), "resume_": plan.resume(is_async), "delivered_": delivered,
        "failed_": failed, "outcome_of_": outcome_of, "success_": OutcomeKind.SUCCESS, "rejected_": Outcome.rejected,
        "current_": CURRENT.get, "publish_": CURRENT.set, "reset_": CURRENT.reset, "withdraw_": withdraw,
        "coroutine_": CoroutineType, "generator_": GeneratorType, "async_generator_": AsyncGeneratorType,
        "refuse_lazy_": refuse_lazy, "type_": type, "len_": len, "no_slot_": IndexError,
        "anything_": BaseException, "wrong_": ValueError,
        "ended_scope_": Scope(setting.name, setting.clock),
    }  # fmt: skip
    if parts is None:
        return names
    if plan.short_way is not None:
        way = plan.short_way
        names |= {
            "first_": way.first, "plain_": way.plain, "ended_as_": way.ended, "recovered_": way.recovered,
            "leave_": way.leave, "carry_on_": plan.carry_on(is_async), "annotate_": annotate,
        }  # fmt: skip
    if meter is not None:
        names |= {"pending_": meter.pending, "note_": meter.pending.append, "fold_": meter.fold}
        names |= {"refused_": meter.refused, "note_refusal_": meter.refused.append, "note_call_": meter.add}
    if parts.breaker is not None and (circuit := parts.breaker.circuit) is not None:
        names |= {"circuit_": circuit, "succeed_": circuit.succeed, "finish_": circuit.finish}
        names |= {"hold_circuit_": circuit.lock.acquire, "free_circuit_": circuit.lock.release}
        names |= {"heed_success_": circuit.heed_success, "tell_changes_": circuit.tell_changes}
        names |= {"circuit_open_": CircuitOpen, "name_": circuit.name, "refusal_": (circuit.name, CircuitOpen.reason)}
    if parts.bulkhead is not None:
        slots = parts.bulkhead.slots
        names |= {
            "slots_": slots, "waiting_": slots.waiting, "take_slot_": slots.free.pop, "free_slot_": slots.free.append,
            "give_slot_": slots.give, "hand_over_": slots.hand_over, "queue_up_": parts.bulkhead.queue_up,
            "driver_": setting.driver(is_async),
        }  # fmt: skip
    if parts.rate_limit is not None:
        limiter = parts.rate_limit.bucket
        names |= {"limiter_": limiter, "bucket_": limiter.bucket, "take_token_": limiter.bucket.take}
        names |= {"hold_": limiter.acquire, "let_go_": limiter.release}
    if parts.retry is not None and parts.retry.budget is not None:
        names |= {"begin_": parts.retry.budget.begin_execution, "end_": parts.retry.budget.end_execution}
    if is_async and parts.limit is not None:
        import asyncio

        from holdfast.guard.wheel import Wheels

        reprieve = parts.limits[-1].timeout_s - parts.limits[0].timeout_s
        names |= {"wheels_": Wheels(setting.clock, reprieve), "running_loop_": asyncio.get_running_loop}
        names |= {"current_task_": asyncio.current_task}
    return names
