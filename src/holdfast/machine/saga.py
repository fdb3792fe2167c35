"""A saga: several external calls that together either happen or are undone.

Its steps are a graph: each begins when those before it are done. When one is given up (or someone cancels, or a
deadline passes) the saga turns round: every step that may have happened is compensated, the last ones first. A call
that is under way when the saga turns is waited for, and compensated after it has come back: so a compensation never
overtakes its own call. Once the pivot is done there is no way back, only forward: what is given up then leaves the
saga stuck until somebody helps.

Everything here is pure. A function takes the plan and the record, and gives the changed record with what is to be
called. `idle` names the calls that nobody is making at the moment, and so can be taken back: by step, whether they were
ever begun.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple


class SagaState(StrEnum):
    """Where a saga stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    STUCK = "stuck"


class StepState(StrEnum):
    """Where a step stands. `unknown`: its call was given up, and may have happened all the same."""

    WAITING = "waiting"
    STARTED = "started"
    DONE = "done"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    UNRESOLVED = "unresolved"


class Direction(StrEnum):
    """Whether an entry does what its step is for, or undoes it."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Act(StrEnum):
    """What happens to a step."""

    BEGIN = "begin"
    SKIP = "skip"
    SUCCEED = "succeed"
    GIVE_UP = "give_up"
    RETRY = "retry"
    UNDO = "undo"
    UNDONE = "undone"
    GIVE_UP_UNDO = "give_up_undo"


S: Final = StepState
STEPS: Final[Mapping[tuple[StepState, Act], StepState]] = {
    (S.WAITING, Act.BEGIN): S.STARTED,
    (S.WAITING, Act.SKIP): S.SKIPPED,
    (S.STARTED, Act.SUCCEED): S.DONE,
    (S.STARTED, Act.GIVE_UP): S.UNKNOWN,
    (S.STARTED, Act.SKIP): S.SKIPPED,
    (S.UNKNOWN, Act.RETRY): S.STARTED,
    (S.SKIPPED, Act.RETRY): S.STARTED,
    (S.DONE, Act.UNDO): S.COMPENSATING,
    (S.UNKNOWN, Act.UNDO): S.COMPENSATING,
    (S.COMPENSATING, Act.UNDONE): S.COMPENSATED,
    (S.COMPENSATING, Act.GIVE_UP_UNDO): S.UNRESOLVED,
    (S.UNRESOLVED, Act.RETRY): S.COMPENSATING,
    # An operator's requeue is called, and perhaps settled, before the saga hears of it.
    (S.UNRESOLVED, Act.UNDONE): S.COMPENSATED,
    # A forward call that comes back after it counted as over happened all the same, and is to be undone again.
    (S.UNKNOWN, Act.SUCCEED): S.DONE,
    (S.SKIPPED, Act.SUCCEED): S.DONE,
    (S.COMPENSATING, Act.SUCCEED): S.DONE,
    (S.COMPENSATED, Act.SUCCEED): S.DONE,
    (S.UNRESOLVED, Act.SUCCEED): S.DONE,
}

R: Final = SagaState
TRANSITIONS: Final[Mapping[SagaState, frozenset[SagaState]]] = {
    R.RUNNING: frozenset({R.COMPLETED, R.COMPENSATING, R.COMPENSATED, R.STUCK}),
    R.COMPENSATING: frozenset({R.COMPENSATED, R.STUCK}),
    R.STUCK: frozenset({R.RUNNING, R.COMPLETED, R.COMPENSATING, R.COMPENSATED}),
    R.COMPENSATED: frozenset({R.COMPENSATING, R.STUCK}),
    R.COMPLETED: frozenset(),
}
"""Where a saga can go in one step. From running straight to compensated: nothing had happened yet."""

ACTIVE: Final = frozenset({R.RUNNING, R.COMPENSATING})
ENDED: Final = frozenset({R.COMPLETED, R.COMPENSATED})
TURNED: Final = frozenset({R.COMPENSATING, R.COMPENSATED})
MAY_HAVE_HAPPENED: Final = frozenset({S.DONE, S.UNKNOWN})

CANCELLED: Final = "Cancelled"
DEADLINE: Final = "DeadlineExceeded"
UNDO_ATTEMPTS: Final = 32
"""How often a compensation is tried at least: more often than a call, because nothing else is left."""
_LONGEST: Final = 255


class PlannedStep(NamedTuple):
    """What the machine has to know of a step."""

    name: str
    after: tuple[str, ...] = ()
    compensable: bool = False
    pivot: bool = False


Plan = tuple[PlannedStep, ...]


class StepRecord(NamedTuple):
    """A step of a saga that was started. `undos` counts how often its compensation was asked for."""

    name: str
    state: StepState = StepState.WAITING
    result: Any = None
    error: str | None = None
    undos: int = 0


class SagaRecord(NamedTuple):
    """A saga that was started. `reason` says why it turned round, or is stuck on its way forward; while it is running,
    that it will turn round unless the pivot, which is being called, succeeds.
    """

    state: SagaState
    steps: tuple[StepRecord, ...]
    reason: str | None = None

    def step(self, name: str) -> StepRecord:
        return next(step for step in self.steps if step.name == name)


class Change(NamedTuple):
    """A decision: the record, and by the names of steps which calls to make, to undo, and to take back."""

    saga: SagaRecord
    calls: tuple[str, ...] = ()
    undos: tuple[str, ...] = ()
    cancels: tuple[str, ...] = ()


NOBODY: Final[Mapping[str, bool]] = {}


def start(plan: Plan) -> Change:
    """A new saga, with the steps that come first."""
    return _forward(plan, SagaRecord(R.RUNNING, tuple(StepRecord(step.name) for step in plan)))


def on_step_succeeded(plan: Plan, saga: SagaRecord, name: str, result: Any = None) -> Change:
    """The step's call came back well. In a saga that turns round it is undone again."""
    if saga.state == R.COMPLETED or saga.step(name).state in (S.WAITING, S.DONE):
        return Change(saga)
    after = _with(saga, name, Act.SUCCEED, result=result, error=None)
    if is_backward(saga):
        return _backward(plan, after)
    if _planned(plan, name).pivot:
        after = after._replace(reason=None)  # the way back is gone, and with it the wish for it
    return _forward(plan, after)


def on_step_abandoned(
    plan: Plan, saga: SagaRecord, name: str, error: str, *, called: bool = True, idle: Mapping[str, bool] = NOBODY
) -> Change:
    """The step's call was given up; `called` if it may have happened."""
    if saga.step(name).state != S.STARTED:
        return Change(saga)
    can_turn = called is False or not _ends_way_back(plan, name)
    after = _with(saga, name, Act.GIVE_UP if called else Act.SKIP, error=error)
    if is_backward(saga):
        return _backward(plan, after)
    reason = saga.reason or f"{name}: {error}"[:_LONGEST]
    if can_turn and not past_pivot(plan, saga):
        return _turn(plan, after, reason, idle)
    return _forward(plan, after._replace(reason=reason))


def on_step_returned(plan: Plan, saga: SagaRecord, name: str, *, called: bool) -> Change:
    """The step's call is to be made again later; not so if the saga turns round."""
    if saga.step(name).state != S.STARTED or not (is_backward(saga) or saga.reason):
        return Change(saga)
    if not is_backward(saga):
        return on_cancel(plan, saga, saga.reason or CANCELLED, idle={name: called})
    change = _backward(plan, _with(saga, name, Act.GIVE_UP if called else Act.SKIP, error=CANCELLED))
    return change._replace(cancels=(name,))


def on_cancel(plan: Plan, saga: SagaRecord, reason: str = CANCELLED, *, idle: Mapping[str, bool] = NOBODY) -> Change:
    """Somebody wants it undone. After the pivot nothing changes; while the pivot is being called, it is waited for."""
    if saga.state != R.RUNNING or past_pivot(plan, saga):
        return Change(saga)
    reason = reason[:_LONGEST]
    pivot = next((step.name for step in plan if step.pivot), None)
    if pivot is not None and saga.step(pivot).state == S.STARTED:
        if pivot not in idle:
            return Change(saga._replace(reason=saga.reason or reason))
        if idle[pivot] and _ends_way_back(plan, pivot):
            return Change(saga._replace(reason=None))
    return _turn(plan, saga, reason, idle)


def on_deadline(plan: Plan, saga: SagaRecord, *, idle: Mapping[str, bool] = NOBODY) -> Change:
    """Its time is over."""
    return on_cancel(plan, saga, DEADLINE, idle=idle)


def on_compensation_succeeded(plan: Plan, saga: SagaRecord, name: str, *, undo: int = 1) -> Change:
    """What the step did is undone. `undo` says which of its compensations that was; an older one no longer counts."""
    step = saga.step(name)
    if step.state not in (S.COMPENSATING, S.UNRESOLVED) or step.undos != undo:
        return Change(saga)
    return _backward(plan, _with(saga, name, Act.UNDONE, error=None))


def on_compensation_abandoned(plan: Plan, saga: SagaRecord, name: str, error: str, *, undo: int = 1) -> Change:
    """The compensation was given up: the saga is stuck."""
    step = saga.step(name)
    if step.state != S.COMPENSATING or step.undos != undo:
        return Change(saga)
    return _backward(plan, _with(saga, name, Act.GIVE_UP_UNDO, error=error))


def on_resume(plan: Plan, saga: SagaRecord, only: Collection[str] | None = None) -> Change:
    """Somebody has helped: what was given up in a stuck saga is tried again, all of it or `only` these steps."""
    if saga.state != R.STUCK:
        return Change(saga)
    backward = is_backward(saga)
    given_up = (S.UNRESOLVED,) if backward else (S.UNKNOWN, S.SKIPPED)
    again = tuple(step.name for step in saga.steps if step.state in given_up and (only is None or step.name in only))
    for name in again:
        saga = _with(saga, name, Act.RETRY, error=None)
    change = _backward(plan, saga) if backward else _forward(plan, saga)
    if backward:
        return change._replace(undos=again + change.undos)
    return change._replace(calls=again + change.calls)


def is_backward(saga: SagaRecord) -> bool:
    """Whether it is being undone. A saga that is stuck on its way back has a compensation that was given up."""
    if saga.state == R.STUCK:
        return any(step.state == S.UNRESOLVED for step in saga.steps)
    return saga.state in TURNED


def why(saga: SagaRecord) -> str | None:
    """Why it is where it is: `reason`, or what holds up its way back."""
    unresolved = next((step for step in saga.steps if step.state == S.UNRESOLVED), None)
    if unresolved is None:
        return saga.reason
    return f"compensation of {unresolved.name}: {unresolved.error}"[:_LONGEST]


def past_pivot(plan: Plan, saga: SagaRecord) -> bool:
    """Whether only the way forward is left."""
    return any(
        saga.step(step.name).state == S.DONE
        or (saga.step(step.name).state == S.UNKNOWN and _ends_way_back(plan, step.name))
        for step in plan
        if step.pivot
    )


def descendants(plan: Plan, name: str) -> frozenset[str]:
    """The steps that come after this one, at any distance."""
    return _closure(name, lambda one: {step.name for step in plan if one in step.after})


def ancestors(plan: Plan, name: str) -> frozenset[str]:
    """The steps that come before this one, at any distance."""
    return _closure(name, lambda one: set(_planned(plan, one).after))


def _closure(name: str, nearest: Callable[[str], set[str]]) -> frozenset[str]:
    found: set[str] = set()
    edge = nearest(name)
    while edge:
        found |= edge
        edge = {further for one in edge for further in nearest(one)} - found
    return frozenset(found)


def _ends_way_back(plan: Plan, name: str) -> bool:
    """A pivot that comes first and cannot be undone: once it may have happened, there is nothing to go back to."""
    step = _planned(plan, name)
    return step.pivot and not step.after and not step.compensable


def _turn(plan: Plan, saga: SagaRecord, reason: str, idle: Mapping[str, bool]) -> Change:
    """Turn round: take back what nobody is calling, then undo."""
    cancels = []
    for step in saga.steps:
        if step.state == S.WAITING:
            saga = _with(saga, step.name, Act.SKIP)
        elif step.state == S.STARTED and step.name in idle:
            cancels.append(step.name)
            saga = _with(saga, step.name, Act.GIVE_UP if idle[step.name] else Act.SKIP, error=CANCELLED)
    change = _backward(plan, saga._replace(reason=reason))
    return change._replace(cancels=tuple(cancels))


def _forward(plan: Plan, saga: SagaRecord) -> Change:
    """Begin whatever has its turn."""
    done = {step.name for step in saga.steps if step.state == S.DONE}
    ready = tuple(step.name for step in plan if saga.step(step.name).state == S.WAITING and done.issuperset(step.after))
    for name in ready:
        saga = _with(saga, name, Act.BEGIN)
    if len(done) == len(plan):
        return Change(_moved(saga, R.COMPLETED, None))
    if any(step.state in (S.UNKNOWN, S.SKIPPED) for step in saga.steps):
        return Change(_moved(saga, R.STUCK, saga.reason), ready)
    return Change(_moved(saga, R.RUNNING, None if saga.state == R.STUCK else saga.reason), ready)


def _backward(plan: Plan, saga: SagaRecord) -> Change:
    """Undo whatever has its turn: a step's compensation waits for everything that came after the step."""
    over = {step.name for step in plan if _is_over(step, saga.step(step.name).state)}
    ready = tuple(
        step.name
        for step in reversed(plan)
        if saga.step(step.name).state in MAY_HAVE_HAPPENED
        and step.compensable
        and over.issuperset(descendants(plan, step.name))
    )
    for name in ready:
        saga = _with(saga, name, Act.UNDO, undos=saga.step(name).undos + 1)
    if any(step.state == S.UNRESOLVED for step in saga.steps):
        return Change(_moved(saga, R.STUCK, saga.reason), undos=ready)
    state = R.COMPENSATED if len(over) == len(plan) else R.COMPENSATING
    return Change(_moved(saga, state, saga.reason), undos=ready)


def _is_over(step: PlannedStep, state: StepState) -> bool:
    """Whether nothing is left to do on the way back."""
    return state in (S.SKIPPED, S.COMPENSATED) or (state in MAY_HAVE_HAPPENED and not step.compensable)


def _moved(saga: SagaRecord, state: SagaState, reason: str | None) -> SagaRecord:
    if state != saga.state and state not in TRANSITIONS[saga.state]:
        raise ValueError(f"a saga does not go from {saga.state} to {state}")
    return SagaRecord(state, saga.steps, reason)


def _with(saga: SagaRecord, name: str, act: Act, **changes: Any) -> SagaRecord:
    steps = tuple(
        step._replace(state=STEPS[step.state, act], **changes) if step.name == name else step for step in saga.steps
    )
    return saga._replace(steps=steps)


def _planned(plan: Plan, name: str) -> PlannedStep:
    return next(step for step in plan if step.name == name)
