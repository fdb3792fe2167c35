"""Who waits for a call: the seam between one implementation of every strategy and two colours.

Strategies are coroutines. Under `SyncDriver` nothing they await ever suspends, so `drive` finishes them with a single
`send(None)`: no event loop, no thread. `AsyncDriver` (in `guard/adriver.py`, so that sync programs never load
asyncio) really suspends.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from holdfast.core.clock import Clock

if TYPE_CHECKING:
    from concurrent.futures import Executor

T = TypeVar("T")


class _Cut:
    def __repr__(self) -> str:
        return "CUT"


CUT: Final = _Cut()
"""What `bounded` returns when the time ran out before the work ended."""


class Cuttable(Protocol):
    """The running call: `cut` counts our time limits that have fired, so that those below know whose cancel it is."""

    cut: int


class Waiter(Protocol):
    """A place in a queue; `granted` once what it waits for is its own. `wake` may be called from any thread."""

    granted: bool

    def wake(self) -> bool:
        """False when nobody can be waiting any more, because the waiter's event loop is closed."""
        ...


class Branch(Protocol):
    """One of several runs of the same call."""

    @property
    def done(self) -> bool: ...
    def result(self) -> Any: ...


class Driver(Protocol):
    """Everything in which sync and async calls differ."""

    clock: Clock
    is_async: bool

    async def sleep(self, seconds: float) -> None: ...

    async def offload(self, work: Callable[[], T], threads: Callable[[], Executor]) -> T:
        """Run blocking work of ours: in one of `threads` if there is an event loop, which must not wait for it."""
        ...

    def waiter(self) -> Waiter: ...

    def park(self, waiter: Any, seconds: float | None) -> Awaitable[bool]:
        """Wait until woken; False when the time ran out first."""
        ...

    async def bounded(
        self, work: Callable[[], Awaitable[T]], until: float, call: Cuttable, abandon: bool = False
    ) -> T | _Cut:
        """Run `work` until the monotonic instant `until`; CUT if it had to be ended."""
        ...

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run `work` beside the caller, in a copy of its context."""
        ...

    async def first_done(self, branches: Sequence[Any], seconds: float | None) -> None:
        """Wait until one of the branches is done, or the time ran out."""
        ...

    async def cancel(self, branches: Sequence[Any]) -> None:
        """End the branches and wait for their end where that is possible."""
        ...


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends.

    Raises RuntimeError if it does: a custom strategy awaited something that needs an event loop.
    """
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError(
        "a strategy suspended during a sync call; it may only await nxt() and the driver's own methods "
        "(ctx.call.driver.sleep, ...). Use the async form of this call instead."
    )


class SyncDriver:
    """Blocks the calling thread."""

    __slots__ = ("clock",)

    is_async = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    async def offload(self, work: Callable[[], T], threads: Callable[[], Executor]) -> T:
        return work()

    def waiter(self) -> ThreadWaiter:
        return ThreadWaiter()

    async def park(self, waiter: ThreadWaiter, seconds: float | None) -> bool:
        return self.clock.wait(waiter.event, seconds)

    async def bounded(
        self, work: Callable[[], Awaitable[T]], until: float, call: Cuttable, abandon: bool = False
    ) -> T | _Cut:
        # Sync code cannot be cut: it reads the remaining time itself, or the caller walks away from it.
        if not abandon:
            return await work()
        branch = self.start(work)  # type: ignore[arg-type]  # strategies only pass coroutine functions
        if not self.clock.wait(branch.event, max(0.0, until - self.clock.monotonic())):
            call.cut += 1
            return CUT
        return branch.result()  # type: ignore[no-any-return]

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> ThreadBranch:
        return ThreadBranch(work)

    async def first_done(self, branches: Sequence[ThreadBranch], seconds: float | None) -> None:
        any_done = threading.Event()
        for branch in branches:
            branch.notify(any_done)
        self.clock.wait(any_done, seconds)

    async def cancel(self, branches: Sequence[ThreadBranch]) -> None:
        """Threads cannot be cancelled; they run out, and their results are closed by whoever started them."""


class ThreadWaiter:
    """Wakes a blocked thread."""

    __slots__ = ("event", "granted")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.granted = False

    def wake(self) -> bool:
        self.event.set()
        return True


class ThreadBranch:
    """A run of the call in a daemon thread with the caller's context."""

    __slots__ = ("_error", "_listeners", "_lock", "_value", "event")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[threading.Event] = []
        self._value: Any = None
        self._error: BaseException | None = None
        context = copy_context()
        threading.Thread(target=context.run, args=(self._run, work), name="holdfast-branch", daemon=True).start()

    def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            self._value = drive(work())
        except BaseException as error:  # carried over to the thread that asks for the result
            self._error = error
        with self._lock:
            self.event.set()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.set()

    def notify(self, event: threading.Event) -> None:
        """Set `event` when this branch is done, at once if it is already."""
        with self._lock:
            if not self.event.is_set():
                self._listeners.append(event)
                return
        event.set()

    @property
    def done(self) -> bool:
        return self.event.is_set()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value
