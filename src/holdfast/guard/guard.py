"""The guard: a named set of policies with live state, for def and async def alike."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from inspect import iscoroutinefunction
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload
from weakref import WeakSet

from holdfast.core.classify import Classifier, ResultClassifier
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.context import CURRENT, LIMIT, PARENT, SOURCE, ResilienceContext, ambient_deadline, context_of
from holdfast.core.outcome import Outcome
from holdfast.errors import PolicyError
from holdfast.guard.call import Keeper, Setting
from holdfast.guard.circuit import CircuitBreakerStrategy, LiveCircuit
from holdfast.guard.invoke import is_generator_function
from holdfast.guard.plan import CHANGING, Plan, arrange, kind_of, strategies_of
from holdfast.telemetry.events import Reloaded, ReloadFailed
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from holdfast.guard.block import Attempts
    from holdfast.guard.describe import Description
    from holdfast.guard.explain import Explanation
    from holdfast.guard.scope import Scope

P = ParamSpec("P")
T = TypeVar("T")


class Override:
    """The source of a link under which a guard uses another plan."""

    __slots__ = ("clock", "guard", "operation_key", "plan")

    retry_domain = None

    def __init__(self, guard: Guard, plan: Plan, operation_key: str) -> None:
        self.guard = guard
        self.plan = plan
        self.clock = plan.clock
        self.operation_key = operation_key


class Guard:
    """Guard calls with policies: `Guard("payments", Retry(), Breaker(), Timeout(total=10))`.

    Use it as a decorator on `def` or `async def`, or through `call`, `acall` (value or exception) and `run`,
    `arun` (Outcome). One guard serves any number of threads and event loops. The policies apply in the canonical order
    whatever their order here; `order` names another one. With `metrics=False` calls are not counted.

    A guard that bounds or repeats the call (Timeout, Retry) publishes a context for the code inside; one that only
    admits (Breaker, Bulkhead, RateLimit) is transparent, unless `context="always"`. Ambient deadlines and overrides
    are heeded either way; with `context=False` they are not. A `keeper` is told of every call that did not simply
    succeed; `hold.guard(..., dead_letter=True)` gives one that keeps them.

    Raises PolicyError for policies that cannot work together.
    """

    def __init__(
        self,
        name: str,
        *policies: Any,
        classify: Classifier | None = None,
        result_classifier: ResultClassifier | None = None,
        passthrough: type[BaseException] | tuple[type[BaseException], ...] = (),
        order: tuple[str, ...] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: Callable[[], float] = random.random,
        telemetry: Hub | None = None,
        metrics: bool = True,
        context: bool | Literal["always"] = True,
        fused: bool = True,
        keeper: Keeper | None = None,
    ) -> None:
        if not name or not isinstance(name, str):
            raise PolicyError(f"a guard needs a name, got {name!r}; it is how metrics and errors speak of it")
        for option, function in (("classify", classify), ("result_classifier", result_classifier)):
            if function is not None and not callable(function):
                raise PolicyError(
                    f"guard {name!r}: {option} must be a function, got {function!r}; leave it out for ours"
                )
        if context not in (True, False, "always"):
            raise PolicyError(f"guard {name!r}: context must be True, False or 'always', got {context!r}")
        self.name = name
        self._order = order
        self._context: bool | Literal["always"] = context
        self._fused = fused
        self._functions: WeakSet[Any] = WeakSet()
        self._setting = Setting(
            name,
            default_hub() if telemetry is None else telemetry,
            clock=clock,
            rng=rng,
            classify=classify,
            judge=result_classifier,
            passthrough=_exception_types(name, passthrough),
            metrics=metrics,
            context=context is not False,
            keeper=keeper,
        )
        self._use(policies, arrange(policies, self._setting, order))

    def _use(self, policies: tuple[Any, ...], strategies: tuple[Any, ...]) -> None:
        self.plan = Plan(self, self._setting, policies, strategies, context=self._context, fused=self._fused)
        self._entries: dict[str, Callable[..., Any]] = {}

    def _entry(self, verb: str) -> Callable[..., Any]:
        """Make the fused caller that takes the function as an argument, at the first use of `call`, `arun`, …"""
        entry = self._entries[verb] = self.plan.entry(None, verb.startswith("a"), verb.endswith("run"))
        return entry

    @property
    def policies(self) -> tuple[Any, ...]:
        return self.plan.policies

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions that it decorates and that are still there, by name; `__wrapped__` is what each was."""
        return tuple(sorted(self._functions, key=lambda fn: str(getattr(fn, "__qualname__", ""))))

    @property
    def telemetry(self) -> Hub:
        return self._setting.hub

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: same signature, same types, guarded."""
        return self._decorated(fn, outcome=False)

    @overload
    def outcome(  # type: ignore[overload-overlap]  # a coroutine function is also a function; the first match is meant
        self, fn: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, Outcome[T]]]: ...
    @overload
    def outcome(self, fn: Callable[P, T]) -> Callable[P, Outcome[T]]: ...
    def outcome(self, fn: Callable[P, Any]) -> Callable[P, Any]:
        """Decorate a function so that it returns an Outcome and raises no failures."""
        return self._decorated(fn, outcome=True)

    def _decorated(self, fn: Callable[P, Any], *, outcome: bool) -> Callable[P, Any]:
        if not callable(fn):
            raise TypeError(f"guard {self.name!r} decorates functions, got {fn!r}; use guard.call(fn, ...) for a call")
        if is_generator_function(fn):
            raise TypeError(
                f"guard {self.name!r}: {getattr(fn, '__qualname__', fn)} is a generator, whose body runs after the "
                "call; guard what it calls instead"
            )
        guarded = self.plan.entry(fn, is_coroutine_function(fn), outcome)
        update_wrapper(guarded, fn)
        guarded.__holdfast_guard__ = self  # type: ignore[attr-defined]
        self._functions.add(guarded)
        return guarded

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn` guarded; returns its value or raises its exception, or our refusal."""
        return (self._entries.get("call") or self._entry("call"))(fn, *args, **kwargs)  # type: ignore[no-any-return]

    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Call `fn` guarded; returns an Outcome and raises no failures."""
        return (self._entries.get("run") or self._entry("run"))(fn, *args, **kwargs)  # type: ignore[no-any-return]

    @overload
    def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...
    @overload
    def acall(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...
    def acall(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Await `fn` guarded. A sync `fn` is called on the event loop; its result is taken as it is."""
        return (self._entries.get("acall") or self._entry("acall"))(fn, *args, **kwargs)  # type: ignore[no-any-return]

    @overload
    def arun(
        self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Outcome[T]]: ...
    @overload
    def arun(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Outcome[T]]: ...
    def arun(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Await `fn` guarded; the result is an Outcome."""
        return (self._entries.get("arun") or self._entry("arun"))(fn, *args, **kwargs)  # type: ignore[no-any-return]

    def attempts(self) -> Attempts:
        """The block form: `for attempt in guard.attempts():` with `with attempt:` inside; `async for` too."""
        from holdfast.guard.block import Attempts

        return Attempts(self)

    def plan_in_context(self) -> Plan:
        """The plan for a call made here and now."""
        link = CURRENT.get()
        if link is None or link[LIMIT] is None:
            return self.plan
        while link is not None:
            source = link[SOURCE]
            if type(source) is Override and source.guard is self:
                return source.plan
            link = link[PARENT]
        return self.plan

    def override(self, *policies: Any) -> Scope[None]:
        """Use other policies in a block, for this context only. Live state (breaker, bulkhead, limiter) stays.

        A block, or a decorator of `def` and `async def`. Raises PolicyError when it begins for policies with shared
        state: those are changed for everybody, by `replace`.
        """
        from holdfast.guard.scope import Scope

        return Scope(lambda: self._overridden(policies))

    @contextmanager
    def _overridden(self, policies: tuple[Any, ...]) -> Iterator[None]:
        fresh = [strategy for policy in policies for strategy in strategies_of(policy, self._setting)]
        for strategy in fresh:
            if hasattr(strategy, "adopt"):
                raise PolicyError(
                    f"guard {self.name!r}: a {strategy.kind} has shared state and cannot be overridden for one block; "
                    "use guard.replace(...)"
                )
        base = self.plan_in_context()
        kinds = {kind_of(strategy) for strategy in fresh}
        kept = [strategy for strategy in base.strategies if kind_of(strategy) not in kinds]
        merged = arrange((*kept, *fresh), self._setting, self._order)
        plan = Plan(self, self._setting, base.policies, merged, context=self._context, fused=False)
        parent = CURRENT.get()
        outer = context_of(parent)
        limit = ambient_deadline(parent, self._setting.clock).at
        key = "" if outer is None else outer.operation_key
        seen = ResilienceContext(key) if outer is None else outer
        # Even an infinite limit makes calls below take the general path, where this plan is looked up.
        token = CURRENT.set([Override(self, plan, key), parent, limit, seen])
        try:
            yield
        finally:
            CURRENT.reset(token)

    def testing(self, attempts: int | None = 1, *, wait: bool = False) -> Scope[None]:
        """Make at most so many attempts (None: as many as ever), without backoff unless `wait`, for a test.

        A block, or a decorator of `def` and `async def`: `with payments.testing():`. It holds for new calls in all
        threads; everything but the retry works as ever, with its live state. Of nested blocks the inner one counts.
        Explicit policies win: an `override` with a Retry applies as it is, and `replace` ends the block's effect.

        Raises PolicyError for a number below 1.
        """
        from holdfast.guard.rehearsal import rehearse

        return rehearse(self, attempts, wait)

    def replace(self, *policies: Any) -> None:
        """Change policies for new calls; running ones finish as they began.

        A policy replaces the one of its kind (or adds one). Breaker, bulkhead and limiter keep their live state.
        Nothing changes if the new set cannot work; raises PolicyError then.
        """
        hub = self._setting.hub
        try:
            with CHANGING:
                merged = (*(old for old in self.plan.policies if not self._replaced(old, policies)), *policies)
                strategies = arrange(merged, self._setting, self._order)
                for strategy in strategies:
                    self._migrate(strategy)
                old = self.plan
                self._use(merged, strategies)
                old.retire()
        except Exception as error:
            hub.emit(ReloadFailed(self.name, "", str(error)))
            raise
        hub.emit(Reloaded(self.name))

    def _replaced(self, old: Any, policies: tuple[Any, ...]) -> bool:
        """Whether one of the new policies takes the place of an old one: same kind, or same type and id."""
        kinds = {kind_of(strategy) for strategy in strategies_of(old, self._setting)} - {"chaos", "custom"}
        for new in policies:
            if type(new) is type(old) and getattr(new, "id", None) == getattr(old, "id", None):
                return True
            if kinds & {kind_of(strategy) for strategy in strategies_of(new, self._setting)}:
                return True
        return False

    def _migrate(self, strategy: Any) -> None:
        for old in self.plan.strategies:
            # A breaker that was handed in is shared with other guards, whose fused paths know its rules.
            shared = type(old) is CircuitBreakerStrategy and any(old is policy for policy in self.plan.policies)
            same = type(old) is type(strategy) and old is not strategy and hasattr(strategy, "adopt") and not shared
            if same and getattr(old, "policy_id", None) == getattr(strategy, "policy_id", None):
                strategy.adopt(old, self._setting.clock.monotonic())

    @property
    def circuit(self) -> LiveCircuit:
        """The guard's circuit: its state, and the operator's commands on it.

        Raises PolicyError when the guard has no Breaker.
        """
        breaker = self.plan.first(CircuitBreakerStrategy)
        if breaker is None or breaker.circuit is None:
            raise PolicyError(f"guard {self.name!r} has no Breaker; add one with guard.replace(Breaker(...))")
        return breaker.circuit

    def describe(self) -> Description:
        """The composition in words: order, worst-case number of calls and time."""
        from holdfast.guard.describe import describe

        return describe(self)

    def explain(self, outcome: Outcome[Any]) -> Explanation:
        """Why a call was refused, retried or stopped, with the numbers."""
        from holdfast.guard.explain import explain

        return explain(self, outcome)

    def source(self, fn: Callable[..., Any]) -> str:
        """The code that was generated for a decorated function."""
        return str(getattr(fn, "__holdfast_source__", ""))

    def __copy__(self) -> Guard:
        raise TypeError(f"guard {self.name!r} has live state and cannot be copied; make another Guard")

    def __deepcopy__(self, memo: object) -> Guard:
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<Guard {self.name}: {', '.join(type(policy).__name__ for policy in self.plan.policies) or 'bare'}>"


def _exception_types(name: str, given: Any) -> tuple[type[BaseException], ...]:
    types = tuple(given) if isinstance(given, tuple | list | set | frozenset) else (given,)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise PolicyError(f"guard {name!r}: passthrough must be exception types, got {given!r}; use (KeyError,)")
        if issubclass(kind, StopIteration | StopAsyncIteration):
            raise PolicyError(
                f"guard {name!r}: passthrough cannot be {kind.__name__}, which no coroutine can raise; "
                "let the function return a sentinel instead"
            )
    return types


def is_coroutine_function(fn: Callable[..., Any]) -> bool:
    """Whether calling `fn` gives a coroutine; sees through partials and objects with an async `__call__`."""
    if iscoroutinefunction(fn):
        return True
    if isinstance(fn, partial):
        return is_coroutine_function(fn.func)
    return not isinstance(fn, (FunctionType, type)) and iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
