"""Pipelines and their builder: order, state, sharing, and what a build refuses."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast.core.context import TypedKey, current_context
from holdfast.core.deadline import Deadline
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.bulkhead import BulkheadStrategy
from holdfast.guard.cache import Cache
from holdfast.guard.circuit import CircuitBreakerStrategy
from holdfast.guard.pipeline import MAX_LANES, ResiliencePipeline, ResiliencePipelineBuilder
from holdfast.guard.priority import PriorityBulkheadStrategy
from holdfast.guard.rate_limit import RateLimiterStrategy
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.timeout import TimeoutStrategy
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import CallCompleted
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.metrics import InMemoryMetrics
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Slow

K = OutcomeKind
DOWN = OSError("down")
TENANT = TypedKey[str]("tenant")


class Through:
    """A pipeline in the shape that a colour can run; with a key of its own it takes the uncompiled way."""

    def __init__(self, pipeline: ResiliencePipeline, **options: Any) -> None:
        self.pipeline = pipeline
        self.options = options

    def run(self, fn: Any) -> Any:
        return self.pipeline.execute_sync(fn, **self.options)

    def arun(self, fn: Any) -> Any:
        return self.pipeline.execute(fn, **self.options)


@pytest.fixture
def hub(clock: ManualClock) -> Hub:
    return Hub(clock=clock)


@pytest.fixture
def builder(clock: ManualClock, hub: Hub) -> ResiliencePipelineBuilder:
    return ResiliencePipelineBuilder("orders", clock=clock, telemetry=hub, rng=lambda: 0.5)


@pytest.fixture(params=[None, "another key"])
def through(request: pytest.FixtureRequest) -> Any:
    """Runs a pipeline under its own name, and under another operation key."""
    return lambda pipeline, **options: Through(pipeline, operation_key=request.param, **options)


class Tracer:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    async def execute(self, nxt: Any, ctx: Any) -> Outcome[Any]:
        self.log.append(self.name)
        return await nxt(ctx)


def test_an_empty_pipeline_just_runs_the_call(colour, builder, through):
    pipeline = builder.build()
    assert pipeline.strategies == []
    assert colour.run(through(pipeline), colour.fn(["value"])).value == "value"
    assert colour.run(through(pipeline), colour.fn([DOWN])).error is DOWN


def test_layers_stand_in_the_order_of_their_declaration(builder):
    pipeline = (
        builder.fallback(lambda: None)
        .timeout(30)
        .rate_limiter()
        .bulkhead()
        .retry()
        .circuit_breaker()
        .timeout(5)
        .build()
    )
    kinds = [strategy.kind for strategy in pipeline.strategies]
    assert kinds == ["fallback", "timeout", "rate_limit", "bulkhead", "retry", "breaker", "attempt_timeout"]


def test_a_first_declared_layer_sees_the_call_first(colour, builder, through):
    log: list[str] = []
    pipeline = builder.add(Tracer("outer", log)).add(Tracer("inner", log)).build()
    colour.run(through(pipeline), colour.fn(lambda: log.append("call")))
    assert log == ["outer", "inner", "call"]


def test_an_unusual_order_is_kept(colour, builder, through):
    pipeline = builder.circuit_breaker(failure_threshold=2).retry(max_attempts=3, base_delay_s=0).build()
    fn = colour.fn([DOWN])
    # Outside the retry the breaker counts calls, so the second call still runs all its attempts.
    assert [colour.run(through(pipeline), fn).kind for _ in range(3)] == [
        K.TRANSIENT_FAILURE,
        K.TRANSIENT_FAILURE,
        K.REJECTED,
    ]
    assert fn.calls == 6


def test_the_verbs_have_the_defaults_of_the_strategies(builder):
    pipeline = builder.retry().circuit_breaker().bulkhead().priority_bulkhead().rate_limiter().build()
    retry, breaker, bulkhead, priority, limiter = pipeline.strategies
    assert isinstance(retry, RetryStrategy)
    assert (retry.policy.attempts, retry.policy.base, retry.policy.cap, retry.policy.jitter) == (3, 0.5, 30.0, "full")
    assert isinstance(breaker, CircuitBreakerStrategy)
    assert (breaker.policy.rules, breaker.policy.open_for) == ((consecutive(5),), 30.0)
    assert isinstance(bulkhead, BulkheadStrategy)
    assert (bulkhead.slots.limit, bulkhead.slots.queue_limit) == (1, 32)
    assert isinstance(priority, PriorityBulkheadStrategy)
    assert (priority.slots.limit, priority.slots.queue_limit) == (1, 32)
    assert isinstance(limiter, RateLimiterStrategy)
    assert (limiter.policy.rate, limiter.policy.burst) == (10.0, 10)
    assert {strategy.name for strategy in (breaker, bulkhead, priority, limiter)} == {"orders"}


def test_a_verb_takes_the_name_of_its_layer(builder):
    pipeline = builder.circuit_breaker(name="db", failure_threshold=2, reset_timeout_s=5).build()
    assert pipeline.strategies[0].name == "db"


def test_each_build_has_state_of_its_own(colour, builder, through):
    builder.circuit_breaker(failure_threshold=1)
    first, second = builder.build(), builder.build()
    colour.run(through(first), colour.fn([DOWN]))
    assert colour.run(through(first), colour.fn(["up"])).reason == "circuit_open"
    assert colour.run(through(second), colour.fn(["up"])).value == "up"


def test_a_strategy_given_by_instance_is_shared_on_purpose(colour, builder, through, clock, hub):
    breaker = CircuitBreakerStrategy("db", failure_threshold=1)
    reads = builder.add(breaker).build()
    writes = ResiliencePipelineBuilder("writes", clock=clock, telemetry=hub).retry().add(breaker).build()
    colour.run(through(reads), colour.fn([DOWN]))
    assert colour.run(through(writes), colour.fn(["up"])).reason == "circuit_open"


def test_state_persists_across_calls_colours_loops_and_threads(builder):
    pipeline = builder.circuit_breaker(failure_threshold=3).build()

    def fail() -> None:
        raise DOWN

    async def fail_later() -> None:
        raise DOWN

    pipeline.execute_sync(fail)
    asyncio.run(pipeline.execute(fail_later))
    thread = threading.Thread(target=pipeline.execute_sync, args=(fail,))
    thread.start()
    thread.join(10)
    assert pipeline.execute_sync(fail).reason == "circuit_open"
    assert asyncio.run(pipeline.execute(fail)).reason == "circuit_open"


def test_nothing_can_be_added_after_a_build(builder):
    builder.retry().build()
    for add in (
        lambda: builder.add(TimeoutStrategy(1)),
        lambda: builder.timeout(1),
        lambda: builder.bulkhead(),
        lambda: builder.classify(lambda error: K.TIMEOUT),
        lambda: builder.result_classifier(lambda value: None),
        lambda: builder.passthrough(ValueError),
    ):
        with pytest.raises(RuntimeError, match="'orders' is built already"):
            add()
    assert builder.build().strategies[0].kind == "retry"


@pytest.mark.parametrize(
    "declare",
    [
        lambda builder: builder.retry().retry(),
        lambda builder: builder.retry().add(RetryStrategy()),
        lambda builder: builder.add(Retry()).add(Retry(domain="another")),
    ],
)
def test_two_retry_layers_are_refused_by_the_build(builder, declare):
    declare(builder)
    with pytest.raises(PolicyError, match="'orders' has two retry layers"):
        builder.build()


def test_a_pipeline_made_by_hand_refuses_two_retry_layers_too(hub):
    with pytest.raises(PolicyError, match="two retry layers"):
        ResiliencePipeline([RetryStrategy(), RetryStrategy()], telemetry=hub)


@pytest.mark.parametrize(
    ("declare", "field"),
    [
        (lambda builder: builder.timeout(0), "Timeout"),
        (lambda builder: builder.retry(max_attempts=0), "Retry.attempts"),
        (lambda builder: builder.retry(base_delay_s=-1), "Retry.base"),
        (lambda builder: builder.circuit_breaker(failure_threshold=0), "consecutive"),
        (lambda builder: builder.circuit_breaker(reset_timeout_s=0), "open_for"),
        (lambda builder: builder.bulkhead(max_concurrent=0), "Bulkhead.limit"),
        (lambda builder: builder.priority_bulkhead(max_queued=-1), "PriorityBulkhead.queue"),
        (lambda builder: builder.rate_limiter(rate_per_s=0), "RateLimit"),
        (lambda builder: builder.fallback("no function"), "Fallback.function"),
        (lambda builder: builder.add(RetryStrategy), "add an instance"),
    ],
)
def test_an_impossible_layer_is_refused_where_it_is_declared(builder, declare, field):
    with pytest.raises(PolicyError, match=field):
        declare(builder)


def test_something_that_is_no_layer_is_refused_by_the_build(builder):
    with pytest.raises(PolicyError, match="no policy"):
        builder.add("retry").build()


@pytest.mark.parametrize("name", ["", None])
def test_a_pipeline_needs_a_name(hub, name):
    with pytest.raises(PolicyError, match="needs a name"):
        ResiliencePipeline(name=name, telemetry=hub)


def test_passthrough_accumulates(colour, builder, through):
    pipeline = builder.passthrough(KeyError).passthrough(ValueError, LookupError).retry(base_delay_s=0).build()
    for error in (KeyError("a"), ValueError("b"), LookupError("c")):
        fn = colour.fn([error])
        with pytest.raises(type(error)):
            colour.run(through(pipeline), fn)
        assert fn.calls == 1


def test_the_classifiers_of_the_builder_are_used(colour, builder, through):
    pipeline = (
        builder.classify(lambda error: K.TERMINAL_FAILURE)
        .result_classifier(lambda value: K.PARTIAL if value == "half" else None)
        .retry(base_delay_s=0)
        .build()
    )
    failing = colour.fn([DOWN])
    assert colour.run(through(pipeline), failing).kind is K.TERMINAL_FAILURE
    assert failing.calls == 1
    assert colour.run(through(pipeline), colour.fn(["half"])).kind is K.PARTIAL
    assert colour.run(through(pipeline), colour.fn(["whole"])).kind is K.SUCCESS


def test_the_list_of_strategies_is_a_copy(colour, builder, through):
    pipeline = builder.retry(max_attempts=2, base_delay_s=0).build()
    pipeline.strategies.clear()
    assert len(pipeline.strategies) == 1
    fn = colour.fn([DOWN])
    colour.run(through(pipeline), fn)
    assert fn.calls == 2


def test_a_timeout_after_the_retry_bounds_each_attempt(colour, builder, through, clock):
    pipeline = builder.timeout(10).retry(max_attempts=3, base_delay_s=0).timeout(1).build()
    outcome = colour.run(through(pipeline), colour.fn([Slow(clock, 5), Slow(clock, 0.5, "in time")]))
    assert (outcome.value, outcome.attempts) == ("in time", 2)


def test_the_total_timeout_names_the_result(colour, builder, through, clock):
    pipeline = builder.timeout(2).retry(max_attempts=9, base_delay_s=0).build()
    outcome = colour.run(through(pipeline), colour.fn([Slow(clock, 1.5, DOWN)]))
    assert outcome.kind is K.TIMEOUT
    assert outcome.error.__cause__ is DOWN


def test_a_fallback_answers_and_may_see_the_outcome(colour, builder, through):
    pipeline = builder.fallback(lambda outcome: f"instead of {outcome.kind.value}").build()
    outcome = colour.run(through(pipeline), colour.fn([DOWN]))
    assert outcome.value == "instead of transient_failure"
    assert outcome.metadata["original"].error is DOWN


async def test_an_async_fallback_is_awaited(builder):
    async def ask_elsewhere() -> str:
        return "elsewhere"

    def fail() -> str:
        raise DOWN

    assert (await builder.fallback(ask_elsewhere).build().execute(fail)).value == "elsewhere"


def test_the_operation_key_defaults_to_the_name(colour, builder, hub, recorder):
    hub.register(recorder)
    pipeline = builder.build()
    colour.run(Through(pipeline), colour.fn([1]))
    colour.run(Through(pipeline, operation_key="orders.read"), colour.fn([1]))
    assert [event.operation_key for event in recorder.of(CallCompleted)] == ["orders", "orders.read"]


def test_calls_are_counted_under_their_operation_key(colour, builder, hub):
    metrics = InMemoryMetrics()
    hub.register(metrics)
    pipeline = builder.retry().build()
    for _ in range(30):  # far enough that the second key is compiled too
        colour.run(Through(pipeline), colour.fn([1]))
        colour.run(Through(pipeline, operation_key="orders.read"), colour.fn([1]))
    counts = metrics.snapshot()["counts_by_operation_outcome"]
    assert counts == {"orders/success": 30, "orders.read/success": 30}


def test_the_function_sees_its_operation_key_however_often_it_was_called(colour, builder):
    pipeline = builder.build()
    seen = {
        colour.run(Through(pipeline, operation_key="orders.read"), colour.fn(lambda: current_context())).value
        for _ in range(30)
    }
    assert {ctx.operation_key for ctx in seen} == {"orders.read"}
    assert len({ctx.call_id for ctx in seen}) == 30


def test_a_deadline_and_properties_may_be_given_with_the_call(colour, builder, through, clock):
    pipeline = builder.retry().build()
    options = {"deadline": Deadline.after(2, clock), "properties": {TENANT: "acme"}}
    outcome = colour.run(
        through(pipeline, **options),
        colour.fn(lambda: (current_context().deadline.remaining(), current_context().get(TENANT))),
    )
    assert outcome.value == (2, "acme")


def test_an_expired_deadline_refuses_the_call(colour, builder, through, clock):
    fn = colour.fn(["never"])
    outcome = colour.run(through(builder.build(), deadline=Deadline.after(0, clock)), fn)
    assert (outcome.reason, fn.calls) == ("deadline_expired", 0)


def test_operation_keys_made_from_data_do_not_pile_up(colour, builder):
    pipeline = builder.build()
    for number in range(MAX_LANES * 2):
        assert colour.run(Through(pipeline, operation_key=f"user {number}"), colour.fn([1])).is_success
    assert len(pipeline._lanes) <= MAX_LANES


def test_a_cache_in_a_pipeline_knows_a_function_again(colour, builder, through):
    pipeline = builder.add(Cache(ttl=60)).build()
    fn = colour.fn(["first", "second"])
    assert [colour.run(through(pipeline), fn).value for _ in range(2)] == ["first", "first"]
    assert fn.calls == 1


async def test_a_sync_call_may_be_made_inside_a_running_loop(builder):
    assert builder.retry().build().execute_sync(lambda: "value").value == "value"


async def test_an_async_function_cannot_be_run_to_its_end_inside_a_running_loop(builder):
    async def fetch() -> None: ...

    with pytest.raises(RuntimeError, match="await"):
        builder.build().execute_sync(fetch)
    outcome = builder.build().execute_sync(lambda: fetch())
    assert outcome.kind is K.TERMINAL_FAILURE


def test_an_async_function_gets_a_loop_for_its_sync_call(builder):
    async def fetch() -> str:
        await asyncio.sleep(0)
        return "fetched"

    assert builder.retry().build().execute_sync(fetch).value == "fetched"


def test_a_switched_off_hub_turns_the_pipeline_into_a_plain_call(colour, builder, through, hub):
    pipeline = builder.retry(base_delay_s=0).build()
    hub.switch(off=True)
    fn = colour.fn([DOWN])
    assert colour.run(through(pipeline), fn).error is DOWN
    assert fn.calls == 1


def test_a_pipeline_describes_itself(builder):
    pipeline = builder.timeout(5).retry().build()
    assert [line.split(":")[0] for line in pipeline.describe().order] == ["timeout", "retry"]
    assert repr(pipeline) == "<ResiliencePipeline orders: timeout, retry>"
    outcome = pipeline.execute_sync(lambda: 1 / 0)
    assert "3 attempts" in str(pipeline.explain(outcome))
