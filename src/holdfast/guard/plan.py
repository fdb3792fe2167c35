"""A guard at one moment: policies turned into strategies, chained, and fused where that is possible.

A plan never changes. Reloading a guard makes a new plan that takes over the live state; calls that run stay on theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Literal, Protocol, TypeVar

from holdfast.core.clock import Clock
from holdfast.core.context import Link
from holdfast.core.ids import new_call_id
from holdfast.core.outcome import Outcome
from holdfast.errors import OutcomeError, PolicyError
from holdfast.guard.bulkhead import Bulkhead, BulkheadStrategy
from holdfast.guard.call import Call, Replay, ResilienceStrategy, Setting
from holdfast.guard.circuit import CircuitBreakerStrategy, LiveCircuit
from holdfast.guard.driver import drive
from holdfast.guard.fallback import Fallback, FallbackStrategy
from holdfast.guard.fuse import Parts, fusable, fuse
from holdfast.guard.perform import bypass, interruption, link_chain, perform, tell_interruption
from holdfast.guard.rate_limit import RateLimit, RateLimiterStrategy
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.short_way import ShortWay, annotate, story_of
from holdfast.guard.timeout import Timeout, TimeoutStrategy
from holdfast.machine.adaptive import AdaptiveLimit
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.throttle import Throttle
from holdfast.telemetry.events import CallInterrupted

CANONICAL_ORDER: Final = (
    "fallback", "cache", "timeout", "rate_limit", "throttle", "adaptive", "bulkhead", "custom", "retry", "failover",
    "hedge", "breaker", "attempt_timeout", "chaos",
)  # fmt: skip
"""Outermost first."""


CHANGING: Final = threading.RLock()
"""Held while a guard changes from one plan to another, never while a call runs."""

S = TypeVar("S")


class Owner(Protocol):
    """A guard, as its plans see it."""

    plan: Plan

    def plan_in_context(self) -> Plan:
        """The plan for a call made here and now: overridden by the surrounding code, or the guard's own."""
        ...


def strategies_of(policy: Any, setting: Setting) -> list[Any]:
    """The strategies that a policy stands for.

    A policy of another's making says so itself: its `strategies(setting)` gives them. Raises PolicyError for something
    that is no policy.
    """
    name = setting.name
    match policy:
        case Retry():
            return [RetryStrategy(policy=policy)]
        case Breaker():
            breaker = CircuitBreakerStrategy(policy.name or name, policy=policy)
            breaker.bind(setting.clock, setting.hub)
            return [breaker]
        case Timeout():
            made = []
            if policy.total is not None:
                made.append(TimeoutStrategy(policy.total, kind="timeout", abandon=policy.abandon))
            if policy.attempt is not None:
                made.append(TimeoutStrategy(policy.attempt, kind="attempt_timeout", abandon=policy.abandon))
            return made
        case Bulkhead():
            return [BulkheadStrategy(policy.name or name, policy.limit, policy.queue, max_wait=policy.max_wait)]
        case RateLimit():
            return [RateLimiterStrategy(policy.name or name, policy=policy)]
        case Fallback():
            return [FallbackStrategy(policy=policy)]
        case Throttle():
            from holdfast.guard import throttle

            return list(throttle.build(policy, setting))
        case AdaptiveLimit():
            from holdfast.guard import adaptive

            return list(adaptive.build(policy, setting))
    if hasattr(policy, "strategies"):
        return list(policy.strategies(setting))
    if isinstance(policy, ResilienceStrategy):
        if isinstance(policy, CircuitBreakerStrategy):
            policy.bind(setting.clock, setting.hub)
        return [policy]
    raise PolicyError(
        f"guard {name!r} got {policy!r}, which is no policy; use Retry(...), Breaker(...), Timeout(...) or an object "
        "with execute(nxt, ctx)"
    )


def kind_of(strategy: Any) -> str:
    """The strategy's place in the order; a user's own is "custom" wherever it calls itself nothing known."""
    kind = getattr(strategy, "kind", "custom")
    return kind if kind in CANONICAL_ORDER else "custom"


def arrange(policies: Iterable[Any], setting: Setting, order: tuple[str, ...] | None) -> tuple[Any, ...]:
    """The strategies of all policies, outermost first.

    Raises PolicyError for two retry layers, and for an order that does not name what is there.
    """
    made = []
    for policy in policies:
        for strategy in strategies_of(policy, setting):
            if hasattr(strategy, "adopt") and strategy is not policy:
                strategy.policy_id = getattr(policy, "id", None)
            made.append(strategy)
    kinds = [kind_of(strategy) for strategy in made]
    if kinds.count("retry") > 1:
        raise PolicyError(f"guard {setting.name!r} has two Retry policies; attempts would multiply, keep one")
    for kind in ("timeout", "attempt_timeout", "breaker", "cache", "hedge", "failover"):
        if kinds.count(kind) > 1:
            raise PolicyError(f"guard {setting.name!r} has {kinds.count(kind)} policies of kind {kind!r}; keep one")
    rank = _ranks(setting.name, kinds, order)
    return tuple(made[i] for i in sorted(range(len(made)), key=lambda i: (rank[kinds[i]], i)))


def _ranks(name: str, kinds: list[str], order: Any) -> dict[str, int]:
    if order is None:
        order = CANONICAL_ORDER
    elif isinstance(order, str) or len(set(order)) < len(order):
        raise PolicyError(f"guard {name!r}: order= must be a tuple of different kinds, outermost first, got {order!r}")
    if unknown := sorted(set(order) - set(CANONICAL_ORDER)):
        raise PolicyError(f"guard {name!r}: order= names {unknown}; known are {', '.join(CANONICAL_ORDER)}")
    ranks = {kind: rank for rank, kind in enumerate(order)}
    for kind in kinds:
        if kind not in ranks:
            raise PolicyError(f"guard {name!r}: order= must name {kind!r} as well, got {order!r}")
    return ranks


class Plan:
    """See the module's docstring. `replaced` tells that a newer plan has taken over.

    `shut` is what the fused path looks at: true when replaced, or when somebody listens to every call.
    """

    __slots__ = (
        "__weakref__", "chain", "circuit", "context", "metrics", "moved", "owner", "parts", "policies", "publishes",
        "replaced", "retry_domain", "setting", "short_way", "shut", "strategies",
    )  # fmt: skip

    def __init__(
        self,
        owner: Owner,
        setting: Setting,
        policies: tuple[Any, ...],
        strategies: tuple[Any, ...],
        *,
        context: bool | Literal["always"] = True,
        fused: bool = True,
    ) -> None:
        self.owner = owner
        self.setting = setting
        self.policies = policies
        self.strategies = strategies
        self.chain = link_chain(strategies)
        self.context = context
        self.metrics = setting.meter is not None
        self.shut = self.replaced = False
        retry = self.first(RetryStrategy)
        self.retry_domain = None if retry is None or retry.policy.attempts == 1 else retry.policy.domain
        self.circuit = _circuit_within_retry(strategies)
        self.parts: Parts | None = fusable(self) if fused else None
        self.short_way = ShortWay.of(self, self.parts)
        # What only admits has nothing to tell the code inside: no tighter deadline, no retries to defer to.
        bounds = self.parts is not None and (self.parts.limit is not None or self.retry_domain is not None)
        # And who is kept must be known to the guards inside, so that one failure is kept once.
        self.publishes = context == "always" or (context is True and (bounds or setting.keeper is not None))
        self.moved: dict[Any, Callable[..., Any]] = {}
        setting.hub.watch(self)

    def told(self, loud: bool) -> None:
        """The hub's word on whether every call must be told."""
        self.shut = loud or self.replaced

    def retire(self, replaced: bool = True) -> None:
        """A newer plan has taken over (or has given way again)."""
        self.replaced = replaced
        self.setting.hub.watch(self)

    @property
    def operation_key(self) -> str:
        return self.setting.name

    @property
    def clock(self) -> Clock:
        return self.setting.clock

    def first(self, kind: type[S]) -> S | None:
        """The plan's strategy of that class, if it has one."""
        return next((strategy for strategy in self.strategies if isinstance(strategy, kind)), None)

    def entry(self, fn: Callable[..., Any] | None, is_async: bool, outcome: bool) -> Callable[..., Any]:
        """The function to call instead of `fn`."""
        return fuse(self, self.parts, fn, is_async=is_async, outcome=outcome)

    def divert(self, fn: Callable[..., Any] | None, is_async: bool) -> Callable[..., Any]:
        """A call that has not begun: to the newer plan if there is one, else through all the strategies."""
        finish = FINISH[is_async]

        def divert(*args: Any, **kwargs: Any) -> Any:
            if self.replaced:
                return self.owner.plan.entry_for_moved(fn, is_async)(*args, **kwargs)
            called, rest = (fn, args) if fn is not None else (args[0], args[1:])
            plan = self.owner.plan_in_context()
            return finish(plan.perform(Call(plan.setting, is_async, called, rest, kwargs)))

        return divert

    def entry_for_moved(self, fn: Callable[..., Any] | None, is_async: bool) -> Callable[..., Any]:
        """This plan's entry for a function that was decorated under an older one."""
        key = (id(fn), is_async)  # the entry keeps fn alive, and not every callable can be hashed
        entry = self.moved.get(key)
        if entry is None:
            entry = self.moved[key] = self.entry(fn, is_async, True)
        return entry

    def perform(self, call: Call) -> Coroutine[Any, Any, Outcome[Any]]:
        """Run a call through the strategies, or past them while the hub is switched off."""
        call.circuit = self.circuit
        # A first attempt that was made under the strategies holds what they must give back.
        if self.setting.hub.off and call.replay is None:
            return bypass(call)
        spans = self.setting.hub.call_spans
        if spans is not None:
            from holdfast.guard.traced import traced  # few programs trace every call

            return traced(call, self.chain, spans)
        return perform(call, self.chain)

    def resume(self, is_async: bool) -> Callable[..., Any]:
        """A call whose first attempt was made by the fused path and did not simply succeed."""
        finish = FINISH[is_async]
        setting = self.setting
        limits = [] if self.parts is None else self.parts.limits

        def resume(
            fn: Callable[..., Any],
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            started: float | None,
            permit: int,
            link: Link | None,
            failure: BaseException | None,
            entry: Any,
            task: Any,
            value: Any = None,
            admitted: float | None = None,
        ) -> Any:
            ended = setting.clock.monotonic()
            begun = ended if started is None else started
            cut, cuts = False, 0
            if entry is not None:
                from asyncio import CancelledError

                from holdfast.guard.wheel import FIRED, absorbed

                cuts = entry[FIRED]
                ours = absorbed(entry, task)
                cut = ours and type(failure).__name__ == "CancelledError"
                if failure is None and cuts and not ours:
                    self._abort(CancelledError(), ended - begun)
                    raise CancelledError  # somebody else cancelled as well, and the function swallowed it
            if failure is not None and not cut and not isinstance(failure, Exception):
                self._abort(failure, ended - begun)
                try:
                    raise failure
                finally:
                    del failure  # this frame is in its traceback: no cycle
            replay = Replay(begun, ended, permit, link, failure, value, cut)
            if admitted is not None:
                replay.admitted = admitted
            if cut:
                binding = limits[cuts - 1]
                replay.limit, replay.which = binding.timeout_s, binding.which
            del failure  # this frame will be in its traceback
            work = self.perform(Call(setting, is_async, fn, args, kwargs, replay=replay))
            del replay
            return finish(work)

        return resume

    def carry_on(self, is_async: bool) -> Callable[..., Any]:
        """A call that leaves the short way: from its last attempt on, through all the strategies."""
        finish = FINISH[is_async]
        setting = self.setting

        def carry_on(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], replay: Replay) -> Any:
            call, failure = Call(setting, is_async, fn, args, kwargs, replay=replay), replay.error
            try:
                if failure is not None and not isinstance(failure, Exception):
                    tell_interruption(call, failure)
                    raise failure
                work = self.perform(call)
            finally:
                del call, failure, replay  # this frame will be in its traceback
            return finish(work)

        return carry_on

    def _abort(self, error: BaseException, duration: float) -> None:
        """A first attempt that was interrupted: nothing is counted, the slot comes back."""
        bulkhead = self.first(BulkheadStrategy)
        if bulkhead is not None:
            bulkhead.slots.give()
        if self.setting.hub.loud:
            reason = interruption(error, self.setting)
            self.setting.hub.emit_loud(CallInterrupted(self.setting.name, new_call_id(), reason, duration))


def _circuit_within_retry(strategies: tuple[Any, ...]) -> LiveCircuit | None:
    """The breaker that every further attempt meets, if there is one."""
    retried = False
    for strategy in strategies:
        retried = retried or isinstance(strategy, RetryStrategy)
        if retried and isinstance(strategy, CircuitBreakerStrategy):
            return strategy.circuit
    return None


def failed(outcome: Outcome[Any]) -> BaseException:
    """The exception to raise for an outcome without a value: the original one, with its story as a note."""
    error, attempts = outcome.error, outcome.attempts
    if error is None:
        return OutcomeError(outcome.kind, outcome.detail)
    if attempts > 1:
        names = [a.kind if a.error is None else type(a.error).__name__ for a in outcome.metadata.get("trail", ())]
        annotate(error, story_of(attempts, names, outcome.metadata.get("stopped_by")))
    return error.with_traceback(outcome._traceback)


def delivered(outcome: Outcome[Any]) -> Any:
    """What a caller who asked for a value gets: the value, or the exception."""
    if outcome.kind.has_value:
        return outcome.value
    error = failed(outcome)
    try:
        raise error
    finally:
        del error, outcome  # this frame is in its traceback: no cycle


FINISH: Final[dict[bool, Callable[[Coroutine[Any, Any, Outcome[Any]]], Any]]] = {
    False: drive,
    True: lambda work: work,
}
"""How a call on the general path is run to its end, by whether the caller is async."""
