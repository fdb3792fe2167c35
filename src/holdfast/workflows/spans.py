"""Spans of time as users give them: seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import overload

from holdfast.core.check import check_wait

Span = float | timedelta


@overload
def seconds(field: str, span: None) -> None: ...
@overload
def seconds(field: str, span: Span) -> float: ...
@overload
def seconds(field: str, span: Span | None) -> float | None: ...
def seconds(field: str, span: Span | None) -> float | None:
    """A span in seconds; None stays None. Raises PolicyError for one that is not above 0, or above thirty years."""
    if span is None:
        return None
    value = span.total_seconds() if isinstance(span, timedelta) else span
    check_wait(field, value, "leave it out for none")
    return float(value)
