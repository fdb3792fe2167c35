"""What the runner of the outbox says about itself. `operation_key` is the operation's name, unless said otherwise."""

from __future__ import annotations

from typing import Final

from holdfast.telemetry.events import GuardEvent, Severity
from holdfast.telemetry.measure import Measure, MeasuredEvent

_QUIET: Final = ("succeeded", "released")


class BatchClaimed(MeasuredEvent):
    """A runner claimed entries, the oldest of which has waited for `lag_s`. `operation_key` names the queues."""

    __slots__ = ("size", "lag_s")
    event_name = "outbox.claimed"
    measure = Measure("outbox.claim", "Claimed batches of outbox entries", key="queue", seconds="lag_s", timed="lag")
    severity_rule = "debug"

    def __init__(self, operation_key: str, call_id: str, size: int, lag_s: float) -> None:
        super().__init__(operation_key, call_id)
        self.size = size
        self.lag_s = lag_s


class EntryCalled(MeasuredEvent):
    """An entry's call has ended and is settled: `outcome` is succeeded, failed, refunded, parked or abandoned."""

    __slots__ = ("entry_id", "target", "outcome", "attempts", "duration_s", "error")
    event_name = "outbox.called"
    measure = Measure("outbox.call", "Calls of outbox entries", ("target", "outcome"), seconds="duration_s")
    severity_rule = "debug; info unless it succeeded"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        entry_id: str,
        target: str,
        outcome: str,
        attempts: int,
        duration_s: float,
        error: str | None = None,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.entry_id = entry_id
        self.target = target
        self.outcome = outcome
        self.attempts = attempts
        self.duration_s = duration_s
        self.error = error

    def usual_severity(self) -> Severity:
        return Severity.DEBUG if self.outcome in _QUIET else Severity.INFO


class EntryAbandoned(MeasuredEvent):
    """An entry was given up."""

    __slots__ = ("entry_id", "target", "error", "attempts")
    event_name = "outbox.abandoned"
    measure = Measure("outbox.abandoned", "Outbox entries that were given up", ("target", "error"))
    severity_rule = "error"

    def __init__(self, operation_key: str, call_id: str, entry_id: str, target: str, error: str, attempts: int) -> None:
        super().__init__(operation_key, call_id)
        self.entry_id = entry_id
        self.target = target
        self.error = error
        self.attempts = attempts


class EntryParked(MeasuredEvent):
    """An entry waits until a time that its target named; `overdue` if that was too often, or too long."""

    __slots__ = ("entry_id", "target", "until", "parks", "overdue")
    event_name = "outbox.parked"
    measure = Measure("outbox.parked", "Outbox entries that were put off", ("target",))
    severity_rule = "info; warning when overdue"

    def __init__(
        self, operation_key: str, call_id: str, entry_id: str, target: str, until: str, parks: int, overdue: bool
    ) -> None:
        super().__init__(operation_key, call_id)
        self.entry_id = entry_id
        self.target = target
        self.until = until
        self.parks = parks
        self.overdue = overdue

    def usual_severity(self) -> Severity:
        return Severity.WARNING if self.overdue else Severity.INFO


class EntryRefunded(MeasuredEvent):
    """An entry could not be called now, and was put back without the loss of an attempt."""

    __slots__ = ("entry_id", "target", "error", "until")
    event_name = "outbox.refunded"
    measure = Measure("outbox.refunded", "Outbox entries that were put back uncalled", ("target", "error"))

    def __init__(self, operation_key: str, call_id: str, entry_id: str, target: str, error: str, until: str) -> None:
        super().__init__(operation_key, call_id)
        self.entry_id = entry_id
        self.target = target
        self.error = error
        self.until = until


class SettleLost(MeasuredEvent):
    """A call ended after its claim had gone to another runner: nothing was written."""

    __slots__ = ("entry_id", "target", "attempts")
    event_name = "outbox.lost"
    measure = Measure("outbox.lost", "Calls whose claim was lost", ("target",))
    severity_rule = "warning"

    def __init__(self, operation_key: str, call_id: str, entry_id: str, target: str, attempts: int) -> None:
        super().__init__(operation_key, call_id)
        self.entry_id = entry_id
        self.target = target
        self.attempts = attempts


class EntryVerified(MeasuredEvent):
    """A target was asked whether a success is real: `verdict` is confirmed, failed, pending (asked again later) or
    given_up."""

    __slots__ = ("entry_id", "target", "verdict", "attempts", "error")
    event_name = "outbox.verified"
    measure = Measure("outbox.verified", "Read-backs of outbox entries", ("target", "verdict"))
    severity_rule = "info; error failed, given_up"

    def __init__(
        self,
        operation_key: str,
        call_id: str,
        entry_id: str,
        target: str,
        verdict: str,
        attempts: int,
        error: str | None = None,
    ) -> None:
        super().__init__(operation_key, call_id)
        self.entry_id = entry_id
        self.target = target
        self.verdict = verdict
        self.attempts = attempts
        self.error = error

    def usual_severity(self) -> Severity:
        return Severity.ERROR if self.verdict in ("failed", "given_up") else Severity.INFO


class RunnerTroubled(GuardEvent):
    """A part of the runner failed: settle, heartbeat, verify, hook. What it was about is done again later."""

    __slots__ = ("part", "error", "entry_id")
    event_name = "outbox.troubled"
    severity_rule = "error"

    def __init__(self, operation_key: str, call_id: str, part: str, error: str, entry_id: str | None = None) -> None:
        super().__init__(operation_key, call_id)
        self.part = part
        self.error = error
        self.entry_id = entry_id


class SagaMoved(MeasuredEvent):
    """A saga came into another state. `operation_key` is its definition."""

    __slots__ = ("saga_id", "state", "reason")
    event_name = "saga.moved"
    measure = Measure("saga.moved", "Sagas by the state they came into", ("state",), key="definition")
    severity_rule = "info; warning compensating; error stuck"

    def __init__(self, operation_key: str, call_id: str, saga_id: str, state: str, reason: str | None = None) -> None:
        super().__init__(operation_key, call_id)
        self.saga_id = saga_id
        self.state = state
        self.reason = reason

    def usual_severity(self) -> Severity:
        return {"compensating": Severity.WARNING, "stuck": Severity.ERROR}.get(self.state, Severity.INFO)


CATALOGUE: tuple[type[GuardEvent], ...] = (
    BatchClaimed, EntryCalled, EntryAbandoned, EntryParked, EntryRefunded, SettleLost, EntryVerified, RunnerTroubled,
    SagaMoved,
)  # fmt: skip
