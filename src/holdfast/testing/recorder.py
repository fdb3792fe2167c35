"""A listener that remembers, for tests that look at events."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.guard.scope import Scope
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

E = TypeVar("E", bound=GuardEvent)

PATIENCE_S: Final = 10.0  # real seconds; a test that waits longer has found something


class Recorder:
    """Keeps events, in the order they came and from any thread: all of them, or only those of the given kinds.

    Register it with `hub.register(recorder)`, or use `recording()`. Where a method takes `**fields`, it looks at the
    events that have these values: `recorder.of(LoadShed, reason="circuit_open")`.
    """

    def __init__(self, *kinds: type[GuardEvent]) -> None:
        self.wants = kinds or None
        self._events: list[GuardEvent] = []
        self._heard = threading.Condition()
        self._sleepers: list[tuple[AbstractEventLoop, Future[None]]] = []

    def on_event(self, event: GuardEvent) -> None:
        with self._heard:
            self._events.append(event)
            self._heard.notify_all()
            sleepers = tuple(self._sleepers)
        for loop, woken in sleepers:
            try:
                loop.call_soon_threadsafe(_wake, woken)
            except RuntimeError:
                pass  # its loop is closed

    @property
    def events(self) -> list[GuardEvent]:
        """Everything so far: a copy."""
        with self._heard:
            return list(self._events)

    def of(self, kind: type[E], /, **fields: Any) -> list[E]:
        """The events of that kind, oldest first."""
        for name in fields:
            if not hasattr(kind, name):
                known = ", ".join(kind.field_names())
                raise TypeError(f"{kind.__name__} has no field {name!r}; it has {known}")
        return [
            event
            for event in self.events
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
        ]

    def last(self, kind: type[E], /, **fields: Any) -> E:
        """The newest event of that kind.

        Raises AssertionError when there is none.
        """
        found = self.of(kind, **fields)
        if not found:
            raise AssertionError(f"no {_wanted(kind, fields)} was recorded, only: {self._story()}")
        return found[-1]

    def count(self, kind: type[GuardEvent] = GuardEvent, /, **fields: Any) -> int:
        """How many events of that kind there were."""
        return len(self.of(kind, **fields))

    def names(self) -> list[str]:
        """The class names of the events, in order: a test's view of what happened."""
        return [type(event).__name__ for event in self.events]

    def clear(self) -> None:
        """Forget everything so far."""
        with self._heard:
            self._events.clear()

    def wait_for(self, kind: type[E], /, times: int = 1, *, patience: float = PATIENCE_S, **fields: Any) -> list[E]:
        """Block until other threads have brought `times` events of that kind, also counting those there are.

        Raises AssertionError when they do not come within `patience` real seconds.
        """
        with self._heard:
            if not self._heard.wait_for(lambda: self.count(kind, **fields) >= times, patience):
                raise AssertionError(self._missing(kind, fields, times, patience))
        return self.of(kind, **fields)

    async def wait_for_async(
        self, kind: type[E], /, times: int = 1, *, patience: float = PATIENCE_S, **fields: Any
    ) -> list[E]:
        """`wait_for` for a task: lets the event loop run meanwhile."""
        import asyncio

        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            sleeper = loop, loop.create_future()
            with self._heard:
                found = self.of(kind, **fields)
                if len(found) >= times:
                    return found
                self._sleepers.append(sleeper)
            try:
                await asyncio.wait_for(sleeper[1], end - loop.time())
            except TimeoutError:
                raise AssertionError(self._missing(kind, fields, times, patience)) from None
            finally:
                with self._heard:
                    self._sleepers.remove(sleeper)

    def _missing(self, kind: type[GuardEvent], fields: dict[str, Any], times: int, patience: float) -> str:
        seen = self.count(kind, **fields)
        return f"waited {patience:g} s for {times} of {_wanted(kind, fields)}, saw {seen}; recorded: {self._story()}"

    def _story(self) -> str:
        return ", ".join(map(repr, self.events)) or "nothing"

    def __repr__(self) -> str:
        return f"<Recorder: {', '.join(self.names()) or 'nothing'}>"


def recording(*kinds: type[GuardEvent], hub: Hub | None = None) -> Scope[Recorder]:
    """Record what the hub (default: the process-wide one) hears in a block: `with recording() as recorder:`."""
    return Scope(lambda: _recording(kinds, default_hub() if hub is None else hub))


@contextmanager
def _recording(kinds: tuple[type[GuardEvent], ...], hub: Hub) -> Iterator[Recorder]:
    recorder = Recorder(*kinds)
    hub.register(recorder)
    try:
        yield recorder
    finally:
        hub.unregister(recorder)


def _wake(woken: Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _wanted(kind: type[GuardEvent], fields: dict[str, Any]) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"{kind.__name__}({shown})" if shown else kind.__name__
