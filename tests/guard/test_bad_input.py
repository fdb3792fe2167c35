"""An impossible policy is refused when it is made, by a message that names field, value and fix."""

from __future__ import annotations

import dataclasses
import math

import pytest

from holdfast import (
    Backoff,
    Breaker,
    Budget,
    Bulkhead,
    BulkheadStrategy,
    CircuitBreakerStrategy,
    Fallback,
    FallbackStrategy,
    Guard,
    HoldfastError,
    Hub,
    PolicyError,
    RateLimit,
    RateLimiterStrategy,
    Retry,
    RetryStrategy,
    Timeout,
    TimeoutStrategy,
    consecutive,
    count,
    k_of_n,
    ratio,
    slow_ratio,
)

NAN, INF = math.nan, math.inf

# what is made, and the words its message must hold: the field, the value, and something to do about it
IMPOSSIBLE = [
    (lambda: Retry(attempts=0), ["Retry.attempts", "0", "attempts=1"]),
    (lambda: Retry(attempts=-3), ["Retry.attempts", "-3", "attempts=1"]),
    (lambda: Retry(attempts=2.5), ["Retry.attempts", "2.5", "whole number"]),
    (lambda: Retry(attempts="3"), ["Retry.attempts", "'3'", "whole number"]),
    (lambda: Retry(attempts=True), ["Retry.attempts", "True", "whole number"]),
    (lambda: Retry(base=-1), ["Retry.base", "-1", "base=0"]),
    (lambda: Retry(base=NAN), ["Retry.base", "nan", "base=0"]),
    (lambda: Retry(base=INF), ["Retry.base", "inf", "base=0"]),
    (lambda: Retry(base="1"), ["Retry.base", "'1'", "seconds"]),
    (lambda: Retry(base=None), ["Retry.base", "None", "seconds"]),
    (lambda: Retry(cap=0), ["Retry.cap", "0", "base=0"]),
    (lambda: Retry(cap=-5), ["Retry.cap", "-5", "base=0"]),
    (lambda: Retry(cap="5"), ["Retry.cap", "'5'", "seconds"]),
    (lambda: Retry(multiplier=0.5), ["Retry.multiplier", "0.5", "fixed"]),
    (lambda: Retry(multiplier="2"), ["Retry.multiplier", "'2'", "number"]),
    (lambda: Retry(backoff="quadratic"), ["Retry.backoff", "'quadratic'", "exponential, linear, fixed"]),
    (lambda: Retry(backoff=7), ["Retry.backoff", "7", "exponential, linear, fixed"]),
    (lambda: Retry(jitter="some"), ["Retry.jitter", "'some'", "none, full, equal"]),
    (lambda: Retry(safety="maybe"), ["Retry.safety", "'maybe'", "never, if_not_sent, idempotent, always"]),
    (lambda: Retry(domain=""), ["Retry.domain", "''", "leave it out"]),
    (lambda: Retry(budget=2), ["max_rate", "2", "0.2"]),
    (lambda: Retry(budget=-0.1), ["max_rate", "-0.1", "0.2"]),
    (lambda: Retry(budget="lots"), ["Retry.budget", "'lots'", "0.2"]),
    (lambda: Retry(on_retry="print"), ["Retry.on_retry", "'print'", "callable"]),
    (lambda: Retry(health=True), ["Retry.health", "True", "callable"]),
    (lambda: RetryStrategy(max_attempts=0), ["attempts", "0"]),
    (lambda: Budget(max_rate=NAN), ["Budget.max_rate", "nan", "0.2"]),
    (lambda: Budget(min_concurrency=-1), ["Budget.min_concurrency", "-1", "use 0"]),
    (lambda: Backoff(strategy="none"), ["Backoff.strategy", "'none'", "exponential"]),
    (lambda: Timeout(), ["Timeout", "neither", "Timeout(total=10)"]),
    (lambda: Timeout(total=0), ["Timeout.total", "0", "leave it out"]),
    (lambda: Timeout(total=-1), ["Timeout.total", "-1", "leave it out"]),
    (lambda: Timeout(attempt=0), ["Timeout.attempt", "0", "leave it out"]),
    (lambda: Timeout(total=NAN), ["Timeout.total", "nan", "leave it out"]),
    (lambda: Timeout(total=INF), ["Timeout.total", "inf", "leave it out"]),
    (lambda: Timeout(total="5"), ["Timeout.total", "'5'", "leave it out"]),
    (lambda: Timeout(total=True), ["Timeout.total", "True", "leave it out"]),
    (lambda: Timeout(total=2, attempt=3), ["Timeout.attempt", "attempt=3", "total=2", "shorten attempt"]),
    (lambda: TimeoutStrategy(timeout_s=0), ["TimeoutStrategy.timeout_s", "0"]),
    (lambda: TimeoutStrategy(timeout_s=None), ["TimeoutStrategy.timeout_s", "None"]),
    (lambda: Bulkhead(0), ["Bulkhead.limit", "0", "use 1"]),
    (lambda: Bulkhead(-1), ["Bulkhead.limit", "-1", "use 1"]),
    (lambda: Bulkhead(1.5), ["Bulkhead.limit", "1.5", "whole number"]),
    (lambda: Bulkhead(True), ["Bulkhead.limit", "True", "whole number"]),
    (lambda: Bulkhead(3, queue=-1), ["Bulkhead.queue", "-1", "use 0"]),
    (lambda: Bulkhead(3, queue=2.0), ["Bulkhead.queue", "2.0", "whole number"]),
    (lambda: Bulkhead(3, max_wait=-1), ["Bulkhead.max_wait", "-1", "leave it out"]),
    (lambda: Bulkhead(3, max_wait=NAN), ["Bulkhead.max_wait", "nan", "leave it out"]),
    (lambda: BulkheadStrategy("x", max_concurrent=0), ["BulkheadStrategy.max_concurrent", "0"]),
    (lambda: BulkheadStrategy("x", max_queued=-1), ["BulkheadStrategy.max_queued", "-1"]),
    (lambda: RateLimit(0), ["RateLimit", "rate", "0"]),
    (lambda: RateLimit(-2), ["RateLimit", "rate", "-2"]),
    (lambda: RateLimit(NAN), ["RateLimit", "rate", "nan"]),
    (lambda: RateLimit("10"), ["RateLimit", "rate", "'10'"]),
    (lambda: RateLimit(5, burst=0), ["RateLimit", "burst", "0", "burst=1"]),
    (lambda: RateLimit(5, per=0), ["RateLimit", "per", "0"]),
    (lambda: RateLimit(0.5, per=60), ["RateLimit", "0.5"]),
    (lambda: RateLimit(5, per=60, burst=5), ["RateLimit.burst", "5", "per"]),
    (lambda: RateLimit(5, max_wait=-1), ["RateLimit.max_wait", "-1", "leave it out"]),
    (lambda: RateLimit(5, max_wait="1"), ["RateLimit.max_wait", "'1'", "leave it out"]),
    (lambda: RateLimit(5, by="tenant"), ["RateLimit.by", "'tenant'", "callable"]),
    (lambda: RateLimiterStrategy("x", rate_per_s=0), ["rate", "0"]),
    (lambda: Breaker("count(5)"), ["Breaker.rules", "'count(5)'", "count(5, window=60)"]),
    (lambda: Breaker(open_for=0), ["Breaker.open_for", "0", "30"]),
    (lambda: Breaker(open_for=-1), ["Breaker.open_for", "-1", "30"]),
    (lambda: Breaker(open_for="30"), ["Breaker.open_for", "'30'", "30"]),
    (lambda: Breaker(successes=0), ["Breaker.successes", "0", "successes=1"]),
    (lambda: Breaker(successes=3, out_of=2), ["Breaker.out_of", "2", "out_of=3"]),
    (lambda: Breaker(probes=2), ["Breaker.probes", "2", "probes=1"]),
    (lambda: Breaker(half_open_for=0), ["Breaker.half_open_for", "0", "None"]),
    (lambda: Breaker(name=""), ["Breaker.name", "''", "leave it out"]),
    (lambda: CircuitBreakerStrategy(failure_threshold=0), ["consecutive.n", "0"]),
    (lambda: CircuitBreakerStrategy(reset_timeout_s=0), ["open_for", "0"]),
    (lambda: consecutive(0), ["consecutive.n", "0", "consecutive(1)"]),
    (lambda: count(0), ["count.n", "0", "count(1)"]),
    (lambda: count(3, window=0), ["count.window", "0", "consecutive(n)"]),
    (lambda: ratio(0), ["ratio.r", "0", "0.5"]),
    (lambda: ratio(1.5), ["ratio.r", "1.5", "0.5"]),
    (lambda: ratio(0.5, min_calls=0), ["ratio.min_calls", "0", "min_calls=1"]),
    (lambda: k_of_n(5, 3), ["k_of_n.k", "5", "k=3"]),
    (lambda: slow_ratio(0.5, threshold=-1), ["slow_ratio.threshold", "-1"]),
    (lambda: Fallback(), ["Fallback", "value=", "exactly one"]),
    (lambda: Fallback(print, value=1), ["Fallback", "exactly one"]),
    (lambda: Fallback("spare"), ["Fallback.function", "'spare'", "value="]),
    (lambda: FallbackStrategy(3), ["Fallback.function", "3", "value="]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), IMPOSSIBLE, ids=[" ".join(words[:2]) for _, words in IMPOSSIBLE])
def test_an_impossible_policy_is_refused_with_field_value_and_fix(make, words):
    with pytest.raises(PolicyError) as caught:
        make()
    message = str(caught.value)
    for word in words:
        assert word in message
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, HoldfastError)
    assert caught.value.__cause__ is None or caught.value.__suppress_context__ or "open_for" in message


def guard(*policies, **options):
    return Guard("pay", *policies, telemetry=Hub(), **options)


UNWORKABLE = [
    (lambda: Guard(""), ["name", "''"]),
    (lambda: Guard(None), ["name", "None"]),
    (lambda: Guard(Retry()), ["name", "Retry"]),
    (lambda: guard(Retry(), Retry(attempts=2)), ["'pay'", "two Retry", "keep one"]),
    (lambda: guard(Retry(), RetryStrategy()), ["'pay'", "two Retry", "keep one"]),
    (lambda: guard(Timeout(total=5), Timeout(total=6)), ["'pay'", "timeout", "keep one"]),
    (lambda: guard(Breaker(), Breaker()), ["'pay'", "breaker", "keep one"]),
    (lambda: guard(3), ["'pay'", "3", "no policy", "Retry(...)"]),
    (lambda: guard(None), ["'pay'", "None", "no policy", "Retry(...)"]),
    (lambda: guard(Retry), ["'pay'", "Retry", "Retry(...)"]),
    (lambda: guard(Breaker), ["'pay'", "Breaker", "Breaker(...)"]),
    (lambda: guard(count(5)), ["'pay'", "Count(", "Breaker(...)"]),
    (lambda: guard(lambda: None), ["'pay'", "no policy"]),
    (lambda: guard(Retry(), order=("breaker",)), ["'pay'", "order=", "'retry'"]),
    (lambda: guard(Retry(), order=("retry", "magic")), ["'pay'", "order=", "magic", "breaker"]),
    (lambda: guard(Retry(), order="retry"), ["'pay'", "order=", "'retry'"]),
    (lambda: guard(Retry(), Breaker(), order=("retry", "breaker", "retry")), ["'pay'", "order=", "retry"]),
    (lambda: guard(classify="http"), ["'pay'", "classify", "'http'"]),
    (lambda: guard(result_classifier=3), ["'pay'", "result_classifier", "3"]),
    (lambda: guard(passthrough=("KeyError",)), ["'pay'", "passthrough", "'KeyError'"]),
    (lambda: guard(passthrough=KeyError("x")), ["'pay'", "passthrough", "KeyError"]),
]


@pytest.mark.parametrize(
    ("make", "words"), UNWORKABLE, ids=[f"{i}: {' '.join(w)}" for i, (_, w) in enumerate(UNWORKABLE)]
)
def test_policies_that_cannot_work_together_are_refused_when_the_guard_is_built(make, words):
    with pytest.raises(PolicyError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_one_exception_type_may_be_passed_through_without_a_tuple():
    with pytest.raises(KeyError):
        guard(passthrough=KeyError).run({}.__getitem__, "x")


def test_a_guard_without_a_breaker_has_no_circuit_and_says_how_to_get_one():
    with pytest.raises(PolicyError, match=r"'pay'.*replace\(Breaker"):
        _ = guard(Retry()).circuit


def test_an_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="retries"):
        Guard("pay", retries=3)


def test_an_unknown_command_is_refused():
    with pytest.raises((PolicyError, AttributeError, ValueError)):
        guard(Breaker()).circuit.command("explode")


POLICIES = [Retry(), Breaker(), Timeout(total=5), Bulkhead(3), RateLimit(3), Fallback(value=1), Budget()]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_policy_is_frozen_comparable_and_hashable(policy):
    name = dataclasses.fields(policy)[0].name
    with pytest.raises(AttributeError):
        setattr(policy, name, 1)
    assert policy == dataclasses.replace(policy) if not isinstance(policy, Breaker) else policy == Breaker()
    assert hash(policy) == hash(policy)
    assert not hasattr(policy, "__dict__")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_policy_shows_itself(policy):
    assert type(policy).__name__ in repr(policy)


def test_names_of_enums_may_be_plain_strings():
    assert Retry(backoff="linear", jitter="none", safety="always") == Retry(
        backoff="linear", jitter="none", safety="always"
    )
    assert Retry(backoff="linear").backoff == "linear"
