"""The way from a worker to the body of a task: through its guard, into the transaction of its step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.guard.cache import CacheStrategy
from holdfast.guard.guard import Guard
from holdfast.guard.hedge import HedgeStrategy
from holdfast.guard.retry import RetryStrategy
from holdfast.letters.capture import REPLAYING
from holdfast.workflows.calling import Call, Doable
from holdfast.workflows.effects import Effect, check_retry, unsafe
from holdfast.workflows.faults import MaybeDoneError
from holdfast.workflows.transactions import Transactions

T = TypeVar("T")
_TRANSACTIONAL: Final = Effect.TRANSACTIONAL
SIDE_BY_SIDE: Final = frozenset({Effect.PURE, Effect.IDEMPOTENT})
"""What can be called twice at the same time."""


def way_of(call: Call, guard_of: Callable[[str], Guard], transactions: Transactions) -> Callable[..., Any]:
    """What to call instead of a task's own function. Raises WorkflowDefinitionError for a guard that does not fit."""
    task = call.task
    function = task.function
    if task.effect is _TRANSACTIONAL:
        function = partial(transactions.run, call, function)
    if task.guard is None:
        return function
    guard = guard_of(task.guard)
    check_guard(task, guard)
    return partial(_acalled if task.is_async else _called, guard, function, call.item.workflow)


def check_guard(task: Doable, guard: Guard) -> None:
    """Raises WorkflowDefinitionError for a guard that would call a task more often than its effect allows, or less."""
    name, effect, plan = task.name, task.effect, guard.plan
    if effect not in SIDE_BY_SIDE and plan.first(HedgeStrategy) is not None:
        raise unsafe(
            name, effect, f"is called through guard {guard.name!r}, which hedges: two calls at once",
            "declare it pure or idempotent, or take the hedge out",
        )  # fmt: skip
    retry = plan.first(RetryStrategy)
    check_retry(name, effect, retry is not None and retry.policy.attempts != 1, f"guard {guard.name!r}")
    if effect in (Effect.TRANSACTIONAL, Effect.AT_LEAST_ONCE) and plan.first(CacheStrategy) is not None:
        raise unsafe(
            name, effect, f"is called through guard {guard.name!r}, which caches: some calls would not be made",
            "give it a guard without a cache",
        )  # fmt: skip


def _called(guard: Guard, function: Callable[..., Any], workflow: str, *args: Any, **kwargs: Any) -> Any:
    def body(*args: Any, **kwargs: Any) -> Any:
        token = REPLAYING.set(None)
        try:
            return function(*args, **kwargs)
        finally:
            REPLAYING.reset(token)

    # What fails or is refused here is the workflow's to keep; only guards inside of the body keep their own.
    token = REPLAYING.set(workflow)
    try:
        return _answer(guard.run(body, *args, **kwargs))
    finally:
        REPLAYING.reset(token)


async def _acalled(
    guard: Guard, function: Callable[..., Awaitable[Any]], workflow: str, *args: Any, **kwargs: Any
) -> Any:
    async def body(*args: Any, **kwargs: Any) -> Any:
        token = REPLAYING.set(None)
        try:
            return await function(*args, **kwargs)
        finally:
            REPLAYING.reset(token)

    token = REPLAYING.set(workflow)
    try:
        return _answer(await guard.arun(body, *args, **kwargs))
    finally:
        REPLAYING.reset(token)


def _answer(outcome: Outcome[T]) -> T:
    """The value. Raises what the guard came to; a refusal only if the task has not run."""
    if outcome.kind is OutcomeKind.REJECTED and outcome.attempts:
        story = f"{outcome.error}; it had been called {outcome.attempts} times"
        raise MaybeDoneError(story, retry_after=outcome.retry_after) from outcome.error
    return outcome.unwrap()
