"""Outcomes, contexts, keys and deadlines, as a checker sees them."""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import (
    CircuitState,
    Deadline,
    Guard,
    Outcome,
    OutcomeKind,
    ResilienceContext,
    TypedKey,
    Verdict,
    current_context,
    remaining_time,
    use_context,
)

TENANT = TypedKey[str]("tenant")
TRIES = TypedKey[int]("tries")

ctx = ResilienceContext("op", Deadline.after(3.0))
assert_type(TENANT, TypedKey[str])
assert_type(ctx.get(TENANT), str | None)
assert_type(ctx.get(TENANT, "acme"), str)
assert_type(ctx.get(TRIES, 0), int)
assert_type(ctx.get(TRIES, "none"), int | str)
ctx.set(TENANT, "acme")
ctx.set(TRIES, 1)
ctx.set(TENANT, 1)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
ctx.set("tenant", "acme")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ctx.get("tenant")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

assert_type(ctx.derive_child("inner"), ResilienceContext)
assert_type(ctx.call_id, str)
assert_type(ctx.parent_call_id, str | None)
assert_type(current_context(), ResilienceContext | None)
assert_type(remaining_time(), float)
with use_context(ctx) as shown:
    assert_type(shown, ResilienceContext)

assert_type(Deadline.never().remaining(), float)
assert_type(Deadline.after(1.0).clamp(None), float)
assert_type(Deadline.after(1.0).derive_attempt(2.0), Deadline)

assert_type(Outcome.success(3), Outcome[int])
assert_type(Outcome.success(None), Outcome[None])
assert_type(Outcome.success("x").unwrap(), str)
assert_type(Outcome.success(3).evolve(detail="x"), Outcome[int])
assert_type(Outcome.success(3).kind, OutcomeKind)
assert_type(Outcome.success(3).error, BaseException | None)
assert_type(Outcome.success(3).retry_after, float | None)
Outcome.failure("timeout")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def covariant(outcome: Outcome[bool]) -> Outcome[int]:
    return outcome


def classify(error: BaseException) -> OutcomeKind | Verdict:
    return Verdict(OutcomeKind.TRANSIENT_FAILURE, retry_after=2.0)


def judge(result: Any) -> OutcomeKind | None:
    return None


def wrong(error: str) -> OutcomeKind:
    return OutcomeKind.SUCCESS


guard = Guard("x", classify=classify, result_classifier=judge, passthrough=(KeyError,))
Guard("x", classify=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Guard(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

assert_type(guard.circuit.state, CircuitState)
assert_type(guard.name, str)
