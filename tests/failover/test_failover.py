"""Failover inside a guard, in both colours."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.classify import http_classifier
from holdfast.core.context import ResilienceContext, TypedKey, current_context, deadline, use_context
from holdfast.core.outcome import OutcomeKind, Verdict
from holdfast.errors import GuardTimeout, PolicyError, PoolExhausted, RateLimited
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.failover import Failover, current_endpoint
from holdfast.failover.pool import EndpointPool
from holdfast.guard.call import IDEMPOTENT
from holdfast.guard.guard import Guard
from holdfast.guard.hedge import Hedge
from holdfast.guard.timeout import Timeout
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive, count
from holdfast.telemetry.events import AttemptCompleted, CircuitStateChanged, LoadShed, RetryScheduled
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Interrupted, Slow, SyncColour

ONCE = Breaker(consecutive(1), open_for=10)
DOWN = OSError("down")


class Response:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = headers
        self.closed = False

    def close(self) -> None:
        self.closed = True


def states(pool: EndpointPool) -> list[str]:
    return [row["state"] for row in pool.snapshot()]


def test_the_function_learns_its_endpoint(colour, guarded, fleet) -> None:
    guard, _ = guarded(Endpoint("a", url="http://a", target=7))
    outcome = colour.run(guard, colour.fn(lambda: current_endpoint()))
    assert outcome.value == Endpoint("a", url="http://a")
    assert outcome.value.target == 7
    assert outcome.metadata["endpoint"] == "a"
    assert outcome.metadata["failover_rounds"] == 1
    assert current_endpoint() is None


def test_a_failed_attempt_goes_on_at_another_endpoint(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b", "c")
    fleet.answers = {"a": DOWN, "b": TimeoutError("slow")}
    outcome = colour.run(guard, colour.fn(fleet))
    assert outcome.value == "from c"
    assert fleet.seen == ["a", "b", "c"]
    assert (outcome.attempts, outcome.metadata["failover_rounds"]) == (3, 3)


def test_switching_to_an_untried_endpoint_needs_no_backoff_but_revisiting_does(colour, guarded, fleet, clock) -> None:
    guard, _ = guarded("a", "b", policies=(Retry(attempts=4, base=1, jitter="none"),))
    fleet.answers = {"a": DOWN, "b": DOWN}
    colour.run(guard, colour.fn(fleet))
    assert fleet.seen == ["a", "b", "a", "b"]
    assert clock.slept == [2, 4]


def test_a_hint_of_the_failure_is_heeded_before_a_switch(colour, guarded, fleet, clock) -> None:
    busy = OSError("busy")
    busy.retry_after = 7.0  # type: ignore[attr-defined]
    guard, _ = guarded("a", "b")
    fleet.answers = {"a": busy}
    assert colour.run(guard, colour.fn(fleet)).value == "from b"
    assert clock.slept == [7]


def test_a_switch_that_is_not_made_any_more_promises_the_caller_nothing(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b", "c", policies=(Retry(attempts=2, base=1),))
    fleet.answers = {"a": DOWN, "b": DOWN}
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.attempts, outcome.retry_after) == (2, None)
    alone, _ = guarded("a", "b", policies=())
    assert colour.run(alone, colour.fn(fleet)).retry_after is None


def test_a_hint_of_the_last_failure_reaches_the_caller(colour, guarded, fleet, clock) -> None:
    busy = OSError("busy")
    busy.retry_after = 7.0  # type: ignore[attr-defined]
    guard, _ = guarded("a", "b", "c", policies=(Retry(attempts=2, base=1),))
    fleet.answers = {"a": DOWN, "b": busy}
    assert colour.run(guard, colour.fn(fleet)).retry_after == 7
    assert clock.slept == []


def test_a_negative_hint_is_none(colour, guarded, fleet, clock) -> None:
    guard, _ = guarded("a", "b", classify=lambda error: Verdict(OutcomeKind.TRANSIENT_FAILURE, retry_after=-1))
    fleet.answers = {"a": DOWN}
    assert colour.run(guard, colour.fn(fleet)).value == "from b"
    assert clock.slept == []


def test_several_attempts_per_endpoint_wait_in_between_and_then_switch(colour, guarded, fleet, clock) -> None:
    records: list[AttemptCompleted] = []
    guard, _ = guarded(
        "a",
        "b",
        policies=(Retry(attempts=5, base=1, jitter="none"),),
        attempts_per_endpoint=2,
        on_attempt=records.append,
    )
    fleet.answers = {"a": DOWN, "b": DOWN}
    colour.run(guard, colour.fn(fleet))
    assert fleet.seen == ["a", "a", "b", "b", "a"]
    assert clock.slept == [1, 4, 8]
    assert [record.failover_round for record in records] == [0, 0, 1, 1, 2]
    assert [record.number for record in records] == [0, 1, 2, 3, 4]
    assert [record.delay for record in records] == [0, 1, 0, 4, 8]


def test_an_endpoint_that_opens_is_left_before_its_attempts_are_used_up(colour, guarded, fleet, clock) -> None:
    guard, _ = guarded("a", "b", attempts_per_endpoint=3, breaker=ONCE)
    fleet.answers = {"a": DOWN}
    assert colour.run(guard, colour.fn(fleet)).value == "from b"
    assert (fleet.seen, clock.slept) == (["a", "b"], [])


def test_a_call_uses_no_more_endpoints_than_it_may(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b", "c", policies=(Retry(attempts=5, base=0),), max_endpoints=2)
    fleet.answers = {"a": DOWN, "b": DOWN}
    outcome = colour.run(guard, colour.fn(fleet))
    assert fleet.seen == ["a", "b", "a", "b", "a"]
    assert outcome.kind is OutcomeKind.TRANSIENT_FAILURE


def test_terminal_errors_do_not_switch(colour, guarded, fleet) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE)
    fleet.answers = {"a": TypeError("bug")}
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.kind, fleet.seen, states(pool)) == (OutcomeKind.TERMINAL_FAILURE, ["a"], ["closed", "closed"])
    assert pool.snapshot()[0]["calls"] == 0


@pytest.mark.parametrize("status", [401, 407])
def test_auth_failures_do_not_switch_and_say_nothing_about_health(colour, guarded, fleet, status) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE, result_classifier=http_classifier)
    fleet.answers = {"a": Response(status)}
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.kind, fleet.seen, states(pool)) == (OutcomeKind.TERMINAL_FAILURE, ["a"], ["closed", "closed"])
    assert pool.snapshot()[0]["calls"] == 0


def test_a_refusal_of_a_nested_limiter_neither_switches_nor_counts(colour, guarded, fleet) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE)
    fleet.answers = {"a": RateLimited("inner", 3.0)}
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REJECTED, "rate_limited")
    assert (fleet.seen, states(pool)) == (["a"], ["closed", "closed"])


def test_a_throttled_answer_shows_that_the_endpoint_lives(colour, guarded, fleet, clock) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE, result_classifier=http_classifier)
    refused = Response(429, **{"Retry-After": "5"})
    fleet.answers = {"a": refused}
    assert colour.run(guard, colour.fn(fleet)).value == "from b"
    assert (clock.slept, states(pool), refused.closed) == ([5], ["closed", "closed"], True)


def test_nothing_available_refuses_at_once(colour, guarded, fleet, clock, recorder, hub) -> None:
    records: list[AttemptCompleted] = []
    guard, _ = guarded("a", "b", breaker=ONCE, on_attempt=records.append)
    fleet.answers = {"a": DOWN, "b": DOWN}
    colour.run(guard, colour.fn(fleet))
    clock.advance(3)
    hub.register(recorder)
    records.clear()
    fleet.seen.clear()
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.kind, outcome.reason, outcome.attempts) == (OutcomeKind.REJECTED, "pool_exhausted", 0)
    assert isinstance(outcome.error, PoolExhausted)
    assert outcome.retry_after == pytest.approx(7)
    assert outcome.error.__cause__ is DOWN  # what opened the first circuit
    assert outcome.metadata["endpoints"] == ["a", "b"]
    assert (fleet.seen, clock.slept) == ([], [])
    for told in (records, recorder.of(AttemptCompleted)):
        assert [(one.endpoint, one.outcome, one.reason) for one in told] == [
            ("a", OutcomeKind.REJECTED, "circuit_open"),
            ("b", OutcomeKind.REJECTED, "circuit_open"),
        ]
    (shed,) = recorder.of(LoadShed)
    assert (shed.name, shed.reason) == ("pool", "pool_exhausted")


def test_a_pool_that_empties_during_a_call_ends_it_at_once_with_the_last_error_as_cause(
    colour, guarded, fleet, clock
) -> None:
    guard, _ = guarded("a", "b", policies=(Retry(attempts=5, base=1),), breaker=ONCE)
    last = OSError("b is down")
    fleet.answers = {"a": DOWN, "b": last}
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.kind, outcome.attempts, fleet.seen) == (OutcomeKind.REJECTED, 2, ["a", "b"])
    assert clock.slept == []
    assert outcome.error is not None
    assert outcome.error.__cause__ is last
    assert "after 2 rounds" in str(outcome.error)
    assert outcome.metadata["failover_rounds"] == 2


def test_an_empty_pool_refuses(colour, guarded, fleet) -> None:
    guard, _ = guarded()
    outcome = colour.run(guard, colour.fn(fleet))
    assert outcome.reason == "pool_exhausted"
    assert "has no endpoints" in str(outcome.error)


def test_breakers_count_attempts_not_calls(colour, guarded, fleet) -> None:
    guard, pool = guarded("a", policies=(Retry(attempts=3, base=0),), breaker=Breaker(count(3)))
    fleet.answers = {"a": DOWN}
    colour.run(guard, colour.fn(fleet))
    assert states(pool) == ["open"]


def test_an_open_endpoint_is_not_called_again_by_the_same_call(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b", policies=(Retry(attempts=6, base=0),), breaker=Breaker(count(2)))
    fleet.answers = {"a": DOWN, "b": DOWN}
    outcome = colour.run(guard, colour.fn(fleet))
    assert fleet.seen == ["a", "b", "a", "b"]
    assert outcome.reason == "pool_exhausted"


def test_a_terminal_answer_closes_a_half_open_endpoint_because_it_answered(colour, guarded, fleet, clock) -> None:
    guard, pool = guarded("a", breaker=ONCE)
    fleet.answers = {"a": [DOWN, TypeError("bad request")]}
    colour.run(guard, colour.fn(fleet))
    clock.advance(10)
    colour.run(guard, colour.fn(fleet))
    assert states(pool) == ["closed"]


def test_a_non_idempotent_call_is_no_probe(colour, guarded, fleet, clock) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE)
    pool.circuit("a").command("trip")
    clock.advance(10)
    ctx = ResilienceContext("order")
    ctx.set(IDEMPOTENT, False)
    with use_context(ctx):
        assert colour.run(guard, colour.fn(fleet)).value == "from b"
    assert states(pool) == ["open", "closed"]
    assert colour.run(guard, colour.fn(fleet)).value == "from a"
    assert states(pool) == ["closed", "closed"]


def test_a_failed_probe_costs_the_call_an_attempt_but_no_wait(colour, guarded, fleet, clock) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE)
    pool.circuit("b").command("trip")
    clock.advance(10)
    fleet.answers = {"b": DOWN}
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.value, fleet.seen, clock.slept) == ("from a", ["b", "a"], [])


def test_an_interrupted_call_returns_the_probes_permit_and_counts_nothing(colour, guarded, fleet, clock) -> None:
    records: list[AttemptCompleted] = []
    guard, pool = guarded("a", breaker=ONCE, on_attempt=records.append)
    pool.circuit("a").command("trip")
    clock.advance(10)
    fleet.answers = {"a": [Interrupted(), "back"]}
    fn = colour.fn(fleet)
    with pytest.raises(Interrupted):
        colour.run(guard, fn)
    assert (states(pool), records, pool.snapshot()[0]["in_flight"]) == (["half_open"], [], 0)
    assert colour.run(guard, fn).value == "back"
    assert states(pool) == ["closed"]


def test_a_passthrough_exception_is_neutral(colour, guarded, fleet) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE, passthrough=(KeyError,))
    fleet.answers = {"a": KeyError("theirs")}
    with pytest.raises(KeyError):
        colour.run(guard, colour.fn(fleet))
    assert (fleet.seen, states(pool)) == (["a"], ["closed", "closed"])


async def test_a_cancelled_task_leaves_no_trace(clock: ManualClock) -> None:
    pool = EndpointPool(["a"], breaker=ONCE)
    guard = Guard("x", Retry(attempts=3), Failover(pool), clock=clock, telemetry=Hub(clock=clock))
    pool.circuit("a").command("trip")
    clock.advance(10)
    hang = asyncio.Event()
    task = asyncio.create_task(guard.arun(hang.wait))
    for _ in range(5):
        await asyncio.sleep(0)
    assert pool.snapshot()[0]["in_flight"] == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (pool.snapshot()[0]["in_flight"], pool.circuit("a").look("peek")) == (0, None)


def test_our_own_time_limit_counts_against_the_endpoint(colour, guarded, clock) -> None:
    records: list[AttemptCompleted] = []
    guard, pool = guarded("a", policies=(Timeout(total=2),), breaker=ONCE, on_attempt=records.append)
    outcome = colour.run(guard, colour.fn([Slow(clock, 5, "late")]))
    assert outcome.kind is OutcomeKind.TIMEOUT
    assert isinstance(outcome.error, GuardTimeout)
    assert states(pool) == ["open"]
    assert [(one.outcome, one.endpoint) for one in records] == [(OutcomeKind.TIMEOUT, "a")]


def test_an_attempts_time_limit_switches(colour, guarded, clock) -> None:
    guard, pool = guarded("a", "b", policies=(Retry(attempts=2), Timeout(attempt=2)), breaker=ONCE)
    outcome = colour.run(guard, colour.fn([Slow(clock, 5, "late"), lambda: current_endpoint().id]))
    assert (outcome.value, states(pool)) == ("b", ["open", "closed"])


def test_three_failing_endpoints_spend_one_budget(colour, guarded, clock) -> None:
    guard, _ = guarded("a", "b", "c", policies=(Retry(attempts=10, base=1, jitter="none"), Timeout(total=10)))
    began = clock.monotonic()
    outcome = colour.run(guard, colour.fn([Slow(clock, 4, OSError("down"))]))
    assert outcome.kind is OutcomeKind.TIMEOUT
    over = 0 if colour.is_async else 2  # a sync attempt cannot be cut
    assert clock.monotonic() - began == pytest.approx(10 + over)


@pytest.mark.parametrize("is_async", [False, True])
@given(
    budget=st.floats(0.5, 20),
    service=st.floats(0.05, 30),
    base=st.floats(0, 3),
    attempts=st.integers(1, 10),
    per_endpoint=st.integers(1, 3),
)
def test_however_it_fails_the_budget_over_three_endpoints_is_one_budget(
    is_async: bool, budget: float, service: float, base: float, attempts: int, per_endpoint: int
) -> None:
    clock = ManualClock()
    pool = EndpointPool(["a", "b", "c"], breaker=Breaker(count(1000)))
    guard = Guard(
        "x", Retry(attempts=attempts, base=base, jitter="none"), Timeout(total=budget), Failover(pool, per_endpoint),
        clock=clock, telemetry=Hub(clock=clock), rng=lambda: 0.5,
    )  # fmt: skip
    starts: list[float] = []

    def sync_down() -> None:
        starts.append(clock.monotonic())
        clock.sleep(service)
        raise OSError("down")

    async def async_down() -> None:
        starts.append(clock.monotonic())
        await clock.asleep(service)
        raise OSError("down")

    began = clock.monotonic()
    if is_async:
        asyncio.run(guard.arun(async_down))
        assert clock.monotonic() - began <= budget + 1e-6
    else:
        guard.run(sync_down)
        assert clock.monotonic() - began <= budget + service + 1e-6
    assert all(start - began < budget for start in starts)
    assert all(row["in_flight"] == 0 for row in pool.snapshot())


def test_the_callers_deadline_covers_all_rounds(colour, guarded, clock) -> None:
    guard, _ = guarded("a", "b", "c", policies=(Retry(attempts=10, base=1, jitter="none"),))
    fn = colour.fn([Slow(clock, 2, OSError("down"))])
    with deadline(5, clock=clock):
        colour.run(guard, fn)
    assert fn.calls == 3


def test_an_abandoned_attempt_keeps_its_own_endpoint(clock: ManualClock) -> None:
    pool = EndpointPool(["a", "b"], choose="first", breaker=Breaker(consecutive(5)))
    records: list[AttemptCompleted] = []
    guard = Guard(
        "x", Retry(attempts=2, base=0), Timeout(attempt=0.05, abandon=True), Failover(pool, on_attempt=records.append),
        telemetry=Hub(),
    )  # fmt: skip
    switched, finished, late = threading.Event(), threading.Event(), []

    def fn() -> str:
        endpoint = current_endpoint()
        assert endpoint is not None
        if endpoint.id == "b":
            switched.set()
            assert finished.wait(10)
            return "from b"
        assert switched.wait(10)
        seen = current_endpoint()
        assert seen is not None
        late.append(seen.id)
        finished.set()
        return "too late"

    outcome = guard.run(fn)
    assert late == ["a"]
    assert outcome.value == "from b"
    assert [(one.outcome.value, one.endpoint) for one in records] == [("timeout", "a"), ("success", "b")]
    assert pool.snapshot()[0]["failure_count"] == 1


def test_what_the_function_writes_to_its_context_survives_the_attempt(colour, guarded) -> None:
    guard, _ = guarded("a", "b")
    key = TypedKey[int]("tries")
    seen: list[int] = []

    def body() -> str:
        ctx = current_context()
        assert ctx is not None
        seen.append(ctx.get(key, 0))
        ctx.set(key, len(seen))
        if len(seen) == 1:
            raise OSError("down")
        return "ok"

    colour.run(guard, colour.fn(body))
    assert seen == [0, 1]


def test_a_nested_guard_with_the_same_pool_starts_its_own_tour(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b")

    def body() -> Any:
        outer = current_endpoint()
        inner = yield colour.inner(guard, colour.fn(lambda: current_endpoint()))
        again = current_endpoint()
        return outer, inner.value, again

    outer, inner, again = colour.run(guard, colour.fn(body)).value
    assert (outer.id, inner.id, again.id) == ("a", "a", "a")


def test_a_nested_guard_without_failover_reports_no_endpoint_as_its_own(colour, guarded, clock, hub, recorder) -> None:
    hub.register(recorder)
    outer, _ = guarded("a")
    inner = Guard("inner", Retry(attempts=2, base=0, domain="inner"), clock=clock, telemetry=hub)
    steps = [OSError("down"), lambda: current_endpoint()]

    def body() -> Any:
        return (yield colour.inner(inner, colour.fn(steps)))

    nested = colour.run(outer, colour.fn(body)).value
    assert nested.value.id == "a", "what the outer guard chose is still known to the code below it"
    assert [attempt.endpoint for attempt in nested.metadata["trail"]] == [None, None]
    told = [(one.operation_key, one.endpoint) for one in recorder.of(AttemptCompleted)]
    assert told == [("inner", None), ("inner", None), ("x", "a")]


def test_a_nested_call_that_has_looked_at_its_context_reports_no_endpoint_either(colour, guarded, clock) -> None:
    outer, _ = guarded("a")
    inner = Guard("inner", Retry(attempts=1), clock=clock, telemetry=Hub())

    def look() -> None:
        assert current_context() is not None
        raise OSError("down")

    def body() -> Any:
        return (yield colour.inner(inner, colour.fn(look)))

    nested = colour.run(outer, colour.fn(body)).value
    assert [attempt.endpoint for attempt in nested.metadata["trail"]] == [None]


def test_concurrent_calls_of_one_guard_do_not_share_their_tours(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b")
    gate = colour.gate()
    seen: list[str] = []

    def body() -> Any:
        endpoint = current_endpoint()
        assert endpoint is not None
        seen.append(endpoint.id)
        yield gate.wait()
        if endpoint.id == "a":
            raise OSError("down")
        return endpoint.id

    handles = [colour.start(guard, colour.fn(body)) for _ in range(3)]
    colour.until(lambda: len(seen) == 3)
    assert seen == ["a", "a", "a"]
    gate.open()
    assert [handle.outcome().value for handle in handles] == ["b", "b", "b"]


def test_inside_a_hedge_every_run_has_an_endpoint_of_its_own(colour, guarded) -> None:
    order = ("retry", "hedge", "failover")
    guard, pool = guarded("a", "b", "c", policies=(Retry(attempts=2, base=0), Hedge(0, max_hedged=2)), order=order)
    gate = colour.gate()
    seen: list[str] = []

    def body() -> Any:
        endpoint = current_endpoint()
        assert endpoint is not None
        seen.append(endpoint.id)
        if endpoint.id != "b":
            yield gate.wait()
        again = current_endpoint()
        assert again is not None
        return again.id

    handle = colour.start(guard, colour.fn(body))
    colour.until(lambda: len(seen) == 3)
    assert sorted(seen) == ["a", "b", "c"]
    assert handle.outcome().value == "b"
    gate.open()
    colour.until(lambda: all(row["in_flight"] == 0 for row in pool.snapshot()))


def test_outside_a_hedge_all_runs_share_the_attempts_endpoint(colour, guarded, fleet) -> None:
    records: list[AttemptCompleted] = []
    guard, _ = guarded(
        "a", "b", policies=(Retry(attempts=2, base=0), Hedge(-1, max_hedged=1)), on_attempt=records.append
    )
    fleet.answers = {"a": DOWN}
    assert colour.run(guard, colour.fn(fleet)).value == "from b"
    assert fleet.seen == ["a", "a", "b"]
    assert [(one.number, one.endpoint) for one in records] == [(0, "a"), (1, "a"), (2, "b")]


def test_attempts_in_the_events_name_their_endpoint(colour, guarded, fleet, recorder, hub) -> None:
    hub.register(recorder)
    guard, _ = guarded("a", "b", breaker=ONCE)
    fleet.answers = {"a": DOWN}
    colour.run(guard, colour.fn(fleet))
    assert [(one.number, one.endpoint, one.outcome.value) for one in recorder.of(AttemptCompleted)] == [
        (0, "a", "transient_failure"),
        (1, "b", "success"),
    ]
    assert [(one.name, one.to_state) for one in recorder.of(CircuitStateChanged)] == [("a", "open")]
    assert [one.wait for one in recorder.of(RetryScheduled)] == [0.0]


def test_records_tell_status_latency_and_reason(colour, guarded, clock) -> None:
    records: list[AttemptCompleted] = []
    guard, _ = guarded("a", "b", "c", on_attempt=records.append, result_classifier=http_classifier, id="orders")
    steps = [Slow(clock, 2, lambda: Response(503)), Slow(clock, 1, ConnectionError("gone")), lambda: Response(404)]
    colour.run(guard, colour.fn(steps))
    assert [
        (one.number, one.endpoint, one.outcome.value, one.status_code, one.service_s, one.reason, one.error_type)
        for one in records
    ] == [
        (0, "a", "transient_failure", 503, 2.0, "status_503", None),
        (1, "b", "transient_failure", None, 1.0, None, "ConnectionError"),
        (2, "c", "success", 404, 0.0, None, None),
    ]
    assert {one.policy_id for one in records} == {"orders"}


def test_a_recorder_that_fails_does_not_touch_the_result(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", on_attempt=lambda record: 1 / 0)
    assert colour.run(guard, colour.fn(fleet)).value == "from a"


def test_a_block_goes_through_the_endpoints_too(guarded) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE)
    seen = []
    for attempt in guard.attempts():
        with attempt:
            seen.append(current_endpoint())
            if len(seen) == 1:
                raise OSError("down")
    assert [str(endpoint) for endpoint in seen] == ["a", "b"]
    assert states(pool) == ["open", "closed"]


async def test_an_async_block_goes_through_the_endpoints_too(guarded) -> None:
    guard, pool = guarded("a", "b", breaker=ONCE)
    seen = []
    async for attempt in guard.attempts():
        with attempt:
            await asyncio.sleep(0)
            seen.append(current_endpoint())
            if len(seen) == 1:
                raise OSError("down")
    assert [str(endpoint) for endpoint in seen] == ["a", "b"]
    assert states(pool) == ["open", "closed"]


def test_a_block_that_is_left_early_gives_its_permit_back(guarded, clock) -> None:
    guard, pool = guarded("a", breaker=ONCE)
    pool.circuit("a").command("trip")
    clock.advance(10)
    for _attempt in guard.attempts():
        break
    del _attempt
    assert pool.snapshot()[0]["in_flight"] == 0
    assert pool.snapshot()[0]["available"]


def test_without_retry_one_endpoint_is_tried(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b", policies=())
    fleet.answers = {"a": DOWN}
    outcome = colour.run(guard, colour.fn(fleet))
    assert (outcome.kind, fleet.seen) == (OutcomeKind.TRANSIENT_FAILURE, ["a"])


def test_raising_mode_raises_the_last_endpoints_own_exception(colour, guarded, fleet) -> None:
    guard, _ = guarded("a", "b")
    last = OSError("b is down")
    fleet.answers = {"a": [DOWN, last], "b": last}
    with pytest.raises(OSError, match="b is down") as caught:
        colour.call(guard, colour.fn(fleet))
    assert caught.value is last


def test_a_switched_off_guard_calls_without_an_endpoint(colour, guarded, hub) -> None:
    guard, pool = guarded("a")
    hub.switch(True)
    assert colour.run(guard, colour.fn(lambda: current_endpoint())).value is None
    assert pool.circuits() == {}


def test_two_failovers_in_one_guard_are_refused(clock: ManualClock) -> None:
    pool = EndpointPool(["a"])
    with pytest.raises(PolicyError, match="2 policies of kind 'failover'"):
        Guard("x", Failover(pool), Failover(pool), telemetry=Hub())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": ["a"]}, r"Failover.pool must be an EndpointPool, got \['a'\]"),
        ({"attempts_per_endpoint": 0}, "Failover.attempts_per_endpoint must be .*got 0; use 1"),
        ({"max_endpoints": 0}, "Failover.max_endpoints must be .*got 0; use None"),
    ],
)
def test_an_impossible_failover_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Failover(**{"pool": EndpointPool(["a"]), **options})


def test_the_guard_describes_its_pool(guarded) -> None:
    guard, _ = guarded("a", "b", attempts_per_endpoint=2, max_endpoints=1)
    (strategy,) = [one for one in guard.plan.strategies if one.kind == "failover"]
    text = strategy.describe()
    assert text.startswith(
        "failover 'pool': first of 2 endpoints, 2 attempts per endpoint, at most 1 endpoints per call"
    )
    assert [one.kind for one in guard.plan.strategies] == ["retry", "failover"]


def test_random_interruptions_leak_no_permit_and_no_slot(seed: int, size: int) -> None:
    draws = random.Random(seed)
    clock = ManualClock()
    pool = EndpointPool(["a", "b", "c"], breaker=Breaker(count(3, window=20), open_for=5))
    guard = Guard(
        "x", Retry(attempts=3, base=0.1), Failover(pool), clock=clock, telemetry=Hub(clock=clock), rng=draws.random
    )
    colour = SyncColour()

    def body() -> str:
        clock.advance(draws.random())
        kind = draws.randrange(4)
        if kind == 0:
            raise Interrupted
        if kind == 1:
            raise OSError("down")
        if kind == 2:
            raise TypeError
        return "ok"

    fn = colour.fn(body)
    for _ in range(300 * size):
        try:
            colour.run(guard, fn)
        except Interrupted:
            pass
        clock.advance(draws.random() * 3)
    assert all(row["in_flight"] == 0 for row in pool.snapshot())
    clock.advance(1000)
    assert all(row["available"] for row in pool.snapshot())
