"""What sharing says about itself. `operation_key` is the store's url."""

from __future__ import annotations

from holdfast.telemetry.events import GuardEvent, Severity


class SharingChanged(GuardEvent):
    """The store of shared breakers went away, or came back; meanwhile every process decides alone."""

    __slots__ = ("is_connected", "error")
    event_name = "breaker.sharing_changed"
    severity_rule = "warning lost; info found"

    def __init__(self, operation_key: str, call_id: str, is_connected: bool, error: str | None = None) -> None:
        super().__init__(operation_key, call_id)
        self.is_connected = is_connected
        self.error = error

    def usual_severity(self) -> Severity:
        return Severity.INFO if self.is_connected else Severity.WARNING
