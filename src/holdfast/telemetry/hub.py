"""Where events go: listeners, isolated from the calls and from each other.

A *loud* listener gets events one by one. A *quiet* one (`quiet = True`) gets calls and refusals in batches
through meters, and otherwise only rare events, so that counting costs a call one list append. Either kind may
name the event classes it cares for in `wants`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.outcome import OutcomeKind
from holdfast.telemetry.events import GuardEvent, Severity
from holdfast.telemetry.metrics import InMemoryMetrics

if TYPE_CHECKING:
    from holdfast.telemetry.tracing import CallSpans, Spans

BATCH: Final = 512
# An operation key made from user data must not become a leak: later ones share a meter.
MAX_METERS: Final = 4096
OTHER: Final = "other"


class TelemetryListener(Protocol):
    """Anything that wants to know; a plain callable taking the event will do as well."""

    def on_event(self, event: GuardEvent) -> None: ...


class Watcher(Protocol):
    """Somebody who must know at any moment whether the hub is loud."""

    def told(self, loud: bool) -> None: ...


Listener = TelemetryListener | Callable[[GuardEvent], object]
Enricher = Callable[[GuardEvent], Mapping[str, Any] | None]


class Meter:
    """What one operation's calls came to, until enough is gathered to hand over.

    Guards append successful durations to `pending`, and (name, reason) of a call refused at once to `refused`,
    themselves and call `fold` at `BATCH`.
    """

    __slots__ = ("_hub", "_lock", "_others", "_sheds", "operation_key", "pending", "refused")

    def __init__(self, hub: Hub, operation_key: str) -> None:
        self.operation_key = operation_key
        self.pending: list[float] = []
        self._others: list[tuple[OutcomeKind, float]] = []
        self._sheds: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self._hub = hub
        self._lock = threading.RLock()

    def add(self, kind: OutcomeKind, duration: float) -> None:
        """Note a call of any kind."""
        self._others.append((kind, duration))
        if len(self._others) >= BATCH:
            self.fold()

    def shed(self, name: str, reason: str) -> None:
        """Note a refusal by the strategy `name`."""
        self._sheds.append((name, reason))
        if len(self._sheds) >= BATCH:
            self.fold()

    def fold(self) -> None:
        """Hand everything noted so far to the hub's quiet listeners."""
        with self._lock:
            successes, others, sheds = _take(self.pending), _take(self._others), _take(self._sheds)
            refused = _take(self.refused)
        by_kind: dict[OutcomeKind, list[float]] = {OutcomeKind.SUCCESS: successes} if successes else {}
        if refused:
            by_kind[OutcomeKind.REJECTED] = [0.0] * len(refused)
        for kind, duration in others:
            by_kind.setdefault(kind, []).append(duration)
        tally = _count(refused + sheds)
        for sink in self._hub.quiet_sinks:
            for kind, durations in by_kind.items():
                sink.attempt(sink.on_calls, self.operation_key, kind, durations)
            for (name, reason), count in tally.items():
                sink.attempt(sink.on_shed, self.operation_key, name, reason, count)


class _Sink:
    """A registered listener, with its methods looked up once and its failures kept in."""

    __slots__ = ("_hub", "complained", "listener", "on_calls", "on_event", "on_shed", "quiet", "wants")

    def __init__(self, hub: Hub, listener: Any) -> None:
        self._hub = hub
        self.complained = False
        self.listener = listener
        self.quiet = bool(getattr(listener, "quiet", False))
        self.on_event = getattr(listener, "on_event", listener if callable(listener) and not self.quiet else None)
        self.on_calls = getattr(listener, "on_calls", None) if self.quiet else None
        self.on_shed = getattr(listener, "on_shed", None) if self.quiet else None
        wants = getattr(listener, "wants", None)
        self.wants: tuple[type[GuardEvent], ...] | None = None if wants is None else tuple(wants)
        if not callable(self.on_event) and not callable(self.on_calls):
            raise TypeError(
                f"a listener must be callable, or have on_event(event), or on_calls(...) with quiet = True; "
                f"got {listener!r}"
            )

    def attempt(self, method: Callable[..., object] | None, *args: Any) -> None:
        """Call the listener; what it raises is logged once and counted, and goes no further."""
        if method is None:
            return
        try:
            method(*args)
        except Exception as error:
            self._hub.note_failure(self, error)


class Hub:
    """Delivers events to listeners and batches to quiet ones.

    `loud` says whether anyone needs an event for every call (or guards are switched off); guards read it first.
    `severity_overrides` maps event names to a severity, or to None to suppress them; an enricher returns tags
    to merge into the event.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        severity_overrides: Mapping[str, Severity | None] | None = None,
        enrichers: Iterable[Enricher] = (),
    ) -> None:
        self.loud = False
        self.off = False
        self.listener_failures = 0
        # Replaced whole on every change, so that delivery needs no lock.
        self.loud_sinks: tuple[_Sink, ...] = ()
        self.quiet_sinks: tuple[_Sink, ...] = ()
        self.spans: Spans | None = None
        """Who makes spans around replays, outbox calls and tasks, if a listener does."""
        self.call_spans: CallSpans | None = None
        """Who makes spans around guarded calls and their attempts; only a loud listener can."""
        self._clock = clock
        self._severities = {name: _severity(name, level) for name, level in (severity_overrides or {}).items()}
        self._enrichers = tuple(_Sink(self, enricher) for enricher in enrichers)
        self._meters: dict[str, Meter] = {}
        self._watchers: WeakSet[Watcher] = WeakSet()
        self._lock = threading.RLock()

    def register(self, listener: Listener) -> None:
        """Add a listener; adding it again changes nothing.

        Raises TypeError for something that cannot listen.
        """
        sink = _Sink(self, listener)
        if sink.quiet:
            self.flush()  # what happened before is not the newcomer's
        with self._lock:
            if any(_same(known.listener, listener) for known in self.loud_sinks + self.quiet_sinks):
                return
            if sink.quiet:
                self.quiet_sinks += (sink,)
            else:
                self.loud_sinks += (sink,)
                self._set_loud()
            self._set_spans()
        sink.attempt(getattr(listener, "bind", None) if sink.quiet else None, self.flush)

    def unregister(self, listener: Listener) -> None:
        """Remove a listener; an unknown one is ignored."""
        self.flush()
        with self._lock:
            gone = [s for s in self.loud_sinks + self.quiet_sinks if _same(s.listener, listener)]
            self.loud_sinks = tuple(sink for sink in self.loud_sinks if sink not in gone)
            self.quiet_sinks = tuple(sink for sink in self.quiet_sinks if sink not in gone)
            self._set_loud()
            self._set_spans()
        for sink in gone:
            sink.attempt(getattr(listener, "unbind", None) if sink.quiet else None, self.flush)

    def switch(self, off: bool) -> None:
        """Turn every guard on this hub into a plain call, or back: for tests and emergencies."""
        with self._lock:
            self.off = off
            self._set_loud()

    def watch(self, watcher: Watcher) -> None:
        """Keep `watcher.told(loud)` up to date, for whoever cannot afford to ask on every call; held weakly."""
        with self._lock:
            self._watchers.add(watcher)
            watcher.told(self.loud)

    def _set_loud(self) -> None:
        self.loud = self.off or bool(self.loud_sinks)
        for watcher in tuple(self._watchers):
            watcher.told(self.loud)

    def _set_spans(self) -> None:
        made = (getattr(sink.listener, "spans", None) for sink in self.loud_sinks + self.quiet_sinks)
        self.spans = next((spans for spans in made if callable(getattr(spans, "open", None))), None)
        of_calls = (getattr(sink.listener, "call_spans", None) for sink in self.loud_sinks)
        self.call_spans = next((spans for spans in of_calls if callable(getattr(spans, "begin", None))), None)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Who listens, loud ones first."""
        return tuple(sink.listener for sink in self.loud_sinks + self.quiet_sinks)

    def set_severity(self, event_name: str, severity: Severity | None) -> None:
        """Override the severity of an event by its exported name; None suppresses the event."""
        with self._lock:
            self._severities = {**self._severities, event_name: _severity(event_name, severity)}

    def add_enricher(self, enricher: Enricher) -> None:
        """Merge what `enricher(event)` returns into the tags of every event delivered from now on."""
        with self._lock:
            self._enrichers += (_Sink(self, enricher),)

    def hears(self, kind: type[GuardEvent]) -> bool:
        """Whether anybody wants events of this kind: for who makes many of them."""
        return any(one.wants is None or issubclass(kind, one.wants) for one in self.loud_sinks + self.quiet_sinks)

    def emit(self, event: GuardEvent) -> None:
        """Deliver an event to everyone who wants its kind."""
        self._deliver(event, self.loud_sinks + self.quiet_sinks)

    def emit_loud(self, event: GuardEvent) -> None:
        """Deliver an event that the meters count already: to the loud listeners only."""
        self._deliver(event, self.loud_sinks)

    def meter(self, operation_key: str) -> Meter:
        """The operation's meter, one per key."""
        meter = self._meters.get(operation_key)
        if meter is None:
            with self._lock:
                if len(self._meters) >= MAX_METERS:
                    operation_key = OTHER
                meter = self._meters.setdefault(operation_key, Meter(self, operation_key))
        return meter

    def flush(self) -> None:
        """Hand over what the meters hold."""
        for meter in tuple(self._meters.values()):
            meter.fold()

    def note_failure(self, sink: _Sink, error: Exception) -> None:
        """Count a listener's failure, and log its first one."""
        with self._lock:
            self.listener_failures += 1
            first, sink.complained = not sink.complained, True
        if first:
            import logging  # costs more than all of this module, and is not needed until something is wrong

            logging.getLogger("holdfast").warning("listener %r failed (told once)", sink.listener, exc_info=error)

    def _deliver(self, event: GuardEvent, sinks: tuple[_Sink, ...]) -> None:
        takers = [sink for sink in sinks if sink.wants is None or isinstance(event, sink.wants)]
        if not takers:
            return
        if event.event_name in self._severities:
            severity = self._severities[event.event_name]
            if severity is None:
                return
            event.severity = severity
        if event.at is None:
            event.at = self._clock.wall()
        for enricher in self._enrichers:
            enricher.attempt(_enrich, enricher.listener, event)
        for sink in takers:
            sink.attempt(sink.on_event, event)


def default_hub() -> Hub:
    """The process-wide hub, made at first use, with an InMemoryMetrics listening."""
    # A cache alone may run its function twice when two threads come first.
    with _FIRST_USE:
        return _defaults()[0]


def default_metrics() -> InMemoryMetrics:
    """The recorder that listens to the process-wide hub from the start."""
    with _FIRST_USE:
        return _defaults()[1]


def register_listener(listener: Listener) -> None:
    """Add a listener to the process-wide hub; adding it again changes nothing."""
    default_hub().register(listener)


def unregister_listener(listener: Listener) -> None:
    """Remove a listener from the process-wide hub."""
    default_hub().unregister(listener)


def get_listeners() -> list[Listener]:
    """Who listens to the process-wide hub."""
    return list(default_hub().listeners)


def emit(event: GuardEvent) -> None:
    """Deliver an event to everyone who listens to the process-wide hub."""
    default_hub().emit(event)


_FIRST_USE: Final = threading.RLock()


@cache
def _defaults() -> tuple[Hub, InMemoryMetrics]:
    hub, metrics = Hub(), InMemoryMetrics()
    hub.register(metrics)
    return hub, metrics


def _enrich(enricher: Enricher, event: GuardEvent) -> None:
    event.tags.update(enricher(event) or {})


def _take(items: list[Any]) -> list[Any]:
    # Guards keep appending meanwhile, so the list stays the same object and only what was copied is cut off.
    count = len(items)
    taken = items[:count]
    del items[:count]
    return taken


def _count(pairs: list[tuple[str, str]]) -> Counter[tuple[str, str]]:
    # A guard notes the same tuple again and again, and counting one object in a list is ten times faster.
    if pairs and pairs.count(pairs[0]) == len(pairs):
        return Counter({pairs[0]: len(pairs)})
    return Counter(pairs)


def _same(known: object, other: object) -> bool:
    # A bound method is a new object every time it is looked up.
    return known is other or (isinstance(known, MethodType | BuiltinMethodType) and known == other)


def _severity(event_name: str, value: Severity | str | None) -> Severity | None:
    try:
        return None if value is None else Severity(value)
    except ValueError:
        known = ", ".join(Severity)
        raise ValueError(f"the severity of {event_name} must be one of {known} or None, got {value!r}") from None
