"""A guard in words, and the reasons of its outcomes with their numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from holdfast.core.context import deadline
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import BudgetExhausted, PoolExhausted
from holdfast.guard.adaptive import AdaptiveLimitStrategy
from holdfast.guard.bulkhead import Bulkhead, BulkheadStrategy
from holdfast.guard.chaos import Chaos
from holdfast.guard.circuit import CircuitBreakerStrategy
from holdfast.guard.describe import describe
from holdfast.guard.explain import explain
from holdfast.guard.fallback import Fallback
from holdfast.guard.guard import Guard
from holdfast.guard.hedge import Hedge
from holdfast.guard.pipeline import ResiliencePipeline
from holdfast.guard.priority import PriorityBulkhead
from holdfast.guard.rate_limit import RateLimit
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.throttle import ThrottleStrategy
from holdfast.guard.timeout import Timeout, TimeoutStrategy
from holdfast.machine.adaptive import AdaptiveLimit
from holdfast.machine.breaker import Breaker
from holdfast.machine.budget import Budget
from holdfast.machine.retry import Retry
from holdfast.machine.throttle import Throttle
from holdfast.machine.trip import consecutive, count
from holdfast.telemetry.hub import Hub
from tests.guard.colours import Slow

K = OutcomeKind
DOWN = OSError("down")


def described(*policies: Any, **options: Any) -> Any:
    return Guard("x", *policies, telemetry=Hub(), **options).describe()


def test_the_order_is_told_outermost_first():
    description = described(Timeout(total=10, attempt=2), Retry(), Breaker(), Bulkhead(3), Fallback(value=0))
    kinds = [line.split(":")[0].split(" '")[0] for line in description.order]
    assert kinds == ["fallback", "timeout", "bulkhead", "retry", "breaker", "attempt timeout"]


def test_another_order_is_told_as_it_is():
    description = described(Retry(), Breaker(), order=("breaker", "retry"))
    assert [line.split(":")[0].split(" '")[0] for line in description.order] == ["breaker", "retry"]


@pytest.mark.parametrize(
    ("policies", "calls"),
    [
        ((), 1),
        ((Retry(attempts=4),), 4),
        ((Retry(attempts=1),), 1),
        ((Retry(attempts=None),), math.inf),
        ((Hedge(max_hedged=2),), 3),
        ((Retry(attempts=3), Hedge(max_hedged=1)), 6),
        ((Breaker(), Timeout(total=1)), 1),
    ],
)
def test_the_worst_case_number_of_calls(policies, calls):
    assert described(*policies).max_calls == calls


@pytest.mark.parametrize(
    ("policies", "seconds"),
    [
        ((), math.inf),
        ((Retry(attempts=3, base=1, jitter="none"),), math.inf),
        ((Timeout(total=10),), 10),
        ((Timeout(total=10), Retry(attempts=None)), 10),
        ((Timeout(attempt=2), Retry(attempts=3, base=1, jitter="none")), 3 * 2 + 1 + 2),
        ((Timeout(attempt=2), Retry(attempts=3, base=1, jitter="full")), 3 * 2 + 1 + 2),
        ((Timeout(attempt=2), Retry(attempts=None)), math.inf),
        ((Timeout(attempt=2), Hedge(delay=1.5, max_hedged=2)), 2 + 2 * 1.5),
        ((Timeout(attempt=2), Hedge(delay=-1, max_hedged=2)), 3 * 2),
        ((Timeout(attempt=2), Bulkhead(1, queue=5, max_wait=3)), 5),
        ((Timeout(attempt=2), Bulkhead(1, queue=0)), 2),
        ((Timeout(attempt=2), Bulkhead(1, queue=5)), math.inf),
        ((Timeout(attempt=2), PriorityBulkhead(1, queue=5, max_wait=4)), 6),
        ((Timeout(attempt=2), RateLimit(1, max_wait=7)), 9),
        ((Timeout(attempt=2), RateLimit(1)), 2),
        ((Timeout(attempt=2), AdaptiveLimit()), 2),
    ],
)
def test_the_worst_case_time(policies, seconds):
    assert described(*policies).max_seconds == pytest.approx(seconds)


def test_the_worst_case_follows_the_order_of_a_pipeline():
    inside = ResiliencePipeline([RetryStrategy(3, 0), TimeoutStrategy(2)], telemetry=Hub())
    outside = ResiliencePipeline([TimeoutStrategy(2), RetryStrategy(3, 0)], telemetry=Hub())
    assert (inside.describe().max_seconds, outside.describe().max_seconds) == (6, 2)


def test_a_strategy_of_ones_own_speaks_for_itself():
    class Twice:
        async def execute(self, nxt: Any, ctx: Any) -> Outcome[Any]:
            await nxt(ctx)
            return await nxt(ctx)

        def worst_case(self, calls: float, seconds: float) -> tuple[float, float]:
            return 2 * calls, 2 * seconds

    description = ResiliencePipeline([Twice(), TimeoutStrategy(3)], telemetry=Hub()).describe()
    assert (description.max_calls, description.max_seconds) == (2, 6)
    assert description.order[0] == "custom: Twice"


@pytest.mark.parametrize(
    ("policies", "warning"),
    [
        ((), "no timeout"),
        ((Retry(),), "retry without a timeout"),
        ((Retry(attempts=None), Timeout(attempt=1)), "it may retry for ever"),
        ((Retry(), Timeout(attempt=1)), "Retry-After"),
        ((Bulkhead(1, queue=5), Timeout(attempt=1)), "queues without a time limit"),
        ((Retry(attempts=5, base=0), Timeout(total=4, attempt=2)), "may end before all 5 attempts"),
        ((Hedge(), Timeout(total=5)), "only for idempotent calls"),
        ((Chaos(enabled=True), Timeout(total=5)), "chaos"),
    ],
)
def test_what_a_guard_lacks_is_told(policies, warning):
    assert any(warning in told for told in described(*policies).warnings)


def test_a_breaker_outside_the_retry_is_told():
    description = described(Retry(), Breaker(), Timeout(total=9), order=("timeout", "breaker", "retry"))
    assert any("outside the retry" in warning for warning in description.warnings)


def test_a_complete_guard_has_no_warnings():
    description = described(
        Retry(attempts=3, base=0.2, cap=5), Breaker(count(5, window=60)), Timeout(total=10, attempt=2), Bulkhead(20, 50)
    )
    assert description.warnings == ()


def test_a_description_reads_well():
    text = str(described(Retry(attempts=3), Timeout(total=10)))
    assert text.splitlines()[0] == "x: at most 3 calls, at most 10 s"
    assert text.splitlines()[1:] == [
        "  1. timeout: 10 s",
        f"  2. retry: {Retry(attempts=3).describe()}",
        "  3. the call",
    ]
    assert str(described()).splitlines()[0] == "x: at most 1 call, no time limit"
    assert "any number of calls" in str(described(Retry(attempts=None)))


def test_a_description_is_json_with_null_for_infinite():
    plain = json.loads(json.dumps(described(Retry(attempts=None)).as_dict(), allow_nan=False))
    assert plain["max_calls"] is plain["max_seconds"] is None
    assert plain["name"] == "x"
    assert len(plain["order"]) == 1


def test_an_override_is_described_while_it_lasts(clock):
    guard = Guard("x", Retry(attempts=3), clock=clock, telemetry=Hub())
    with guard.override(Retry(attempts=7)):
        assert guard.describe().max_calls == 7
    assert guard.describe().max_calls == 3


def why(guard: Any, outcome: Outcome[Any]) -> Any:
    explanation = explain(guard, outcome)
    json.dumps(explanation.as_dict(), allow_nan=False)
    assert str(explanation).startswith(f"{guard.name}: {explanation.summary}")
    return explanation


def test_a_first_success_needs_few_words(colour, guard_of):
    guard = guard_of(Retry())
    assert why(guard, colour.run(guard, colour.fn([1]))).summary == "succeeded at the first attempt"


def test_a_late_success_tells_its_attempts(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0))
    assert why(guard, colour.run(guard, colour.fn([DOWN, DOWN, 1]))).summary == "succeeded at attempt 3"


def test_a_partial_result_is_named(colour, guard_of):
    guard = guard_of(Retry(), result_classifier=lambda value: K.PARTIAL)
    assert why(guard, colour.run(guard, colour.fn([1]))).summary == "gave a partial result at the first attempt"


def test_used_up_attempts_are_listed_with_waits_times_and_errors(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=2, jitter="none"))
    explanation = why(guard, colour.run(guard, colour.fn([Slow(clock, 0.5, DOWN)])))
    assert explanation.summary == "failed after 3 attempts, OSError: down: no attempts are left"
    assert explanation.rule == f"retry: {Retry(attempts=3, base=2, jitter='none').describe()}"
    assert explanation.attempts == (
        "attempt 1: transient_failure in 0.5 s: OSError: down",
        "attempt 2: transient_failure in 0.5 s, after a wait of 2 s: OSError: down",
        "attempt 3: transient_failure in 0.5 s, after a wait of 4 s: OSError: down",
    )


def test_a_hint_is_told_with_the_attempt_that_gave_it(colour, guard_of):
    class Busy(OSError):
        retry_after = 4.0

    guard = guard_of(Retry(attempts=2))
    explanation = why(guard, colour.run(guard, colour.fn([Busy("busy")])))
    assert explanation.attempts[0].endswith("Busy: busy (asks to be retried after 4 s)")
    assert "after a wait of 4 s" in explanation.attempts[1]
    assert explanation.retry_after == 4.0


def test_a_failure_that_is_not_retried_says_so(colour, guard_of):
    guard = guard_of(Retry())
    assert "this kind of failure is not retried" in why(guard, colour.run(guard, colour.fn([TypeError("bug")]))).summary


def test_a_guard_without_retry_says_so(colour, guard_of):
    guard = guard_of(Breaker())
    assert "the guard has no retry" in why(guard, colour.run(guard, colour.fn([DOWN]))).summary


def test_what_stopped_the_retrying_is_told_in_words(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=3, base=5, jitter="none"))
    with deadline(1, clock=clock):
        explanation = why(guard, colour.run(guard, colour.fn([DOWN])))
    assert explanation.reason == "deadline"
    assert "outlasted the deadline" in explanation.summary


def test_an_unhealthy_dependency_is_told(colour, guard_of):
    guard = guard_of(Retry(health=lambda: False))
    assert why(guard, colour.run(guard, colour.fn([DOWN]))).reason == "health_gate"


def test_a_used_up_budget_shows_its_figures(colour, guard_of):
    guard = guard_of(Retry(base=0, budget=Budget(max_rate=0.0, min_concurrency=0)))
    guard.plan.first(RetryStrategy).budget.inflight = 1
    explanation = why(guard, colour.run(guard, colour.fn([DOWN])))
    assert explanation.reason == "budget"
    assert explanation.numbers["inflight"] == 1
    assert "inflight 1" in str(explanation)


def test_a_nested_retry_is_told(colour, guard_of):
    outer, inner = guard_of(Retry(attempts=2, base=0)), guard_of(Retry(attempts=2, base=0), name="inner")
    seen = []

    def body():
        seen.append((yield colour.inner(inner, colour.fn([DOWN]))))

    colour.run(outer, colour.fn(body))
    assert why(inner, seen[0]).reason == "nested"


def test_an_open_circuit_shows_its_rule_its_figures_and_when_it_would_pass(colour, guard_of, clock):
    guard = guard_of(Retry(attempts=2, base=0), Breaker(count(2, window=60), open_for=30))
    colour.run(guard, colour.fn([DOWN]))
    clock.advance(10)
    explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert explanation.reason == "circuit_open"
    assert explanation.summary.startswith("refused before the function ran: circuit 'x' lets no calls through")
    assert explanation.rule is not None
    assert explanation.rule.startswith("count(2, window=60), of breaker 'x'")
    assert explanation.cause == "OSError: down"
    assert explanation.retry_after == 20
    assert (explanation.numbers["state"], explanation.numbers["failure_count"]) == ("open", 2)
    assert explanation.passes == "in 20 s, as a probe"
    assert "failures 2, threshold 2, window 60" in str(explanation)


def test_an_explanation_speaks_of_now(colour, guard_of, clock):
    guard = guard_of(Breaker(consecutive(1), open_for=30))
    colour.run(guard, colour.fn([DOWN]))
    refused = colour.run(guard, colour.fn([1]))
    clock.advance(30)
    assert why(guard, refused).passes == "now, as a probe"
    colour.run(guard, colour.fn([1]))
    assert why(guard, refused).passes == "now, the circuit admits calls again"


def test_a_running_probe_is_told(guard_of, clock):
    guard = guard_of(Breaker(consecutive(1), open_for=30))
    guard.run(lambda: 1 / 0)
    clock.advance(30)
    refused = []
    guard.run(lambda: refused.append(guard.run(lambda: 1)))
    guard.circuit.command("reset")
    guard.run(lambda: 1 / 0)
    clock.advance(30)
    guard.run(lambda: refused.append(why(guard, refused[0])))
    assert refused[1].passes == "once the probes that are under way have settled well"


def test_an_isolated_circuit_waits_for_an_operator(colour, guard_of):
    guard = guard_of(Breaker())
    guard.circuit.command("isolate")
    explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert explanation.retry_after is None
    assert explanation.passes == "once an operator closes, resets or enables the circuit"
    assert explanation.numbers["control"] == "isolated"


def test_a_circuit_that_opened_between_attempts_shows_them(colour, guard_of):
    guard = guard_of(Retry(attempts=5, base=0), Breaker(consecutive(2)))
    explanation = why(guard, colour.run(guard, colour.fn([DOWN])))
    assert explanation.summary.startswith("refused after 2 attempts")
    assert len(explanation.attempts) == 2


def test_a_full_bulkhead_shows_its_slots(colour, guard_of):
    guard = guard_of(Bulkhead(1))
    guard.plan.first(BulkheadStrategy).slots.take()
    explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert explanation.reason == "bulkhead_full"
    assert explanation.numbers == {"limit": 1, "running": 1, "waiting": 0}
    assert explanation.rule == "bulkhead 'x': 1 at once, 0 waiting"


def test_a_full_priority_bulkhead_shows_its_slots(colour, guard_of):
    guard = guard_of(PriorityBulkhead(1, queue=0))
    guard.plan.strategies[0].slots.running = 1
    explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert explanation.numbers == {"limit": 1, "running": 1, "waiting": 0}


def test_an_adaptive_limit_shows_its_slots(colour, guard_of):
    guard = guard_of(AdaptiveLimit(initial=1))
    strategy = guard.plan.first(AdaptiveLimitStrategy)
    strategy.slots.running = 1
    explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert explanation.numbers == {"limit": 1, "running": 1, "waiting": 0}
    assert explanation.rule is not None
    assert explanation.rule.startswith("adaptive limit 'x'")


def test_a_rate_limit_tells_when_the_next_token_comes(colour, guard_of):
    guard = guard_of(RateLimit(0.5, burst=1))
    colour.run(guard, colour.fn([1]))
    explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert (explanation.reason, explanation.retry_after) == ("rate_limited", 2)
    assert explanation.passes == "2 s after the refusal"
    assert explanation.rule is not None
    assert explanation.rule.startswith("rate limit 'x'")


def test_a_throttle_shows_its_figures(colour, guard_of):
    guard = guard_of(Throttle(), rng=lambda: 0.0)
    throttle = guard.plan.first(ThrottleStrategy)
    for _ in range(200):
        throttle.throttle.record(guard.plan.clock.monotonic(), success=False)
    explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert explanation.reason == "throttled"
    assert (explanation.numbers["executions"], explanation.numbers["successes"]) == (200, 0)


def test_an_expired_deadline_is_told(colour, guard_of, clock):
    guard = guard_of(Retry())
    with deadline(-1, clock=clock):
        explanation = why(guard, colour.run(guard, colour.fn([1])))
    assert (explanation.reason, explanation.rule) == ("deadline_expired", "the caller's deadline")


@pytest.mark.parametrize("error", [PoolExhausted("pool", 3.0), BudgetExhausted("retries")])
def test_any_refusal_can_be_explained(guard_of, error):
    explanation = why(guard_of(Retry()), Outcome.rejected(error))
    assert explanation.reason == error.reason
    assert repr(error.guard) in explanation.summary


def test_a_refusal_without_an_error_can_be_explained(guard_of):
    explanation = why(guard_of(Retry()), Outcome.failure(K.REJECTED, detail="by hand"))
    assert (explanation.reason, "by hand" in explanation.summary) == ("rejected", True)


def test_a_timeout_names_its_limit(colour, guard_of, clock):
    guard = guard_of(Timeout(total=2))
    explanation = why(guard, colour.run(guard, colour.fn([Slow(clock, 5, "late")])))
    assert explanation.rule == "timeout: 2 s"
    assert "ran out" in explanation.summary
    how = "the function was cut off" if colour.is_async else "what it returned is in metadata['result']"
    assert explanation.summary.endswith(f"(limit 2 s): {how}")


def test_a_timeout_that_forbids_another_attempt_says_so(colour, guard_of, clock):
    guard = guard_of(Timeout(total=5), Retry(attempts=3, base=10, jitter="none"))
    explanation = why(guard, colour.run(guard, colour.fn([Slow(clock, 1, DOWN)])))
    assert explanation.outcome is K.TIMEOUT
    assert explanation.summary.endswith("the next wait would have outlasted it")
    assert explanation.cause == "OSError: down"


def test_the_callers_own_deadline_is_told_apart_from_the_guards(colour, guard_of, clock):
    guard = guard_of(Retry())
    with deadline(1, clock=clock):
        explanation = why(guard, colour.run(guard, colour.fn([Slow(clock, 5)])))
    assert explanation.rule == "the caller's deadline"


def test_a_timeout_of_the_function_itself_is_a_failed_attempt(colour, guard_of):
    guard = guard_of(Retry(attempts=1))
    assert "TimeoutError: slow" in why(guard, colour.run(guard, colour.fn([TimeoutError("slow")]))).summary


def test_a_fallback_is_told_with_what_it_replaced(colour, guard_of):
    guard = guard_of(Retry(attempts=2, base=0), Fallback(value="fallback"))
    explanation = why(guard, colour.run(guard, colour.fn([DOWN])))
    assert explanation.reason == "fallback"
    assert explanation.original is not None
    assert len(explanation.original.attempts) == 2
    assert "attempt 2: transient_failure" in str(explanation)


def test_a_fallback_that_failed_is_told_with_both_errors(colour, guard_of):
    def broken() -> None:
        raise LookupError("no cache")

    guard = guard_of(Fallback(broken))
    explanation = why(guard, colour.run(guard, colour.fn([DOWN])))
    assert "LookupError: no cache" in explanation.summary
    assert explanation.original is not None
    assert "OSError: down" in explanation.original.summary


def test_a_pipeline_explains_the_breaker_that_it_shares(clock):
    hub, breaker = Hub(), CircuitBreakerStrategy("db", failure_threshold=1)
    pipeline = ResiliencePipeline([breaker], name="orders", clock=clock, telemetry=hub)
    pipeline.execute_sync(lambda: 1 / 0)
    explanation = why(pipeline, pipeline.execute_sync(lambda: 1))
    assert "circuit 'db'" in explanation.summary
    assert explanation.passes == "in 30 s, as a probe"


def test_guard_and_pipeline_offer_both_as_methods(clock):
    guard = Guard("x", Retry(), clock=clock, telemetry=Hub())
    assert guard.describe() == describe(guard)
    outcome = guard.run(lambda: 1)
    assert guard.explain(outcome) == explain(guard, outcome)
