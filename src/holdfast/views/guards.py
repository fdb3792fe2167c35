"""Guards: what one is made of, where its breaker stands, and why it would refuse a call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from holdfast.core.outcome import Outcome
from holdfast.core.redact import redact
from holdfast.errors import REJECTIONS, GuardRejected
from holdfast.guard.circuit import CircuitBreakerStrategy, LiveCircuit
from holdfast.guard.describe import line_of
from holdfast.guard.explain import Explanation
from holdfast.guard.guard import Guard


def circuit_of(guard: Guard) -> LiveCircuit | None:
    """The guard's circuit, if it has a breaker."""
    breaker = guard.plan.first(CircuitBreakerStrategy)
    return None if breaker is None else breaker.circuit


def composition_document(guard: Guard) -> dict[str, Any]:
    """Order, worst case and warnings, and each layer with the numbers of now; outermost first."""
    described = guard.describe().as_dict()
    keeper, now = guard.plan.setting.keeper, guard.plan.clock.monotonic()
    kept = [] if keeper is None else [{"kind": "dead_letter", "line": keeper.describe(), "numbers": {}}]
    layers = [
        {"kind": str(getattr(one, "kind", "custom")), "line": line_of(one), "numbers": finite(_numbers(one, now))}
        for one in guard.plan.strategies
    ]
    return {**described, "layers": kept + layers}


def circuit_document(circuit: LiveCircuit) -> dict[str, Any]:
    """The circuit as it stands in this process."""
    figures = finite(circuit.look("figures"))
    opened_by = circuit.opened_by
    return {
        "name": circuit.name,
        "state": figures["state"],
        "control": figures["control"],
        "shared": circuit.remote is not None,
        "opens_by": circuit.policy.describe().removeprefix("breaker: "),
        "remaining_open": figures["remaining_open"],
        "failure_count": figures["failure_count"],
        "opened_by": None if opened_by is None else redact(f"{type(opened_by).__name__}: {opened_by}"),
        "figures": figures,
    }


def refusals_now(guard: Guard) -> list[Explanation]:
    """Why a call would be refused this very moment; empty if none would be. Nothing is taken by asking."""
    return [guard.explain(Outcome.rejected(error, 0, **told)) for error, told in _refusing(guard)]


def explain_reason(guard: Guard, name: str, reason: str) -> Explanation | None:
    """A refusal for this reason in words, with the numbers of now; None for a reason that is not ours."""
    kind = REJECTIONS.get(reason)
    return None if kind is None else guard.explain(Outcome.rejected(kind(name, None, ""), 0))


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """The explanation, with texts of errors redacted."""
    shown = explanation.as_dict()
    return {
        **{name: shown[name] for name in ("reason", "rule", "passes", "retry_after")},
        "numbers": finite(shown["numbers"]),
        "summary": redact(shown["summary"]),
        "cause": None if shown["cause"] is None else redact(shown["cause"]),
    }


def finite(value: Any) -> Any:
    """Numbers that JSON can hold: None stands for infinite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refusing(guard: Guard) -> Iterator[tuple[GuardRejected, dict[str, Any]]]:
    """The refusals that a call would meet now, outermost first."""
    now = guard.plan.clock.monotonic()
    for strategy in guard.plan.strategies:
        kind = getattr(strategy, "kind", "custom")
        if kind == "breaker" and strategy.circuit is not None:
            refusal = strategy.circuit.look("peek")
            if refusal is not None:
                error = REJECTIONS["circuit_open"](strategy.circuit.name, refusal.retry_after, "")
                error.__cause__ = refusal.cause
                yield error, {"rule": refusal.rule}
        elif kind == "bulkhead" and (numbers := _slots(strategy)) and _is_full(strategy, numbers):
            yield REJECTIONS["bulkhead_full"](strategy.name, None, ""), {}
        elif kind == "rate_limit" and strategy.policy.by is None:
            wait = strategy.bucket.next_token(None, now)
            if wait > (strategy.policy.max_wait or 0.0):
                yield REJECTIONS["rate_limited"](strategy.name, wait, ""), {}
        elif kind == "failover":
            rows = strategy.pool.snapshot()
            if not any(row["available"] for row in rows):
                waits = [row["retry_after"] for row in rows if row["retry_after"] is not None]
                yield REJECTIONS["pool_exhausted"](strategy.pool.name, min(waits, default=None), ""), {}


def _is_full(strategy: Any, numbers: dict[str, Any]) -> bool:
    return bool(numbers["running"] >= numbers["limit"] and numbers["waiting"] >= strategy.slots.queue_limit)


def _numbers(strategy: Any, now: float) -> dict[str, Any]:
    """What a layer's next decision rests on."""
    match getattr(strategy, "kind", "custom"):
        case "breaker" if strategy.circuit is not None:
            figures: dict[str, Any] = strategy.circuit.look("figures")
            return figures
        case "bulkhead" | "adaptive":
            return _slots(strategy)
        case "throttle":
            return dict(strategy.throttle.figures(now)._asdict())
        case "rate_limit" if strategy.policy.by is None:
            return {"next_token_in_s": strategy.bucket.next_token(None, now)}
        case "retry" if strategy.budget is not None:
            return dict(strategy.budget.figures()._asdict())
        case "failover":
            rows = strategy.pool.snapshot()
            return {"endpoints": len(rows), "available": sum(row["available"] for row in rows)}
    return {}


def _slots(strategy: Any) -> dict[str, Any]:
    slots = strategy.slots
    running = slots.in_use if hasattr(slots, "in_use") else slots.running
    waiting = slots.queued if hasattr(slots, "queued") else len(slots.waiting)
    return {"limit": slots.limit, "running": running, "waiting": waiting}
