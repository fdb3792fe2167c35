"""What the policies of a program come to when they are put together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.doctor.rules import Finding, found
from holdfast.errors import ConfigurationError, MissingExtra, PolicyError
from holdfast.guard.describe import concerns, describe
from holdfast.guard.guard import Guard
from holdfast.guard.retry import RetryStrategy

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.outbox.works import Works

MANY_CALLS: Final = 10


def look_at_policies(hold: Holdfast) -> Iterator[Finding]:
    """Guards, and the tasks and operations that go through them."""
    replayable = hold.letters.handlers.domains
    for name, guard in sorted(hold.guards.items()):
        where = f"guard {name!r}"
        for concern in concerns(guard):
            yield found(concern.rule, where, concern.what, concern.fix)
        worst = describe(guard)
        if MANY_CALLS < worst.max_calls < math.inf:
            what = f"one call may become {worst.max_calls:g}"
            yield found("many-calls", where, what, "make fewer attempts, or hedge less")
        if guard.dead_letter is not None and guard.domain not in replayable:
            what = f"it keeps dead letters of {guard.domain!r}, and nothing can replay them"
            fix = f"register a function with @{name}.replayable, or a handler: hold.letters.handle({guard.domain!r}, …)"
            yield found("nobody-replays", where, what, fix)
    for where, guard, attempts, limit_s in _users(hold):
        if isinstance(guard, Guard):
            yield from _layers(where, guard, attempts, limit_s)
        elif guard is not None:
            what = f"there is no guard {guard!r}"
            yield found("unknown-guard", where, what, f"make it before work begins: hold.guard({guard!r}, …)")


def _users(hold: Holdfast) -> Iterator[tuple[str, Any, float, float]]:
    """Who goes through a guard, with its attempts and the seconds that it allows; a name is no guard that there is."""
    for task in hold.workflows.tasks.values():
        attempts = 10 if task.retry is None else task.retry.attempts or math.inf
        yield f"task {task.name!r}", _guard(hold, task.guard), attempts, task.timeout or math.inf
    works = works_of(hold)
    for operation in () if works is None else works.operations:
        limit = math.inf if operation.timeout is None else operation.timeout.total_seconds()
        guard = operation.guard if isinstance(operation.guard, Guard) else None
        yield f"operation {operation.name!r}", guard, operation.max_attempts or math.inf, limit


def works_of(hold: Holdfast) -> Works | None:
    """The outbox and what belongs to it, where the store is a database that can have one."""
    try:
        return hold.works
    except (ConfigurationError, MissingExtra):
        return None


def _guard(hold: Holdfast, name: str | None) -> Guard | str | None:
    if name is None:
        return None
    try:
        return hold.guard(name)
    except PolicyError:
        return name


def _layers(where: str, guard: Guard, attempts: float, limit_s: float) -> Iterator[Finding]:
    worst = describe(guard)
    if attempts > 1 and guard.plan.first(RetryStrategy) is not None and worst.max_calls > 1:
        calls = worst.max_calls * attempts
        told = "any number of calls" if calls == math.inf else f"up to {calls:g} calls"
        what = f"it is tried again by itself, and guard {guard.name!r} retries as well: {told}"
        yield found(
            "two-retry-layers", where, what, "leave the Retry out of the guard, or give the outer one 1 attempt"
        )
    if limit_s < worst.max_seconds:
        told = "without a limit" if worst.max_seconds == math.inf else f"up to {worst.max_seconds:.4g} s"
        what = f"it has {limit_s:g} s, and guard {guard.name!r} may take {told}"
        yield found("outlives-caller", where, what, "give the guard a Timeout(total=...) below that")
