"""The fused path and the general path are one behaviour: random traces through both come to the same.

A trace is a list of actions; a call's attempts hold actions of their own, so calls overlap by nesting: a circuit is
reset, or opened by an inner call, while an outer call is under way. Both worlds have a manual clock, and dice that only
depend on it.

One test is for guards of a retry and a breaker at most, whose zero-wait retries stay on the fused path, with
listeners that come in the middle of a call, functions that look at the context and errors that come from a call below.

No two timers of a trace end at the same moment (limits lie off the grid on which calls sleep), because then either
may win.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import (
    AttemptCompleted,
    Breaker,
    Budget,
    Bulkhead,
    CallCompleted,
    Fallback,
    Guard,
    GuardEvent,
    Hub,
    InMemoryMetrics,
    Outcome,
    OutcomeError,
    OutcomeKind,
    RateLimit,
    Retry,
    Timeout,
    consecutive,
    count,
    current_context,
    deadline,
    k_of_n,
    ratio,
    slow_ratio,
)
from holdfast.guard.call import IDEMPOTENT
from holdfast.guard.retry import RetryStrategy
from holdfast.testing.clock import ManualClock
from tests.conftest import SIZE
from tests.guard.colours import AsyncColour, Interrupted, Recorder, SyncColour, _afinish, _finish

GRID = 1 / 32  # calls sleep and wait multiples of this
TOTAL_OFF, ATTEMPT_OFF, AMBIENT_OFF = 4 / 512, 3 / 512, 7 / 1024


class Passed(Exception):
    """Goes through every layer."""


class Hinted(OSError):
    def __init__(self) -> None:
        super().__init__("later")
        self.retry_after = 1.0


class Own(OSError):
    """A type of the user's own, which has nothing to say about retrying."""


class Marked(OSError):
    def __new__(cls) -> Any:
        error = OSError("marked")
        error.add_note("seen before")
        return error


class Judged(OutcomeError):
    """What a guard around another one sees of an outcome without an error."""

    def __new__(cls) -> Any:
        return OutcomeError(OutcomeKind.TIMEOUT)


ENDS: dict[str, Any] = {
    "ok": None,
    "transient": OSError,
    "timeout": TimeoutError,
    "terminal": TypeError,
    "own": Own,
    "marked": Marked,
    "hinted": Hinted,
    "passed": Passed,
    "interrupted": Interrupted,
    "cancelled": asyncio.CancelledError,
    "judged": Judged,
    "same": OSError,  # one exception object, raised again and again
    "below": OSError,  # what the last call below has raised, if it has
}


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Command:
    verb: str


@dataclass(frozen=True)
class Replace:
    policy: Any


@dataclass(frozen=True)
class Listen:
    """Somebody begins to listen to every call."""


@dataclass(frozen=True)
class Look:
    """The function looks at its context, and may declare that it must not be called twice."""

    once: bool


@dataclass(frozen=True)
class Attempt:
    actions: tuple[Any, ...]
    end: str


@dataclass(frozen=True)
class Call:
    attempts: tuple[Attempt, ...]
    ambient: float | None = None
    override: Retry | None = None
    other: bool = False
    times: int = 1


def seldom(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.none(), st.none(), strategy)


pauses = st.builds(Pause, st.sampled_from([1, 16, 40, 80, 200, 1100]).map(lambda n: n * GRID))
commands = st.builds(Command, st.sampled_from(["isolate", "close", "reset", "disable", "metrics_only", "enable"]))
ends = st.sampled_from(["ok"] * 3 + ["transient"] * 5 + list(ENDS))
overrides = seldom(st.builds(Retry, attempts=st.integers(1, 3), base=st.just(0.0)))
ambients = seldom(st.sampled_from([-1.0, 0.25 + AMBIENT_OFF, 1 + AMBIENT_OFF, 3 + AMBIENT_OFF]))


def calls(inner: st.SearchStrategy[Any], ends: st.SearchStrategy[str] = ends) -> st.SearchStrategy[Call]:
    attempts = st.builds(Attempt, st.lists(inner, max_size=2).map(tuple), ends)
    return st.builds(
        Call,
        st.lists(attempts, min_size=1, max_size=4).map(tuple),
        ambients,
        overrides,
        st.sampled_from([False] * 4 + [True]),
        st.sampled_from([1, 1, 2, 4]),
    )


simple_calls = calls(pauses)
nested_calls = calls(st.one_of(pauses, pauses, commands, simple_calls))

looks = st.builds(Look, st.booleans())
failures = st.sampled_from(["ok"] * 2 + ["transient"] * 5 + ["hinted", "below"] * 2 + list(ENDS))
inner_calls = calls(st.one_of(pauses, looks), failures)
short_calls = calls(st.one_of(pauses, commands, looks, inner_calls, inner_calls, st.just(Listen())), failures)

retries = st.builds(
    Retry,
    attempts=st.integers(1, 4),
    base=st.sampled_from([0.0, 0.5, 2.0]),
    cap=st.just(4.0),
    backoff=st.sampled_from(["exponential", "linear", "fixed"]),
    jitter=st.sampled_from(["none", "full", "equal"]),
    budget=st.none() | st.builds(Budget, st.sampled_from([0.0, 0.5]), st.integers(0, 2)),
    safety=st.sampled_from(["idempotent"] * 4 + ["if_not_sent"]),
)
rules = st.one_of(
    st.builds(consecutive, st.integers(1, 3)),
    st.builds(count, st.integers(1, 3), st.sampled_from([4.0, 60.0])),
    st.builds(ratio, st.sampled_from([0.5, 1.0]), st.integers(1, 4), st.sampled_from([10.0])),
    st.builds(k_of_n, st.just(2), st.integers(2, 4)),
    st.builds(slow_ratio, st.just(0.5), st.sampled_from([1.0, 3.0]), st.integers(1, 3)),
)
breakers = st.builds(
    lambda rules, open_for, successes, spare, half: Breaker(
        *rules, open_for=open_for, successes=successes, out_of=successes + spare, half_open_for=half
    ),
    st.lists(rules, min_size=1, max_size=2),
    st.sampled_from([1.0, 5.0, 30.0]),
    st.integers(1, 2),
    st.integers(0, 1),
    st.none() | st.just(3.0),
)
timeouts = st.builds(
    lambda total, attempt: Timeout(total=total, attempt=attempt) if total or attempt else Timeout(total=5 + TOTAL_OFF),
    st.none() | st.sampled_from([2 + TOTAL_OFF, 5 + TOTAL_OFF]),
    st.none() | st.sampled_from([1 + ATTEMPT_OFF, 2 + ATTEMPT_OFF]),
)
bulkheads = st.builds(Bulkhead, st.integers(1, 2))  # who waits in a queue of nested calls waits for itself
rate_limits = st.one_of(
    st.builds(RateLimit, st.sampled_from([0.25, 1.0, 8.0]), burst=st.integers(1, 3)),
    st.builds(RateLimit, st.integers(1, 3), per=st.sampled_from([4.0, 16.0])),
    st.builds(RateLimit, st.sampled_from([0.25, 1.0]), max_wait=st.sampled_from([0.0, 2.0])),
)
fallbacks = st.builds(Fallback, st.just(lambda outcome: ("spare", outcome.kind)), rejected=st.booleans())
policy_sets = st.tuples(
    *(st.one_of(st.none(), kind, kind) for kind in (retries, breakers, timeouts)),
    *(seldom(kind) for kind in (bulkheads, rate_limits, fallbacks)),
)
actions = st.one_of(
    nested_calls,
    nested_calls,
    nested_calls,
    pauses,
    commands,
    st.builds(Replace, st.one_of(retries, timeouts, breakers)),
)
traces = st.lists(actions, min_size=1, max_size=12)

prompt_retries = st.builds(
    Retry,
    attempts=st.sampled_from([1, 2, 3, 3, 4]),
    base=st.sampled_from([0.0] * 5 + [0.5]),
    jitter=st.just("none"),
    safety=st.sampled_from(["idempotent"] * 4 + ["always", "if_not_sent"]),
    longest_hint=st.sampled_from([300.0, 0.5]),
)
short_policy_sets = st.tuples(
    st.one_of(st.none(), prompt_retries, prompt_retries, prompt_retries), st.one_of(st.none(), st.none(), breakers)
)
short_traces = st.lists(
    st.one_of(
        short_calls,
        short_calls,
        short_calls,
        short_calls,
        pauses,
        commands,
        st.builds(Replace, st.one_of(prompt_retries, breakers)),
    ),
    min_size=1,
    max_size=8,
)
OTHERS = (Retry(attempts=2, base=0.5), Timeout(total=7 + TOTAL_OFF))
others = st.one_of(
    st.just((Retry(attempts=2, base=0.5),)),
    st.just((Retry(attempts=2, base=0.0),)),
    st.just((Retry(attempts=3, base=0.0, domain="else"),)),
    st.just((Retry(attempts=2, base=0.0, domain="else", budget=Budget(0.0, 0)),)),
)


class World:
    """A guard with everything it depends on, and a log of what could be seen."""

    def __init__(
        self,
        policies: tuple[Any, ...],
        others: tuple[Any, ...],
        context: Any,
        metrics: bool,
        colour: Any,
        form: str,
        *,
        fused: bool,
    ) -> None:
        self.colour = colour
        self.form = form
        self.clock = ManualClock()
        self.metrics = InMemoryMetrics()
        hub = Hub(clock=self.clock)
        hub.register(self.metrics)
        options: dict[str, Any] = {
            "clock": self.clock,
            "telemetry": hub,
            # Told by the clock: how often the dice are thrown is nobody's business.
            "rng": lambda: int(self.clock.monotonic() * 32) * 7 % 4 / 4,
            "passthrough": (Passed,),
            "fused": fused,
            "context": context,
            "metrics": metrics,
        }
        self.context = context
        self.timed = metrics or form != "call"
        self.guard = Guard("x", *(policy for policy in policies if policy is not None), **options)
        self.other = Guard("other", *others, **options)
        retry = self.other.plan.first(RetryStrategy)
        if retry is not None and retry.budget is not None:
            retry.budget.acquire()  # somebody's retry that never ends: nothing is left for ours
        self.log: list[Any] = []
        self.recorder = Recorder()
        self.down = OSError("down")
        self.below: BaseException | None = None

    def play(self, actions: Any) -> Generator[Any, Any, None]:
        for action in actions:
            match action:
                case Pause(seconds):
                    yield self.colour.sleep(self.clock, seconds)
                case Command(verb):
                    if self.strategy("breaker") is not None:
                        self.guard.circuit.command(verb)
                case Replace(policy):
                    self.guard.replace(policy)
                case Listen():
                    self.guard.telemetry.register(self.recorder)
                case Look(once):
                    self.look(once)
                case Call():
                    for _ in range(action.times):
                        yield from self.call(action)
            self.log.append((type(action).__name__, self.state()))

    def look(self, once: bool) -> None:
        context = current_context()
        if context is not None and self.context == "always":  # else a guard may be transparent on the fused path
            self.log.append(("context", context.operation_key, context.parent_call_id is None, context.properties))
            if once:
                context.set(IDEMPOTENT, False)

    def call(self, call: Call) -> Generator[Any, Any, None]:
        made = iter((*call.attempts, *[call.attempts[-1]] * 20))
        guard = self.other if call.other else self.guard

        def body() -> Generator[Any, Any, Any]:
            attempt = next(made)
            self.log.append(("attempt", self.clock.monotonic()))
            yield from self.play(attempt.actions)
            if attempt.end == "ok":
                return "value"
            if attempt.end == "below" and self.below is not None:
                raise self.below
            raise self.down if attempt.end == "same" else ENDS[attempt.end]()

        fn = self.colour.fn(body)
        heeds = self.context is not False
        scopes = [] if call.ambient is None or not heeds else [deadline(call.ambient, clock=self.clock)]
        scopes += [] if call.override is None or not heeds else [guard.override(call.override)]
        for scope in scopes:
            scope.__enter__()
        try:
            result = yield self.invoke(guard, fn)
            self.log.append(seen(result))
            self.below = result.error if isinstance(result, Outcome) else None
        except (Interrupted, asyncio.CancelledError, Exception) as error:
            hint, notes = getattr(error, "retry_after", None), getattr(error, "__notes__", None)
            self.log.append(("raised", type(error), type(error.__cause__), hint, notes))
            self.below = error
        finally:
            for scope in reversed(scopes):
                scope.__exit__(None, None, None)

    def invoke(self, guard: Guard, fn: Any) -> Any:
        if self.form == "decorated":
            return guard.outcome(fn)()
        return (self.colour.inner if self.form == "run" else self.colour.inner_call)(guard, fn)

    def strategy(self, kind: str) -> Any:
        return next((each for each in self.guard.plan.strategies if each.kind == kind), None)

    def state(self) -> dict[str, Any]:
        seen: dict[str, Any] = {"now": self.clock.monotonic()}
        if self.strategy("breaker") is not None:
            circuit = self.guard.circuit
            seen["circuit"] = (circuit.state, circuit.control, circuit.generation, circuit.next_test, circuit.rounds)
            seen["failures"] = circuit.look("figures")
        if (bulkhead := self.strategy("bulkhead")) is not None:
            seen["slots"] = (bulkhead.slots.in_use, len(bulkhead.slots.waiting))
        if (limiter := self.strategy("rate_limit")) is not None:
            seen["tokens"] = limiter.bucket.bucket.tokens(self.clock.monotonic())
        if (retry := self.strategy("retry")) is not None and retry.budget is not None:
            seen["budget"] = retry.budget.figures()
        return seen


def seen(result: Any) -> Any:
    """What a caller can tell from a result."""
    if not isinstance(result, Outcome):
        return result
    cause = None if result.error is None else result.error.__cause__
    return {
        "kind": result.kind,
        "value": result.value,
        "error": type(result.error),
        "cause": type(cause),
        "attempts": result.attempts,
        "reason": result.reason,
        "retry_after": result.retry_after,
        "stopped_by": result.stopped_by,
        "late": (result.late, result.metadata.get("result")),
        "fallback": result.detail if result.is_success else None,
        "trail": [
            (a.number, a.kind, a.wait, a.delay, a.service, type(a.error)) for a in result.metadata.get("trail", ())
        ],
    }


def history(guards: tuple[Any, ...], trace: Any, is_async: bool, form: str, *, fused: bool) -> World:
    if not is_async:
        world = World(*guards, SyncColour(), form, fused=fused)
        _finish(world.play(trace))
        return world
    with asyncio.Runner() as runner:
        world = World(*guards, AsyncColour(runner), form, fused=fused)
        runner.run(_afinish(world.play(trace)))
    return world


def heard(event: GuardEvent, timed: bool) -> Any:
    """What a listener can tell of an event; None where the paths may differ.

    Who begins to listen while the first attempt of a call is under way is not told if that one succeeds. And where
    nobody has asked for times, those of attempts before may be unknown to who comes late.
    """
    if isinstance(event, CallCompleted) and event.outcome is OutcomeKind.SUCCESS and event.attempts == 1:
        return None
    if isinstance(event, AttemptCompleted) and event.outcome is OutcomeKind.SUCCESS and event.number == 0:
        return None
    fields = {name: getattr(event, name) for name in event.field_names() if not name.endswith("call_id")}
    if not timed:
        fields = {name: value for name, value in fields.items() if name not in ("service_s", "duration_s")}
    return type(event).__name__, fields


def show(world: World) -> Any:
    counted = world.metrics.snapshot()
    told = [said for event in world.recorder.events if (said := heard(event, world.timed)) is not None]
    return world.log, world.clock.slept, told, {key: value for key, value in counted.items() if key != "duration_s"}


def slow_calls(*policies: Any, times: int = 1) -> dict[str, Any]:
    """A trace in which the total limit is over before the first attempt is."""
    return {
        "policies": (*policies, Timeout(total=5 + TOTAL_OFF)),
        "trace": [Call((Attempt((Pause(6.25),), "ok"),), times=times)],
        "form": "run",
    }


@pytest.mark.torture
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@settings(max_examples=200 * SIZE, suppress_health_check=[HealthCheck.too_slow])
@example(**slow_calls(Retry(attempts=2, base=0.0)))  # the cause of a timeout was a timeout of ours
@example(**slow_calls(Retry(attempts=2, base=0.0, safety="if_not_sent")))  # stopped by something else than the limit
@example(**slow_calls(Breaker(consecutive(1)), times=2))  # the refusal had no cause
@given(policies=policy_sets, trace=traces, form=st.sampled_from(["run", "call", "decorated"]))
def test_random_traces_come_to_the_same_on_both_paths(is_async: bool, policies: Any, trace: Any, form: str) -> None:
    compare((policies, OTHERS, True, True), trace, is_async, form)


@pytest.mark.torture
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@settings(max_examples=300 * SIZE, suppress_health_check=[HealthCheck.too_slow])
@given(
    policies=short_policy_sets,
    others=others,
    context=st.sampled_from([True, "always", False]),
    metrics=st.sampled_from([True, True, False]),
    trace=short_traces,
    form=st.sampled_from(["run", "call", "decorated"]),
)
def test_random_traces_of_prompt_retries_come_to_the_same_on_both_paths(
    is_async: bool, policies: Any, others: Any, context: Any, metrics: bool, trace: Any, form: str
) -> None:
    compare((policies, others, context, metrics), trace, is_async, form)


def compare(guards: tuple[Any, ...], trace: Any, is_async: bool, form: str) -> None:
    fused = history(guards, trace, is_async, form, fused=True)
    general = history(guards, trace, is_async, form, fused=False)
    for left, right in zip(fused.log, general.log, strict=False):
        assert left == right
    assert show(fused) == show(general)
    assert fused.metrics.snapshot()["duration_s"] == pytest.approx(general.metrics.snapshot()["duration_s"])
    if fused.strategy("bulkhead") is not None:
        assert fused.strategy("bulkhead").slots.in_use == 0


@pytest.mark.torture
@settings(max_examples=100 * SIZE, suppress_health_check=[HealthCheck.too_slow])
@given(policies=policy_sets, trace=traces)
def test_random_traces_come_to_the_same_in_both_colours_where_nothing_is_cut(policies: Any, trace: Any) -> None:
    # Async calls are cut at their limit and sync ones are late, so this one compares guards without limits.
    policies = tuple(None if isinstance(policy, Timeout) else policy for policy in policies)
    trace = [
        uncut(action) for action in trace if not (isinstance(action, Replace) and isinstance(action.policy, Timeout))
    ]
    sync, loop = (
        history((policies, OTHERS, True, True), trace, is_async, "run", fused=True) for is_async in (False, True)
    )
    for left, right in zip(sync.log, loop.log, strict=False):
        assert left == right
    assert show(sync) == show(loop)


def uncut(action: Any) -> Any:
    if not isinstance(action, Call):
        return action
    attempts = tuple(
        Attempt(tuple(uncut(inner) for inner in attempt.actions if not isinstance(inner, Call)), attempt.end)
        for attempt in action.attempts
    )
    return Call(attempts, None, action.override, other=False, times=action.times)
