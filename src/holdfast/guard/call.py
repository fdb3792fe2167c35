"""One guarded call on the general path: the seam that every strategy, guard and pipeline runs through.

`perform` checks the deadline, publishes the context, walks the chain of strategies, and tells telemetry exactly once
how it ended. `invoke` is the chain's inner end: it runs the function and classifies what came of it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, runtime_checkable

from holdfast.core.classify import Classifier, ResultClassifier, default_classify, retry_after_hint
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.context import (
    CONTEXT,
    CURRENT,
    Link,
    ResilienceContext,
    TypedKey,
    ambient_deadline,
    context_of,
    draw_id,
    new_link,
)
from holdfast.core.deadline import Deadline
from holdfast.core.outcome import Outcome, OutcomeKind, Verdict, describe_error, outcome_of
from holdfast.errors import DeadlineExpired, GuardRejected, GuardTimeout
from holdfast.guard.driver import Driver
from holdfast.telemetry.events import AttemptCompleted, CallCompleted, CallInterrupted, GuardEvent, LoadShed, TimedOut
from holdfast.telemetry.hub import Hub, Meter

if TYPE_CHECKING:
    from holdfast.machine.circuit import Circuit

Next = Callable[..., Coroutine[Any, Any, Outcome[Any]]]
"""What a strategy calls to go on: `await nxt(ctx)`, or `await nxt()` for the same context."""

ENDPOINT: Final = TypedKey[object]("holdfast.endpoint")
IDEMPOTENT: Final = TypedKey[bool]("holdfast.idempotent")


@runtime_checkable
class ResilienceStrategy(Protocol):
    """The protocol of every strategy, ours or a user's.

    `execute` returns an Outcome, never raises for a decision of its own, and may return without calling `nxt`.
    """

    def execute(self, nxt: Next, ctx: ResilienceContext) -> Awaitable[Outcome[Any]]: ...


class Setting:
    """What all calls of one guard or pipeline have in common."""

    __slots__ = (
        "async_driver", "classify", "clock", "context", "hub", "judge", "meter", "name", "passthrough", "rng",
        "sync_driver",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        hub: Hub,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: Callable[[], float],
        classify: Classifier | None = None,
        judge: ResultClassifier | None = None,
        passthrough: tuple[type[BaseException], ...] = (),
        metrics: bool = True,
        context: bool = True,
    ) -> None:
        from holdfast.guard.driver import SyncDriver

        self.name = name
        self.hub = hub
        self.clock = clock
        self.rng = rng
        self.classify = default_classify if classify is None else classify
        self.judge = judge
        self.passthrough = passthrough
        self.context = context
        self.meter: Meter | None = hub.meter(name) if metrics else None
        self.sync_driver: Driver = SyncDriver(clock)
        self.async_driver: Driver | None = None

    def driver(self, is_async: bool) -> Driver:
        if not is_async:
            return self.sync_driver
        if self.async_driver is None:
            from holdfast.guard.adriver import AsyncDriver

            self.async_driver = AsyncDriver(self.clock)
        return self.async_driver


TimeLimit = Literal["total", "attempt", "deadline"]
LIMITS: Final[dict[TimeLimit, str]] = {
    "total": "the total time",
    "attempt": "the attempt's time",
    "deadline": "the caller's deadline",
}


class Attempt:
    """One run of the function: what `Outcome.metadata["trail"]` lists and `explain` reads.

    `wait` is the time queued for admission, `delay` the backoff before it, `service` the run itself.
    """

    __slots__ = ("delay", "endpoint", "error", "kind", "number", "service", "wait")

    def __init__(
        self,
        number: int,
        kind: OutcomeKind,
        wait: float,
        delay: float,
        service: float,
        error: BaseException | None,
        endpoint: Any,
    ) -> None:
        self.number = number
        self.kind = kind
        self.wait = wait
        self.delay = delay
        self.service = service
        self.error = error
        self.endpoint = endpoint

    def __repr__(self) -> str:
        what = "" if self.error is None else f" {describe_error(self.error)}"
        after = f"after {self.delay:.3f} s, took {self.service:.3f} s"
        return f"<attempt {self.number + 1} {self.kind.value} {after}{what}>"


class Replay:
    """A first attempt that the fused path has already made, to be carried on from here.

    The rate limiter's token and the bulkhead's slot are taken; `permit` is the breaker's. `limit` and `which` name the
    time limit that cut it, `admitted` is when it got its slot.
    """

    __slots__ = ("admitted", "ended", "error", "limit", "link", "permit", "started", "timed_out", "value", "which")

    def __init__(
        self,
        started: float,
        ended: float,
        permit: int,
        link: Link | None,
        error: BaseException | None,
        value: Any = None,
        timed_out: bool = False,
    ) -> None:
        self.started = self.admitted = started
        self.ended = ended
        self.permit = permit
        self.link = link
        self.error = error
        self.value = value
        self.timed_out = timed_out
        self.limit: float | None = None
        self.which: TimeLimit = "total"


class Call:
    """The running state of one call: who it is, how it waits, what its attempts came to."""

    __slots__ = (
        "_call_id", "args", "circuit", "cut", "deadline", "delay", "driver", "fn", "kwargs", "operation_key",
        "properties", "replay", "reported", "retry_domain", "setting", "started", "trail", "wait",
    )  # fmt: skip

    def __init__(
        self,
        setting: Setting,
        is_async: bool,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        operation_key: str | None = None,
        deadline: Deadline | None = None,
        properties: dict[TypedKey[Any], Any] | None = None,
        replay: Replay | None = None,
    ) -> None:
        self.setting = setting
        self.driver = setting.driver(is_async)
        self.fn = fn
        self.args = args
        self.kwargs = {} if kwargs is None else kwargs
        self.operation_key = setting.name if operation_key is None else operation_key
        self.deadline = deadline
        self.properties = properties
        self.replay = replay
        self.retry_domain: str | None = None
        self.circuit: Circuit | None = None  # the breaker that the next attempt will meet, if the plan has one
        self.cut = False
        self.trail: list[Attempt] = []
        self.reported = 0  # how many of them the listeners know
        self.wait = 0.0  # time queued for admission before the attempt to come
        self.delay = 0.0  # backoff before it
        self.started = setting.clock.monotonic() if replay is None else replay.started
        # The context refers to the call, not the call to the context: no cycle to collect.
        self._call_id: str | None = None

    @property
    def call_id(self) -> str:
        return draw_id(self) if self._call_id is None else self._call_id

    @property
    def clock(self) -> Clock:
        return self.setting.clock

    @property
    def last_error(self) -> BaseException | None:
        """The error of the last attempt that failed by itself."""
        for attempt in reversed(self.trail):
            if attempt.error is not None:
                return attempt.error
        return None

    def emit(self, event: GuardEvent) -> None:
        self.setting.hub.emit(event)

    def ask(self, callback: Callable[..., Any], *args: Any) -> Any:
        """A user's callback; what it raises is logged and never reaches the call."""
        try:
            return callback(*args)
        except Exception:
            import logging  # not needed until something is wrong, and costly to import

            logging.getLogger("holdfast").warning("%s: callback %r failed", self.operation_key, callback, exc_info=True)
            return None

    def refuse(self, error: GuardRejected, name: str, **metadata: Any) -> Outcome[Any]:
        """The REJECTED outcome of a strategy that sheds this call; the last real error stays its cause."""
        hub = self.setting.hub
        if self.setting.meter is not None:
            self.setting.meter.shed(name, error.reason)
        if hub.loud:
            hub.emit_loud(LoadShed(self.operation_key, self.call_id, name, error.reason, error.retry_after))
        if self.trail:
            error.__cause__ = self.last_error
        return Outcome.rejected(error, len(self.trail), **self.notes(), **metadata)

    def time_out(
        self, which: TimeLimit, limit: float | None, how: str, cause: BaseException | None = None
    ) -> Outcome[Any]:
        """The TIMEOUT outcome of a limit of ours, with the last real error as its cause."""
        hub = self.setting.hub
        if hub.loud:
            hub.emit_loud(TimedOut(self.operation_key, self.call_id, limit, which))
        detail = f"{LIMITS[which]} {how}"
        error = GuardTimeout(self.setting.name, limit, detail)
        error.__cause__ = self.last_error if cause is None else cause
        return Outcome(OutcomeKind.TIMEOUT, None, error, None, self.notes(), attempts=len(self.trail))

    def notes(self) -> dict[str, Any]:
        return {"trail": self.trail} if self.trail else {}

    def record(self, kind: OutcomeKind, service: float, error: BaseException | None, endpoint: Any) -> None:
        trail = self.trail
        trail.append(Attempt(len(trail), kind, self.wait, self.delay, service, error, endpoint))
        self.wait = self.delay = 0.0

    def report_attempts(self, last: bool) -> None:
        """Tell the listeners of attempts they have not heard of; `last` means that no other one follows."""
        if not self.setting.hub.loud:
            return
        untold, self.reported = self.trail[self.reported :], len(self.trail)
        for attempt in untold:
            error = None if attempt.error is None else type(attempt.error).__name__
            event = AttemptCompleted(
                self.operation_key,
                self.call_id,
                attempt.number,
                attempt.kind,
                attempt.wait,
                attempt.service,
                None if attempt.endpoint is None else str(attempt.endpoint),
                self.setting.name,
                handled=attempt.kind.is_failure,
                last=last and attempt is self.trail[-1],
                delay=attempt.delay,
                error_type=error,
                reason=attempt.error.reason if isinstance(attempt.error, GuardRejected) else None,
            )
            self.setting.hub.emit_loud(event)


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
        _completed(call, ctx, outcome)
        return outcome
    token = CURRENT.set(
        [call, None, None, ctx] if parent is None and deadline.at == math.inf else new_link(call, parent, ctx)
    )
    try:
        if deadline.at == math.inf:
            outcome = await chain(ctx)
        else:
            outcome = await within(call, chain, ctx, None, "deadline")
    except BaseException as error:
        _interrupted(call, error)
        raise
    finally:
        CURRENT.reset(token)
    _completed(call, ctx, outcome)
    return outcome


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
    call.cut = False
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


def _interrupted(call: Call, error: BaseException) -> None:
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


async def invoke(ctx: ResilienceContext) -> Outcome[Any]:
    """Run the function itself and say what came of it. The inner end of every chain."""
    call: Call = ctx.call
    setting = call.setting
    monotonic = setting.clock.monotonic
    replay = call.replay
    if replay is not None:
        call.replay = None
        return _replayed(call, ctx, replay)
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
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ is not None else None
        try:
            return _failed(call, ctx, error, monotonic() - started)
        finally:
            del call, ctx
    except BaseException:
        if call.cut:
            call.record(OutcomeKind.TIMEOUT, monotonic() - started, None, ctx.get(ENDPOINT))
        raise
    if type(value) is CoroutineType:
        refuse_coroutine(call.fn, value)
    return _returned(call, ctx, value, monotonic() - started)


def refuse_coroutine(fn: Callable[..., Any], result: Coroutine[Any, Any, Any]) -> NoReturn:
    """Raises TypeError: an async function came to a sync call."""
    result.close()
    raise TypeError(f"{getattr(fn, '__qualname__', fn)} is async; use acall() or arun() for it")


def _replayed(call: Call, ctx: ResilienceContext, replay: Replay) -> Outcome[Any]:
    service = replay.ended - replay.admitted
    call.wait = replay.admitted - replay.started
    if replay.timed_out:
        call.record(OutcomeKind.TIMEOUT, service, None, None)
        return call.time_out(replay.which, replay.limit, "ran out")
    if replay.error is not None:
        if isinstance(replay.error, call.setting.passthrough):
            raise replay.error
        return _failed(call, ctx, replay.error, service)
    return _returned(call, ctx, replay.value, service)


def _returned(call: Call, ctx: ResilienceContext, value: Any, service: float) -> Outcome[Any]:
    judge = call.setting.judge
    verdict: OutcomeKind | Verdict | None = None
    if judge is not None:
        try:
            verdict = judge(value)
        except Exception as error:  # a classifier is user code; its failure is the call's failure
            return _note(call, ctx, OutcomeKind.TERMINAL_FAILURE, service, error=error)
    if verdict is None or verdict is OutcomeKind.SUCCESS:
        call.record(OutcomeKind.SUCCESS, service, None, ctx.get(ENDPOINT))
        made = len(call.trail)
        notes = call.notes() if made > 1 else None
        return outcome_of(OutcomeKind.SUCCESS, value, None, None, notes, None, None, made, None)
    return _note(call, ctx, verdict, service, value=value)


def _failed(call: Call, ctx: ResilienceContext, error: BaseException, service: float) -> Outcome[Any]:
    setting, trail = call.setting, call.trail
    try:
        verdict = setting.classify(error)
    except Exception as fault:  # as above
        fault.__context__ = error
        error, verdict = fault, OutcomeKind.TERMINAL_FAILURE
    if type(verdict) is not OutcomeKind or verdict is OutcomeKind.REJECTED:
        return _note(call, ctx, verdict, service, error=error)
    made = len(trail)
    trail.append(Attempt(made, verdict, call.wait, call.delay, service, error, ctx.get(ENDPOINT)))
    call.wait = call.delay = 0.0
    hint = retry_after_hint(error, setting.clock.wall)
    return outcome_of(verdict, None, error, None, {"trail": trail}, None, hint, made + 1, None)


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
        error, kind = fault, OutcomeKind.TERMINAL_FAILURE
    if retry_after is None:
        retry_after = retry_after_hint(value if error is None else error, call.setting.clock.wall)
    trail = call.trail
    call.record(kind, service, error, ctx.get(ENDPOINT))
    notes: dict[str, Any] = {"trail": trail}
    reason = None
    if error is None:
        if kind.has_value:
            return Outcome(kind, value, None, None, notes, None, retry_after, len(trail), evidence)
        notes["result"] = value
        if kind is OutcomeKind.TIMEOUT:
            error = GuardTimeout(call.setting.name, None, "the result says that it timed out")
    elif kind is OutcomeKind.REJECTED:
        reason = getattr(error, "reason", None)
    return Outcome(kind, None, error, None, notes, reason, retry_after, len(trail), evidence)


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
