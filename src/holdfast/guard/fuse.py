"""Fuse a guard's success path into one function.

A call that succeeds at the first attempt needs no outcome, no context object and no coroutine per strategy. `fuse`
writes the few lines that such a call needs, with the guarded function's own signature, and compiles them once.
Everything else leaves to the general path, where the rules are: by `divert` before anything was taken or run, by
`resume` after a first attempt that did not simply succeed. A plan with a `ShortWay` is asked after a failure first:
while the next attempt may follow at once it is made here, and `carry_on` leaves. Nothing is decided here; a test runs
random traces through both paths.

`Guard.source(fn)` shows what was written for a function.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from itertools import count
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

from holdfast.core.context import CURRENT, Scope
from holdfast.core.outcome import Outcome, OutcomeKind, outcome_of
from holdfast.errors import CircuitOpen
from holdfast.guard.bulkhead import BulkheadStrategy
from holdfast.guard.call import Replay
from holdfast.guard.circuit import CircuitBreakerStrategy
from holdfast.guard.fallback import FallbackStrategy
from holdfast.guard.invoke import refuse_lazy
from holdfast.guard.rate_limit import RateLimiterStrategy
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.signature import Signature
from holdfast.guard.timeout import TimeoutStrategy
from holdfast.telemetry.hub import BATCH

if TYPE_CHECKING:
    from holdfast.guard.plan import Plan

FUSED_ORDER: Final = ("fallback", "timeout", "rate_limit", "bulkhead", "retry", "breaker", "attempt_timeout")
_serial = count(1)


class Parts:
    """The strategies of a fusable plan, by kind; `limit` is the seconds that the first attempt has."""

    __slots__ = ("breaker", "bulkhead", "fallback", "limit", "rate_limit", "retry")

    def __init__(self) -> None:
        self.fallback: FallbackStrategy | None = None
        self.rate_limit: RateLimiterStrategy | None = None
        self.bulkhead: BulkheadStrategy | None = None
        self.retry: RetryStrategy | None = None
        self.breaker: CircuitBreakerStrategy | None = None
        self.limit: float | None = None


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
            parts.limit = min(strategy.timeout_s, parts.limit or strategy.timeout_s)
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
    source = _Writer(plan, parts, signature, is_async, outcome, fn is None).text()
    filename = f"<holdfast guard {plan.setting.name} {next(_serial)}>"
    # Tracebacks and debuggers find the text here.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    names = _names(plan, parts, fn, is_async) | signature.defaults
    exec(compile(source, filename, "exec"), names)  # fixed templates and checked parameter names
    made: Callable[..., Any] = names.pop("guarded")  # or the function and its globals were a cycle
    made.__holdfast_source__ = source  # type: ignore[attr-defined]
    finalize(made, linecache.cache.pop, filename, None)
    return made


class _Writer:
    """Writes the lines. Names that end in an underscore are ours; the rest is the function's own."""

    def __init__(
        self, plan: Plan, parts: Parts | None, signature: Signature, is_async: bool, outcome: bool, generic: bool
    ) -> None:
        self.parts = Parts() if parts is None else parts
        self.bare = parts is None
        self.signature = signature
        self.is_async = is_async
        self.outcome = outcome
        self.generic = generic
        self.metrics = plan.metrics
        self.kept = plan.setting.keeper is not None
        self.heeds = plan.context is not False
        self.publishes = plan.publishes
        self.wait = "await " if is_async else ""
        self.fn = "fn" if generic else "fn_"
        self.handed = f"fn, {signature.passed}" if generic else signature.passed
        breaker, rate, limit = self.parts.breaker, self.parts.rate_limit, self.parts.limit
        self.heeds_success = "never" if breaker is None else breaker.policy.heeds_success
        self.timed = self.metrics or limit is not None or rate is not None or self.heeds_success == "always"
        self.on_wheel = is_async and limit is not None
        # Waiting for a slot with nothing to bound the wait is simple enough to be done here.
        bulkhead = self.parts.bulkhead
        self.waits = is_async and bulkhead is not None and (bulkhead.max_wait, limit, rate) == (None,) * 3
        self.begun = "begun_" if self.waits else "started_"
        self.goes_on = plan.short_way is not None
        self.budgeted = self.parts.retry is not None and self.parts.retry.budget is not None

    def text(self) -> str:
        declared = f"fn, /, {self.signature.declared}" if self.generic else self.signature.declared
        head = f"{'async ' if self.is_async else ''}def guarded({declared}):"
        return "\n".join([head, *_indent(self.divert() if self.bare else self.body())]) + "\n"

    def body(self) -> list[str]:
        return [
            *self.heed(),
            *self.admit(),
            *self.open_scope(),
            "try:",
            *_indent(self.run()),
            "except anything_ as error_:",
            "    failure_ = error_",
            "else:",
            *_indent(self.success()),
            *(self.go_on() if self.goes_on else [*self.close_scope(), *self.resume("failure_")]),
        ]

    def heed(self) -> list[str]:
        """Leave for the general path when somebody listens, a newer plan is there, or the context says so."""
        lines = ["if plan_.shut:", *_indent(self.divert())]
        if self.heeds:
            lines += ["parent_ = current_()"]
            lines += ["if parent_ is not None and parent_[2] is not None:", *_indent(self.divert())]
        return lines

    def admit(self) -> list[str]:
        parts, lines = self.parts, ["started_ = monotonic_()"] if self.timed else []
        if self.on_wheel:  # before anything is taken: it may raise
            lines += ["loop_ = running_loop_()", "task_ = current_task_(loop_)"]
            lines += ["if task_ is None:", *_indent(self.divert())]
        if parts.breaker is not None:
            lines += ["permit_ = circuit_.gate", "if not permit_:", *_indent(self.refuse())]
        if parts.bulkhead is not None:
            busy = self.queue_up() if self.waits else self.divert()
            lines += ["begun_ = started_"] if self.waits and self.timed else []
            lines += ["if waiting_:", *_indent(busy), "else:", "    try:", "        take_slot_()"]
            lines += ["    except no_slot_:", *_indent(_indent(busy))]
        if parts.rate_limit is not None:
            lines += ["hold_()", "try:", "    short_ = take_token_(started_)", "finally:", "    let_go_()"]
            lines += ["if short_:", *_indent([*self.give_slot(), *self.divert()])]
        return lines

    def queue_up(self) -> list[str]:
        lines = ["if not await queue_up_(driver_):", *_indent(self.divert())]
        if self.parts.breaker is not None:
            # The circuit may have opened while we waited.
            refused = [*self.give_slot(), *self.refuse(admitted=True)]
            lines += ["permit_ = circuit_.gate", "if not permit_:", *_indent(refused)]
        return lines + (["begun_ = monotonic_()"] if self.timed else [])

    def refuse(self, admitted: bool = False) -> list[str]:
        """The quick no of an open circuit, where nothing outside the breaker must see the call first."""
        parts = self.parts
        outside = not admitted and (parts.bulkhead is not None or parts.rate_limit is not None)
        if outside or parts.fallback is not None or self.kept:
            return self.divert()
        noted = ["note_refusal_(refusal_)", f"if len_(refused_) >= {BATCH}:", "    fold_()"] if self.metrics else []
        # Raised as it is made: a name for it in this frame, which its traceback holds, would have to be deleted.
        told = ["raise circuit_open_(name_, left_) from bar_[1]"]
        if self.outcome:
            told = ["error_ = circuit_open_(name_, left_)", "error_.__cause__ = bar_[1]"]
            told += ["return rejected_(error_, 0, rule=circuit_.rule)"]
        return [
            "bar_ = circuit_.bar",
            "if bar_ is not None:",
            f"    left_ = bar_[0] - {'started_' if self.timed and not admitted else 'monotonic_()'}",
            "    if left_ > 0:",
            *_indent(_indent([*noted, *told])),
            *self.divert(),
        ]

    def open_scope(self) -> list[str]:
        limit = self.parts.limit
        lines = ["begin_()"] if self.budgeted else []
        if self.on_wheel:
            lines += [
                "wheel_ = wheels_.at",
                "if wheel_.loop is not loop_:",
                "    wheel_ = wheels_.switch(loop_)",
                f"entry_ = [task_, started_ + {limit!r}, False, task_.cancelling()]",
                "queue_ = wheel_.queue",
                "queue_.append(entry_)",
                "if wheel_.armed is None:",
                "    wheel_.arm()",
            ]
        if self.publishes:
            until = "None" if limit is None else f"started_ + {limit!r}"
            lines += [f"link_ = [plan_, parent_, {until}, None]", "token_ = publish_(link_)"]
        return lines

    def close_scope(self) -> list[str]:
        lines: list[str] = []
        if self.on_wheel:
            lines += ["if queue_ and queue_[0] is entry_:", "    queue_.popleft()", "else:", "    wheel_.sweep(entry_)"]
        lines += ["end_()"] if self.budgeted else []
        if self.publishes:
            # Tasks that outlive the call still see its link, but there is nothing to defer to any more. And a coroutine
            # that is collected after its loop has closed runs this in a context that the token is not of.
            lines += ["link_[0] = ended_scope_", "try:", "    reset_(token_)", "except wrong_:", "    pass"]
        return lines

    def run(self) -> list[str]:
        called = f"{self.fn}({self.signature.passed})"
        if not (self.is_async and self.generic):
            return [f"result_ = {self.wait}{called}"]
        return [f"result_ = {called}", "if hasattr(result_, '__await__'):", "    result_ = await result_"]

    def refuse_lazy(self) -> list[str]:
        """Say no where nothing has run yet. What is decorated was asked then whether it is a generator."""
        refused = f"    refuse_lazy_({self.fn}, result_)"
        if self.generic:  # three comparisons are faster than a look into a set
            one_of = "kind_ is generator_ or kind_ is async_generator_ or kind_ is coroutine_"
            return ["kind_ = type_(result_)", f"if {one_of}:", refused]
        return [] if self.is_async else ["if type_(result_) is coroutine_:", refused]

    def success(self) -> list[str]:
        limit, lines = self.parts.limit, self.close_scope()
        took = "took_" if limit is not None or self.heeds_success == "always" else "monotonic_() - started_"
        if took == "took_":
            lines += ["ended_ = monotonic_()", "took_ = ended_ - started_"]
        if limit is not None:
            late = f"took_ > {limit!r}" + (" or entry_[2]" if self.on_wheel else "")
            lines += [f"if {late}:", *_indent(self.resume("None", "result_"))]
        if self.heeds_success == "after_failure":
            lines += ["if circuit_.dirty:", "    succeed_(permit_, monotonic_(), 0.0)"]
        elif self.heeds_success == "always":
            lines += [f"succeed_(permit_, ended_, ended_ - {self.begun})"]
        lines += self.give_slot()
        lines += self.refuse_lazy()
        if self.metrics:
            lines += [f"note_({took})", f"if len_(pending_) >= {BATCH}:", "    fold_()"]
        value = "outcome_of_(success_, result_, None, None, None, None, None, 1, None)" if self.outcome else "result_"
        return [*lines, f"return {value}"]

    def give_slot(self) -> list[str]:
        if self.parts.bulkhead is None:
            return []
        return [
            "if slots_.debt:",
            "    give_slot_()",
            "else:",
            "    free_slot_(None)",
            "    if waiting_:",
            "        hand_over_()",
        ]

    def divert(self) -> list[str]:
        outcome = f"{self.wait}divert_({self.handed})"
        return [f"return {outcome}" if self.outcome else f"return delivered_({outcome})"]

    def go_on(self) -> list[str]:
        """Make further attempts while one follows the other at once; leave, or say what came of the call."""
        started = "started_" if self.timed else "None"
        permit = "permit_" if self.parts.breaker is not None else "0"
        link = "link_" if self.publishes else "None"
        weigh = f"step_ = weigh_(trail_, failure_, result_, {started}, begun_, permit_, {link})"
        attempts = [
            f"trail_, result_, step_, begun_, permit_ = [], None, None, {started}, {permit}",
            weigh,
            "while type_(step_) is number_:",
            "    permit_, begun_, failure_ = step_, monotonic_(), None",
            "    try:",
            *_indent(_indent(self.run())),
            "    except anything_ as error_:",
            "        failure_, result_ = error_, None",
            *_indent(self.refuse_lazy()),
            f"    {weigh}",
        ]
        scoped = ["try:", *_indent(attempts), "finally:", *_indent(self.close_scope())] if self.publishes else attempts
        left = f"{self.wait}carry_on_({self.fn}, ({self.signature.positional}), {{{self.signature.keywords}}}, step_)"
        value = ["if step_.kind.has_value:", "    return step_.value", "failure_ = failed_(step_)", "raise failure_"]
        return [
            "try:",
            *_indent(scoped),
            "    if type_(step_) is replay_:",
            f"        step_ = {left}",
            *_indent(["return step_"] if self.outcome else value),
            "finally:",
            "    failure_ = trail_ = step_ = None",  # this frame is in their tracebacks
        ]

    def resume(self, failure: str, result: str = "None") -> list[str]:
        """Go on from a first attempt, and raise what comes of it from here: every frame in between would cost."""
        facts = (
            self.fn, f"({self.signature.positional})", f"{{{self.signature.keywords}}}",
            "started_" if self.timed else "None", "permit_" if self.parts.breaker is not None else "0",
            "link_" if self.publishes else "None", failure, "entry_, task_" if self.on_wheel else "None, None", result,
            *([self.begun] if self.waits and self.timed else []),
        )  # fmt: skip
        going_on = f"{self.wait}resume_({', '.join(facts)})"
        if failure == "None":
            return [f"return {going_on}" if self.outcome else f"return delivered_({going_on})"]
        if self.outcome:
            return ["try:", f"    return {going_on}", "finally:", "    del failure_"]
        return [
            "try:",
            f"    outcome_ = {going_on}",
            "    if outcome_.kind.has_value:",
            "        return outcome_.value",
            "    failure_ = failed_(outcome_)",
            "    raise failure_",
            "finally:",
            "    failure_ = outcome_ = None",  # this frame is in its traceback
        ]


def _names(plan: Plan, parts: Parts | None, fn: Callable[..., Any] | None, is_async: bool) -> dict[str, Any]:
    """What the lines refer to."""
    from holdfast.guard.plan import delivered, failed

    setting, meter = plan.setting, plan.setting.meter
    names: dict[str, Any] = {
        "plan_": plan, "fn_": fn, "monotonic_": setting.clock.monotonic,
        "divert_": plan.divert(fn, is_async), "resume_": plan.resume(is_async), "delivered_": delivered,
        "failed_": failed, "outcome_of_": outcome_of, "success_": OutcomeKind.SUCCESS, "rejected_": Outcome.rejected,
        "current_": CURRENT.get, "publish_": CURRENT.set, "reset_": CURRENT.reset, "coroutine_": CoroutineType,
        "generator_": GeneratorType, "async_generator_": AsyncGeneratorType, "refuse_lazy_": refuse_lazy,
        "type_": type, "len_": len, "no_slot_": IndexError,
        "number_": int, "replay_": Replay, "anything_": BaseException, "wrong_": ValueError,
        "ended_scope_": Scope(setting.name, setting.clock),
    }  # fmt: skip
    if parts is None:
        return names
    if plan.short_way is not None:
        names |= {"weigh_": plan.short_way.weigh, "carry_on_": plan.carry_on(is_async)}
    if meter is not None:
        names |= {"pending_": meter.pending, "note_": meter.pending.append, "fold_": meter.fold}
        names |= {"refused_": meter.refused, "note_refusal_": meter.refused.append}
    if parts.breaker is not None and (circuit := parts.breaker.circuit) is not None:
        names |= {"circuit_": circuit, "succeed_": circuit.succeed}
        names |= {"circuit_open_": CircuitOpen, "name_": circuit.name, "refusal_": (circuit.name, CircuitOpen.reason)}
    if parts.bulkhead is not None:
        slots = parts.bulkhead.slots
        names |= {
            "slots_": slots, "waiting_": slots.waiting, "take_slot_": slots.free.pop, "free_slot_": slots.free.append,
            "give_slot_": slots.give, "hand_over_": slots.hand_over, "queue_up_": parts.bulkhead.queue_up,
            "driver_": setting.driver(is_async),
        }  # fmt: skip
    if parts.rate_limit is not None:
        bucket = parts.rate_limit.bucket
        names |= {"hold_": bucket.acquire, "take_token_": bucket.bucket.take, "let_go_": bucket.release}
    if parts.retry is not None and parts.retry.budget is not None:
        names |= {"begin_": parts.retry.budget.begin_execution, "end_": parts.retry.budget.end_execution}
    if is_async and parts.limit is not None:
        import asyncio

        from holdfast.guard.wheel import Wheels

        names |= {"wheels_": Wheels(setting.clock), "running_loop_": asyncio.get_running_loop}
        names |= {"current_task_": asyncio.current_task}
    return names


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
