"""Rulings that a review found broken once; each test failed before its fix."""

from __future__ import annotations

import threading

import pytest

from holdfast import (
    AdaptiveLimit,
    AttemptCompleted,
    Breaker,
    Budget,
    Fallback,
    GuardTimeout,
    Hub,
    OutcomeKind,
    PolicyError,
    RateLimit,
    ResiliencePipeline,
    Retry,
    RetryStrategy,
    Throttle,
    TimedOut,
    Timeout,
    TimeoutStrategy,
    Verdict,
    consecutive,
    current_context,
    deadline,
    remaining_time,
)
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Slow, SyncColour

K = OutcomeKind
DOWN = OSError("down")


# 1. 2.4.2 / design: backoff must not vanish when the breaker stands outside the retry.
def test_a_breaker_outside_the_retry_does_not_take_the_backoff_away(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=10, jitter="none"), Breaker(consecutive(9)), order=("breaker", "retry"))
    times = []

    def body():
        times.append(clock.monotonic())
        if len(times) == 1:
            guard.circuit.command("trip")  # other callers' failures
        raise DOWN

    colour.run(guard, colour.fn(body))
    assert times == [1000, 1010, 1030]


# 2. 2.13 / 2.15: one AttemptCompleted per attempt, also under Timeout(total, abandon=True).
def test_under_an_abandoning_total_limit_each_attempt_is_told_once(guard_of, recorder):
    guard = guard_of(Timeout(total=5, abandon=True), Retry(attempts=3, base=0))
    guard.telemetry.register(recorder)

    def down():
        raise DOWN

    guard.run(down)
    assert [event.number for event in recorder.of(AttemptCompleted)] == [0, 1, 2]


# 3. 1.2, 2.3.6: attempts made before an abandoning total limit struck count, and the last real error is the cause.
def test_an_abandoned_call_keeps_its_earlier_attempts_and_their_error(guard_of):
    still, ran, release = ManualClock(auto=False), [], threading.Event()
    guard = guard_of(Timeout(total=5, abandon=True), Retry(attempts=3, base=0), clock=still)

    def fn():
        ran.append(threading.current_thread())
        if len(ran) == 1:
            raise DOWN
        release.wait(10)

    def overtake():
        SyncColour().until(lambda: len(ran) == 2)
        still.advance(5)

    mover = threading.Thread(target=overtake)
    mover.start()
    outcome = guard.run(fn)
    mover.join(10)
    release.set()
    ran[-1].join(10)
    assert (outcome.kind, outcome.attempts, outcome.error.__cause__) == (K.TIMEOUT, 2, DOWN)


# 4. 2.5.8, 2.5.11, 1.2: after attempt timeouts the refusal has a cause.
def test_a_refusal_after_an_attempt_timeout_has_it_as_its_cause(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=0), Breaker(consecutive(1)), Timeout(attempt=1))
    outcome = colour.run(guard, colour.fn([Slow(clock, 5, "slow")]))
    assert outcome.reason == "circuit_open"
    assert isinstance(outcome.error.__cause__, TimeoutError)


def test_a_total_timeout_after_an_attempt_timeout_has_it_as_its_cause(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=9, jitter="none"), Timeout(total=6, attempt=1))
    outcome = colour.run(guard, colour.fn([Slow(clock, 2, "slow")]))
    assert outcome.kind is K.TIMEOUT
    assert isinstance(outcome.error.__cause__, GuardTimeout)


# 5. 1.1, decision 8, trap 004-3: a late sync call under the total limit is evidence against the dependency.
def test_a_late_sync_call_under_the_total_limit_counts_like_a_cut_one(colour, guard_of, clock):
    guard = guard_of(Timeout(total=5), Breaker(consecutive(1)))
    assert colour.run(guard, colour.fn([Slow(clock, 9, "slow")])).kind is K.TIMEOUT
    assert guard.circuit.state == "open"


def test_a_late_sync_call_under_a_deadline_counts_like_a_cut_one(colour, guard_of, clock):
    guard = guard_of(Breaker(consecutive(1)))
    with deadline(5, clock=clock):
        assert colour.run(guard, colour.fn([Slow(clock, 9, "slow")])).kind is K.TIMEOUT
    assert guard.circuit.state == "open"


# 6. 2.12: limiter state migrates on reload.
@pytest.mark.parametrize("options", [{"rate": 2, "per": 60}, {"rate": 2, "burst": 2, "by": lambda ctx: "tenant"}])
def test_a_used_up_limiter_stays_used_up_through_a_reload(colour, guard_of, options):
    guard, fn = guard_of(RateLimit(**options)), colour.fn(["up"])
    for _ in range(2):
        assert colour.run(guard, fn).value == "up"
    guard.replace(RateLimit(**options))
    assert colour.run(guard, fn).reason == "rate_limited"


# 7. 2.3.1: nothing extends a parent, whatever a guard without context in between does.
def test_a_guard_without_context_does_not_hide_the_callers_deadline(colour, guard_of):
    outer, middle = guard_of(Timeout(total=5)), guard_of(Retry(attempts=2, base=0), context=False)
    inner, seen = guard_of(Timeout(total=60)), []

    def between():
        seen.append((yield colour.inner_call(inner, colour.fn(lambda: remaining_time()))))
        if len(seen) == 1:
            raise DOWN

    def body():
        yield colour.inner(middle, colour.fn(between))

    colour.run(outer, colour.fn(body))
    assert seen == [5, 5]


def test_a_guard_without_context_shows_none_on_any_path(colour, guard_of):
    assert colour.call(guard_of(Retry(), context=False), colour.fn(lambda: (current_context(),))) == (None,)


# 8. 2.10: a retry that the budget refused is not retried further out.
def test_what_the_budget_stopped_is_not_retried_further_out(colour, guard_of):
    inner = guard_of(Retry(attempts=3, base=0, budget=Budget(0.0, 1), domain="inner"))
    inner.plan.strategies[0].budget.acquire()
    fn = colour.fn([DOWN])

    def body():
        yield colour.inner_call(inner, fn)

    colour.run(guard_of(Retry(attempts=3, base=0)), colour.fn(body))
    assert fn.calls == 1


# 9. 2.1: no lock is held across user code.
def test_the_function_of_an_open_time_may_look_at_its_circuit(guard_of):
    looked = []

    def open_for(rounds):
        if looked is not None and guards:
            looked.append(guards[0].circuit.look("failure_count"))
        return 5.0

    guards = []
    guards.append(guard_of(Breaker(consecutive(1), open_for=open_for)))
    thread = threading.Thread(target=lambda: guards[0].run(lambda: 1 / 0), daemon=True)
    thread.start()
    thread.join(2)
    assert not thread.is_alive()


# 10. no sleep before a refusal that is certain: an isolated circuit refuses for sure.
def test_an_isolated_circuit_ends_the_retrying_without_a_wait(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=10, jitter="none"), Breaker(consecutive(9)))

    def body():
        guard.circuit.command("isolate")
        raise DOWN

    assert colour.run(guard, colour.fn(body)).reason == "circuit_open"
    assert clock.slept == []


# 11. 2.4.5 in spirit: a stray's late result is closed, for nobody will see it.
def test_the_late_result_of_a_stray_is_closed(guard_of):
    still, ran, release, closed = ManualClock(auto=False), [], threading.Event(), []

    class Answer:
        def close(self):
            closed.append(1)

    def fn():
        ran.append(threading.current_thread())
        release.wait(10)
        return Answer()

    mover = threading.Thread(target=lambda: (SyncColour().until(lambda: bool(ran)), still.advance(5)))
    mover.start()
    guard_of(Timeout(total=5, abandon=True), clock=still).run(fn)
    mover.join(10)
    release.set()
    ran[0].join(10)
    assert closed == [1]


# 12. Bad input is a PolicyError, also of the wrong type.
@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(longest_hint="5"),
        lambda: Retry(longest_hint=None),
        lambda: Retry(domain=5),
        lambda: Budget(max_rate="x"),
        lambda: Budget(min_concurrency=None),
        lambda: RateLimit(1, burst="x"),
        lambda: RateLimit(1, per="x"),
        lambda: Throttle(threshold="x"),
        lambda: Throttle(window=None),
        lambda: AdaptiveLimit(min="x"),
    ],
)
def test_a_value_of_the_wrong_type_is_a_policy_error(make):
    with pytest.raises(PolicyError):
        make()


def test_an_unknown_word_for_context_is_refused(guard_of):
    with pytest.raises(PolicyError):
        guard_of(context="sometimes")


def test_a_deadline_that_is_no_number_is_refused(clock):
    with pytest.raises(ValueError, match="number of seconds"):
        deadline(float("nan"), clock=clock).__enter__()


# 13. 2.13: the seeds' own canonical order, by instance.
def test_a_timeout_strategy_inside_the_retry_is_the_attempts(clock, recorder):
    hub = Hub(clock=clock)
    hub.register(recorder)
    pipeline = ResiliencePipeline(
        [TimeoutStrategy(10), RetryStrategy(2, 0), TimeoutStrategy(2)], clock=clock, telemetry=hub
    )
    pipeline.execute_sync(lambda: clock.sleep(3))
    assert [event.kind for event in recorder.of(TimedOut)] == ["attempt", "attempt"]


# 14. 2.2.5: passthrough through every layer, the fallback's own included.
def test_a_passthrough_exception_of_a_fallback_comes_out_untouched(colour, guard_of):
    def spare():
        raise KeyError("mine")

    with pytest.raises(KeyError):
        colour.run(guard_of(Fallback(spare), passthrough=(KeyError,)), colour.fn([DOWN]))


# 15. 2.4.3: a negative hint is no hint, also for the caller.
def test_a_negative_hint_is_not_handed_on(colour, guard_of):
    guard = guard_of(classify=lambda _: Verdict(K.TRANSIENT_FAILURE, retry_after=-1))
    assert colour.run(guard, colour.fn([DOWN])).retry_after is None
