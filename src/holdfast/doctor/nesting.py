"""Who calls through a guard inside of what is tried again already, as far as code says so by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.doctor.rules import Finding, found
from holdfast.guard.describe import describe
from holdfast.guard.guard import Guard
from holdfast.guard.retry import RetryStrategy
from holdfast.workflows.mentions import named_by

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def look_inside(hold: Holdfast) -> Iterator[Finding]:
    """Guards whose functions call functions of other guards."""
    for name, guard in sorted(hold.guards.items()):
        outer = retry_of(guard)
        if outer is None:
            continue
        for inner in guards_in(*guard.functions):
            retry = retry_of(inner)
            # Within one failure domain the inner one defers to the outer one.
            if inner is guard or retry is None or retry.policy.domain == outer.policy.domain:
                continue
            what = (
                f"a function of it calls guard {inner.name!r}, which retries as well, in another failure domain: "
                f"{calls_of(guard, inner)}"
            )
            fix = "leave the Retry out of one, or give both the same Retry(domain=...): then the inner one defers"
            yield found("nested-retries", f"guard {name!r}", what, fix)


def guards_in(*functions: Callable[..., Any]) -> list[Guard]:
    """The guards of these functions, and of those that they name, also by way of others of their package; each once.

    What code finds in another way, such as an attribute of an object, is not seen.
    """
    made: dict[int, Guard] = {}
    for function in functions:
        body: Any = function
        layers = [body]
        while (body := getattr(body, "__wrapped__", None)) is not None:
            layers.append(body)
        for one in (*layers, *named_by(layers[-1])):
            guard = getattr(one, "__holdfast_guard__", None)
            if isinstance(guard, Guard):
                made[id(guard)] = guard
    return sorted(made.values(), key=lambda guard: guard.name)


def retry_of(guard: Guard) -> RetryStrategy | None:
    """The guard's retry, if it makes more than one attempt."""
    retry = guard.plan.first(RetryStrategy)
    return None if retry is None or retry.policy.attempts == 1 else retry


def calls_of(*layers: Guard | float) -> str:
    """How many calls these layers come to at worst, in words."""
    calls = math.prod(one if isinstance(one, int | float) else describe(one).max_calls for one in layers)
    return "any number of calls" if calls == math.inf else f"up to {calls:g} calls"
