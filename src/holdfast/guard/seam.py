"""The seam: one guarded call with the strategies it is given, for code that keeps no pipeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import lru_cache
from typing import Any, TypedDict, TypeVar, Unpack, overload

from holdfast.core.classify import Classifier, ResultClassifier
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.deadline import Deadline
from holdfast.core.outcome import Outcome
from holdfast.errors import PolicyError
from holdfast.guard.call import ResilienceStrategy
from holdfast.guard.pipeline import Properties, ResiliencePipeline, in_running_loop
from holdfast.telemetry.hub import Hub, default_hub

T = TypeVar("T")

GuardedFn = Callable[[], T | Awaitable[T]]
"""What is guarded: a function without arguments, sync or async."""


class SeamOptions(TypedDict, total=False):
    """The keyword arguments of `guarded_call`."""

    deadline: Deadline | None
    strategies: Iterable[ResilienceStrategy]
    classify: Classifier | None
    result_classifier: ResultClassifier | None
    passthrough_exceptions: Iterable[type[BaseException]]
    properties: Properties | None
    clock: Clock
    telemetry: Hub | None


@overload
async def guarded_call(
    operation_key: str, fn: Callable[[], Awaitable[T]], **options: Unpack[SeamOptions]
) -> Outcome[T]: ...
@overload
async def guarded_call(operation_key: str, fn: Callable[[], T], **options: Unpack[SeamOptions]) -> Outcome[T]: ...
async def guarded_call(
    operation_key: str,
    fn: Callable[[], Any],
    *,
    deadline: Deadline | None = None,
    strategies: Iterable[ResilienceStrategy] = (),
    classify: Classifier | None = None,
    result_classifier: ResultClassifier | None = None,
    passthrough_exceptions: Iterable[type[BaseException]] = (),
    properties: Properties | None = None,
    clock: Clock = SYSTEM_CLOCK,
    telemetry: Hub | None = None,
) -> Outcome[Any]:
    """Run `fn`, sync or async, through the strategies, outermost first, and say what came of it.

    A failure is an Outcome, never an exception; only cancellations and `passthrough_exceptions` are raised. The
    strategies keep their state: hold on to them and give the same ones again.

    Raises PolicyError for something that is no strategy, and for two retry layers.
    """
    pipeline = _pipeline(strategies, classify, result_classifier, passthrough_exceptions, clock, telemetry)
    return await pipeline.execute(fn, operation_key=operation_key, deadline=deadline, properties=properties)


@overload
def guarded_call_sync(
    operation_key: str, fn: Callable[[], Coroutine[Any, Any, T]], **options: Unpack[SeamOptions]
) -> Outcome[T]: ...
@overload
def guarded_call_sync(operation_key: str, fn: Callable[[], T], **options: Unpack[SeamOptions]) -> Outcome[T]: ...
def guarded_call_sync(
    operation_key: str,
    fn: Callable[[], Any],
    *,
    deadline: Deadline | None = None,
    strategies: Iterable[ResilienceStrategy] = (),
    classify: Classifier | None = None,
    result_classifier: ResultClassifier | None = None,
    passthrough_exceptions: Iterable[type[BaseException]] = (),
    properties: Properties | None = None,
    clock: Clock = SYSTEM_CLOCK,
    telemetry: Hub | None = None,
) -> Outcome[Any]:
    """`guarded_call` for a thread without an event loop. Starts one only for an async `fn`.

    Raises RuntimeError inside a running event loop: it would stand still meanwhile.
    """
    if in_running_loop():
        raise RuntimeError(
            f"guarded_call_sync({operation_key!r}) inside a running event loop would block it; "
            "await guarded_call(...), or use Guard.call, which may be called anywhere"
        )
    pipeline = _pipeline(strategies, classify, result_classifier, passthrough_exceptions, clock, telemetry)
    return pipeline.execute_sync(fn, operation_key=operation_key, deadline=deadline, properties=properties)


def _pipeline(
    strategies: Iterable[ResilienceStrategy],
    classify: Classifier | None,
    judge: ResultClassifier | None,
    passthrough: Iterable[type[BaseException]],
    clock: Clock,
    telemetry: Hub | None,
) -> ResiliencePipeline:
    """The pipeline for these arguments. It holds no state that matters, so forgetting it only costs time."""
    hub = default_hub() if telemetry is None else telemetry
    facts: Any = (tuple(strategies), classify, judge, tuple(passthrough), clock, hub)
    try:
        return _remembered(*facts)
    except TypeError:  # something cannot be a key
        return _made(*facts)


@lru_cache(maxsize=128)
def _remembered(layers: tuple[Any, ...], *rest: Any) -> ResiliencePipeline:
    for layer in layers:
        kind: Any = type(layer)
        if kind.__eq__ is not object.__eq__:
            raise TypeError("equal strategies may have different state")
    return _made(layers, *rest)


def _made(
    layers: tuple[Any, ...],
    classify: Classifier | None,
    judge: ResultClassifier | None,
    passthrough: tuple[type[BaseException], ...],
    clock: Clock,
    hub: Hub,
) -> ResiliencePipeline:
    for layer in layers:
        if isinstance(layer, type) or not isinstance(layer, ResilienceStrategy):
            raise PolicyError(
                f"guarded_call takes strategies, got {layer!r}; a policy needs a Guard or a pipeline to keep its state"
            )
    return ResiliencePipeline(
        layers,
        name="guarded_call",
        classify=classify,
        result_classifier=judge,
        passthrough_exceptions=passthrough,
        clock=clock,
        telemetry=hub,
    )
