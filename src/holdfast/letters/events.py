"""What replay, recovery and maintenance say about themselves. `operation_key` is the letters' domain."""

from __future__ import annotations

from typing import Final

from holdfast.telemetry.events import GuardEvent, Severity
from holdfast.telemetry.measure import Measure, MeasuredEvent

HOWS: Final = ("stored", "spooled", "rejected", "lost")
"""What can become of a letter."""


class LetterKept(MeasuredEvent):
    """A call failed for good: `how` says whether its letter was stored, spooled, rejected or lost."""

    __slots__ = ("letter_id", "failure_type", "how", "reason")
    event_name = "letter.kept"
    measure = Measure("letter.kept", "Failed calls by what became of their letter", ("how",), key="domain")
    severity_rule = "warning; error rejected, lost"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        letter_id: str | None,
        failure_type: str,
        how: str,
        reason: str | None = None,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.letter_id = letter_id
        self.failure_type = failure_type
        self.how = how
        self.reason = reason

    def usual_severity(self) -> Severity:
        return Severity.WARNING if self.how in ("stored", "spooled") else Severity.ERROR


class LetterReplayed(MeasuredEvent):
    """A letter was tried again, or was to be: `outcome` is succeeded, failed, returned, refused, skipped, lost …"""

    __slots__ = ("letter_id", "outcome", "attempt", "trigger", "duration_s", "status", "error_type", "reason")
    event_name = "letter.replayed"
    measure = Measure("letter.replay", "Replays of dead letters", ("outcome",), key="domain", seconds="duration_s")
    severity_rule = "info; warning failed; error when it was the last attempt"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        letter_id: str,
        outcome: str,
        attempt: int = 0,
        trigger: str = "",
        duration_s: float = 0.0,
        status: str = "",
        error_type: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.letter_id = letter_id
        self.outcome = outcome
        self.attempt = attempt
        self.trigger = trigger
        self.duration_s = duration_s
        self.status = status
        self.error_type = error_type
        self.reason = reason

    def usual_severity(self) -> Severity:
        if self.outcome in ("succeeded", "returned", "refused", "skipped"):
            return Severity.INFO
        return Severity.ERROR if self.status == "requires_review" else Severity.WARNING


class DrainEnded(GuardEvent):
    """A sweep of a domain came to its end; `cause` says what began it, `reason` what ended it."""

    __slots__ = ("cause", "reason", "succeeded", "failed", "returned", "rounds", "duration_s")
    event_name = "letter.drain_ended"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        cause: str,
        reason: str,
        succeeded: int = 0,
        failed: int = 0,
        returned: int = 0,
        rounds: int = 0,
        duration_s: float = 0.0,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.cause = cause
        self.reason = reason
        self.succeeded = succeeded
        self.failed = failed
        self.returned = returned
        self.rounds = rounds
        self.duration_s = duration_s


class ReplayPaused(GuardEvent):
    """An operator paused the replay of a domain, or let it go on."""

    __slots__ = ("paused", "by", "reason")
    event_name = "letter.replay_paused"
    severity_rule = "warning"

    def __init__(self, operation_key: str, call_id: str, paused: bool, by: str = "", reason: str = "") -> None:
        super().__init__(operation_key, call_id)
        self.paused = paused
        self.by = by
        self.reason = reason


class BulkChanged(GuardEvent):
    """A bulk operation began, waits, was aborted or came to its end."""

    __slots__ = ("bulk_id", "action", "state", "done", "total", "succeeded", "failed", "skipped", "note")
    event_name = "letter.bulk_changed"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        bulk_id: str,
        action: str,
        state: str,
        done: int = 0,
        total: int = 0,
        succeeded: int = 0,
        failed: int = 0,
        skipped: int = 0,
        note: str = "",
    ) -> None:
        super().__init__(operation_key, call_id)
        self.bulk_id = bulk_id
        self.action = action
        self.state = state
        self.done = done
        self.total = total
        self.succeeded = succeeded
        self.failed = failed
        self.skipped = skipped
        self.note = note


class SlaBreached(MeasuredEvent):
    """A letter has waited longer than its domain's service level allows; told once per letter."""

    __slots__ = ("letter_id", "age_s", "limit_s")
    event_name = "letter.sla_breached"
    measure = Measure("letter.sla_breached", "Dead letters that have waited too long", key="domain")
    severity_rule = "warning"

    def __init__(self, operation_key: str, call_id: str, letter_id: str, age_s: float, limit_s: float) -> None:
        super().__init__(operation_key, call_id)
        self.letter_id = letter_id
        self.age_s = age_s
        self.limit_s = limit_s


class MaintenanceRan(GuardEvent):
    """The store was tidied up; the numbers say what moved."""

    __slots__ = ("released", "expired", "archived", "purged", "aged", "breached", "duration_s")
    event_name = "letter.maintenance_ran"
    severity_rule = "debug"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        released: int = 0,
        expired: int = 0,
        archived: int = 0,
        purged: int = 0,
        aged: int = 0,
        breached: int = 0,
        duration_s: float = 0.0,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.released = released
        self.expired = expired
        self.archived = archived
        self.purged = purged
        self.aged = aged
        self.breached = breached
        self.duration_s = duration_s


class WorkerTroubled(GuardEvent):
    """A part of the worker failed; it goes on with the others and tries again."""

    __slots__ = ("part", "error")
    event_name = "letter.worker_troubled"
    severity_rule = "error"

    def __init__(self, operation_key: str, call_id: str, part: str, error: str) -> None:
        super().__init__(operation_key, call_id)
        self.part = part
        self.error = error


CATALOGUE: tuple[type[GuardEvent], ...] = (
    LetterKept, LetterReplayed, DrainEnded, ReplayPaused, BulkChanged, SlaBreached, MaintenanceRan, WorkerTroubled,
)  # fmt: skip
