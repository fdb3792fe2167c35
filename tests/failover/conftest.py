"""What the failover tests share: the two colours, and a fleet of endpoints that answer as told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.failover.failover import Failover, current_endpoint
from holdfast.failover.pool import EndpointPool
from holdfast.guard.guard import Guard
from holdfast.machine.retry import Retry
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.guard.colours import clock, colour, recorder

__all__ = ["clock", "colour", "fleet", "guarded", "hub", "recorder"]


class Fleet:
    """What each endpoint answers: a value, an exception, a callable, or a list of those, of which the last repeats."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.seen: list[str] = []

    def __call__(self) -> Any:
        endpoint = current_endpoint()
        assert endpoint is not None
        return self.answer(endpoint.id)

    def answer(self, name: str) -> Any:
        self.seen.append(name)
        step = self.answers.get(name, f"from {name}")
        if isinstance(step, list):
            step = step.pop(0) if len(step) > 1 else step[0]
        if isinstance(step, BaseException):
            raise step.with_traceback(None)  # the same one may be raised again and again
        return step() if callable(step) else step


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def hub(clock: ManualClock) -> Hub:
    return Hub(clock=clock)


@pytest.fixture
def guarded(clock: ManualClock, hub: Hub) -> Callable[..., tuple[Guard, EndpointPool]]:
    """Makes a guard with a pool, on the test's clock; endpoints are taken in list order unless told otherwise."""

    def make(
        *endpoints: Any, policies: tuple[Any, ...] = (Retry(attempts=3, base=1, jitter="none"),), **options: Any
    ) -> tuple[Guard, EndpointPool]:
        failover = {
            k: options.pop(k) for k in ("attempts_per_endpoint", "max_endpoints", "on_attempt", "id") if k in options
        }
        pool_options = {k: options.pop(k) for k in ("breaker", "region", "rng") if k in options}
        pool = EndpointPool(endpoints, choose=options.pop("choose", "first"), name="pool", **pool_options)
        made = Guard(
            "x",
            *policies,
            Failover(pool, **failover),
            **{"clock": clock, "telemetry": hub, "rng": lambda: 0.5, **options},
        )
        return made, pool

    return make
