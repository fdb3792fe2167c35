"""The catalogue: everything a guard says about itself.

Each event knows its exported name (`event_name`, always `guard.…`) and its severity. Events are plain slotted
objects, because a loud listener pays for one or two of them on every call.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, ClassVar, Literal

from holdfast.core.outcome import OutcomeKind


class Severity(StrEnum):
    """How loudly an event asks for attention."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class GuardEvent:
    """Something that happened in a guarded call, or to a guard (then `call_id` is empty).

    `at` and `tags` are filled in by the hub that delivers the event.
    """

    __slots__ = ("operation_key", "call_id", "at", "tags", "_severity")

    event_name: ClassVar[str] = "guard.event"
    severity_rule: ClassVar[str] = "info"

    def __init__(self, operation_key: str, call_id: str) -> None:
        self.operation_key = operation_key
        self.call_id = call_id
        self.at: datetime | None = None
        self.tags: dict[str, Any] = {}
        self._severity: Severity | None = None

    @property
    def severity(self) -> Severity:
        """The hub's override, or what the catalogue says."""
        return self._severity or self.usual_severity()

    @severity.setter
    def severity(self, value: Severity) -> None:
        self._severity = value

    def usual_severity(self) -> Severity:
        """The catalogue's severity for this event."""
        return Severity(self.severity_rule)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """The event's own fields, in the order of its constructor."""
        code = cls.__init__.__code__
        return code.co_varnames[1 : code.co_argcount]

    def as_dict(self) -> dict[str, Any]:
        """The event as plain values: enums as their strings, times in ISO format."""
        shown: dict[str, Any] = {"event": self.event_name, "severity": self.severity.value}
        for name in self.field_names():
            shown[name] = _plain(getattr(self, name))
        if self.at is not None:
            shown["at"] = self.at.isoformat()
        if self.tags:
            shown["tags"] = dict(self.tags)
        return shown

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_plain(getattr(self, name))!r}" for name in self.field_names())
        return f"{type(self).__name__}({fields})"


class CallCompleted(GuardEvent):
    """A guarded call came to an outcome; `duration_s` covers waits and every attempt."""

    __slots__ = ("duration_s", "outcome", "error_type", "parent_call_id", "attempts", "reason")
    event_name = "guard.call_completed"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        duration_s: float,
        outcome: OutcomeKind,
        error_type: str | None = None,
        parent_call_id: str | None = None,
        attempts: int = 1,
        reason: str | None = None,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.duration_s = duration_s
        self.outcome = outcome
        self.error_type = error_type
        self.parent_call_id = parent_call_id
        self.attempts = attempts
        self.reason = reason


class CallInterrupted(GuardEvent):
    """A call ended without an outcome; it adds nothing to outcome counts."""

    __slots__ = ("reason", "duration_s")
    event_name = "guard.call_interrupted"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        reason: Literal["cancelled", "passthrough", "interrupted"],
        duration_s: float,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.reason = reason
        self.duration_s = duration_s


class AttemptCompleted(GuardEvent):
    """One run of the callee ended.

    `number` is 0 for the first, `wait` the time queued for admission, `delay` the backoff before it;
    `handled` says that the guard treats the outcome as a failure, `last` that no attempt follows.
    """

    __slots__ = (
        "number", "outcome", "wait", "service_s", "endpoint", "policy_id", "handled", "last",
        "delay", "status_code", "error_type", "reason", "failover_round",
    )  # fmt: skip
    event_name = "guard.attempt_completed"
    severity_rule = "info; warning if retried; error if last"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        number: int,
        outcome: OutcomeKind,
        wait: float = 0.0,
        service_s: float = 0.0,
        endpoint: str | None = None,
        policy_id: str | None = None,
        handled: bool = False,
        last: bool = False,
        delay: float = 0.0,
        status_code: int | None = None,
        error_type: str | None = None,
        reason: str | None = None,
        failover_round: int = 0,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.number = number
        self.outcome = outcome
        self.wait = wait
        self.service_s = service_s
        self.endpoint = endpoint
        self.policy_id = policy_id
        self.handled = handled
        self.last = last
        self.delay = delay
        self.status_code = status_code
        self.error_type = error_type
        self.reason = reason
        self.failover_round = failover_round

    def usual_severity(self) -> Severity:
        if not self.handled:
            return Severity.INFO
        return Severity.ERROR if self.last else Severity.WARNING


class CircuitStateChanged(GuardEvent):
    """A circuit moved; `cause` is the rule or the operator's act that moved it."""

    __slots__ = ("name", "from_state", "to_state", "cause", "failure_count")
    event_name = "guard.circuit_state_changed"
    severity_rule = "error opening; warning half-open; info closing"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        name: str,
        from_state: str,
        to_state: str,
        cause: str | None = None,
        failure_count: int = 0,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.name = name
        self.from_state = from_state
        self.to_state = to_state
        self.cause = cause
        self.failure_count = failure_count

    def usual_severity(self) -> Severity:
        if self.to_state == "open":
            return Severity.ERROR
        return Severity.WARNING if self.to_state == "half_open" else Severity.INFO


class LoadShed(GuardEvent):
    """A guard refused a call before the callee ran; `name` is the strategy that refused."""

    __slots__ = ("name", "reason", "retry_after")
    event_name = "guard.load_shed"
    severity_rule = "error"

    def __init__(
        self, operation_key: str, call_id: str, name: str, reason: str, retry_after: float | None = None
    ) -> None:
        super().__init__(operation_key, call_id)
        self.name = name
        self.reason = reason
        self.retry_after = retry_after


class RetryScheduled(GuardEvent):
    """Attempt `attempt` (0-based) failed and another one follows after `wait` seconds."""

    __slots__ = ("attempt", "wait")
    event_name = "guard.retry_scheduled"
    severity_rule = "warning"

    def __init__(self, operation_key: str, call_id: str, attempt: int, wait: float) -> None:
        super().__init__(operation_key, call_id)
        self.attempt = attempt
        self.wait = wait


class RetryDeferred(GuardEvent):
    """A nested retry made one attempt and left the rest to the outer guard `to`."""

    __slots__ = ("attempt", "to")
    event_name = "guard.retry_deferred"
    severity_rule = "warning"

    def __init__(self, operation_key: str, call_id: str, attempt: int, to: str) -> None:
        super().__init__(operation_key, call_id)
        self.attempt = attempt
        self.to = to


class TimedOut(GuardEvent):
    """A time limit of `limit` seconds (None: a deadline's) ended a call or an attempt; `kind` says which limit."""

    __slots__ = ("limit", "kind")
    event_name = "guard.timed_out"
    severity_rule = "error"

    def __init__(self, operation_key: str, call_id: str, limit: float | None, kind: str = "total") -> None:
        super().__init__(operation_key, call_id)
        self.limit = limit
        self.kind = kind


class FellBack(GuardEvent):
    """The fallback answered instead of a call that came to `outcome`; `succeeded` is False when it raised."""

    __slots__ = ("outcome", "reason", "succeeded")
    event_name = "guard.fell_back"
    severity_rule = "warning"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        outcome: OutcomeKind,
        reason: str | None = None,
        succeeded: bool = True,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.outcome = outcome
        self.reason = reason
        self.succeeded = succeeded


class Hedged(GuardEvent):
    """Hedge `number` (1 = the first besides the primary) started after `delay` seconds."""

    __slots__ = ("number", "delay")
    event_name = "guard.hedged"
    severity_rule = "warning"

    def __init__(self, operation_key: str, call_id: str, number: int, delay: float) -> None:
        super().__init__(operation_key, call_id)
        self.number = number
        self.delay = delay


class ChaosInjected(GuardEvent):
    """Chaos of this kind (fault, outcome, latency, behaviour) was put into a call on purpose."""

    __slots__ = ("kind",)
    event_name = "guard.chaos_injected"

    def __init__(self, operation_key: str, call_id: str, kind: str) -> None:
        super().__init__(operation_key, call_id)
        self.kind = kind


class Reloaded(GuardEvent):
    """A guard took new policies; running calls finish on the old ones."""

    __slots__ = ("kind",)
    event_name = "guard.reloaded"

    def __init__(self, operation_key: str, call_id: str = "", kind: str = "replace") -> None:
        super().__init__(operation_key, call_id)
        self.kind = kind


class ReloadFailed(GuardEvent):
    """New policies were refused; the old ones stay in force."""

    __slots__ = ("error",)
    event_name = "guard.reload_failed"
    severity_rule = "error"

    def __init__(self, operation_key: str, call_id: str, error: str) -> None:
        super().__init__(operation_key, call_id)
        self.error = error


CATALOGUE: tuple[type[GuardEvent], ...] = (
    CallCompleted, CallInterrupted, AttemptCompleted, CircuitStateChanged, LoadShed, RetryScheduled,
    RetryDeferred, TimedOut, FellBack, Hedged, ChaosInjected, Reloaded, ReloadFailed,
)  # fmt: skip


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
