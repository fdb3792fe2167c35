"""What a guarded call came to: the vocabulary that retry, breaker and capture share.

The kind alone decides whether a result is retried or counts against a dependency, so nothing downstream
looks at exceptions again.
"""

from __future__ import annotations

from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar

from holdfast.errors import GuardRejected, GuardTimeout, OutcomeError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Evidence(StrEnum):
    """What a result tells a breaker about the dependency."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


class OutcomeKind(StrEnum):
    """The outcome taxonomy. REJECTED means that the callee never ran.

    `evidence` is what a closed breaker learns; half-open, a terminal failure proves that the dependency answers.
    """

    is_success: bool
    is_failure: bool
    is_retryable: bool
    counts_toward_circuit_trip: bool
    has_value: bool
    evidence: Evidence

    # value, is_failure, is_retryable (and counts toward a trip), evidence
    SUCCESS = "success", False, False, Evidence.SUCCESS
    TIMEOUT = "timeout", True, True, Evidence.FAILURE
    REJECTED = "rejected", False, False, Evidence.NEUTRAL
    TRANSIENT_FAILURE = "transient_failure", True, True, Evidence.FAILURE
    TERMINAL_FAILURE = "terminal_failure", True, False, Evidence.NEUTRAL
    PARTIAL = "partial", False, False, Evidence.SUCCESS

    def __new__(cls, value: str, failure: bool, retryable: bool, evidence: Evidence) -> OutcomeKind:
        member = str.__new__(cls, value)
        member._value_ = value
        member.is_success = value == "success"
        member.is_failure = failure
        member.is_retryable = member.counts_toward_circuit_trip = retryable
        member.has_value = evidence is Evidence.SUCCESS
        member.evidence = evidence
        return member

    # Enum hashes in Python; the hot paths keep counts by kind.
    __hash__ = str.__hash__


StoppedBy = Literal["deadline", "budget", "nested", "health_gate", "not_idempotent", "retry_after"]


class Verdict:
    """A classifier's full answer: the kind, and optionally when to retry and what the breaker should learn."""

    __slots__ = ("evidence", "kind", "retry_after")

    def __init__(
        self, kind: OutcomeKind, *, retry_after: float | None = None, evidence: Evidence | None = None
    ) -> None:
        self.kind = kind
        self.retry_after = retry_after
        self.evidence = evidence

    def __repr__(self) -> str:
        return f"Verdict({self.kind.value}, retry_after={self.retry_after}, evidence={self.evidence})"


class _Fields:
    """The open form of an outcome while it is being made: plain slot stores are six times cheaper than frozen ones."""

    __slots__ = (
        "_detail", "_traceback", "attempts", "error", "evidence", "kind", "metadata", "reason", "retry_after", "value",
    )  # fmt: skip

    kind: OutcomeKind
    value: Any
    error: BaseException | None
    metadata: dict[str, Any]
    reason: str | None
    retry_after: float | None
    attempts: int
    evidence: Evidence | None
    _detail: str | None
    _traceback: TracebackType | None


class Outcome(_Fields, Generic[T_co]):
    """A value or an error, and its kind. Frozen: whoever holds one may share it.

    `attempts` is the number of calls made, `reason` the code of a refusal, `evidence` a classifier's own word
    for the breaker where it differs from the kind's.
    """

    __slots__ = ()

    def __new__(
        cls,
        kind: OutcomeKind,
        value: T_co | None = None,
        error: BaseException | None = None,
        detail: str | None = None,
        metadata: dict[str, Any] | None = None,
        reason: str | None = None,
        retry_after: float | None = None,
        attempts: int = 0,
        evidence: Evidence | None = None,
    ) -> Outcome[T_co]:
        return outcome_of(kind, value, error, detail, metadata, reason, retry_after, attempts, evidence)

    @classmethod
    def success(cls, value: T, detail: str | None = None, **metadata: Any) -> Outcome[T]:
        """A success; None is a legal value."""
        return Outcome(OutcomeKind.SUCCESS, value, None, detail, metadata)

    @classmethod
    def failure(
        cls,
        kind: OutcomeKind,
        error: BaseException | None = None,
        detail: str | None = None,
        *,
        value: Any = None,
        reason: str | None = None,
        retry_after: float | None = None,
        attempts: int = 0,
        evidence: Evidence | None = None,
        **metadata: Any,
    ) -> Outcome[Any]:
        """An outcome of any other kind. A TIMEOUT without an error gets a GuardTimeout.

        Raises ValueError for SUCCESS.
        """
        if kind is OutcomeKind.SUCCESS:
            raise ValueError("Outcome.failure cannot be a SUCCESS; use Outcome.success(value)")
        if error is None and kind is OutcomeKind.TIMEOUT:
            error = GuardTimeout(detail=detail or "")
        return Outcome(kind, value, error, detail, metadata, reason, retry_after, attempts, evidence)

    @classmethod
    def rejected(cls, error: GuardRejected, attempts: int = 0, **metadata: Any) -> Outcome[Any]:
        """A refusal, with the reason and the retry_after of its error."""
        return Outcome(OutcomeKind.REJECTED, None, error, None, metadata, error.reason, error.retry_after, attempts)

    @property
    def detail(self) -> str | None:
        """What happened, in words: as given, or else "Type: message" of the error."""
        if self._detail is None and self.error is not None:
            return describe_error(self.error)
        return self._detail

    @property
    def is_success(self) -> bool:
        return self.kind is OutcomeKind.SUCCESS

    @property
    def is_failure(self) -> bool:
        return self.kind.is_failure

    @property
    def is_retryable(self) -> bool:
        return self.kind.is_retryable

    @property
    def stopped_by(self) -> StoppedBy | None:
        """What ended the retrying before the attempts were used up, if anything did."""
        return self.metadata.get("stopped_by")

    @property
    def late(self) -> bool:
        """Whether a value arrived, but after the time limit (a sync call that could not be cut)."""
        return bool(self.metadata.get("late"))

    def unwrap(self) -> T_co:
        """The value of a SUCCESS or PARTIAL; otherwise raises the captured error itself.

        Raises OutcomeError when there is no captured error.
        """
        if self.kind.has_value:
            return self.value  # type: ignore[no-any-return]
        if self.error is None:
            raise OutcomeError(self.kind, self.detail)
        error, traceback = self.error, self._traceback
        try:
            # Raising appends to a traceback; starting from the captured one keeps repetition from growing it.
            raise error.with_traceback(traceback)
        finally:
            del error, traceback, self  # this frame is in the error's traceback: no cycle

    def evolve(self, **changes: Any) -> Outcome[T_co]:
        """A copy with other field values; `metadata` given here is merged into what is there."""
        fields = {name: getattr(self, name) for name in _PUBLIC}
        fields["metadata"] = {**self.metadata, **changes.pop("metadata", {})}
        return Outcome(**{**fields, **changes})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Outcome is frozen; use outcome.evolve({name}=...) for a changed copy")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an Outcome is frozen")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Outcome):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _PUBLIC)

    def __hash__(self) -> int:
        return hash((self.kind, self.reason, self.attempts))

    def __repr__(self) -> str:
        shown = self.value if self.kind.has_value else self.detail
        return f"<Outcome {self.kind.value}: {shown!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Outcome, tuple(getattr(self, name) for name in _PUBLIC)


def outcome_of(
    kind: OutcomeKind,
    value: Any,
    error: BaseException | None,
    detail: str | None,
    metadata: dict[str, Any] | None,
    reason: str | None,
    retry_after: float | None,
    attempts: int,
    evidence: Evidence | None,
) -> Outcome[Any]:
    """`Outcome(...)`, a third cheaper: without the detour through the class's own call."""
    made = _new(_Fields)
    made.kind = kind
    made.value = value
    made.error = error
    made.metadata = {} if metadata is None else metadata
    made.reason = reason
    made.retry_after = retry_after
    made.attempts = attempts
    made.evidence = evidence
    made._detail = detail
    made._traceback = None if error is None else error.__traceback__
    made.__class__ = Outcome  # same layout, now frozen
    return made  # type: ignore[return-value]


_new: Final = object.__new__

_PUBLIC: Final = ("kind", "value", "error", "detail", "metadata", "reason", "retry_after", "attempts", "evidence")


def describe_error(error: BaseException) -> str:
    """The detail text of a captured error: "Type: message"."""
    return f"{type(error).__name__}: {error}"
