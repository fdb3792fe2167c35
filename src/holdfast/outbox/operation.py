"""What kinds of external calls there are, and what a call may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from inspect import Parameter, Signature, iscoroutinefunction
from typing import Any, Final, Literal, NamedTuple, Protocol
from uuid import UUID

from holdfast.audit.event import AuditEvent
from holdfast.core.deadline import Deadline
from holdfast.errors import ConfigurationError, InvalidValue
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.subject import Correction, SubjectRef
from holdfast.store.codec import clean_text

Facts = Mapping[str, str | int | bool]
_NO_FACTS: Final[Facts] = {}
SOONEST: Final = timedelta(seconds=1)
"""The least that a `RetryAfter` waits. It costs no attempt, so what is due again at once would never end."""
_TOLD: Final = frozenset(
    {"operation", "target", "external", "attempts", "prior_attempts", "error", "abandoned", "confirmed_absent"}
)


class Done(NamedTuple):
    """The call has happened. `result` is kept (JSON) and handed to the next step of a saga; `facts` are audited."""

    result: Any = None
    facts: Facts = _NO_FACTS


class Park(NamedTuple):
    """The call cannot be finished before that time, and costs no attempt until then."""

    until: datetime
    facts: Facts = _NO_FACTS


class RetryAfter(NamedTuple):
    """Not now; try again after that time, or after a second if it is less. It costs no attempt."""

    delay: timedelta
    reason: str = "RetryAfter"


class Discard(NamedTuple):
    """It will never succeed: give it up now. `reason` is a name, not a message: it is audited."""

    reason: str


Answer = Done | Park | RetryAfter | Discard


@dataclass(slots=True)
class CallContext:
    """What a call knows of itself."""

    entry_id: UUID
    operation: str
    target: str
    attempt: int
    """1 for the first call."""
    subject_id: str
    ref: SubjectRef
    payload: Any
    corrections: tuple[Correction, ...]
    deadline: Deadline | None
    """When the call is cut off; it bounds every guard below."""
    headers: Mapping[str, str]
    """Of the request that enqueued the entry, such as `traceparent`."""
    saga_id: UUID | None = None
    step: str | None = None
    previous: Any = None
    """What the step before in the same saga gave."""
    heartbeat: Callable[[], None] | None = None
    """Raises if the entry was lost. The lease is renewed by itself; a long call may ask whether it still matters."""
    ordering_key: str | None = None
    enqueued_at: datetime | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt, and after a requeue."""
        return str(self.entry_id)


class StepEvents(NamedTuple):
    """The names under which an operation's outcomes are audited."""

    succeeded: str
    failed: str
    requeued: str
    parked: str = ""
    completed: str = ""
    verified: str = ""
    unverified: str = ""

    @classmethod
    def of(cls, name: str) -> StepEvents:
        """The usual names."""
        words = ("succeeded", "failed", "requeued", "parked", "completed", "verified", "verification_failed")
        return cls(*(f"{name}_{word}" for word in words))


OPERATION_EVENTS: Final = StepEvents.of("operation")
"""Those of operations without names of their own. The trail says with each whose outcome it is, and every reader knows
them: also one that has not registered the operation.
"""


class Targets(Protocol):
    """Where an operation finds what it calls."""

    def get(self, name: str) -> Any:
        """Raises ResolverError for a name that is not there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kind of external call: `call(target, context)` makes it, and answers Done, Park, RetryAfter or Discard.

    A plain function may be async or not; one that is not runs in a thread. None counts as Done. A ResolverError, and
    whatever `permanent` names, abandons the entry at once; any other exception is retried.
    """

    name: str
    call: Callable[[Any, CallContext], Answer | Awaitable[Answer | None] | None]
    targets: Targets | None = None
    """None: the registry of the runner."""
    events: StepEvents | None = OPERATION_EVENTS
    """The names under which its outcomes are audited. None: they are not."""
    facts: frozenset[str] = frozenset()
    """What a call may say in the trail; anything else is left out of it."""
    labels: Facts = field(default_factory=dict)
    """What the trail says of every failure."""
    grouped: bool = False
    """Whether the entries of a subject complete together."""
    sensitive: bool = True
    """Whether the payload is scrubbed as soon as the entry has ended."""
    needs_payload: bool = False
    signature: Signature | None = None
    """What the names of a payload must fit, where it becomes the arguments of a function. None: anything fits."""
    permanent: tuple[type[Exception], ...] = ()
    unknown_target: Literal["abandon", "defer"] | None = None
    max_attempts: int | None = None
    backoff: BackoffPolicy | None = None
    timeout: timedelta | None = None
    concurrency: int | None = None
    """How many calls one runner makes to one target at a time."""
    guard: Any = None
    """A guard around each call, or a function that gives one for a target's name."""
    complete_in: Callable[[Any, Any, Any], None] | None = None
    """Called with (session, entry, result) in the transaction that settles a success: writes of the caller's own."""
    verify: Callable[[Any, CallContext], Any] | None = None
    """Asked after a success is on disk: whether it has really happened (True), or None if the target cannot tell."""
    can_verify: Callable[[Any], bool] | None = None
    """Whether a target can be asked at all. None: every one can."""
    takes_entry: bool = False
    """Whether `call` gets the entry in place of a context, of which it would use no more than what both have."""
    is_async: bool = field(init=False, repr=False, compare=False)
    """Whether `call` is a coroutine function."""

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not 1 <= len(name) <= 32 or clean_text(name) != name:
            raise ConfigurationError(f"Operation.name must be a text of 1 to 32 characters, got {self.name!r}")
        self._check_trail()
        if not callable(self.call):
            raise ConfigurationError(f"Operation.call must be a function of (target, context), got {self.call!r}")
        object.__setattr__(self, "is_async", iscoroutinefunction(self.call))
        within: Any = self.complete_in
        if within is not None and (not callable(within) or iscoroutinefunction(within)):
            raise ConfigurationError(f"Operation.complete_in must be a plain function, got {within!r}")
        for name in ("max_attempts", "concurrency"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ConfigurationError(f"Operation.{name} must be a whole number of at least 1, got {number!r}")
        timeout: Any = self.timeout
        if timeout is not None and (not isinstance(timeout, timedelta) or timeout <= timedelta(0)):
            raise ConfigurationError(f"Operation.timeout must be a timedelta above 0, got {timeout!r}")
        if self.unknown_target not in (None, "abandon", "defer"):
            raise ConfigurationError(
                f"Operation.unknown_target must be 'abandon', 'defer' or None, got {self.unknown_target!r}"
            )

    def _check_trail(self) -> None:
        """Raises ConfigurationError for what no event can hold: met at an outcome, it would keep that one from being
        written.
        """
        events: Any = self.events
        if events is not None and not isinstance(events, StepEvents):
            story = f"Operation.events must be StepEvents, or None for no audit, got {events!r}"
            raise ConfigurationError(f"{story}; use StepEvents.of({self.name!r})")
        if taken := _TOLD.intersection((*self.facts, *self.labels)):
            story = "which the trail says by itself; give it another name"
            raise ConfigurationError(f"Operation.facts and labels cannot have {min(taken)!r}, {story}")
        _check_event("labels", self.labels, payload=self.labels)
        for field_name, kind in () if events is None else events._asdict().items():
            if kind or field_name not in StepEvents._field_defaults:
                _check_event(f"events.{field_name}", kind, event_type=kind)

    @property
    def takes(self) -> frozenset[str] | None:
        """The names that a payload may have; None: any."""
        parameters = {} if self.signature is None else self.signature.parameters
        if self.signature is None or any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values()):
            return None
        return frozenset(parameters)

    def check(self, payload: Any) -> None:
        """Raises ValueError for a payload that the function would not take: it would fail at every attempt."""
        if self.signature is None:
            return
        if payload is not None and not isinstance(payload, Mapping):
            takes = "a payload of its arguments by name"
            raise InvalidValue(f"operation {self.name!r} takes {takes}, got {payload!r:.100}; give a dict")
        try:
            self.signature.bind(**(payload or {}))
        except TypeError as error:
            takes = ", ".join(map(str, self.signature.parameters.values())) or "nothing"
            raise InvalidValue(f"operation {self.name!r} takes {takes}: {error}") from None


def _check_event(what: str, given: Any, **parts: Any) -> None:
    try:
        AuditEvent(**{"event_type": "operation", "subject_ref": "-", **parts})
    except ValueError as error:
        raise ConfigurationError(f"Operation.{what}: no event can have {given!r} ({error})") from error


class OperationRegistry:
    """Operations by name."""

    def __init__(self, *operations: Operation) -> None:
        self._operations: dict[str, Operation] = {}
        for operation in operations:
            self.register(operation)

    def register(self, operation: Operation) -> Operation:
        """Raises ConfigurationError for a name that is taken."""
        if not isinstance(operation, Operation):
            raise ConfigurationError(
                f"an Operation is registered here, got {operation!r}; write Operation(name=…, call=…)"
            )
        if operation.name in self._operations:
            raise ConfigurationError(f"operation {operation.name!r} is already registered")
        self._operations[operation.name] = operation
        return operation

    def find(self, name: str) -> Operation | None:
        return self._operations.get(name)

    def __iter__(self) -> Iterator[Operation]:
        return iter(tuple(self._operations.values()))

    def is_sensitive(self, name: str) -> bool:
        """Whether payloads of the operation are scrubbed; of one that nobody knows they are."""
        found = self._operations.get(name)
        return found is None or found.sensitive

    def event_types(self) -> frozenset[str]:
        """The names of all events that these operations write."""
        return frozenset(name for one in self._operations.values() for name in one.events or () if name)
