"""What a saga consists of: its steps, their compensations, and which of them come first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from holdfast.errors import ConfigurationError
from holdfast.machine.saga import UNDO_ATTEMPTS, Direction, Plan, PlannedStep, ancestors, descendants
from holdfast.outbox.functions import operation_of
from holdfast.outbox.operation import Operation, OperationRegistry
from holdfast.outbox.subject import LONGEST

Payload = Mapping[str, Any] | Callable[[Any, Mapping[str, Any]], Mapping[str, Any] | None]
"""What a call gets: values, or a function of the saga's data and of the results of the steps that are done."""
Callee = str | Operation | Callable[..., Any]
"""A registered operation's name, an operation, or a function that gets the payload as its arguments."""


@dataclass(frozen=True, slots=True)
class Step:
    """One external call of a saga, and the call that undoes it.

    It begins when the steps named in `after` are done; None: the step that stands before it, (): at once. `target`
    names what the operation calls. Without a `payload` it gets the saga's data, and a function what of the data it has
    parameters for; so does a compensation, which must accept that its step has never happened, and that it is called
    twice.
    """

    name: str
    operation: Callee
    target: str | None = None
    payload: Payload | None = None
    compensation: Callee | None = None
    compensation_payload: Payload | None = None
    compensation_target: str | None = None
    pivot: bool = False
    after: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= LONGEST:
            raise ConfigurationError(f"a step's name has 1 to {LONGEST} characters, {self.name!r} has {len(self.name)}")
        if isinstance(self.after, str):
            raise ConfigurationError(f"step {self.name!r}: after must be a list of names, got the text {self.after!r}")
        if self.compensation is None and (self.compensation_payload is not None or self.compensation_target):
            raise ConfigurationError(f"step {self.name!r} says how to compensate, but not with which operation")


@dataclass(frozen=True, slots=True)
class Saga:
    """A definition. Give it another `version` when steps change: sagas that have begun keep theirs, and need it.

    A saga that is not past its pivot when the `deadline` has passed is undone.
    """

    name: str
    steps: Sequence[Step]
    _: KW_ONLY
    version: int = 1
    deadline: timedelta | None = None
    queue: str = "default"

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= LONGEST:
            raise ConfigurationError(f"a saga's name has 1 to {LONGEST} characters, {self.name!r} has {len(self.name)}")
        if self.version < 1:
            raise ConfigurationError(f"Saga.version must be at least 1, got {self.version}")
        if self.deadline is not None and self.deadline <= timedelta(0):
            raise ConfigurationError(f"Saga.deadline must be above 0, got {self.deadline}; leave it out for none")
        steps: Any = self.steps
        if not isinstance(steps, Sequence) or not all(isinstance(step, Step) for step in steps):
            raise ConfigurationError(f"saga {self.name!r}: steps must be a list of Step, got {self.steps!r}")
        object.__setattr__(self, "steps", tuple(self.steps))
        _check(self)

    @property
    def plan(self) -> Plan:
        """The steps as the machine sees them."""
        return tuple(
            PlannedStep(step.name, self.before(at), step.compensation is not None, step.pivot)
            for at, step in enumerate(self.steps)
        )

    def before(self, at: int) -> tuple[str, ...]:
        """The steps that must be done before the one at this place."""
        after = self.steps[at].after
        if after is None:
            return (self.steps[at - 1].name,) if at else ()
        return tuple(after)


def _check(saga: Saga) -> None:
    """Raises ConfigurationError for a saga that cannot be meant."""
    names = [step.name for step in saga.steps]
    if not names:
        raise ConfigurationError(f"saga {saga.name!r} has no steps")
    for at, name in enumerate(names):
        if name in names[:at]:
            raise ConfigurationError(f"saga {saga.name!r} has two steps {name!r}; give one another name")
        for other in saga.before(at):
            if other not in names:
                raise ConfigurationError(f"step {name!r} comes after {other!r}, which saga {saga.name!r} does not have")
    plan = saga.plan
    for name in names:
        if name in ancestors(plan, name):
            raise ConfigurationError(f"saga {saga.name!r}: step {name!r} comes after itself; break the circle")
    pivots = [step.name for step in saga.steps if step.pivot]
    if len(pivots) > 1:
        raise ConfigurationError(f"saga {saga.name!r} has several pivots ({', '.join(pivots)}); it can have one")
    for pivot in pivots:
        beside = set(names) - {pivot} - ancestors(plan, pivot) - descendants(plan, pivot)
        if beside:
            story = f"step {min(beside)!r} runs beside the pivot {pivot!r}"
            raise ConfigurationError(f"saga {saga.name!r}: {story}; put it before or after")


class Call(NamedTuple):
    """How a step, or its compensation, is called."""

    operation: str
    target: str
    payload: Payload | None
    fields: frozenset[str] | None
    """Of the saga's data, what the call gets where it has no payload of its own; None: all."""

    def payload_for(self, data: Any, results: Mapping[str, Any]) -> dict[str, Any] | None:
        if callable(self.payload):
            made = self.payload(data, results)
            return None if made is None else dict(made)
        if self.payload is not None:
            return dict(self.payload)
        given = dict(data or {})
        return given if self.fields is None else {key: given[key] for key in given if key in self.fields}


class Wired(NamedTuple):
    """A definition whose operations are registered: the calls of each step."""

    saga: Saga
    plan: Plan
    forward: Mapping[str, Call]
    backward: Mapping[str, Call]
    sensitive: bool
    """Whether its data is scrubbed when it has ended."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.plan)


def wire(saga: Saga, operations: OperationRegistry) -> Wired:
    """Register what the definition brings along.

    Raises ConfigurationError for an operation that nobody registered, and for a name that another one has.
    """
    forward, backward = {}, {}
    for step in saga.steps:
        own = f"{saga.name}.{step.name}" + (f".v{saga.version}" if saga.version > 1 else "")
        forward[step.name] = _call(step.operation, own, step.target, step.payload, operations, None)
        if step.compensation is not None:
            target = step.compensation_target or step.target
            payload = step.compensation_payload
            backward[step.name] = _call(step.compensation, f"{own}.undo", target, payload, operations, UNDO_ATTEMPTS)
    used = {call.operation for call in (*forward.values(), *backward.values())}
    return Wired(saga, saga.plan, forward, backward, any(map(operations.is_sensitive, used)))


def _call(
    callee: Callee,
    own: str,
    target: str | None,
    payload: Payload | None,
    operations: OperationRegistry,
    max_attempts: int | None,
) -> Call:
    match callee:
        case str():
            name = callee
            if operations.find(name) is None:
                known = ", ".join(sorted(one.name for one in operations))
                raise ConfigurationError(f"no operation {name!r} is registered, only {known}; register it first")
        case Operation():
            name = callee.name
            if operations.find(name) is None:
                operations.register(_with_budget(callee, max_attempts))
        case _:
            name = own
            if len(name) > 32:
                raise ConfigurationError(f"{name!r} is too long for an operation; register the function by a name")
            operations.register(operation_of(name, callee, max_attempts=max_attempts))
    found = operations.find(name)
    return Call(name, target or name, payload, None if found is None else found.takes)


def _with_budget(operation: Operation, max_attempts: int | None) -> Operation:
    return replace(operation, max_attempts=max_attempts) if operation.max_attempts is None else operation


def forward_id(saga_id: UUID, step: str) -> UUID:
    """The id of a step's entry: always the same, so that it cannot be called under two keys."""
    return uuid5(saga_id, f"{Direction.FORWARD}/{step}")


def backward_id(saga_id: UUID, step: str, undo: int) -> UUID:
    """The id of a step's compensation: the same for every attempt of it."""
    return uuid5(saga_id, f"{Direction.BACKWARD}/{step}/{undo}")
