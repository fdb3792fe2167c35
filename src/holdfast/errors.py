"""The one exception tree.

A *condition* is the system working as designed and saying no; it has no suffix. A *fault* ends in Error.

    HoldfastError
    ├── GuardRejected            the callee never ran: reason, retry_after, guard
    │   ├── CircuitOpen
    │   ├── BulkheadFull
    │   ├── RateLimited
    │   ├── DeadlineExpired
    │   ├── BudgetExhausted
    │   ├── Throttled
    │   └── PoolExhausted
    ├── GuardTimeout             also a TimeoutError; the callee may have run
    ├── OutcomeError             an outcome without an error of its own was unwrapped
    ├── PolicyError              also a ValueError; an impossible policy, refused when it is built
    ├── InvalidValue             also a ValueError; an argument that cannot be meant
    ├── Conflict                 others changed a record first: which changes could not be made
    ├── StoreError               the store did not do what it was asked
    │   ├── StoreUnavailable     it cannot be reached: url, what to do
    │   └── SchemaError          its tables are not of this version: how to upgrade
    ├── ConfigurationError       parts that do not fit together, or a request that cannot be honoured: what to do
    ├── ResolverError            an external call that no retry can mend
    │   └── ResolverContractError  it answered with what no resolver may answer
    ├── AuditIntegrityError      the trail would lie, or does: a repeated event, an unknown type, a broken chain
    ├── WorkflowError            a workflow, or a task of one
    │   ├── TransientError       worth another try: retry_after, context_update
    │   │   ├── ConcurrencyError   somebody else changed the stage first: expected and found
    │   │   ├── BulkheadFullError  no slot for the task's type, and no room to wait for one
    │   │   └── CircuitOpenError   the circuit of the task's type is open
    │   ├── PermanentError       no retry can mend it
    │   ├── TaskError            a task did not do what it should
    │   │   ├── TaskTimeoutError   also a TimeoutError; it took too long
    │   │   │   └── BulkheadTimeoutError  with the wait for a slot
    │   │   └── TaskNotFoundError  nobody has registered a task of that name
    │   ├── WorkflowNotFoundError  there is no workflow of that id
    │   │   └── StageNotFoundError  the workflow is there, and has no stage of that name
    │   ├── WorkflowDefinitionError  also a ValueError; a graph that can never run: code, members
    │   ├── InvalidStateTransitionError  a state that cannot be reached from the one before
    │   ├── VerificationError    a task succeeded, and what it left is not what was asked for
    │   ├── RecoveryError        a workflow could not be taken up again
    │   └── DeadLetterError      a message could not be handled, and is kept aside
    └── MissingExtra             also an ImportError; an optional package is not installed: the pip line

A user's own exception is always re-raised as itself, never wrapped in one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

if TYPE_CHECKING:
    from datetime import timedelta

_MOST_NAMES: Final = 20


class HoldfastError(Exception):
    """The root of everything Holdfast raises on its own account."""


class GuardRejected(HoldfastError):
    """A guard refused the call before the callee ran: `(guard, retry_after, detail)`, all optional."""

    # The fields live in `args` and the message is made on demand: a refusal must stay cheaper than the call it
    # saves, and a constructor in Python would cost as much as everything else that a refusal does.
    if TYPE_CHECKING:

        def __init__(self, guard: str = "", retry_after: float | None = None, detail: str = "", /) -> None: ...

    reason: ClassVar[str] = "rejected"

    @property
    def guard(self) -> str:
        """Who refused."""
        return self.args[0] if self.args else ""

    @property
    def retry_after(self) -> float | None:
        """Seconds until it would be worth trying again; None if nobody knows."""
        return self.args[1] if len(self.args) > 1 else None

    @property
    def detail(self) -> str:
        return self.args[2] if len(self.args) > 2 else ""

    def __str__(self) -> str:
        text = f"{self.guard or 'guard'}: {self.detail or self.reason}"
        return text if self.retry_after is None else f"{text} (retry after {self.retry_after:.3g} s)"


class CircuitOpen(GuardRejected):
    """The circuit breaker is open; `__cause__` is the exception that opened it."""

    reason = "circuit_open"


class BulkheadFull(GuardRejected):
    """Every slot is taken and the queue is full, or the wait for a slot ran out."""

    reason = "bulkhead_full"


class RateLimited(GuardRejected):
    """No token is left; `retry_after` says when the next one comes."""

    reason = "rate_limited"


class DeadlineExpired(GuardRejected):
    """The caller's deadline had passed before the callee could start."""

    reason = "deadline_expired"


class BudgetExhausted(GuardRejected):
    """The retry budget refused a direct request for another try."""

    reason = "budget_exhausted"


class Throttled(GuardRejected):
    """The adaptive throttle shed the call because too many recent ones failed."""

    reason = "throttled"


class PoolExhausted(GuardRejected):
    """No endpoint of the pool may be called now."""

    reason = "pool_exhausted"


REJECTIONS: dict[str, type[GuardRejected]] = {
    kind.reason: kind
    for kind in (
        CircuitOpen, BulkheadFull, RateLimited, DeadlineExpired, BudgetExhausted, Throttled, PoolExhausted,
    )
}  # fmt: skip


class GuardTimeout(HoldfastError, TimeoutError):
    """A time limit ended the call; the callee may have run, and may still be running."""

    def __init__(self, guard: str = "", limit: float | None = None, detail: str = "") -> None:
        super().__init__()  # an OSError would take the fields for errno and file name
        self.guard = guard
        self.limit = limit
        self.detail = detail

    def __str__(self) -> str:
        text = self.detail or "timed out"
        return f"{self.guard or 'guard'}: {text}" + ("" if self.limit is None else f" after {self.limit:.3g} s")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.guard!r}, {self.limit!r}, {self.detail!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.guard, self.limit, self.detail)


class OutcomeError(HoldfastError):
    """An outcome that is no success and captured no exception was unwrapped."""

    def __init__(self, kind: Any, detail: str | None = None) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}" if self.detail else str(self.kind.value)


class PolicyError(HoldfastError, ValueError):
    """A policy cannot work as given; the message names field, value and fix."""


class InvalidValue(HoldfastError, ValueError):
    """An argument that cannot be meant; the message names it, what was given, and what it may be."""


class Conflict(HoldfastError):
    """A record is not as it was read, or one like it exists already. `lost` are the positions in the commit."""

    def __init__(self, detail: str, lost: tuple[int, ...] = ()) -> None:
        super().__init__(detail, lost)
        self.detail = detail
        self.lost = lost

    def __str__(self) -> str:
        return self.detail


class StoreError(HoldfastError):
    """The store did not do what it was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached."""


class SchemaError(StoreError):
    """The store's tables are not of the version that this program needs."""


class ConfigurationError(HoldfastError):
    """Parts do not fit together, or what is asked of them cannot be done; the message names the part and the fix."""


class ResolverError(HoldfastError):
    """An external call failed in a way that no retry can mend. Raise it yourself to have an entry abandoned at once."""


class ResolverContractError(ResolverError):
    """An external call answered with a value of a type that it may not answer with."""


class AuditIntegrityError(HoldfastError):
    """The audit trail does not say what happened, or would not: a repeated event id, an unregistered type."""


class WorkflowError(HoldfastError):
    """A workflow, or a task of one, could not do what it should."""


class TransientError(WorkflowError):
    """Worth another try: raise it in a task to have it called again.

    `retry_after` (seconds, or a timedelta) replaces the delay of the policy. `context_update` is merged into the
    stage's context before the next try.
    """

    def __init__(
        self, *args: Any, retry_after: float | timedelta | None = None, context_update: dict[str, Any] | None = None
    ) -> None:
        super().__init__(*args)
        # A timedelta is known by its method: to import it would cost a sync program more than this whole file.
        seconds: Any = getattr(retry_after, "total_seconds", lambda: retry_after)()
        self.retry_after: float | None = seconds
        self.context_update = dict(context_update or {})

    def __reduce__(self) -> Any:
        return _remade, (type(self), self.args, {**self.__dict__})


class ConcurrencyError(TransientError):
    """Somebody else changed the stage, task or workflow first. `expected` and `found` are (phase, version)."""

    def __init__(self, *args: Any, expected: Any = None, found: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.expected = expected
        self.found = found


class BulkheadFullError(TransientError):
    """Every slot of a task's type is taken, and so is every place to wait for one."""


class CircuitOpenError(TransientError):
    """The circuit of a task's type is open: `retry_after` is what is left of its cooldown."""


class PermanentError(WorkflowError):
    """No retry can mend it: raise it in a task to end the stage at once."""


class TaskError(WorkflowError):
    """A task did not do what it should."""


class TaskTimeoutError(TaskError, TimeoutError):
    """A task took longer than it may."""


class BulkheadTimeoutError(TaskTimeoutError):
    """A task, or its wait for a slot, took longer than it may."""


class TaskNotFoundError(TaskError):
    """No task is registered under that name."""


class WorkflowNotFoundError(WorkflowError):
    """There is no workflow of that id."""


class StageNotFoundError(WorkflowNotFoundError):
    """There is no stage of that name, or of that id."""

    @classmethod
    def among(cls, workflow: str, ref: str, there: Iterable[str]) -> Self:
        """The workflow, as a message calls it, has no stage `ref`, and has these."""
        return cls(f"{workflow} has no stage {ref!r}; there are {some_of(there)}")


class WorkflowDefinitionError(WorkflowError, ValueError):
    """A workflow that can never run. `code` says what is wrong with it, `members` are the stages concerned."""

    def __init__(self, code: str, detail: str, members: tuple[str, ...] = ()) -> None:
        super().__init__(code, detail, members)
        self.code = code
        self.detail = detail
        self.members = members

    def __str__(self) -> str:
        return f"{self.detail} ({self.code})"


class InvalidStateTransitionError(WorkflowError):
    """A state that cannot be reached from the one before."""

    def __init__(self, what: str, before: str, after: str, allowed: Sequence[str] = (), advice: str = "") -> None:
        super().__init__(what, before, after, tuple(allowed), advice)
        self.what = what
        self.before = before
        self.after = after
        self.allowed = tuple(allowed)
        self.advice = advice

    def __str__(self) -> str:
        story = f"{self.what} cannot go from {self.before} to {self.after}"
        if self.allowed:
            return f"{story}; from there it can go to {', '.join(self.allowed)}"
        return f"{story}: it has ended" + (f"; {self.advice}" if self.advice else "")


class VerificationError(WorkflowError):
    """A task succeeded, and what it left behind is not what was asked for."""


class RecoveryError(WorkflowError):
    """A workflow could not be taken up again."""


class DeadLetterError(WorkflowError):
    """A message could not be handled, and is kept aside."""


def some_of(names: Iterable[str]) -> str:
    """The first of these names by the alphabet, for a message, and how many more there are."""
    found = sorted(names)
    more = len(found) - _MOST_NAMES
    return (", ".join(found[:_MOST_NAMES]) or "none") + (f" and {more} more" if more > 0 else "")


def _remade(kind: type[TransientError], args: tuple[Any, ...], fields: dict[str, Any]) -> TransientError:
    error = kind(*args)
    error.__dict__.update(fields)
    return error


class MissingExtra(HoldfastError, ImportError):
    """An optional package is not installed; the message is the line that installs it."""
