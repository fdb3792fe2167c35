"""What is told of accounts. `operation_key` is the account; of one that is unknown nothing that was typed is told."""

from __future__ import annotations

from holdfast.telemetry.events import GuardEvent, Severity

UNKNOWN = "unknown"


class SignInTried(GuardEvent):
    """Somebody has given a name and a password: `reason` says what was wrong with it."""

    __slots__ = ("is_granted", "address", "reason")
    event_name = "access.sign_in"
    severity_rule = "info granted; warning refused"

    def __init__(
        self, operation_key: str, call_id: str, is_granted: bool, address: str | None = None, reason: str | None = None
    ) -> None:
        super().__init__(operation_key, call_id)
        self.is_granted = is_granted
        self.address = address
        self.reason = reason

    def usual_severity(self) -> Severity:
        return Severity.INFO if self.is_granted else Severity.WARNING


class AccountChanged(GuardEvent):
    """A user or a token was made, changed or taken away."""

    __slots__ = ("what", "by")
    event_name = "access.changed"
    severity_rule = "info"

    def __init__(self, operation_key: str, call_id: str, what: str, by: str) -> None:
        super().__init__(operation_key, call_id)
        self.what = what
        self.by = by


CATALOGUE: tuple[type[GuardEvent], ...] = (SignInTried, AccountChanged)
