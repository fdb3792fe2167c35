"""Write a behaviour once, run it sync and async.

    def test_something(colour, clock, guard_of):
        guard = guard_of(Retry(attempts=2, base=0))
        fn = colour.fn([OSError("down"), "up"])        # one step per call, the last one repeats
        assert colour.run(guard, fn).value == "up"     # guard.run, or guard.arun on the test's event loop
        assert fn.calls == 2

A body that waits or calls another guard is a generator. What it yields is awaited in the async colour, and comes back:

        def body():
            yield colour.sleep(clock, 5)
            inner = yield colour.inner(other_guard, fn)
            return inner.value
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from inspect import isgenerator
from typing import Any

import pytest

from holdfast import Guard, GuardEvent, Hub
from holdfast.testing.clock import ManualClock

PATIENCE_S = 10.0  # how long a test waits for another thread before it gives up


class Interrupted(BaseException):
    """Ends a call like a cancellation does, in either colour."""


class Slow:
    """A step that takes `seconds` of the clock and then does `then`."""

    def __init__(self, clock: ManualClock, seconds: float, then: Any = None) -> None:
        self.clock = clock
        self.seconds = seconds
        self.then = then


class Recorder:
    """A loud listener that keeps every event."""

    def __init__(self) -> None:
        self.events: list[GuardEvent] = []

    def on_event(self, event: GuardEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[GuardEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


class Colour:
    """One of the two ways to call."""

    name: str
    is_async: bool

    def run(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The Outcome of a guarded call, from a test (or a thread) that is not inside a call."""
        raise NotImplementedError

    def call(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The value of a guarded call, or its exception."""
        raise NotImplementedError

    def plain(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The result of a (decorated) function of this colour."""
        raise NotImplementedError

    def inner(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A call for its Outcome inside a body: `outcome = yield colour.inner(guard, fn)`."""
        raise NotImplementedError

    def inner_call(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """A call for its value inside a body: `value = yield colour.inner_call(guard, fn)`."""
        raise NotImplementedError

    def sleep(self, clock: Any, seconds: float) -> Any:
        """Time passes inside a body: `yield colour.sleep(clock, 5)`."""
        raise NotImplementedError

    def start(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Begin a call beside the test, in a thread or a task; `.outcome()` waits for it."""
        raise NotImplementedError

    def enter(self, guard: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The same, and wait until it is inside the function (of `colour.fn`)."""
        before = fn.calls
        handle = self.start(guard, fn, *args, **kwargs)
        self.until(lambda: fn.calls > before)
        return handle

    def gate(self) -> Any:
        """Something a body waits for (`yield gate.wait()`) until the test calls `open()`."""
        raise NotImplementedError

    def until(self, condition: Callable[[], bool]) -> None:
        """Let what was started run until the condition holds."""
        raise NotImplementedError

    def advance(self, clock: ManualClock, seconds: float) -> None:
        """Move the clock and let what that wakes run."""
        raise NotImplementedError

    def fn(self, body: Any) -> Any:
        """A function of this colour, with a `calls` counter.

        `body` is a callable, or a list of steps, one per call (the last one repeats): an exception is raised, a Slow
        takes its time, a callable is called, everything else is returned.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.name


class SyncColour(Colour):
    name = "sync"
    is_async = False

    def run(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return guard.run(fn, *args, **kwargs)

    def call(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return guard.call(fn, *args, **kwargs)

    def plain(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    inner = run
    inner_call = call

    def sleep(self, clock: Any, seconds: float) -> Any:
        clock.sleep(seconds)

    def start(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> SyncHandle:
        return SyncHandle(lambda: guard.run(fn, *args, **kwargs))

    def gate(self) -> SyncGate:
        return SyncGate()

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "what the test waits for did not happen"
            time.sleep(0.0005)

    def advance(self, clock: ManualClock, seconds: float) -> None:
        clock.advance(seconds)

    def fn(self, body: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            function.calls += 1  # type: ignore[attr-defined]
            step, args, kwargs = _step(body, function.calls, args, kwargs)  # type: ignore[attr-defined]
            if isinstance(step, Slow):
                step.clock.sleep(step.seconds)
                step = step.then
            result = _play(step, args, kwargs)
            return _finish(result) if isgenerator(result) else result

        function.calls = 0  # type: ignore[attr-defined]
        return function


class AsyncColour(Colour):
    name = "async"
    is_async = True

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def _await(self, make: Callable[[], Any]) -> Any:
        async def main() -> Any:
            return await make()

        # The runner keeps a context of its own; deadlines around the call live in the test's.
        return self._runner.run(main(), context=copy_context())

    def run(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._await(lambda: guard.arun(fn, *args, **kwargs))

    def call(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._await(lambda: guard.acall(fn, *args, **kwargs))

    def plain(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._await(lambda: fn(*args, **kwargs))

    def inner(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return guard.arun(fn, *args, **kwargs)

    def inner_call(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return guard.acall(fn, *args, **kwargs)

    def sleep(self, clock: Any, seconds: float) -> Any:
        return clock.asleep(seconds)

    def start(self, guard: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AsyncHandle:
        async def begin() -> asyncio.Task[Any]:
            task = asyncio.ensure_future(guard.arun(fn, *args, **kwargs))
            await _settle()
            return task

        return AsyncHandle(self, self._await(begin))

    def gate(self) -> AsyncGate:
        return AsyncGate(self)

    def until(self, condition: Callable[[], bool]) -> None:
        self._await(lambda: reached(condition))

    def advance(self, clock: ManualClock, seconds: float) -> None:
        self._await(lambda: clock.advance_async(seconds))

    def fn(self, body: Any) -> Any:
        async def function(*args: Any, **kwargs: Any) -> Any:
            function.calls += 1  # type: ignore[attr-defined]
            step, args, kwargs = _step(body, function.calls, args, kwargs)  # type: ignore[attr-defined]
            if isinstance(step, Slow):
                await step.clock.asleep(step.seconds)
                step = step.then
            result = _play(step, args, kwargs)
            if isgenerator(result):
                return await _afinish(result)
            return await result if hasattr(result, "__await__") else result

        function.calls = 0  # type: ignore[attr-defined]
        return function


class SyncHandle:
    """A call in a thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._main,), daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # handed to the test
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def outcome(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the call did not end"
        if self._error is not None:
            raise self._error
        return self._result


class AsyncHandle:
    """A call in a task of the test's loop."""

    def __init__(self, colour: AsyncColour, task: asyncio.Task[Any]) -> None:
        self._colour = colour
        self.task = task

    @property
    def done(self) -> bool:
        return self.task.done()

    def cancel(self) -> None:
        """Cancel the task and let that take effect."""

        async def cancel() -> None:
            self.task.cancel()
            await _settle()

        self._colour._await(cancel)

    def outcome(self) -> Any:
        return self._colour._await(lambda: self.task)


class SyncGate:
    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self) -> None:
        assert self._event.wait(PATIENCE_S), "the gate was never opened"

    def open(self) -> None:
        self._event.set()


class AsyncGate:
    def __init__(self, colour: AsyncColour) -> None:
        self._colour = colour
        self._event = asyncio.Event()

    def wait(self) -> Any:
        return self._event.wait()

    def open(self) -> None:
        async def open_() -> None:
            self._event.set()
            await _settle()

        self._colour._await(open_)


async def reached(condition: Callable[[], bool], pause: float = 0.0) -> None:
    """Let other tasks (and threads) run until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(pause)
    raise AssertionError("what the test waits for did not happen")


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def _step(body: Any, number: int, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    if not isinstance(body, list):
        return body, args, kwargs
    return body[min(number, len(body)) - 1], (), {}


def _play(step: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(step, BaseException) or (isinstance(step, type) and issubclass(step, BaseException)):
        raise step
    return step(*args, **kwargs) if callable(step) else step


def _finish(generator: Any) -> Any:
    sent: Any = None
    try:
        while True:
            sent = generator.send(sent)
    except StopIteration as stop:
        return stop.value


async def _afinish(generator: Any) -> Any:
    sent: Any = None
    failure: BaseException | None = None
    try:
        while True:
            item = generator.send(sent) if failure is None else generator.throw(failure)
            sent = failure = None
            try:
                sent = await item if hasattr(item, "__await__") else item
            except BaseException as error:  # belongs to the body, as in the sync colour
                failure = error
    except StopIteration as stop:
        return stop.value


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    """Every behaviour in both colours."""
    if request.param == "sync":
        yield SyncColour()
        return
    with asyncio.Runner() as runner:
        yield AsyncColour(runner)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["fused", "general"])
def path(request: pytest.FixtureRequest) -> str:
    """Every rule on the fused path and on the general one."""
    return str(request.param)


@pytest.fixture
def guard_of(clock: ManualClock, path: str) -> Callable[..., Guard]:
    """Makes a guard on the test's clock and path, with a hub of its own and a die that always shows 0.5."""

    def make(*policies: Any, name: str = "x", **options: Any) -> Guard:
        options = {
            "clock": clock,
            "telemetry": Hub(clock=clock),
            "rng": lambda: 0.5,
            "fused": path == "fused",
            **options,
        }
        return Guard(name, *policies, **options)

    return make


@pytest.fixture
def recorder() -> Recorder:
    """Register it with `guard.telemetry.register(recorder)`; a guard that is listened to takes the general path."""
    return Recorder()
