"""Traces across time: the W3C context of the code that makes work, as texts to keep with it, and spans around the work.

Nothing here needs OpenTelemetry: a program that has not loaded it has no trace, and a hub without `spans` makes none.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACE_HEADERS: Final = frozenset({TRACEPARENT, TRACESTATE})

Attributes = Mapping[str, str | int]


class Span(Protocol):
    """A span around work that is being done."""

    def failed(self, error: str) -> None:
        """It did not come to a good end; `error` names the kind of it, never a message."""
        ...

    def note(self, name: str, value: str | int) -> None: ...


class Spans(Protocol):
    """Whoever makes spans; a hub finds it as `spans` of a listener."""

    def open(
        self, name: str, origin: Mapping[str, str] | None, attributes: Attributes, *, immediate: bool = False
    ) -> AbstractContextManager[Span]:
        """A span around work whose origin has these headers. It is linked to the span that made the work, or that one's
        child where the work follows it immediately."""
        ...


class CallSpan(Protocol):
    """A span around a guarded call, or around one attempt of it."""

    def enter(self) -> object:
        """Make it the current one, here; `leave` takes what this gives."""
        ...

    def leave(self, token: Any) -> None: ...

    def attempt(self, number: int) -> CallSpan:
        """A span below this one, for the attempt of this number."""
        ...

    def end(self, facts: Attributes, failure: str | None) -> None:
        """`failure` names the kind of a bad end."""
        ...


class CallSpans(Protocol):
    """Whoever makes spans of guarded calls; a hub finds it as `call_spans` of a listener."""

    def begin(self, operation_key: str) -> CallSpan:
        """A span below the current one. It must not raise."""
        ...


def current_trace() -> dict[str, str]:
    """The headers of the span that this code runs in; empty where the program traces nothing."""
    span = _span_context()
    if span is None:
        return {}
    headers = {TRACEPARENT: f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"}
    state = span.trace_state.to_header() if span.trace_state else ""
    return {**headers, TRACESTATE: state} if state else headers


def trace_ids() -> dict[str, str]:
    """The ids of trace and span that this code runs in, as people look for them."""
    span = _span_context()
    return {} if span is None else {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


def _span_context() -> Any:
    trace: Any = sys.modules.get("opentelemetry.trace")
    # Another thread may be in the middle of importing it.
    ask = getattr(trace, "get_current_span", None)
    if ask is None:
        return None
    span = ask().get_span_context()
    return span if span.is_valid else None
