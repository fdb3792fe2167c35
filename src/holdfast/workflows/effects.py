"""What a task does to the world, as its author declares it; and what must not be combined with that."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from holdfast.errors import WorkflowDefinitionError


class Effect(StrEnum):
    """What running a task once more would do."""

    PURE = "pure"
    """It changes nothing, so nobody can tell how often it ran."""
    TRANSACTIONAL = "transactional"
    """Its writes to the store's database commit with the step: exactly once."""
    IDEMPOTENT = "idempotent"
    """The callee knows the call again, by its key or by its content: to repeat it changes nothing."""
    AT_LEAST_ONCE = "at_least_once"
    """To repeat it does it again."""


REPEATABLE: Final = frozenset({Effect.PURE, Effect.TRANSACTIONAL, Effect.IDEMPOTENT})
"""What can be tried again after a failure, without asking what has happened."""
_STRONGEST_FIRST: Final = tuple(Effect)


def effect_named(task: str, given: str | None) -> Effect | None:
    """The effect. Raises WorkflowDefinitionError for one that does not exist."""
    if given is None:
        return None
    if given not in frozenset(Effect):
        there = ", ".join(Effect)
        raise WorkflowDefinitionError(
            "unknown_effect", f"task {task!r} has effect {given!r}; there are {there}", (task,)
        )
    return Effect(given)


def weakest(effects: Iterable[Effect | None]) -> Effect:
    """Of several effects the one that promises least; what is not declared promises nothing."""
    found = [_STRONGEST_FIRST.index(one or Effect.AT_LEAST_ONCE) for one in effects]
    return _STRONGEST_FIRST[max(found, default=0)]


def check_retry(task: str, effect: Effect | None, retries: bool, whose: str = "retry=") -> None:
    """Raises WorkflowDefinitionError for a policy that repeats what its author says must not be repeated.

    Of a task that declares nothing, a policy of its own is the author's word that it may be tried again.
    """
    if retries and effect is Effect.AT_LEAST_ONCE:
        raise unsafe(
            task, effect, f"is retried by {whose}, which would do it again after a failure that came late",
            "leave that out and raise TransientError where nothing has happened yet, or declare it idempotent",
        )  # fmt: skip


def check_colour(task: str, effect: Effect | None, is_async: bool) -> None:
    """Raises WorkflowDefinitionError for an async task that is to write in the step's transaction."""
    if is_async and effect is Effect.TRANSACTIONAL:
        raise unsafe(task, effect, "is async, and the session of its step is not", "make it a plain function")


def unsafe(task: str, effect: Effect | None, story: str, fix: str) -> WorkflowDefinitionError:
    """The error for what must not be combined."""
    declared = "declares no effect" if effect is None else f"is {effect.value}"
    return WorkflowDefinitionError("unsafe_effect", f"task {task!r} {declared} and {story}; {fix}", (task,))
