"""The seam: one guarded call, its outcome, and what it tells telemetry."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.core.context import TypedKey, current_context, deadline
from holdfast.core.deadline import Deadline
from holdfast.core.outcome import Outcome, OutcomeKind, Verdict
from holdfast.errors import GuardTimeout, PolicyError
from holdfast.guard.bulkhead import BulkheadStrategy
from holdfast.guard.circuit import CircuitBreakerStrategy
from holdfast.guard.fallback import FallbackStrategy
from holdfast.guard.pipeline import FUSE_AFTER
from holdfast.guard.priority import PRIORITY, Priority, PriorityBulkheadStrategy
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.seam import guarded_call, guarded_call_sync
from holdfast.guard.timeout import TimeoutStrategy
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.telemetry.events import CallCompleted, CallInterrupted, LoadShed
from holdfast.telemetry.hub import Hub
from holdfast.telemetry.metrics import InMemoryMetrics
from holdfast.testing.clock import ManualClock
from tests.guard.colours import Interrupted, Slow, SyncColour

K = OutcomeKind
DOWN = OSError("down")
TENANT = TypedKey[str]("tenant")


class Seam:
    """`guarded_call` with fixed arguments, in the shape that a colour can run."""

    def __init__(self, key: str = "op", **options: Any) -> None:
        self.key = key
        self.options = options

    def run(self, fn: Any) -> Any:
        return guarded_call_sync(self.key, fn, **self.options)

    def arun(self, fn: Any) -> Any:
        return guarded_call(self.key, fn, **self.options)


@pytest.fixture
def hub(clock: ManualClock) -> Hub:
    return Hub(clock=clock)


@pytest.fixture(params=["first call", "compiled"])
def seam_of(request: Any, colour: Any, clock: ManualClock, hub: Hub) -> Any:
    """A seam on the test's clock, as it is found by its first call and by one that comes after many."""

    def make(key: str = "op", **options: Any) -> Seam:
        seam = Seam(key, **{"clock": clock, "telemetry": hub, **options})
        if request.param == "compiled":
            for _ in range(FUSE_AFTER + 1):
                colour.run(seam, colour.fn(["warm"]))
        return seam

    return make


class Tracer:
    """A strategy that notes who passes, in both directions."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    async def execute(self, nxt: Any, ctx: Any) -> Outcome[Any]:
        self.log.append(f"> {self.name}")
        outcome = await nxt()
        self.log.append(f"< {self.name}")
        return outcome


def test_a_result_becomes_a_success(colour, seam_of):
    outcome = colour.run(seam_of(), colour.fn(["answer"]))
    assert (outcome.kind, outcome.value, outcome.error, outcome.attempts) == (K.SUCCESS, "answer", None, 1)


def test_none_is_a_legal_value(colour, seam_of):
    outcome = colour.run(seam_of(), colour.fn([None]))
    assert outcome.is_success
    assert outcome.unwrap() is None


def test_an_exception_is_captured_and_not_raised(colour, seam_of):
    outcome = colour.run(seam_of(), colour.fn([DOWN]))
    assert outcome.kind is K.TRANSIENT_FAILURE
    assert outcome.error is DOWN
    assert outcome.detail == "OSError: down"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("slow"), K.TIMEOUT),
        (ConnectionResetError("gone"), K.TRANSIENT_FAILURE),
        (ValueError("odd"), K.TRANSIENT_FAILURE),
        (TypeError("wrong"), K.TERMINAL_FAILURE),
        (KeyError("missing"), K.TRANSIENT_FAILURE),
        (AttributeError("wrong"), K.TERMINAL_FAILURE),
        (NameError("wrong"), K.TERMINAL_FAILURE),
        (AssertionError("wrong"), K.TERMINAL_FAILURE),
        (NotImplementedError("later"), K.TERMINAL_FAILURE),
        (ImportError("missing"), K.TERMINAL_FAILURE),
    ],
)
def test_exceptions_have_a_default_kind(colour, seam_of, error, kind):
    assert colour.run(seam_of(), colour.fn([error])).kind is kind


def test_a_sync_function_may_be_awaited(clock, hub):
    outcome = asyncio.run(guarded_call("op", lambda: "plain", clock=clock, telemetry=hub))
    assert outcome.value == "plain"


def test_a_classifier_decides_the_kind(colour, seam_of):
    seam = seam_of(classify=lambda error: K.TERMINAL_FAILURE)
    assert colour.run(seam, colour.fn([DOWN])).kind is K.TERMINAL_FAILURE


def test_a_classifier_may_give_a_hint_with_the_kind(colour, seam_of):
    seam = seam_of(classify=lambda error: Verdict(K.TRANSIENT_FAILURE, retry_after=7.0))
    outcome = colour.run(seam, colour.fn([DOWN]))
    assert (outcome.kind, outcome.retry_after) == (K.TRANSIENT_FAILURE, 7.0)


def test_a_classifier_that_calls_an_exception_a_success_does_not_make_the_call_raise(colour, seam_of):
    outcome = colour.run(seam_of(classify=lambda error: K.SUCCESS), colour.fn([DOWN]))
    assert outcome.kind is K.SUCCESS


def test_a_classifier_that_raises_is_a_terminal_failure(colour, seam_of):
    def broken(error: BaseException) -> K:
        raise LookupError("classifier")

    outcome = colour.run(seam_of(classify=broken), colour.fn([DOWN]))
    assert outcome.kind is K.TERMINAL_FAILURE
    assert isinstance(outcome.error, LookupError)


@pytest.mark.parametrize("verdict", [None, K.SUCCESS])
def test_a_result_that_is_judged_well_is_a_success(colour, seam_of, verdict):
    outcome = colour.run(seam_of(result_classifier=lambda value: verdict), colour.fn(["good"]))
    assert (outcome.kind, outcome.value) == (K.SUCCESS, "good")


def test_a_partial_result_keeps_its_value(colour, seam_of):
    outcome = colour.run(seam_of(result_classifier=lambda value: K.PARTIAL), colour.fn([["half"]]))
    assert (outcome.kind, outcome.value, outcome.unwrap()) == (K.PARTIAL, ["half"], ["half"])


def test_a_result_that_is_judged_a_failure_stays_readable(colour, seam_of):
    outcome = colour.run(seam_of(result_classifier=lambda value: K.TRANSIENT_FAILURE), colour.fn(["bad"]))
    assert (outcome.kind, outcome.value, outcome.metadata["result"]) == (K.TRANSIENT_FAILURE, None, "bad")


def test_a_result_classifier_that_raises_is_a_terminal_failure(colour, seam_of):
    outcome = colour.run(seam_of(result_classifier=lambda value: 1 / 0), colour.fn(["good"]))
    assert outcome.kind is K.TERMINAL_FAILURE
    assert isinstance(outcome.error, ZeroDivisionError)


class Signal(TimeoutError):
    """A control-flow exception that happens to be a TimeoutError."""


def test_a_passthrough_exception_passes_every_strategy_untouched(colour, seam_of, clock):
    strategies = (FallbackStrategy(lambda: "fallback"), RetryStrategy(), TimeoutStrategy(5.0))
    seam = seam_of(strategies=strategies, passthrough_exceptions=(Signal,))
    signal = Signal("not a timeout")
    fn = colour.fn([signal])
    with pytest.raises(Signal) as raised:
        colour.run(seam, fn)
    assert raised.value is signal
    assert fn.calls == 1
    assert clock.slept == []


def test_a_passthrough_exception_is_no_news_for_the_breaker(colour, seam_of):
    breaker = CircuitBreakerStrategy(failure_threshold=1)
    seam = seam_of(strategies=(breaker,), passthrough_exceptions=(Signal,))
    with pytest.raises(Signal):
        colour.run(seam, colour.fn([Signal()]))
    assert colour.run(seam, colour.fn(["up"])).value == "up"


def test_an_interruption_gives_everything_back_and_counts_nothing(colour, seam_of):
    bulkhead, breaker = BulkheadStrategy(max_queued=0), CircuitBreakerStrategy(failure_threshold=1)
    seam = seam_of(strategies=(FallbackStrategy(lambda: "fallback"), bulkhead, RetryStrategy(), breaker))
    fn = colour.fn([Interrupted()])
    with pytest.raises(Interrupted):
        colour.run(seam, fn)
    assert fn.calls == 1
    assert bulkhead.slots.in_use == 0
    assert breaker.circuit is not None
    assert breaker.circuit.look("failure_count") == 0


def test_a_deadline_that_has_passed_refuses_the_call(colour, clock, hub, recorder):
    hub.register(recorder)
    fn = colour.fn(["never"])
    outcome = colour.run(Seam(deadline=Deadline.after(-1, clock), clock=clock, telemetry=hub), fn)
    assert (outcome.kind, outcome.reason) == (K.REJECTED, "deadline_expired")
    assert fn.calls == 0
    assert len(recorder.of(LoadShed)) == 1
    assert [event.outcome for event in recorder.of(CallCompleted)] == [K.REJECTED]


def test_the_seam_ends_a_call_at_its_deadline(colour, clock, hub):
    seam = Seam(deadline=Deadline.after(2, clock), clock=clock, telemetry=hub)
    outcome = colour.run(seam, colour.fn([Slow(clock, 5, "late")]))
    assert outcome.kind is K.TIMEOUT
    assert isinstance(outcome.error, TimeoutError)
    assert outcome.late is not colour.is_async  # an async function is cut, a sync one can only be late


def test_the_ambient_deadline_binds_like_a_given_one(colour, seam_of, clock):
    seam = seam_of()
    with deadline(2, clock=clock):
        outcome = colour.run(seam, colour.fn([Slow(clock, 5)]))
    assert outcome.kind is K.TIMEOUT


def test_a_given_deadline_never_extends_the_ambient_one(colour, clock, hub):
    seam = Seam(deadline=Deadline.after(60, clock), clock=clock, telemetry=hub)
    seen = []
    with deadline(2, clock=clock):
        colour.run(seam, colour.fn(lambda: seen.append(current_context().deadline.remaining())))
    assert seen == [2]


def test_a_timeout_strategy_is_visible_in_the_context(colour, seam_of):
    seen = []
    seam = seam_of(strategies=(TimeoutStrategy(3.0),))
    colour.run(seam, colour.fn(lambda: seen.append(current_context().deadline.remaining())))
    assert seen == [3]


def test_a_slow_function_under_a_timeout_is_no_success(colour, seam_of, clock):
    outcome = colour.run(seam_of(strategies=(TimeoutStrategy(1.0),)), colour.fn([Slow(clock, 2, "late")]))
    assert outcome.kind is K.TIMEOUT
    assert isinstance(outcome.error, GuardTimeout)


def test_properties_reach_the_function_and_do_not_leak_out(colour, clock, hub):
    seam = Seam(properties={TENANT: "acme"}, clock=clock, telemetry=hub)
    outcome = colour.run(seam, colour.fn(lambda: current_context().get(TENANT)))
    assert outcome.value == "acme"
    assert current_context() is None


def test_the_most_urgent_class_is_not_taken_for_absent(colour, clock, hub):
    bulkhead = PriorityBulkheadStrategy(max_concurrent=1, max_queued=1)
    options = {"strategies": (bulkhead,), "clock": clock, "telemetry": hub}
    gate, served = colour.gate(), []

    def hold():
        yield gate.wait()

    def serve(name: str) -> Any:
        return colour.fn(lambda: served.append(name))

    running = colour.start(Seam(**options), colour.fn(hold))
    colour.until(lambda: bulkhead.slots.running == 1)
    ordinary = colour.start(Seam(**options), serve("ordinary"))
    colour.until(lambda: bulkhead.slots.queued == 1)
    urgent = colour.start(Seam(properties={PRIORITY: Priority.INTERACTIVE}, **options), serve("urgent"))
    colour.until(lambda: bulkhead.slots.queued == 2)
    gate.open()
    for call in (running, ordinary, urgent):
        assert call.outcome().is_success
    assert served == ["urgent", "ordinary"]


def test_the_first_strategy_is_the_outermost(colour, seam_of):
    log: list[str] = []
    seam = seam_of(strategies=[Tracer("a", log), Tracer("b", log)])
    log.clear()
    colour.run(seam, colour.fn(lambda: log.append("call")))
    assert log == ["> a", "> b", "call", "< b", "< a"]


def test_a_strategy_may_answer_without_the_function(colour, clock, hub):
    class Shortcut:
        def execute(self, nxt: Any, ctx: Any) -> Outcome[Any]:
            return Outcome.success(ctx.operation_key)

    fn = colour.fn(["never"])
    outcome = colour.run(Seam("read", strategies=(Shortcut(),), clock=clock, telemetry=hub), fn)
    assert outcome.value == "read"
    assert fn.calls == 0


def test_strategies_keep_their_state_from_call_to_call(colour, seam_of, clock):
    breaker = CircuitBreakerStrategy(failure_threshold=2, reset_timeout_s=30)
    seam, fn = seam_of(strategies=(breaker,)), colour.fn([DOWN])
    kinds = [colour.run(seam, fn).kind for _ in range(4)]
    assert kinds == [K.TRANSIENT_FAILURE, K.TRANSIENT_FAILURE, K.REJECTED, K.REJECTED]
    assert fn.calls == 2
    clock.advance(30)
    assert colour.run(seam, colour.fn(["up"])).value == "up"


def test_state_is_the_same_for_every_operation_key_loop_and_thread(clock, hub):
    breaker = CircuitBreakerStrategy(failure_threshold=3)
    options: Any = {"strategies": [breaker], "clock": clock, "telemetry": hub}

    def fail() -> None:
        raise DOWN

    guarded_call_sync("one", fail, **options)
    asyncio.run(guarded_call("two", fail, **options))
    thread = threading.Thread(target=guarded_call_sync, args=("three", fail), kwargs=options)
    thread.start()
    thread.join(10)
    assert guarded_call_sync("four", fail, **options).reason == "circuit_open"


def test_equal_strategies_with_different_state_are_kept_apart(colour, clock, hub):
    @dataclass(frozen=True)
    class Counter:
        seen: list[str] = field(default_factory=list, compare=False)

        async def execute(self, nxt: Any, ctx: Any) -> Outcome[Any]:
            self.seen.append(ctx.operation_key)
            return await nxt(ctx)

    first, second = Counter(), Counter()
    for counter in (first, second, second):
        colour.run(Seam(strategies=(counter,), clock=clock, telemetry=hub), colour.fn([1]))
    assert (len(first.seen), len(second.seen)) == (1, 2)


def test_a_strategy_without_a_hash_is_as_good_as_any(colour, seam_of):
    @dataclass
    class Unhashable:
        calls: int = 0

        async def execute(self, nxt: Any, ctx: Any) -> Outcome[Any]:
            self.calls += 1
            return await nxt(ctx)

    strategy = Unhashable()
    seam = seam_of(strategies=(strategy,))
    before = strategy.calls
    assert colour.run(seam, colour.fn(["up"])).value == "up"
    assert strategy.calls == before + 1


@pytest.mark.parametrize("layer", [Retry(), Breaker(), RetryStrategy, "retry"])
def test_something_that_is_no_strategy_is_refused(colour, clock, hub, layer):
    with pytest.raises(PolicyError, match="guarded_call takes strategies"):
        colour.run(Seam(strategies=(layer,), clock=clock, telemetry=hub), colour.fn([1]))


def test_two_retry_layers_are_refused(colour, clock, hub):
    with pytest.raises(PolicyError, match="two retry layers"):
        colour.run(Seam(strategies=(RetryStrategy(), RetryStrategy()), clock=clock, telemetry=hub), colour.fn([1]))


def test_a_nested_retry_defers_to_the_outer_one(colour, seam_of):
    inner_seam = seam_of("inner", strategies=(RetryStrategy(3, 0),))
    outer_seam = seam_of("outer", strategies=(RetryStrategy(2, 0),))
    fn = colour.fn([DOWN])

    def body():
        outcome = yield colour.inner(inner_seam, fn)
        return outcome.unwrap()

    assert colour.run(outer_seam, colour.fn(body)).attempts == 2
    assert fn.calls == 2


def test_a_nested_call_knows_its_parent(colour, seam_of):
    outer_seam, inner_seam = seam_of("outer"), seam_of("inner")

    def body():
        outer = current_context()
        outcome = yield colour.inner(inner_seam, colour.fn(current_context))
        return outer, outcome.value

    outer, inner = colour.run(outer_seam, colour.fn(body)).value
    assert (outer.operation_key, inner.operation_key) == ("outer", "inner")
    assert inner.parent_call_id == outer.call_id
    assert inner.call_id != outer.call_id


@pytest.mark.parametrize(
    ("step", "completed", "interrupted"),
    [
        ("value", [K.SUCCESS], []),
        (DOWN, [K.TRANSIENT_FAILURE], []),
        (Signal(), [], ["passthrough"]),
        (Interrupted(), [], ["interrupted"]),
    ],
)
def test_every_call_leaves_exactly_one_completion_record(colour, hub, clock, recorder, step, completed, interrupted):
    hub.register(recorder)
    seam = Seam(strategies=(RetryStrategy(2, 0),), passthrough_exceptions=(Signal,), clock=clock, telemetry=hub)
    try:
        colour.run(seam, colour.fn([step]))
    except (Signal, Interrupted):
        pass
    assert [event.outcome for event in recorder.of(CallCompleted)] == completed
    assert [event.reason for event in recorder.of(CallInterrupted)] == interrupted


def test_calls_are_counted_by_operation_and_outcome(colour, seam_of, hub):
    metrics = InMemoryMetrics()
    hub.register(metrics)
    seam = Seam("write", clock=ManualClock(), telemetry=hub)
    for step in ("ok", "ok", DOWN):
        colour.run(seam, colour.fn([step]))
    counts = metrics.snapshot()["counts_by_operation_outcome"]
    assert counts == {"write/success": 2, "write/transient_failure": 1}


def test_operation_keys_made_from_data_do_not_pile_up(colour, clock, hub):
    import gc

    from holdfast.guard.pipeline import MAX_LANES, Lane

    strategy = RetryStrategy()
    for number in range(MAX_LANES * 2):
        colour.run(Seam(f"user {number}", strategies=(strategy,), clock=clock, telemetry=hub), colour.fn([1]))
    gc.collect()
    lanes = [thing for thing in gc.get_objects() if isinstance(thing, Lane) and strategy in thing.plan.strategies]
    assert len(lanes) <= MAX_LANES


async def test_the_sync_form_refuses_to_block_a_running_loop(clock, hub):
    fn = SyncColour().fn(["never"])
    with pytest.raises(RuntimeError, match="running event loop"):
        guarded_call_sync("op", fn, clock=clock, telemetry=hub)
    assert fn.calls == 0


async def test_a_cancelled_call_is_interrupted_and_gives_its_slot_back(hub, recorder):
    hub.register(recorder)
    bulkhead = BulkheadStrategy()
    call = asyncio.ensure_future(guarded_call("op", asyncio.Event().wait, strategies=(bulkhead,), telemetry=hub))
    await asyncio.sleep(0)
    assert bulkhead.slots.in_use == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert bulkhead.slots.in_use == 0
    assert [event.reason for event in recorder.of(CallInterrupted)] == ["cancelled"]


def test_the_sync_form_runs_an_async_function_with_all_its_attempts_in_one_loop(clock, hub):
    loops = []

    async def fetch() -> str:
        loops.append(asyncio.get_running_loop())
        if len(loops) < 3:
            raise DOWN
        return "fetched"

    outcome = guarded_call_sync("op", fetch, strategies=(RetryStrategy(3, 1),), clock=clock, telemetry=hub)
    assert outcome.value == "fetched"
    assert len(set(loops)) == 1


def test_a_lambda_that_returns_a_coroutine_is_run_too(clock, hub):
    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        return number

    assert guarded_call_sync("op", lambda: fetch(7), clock=clock, telemetry=hub).value == 7


def test_a_coroutine_from_a_lambda_is_cut_at_the_time_limit(clock, hub):
    ended = []

    async def fetch() -> None:
        try:
            await clock.asleep(60)
        except asyncio.CancelledError:
            ended.append(clock.monotonic())
            raise

    start = clock.monotonic()
    outcome = guarded_call_sync(
        "op",
        lambda: fetch(),
        strategies=(TimeoutStrategy(2),),
        clock=clock,
        telemetry=hub,
    )
    assert outcome.kind is K.TIMEOUT
    assert isinstance(outcome.error, GuardTimeout)
    assert ended == [start + 2]


def test_a_sync_call_loads_no_asyncio_and_starts_no_thread():
    program = """
import sys, threading
from holdfast.guard.seam import guarded_call_sync
from holdfast.guard.retry import RetryStrategy
from holdfast.guard.timeout import TimeoutStrategy
from holdfast.guard.circuit import CircuitBreakerStrategy
layers = (TimeoutStrategy(5), RetryStrategy(2, 0), CircuitBreakerStrategy())
for _ in range(40):
    assert guarded_call_sync("op", lambda: 1, strategies=layers).value == 1
assert guarded_call_sync("op", lambda: 1 / 0, strategies=layers).attempts == 2
print("asyncio" in sys.modules, threading.active_count())
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "1"]
