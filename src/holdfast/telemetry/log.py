"""Events as log records, through the standard library."""

from __future__ import annotations

import logging
from typing import Any, Final

from holdfast.core.redact import redact
from holdfast.telemetry.events import GuardEvent, Severity

LEVELS: Final = {
    Severity.DEBUG: logging.DEBUG,
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}

_SHOWN_FIRST: Final = ("event", "severity", "operation_key", "at", "tags")


class LoggingListener:
    """Writes every event to a logger, `holdfast` unless another is given.

    The record's message is for people; its `guard_event` attribute is the event as plain values. Texts are redacted.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("holdfast")

    def on_event(self, event: GuardEvent) -> None:
        level = LEVELS[event.severity]
        if not self._logger.isEnabledFor(level):
            return
        fields = {name: _safe(value) for name, value in event.as_dict().items()}
        details = " ".join(
            f"{name}={value}" for name, value in fields.items() if name not in _SHOWN_FIRST and value is not None
        )
        # One key, because a record has attributes of its own, `name` among them.
        self._logger.log(
            level, "%s %s %s", event.event_name, fields["operation_key"], details, extra={"guard_event": fields}
        )


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: _safe(inner) for name, inner in value.items()}
    return value
