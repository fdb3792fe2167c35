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
    ├── Conflict                 others changed a record first: which changes could not be made
    ├── StoreError               the store did not do what it was asked
    │   ├── StoreUnavailable     it cannot be reached: url, what to do
    │   └── SchemaError          its tables are not of this version: how to upgrade
    ├── ConfigurationError       parts that do not fit together, or a request that cannot be honoured: what to do
    ├── ResolverError            an external call that no retry can mend
    │   └── ResolverContractError  it answered with what no resolver may answer
    ├── AuditIntegrityError      the trail would lie, or does: a repeated event, an unknown type, a broken chain
    └── MissingExtra             also an ImportError; an optional package is not installed: the pip line

A user's own exception is always re-raised as itself, never wrapped in one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar


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


class MissingExtra(HoldfastError, ImportError):
    """An optional package is not installed; the message is the line that installs it."""
