"""The floor: each row written by hand, as the smallest closure that still does what the row says.

No context, no events, no options: what a careful person would write for one function and one set of policies.
A library can at best come close. Where the two colours differ only in `async` and `await`, the async closure
is made from the source of the sync one.
"""

import asyncio
import inspect
import re
from asyncio import CancelledError, current_task, get_running_loop
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any

from benchmarks.rows import BOTH

Call = Callable[[Any], Any]
ATTEMPTS = 3
OPEN_FOR = 3600.0
WINDOW = 60.0
SECONDS = 2.0


class Refused(Exception):
    """The call never ran."""


class Circuit:
    """A breaker's state; the success path reads `open_until` and `streak` and calls nothing."""

    __slots__ = ("failures", "lock", "open_until", "streak")

    def __init__(self, failures: int) -> None:
        self.failures, self.streak, self.open_until, self.lock = failures, 0, 0.0, Lock()

    def failed(self) -> None:
        with self.lock:
            self.streak += 1
            if self.streak >= self.failures:
                self.open_until = monotonic() + OPEN_FOR

    def recovered(self) -> None:
        with self.lock:
            self.streak, self.open_until = 0, 0.0


class Window:
    """Calls and failures in ten buckets of a time window; opens at half of at least ten calls."""

    __slots__ = ("buckets", "calls", "edge", "failed_calls", "lock", "open_until")

    def __init__(self) -> None:
        self.buckets: deque[tuple[int, int]] = deque(maxlen=10)
        self.calls = self.failed_calls = 0
        self.edge = monotonic() + WINDOW / 10
        self.open_until, self.lock = 0.0, Lock()

    def turn(self, now: float) -> None:
        while now >= self.edge:
            self.buckets.append((self.calls, self.failed_calls))
            self.calls = self.failed_calls = 0
            self.edge += WINDOW / 10

    def failed(self) -> None:
        now = monotonic()
        with self.lock:
            if now >= self.edge:
                self.turn(now)
            self.calls += 1
            self.failed_calls += 1
            calls = self.calls + sum(bucket[0] for bucket in self.buckets)
            failed = self.failed_calls + sum(bucket[1] for bucket in self.buckets)
            if calls >= 10 and failed * 2 >= calls:
                self.open_until = now + OPEN_FOR


class Timer:
    """The deadlines of one timeout policy: in order of arrival, so one loop timer serves all of them."""

    __slots__ = ("armed", "entries")

    def __init__(self) -> None:
        self.entries: deque[list[Any]] = deque()
        self.armed = False

    def arm(self) -> None:
        self.armed = True
        get_running_loop().call_at(self.entries[0][0], self.expire)

    def expire(self) -> None:
        now = monotonic()
        while self.entries and (self.entries[0][1] is None or self.entries[0][0] <= now):
            entry = self.entries.popleft()
            if entry[1] is not None:
                entry[1].cancel()
                entry[1] = None
        self.armed = False
        if self.entries:
            self.arm()


def retry(fn: Call) -> Call:
    def call(x):
        try:
            return fn(x)
        except Exception:
            pass
        return again(x)

    def again(x):
        for _ in range(ATTEMPTS - 2):
            try:
                return fn(x)
            except Exception:
                pass
        return fn(x)

    return call


def breaker(fn: Call, failures: int = 5) -> Call:
    circuit = Circuit(failures)

    def call(x):
        if circuit.open_until and monotonic() < circuit.open_until:
            raise Refused
        try:
            result = fn(x)
        except Exception:
            circuit.failed()
            raise
        if circuit.streak:
            circuit.recovered()
        return result

    return call


def breaker_count(fn: Call) -> Call:
    failures: deque[float] = deque(maxlen=5)
    open_until = 0.0

    def call(x):
        nonlocal open_until
        if open_until and monotonic() < open_until:
            raise Refused
        try:
            return fn(x)
        except Exception:
            failures.append(monotonic())
            if len(failures) == 5 and failures[-1] - failures[0] <= WINDOW:
                open_until = failures[-1] + OPEN_FOR
            raise

    return call


def breaker_ratio(fn: Call) -> Call:
    window = Window()
    lock = window.lock

    def call(x):
        if window.open_until and monotonic() < window.open_until:
            raise Refused
        try:
            result = fn(x)
        except Exception:
            window.failed()
            raise
        now = monotonic()
        with lock:
            if now >= window.edge:
                window.turn(now)
            window.calls += 1
        return result

    return call


def rate(fn: Call, burst: int) -> Call:
    interval = 1e-9
    tolerance = interval * (burst - 1)
    due = 0.0
    lock = Lock()

    def call(x):
        nonlocal due
        now = monotonic()
        with lock:
            if due <= now:
                due = now + interval
            elif due - now <= tolerance:
                due += interval
            else:
                raise Refused
        return fn(x)

    return call


def timeout(fn: Call) -> Call:
    def call(x):
        deadline = monotonic() + SECONDS
        result = fn(x)
        if monotonic() > deadline:
            raise TimeoutError
        return result

    return call


def async_timeout(fn: Call) -> Call:
    timer = Timer()
    entries = timer.entries

    async def call(x):
        task = current_task()
        entry = [monotonic() + SECONDS, task]
        entries.append(entry)
        if not timer.armed:
            timer.arm()
        try:
            return await fn(x)
        except CancelledError:
            if entry[1] is None and task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            entry[1] = None
            if entries and entries[0] is entry:
                entries.popleft()

    return call


def bulkhead(fn: Call, limit: int = 20) -> Call:
    free: deque[None] = deque([None] * limit)
    waiters: deque[Lock] = deque()

    def call(x):
        try:
            free.pop()
        except IndexError:
            wait()
        try:
            return fn(x)
        finally:
            free.append(None)
            if waiters:
                hand_over()

    def wait():
        turn = Lock()
        turn.acquire()
        waiters.append(turn)
        hand_over()  # a slot freed before we stood in the queue must not be lost
        turn.acquire()

    def hand_over():
        while waiters:
            try:
                free.pop()
            except IndexError:
                return
            try:
                waiters.popleft().release()
            except IndexError:
                free.append(None)

    return call


def async_bulkhead(fn: Call, limit: int = 20) -> Call:
    free = limit
    waiters: deque[asyncio.Future[None]] = deque()

    async def call(x):
        nonlocal free
        if free:
            free -= 1
        else:
            await wait()
        try:
            return await fn(x)
        finally:
            if waiters:
                hand_over()
            else:
                free += 1

    async def wait():
        turn = get_running_loop().create_future()
        waiters.append(turn)
        try:
            await turn
        except CancelledError:
            if turn.done() and not turn.cancelled():
                hand_over()
            raise

    def hand_over():
        nonlocal free
        while waiters:
            turn = waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        free += 1

    return call


def retry_breaker(fn: Call) -> Call:
    circuit = Circuit(5)

    def call(x):
        if circuit.open_until and monotonic() < circuit.open_until:
            raise Refused
        try:
            result = fn(x)
        except Exception:
            circuit.failed()
        else:
            if circuit.streak:
                circuit.recovered()
            return result
        return again(x, ATTEMPTS - 1)

    def again(x, left):
        if circuit.open_until and monotonic() < circuit.open_until:
            raise Refused
        try:
            result = fn(x)
        except Exception:
            circuit.failed()
            if left == 1:
                raise
        else:
            circuit.recovered()
            return result
        return again(x, left - 1)

    return call


def retry_breaker_timeout(fn: Call) -> Call:
    circuit = Circuit(5)

    def call(x):
        if circuit.open_until and monotonic() < circuit.open_until:
            raise Refused
        deadline = monotonic() + SECONDS
        try:
            result = fn(x)
        except Exception:
            circuit.failed()
        else:
            if monotonic() <= deadline:
                if circuit.streak:
                    circuit.recovered()
                return result
            circuit.failed()
        return again(x, ATTEMPTS - 1)

    def again(x, left):
        if circuit.open_until and monotonic() < circuit.open_until:
            raise Refused
        deadline = monotonic() + SECONDS
        try:
            result = fn(x)
            if monotonic() > deadline:
                raise TimeoutError
        except Exception:
            circuit.failed()
            if left == 1:
                raise
        else:
            circuit.recovered()
            return result
        return again(x, left - 1)

    return call


def async_retry_breaker_timeout(fn: Call) -> Call:
    circuit = Circuit(5)
    timer = Timer()
    entries = timer.entries

    async def call(x, left=ATTEMPTS):
        if circuit.open_until and monotonic() < circuit.open_until:
            raise Refused
        task = current_task()
        entry = [monotonic() + SECONDS, task]
        entries.append(entry)
        if not timer.armed:
            timer.arm()
        try:
            result = await fn(x)
        except CancelledError:
            if entry[1] is not None or task.uncancel() > 0:
                raise
            circuit.failed()
            if left == 1:
                raise TimeoutError from None
        except Exception:
            circuit.failed()
            if left == 1:
                raise
        else:
            if circuit.streak:
                circuit.recovered()
            return result
        finally:
            entry[1] = None
            if entries and entries[0] is entry:
                entries.popleft()
        return await call(x, left - 1)

    return call


def to_async(factory: Callable[..., Call]) -> Callable[..., Call]:
    """The same closure with `async def call` and `await fn(x)`."""
    source = inspect.getsource(factory)
    source = re.sub(r"\bdef (call|again)\(", r"async def \1(", source)
    source = re.sub(r"(?<!def )\b(fn|again)\(x", r"await \1(x", source)
    scope: dict[str, Any] = {}
    exec(source, factory.__globals__, scope)
    return scope[factory.__name__]


def by_colour(sync: Callable[..., Call], asynchronous: Callable[..., Call]) -> staticmethod:
    """A policy that picks its closure by the colour of the function."""
    return staticmethod(
        lambda fn, **options: (asynchronous if inspect.iscoroutinefunction(fn) else sync)(fn, **options)
    )


class Bare:
    """The function itself, under no policy; in the failing and refused rows, one call that raises."""

    label = "bare"
    colours = BOTH
    retry = breaker = breaker_count = breaker_ratio = bulkhead = rate_burst = rate_steady = staticmethod(
        lambda fn, **_: fn
    )
    timeout = retry_breaker = retry_breaker_timeout = retry


class Floor:
    """The closures above."""

    label = "floor"
    colours = BOTH
    retry = by_colour(retry, to_async(retry))
    breaker = by_colour(breaker, to_async(breaker))
    breaker_count = by_colour(breaker_count, to_async(breaker_count))
    breaker_ratio = by_colour(breaker_ratio, to_async(breaker_ratio))
    bulkhead = by_colour(bulkhead, async_bulkhead)
    rate_burst = by_colour(partial(rate, burst=1_000_000), partial(to_async(rate), burst=1_000_000))
    rate_steady = by_colour(partial(rate, burst=1), partial(to_async(rate), burst=1))
    timeout = by_colour(timeout, async_timeout)
    retry_breaker = by_colour(retry_breaker, to_async(retry_breaker))
    retry_breaker_timeout = by_colour(retry_breaker_timeout, async_retry_breaker_timeout)
