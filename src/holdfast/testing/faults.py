"""A dependency that fails as told."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.core.clock import Clock


@dataclass(frozen=True, slots=True)
class Slow:
    """A step that takes `seconds` of the clock and then does the step `then`."""

    seconds: float
    then: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A step that returns the value as it is, even if it is an exception or can be called."""

    value: Any


class Received(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Flaky:
    """A function that follows a script, one step per call; the last step repeats, or with `cycle` the whole script.

        fetch = Flaky(ConnectionError("down"), Slow(5, TimeoutError), "page", clock=clock)
        guard.call(fetch, url)                  # as a sync function
        await guard.acall(fetch.async_, url)    # as an async one, on the same script
        assert len(fetch.calls) == 3

    An exception (or a class of one) is raised, a Slow takes its time on the clock, a callable is called with the
    arguments (and awaited, in the async form), an Answer gives its value, anything else is returned.
    """

    def __init__(self, *script: Any, clock: Clock | None = None, cycle: bool = False, name: str = "flaky") -> None:
        if not script:
            raise ValueError("Flaky needs at least one step, got none; use Flaky(None) to return None")
        if clock is None and any(isinstance(step, Slow) for step in script):
            raise ValueError("Flaky with a Slow step needs the clock that it is slow on; use clock=manual_clock")
        self.calls: list[Received] = []
        self.__name__ = self.__qualname__ = name
        self._script = script
        self._clock = clock
        self._cycle = cycle
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The next step, as a sync function takes it."""
        step = self._next(args, kwargs)
        while isinstance(step, Slow):
            assert self._clock is not None
            self._clock.sleep(step.seconds)
            step = step.then
        return _play(step, args, kwargs)

    async def async_(self, *args: Any, **kwargs: Any) -> Any:
        """The next step, as an async function takes it."""
        step = self._next(args, kwargs)
        while isinstance(step, Slow):
            assert self._clock is not None
            await self._clock.asleep(step.seconds)
            step = step.then
        result = _play(step, args, kwargs)
        return await result if callable(step) and hasattr(result, "__await__") else result

    def reset(self) -> None:
        """Forget the calls and start the script over."""
        with self._lock:
            self.calls.clear()

    def _next(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            turn = len(self.calls)
            self.calls.append(Received(args, kwargs))
        return self._script[turn % len(self._script) if self._cycle else min(turn, len(self._script) - 1)]

    def __repr__(self) -> str:
        return f"<Flaky {self.__name__}, called {len(self.calls)} times>"


def _play(step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(step, BaseException):
        raise step.with_traceback(None)  # a step that repeats would grow its traceback
    if isinstance(step, type) and issubclass(step, BaseException):
        raise step
    if isinstance(step, Answer):
        return step.value
    return step(*args, **kwargs) if callable(step) else step
