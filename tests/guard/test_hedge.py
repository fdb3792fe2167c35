"""Hedging: notes 2.9."""

from __future__ import annotations

import asyncio
import threading
from itertools import count
from typing import Any

import pytest

from holdfast.core.context import ResilienceContext, TypedKey, current_context, deadline, use_context
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.call import IDEMPOTENT
from holdfast.guard.driver import SyncDriver, ThreadBranch
from holdfast.guard.guard import Guard
from holdfast.guard.hedge import Hedge, HedgeStrategy
from holdfast.guard.timeout import Timeout
from holdfast.machine.breaker import Breaker, CircuitState
from holdfast.machine.budget import Budget
from holdfast.machine.retry import Retry
from holdfast.machine.trip import consecutive
from holdfast.telemetry.events import AttemptCompleted, CallCompleted, CallInterrupted, Hedged, LoadShed
from holdfast.telemetry.hub import Hub
from tests.guard.colours import Slow

NOTE = TypedKey[str]("note")


@pytest.fixture
def path() -> str:
    """A guard with a Hedge is never fused."""
    return "fused"


class Response:
    """A result that holds something until it is closed."""

    def __init__(self, body: str = "") -> None:
        self.body = body
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Peek:
    """A strategy outside the hedge that looks at the context afterwards."""

    seen: str | None = None

    async def execute(self, nxt: Any, ctx: ResilienceContext) -> Outcome[Any]:
        outcome = await nxt()
        self.seen = ctx.get(NOTE)
        return outcome


class Primary:
    """A primary that hangs until its gate opens, with whatever comes after it."""

    def __init__(self, colour: Any, *then: Any, result: Any = "primary") -> None:
        self.gate = colour.gate()
        self.cancelled = 0
        self.result = result
        self.fn = colour.fn([self._hang, *then])

    def _hang(self) -> Any:
        try:
            yield self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.result


def strategy_of(guard: Guard) -> HedgeStrategy:
    found = guard.plan.first(HedgeStrategy)
    assert found is not None
    return found


def test_a_primary_that_answers_in_time_is_not_hedged(colour: Any, guard_of: Any) -> None:
    fn = colour.fn(["value"])
    outcome = colour.run(guard_of(Hedge()), fn)
    assert (outcome.value, outcome.attempts, fn.calls) == ("value", 1, 1)
    assert "hedges" not in outcome.metadata


def test_a_slow_primary_is_hedged_after_the_delay(colour: Any, clock: Any, guard_of: Any) -> None:
    primary = Primary(colour, "hedge")
    call = colour.start(guard_of(Hedge(delay=2.0)), primary.fn)
    colour.until(lambda: primary.fn.calls == 1)
    colour.advance(clock, 1.5)
    assert primary.fn.calls == 1
    colour.advance(clock, 0.5)
    outcome = call.outcome()
    assert outcome.value == "hedge"
    assert (outcome.metadata["hedges"], outcome.metadata["winner"], outcome.attempts) == (1, 1, 2)
    primary.gate.open()


def test_the_primary_still_wins_if_it_answers_before_its_hedge(colour: Any, clock: Any, guard_of: Any) -> None:
    second = colour.gate()
    primary = Primary(colour, lambda: (yield second.wait()))
    call = colour.start(guard_of(Hedge(delay=2.0)), primary.fn)
    colour.until(lambda: primary.fn.calls == 1)
    colour.advance(clock, 2.0)
    colour.until(lambda: primary.fn.calls == 2)
    primary.gate.open()
    assert call.outcome().value == "primary"
    second.open()


def test_each_further_hedge_waits_another_delay(colour: Any, clock: Any, guard_of: Any) -> None:
    gate = colour.gate()
    fn = colour.fn(lambda: (yield gate.wait()))
    call = colour.start(guard_of(Hedge(delay=2.0, max_hedged=2)), fn)
    colour.until(lambda: fn.calls == 1)
    for calls in (2, 3):
        colour.advance(clock, 2.0)
        colour.until(lambda calls=calls: fn.calls == calls)
    colour.advance(clock, 100.0)
    assert fn.calls == 3
    gate.open()
    assert call.outcome().is_success


def test_a_delay_of_zero_starts_all_at_once(colour: Any, guard_of: Any) -> None:
    gate = colour.gate()
    fn = colour.fn(lambda: (yield gate.wait()))
    call = colour.start(guard_of(Hedge(delay=0, max_hedged=3)), fn)
    colour.until(lambda: fn.calls == 4)
    gate.open()
    assert call.outcome().metadata["hedges"] == 3


def test_a_negative_delay_starts_the_next_only_when_the_one_before_has_failed(
    colour: Any, clock: Any, guard_of: Any
) -> None:
    gate = colour.gate()

    def fail_later() -> Any:
        yield gate.wait()
        raise OSError("down")

    fn = colour.fn([fail_later, "second"])
    call = colour.start(guard_of(Hedge(delay=-1)), fn)
    colour.until(lambda: fn.calls == 1)
    colour.advance(clock, 1000.0)
    assert fn.calls == 1
    gate.open()
    assert call.outcome().value == "second"


def test_a_handled_failure_starts_the_next_at_once(colour: Any, clock: Any, guard_of: Any) -> None:
    fn = colour.fn([OSError("down"), "second"])
    outcome = colour.run(guard_of(Hedge(delay=1000.0)), fn)
    assert (outcome.value, outcome.attempts, clock.monotonic()) == ("second", 2, 1000.0)
    assert [attempt.kind for attempt in outcome.metadata["trail"]] == ["transient_failure", "success"]


def test_when_all_fail_the_outcome_is_the_primary_s(colour: Any, guard_of: Any) -> None:
    errors = [OSError("first"), OSError("second"), OSError("third")]
    outcome = colour.run(guard_of(Hedge(delay=-1, max_hedged=2)), colour.fn(errors))
    assert outcome.error is errors[0]
    assert [attempt.number for attempt in outcome.metadata["trail"]] == [0, 1, 2]
    assert [attempt.error for attempt in outcome.metadata["trail"]] == errors
    assert (outcome.attempts, outcome.metadata["winner"]) == (3, 0)


def test_an_outcome_that_is_not_handled_wins_even_if_it_is_a_failure(colour: Any, guard_of: Any) -> None:
    fn = colour.fn([TypeError("a bug"), "never"])
    outcome = colour.run(guard_of(Hedge(delay=5)), fn)
    assert (outcome.kind, fn.calls) == (OutcomeKind.TERMINAL_FAILURE, 1)


def test_the_predicate_decides_what_is_handled(colour: Any, guard_of: Any) -> None:
    fn = colour.fn(["stale", "fresh"])
    outcome = colour.run(guard_of(Hedge(delay=5, handles=lambda outcome: outcome.value == "stale")), fn)
    assert outcome.value == "fresh"


def test_a_predicate_that_raises_accepts_the_outcome(colour: Any, guard_of: Any, caplog: Any) -> None:
    outcome = colour.run(guard_of(Hedge(delay=5, handles=lambda _: 1 / 0)), colour.fn(["value"]))
    assert outcome.value == "value"
    assert "callback" in caplog.text


def test_a_passthrough_exception_of_any_run_wins(colour: Any, clock: Any, guard_of: Any, recorder: Any) -> None:
    primary = Primary(colour, KeyError("not mine"))
    guard = guard_of(Hedge(delay=2.0), passthrough=(KeyError,))
    guard.telemetry.register(recorder)
    call = colour.start(guard, primary.fn)
    colour.until(lambda: primary.fn.calls == 1)
    colour.advance(clock, 2.0)
    with pytest.raises(KeyError, match="not mine"):
        call.outcome()
    assert [event.reason for event in recorder.of(CallInterrupted)] == ["passthrough"]
    primary.gate.open()


def test_losers_are_cancelled_and_awaited_before_the_call_returns(clock: Any, guard_of: Any) -> None:
    ended: list[int] = []
    numbers = count()

    async def body() -> str:
        number = next(numbers)
        if number:
            return "hedge"
        try:
            await clock.asleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append(number)
        return "primary"

    outcome = asyncio.run(guard_of(Hedge(delay=2.0)).arun(body))
    assert (outcome.value, ended) == ("hedge", [0])
    assert clock.monotonic() == 1002.0


def test_a_loser_s_result_is_closed_and_the_winner_s_is_not(colour: Any, clock: Any, guard_of: Any) -> None:
    late, winner = Response("late"), Response("winner")
    gate = colour.gate()

    def stubborn() -> Any:
        try:
            yield gate.wait()
        except asyncio.CancelledError:
            pass  # answers although nobody listens any more
        return late

    fn = colour.fn([stubborn, winner])
    call = colour.start(guard_of(Hedge(delay=2.0)), fn)
    colour.until(lambda: fn.calls == 1)
    colour.advance(clock, 2.0)
    assert call.outcome().value is winner
    gate.open()
    colour.until(lambda: late.closed)
    assert not winner.closed


def test_the_results_of_handled_failures_are_closed(colour: Any, guard_of: Any) -> None:
    bad, worse, good = Response("bad"), Response("worse"), Response("good")
    guard = guard_of(
        Hedge(delay=-1, max_hedged=2),
        result_classifier=lambda value: None if value is good else OutcomeKind.TRANSIENT_FAILURE,
    )
    assert colour.run(guard, colour.fn([bad, worse, good])).value is good
    assert (bad.closed, worse.closed, good.closed) == (True, True, False)


def test_a_primary_that_is_returned_as_a_failure_keeps_its_result_open(colour: Any, guard_of: Any) -> None:
    bad, worse = Response("bad"), Response("worse")
    guard = guard_of(Hedge(delay=-1), result_classifier=lambda _: OutcomeKind.TRANSIENT_FAILURE)
    outcome = colour.run(guard, colour.fn([bad, worse]))
    assert outcome.metadata["result"] is bad
    assert (bad.closed, worse.closed) == (False, True)


def test_a_result_that_cannot_be_closed_does_no_harm(colour: Any, guard_of: Any, caplog: Any) -> None:
    class Broken:
        def close(self) -> None:
            raise ValueError("will not close")

    guard = guard_of(
        Hedge(delay=-1), result_classifier=lambda value: None if value == "good" else OutcomeKind.TRANSIENT_FAILURE
    )
    assert colour.run(guard, colour.fn([Broken(), "good"])).value == "good"
    assert "could not close" in caplog.text


@pytest.mark.parametrize(("winner", "expected"), [("primary", "of the primary"), ("hedge", "of the hedge")])
def test_only_the_winner_s_context_writes_are_merged(
    colour: Any, clock: Any, guard_of: Any, winner: str, expected: str
) -> None:
    gates = {"primary": colour.gate(), "hedge": colour.gate()}
    numbers = count()

    def body() -> Any:
        me = ("primary", "hedge")[next(numbers)]
        context = current_context()
        assert context is not None
        assert context.get(NOTE) is None
        context.set(NOTE, f"of the {me}")
        yield gates[me].wait()
        return me

    peek = Peek()
    fn = colour.fn(body)
    call = colour.start(guard_of(peek, Hedge(delay=2.0)), fn)
    colour.until(lambda: fn.calls == 1)
    colour.advance(clock, 2.0)
    colour.until(lambda: fn.calls == 2)
    gates[winner].open()
    assert call.outcome().value == winner
    assert peek.seen == expected
    for gate in gates.values():
        gate.open()


def test_every_run_belongs_to_the_same_call(colour: Any, guard_of: Any, recorder: Any) -> None:
    ids: list[str] = []

    def body() -> None:
        context = current_context()
        assert context is not None
        ids.append(context.call_id)
        raise OSError("down")

    guard = guard_of(Hedge(delay=-1))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn(body))
    assert len(ids) == 2
    assert set(ids) == {event.call_id for event in recorder.of(CallCompleted)}


def test_each_hedge_may_use_another_action_with_the_same_arguments(colour: Any, guard_of: Any) -> None:
    asked: list[int] = []
    replica = colour.fn(lambda key: f"replica of {key}")

    def actions(number: int) -> Any:
        asked.append(number)
        return replica if number == 2 else None

    def fail(_key: str) -> None:
        raise OSError("down")

    fn = colour.fn(fail)
    outcome = colour.run(guard_of(Hedge(delay=-1, max_hedged=2, actions=actions)), fn, "k")
    assert (outcome.value, asked, fn.calls, replica.calls) == ("replica of k", [1, 2], 2, 1)


def test_actions_that_raise_end_the_hedging(colour: Any, guard_of: Any, caplog: Any) -> None:
    fn = colour.fn([OSError("down"), "never"])
    outcome = colour.run(guard_of(Hedge(delay=-1, actions=lambda number: {}[number])), fn)
    assert (str(outcome.error), fn.calls) == ("down", 1)
    assert "callback" in caplog.text


def test_the_delay_follows_the_quantile_once_there_are_enough_samples(colour: Any, clock: Any, guard_of: Any) -> None:
    guard = guard_of(Hedge(delay=100.0, quantile=0.5, min_samples=3))
    for seconds in (1.0, 3.0, 2.0):
        assert strategy_of(guard).delay() == 100.0
        colour.run(guard, colour.fn([Slow(clock, seconds, "value")]))
    assert strategy_of(guard).delay() == 2.0
    primary = Primary(colour, "hedge")
    call = colour.start(guard, primary.fn)
    colour.until(lambda: primary.fn.calls == 1)
    colour.advance(clock, 2.0)
    assert call.outcome().value == "hedge"
    primary.gate.open()


def test_only_successes_teach_the_quantile(colour: Any, guard_of: Any) -> None:
    guard = guard_of(Hedge(delay=-1, quantile=0.9, min_samples=1))
    colour.run(guard, colour.fn([OSError("down")]))
    assert strategy_of(guard).delay() == -1
    colour.run(guard, colour.fn(["value"]))
    assert strategy_of(guard).delay() == 0.0


def test_an_exhausted_budget_starts_no_more_hedges_and_lets_running_ones_go_on(
    colour: Any, clock: Any, guard_of: Any
) -> None:
    gate = colour.gate()
    fn = colour.fn(lambda: (yield gate.wait()))
    guard = guard_of(Hedge(delay=1.0, max_hedged=3, budget=Budget(0.0, 0)))
    call = colour.start(guard, fn)
    colour.until(lambda: fn.calls == 1)
    colour.advance(clock, 1.0)
    colour.until(lambda: fn.calls == 2)
    colour.advance(clock, 100.0)
    assert fn.calls == 2
    gate.open()
    assert call.outcome().is_success
    budget = strategy_of(guard).budget
    assert budget is not None
    colour.until(lambda: (budget.executions, budget.inflight) == (0, 0))


def test_a_stray_thread_counts_against_the_budget_until_it_ends(clock: Any, guard_of: Any) -> None:
    started, gate = threading.Event(), threading.Event()

    def primary() -> str:
        assert started.wait(10)
        return "value"

    def hedge() -> str:
        started.set()
        assert gate.wait(10)
        return "late"

    guard = guard_of(Hedge(delay=0, budget=Budget(1.0, 3), actions=lambda number: hedge))
    assert guard.run(primary).value == "value"
    budget = strategy_of(guard).budget
    assert budget is not None
    assert (budget.executions, budget.inflight) == (0, 1)
    gate.set()
    for stray in threading.enumerate():
        if stray.name == "holdfast-branch":
            stray.join(10)
    assert budget.inflight == 0


def test_a_call_that_is_not_idempotent_is_not_hedged(colour: Any, guard_of: Any) -> None:
    fn = colour.fn([OSError("down"), "never"])
    with use_context(ResilienceContext("outer", properties={IDEMPOTENT: False})):
        outcome = colour.run(guard_of(Hedge(delay=0)), fn)
    assert (str(outcome.error), fn.calls) == ("down", 1)


def test_no_hedge_starts_that_the_deadline_would_not_let_run(colour: Any, clock: Any, guard_of: Any) -> None:
    gate = colour.gate()
    fn = colour.fn(lambda: (yield gate.wait()))
    with deadline(2.0, clock=clock):
        call = colour.start(guard_of(Hedge(delay=2.0)), fn)
    colour.until(lambda: fn.calls == 1)
    colour.advance(clock, 5.0)
    gate.open()
    assert (call.outcome().kind, fn.calls) == (OutcomeKind.TIMEOUT, 1)


def test_a_refused_hedge_does_not_end_the_primary(colour: Any, clock: Any, guard_of: Any, recorder: Any) -> None:
    judged: list[OutcomeKind] = []

    def handles(outcome: Outcome[Any]) -> bool:
        judged.append(outcome.kind)
        return outcome.kind.is_retryable

    guard = guard_of(Hedge(delay=2.0, max_hedged=3, handles=handles), Breaker(consecutive(1), open_for=10))
    colour.run(guard, colour.fn([OSError("down")]))
    assert guard.circuit.state is CircuitState.OPEN
    judged.clear()
    clock.advance(10)
    primary = Primary(colour, "never")  # the probe; its hedges find no second permit
    guard.telemetry.register(recorder)
    call = colour.start(guard, primary.fn)
    colour.until(lambda: primary.fn.calls == 1)
    colour.advance(clock, 2.0)
    colour.until(lambda: judged == [OutcomeKind.REJECTED])  # the race has heard of it
    assert [event.reason for event in recorder.of(LoadShed)] == ["circuit_open"]
    colour.advance(clock, 2.0)
    assert not call.done
    primary.gate.open()
    outcome = call.outcome()
    assert (outcome.value, outcome.attempts, primary.fn.calls) == ("primary", 1, 1)
    assert len(recorder.of(Hedged)) == 1  # another one would have been refused as well
    assert guard.circuit.state is CircuitState.CLOSED


def test_a_refused_primary_starts_no_hedges(colour: Any, guard_of: Any, recorder: Any) -> None:
    guard = guard_of(Hedge(delay=5, max_hedged=3), Breaker(consecutive(1), open_for=10))
    colour.run(guard, colour.fn([OSError("down")]))
    guard.telemetry.register(recorder)
    outcome = colour.run(guard, colour.fn(["never"]))
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REJECTED, "circuit_open")
    assert recorder.of(Hedged) == []


def test_a_cancelled_loser_says_nothing_to_the_breaker(clock: Any, guard_of: Any) -> None:
    guard = guard_of(Hedge(delay=2.0), Breaker(consecutive(1)))
    numbers = count()

    async def body() -> str:
        if next(numbers) == 0:
            await clock.asleep(60)
        return "hedge"

    assert asyncio.run(guard.arun(body)).value == "hedge"
    assert guard.circuit.state is CircuitState.CLOSED


def test_a_total_timeout_cuts_every_run_and_counts_each_against_the_breaker(clock: Any, guard_of: Any) -> None:
    guard = guard_of(Timeout(total=5.0), Hedge(delay=2.0), Breaker(consecutive(2)))

    async def body() -> None:
        await clock.asleep(60)

    outcome = asyncio.run(guard.arun(body))
    assert (outcome.kind, outcome.attempts, clock.monotonic()) == (OutcomeKind.TIMEOUT, 2, 1005.0)
    assert guard.circuit.state is CircuitState.OPEN


def test_an_attempt_timeout_ends_one_run_and_starts_the_next(clock: Any, guard_of: Any) -> None:
    guard = guard_of(Timeout(attempt=1.0), Hedge(delay=30.0))
    numbers = count()

    async def body() -> str:
        if next(numbers) == 0:
            await clock.asleep(60)
        return "second"

    outcome = asyncio.run(guard.arun(body))
    assert (outcome.value, clock.monotonic()) == ("second", 1001.0)
    assert [attempt.kind for attempt in outcome.metadata["trail"]] == ["timeout", "success"]


async def test_a_cancelled_caller_cancels_every_run_and_nothing_is_counted(
    clock: Any, guard_of: Any, recorder: Any
) -> None:
    guard = guard_of(Hedge(delay=0, max_hedged=2, budget=Budget(1.0, 3)), Breaker(consecutive(1)))
    guard.telemetry.register(recorder)
    cancelled = []

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    task = asyncio.ensure_future(guard.arun(body))
    await clock.advance_async(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(cancelled) == 3
    assert recorder.of(CallCompleted) == recorder.of(AttemptCompleted) == []
    assert [event.reason for event in recorder.of(CallInterrupted)] == ["cancelled"]
    assert guard.circuit.state is CircuitState.CLOSED
    budget = strategy_of(guard).budget
    assert budget is not None
    assert (budget.executions, budget.inflight) == (0, 0)


async def test_a_caller_cancelled_while_losers_end_closes_the_result_it_had(clock: Any, guard_of: Any) -> None:
    won, ending = Response(), asyncio.Event()
    numbers = count()

    async def body() -> Response:
        if next(numbers):
            return won
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(guard_of(Hedge(delay=0)).arun(body))
    await ending.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert won.closed


def test_retry_outside_counts_the_attempts_of_all_rounds(colour: Any, guard_of: Any) -> None:
    fn = colour.fn([OSError("1"), OSError("2"), "third"])
    outcome = colour.run(guard_of(Retry(attempts=2, base=0), Hedge(delay=-1)), fn)
    assert (outcome.value, outcome.attempts) == ("third", 3)
    failed = colour.run(guard_of(Retry(attempts=2, base=0), Hedge(delay=-1)), colour.fn([OSError("down")]))
    assert failed.attempts == 4
    assert [attempt.number for attempt in failed.metadata["trail"]] == [0, 1, 2, 3]


def test_a_retry_below_a_hedged_and_retried_call_defers_to_it(colour: Any, guard_of: Any) -> None:
    inner = guard_of(Retry(attempts=5, base=0), name="inner")
    fn = colour.fn([OSError("down")])

    def body() -> Any:
        yield colour.inner_call(inner, fn)

    colour.run(guard_of(Retry(attempts=2, base=0), Hedge(delay=-1)), colour.fn(body))
    assert fn.calls == 4


def test_each_hedge_is_an_event_and_each_attempt_is_reported_once(
    colour: Any, clock: Any, guard_of: Any, recorder: Any
) -> None:
    guard = guard_of(Hedge(delay=-1, max_hedged=2))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([OSError("1"), OSError("2"), "third"]))
    assert [(event.number, event.delay) for event in recorder.of(Hedged)] == [(1, 0.0), (2, 0.0)]
    assert [(event.number, event.handled) for event in recorder.of(AttemptCompleted)] == [
        (0, True),
        (1, True),
        (2, False),
    ]
    assert len(recorder.of(CallCompleted)) == 1


def test_an_async_function_in_a_sync_call_is_refused(guard_of: Any) -> None:
    async def body() -> None: ...

    with pytest.raises(TypeError, match="is async"):
        guard_of(Hedge()).run(body)


def test_a_hedge_for_which_there_is_no_thread_leaves_the_primary_alone(clock: Any, guard_of: Any) -> None:
    class Exhausted(SyncDriver):
        __slots__ = ("started",)

        def start(self, work: Any) -> ThreadBranch:
            if getattr(self, "started", False):
                raise RuntimeError("can't start new thread")
            self.started = True
            return super().start(work)

    guard = guard_of(Hedge(delay=-1, max_hedged=3, budget=Budget(1.0, 3)))
    guard._setting.sync_driver = Exhausted(clock)

    def body() -> None:
        raise OSError("down")

    outcome = guard.run(body)
    assert (str(outcome.error), outcome.attempts) == ("down", 1)
    budget = strategy_of(guard).budget
    assert budget is not None
    assert budget.inflight == 0


def test_a_hedge_may_be_overridden_for_a_block(colour: Any, guard_of: Any) -> None:
    guard = guard_of(Hedge(delay=-1))
    fn = colour.fn([OSError("down")])
    with guard.override(Hedge(delay=-1, max_hedged=3)):
        colour.run(guard, fn)
    assert fn.calls == 4


def test_no_result_is_lost_or_left_open_when_threads_and_tasks_hedge_together() -> None:
    made: list[Response] = []
    guard = Guard("x", Hedge(delay=0, max_hedged=2, budget=Budget(1.0, 1000)), telemetry=Hub())
    kept: list[Response] = []

    def sync_body() -> Response:
        response = Response()
        made.append(response)
        return response

    async def async_body() -> Response:
        await asyncio.sleep(0)
        return sync_body()

    def in_thread() -> None:
        kept.extend([guard.call(sync_body) for _ in range(25)])

    async def in_tasks() -> None:
        kept.extend(await asyncio.gather(*(guard.acall(async_body) for _ in range(100))))

    threads = [threading.Thread(target=in_thread) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: asyncio.run(in_tasks())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for stray in threading.enumerate():
        if stray.name == "holdfast-branch":
            stray.join(10)
    assert len(kept) == len({id(response) for response in kept}) == 175
    assert sum(not response.closed for response in made) == 175
    assert not any(response.closed for response in kept)
    budget = strategy_of(guard).budget
    assert budget is not None
    assert (budget.executions, budget.inflight) == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": float("inf")}, "Hedge.delay"),
        ({"delay": None}, "Hedge.delay"),
        ({"max_hedged": 0}, "Hedge.max_hedged must be from 1 to 10, got 0"),
        ({"max_hedged": 11}, "Hedge.max_hedged"),
        ({"quantile": 1.0}, "Hedge.quantile"),
        ({"quantile": 0}, "Hedge.quantile"),
        ({"min_samples": 0}, "Hedge.min_samples"),
        ({"handles": 5}, "Hedge.handles"),
        ({"actions": [print]}, "Hedge.actions"),
        ({"budget": 2.0}, "Budget.max_rate"),
    ],
)
def test_an_impossible_hedge_is_refused_when_it_is_built(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Hedge(**options)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Hedge(), "hedge: up to 1 more, after 2 s each"),
        (Hedge(delay=0, max_hedged=3), "hedge: up to 3 more, at once"),
        (Hedge(delay=-1), "hedge: up to 1 more, one after another"),
        (
            Hedge(quantile=0.95),
            "hedge: up to 1 more, after the 0.95 quantile of recent durations, after 2 s each below 20 of them",
        ),
    ],
)
def test_a_hedge_describes_itself(policy: Hedge, text: str) -> None:
    assert HedgeStrategy(policy).describe() == text
