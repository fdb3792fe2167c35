"""The least that context and metrics cost: the floor of some rows, with both of them written by hand.

The context is one variable, published for the call and withdrawn after it, with a deadline that is looked at first. The
metrics are two clock readings and the last thousand durations. Nobody is told of anything, and the limiter is for one
thread: it has no lock.
"""

from collections import deque
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any

from benchmarks.floor import ATTEMPTS, Call, Circuit, Refused, by_colour, to_async
from benchmarks.rows import BOTH

LINK: ContextVar[list[Any] | None] = ContextVar("least", default=None)
current, publish, withdraw = LINK.get, LINK.set, LINK.reset


def retry_breaker(fn: Call) -> Call:
    circuit = Circuit(5)
    note = deque(maxlen=1000).append

    def call(x):
        parent = current()
        if parent is not None and parent[2] is not None:
            raise Refused
        started = monotonic()
        if circuit.open_until and started < circuit.open_until:
            raise Refused
        token = publish([circuit, parent, None, None])
        try:
            result = fn(x)
        except Exception:
            withdraw(token)
            circuit.failed()
        else:
            withdraw(token)
            if circuit.streak:
                circuit.recovered()
            note(monotonic() - started)
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


def rate(fn: Call, burst: int) -> Call:
    interval = 1e-9
    tolerance = interval * (burst - 1)
    due = 0.0
    note = deque(maxlen=1000).append

    def call(x):
        nonlocal due
        parent = current()
        if parent is not None and parent[2] is not None:
            raise Refused
        started = monotonic()
        if due <= started:
            due = started + interval
        elif due - started <= tolerance:
            due += interval
        else:
            raise Refused
        result = fn(x)
        note(monotonic() - started)
        return result

    return call


class Least:
    """The closures above."""

    label = "least"
    colours = BOTH
    retry_breaker = by_colour(retry_breaker, to_async(retry_breaker))
    rate_burst = by_colour(partial(rate, burst=1_000_000), partial(to_async(rate), burst=1_000_000))
    rate_steady = by_colour(partial(rate, burst=1), partial(to_async(rate), burst=1))
