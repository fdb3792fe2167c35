"""What the policies of a program come to when they are put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.doctor.leases import look_at_leases
from holdfast.doctor.nesting import calls_of, guards_in, look_inside, retry_of
from holdfast.doctor.rules import Finding, found
from holdfast.doctor.works import works_of as works_of
from holdfast.errors import PolicyError, WorkflowDefinitionError
from holdfast.guard.describe import concerns, describe
from holdfast.guard.guard import Guard
from holdfast.outbox.backoff import ATTEMPTS
from holdfast.workflows.configs import EXECUTIONS
from holdfast.workflows.effects import Effect
from holdfast.workflows.guarded import SIDE_BY_SIDE, check_guard

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.workflows.functions import TaskFunction

MANY_CALLS: Final = 10


class User(NamedTuple):
    """A task or an operation: what it goes through, how often it is tried, and for how long."""

    where: str
    guard: Guard | str | None
    """A name is no guard that there is."""
    attempts: float
    limit_s: float
    functions: tuple[Callable[..., Any], ...]


def look_at_policies(hold: Holdfast) -> Iterator[Finding]:
    """Guards, and the tasks and operations that go through them."""
    replayable = hold.letters.handlers.domains
    declared = _declared(hold)
    for name, guard in sorted(hold.guards.items()):
        where = f"guard {name!r}"
        # Functions that it decorates declare nothing.
        effects = frozenset({None}) if guard.functions else declared.get(name, frozenset({None}))
        for concern in concerns(guard):
            if concern.rule != "hedging" or not effects <= SIDE_BY_SIDE:
                yield found(concern.rule, where, concern.what, concern.fix)
        worst = describe(guard)
        if MANY_CALLS < worst.max_calls < math.inf:
            what = f"one call may become {worst.max_calls:g}"
            yield found("many-calls", where, what, "make fewer attempts, or hedge less")
        if guard.dead_letter is not None and guard.domain not in replayable:
            what = f"it keeps dead letters of {guard.domain!r}, and nothing can replay them"
            fix = f"register a function with @{name}.replayable, or a handler: hold.letters.handle({guard.domain!r}, …)"
            yield found("nobody-replays", where, what, fix)
    yield from look_inside(hold)
    yield from look_at_leases(hold)
    for user in _users(hold):
        yield from _layers(user)
    for task in hold.workflows.tasks.values():
        yield from _unsafe(hold, task)


def _declared(hold: Holdfast) -> dict[str, frozenset[Effect | None]]:
    """What the tasks that go through a guard declare to do."""
    made: dict[str, set[Effect | None]] = {}
    for task in hold.workflows.tasks.values():
        if task.guard is not None:
            made.setdefault(task.guard, set()).add(task.effect)
    return {name: frozenset(effects) for name, effects in made.items()}


def _users(hold: Holdfast) -> Iterator[User]:
    for task in hold.workflows.tasks.values():
        attempts = EXECUTIONS if task.retry is None else task.retry.attempts or math.inf
        guard, limit = _guard(hold, task.guard), task.timeout or math.inf
        yield User(f"task {task.name!r}", guard, attempts, limit, (task.function,))
    works = works_of(hold)
    for operation in () if works is None else works.operations:
        limit = math.inf if operation.timeout is None else operation.timeout.total_seconds()
        guard = operation.guard if isinstance(operation.guard, Guard) else None
        attempts = operation.max_attempts or ATTEMPTS
        yield User(f"operation {operation.name!r}", guard, attempts, limit, (operation.call,))


def _guard(hold: Holdfast, name: str | None) -> Guard | str | None:
    if name is None:
        return None
    try:
        return hold.guard(name)
    except PolicyError:
        return name


def _layers(user: User) -> Iterator[Finding]:
    """What tries again what is tried again already: the guard that it goes through, and those that its body calls."""
    if isinstance(user.guard, str):
        what = f"there is no guard {user.guard!r}"
        yield found("unknown-guard", user.where, what, f"make it before work begins: hold.guard({user.guard!r}, …)")
    guard = user.guard if isinstance(user.guard, Guard) else None
    inside = [one for one in guards_in(*user.functions) if one is not guard]
    for one in inside if guard is None else [guard, *inside]:
        if user.attempts > 1 and retry_of(one) is not None and not _defers(one, guard):
            named = f"guard {one.name!r}" if one is guard else f"guard {one.name!r}, which it calls,"
            around = () if guard is None or one is guard else (guard,)
            what = f"it is tried again by itself, and {named} retries as well: {calls_of(user.attempts, *around, one)}"
            fix = "leave the Retry out of the guard, or give the outer one 1 attempt"
            yield found("two-retry-layers", user.where, what, fix)
    worst = math.inf if guard is None else describe(guard).max_seconds
    if guard is not None and user.limit_s < worst:
        told = "without a limit" if worst == math.inf else f"up to {worst:.4g} s"
        what = f"it has {user.limit_s:g} s, and guard {guard.name!r} may take {told}"
        yield found("outlives-caller", user.where, what, "give the guard a Timeout(total=...) below that")


def _defers(inner: Guard, outer: Guard | None) -> bool:
    """Whether the inner guard leaves the retrying to the outer one, of the same failure domain."""
    around, within = None if outer is None or outer is inner else retry_of(outer), retry_of(inner)
    return around is not None and within is not None and around.policy.domain == within.policy.domain


def _unsafe(hold: Holdfast, task: TaskFunction[Any, Any]) -> Iterator[Finding]:
    """A guard that was made after the task, when nobody could see yet whether it fits."""
    guard = _guard(hold, task.guard)
    if isinstance(guard, Guard):
        try:
            check_guard(task, guard)
        except WorkflowDefinitionError as error:
            what, _, fix = error.detail.rpartition("; ")
            yield found("unsafe-repeat", f"task {task.name!r}", what, fix)
