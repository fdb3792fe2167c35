"""OpenTelemetry: events, call and attempt durations as metrics, calls as spans. Needs the extra `otel`.

    default_hub().register(OtelListener())

guard.events{event,severity,operation}, guard.call.duration{operation,outcome},
guard.attempt.duration{operation,outcome,handled}, guard.circuit.state{name} (0 closed, 1 half-open, 2 open).

Events that say how they are counted add instruments of their own: letter.kept{domain,how},
letter.replay{domain,outcome}, letter.replay.duration{domain,outcome}, letter.sla_breached{domain}. So do `readings`,
which are asked for when the metrics are collected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as missing:
    raise ImportError('opentelemetry-api is not installed; run: pip install "holdfast[otel]"') from missing

from holdfast.core.outcome import OutcomeKind
from holdfast.telemetry.events import (
    AttemptCompleted,
    CallCompleted,
    CircuitStateChanged,
    GuardEvent,
    LoadShed,
    Severity,
)
from holdfast.telemetry.measure import Measure, MeasuredEvent, Reading
from holdfast.telemetry.metrics import Labels
from holdfast.telemetry.tracing import Attributes

SCOPE: Final = "holdfast"
STATES: Final = {"closed": 0, "half_open": 1, "open": 2}
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_log: Final = logging.getLogger("holdfast")


class _Measured:
    """The instruments of events with one measure."""

    def __init__(self, measure: Measure, meter: metrics.Meter) -> None:
        self._measure = measure
        self._counter = meter.create_counter(measure.name, "1", measure.text)
        self._times = None
        if measure.seconds is not None:
            self._times = meter.create_histogram(
                f"{measure.name}.{measure.timed}", "s", f"{measure.text}: {measure.timed}"
            )
        self._labels = {name: Labels() for name in measure.label_names()}

    def add(self, event: MeasuredEvent) -> None:
        given = self._measure.label_values(event)
        attributes = {name: label(value) for (name, label), value in zip(self._labels.items(), given, strict=True)}
        self._counter.add(1, attributes)
        if self._times is not None and self._measure.seconds is not None:
            self._times.record(getattr(event, self._measure.seconds), attributes)


def _observed(reading: Reading, options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
    for values, number in reading.values().items():
        yield metrics.Observation(number, dict(zip(reading.labels, values, strict=True)))


class WorkSpan:
    """A span that is open."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def failed(self, error: str) -> None:
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, error))

    def note(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)


class WorkSpans:
    """Spans around work that was made earlier: replays, outbox calls, tasks. They are current while the work is done,
    so what is made by it belongs to them."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def open(
        self, name: str, origin: Mapping[str, str] | None, attributes: Attributes, *, immediate: bool = False
    ) -> Iterator[WorkSpan]:
        """See `holdfast.telemetry.tracing.Spans`. What the work raises goes on, and is named in the span."""
        span = self._start(name, origin, attributes, immediate)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            made = WorkSpan(span)
            try:
                yield made
            except BaseException as error:
                made.failed(type(error).__name__)
                raise

    def _start(
        self, name: str, origin: Mapping[str, str] | None, attributes: Attributes, immediate: bool
    ) -> trace.Span:
        caused, here = _span_of(origin), trace.get_current_span().get_span_context()
        parent, links = None, list[trace.Link]()
        if caused is not None and caused.span_id != here.span_id:
            if immediate and not here.is_valid:
                parent = trace.set_span_in_context(trace.NonRecordingSpan(caused))
            else:
                links.append(trace.Link(caused))
        return _started(self._tracer, name, attributes, context=parent, kind=trace.SpanKind.CONSUMER, links=links)


def _span_of(origin: Mapping[str, str] | None) -> trace.SpanContext | None:
    """The span that these headers tell of; None where they do not, or not in the form of W3C."""
    if not origin:
        return None
    carrier = {name.lower(): value for name, value in origin.items()}
    found = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


class CallSpan:
    """A span around a guarded call, or around one of its attempts."""

    __slots__ = ("_name", "_span", "_tracer")

    def __init__(self, tracer: trace.Tracer, name: str, kind: str, parent: Context | None = None) -> None:
        self._tracer = tracer
        self._name = name
        self._span = _started(tracer, f"{kind} {name}", {"guard.operation": name}, context=parent)

    def enter(self) -> object:
        return context.attach(trace.set_span_in_context(self._span))

    def leave(self, token: Any) -> None:
        context.detach(token)

    def attempt(self, number: int) -> CallSpan:
        return CallSpan(self._tracer, self._name, "attempt", trace.set_span_in_context(self._span))

    def end(self, facts: Attributes, failure: str | None) -> None:
        self._span.set_attributes(dict(facts))
        if failure is not None:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, failure))
        self._span.end()


class CallSpans:
    """Spans of guarded calls, below whatever span the caller is in."""

    def __init__(self, tracer: trace.Tracer, operations: Labels) -> None:
        self._tracer = tracer
        self._operations = operations

    def begin(self, operation_key: str) -> CallSpan:
        return CallSpan(self._tracer, self._operations(operation_key), "guard")


def _started(tracer: trace.Tracer, name: str, attributes: Attributes, **options: Any) -> trace.Span:
    try:
        return tracer.start_span(name, attributes=dict(attributes), **options)
    except Exception:  # an exporter's or a sampler's: what it was to be around is done without a span
        _log.warning("the span %r could not be started", name, exc_info=True)
        return trace.INVALID_SPAN


class OtelListener:
    """Feeds OpenTelemetry instruments, from the global providers unless others are given.

    An attempt's duration and a span need an event per call. Without both (`attempts=False, spans=False`) the
    listener is quiet: calls come in batches, at the latest when the metrics are collected. `spans` makes one of each
    call and, below it, one of each attempt; what the attempt does is below that.

    `work` makes spans of replays, outbox calls and tasks, linked to the traces that caused them; unless it is given, it
    is as `spans`. They cost guarded calls nothing.
    """

    def __init__(
        self,
        *,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        attempts: bool = True,
        spans: bool = False,
        work: bool | None = None,
        readings: Iterable[Reading] = (),
    ) -> None:
        self._meter = meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._events = meter.create_counter("guard.events", "1", "Events of guards")
        self._calls = meter.create_histogram("guard.call.duration", "s", "Duration of guarded calls")
        self._attempts = (
            meter.create_histogram("guard.attempt.duration", "s", "Duration of single attempts") if attempts else None
        )
        meter.create_observable_gauge("guard.circuit.state", [self._observe], "1", "0 closed, 1 half-open, 2 open")
        for reading in readings:
            made = meter.create_observable_counter if reading.grows else meter.create_observable_gauge
            made(reading.name, [partial(_observed, reading)], "1", reading.text)
        self._measured: dict[str, _Measured] = {}
        tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._operations, self._circuits = Labels(), Labels()
        self.call_spans = CallSpans(tracer, self._operations) if spans else None
        self.spans = WorkSpans(tracer) if work or (work is None and spans) else None
        self.quiet = not (attempts or spans)
        self._flushes: tuple[Callable[[], None], ...] = ()
        self._states: dict[str, int] = {}
        self._lock = threading.Lock()

    def bind(self, flush: Callable[[], None]) -> None:
        """Called by a hub at registration, when this listener is quiet."""
        if flush not in self._flushes:
            self._flushes += (flush,)

    def unbind(self, flush: Callable[[], None]) -> None:
        """Called by a hub when it lets go of this listener."""
        self._flushes = tuple(bound for bound in self._flushes if bound != flush)

    def on_calls(self, operation_key: str, kind: OutcomeKind, durations: Sequence[float]) -> None:
        operation = self._operations(operation_key)
        self._count(CallCompleted, Severity.INFO, operation, len(durations))
        attributes = {"operation": operation, "outcome": kind.value}
        for duration in durations:
            self._calls.record(duration, attributes)

    def on_shed(self, operation_key: str, name: str, reason: str, count: int) -> None:
        self._count(LoadShed, Severity.ERROR, self._operations(operation_key), count)

    def on_event(self, event: GuardEvent) -> None:
        operation = self._operations(event.operation_key)
        self._count(type(event), event.severity, operation, 1)
        if isinstance(event, CallCompleted):
            attributes = {"operation": operation, "outcome": event.outcome.value}
            self._calls.record(event.duration_s, attributes)
        elif isinstance(event, AttemptCompleted):
            if self._attempts is not None:
                attempt: dict[str, str | bool] = {"operation": operation, "outcome": event.outcome.value}
                self._attempts.record(event.service_s, {**attempt, "handled": event.handled})
        elif isinstance(event, CircuitStateChanged):
            with self._lock:
                self._states[self._circuits(event.name)] = STATES.get(event.to_state, STATES["closed"])
        elif isinstance(event, MeasuredEvent):
            measured = self._measured.get(event.measure.name)
            if measured is None:
                with self._lock:
                    made = _Measured(event.measure, self._meter)
                    measured = self._measured.setdefault(event.measure.name, made)
            measured.add(event)

    def _count(self, kind: type[GuardEvent], severity: Severity, operation: str, count: int) -> None:
        attributes = {"event": kind.event_name, "severity": severity.value, "operation": operation}
        self._events.add(count, attributes)

    def _observe(self, options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        # A collection asks here before it reads the other instruments.
        for flush in self._flushes:
            flush()
        with self._lock:
            return [metrics.Observation(state, {"name": name}) for name, state in self._states.items()]
