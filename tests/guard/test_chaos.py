"""Chaos: notes 2.11."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.core.context import ResilienceContext, TypedKey, use_context
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.chaos import Chaos, ChaosKind, ChaosStrategy
from holdfast.guard.timeout import Timeout
from holdfast.machine.breaker import Breaker, CircuitState
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import AttemptCompleted, ChaosInjected
from tests.guard.colours import Interrupted

TENANT = TypedKey[str]("tenant")


@pytest.fixture
def path() -> str:
    """A guard with Chaos is never fused."""
    return "fused"


def always(kind: str, **options: Any) -> Chaos:
    return Chaos(kind, rate=1, enabled=True, **options)


def kinds(recorder: Any) -> list[str]:
    return [event.kind for event in recorder.of(ChaosInjected)]


def test_chaos_is_off_unless_it_is_enabled(colour: Any, guard_of: Any, recorder: Any) -> None:
    guard, fn = guard_of(Chaos("fault", rate=1)), colour.fn(["value"])
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, fn)
    assert (outcome.value, outcome.metadata, kinds(recorder)) == ("value", {}, [])
    assert ChaosStrategy(Chaos()).is_off
    assert not ChaosStrategy(always("fault")).is_off


def test_a_fault_is_classified_like_an_exception_of_the_function(colour: Any, guard_of: Any, recorder: Any) -> None:
    guard, fn = guard_of(always("fault", error=TimeoutError("slow"))), colour.fn(["value"])
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, fn)
    assert (outcome.kind, str(outcome.error), outcome.attempts, fn.calls) == (OutcomeKind.TIMEOUT, "slow", 1, 0)
    assert outcome.metadata["chaos"] == ("fault",)
    assert kinds(recorder) == ["fault"]
    assert [event.outcome for event in recorder.of(AttemptCompleted)] == [OutcomeKind.TIMEOUT]


def test_a_fault_without_an_error_is_a_lost_connection(colour: Any, guard_of: Any) -> None:
    outcome = colour.run(guard_of(always("fault")), colour.fn(["value"]))
    assert isinstance(outcome.error, ConnectionError)
    assert outcome.kind is OutcomeKind.TRANSIENT_FAILURE


@pytest.mark.parametrize(
    "error",
    [OSError, lambda ctx: OSError(ctx.operation_key), lambda ctx: (_ for _ in ()).throw(OSError("raised"))],
    ids=["a class", "a function that returns it", "a function that raises it"],
)
def test_a_fault_may_be_made_anew_each_time(colour: Any, guard_of: Any, error: Any) -> None:
    guard, fn = guard_of(always("fault", error=error)), colour.fn(["value"])
    one, two = colour.run(guard, fn).error, colour.run(guard, fn).error
    assert isinstance(one, OSError)
    assert one is not two


@pytest.mark.parametrize("error", [KeyError("mine"), Interrupted()])
def test_a_fault_that_the_guard_does_not_classify_is_raised(colour: Any, guard_of: Any, error: Any) -> None:
    guard = guard_of(always("fault", error=error), passthrough=(KeyError,))
    with pytest.raises(type(error)):
        colour.run(guard, colour.fn(["value"]))


def test_faults_are_retried_and_trip_the_breaker_like_real_ones(colour: Any, guard_of: Any, recorder: Any) -> None:
    guard = guard_of(Retry(attempts=2, base=0), Breaker(consecutive(2)), always("fault"))
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, colour.fn(["value"]))
    assert (outcome.attempts, outcome.metadata["chaos"]) == (2, ("fault",))
    assert guard.circuit.state is CircuitState.OPEN
    assert kinds(recorder) == ["fault", "fault"]


@pytest.mark.parametrize("answer", ["injected", lambda ctx: "injected"], ids=["a value", "a function"])
def test_an_outcome_replaces_the_call_and_is_judged_like_its_result(
    colour: Any, guard_of: Any, recorder: Any, answer: Any
) -> None:
    guard = guard_of(
        always("outcome", outcome=answer),
        result_classifier=lambda value: OutcomeKind.PARTIAL if value == "injected" else None,
    )
    guard.telemetry.register(recorder)
    fn = colour.fn(["value"])
    outcome = colour.run(guard, fn)
    assert (outcome.kind, outcome.value, fn.calls) == (OutcomeKind.PARTIAL, "injected", 0)
    assert (outcome.metadata["chaos"], kinds(recorder)) == (("outcome",), ["outcome"])


def test_none_is_an_outcome_that_can_be_injected(colour: Any, guard_of: Any) -> None:
    outcome = colour.run(guard_of(always("outcome", outcome=None)), colour.fn(["value"]))
    assert (outcome.kind, outcome.value) == (OutcomeKind.SUCCESS, None)


def test_an_outcome_object_is_taken_as_it_is(colour: Any, guard_of: Any) -> None:
    injected = Outcome.failure(OutcomeKind.TERMINAL_FAILURE, ValueError("no such order"))
    outcome = colour.run(guard_of(always("outcome", outcome=injected)), colour.fn(["value"]))
    assert (outcome.kind, outcome.error, outcome.attempts) == (injected.kind, injected.error, 1)
    assert outcome.metadata["chaos"] == ("outcome",)
    assert injected.metadata == {}


def test_latency_passes_before_the_call(colour: Any, clock: Any, guard_of: Any, recorder: Any) -> None:
    guard, fn = guard_of(always("latency", latency=3.0)), colour.fn(lambda: clock.monotonic())
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, fn)
    assert (outcome.value, outcome.metadata["chaos"]) == (1003.0, ("latency",))
    assert kinds(recorder) == ["latency"]


@pytest.mark.parametrize("latency", [0, -1, lambda ctx: 0, lambda ctx: 1 / 0, lambda ctx: None])
def test_no_latency_is_no_injection(colour: Any, clock: Any, guard_of: Any, recorder: Any, latency: Any) -> None:
    guard = guard_of(always("latency", latency=latency))
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, colour.fn(["value"]))
    assert (outcome.value, outcome.metadata, kinds(recorder)) == ("value", {}, [])
    assert clock.monotonic() == 1000.0


def test_latency_runs_into_the_attempt_s_time_limit(colour: Any, guard_of: Any) -> None:
    outcome = colour.run(guard_of(Timeout(attempt=1), always("latency", latency=3.0)), colour.fn(["value"]))
    assert outcome.kind is OutcomeKind.TIMEOUT


def test_behaviour_runs_before_the_call_with_its_context(colour: Any, guard_of: Any, recorder: Any) -> None:
    seen: list[str] = []
    guard = guard_of(always("behaviour", behaviour=lambda ctx: seen.append(ctx.operation_key)))
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, colour.fn(lambda: list(seen)))
    assert (outcome.value, outcome.metadata["chaos"], kinds(recorder)) == (["x"], ("behaviour",), ["behaviour"])


def test_what_behaviour_raises_is_the_call_s_failure(colour: Any, guard_of: Any) -> None:
    def misbehave(_ctx: ResilienceContext) -> None:
        raise OSError("disk full")

    fn = colour.fn(["value"])
    outcome = colour.run(guard_of(always("behaviour", behaviour=misbehave)), fn)
    assert (outcome.kind, str(outcome.error), fn.calls) == (OutcomeKind.TRANSIENT_FAILURE, "disk full", 0)


def test_an_async_behaviour_is_awaited_and_refused_in_a_sync_call(guard_of: Any) -> None:
    seen: list[int] = []

    async def behave(_ctx: ResilienceContext) -> None:
        await asyncio.sleep(0)
        seen.append(1)

    guard = guard_of(always("behaviour", behaviour=behave))

    async def body() -> str:
        return "value"

    assert asyncio.run(guard.arun(body)).value == "value"
    assert seen == [1]
    outcome = guard.run(lambda: "value")
    assert isinstance(outcome.error, TypeError)
    assert "needs an async call" in str(outcome.error)


@pytest.mark.parametrize(
    ("rate", "draw", "injected"),
    [
        (0.25, 0.2499, True),
        (0.25, 0.25, False),
        (0, 0.0, False),
        (-3, 0.0, False),
        (7, 0.9999, True),
        (lambda ctx: 0.25, 0.2, True),
        (lambda ctx: 0.25, 0.3, False),
        (lambda ctx: 1 / 0, 0.0, False),
    ],
)
def test_it_strikes_if_the_draw_is_below_the_rate(
    colour: Any, guard_of: Any, rate: Any, draw: float, injected: bool
) -> None:
    guard = guard_of(Chaos("fault", rate=rate, enabled=True), rng=lambda: draw)
    assert colour.run(guard, colour.fn(["value"])).is_failure is injected


def test_it_may_be_enabled_for_some_calls_only(colour: Any, guard_of: Any) -> None:
    guard = guard_of(Chaos("fault", rate=1, enabled=lambda ctx: ctx.get(TENANT) == "test"))
    assert colour.run(guard, colour.fn(["value"])).is_success
    with use_context(ResilienceContext("outer", properties={TENANT: "test"})):
        assert colour.run(guard, colour.fn(["value"])).is_failure


def test_a_switch_that_fails_is_off(colour: Any, guard_of: Any, caplog: Any) -> None:
    guard = guard_of(Chaos("fault", rate=1, enabled=lambda ctx: 1 / 0))
    assert colour.run(guard, colour.fn(["value"])).is_success
    assert "callback" in caplog.text


def test_nothing_is_drawn_while_it_is_off(colour: Any, guard_of: Any) -> None:
    def draw() -> float:
        raise AssertionError("drawn")

    guard = guard_of(Chaos("fault", rate=1), Chaos("fault", rate=1, enabled=lambda ctx: False), rng=draw)
    assert colour.run(guard, colour.fn(["value"])).is_success


def test_several_kinds_live_together_in_the_order_given(colour: Any, clock: Any, guard_of: Any, recorder: Any) -> None:
    guard = guard_of(always("latency", latency=2), Chaos("fault", rate=0, enabled=True), always("fault"))
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, colour.fn(["value"]))
    assert outcome.metadata["chaos"] == ("latency", "fault")
    assert kinds(recorder) == ["latency", "fault"]
    assert clock.monotonic() == 1002.0


def test_chaos_can_be_switched_for_a_block(colour: Any, guard_of: Any) -> None:
    guard = guard_of(Chaos("fault", rate=1))
    with guard.override(always("fault")):
        assert colour.run(guard, colour.fn(["value"])).is_failure
        with guard.override(Chaos("fault", rate=1)):
            assert colour.run(guard, colour.fn(["value"])).is_success
    assert colour.run(guard, colour.fn(["value"])).is_success


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "mayhem"}, "Chaos.kind must be one of fault, outcome, latency, behaviour, got 'mayhem'"),
        ({"rate": "often"}, "Chaos.rate"),
        ({"rate": float("nan")}, "Chaos.rate"),
        ({"enabled": 1}, "Chaos.enabled"),
        ({"error": "OSError"}, "Chaos.error"),
        ({"kind": "latency"}, "Chaos.latency must be given for kind='latency'"),
        ({"kind": "latency", "latency": float("inf")}, "Chaos.latency"),
        ({"kind": "outcome"}, "Chaos.outcome must be given"),
        ({"kind": "behaviour"}, "Chaos.behaviour must be given"),
        ({"kind": "behaviour", "behaviour": 3}, "Chaos.behaviour"),
        ({"kind": "latency", "latency": 1, "error": OSError}, "Chaos.error does not go with kind='latency'"),
    ],
)
def test_impossible_chaos_is_refused_when_it_is_built(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Chaos(**options)


def test_the_kind_may_be_given_as_a_word() -> None:
    assert Chaos("latency", latency=1).kind is ChaosKind.LATENCY


def test_chaos_describes_itself() -> None:
    assert ChaosStrategy(Chaos()).describe() == "chaos: fault in 0.001 of the calls, off"
    assert ChaosStrategy(always("latency", latency=1)).describe() == "chaos: latency in 1 of the calls"
    vague = Chaos("fault", rate=lambda ctx: 0.5, enabled=lambda ctx: True)
    assert ChaosStrategy(vague).describe() == "chaos: fault in a share of the calls, when enabled"
