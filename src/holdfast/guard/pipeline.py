"""Pipelines: strategies in the order they are declared, with state that outlives the calls."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from inspect import CO_COROUTINE
from types import CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, Unpack, overload

from holdfast.core.classify import Classifier, ResultClassifier
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.context import TypedKey, current_context
from holdfast.core.deadline import Deadline
from holdfast.core.outcome import Outcome
from holdfast.errors import GuardTimeout, PolicyError
from holdfast.guard.bulkhead import Bulkhead
from holdfast.guard.call import Call, Setting
from holdfast.guard.driver import CUT, drive
from holdfast.guard.fallback import Fallback
from holdfast.guard.guard import is_coroutine_function
from holdfast.guard.invoke import LAZY, refuse_lazy
from holdfast.guard.plan import Plan, strategies_of
from holdfast.guard.rate_limit import RateLimit
from holdfast.guard.timeout import Timeout
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from holdfast.guard.describe import Description
    from holdfast.guard.explain import Explanation

T = TypeVar("T")
Properties = Mapping[TypedKey[Any], Any]


class CallOptions(TypedDict, total=False):
    """What a single call may bring along."""

    operation_key: str | None
    deadline: Deadline | None
    properties: Properties | None


MAX_LANES: Final = 128  # operation keys made from user data must not become a leak
FUSE_AFTER: Final = 16  # compiling pays for itself only if a key comes again


class ResiliencePipeline:
    """Strategies around a call, outermost first. One pipeline serves any number of calls, threads and event loops.

    A layer is a strategy, shared with whoever else holds it, or a policy such as `Retry(...)`, which gets state of its
    own. `operation_key` names a call in telemetry and errors and defaults to the pipeline's name; use a small number
    of fixed keys.

    Raises PolicyError for a layer that is neither, and for two retry layers.
    """

    def __init__(
        self,
        strategies: Iterable[Any] = (),
        *,
        name: str = "pipeline",
        classify: Classifier | None = None,
        result_classifier: ResultClassifier | None = None,
        passthrough_exceptions: Iterable[type[BaseException]] = (),
        clock: Clock = SYSTEM_CLOCK,
        rng: Callable[[], float] = random.random,
        telemetry: Hub | None = None,
    ) -> None:
        if not name or not isinstance(name, str):
            raise PolicyError(f"a pipeline needs a name, got {name!r}; it is how metrics and errors speak of it")
        self.name = name
        self._setting = partial(
            Setting,
            hub=default_hub() if telemetry is None else telemetry,
            clock=clock,
            rng=rng,
            classify=classify,
            judge=result_classifier,
            passthrough=tuple(passthrough_exceptions),
        )
        setting = self._setting(name)
        layers = tuple(strategies)
        self._strategies = tuple(made for layer in layers for made in strategies_of(layer, setting))
        if [getattr(strategy, "kind", None) for strategy in self._strategies].count("retry") > 1:
            raise PolicyError(f"pipeline {name!r} has two retry layers; attempts would multiply, keep one")
        self._own = Lane(setting, self._strategies, layers, fuse_after=0)
        self._lanes: dict[str, Lane] = {name: self._own}

    @property
    def strategies(self) -> list[Any]:
        """The strategies, outermost first: a copy, so changing it changes nothing."""
        return list(self._strategies)

    @property
    def plan(self) -> Plan:
        return self._own.plan

    def plan_in_context(self) -> Plan:
        return self._own.plan

    @property
    def telemetry(self) -> Hub:
        return self.plan.setting.hub

    @overload
    async def execute(self, fn: Callable[[], Awaitable[T]], **options: Unpack[CallOptions]) -> Outcome[T]: ...
    @overload
    async def execute(self, fn: Callable[[], T], **options: Unpack[CallOptions]) -> Outcome[T]: ...
    async def execute(
        self,
        fn: Callable[[], Any],
        *,
        operation_key: str | None = None,
        deadline: Deadline | None = None,
        properties: Properties | None = None,
    ) -> Outcome[Any]:
        """Run `fn`, sync or async, through the strategies; it takes no arguments."""
        return await self._lane(operation_key).go(fn, True, deadline, properties)  # type: ignore[no-any-return]

    @overload
    def execute_sync(self, fn: Callable[[], Coroutine[Any, Any, T]], **options: Unpack[CallOptions]) -> Outcome[T]: ...
    @overload
    def execute_sync(self, fn: Callable[[], T], **options: Unpack[CallOptions]) -> Outcome[T]: ...
    def execute_sync(
        self,
        fn: Callable[[], Any],
        *,
        operation_key: str | None = None,
        deadline: Deadline | None = None,
        properties: Properties | None = None,
    ) -> Outcome[Any]:
        """Run `fn` through the strategies in this thread. An async `fn` gets an event loop for this one call.

        Raises RuntimeError for an async `fn` inside a running event loop; await `execute` there.
        """
        lane = self._lane(operation_key)
        if _is_plain(fn) or not is_coroutine_function(fn):
            return lane.go(_Settled(fn), False, deadline, properties)  # type: ignore[no-any-return]
        if in_running_loop():
            raise RuntimeError(
                f"{lane.plan.operation_key}: an async function cannot be run to its end inside a running event loop; "
                "use `await pipeline.execute(...)` there"
            )
        import asyncio

        return asyncio.run(self.execute(fn, operation_key=operation_key, deadline=deadline, properties=properties))

    def _lane(self, operation_key: str | None) -> Lane:
        if not operation_key:
            return self._own
        lane = self._lanes.get(operation_key)
        if lane is None:
            lane = Lane(self._setting(operation_key), self._strategies, self.plan.policies, fuse_after=FUSE_AFTER)
            if len(self._lanes) < MAX_LANES:
                lane = self._lanes.setdefault(operation_key, lane)
        return lane

    def describe(self) -> Description:
        """The composition in words: order, worst-case number of calls and time."""
        from holdfast.guard.describe import describe

        return describe(self)

    def explain(self, outcome: Outcome[Any]) -> Explanation:
        """Why a call was refused, retried or stopped, with the numbers."""
        from holdfast.guard.explain import explain

        return explain(self, outcome)

    def __repr__(self) -> str:
        kinds = ", ".join(str(getattr(strategy, "kind", "custom")) for strategy in self._strategies)
        return f"<ResiliencePipeline {self.name}: {kinds or 'empty'}>"


class Lane:
    """The way of one operation key through a pipeline: the same strategies, telemetry of its own."""

    __slots__ = ("_calls", "_entries", "_fuse_after", "plan")

    def __init__(self, setting: Setting, strategies: tuple[Any, ...], layers: tuple[Any, ...], fuse_after: int) -> None:
        self.plan = Plan(self, setting, layers, strategies, context="always")
        self._entries: dict[bool, Callable[..., Any]] = {}
        self._fuse_after = fuse_after
        self._calls = 0

    def plan_in_context(self) -> Plan:
        return self.plan

    def go(
        self, fn: Callable[[], Any], is_async: bool, deadline: Deadline | None, properties: Properties | None
    ) -> Any:
        """The outcome of a call, or for an async one its awaitable."""
        plan = self.plan
        if deadline is None and not properties:
            entry = self._entries.get(is_async) or self._entry(is_async)
            if entry is not None:
                return entry(fn)
        bag = None if properties is None else dict(properties)
        work = plan.perform(Call(plan.setting, is_async, fn, deadline=deadline, properties=bag))
        return work if is_async else drive(work)

    def _entry(self, is_async: bool) -> Callable[..., Any] | None:
        """The fused caller, once this lane is used often enough to be worth compiling."""
        self._calls += 1
        if self._calls <= self._fuse_after:
            return None
        return self._entries.setdefault(is_async, self.plan.entry(None, is_async, True))


class ResiliencePipelineBuilder:
    """Declare a pipeline layer by layer, outermost first.

    `build` may be called again: what the verbs declared gets fresh state each time, while a strategy given to `add` is
    shared on purpose. Nothing can be added after the first `build`.
    """

    def __init__(
        self,
        name: str = "pipeline",
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: Callable[[], float] = random.random,
        telemetry: Hub | None = None,
    ) -> None:
        self._name = name
        self._ports: dict[str, Any] = {"clock": clock, "rng": rng, "telemetry": telemetry}
        self._layers: list[Any] = []
        self._classify: Classifier | None = None
        self._result_classifier: ResultClassifier | None = None
        self._passthrough: tuple[type[BaseException], ...] = ()
        self._built = False

    def add(self, strategy: Any) -> Self:
        """A strategy of your own or to be shared, or a policy such as `Retry(...)`."""
        self._check_open()
        if isinstance(strategy, type):
            raise PolicyError(f"pipeline {self._name!r} got the class {strategy.__name__}; add an instance of it")
        self._layers.append(strategy)
        return self

    def timeout(self, timeout_s: float) -> Self:
        """A limit for everything inside: for each attempt if a retry was declared before."""
        inside_retry = any(isinstance(layer, Retry) or getattr(layer, "kind", "") == "retry" for layer in self._layers)
        return self.add(Timeout(attempt=timeout_s) if inside_retry else Timeout(total=timeout_s))

    def retry(self, max_attempts: int | None = 3, base_delay_s: float = 0.5, max_delay_s: float = 30.0) -> Self:
        return self.add(Retry(max_attempts, base_delay_s, max_delay_s))

    def circuit_breaker(
        self, name: str | None = None, failure_threshold: int = 5, reset_timeout_s: float = 30.0
    ) -> Self:
        return self.add(Breaker(consecutive(failure_threshold), open_for=reset_timeout_s, name=name))

    def bulkhead(self, name: str | None = None, max_concurrent: int = 1, max_queued: int = 32) -> Self:
        return self.add(Bulkhead(max_concurrent, max_queued, name=name))

    def priority_bulkhead(self, name: str | None = None, max_concurrent: int = 1, max_queued: int = 32) -> Self:
        from holdfast.guard.priority import PriorityBulkhead

        return self.add(PriorityBulkhead(max_concurrent, max_queued, name=name))

    def rate_limiter(self, name: str | None = None, rate_per_s: float = 10.0, burst: int = 10) -> Self:
        return self.add(RateLimit(rate_per_s, burst, name=name))

    def fallback(self, function: Callable[..., Any]) -> Self:
        """An answer for failures; the function takes nothing or the outcome."""
        return self.add(Fallback(function))

    def classify(self, classifier: Classifier) -> Self:
        self._check_open()
        self._classify = classifier
        return self

    def result_classifier(self, classifier: ResultClassifier) -> Self:
        self._check_open()
        self._result_classifier = classifier
        return self

    def passthrough(self, *exceptions: type[BaseException]) -> Self:
        """Exceptions that pass untouched, besides those named before."""
        self._check_open()
        self._passthrough += exceptions
        return self

    def build(self) -> ResiliencePipeline:
        """Raises PolicyError for layers that cannot work together."""
        pipeline = ResiliencePipeline(
            self._layers,
            name=self._name,
            classify=self._classify,
            result_classifier=self._result_classifier,
            passthrough_exceptions=self._passthrough,
            **self._ports,
        )
        self._built = True
        return pipeline

    def _check_open(self) -> None:
        if self._built:
            raise RuntimeError(f"pipeline {self._name!r} is built already; declare another one with a new builder")


def in_running_loop() -> bool:
    """Whether an event loop runs in this thread. Where asyncio was never loaded, none does."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _is_plain(fn: Callable[[], Any]) -> bool:
    """Whether this is an ordinary `def` or lambda, by the quickest test there is."""
    return type(fn) is FunctionType and not fn.__code__.co_flags & CO_COROUTINE


class _Settled:
    """A function as a sync call runs it. One that returns a coroutine (`lambda: fetch(url)`) is async after all.

    Equal to others of the same function, which is what a cache goes by.
    """

    __slots__ = ("fn",)

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn = fn

    def __call__(self) -> Any:
        value = self.fn()
        if type(value) not in LAZY:
            return value
        if type(value) is not CoroutineType or in_running_loop():
            refuse_lazy(self.fn, value)
            return value
        import asyncio

        return asyncio.run(_in_time(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Settled) and self.fn == other.fn

    def __hash__(self) -> int:
        return hash(self.fn)


async def _in_time(work: Coroutine[Any, Any, T]) -> T:
    """Ends the work by the deadline of the call around it, which waits in a thread and cannot."""
    from holdfast.guard.adriver import AsyncDriver

    ctx = current_context()
    if ctx is None or ctx.deadline.at == math.inf:
        return await work
    result = await AsyncDriver(ctx.clock).bounded(lambda: work, ctx.deadline.at, _Uncut())
    if result is CUT:
        raise GuardTimeout(ctx.operation_key, None, "the time ran out")
    return result  # type: ignore[return-value]  # CUT was the only other thing


class _Uncut:
    """Takes the mark that a running call would."""

    cut = 0
