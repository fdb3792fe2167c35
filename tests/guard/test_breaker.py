"""The circuit breaker in a guard: what opens it, whom it lets through, what closes it."""

from __future__ import annotations

import pytest

from holdfast import (
    Breaker,
    CallCompleted,
    CircuitBreakerStrategy,
    CircuitOpen,
    CircuitState,
    CircuitStateChanged,
    Evidence,
    InMemoryMetrics,
    LoadShed,
    OutcomeKind,
    Retry,
    Verdict,
    consecutive,
    count,
    k_of_n,
    ratio,
    slow_ratio,
)
from tests.guard.colours import Interrupted, Slow

K = OutcomeKind
CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = OSError("down")


@pytest.fixture
def good(colour):
    return colour.fn(["up"])


@pytest.fixture
def bad(colour):
    return colour.fn([DOWN])


def fail(colour, guard, times):
    fn = colour.fn([DOWN])
    for _ in range(times):
        colour.run(guard, fn)


def tripped(colour, guard_of, **options):
    """A guard whose circuit has just opened for 30 s, at 1000."""
    guard = guard_of(Breaker(consecutive(2), **options))
    fail(colour, guard, 2)
    assert guard.circuit.state is OPEN
    return guard


def moves(recorder):
    return [(event.from_state, event.to_state, event.cause) for event in recorder.of(CircuitStateChanged)]


def test_a_circuit_starts_closed(guard_of):
    guard = guard_of(Breaker())
    assert guard.circuit.state is CLOSED
    assert guard.circuit.next_test is None


def test_an_open_circuit_refuses_without_calling(colour, guard_of, good):
    outcome = colour.run(tripped(colour, guard_of), good)
    assert (outcome.kind, outcome.reason, outcome.attempts) == (K.REJECTED, "circuit_open", 0)
    assert good.calls == 0


def test_a_refusal_carries_retry_after_and_the_exception_that_opened_the_circuit(colour, guard_of, clock, good):
    guard = tripped(colour, guard_of)
    clock.advance(12)
    outcome = colour.run(guard, good)
    assert outcome.retry_after == 18
    assert isinstance(outcome.error, CircuitOpen)
    assert outcome.error.retry_after == 18
    assert outcome.error.__cause__ is DOWN


def test_raising_mode_raises_circuit_open(colour, guard_of, good):
    guard = tripped(colour, guard_of)
    with pytest.raises(CircuitOpen) as caught:
        colour.call(guard, good)
    assert caught.value.guard == "x"
    assert caught.value.__cause__ is DOWN


def test_consecutive_opens_at_the_nth_failure_in_a_row(colour, guard_of, good):
    guard = guard_of(Breaker(consecutive(3)))
    fail(colour, guard, 2)
    colour.run(guard, good)
    fail(colour, guard, 2)
    assert guard.circuit.state is CLOSED
    fail(colour, guard, 1)
    assert guard.circuit.state is OPEN


@pytest.mark.parametrize("neutral", [TypeError("bug"), Interrupted()], ids=["terminal", "interrupted"])
def test_a_neutral_result_does_not_reset_the_streak(colour, guard_of, neutral):
    guard = guard_of(Breaker(consecutive(3)))
    fail(colour, guard, 2)
    try:
        colour.run(guard, colour.fn([neutral]))
    except Interrupted:
        pass
    assert guard.circuit.look("failure_count") == 2
    fail(colour, guard, 1)
    assert guard.circuit.state is OPEN


def test_count_opens_at_n_failures_in_the_window_whatever_succeeded_between(colour, guard_of, clock, good):
    guard = guard_of(Breaker(count(3, window=60)))
    for _ in range(2):
        fail(colour, guard, 1)
        colour.run(guard, good)
        clock.advance(20)
    assert guard.circuit.state is CLOSED
    fail(colour, guard, 1)
    assert guard.circuit.state is OPEN


def test_a_failure_exactly_a_window_old_still_counts(colour, guard_of, clock):
    guard = guard_of(Breaker(count(2, window=60)))
    fail(colour, guard, 1)
    clock.advance(60)
    fail(colour, guard, 1)
    assert guard.circuit.state is OPEN


def test_a_failure_older_than_the_window_does_not_count(colour, guard_of, clock):
    guard = guard_of(Breaker(count(2, window=60)))
    fail(colour, guard, 1)
    clock.advance(60.001)
    fail(colour, guard, 1)
    assert guard.circuit.state is CLOSED
    assert guard.circuit.look("failure_count") == 1


def test_reading_the_failure_count_prunes(colour, guard_of, clock):
    guard = guard_of(Breaker(count(5, window=60)))
    fail(colour, guard, 3)
    assert guard.circuit.look("failure_count") == 3
    clock.advance(61)
    assert guard.circuit.look("failure_count") == 0


def test_ratio_opens_at_the_rate_once_there_were_enough_calls(colour, guard_of, good):
    guard = guard_of(Breaker(ratio(0.5, min_calls=4)))
    fail(colour, guard, 1)
    colour.run(guard, good)
    fail(colour, guard, 1)
    assert guard.circuit.state is CLOSED  # two of three failed, but three calls are too few
    colour.run(guard, good)
    assert guard.circuit.state is CLOSED  # a success never opens
    fail(colour, guard, 1)
    assert guard.circuit.state is OPEN


def test_ratio_counts_successes_on_every_path(colour, guard_of, good):
    guard = guard_of(Breaker(ratio(0.5, min_calls=2)))
    for _ in range(10):
        colour.run(guard, good)
    fail(colour, guard, 9)
    assert guard.circuit.state is CLOSED
    fail(colour, guard, 1)
    assert guard.circuit.state is OPEN


def test_k_of_n_opens_as_soon_as_k_of_the_last_n_failed(colour, guard_of, good):
    guard = guard_of(Breaker(k_of_n(3, 5)))
    fail(colour, guard, 2)
    for _ in range(3):
        colour.run(guard, good)
    fail(colour, guard, 1)
    assert guard.circuit.state is CLOSED
    fail(colour, guard, 2)
    assert guard.circuit.state is OPEN


def test_slow_ratio_counts_a_slow_success_against_the_dependency(colour, guard_of, clock, good):
    guard = guard_of(Breaker(slow_ratio(0.5, threshold=2, min_calls=4)))
    slow = colour.fn([Slow(clock, 3, "up")])
    for fn in (good, slow, good):
        colour.run(guard, fn)
    assert guard.circuit.state is CLOSED
    colour.run(guard, slow)
    assert guard.circuit.state is OPEN


def test_any_of_several_rules_opens(colour, guard_of, clock):
    guard = guard_of(Breaker(consecutive(9), count(2, window=60)))
    fail(colour, guard, 2)
    assert guard.circuit.state is OPEN


@pytest.mark.parametrize(
    ("error", "counted"), [(OSError("x"), 1), (TimeoutError("x"), 1), (TypeError("x"), 0), (ValueError("x"), 1)]
)
def test_only_timeouts_and_transient_failures_count(colour, guard_of, error, counted):
    guard = guard_of(Breaker(count(5)))
    colour.run(guard, colour.fn([error]))
    assert guard.circuit.look("failure_count") == counted


def test_a_partial_result_is_a_success_for_the_breaker(colour, guard_of):
    guard = guard_of(Breaker(consecutive(3)), result_classifier=lambda value: K.PARTIAL if value == "half" else None)
    fail(colour, guard, 2)
    colour.run(guard, colour.fn(["half"]))
    assert guard.circuit.look("failure_count") == 0


def test_a_failed_result_counts(colour, guard_of):
    guard = guard_of(Breaker(consecutive(1)), result_classifier=lambda _: K.TRANSIENT_FAILURE)
    colour.run(guard, colour.fn(["503"]))
    assert guard.circuit.state is OPEN


def test_a_verdict_may_say_what_the_breaker_learns(colour, guard_of):
    alive = Verdict(K.TRANSIENT_FAILURE, evidence=Evidence.SUCCESS)
    guard = guard_of(Breaker(consecutive(1)), classify=lambda _: alive)
    fail(colour, guard, 3)
    assert guard.circuit.state is CLOSED


def test_failures_while_open_change_nothing(colour, guard_of, clock, good):
    guard, gate = guard_of(Breaker(consecutive(2), open_for=30)), colour.gate()

    def late_failure():
        yield gate.wait()
        raise DOWN

    late = colour.enter(guard, colour.fn(late_failure))
    fail(colour, guard, 2)
    generation, due = guard.circuit.generation, guard.circuit.next_test
    clock.advance(10)
    gate.open()
    assert late.outcome().kind is K.TRANSIENT_FAILURE
    assert (guard.circuit.generation, guard.circuit.next_test) == (generation, due) == (generation, 1030)


def test_a_stale_success_does_not_close_a_half_open_circuit(colour, guard_of, clock):
    guard, old, probe = guard_of(Breaker(consecutive(2))), colour.gate(), colour.gate()

    def waits_for(gate, then):
        def body():
            yield gate.wait()
            return then

        return colour.fn(body)

    stale = colour.enter(guard, waits_for(old, "old"))
    fail(colour, guard, 2)
    clock.advance(30)
    probing = colour.enter(guard, waits_for(probe, "new"))
    colour.until(lambda: guard.circuit.state is HALF_OPEN)
    old.open()
    assert stale.outcome().value == "old"
    assert guard.circuit.state is HALF_OPEN
    probe.open()
    assert probing.outcome().value == "new"
    assert guard.circuit.state is CLOSED


def test_the_first_call_after_the_open_time_is_the_probe(colour, guard_of, clock, good):
    guard = tripped(colour, guard_of)
    clock.advance(29.999)
    assert colour.run(guard, good).kind is K.REJECTED
    clock.advance(0.001)
    assert colour.run(guard, good).value == "up"
    assert guard.circuit.state is CLOSED
    assert guard.circuit.next_test is None
    assert guard.circuit.look("failure_count") == 0


def test_a_failed_probe_opens_for_a_fresh_full_time(colour, guard_of, clock, bad):
    guard = tripped(colour, guard_of)
    clock.advance(45)
    colour.run(guard, bad)
    assert guard.circuit.state is OPEN
    assert guard.circuit.next_test == 1075


def test_while_a_probe_runs_everybody_else_is_refused(colour, guard_of, clock, good):
    guard, gate = tripped(colour, guard_of), colour.gate()
    clock.advance(30)

    def body():
        yield gate.wait()
        return "alive"

    probe = colour.enter(guard, colour.fn(body))
    colour.until(lambda: guard.circuit.state is HALF_OPEN)
    for _ in range(5):
        assert colour.run(guard, good).reason == "circuit_open"
    assert good.calls == 0
    gate.open()
    assert probe.outcome().value == "alive"
    assert colour.run(guard, good).value == "up"


def test_an_interrupted_probe_returns_its_permit_at_once(colour, guard_of, clock, good):
    guard = tripped(colour, guard_of)
    clock.advance(30)
    with pytest.raises(Interrupted):
        colour.run(guard, colour.fn([Interrupted()]))
    assert guard.circuit.state is HALF_OPEN
    assert colour.run(guard, good).value == "up"
    assert guard.circuit.state is CLOSED


async def test_a_cancelled_probe_returns_its_permit(guard_of, clock):
    import asyncio

    async def bad() -> None:
        raise DOWN

    async def good() -> str:
        return "up"

    guard = guard_of(Breaker(consecutive(1)))
    await guard.arun(bad)
    clock.advance(30)
    probe = asyncio.ensure_future(guard.arun(asyncio.sleep, 60))
    await asyncio.sleep(0)
    assert guard.circuit.state is HALF_OPEN
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert (await guard.arun(good)).value == "up"


def test_a_probe_that_passes_an_exception_through_returns_its_permit(colour, guard_of, clock, good):
    guard = guard_of(Breaker(consecutive(1)), passthrough=(KeyError,))
    fail(colour, guard, 1)
    clock.advance(30)
    with pytest.raises(KeyError):
        colour.run(guard, colour.fn([KeyError("mine")]))
    assert guard.circuit.state is HALF_OPEN
    assert colour.run(guard, good).value == "up"


def test_a_probe_that_never_returns_frees_itself_after_the_open_time(colour, guard_of, clock, good):
    guard, gate = tripped(colour, guard_of), colour.gate()
    clock.advance(30)

    def body():
        yield gate.wait()
        return "zombie"

    zombie = colour.enter(guard, colour.fn(body))
    colour.until(lambda: guard.circuit.state is HALF_OPEN)
    clock.advance(29)
    assert colour.run(guard, good).kind is K.REJECTED
    clock.advance(1)
    assert colour.run(guard, good).value == "up"
    assert guard.circuit.state is CLOSED
    gate.open()
    zombie.outcome()
    assert guard.circuit.state is CLOSED


def test_a_terminal_failure_of_a_probe_closes_because_the_dependency_answered(colour, guard_of, clock):
    guard = tripped(colour, guard_of)
    clock.advance(30)
    assert colour.run(guard, colour.fn([TypeError("bug")])).kind is K.TERMINAL_FAILURE
    assert guard.circuit.state is CLOSED


def test_a_terminal_failure_of_a_probe_can_be_made_neutral(colour, guard_of, clock, good):
    guard = tripped(colour, guard_of, terminal_is_success=False)
    clock.advance(30)
    colour.run(guard, colour.fn([TypeError("bug")]))
    assert guard.circuit.state is HALF_OPEN
    assert colour.run(guard, good).value == "up"


def test_a_refusal_from_inside_a_probe_neither_closes_nor_keeps_the_circuit(colour, guard_of, clock, good):
    inner = tripped(colour, guard_of)
    inner.circuit.command("isolate")
    guard = guard_of(Breaker(consecutive(2)), name="outer")
    fail(colour, guard, 2)
    clock.advance(30)

    def body():
        value = yield colour.inner_call(inner, good)
        return value

    assert colour.run(guard, colour.fn(body)).kind is K.REJECTED
    assert guard.circuit.state is HALF_OPEN
    assert colour.run(guard, good).value == "up"


def test_several_successes_may_be_asked_for(colour, guard_of, clock, good):
    guard = tripped(colour, guard_of, successes=3)
    clock.advance(30)
    states = []
    for _ in range(3):
        colour.run(guard, good)
        states.append(guard.circuit.state)
    assert states == [HALF_OPEN, HALF_OPEN, CLOSED]


def test_probing_ends_as_soon_as_the_successes_are_out_of_reach(colour, guard_of, clock, good, bad):
    guard = tripped(colour, guard_of, successes=2, out_of=3)
    clock.advance(30)
    colour.run(guard, bad)
    assert guard.circuit.state is HALF_OPEN
    colour.run(guard, bad)
    assert guard.circuit.state is OPEN


def test_as_many_probes_as_allowed_run_at_once(colour, guard_of, clock, good):
    guard, gate = tripped(colour, guard_of, successes=3, probes=2), colour.gate()
    clock.advance(30)

    def body():
        yield gate.wait()
        return "alive"

    probes = [colour.enter(guard, colour.fn(body)) for _ in range(2)]
    colour.until(lambda: guard.circuit.look("figures").get("probes_held") == 2)
    assert colour.run(guard, good).reason == "circuit_open"
    gate.open()
    assert [probe.outcome().value for probe in probes] == ["alive", "alive"]
    assert colour.run(guard, good).value == "up"
    assert guard.circuit.state is CLOSED


def test_under_a_ratio_rule_the_probes_are_judged_by_the_ratio(colour, guard_of, clock, good, bad):
    guard = guard_of(Breaker(ratio(0.5, min_calls=2), successes=4))
    fail(colour, guard, 2)
    clock.advance(30)
    for fn in (bad, good, good):
        colour.run(guard, fn)
    assert guard.circuit.state is HALF_OPEN
    colour.run(guard, good)
    assert guard.circuit.state is CLOSED


def test_the_open_time_may_grow_with_failed_rounds(colour, guard_of, clock, good, bad):
    guard = guard_of(Breaker(consecutive(1), open_for=lambda rounds: 10 * 2**rounds))
    lengths = []
    colour.run(guard, bad)
    for _ in range(3):
        lengths.append(guard.circuit.next_test - clock.monotonic())
        clock.advance(lengths[-1])
        colour.run(guard, bad)
    assert lengths == [10, 20, 40]
    clock.advance(80)
    colour.run(guard, good)
    colour.run(guard, bad)
    assert guard.circuit.next_test - clock.monotonic() == 10


def test_half_open_may_be_limited_in_time(colour, guard_of, clock, good):
    guard = tripped(colour, guard_of, successes=2, half_open_for=5)
    clock.advance(30)
    colour.run(guard, good)
    clock.advance(5)
    assert colour.run(guard, good).reason == "circuit_open"
    assert guard.circuit.state is OPEN


def test_peek_changes_nothing(colour, guard_of, clock):
    guard = tripped(colour, guard_of)
    assert guard.circuit.look("peek").retry_after == 30
    clock.advance(30)
    before = guard.circuit.generation
    assert guard.circuit.look("peek") is None
    assert (guard.circuit.state, guard.circuit.generation) == (OPEN, before)


def test_every_state_change_raises_the_generation(colour, guard_of, clock, good, bad):
    guard = guard_of(Breaker(consecutive(1)))
    seen = [guard.circuit.generation]
    colour.run(guard, bad)
    seen.append(guard.circuit.generation)
    clock.advance(30)
    colour.run(guard, good)
    seen.append(guard.circuit.generation)
    assert seen == sorted(set(seen))
    assert seen[2] - seen[1] == 2


def test_an_isolated_circuit_refuses_everything_and_does_not_say_for_how_long(colour, guard_of, clock, good):
    guard = guard_of(Breaker())
    guard.circuit.command("isolate")
    clock.advance(1e6)
    outcome = colour.run(guard, good)
    assert (outcome.reason, outcome.retry_after, good.calls) == ("circuit_open", None, 0)
    guard.circuit.command("close")
    assert colour.run(guard, good).value == "up"


def test_no_result_changes_an_isolated_circuit(colour, guard_of):
    guard, gate = guard_of(Breaker(consecutive(1))), colour.gate()

    def body():
        yield gate.wait()
        return "up"

    running = colour.enter(guard, colour.fn(body))
    guard.circuit.command("isolate")
    gate.open()
    assert running.outcome().value == "up"
    assert guard.circuit.control == "isolated"
    assert guard.circuit.state is OPEN


@pytest.mark.parametrize("verb", ["close", "reset"])
def test_close_and_reset_close_an_open_circuit(colour, guard_of, good, verb):
    guard = tripped(colour, guard_of)
    guard.circuit.command(verb)
    assert guard.circuit.state is CLOSED
    assert colour.run(guard, good).value == "up"
    assert guard.circuit.look("failure_count") == 0


def test_reset_forgets_failures_of_a_closed_circuit(colour, guard_of):
    guard = guard_of(Breaker(consecutive(3)))
    fail(colour, guard, 2)
    guard.circuit.command("reset")
    fail(colour, guard, 2)
    assert guard.circuit.state is CLOSED


def test_a_disabled_circuit_admits_everything_and_records_nothing(colour, guard_of, good):
    guard = tripped(colour, guard_of)
    guard.circuit.command("disable")
    fail(colour, guard, 9)
    assert colour.run(guard, good).value == "up"
    guard.circuit.command("enable")
    assert guard.circuit.state is OPEN
    guard.circuit.command("reset")
    guard.circuit.command("disable")
    fail(colour, guard, 9)
    guard.circuit.command("enable")
    assert guard.circuit.state is CLOSED
    assert guard.circuit.look("failure_count") == 0


def test_a_metrics_only_circuit_counts_but_never_opens(colour, guard_of):
    guard = guard_of(Breaker(count(3)))
    guard.circuit.command("metrics_only")
    fail(colour, guard, 5)
    assert guard.circuit.state is CLOSED
    assert guard.circuit.look("failure_count") >= 3


def test_each_transition_is_one_event_in_order(colour, guard_of, clock, good, recorder):
    guard = guard_of(Breaker(consecutive(2)))
    guard.telemetry.register(recorder)
    fail(colour, guard, 2)
    clock.advance(30)
    colour.run(guard, good)
    assert moves(recorder) == [
        ("closed", "open", "tripped"),
        ("open", "half_open", "probe_admitted"),
        ("half_open", "closed", "recovered"),
    ]
    assert recorder.of(CircuitStateChanged)[0].failure_count == 2


def test_a_quiet_metrics_listener_counts_every_transition(colour, guard_of, clock, good):
    guard, metrics = guard_of(Breaker(consecutive(2))), InMemoryMetrics()
    guard.telemetry.register(metrics)
    fail(colour, guard, 2)
    colour.run(guard, good)
    clock.advance(30)
    colour.run(guard, good)
    seen = metrics.snapshot()
    assert seen["circuit_transitions"] == {"x: closed->open": 1, "x: open->half_open": 1, "x: half_open->closed": 1}
    assert seen["shed_by_reason"] == {"circuit_open": 1}
    assert seen["counts_by_operation_outcome"] == {"x/transient_failure": 2, "x/rejected": 1, "x/success": 1}


def test_a_listener_may_call_the_guard_whose_circuit_changed(colour, guard_of, clock):
    guard, seen = guard_of(Breaker(consecutive(1))), []

    class Curious:
        wants = (CircuitStateChanged,)
        quiet = True

        def on_event(self, event):
            seen.append((guard.circuit.state, guard.circuit.look("failure_count")))

    guard.telemetry.register(Curious())
    fail(colour, guard, 1)
    assert seen == [(OPEN, 1)]


def test_a_refusal_is_one_load_shed_and_one_completion(colour, guard_of, good, recorder):
    guard = tripped(colour, guard_of)
    guard.telemetry.register(recorder)
    colour.run(guard, good)
    assert [(event.name, event.reason, event.retry_after) for event in recorder.of(LoadShed)] == [
        ("x", "circuit_open", 30)
    ]
    assert [(event.outcome, event.reason, event.attempts) for event in recorder.of(CallCompleted)] == [
        (K.REJECTED, "circuit_open", 0)
    ]


def test_inside_a_retry_each_attempt_counts_and_an_open_circuit_ends_the_retrying(colour, guard_of):
    guard = guard_of(Retry(attempts=10, base=0), Breaker(consecutive(3)))
    fn = colour.fn([DOWN])
    outcome = colour.run(guard, fn)
    assert (outcome.kind, outcome.reason, outcome.attempts, fn.calls) == (K.REJECTED, "circuit_open", 3, 3)
    assert isinstance(outcome.error, CircuitOpen)
    assert outcome.error.__cause__ is DOWN


def test_outside_a_retry_it_counts_one_per_call(colour, guard_of):
    guard = guard_of(Retry(attempts=10, base=0), Breaker(consecutive(2)), order=("breaker", "retry"))
    fn = colour.fn([DOWN])
    assert colour.run(guard, fn).kind is K.TRANSIENT_FAILURE
    assert guard.circuit.look("failure_count") == 1
    assert fn.calls == 10


def test_the_breaker_has_the_guards_name_or_its_own(colour, guard_of, good):
    guard = guard_of(Breaker(consecutive(1), name="dependency"))
    fail(colour, guard, 1)
    assert colour.run(guard, good).error.guard == "dependency"


def test_a_breaker_may_be_shared_by_instance(colour, guard_of, good):
    shared = CircuitBreakerStrategy("family", failure_threshold=2)
    one, two = guard_of(shared, name="one"), guard_of(shared, name="two")
    fail(colour, one, 2)
    assert colour.run(two, good).reason == "circuit_open"
    assert one.circuit is two.circuit


def test_two_guards_with_equal_policies_have_circuits_of_their_own(colour, guard_of, good):
    policy = Breaker(consecutive(1))
    one, two = guard_of(policy, name="one"), guard_of(policy, name="two")
    fail(colour, one, 1)
    assert colour.run(two, good).value == "up"
