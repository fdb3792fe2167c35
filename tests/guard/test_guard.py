"""The guard itself: the seam every call goes through, and the forms in which it is used."""

from __future__ import annotations

import asyncio
import functools
import inspect
import subprocess
import sys
import threading
from contextvars import copy_context

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    CallCompleted,
    CallInterrupted,
    CircuitOpen,
    Fallback,
    Guard,
    GuardTimeout,
    Hub,
    InMemoryMetrics,
    OutcomeError,
    OutcomeKind,
    RateLimit,
    ResilienceContext,
    Retry,
    Timeout,
    TypedKey,
    Verdict,
    consecutive,
    current_context,
    remaining_time,
    use_context,
)
from tests.guard.colours import Interrupted, Slow

K = OutcomeKind
DOWN = OSError("down")
TENANT = TypedKey[str]("tenant")

POLICY_SETS = {
    "bare": (),
    "retry": (Retry(attempts=2, base=0),),
    "breaker": (Breaker(consecutive(99)),),
    "timeout": (Timeout(total=9),),
    "bulkhead": (Bulkhead(9),),
    "rate limit": (RateLimit(1e6, burst=10_000),),
    "fallback": (Fallback(value="spare"),),
    "all": (
        Retry(attempts=2, base=0), Breaker(consecutive(99)), Timeout(total=9, attempt=5), Bulkhead(9),
        RateLimit(1e6, burst=10_000),
    ),
}  # fmt: skip
every_policy = pytest.mark.parametrize("policies", POLICY_SETS.values(), ids=POLICY_SETS)
UNANSWERED = {name: policies for name, policies in POLICY_SETS.items() if name != "fallback"}
every_policy_but_fallback = pytest.mark.parametrize("policies", UNANSWERED.values(), ids=UNANSWERED)


# The seam.


@every_policy
def test_a_guard_gives_the_functions_value(colour, guard_of, policies):
    guard = guard_of(*policies)
    fn = colour.fn(lambda a, b=2: (a, b))
    assert colour.call(guard, fn, 1, b=3) == (1, 3)
    outcome = colour.run(guard, fn, 1)
    assert (outcome.kind, outcome.value, outcome.attempts, outcome.error) == (K.SUCCESS, (1, 2), 1, None)


@every_policy
def test_none_is_a_value(colour, guard_of, policies):
    assert colour.run(guard_of(*policies), colour.fn([None])).kind is K.SUCCESS


@every_policy_but_fallback
def test_a_failure_is_captured_with_type_and_message(colour, guard_of, policies):
    outcome = colour.run(guard_of(*policies), colour.fn([DOWN]))
    assert outcome.error is DOWN
    assert outcome.detail == "OSError: down"


@every_policy_but_fallback
def test_raising_mode_raises_the_very_exception(colour, guard_of, policies):
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        colour.call(guard_of(*policies), colour.fn([error]))
    assert caught.value is error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("x"), K.TIMEOUT),
        (ConnectionError("x"), K.TRANSIENT_FAILURE),
        (OSError("x"), K.TRANSIENT_FAILURE),
        (ValueError("x"), K.TRANSIENT_FAILURE),
        (Exception("x"), K.TRANSIENT_FAILURE),
        (TypeError("x"), K.TERMINAL_FAILURE),
        (AttributeError("x"), K.TERMINAL_FAILURE),
        (NameError("x"), K.TERMINAL_FAILURE),
        (AssertionError("x"), K.TERMINAL_FAILURE),
        (NotImplementedError("x"), K.TERMINAL_FAILURE),
        (ImportError("x"), K.TERMINAL_FAILURE),
        (CircuitOpen("inner", 3.0), K.REJECTED),
        (GuardTimeout("inner"), K.TIMEOUT),
        (OutcomeError(K.PARTIAL, "x"), K.PARTIAL),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_exception_has_its_default_kind(colour, guard_of, error, kind):
    assert colour.run(guard_of(), colour.fn([error])).kind is kind


def test_a_refusal_of_a_nested_guard_keeps_reason_and_retry_after(colour, guard_of):
    outcome = colour.run(guard_of(Retry(attempts=3, base=0)), colour.fn([CircuitOpen("inner", 3.0)]))
    assert (outcome.kind, outcome.reason, outcome.retry_after) == (K.REJECTED, "circuit_open", 3.0)
    assert outcome.attempts == 1


def test_a_classifier_decides_the_kind(colour, guard_of):
    guard = guard_of(Retry(attempts=3, base=0), classify=lambda error: K.TERMINAL_FAILURE)
    assert colour.run(guard, colour.fn([DOWN])).attempts == 1


def test_a_classifier_that_raises_is_a_terminal_failure_with_its_error(colour, guard_of):
    def broken(error):
        raise RuntimeError("classifier bug")

    fn = colour.fn([DOWN])
    outcome = colour.run(guard_of(Retry(attempts=3, base=0), classify=broken), fn)
    assert (outcome.kind, fn.calls) == (K.TERMINAL_FAILURE, 1)
    assert isinstance(outcome.error, RuntimeError)
    assert outcome.error.__context__ is DOWN


@pytest.mark.parametrize("answer", [None, "transient_failure", 42], ids=repr)
def test_a_classifier_that_answers_nonsense_is_a_terminal_failure_that_says_so(colour, guard_of, answer):
    outcome = colour.run(guard_of(classify=lambda error: answer), colour.fn([DOWN]))
    assert outcome.kind is K.TERMINAL_FAILURE
    assert repr(answer) in str(outcome.error)


@pytest.mark.parametrize("kind", [K.SUCCESS, K.PARTIAL])
def test_a_classifier_may_call_an_exception_a_success_of_none(colour, guard_of, kind):
    outcome = colour.run(guard_of(classify=lambda error: kind), colour.fn([DOWN]))
    assert (outcome.kind, outcome.value) == (kind, None)
    assert colour.call(guard_of(classify=lambda error: kind), colour.fn([DOWN])) is None


@pytest.mark.parametrize("verdict", [None, K.SUCCESS, Verdict(K.SUCCESS)], ids=repr)
def test_a_result_that_is_judged_none_or_success_is_a_success(colour, guard_of, verdict):
    outcome = colour.run(guard_of(result_classifier=lambda value: verdict), colour.fn(["up"]))
    assert (outcome.kind, outcome.value) == (K.SUCCESS, "up")


def test_a_partial_result_keeps_its_value(colour, guard_of):
    guard = guard_of(result_classifier=lambda value: K.PARTIAL)
    outcome = colour.run(guard, colour.fn([[1]]))
    assert (outcome.kind, outcome.value) == (K.PARTIAL, [1])
    assert colour.call(guard, colour.fn([[1]])) == [1]


@pytest.mark.parametrize("kind", [K.TIMEOUT, K.TRANSIENT_FAILURE, K.TERMINAL_FAILURE, K.REJECTED])
def test_a_failed_result_is_a_failure_that_keeps_it_in_metadata(colour, guard_of, kind):
    outcome = colour.run(guard_of(result_classifier=lambda value: kind), colour.fn(["503"]))
    assert (outcome.kind, outcome.value, outcome.metadata["result"]) == (kind, None, "503")


def test_a_failed_result_without_an_error_raises_an_outcome_error(colour, guard_of):
    with pytest.raises(OutcomeError) as caught:
        colour.call(guard_of(result_classifier=lambda value: K.TERMINAL_FAILURE), colour.fn(["404"]))
    assert caught.value.kind is K.TERMINAL_FAILURE


def test_a_result_that_says_it_timed_out_carries_a_timeout_error(colour, guard_of):
    outcome = colour.run(guard_of(result_classifier=lambda value: K.TIMEOUT), colour.fn(["504"]))
    assert isinstance(outcome.error, TimeoutError)


def test_a_result_classifier_that_raises_is_a_terminal_failure(colour, guard_of):
    def broken(value):
        raise RuntimeError("classifier bug")

    outcome = colour.run(guard_of(Retry(attempts=3, base=0), result_classifier=broken), colour.fn(["up"]))
    assert (outcome.kind, outcome.attempts) == (K.TERMINAL_FAILURE, 1)
    assert isinstance(outcome.error, RuntimeError)


class Mine(Exception):
    """A caller's own signal."""


class MyTimeout(TimeoutError):
    """The same, from a hierarchy that guards know."""


@every_policy
@pytest.mark.parametrize("error", [Mine("through"), MyTimeout("through")], ids=repr)
def test_a_passthrough_exception_comes_out_untouched(colour, guard_of, policies, error):
    guard = guard_of(*policies, passthrough=(Mine, MyTimeout))
    fn = colour.fn([error])
    for run in (colour.run, colour.call):
        with pytest.raises(type(error)) as caught:
            run(guard, fn)
        assert caught.value is error
    assert fn.calls == 2
    assert not hasattr(error, "__notes__")


def test_a_passthrough_exception_counts_nothing(colour, guard_of):
    metrics = InMemoryMetrics()
    guard = guard_of(Retry(attempts=3, base=0), Breaker(consecutive(1)), Bulkhead(1), passthrough=(Mine,))
    guard.telemetry.register(metrics)
    with pytest.raises(Mine):
        colour.run(guard, colour.fn([Mine("through")]))
    assert guard.circuit.state == "closed"
    assert metrics.snapshot()["call_count"] == 0
    assert colour.run(guard, colour.fn(["up"])).value == "up"


def test_a_passthrough_exception_of_a_later_attempt_comes_out_too(colour, guard_of):
    with pytest.raises(Mine):
        colour.run(guard_of(Retry(attempts=3, base=0), passthrough=(Mine,)), colour.fn([DOWN, Mine("through")]))


@every_policy
def test_an_interruption_propagates_and_counts_nothing(colour, guard_of, policies):
    metrics, guard = InMemoryMetrics(), guard_of(*policies)
    guard.telemetry.register(metrics)
    for run in (colour.run, colour.call):
        with pytest.raises(Interrupted):
            run(guard, colour.fn([Interrupted()]))
    assert metrics.snapshot()["call_count"] == 0
    assert colour.run(guard, colour.fn(["up"])).value == "up"


@every_policy
def test_a_cancellation_propagates_and_counts_nothing(guard_of, policies):
    metrics, guard = InMemoryMetrics(), guard_of(*policies)
    guard.telemetry.register(metrics)

    async def main() -> int:
        task = asyncio.ensure_future(guard.arun(asyncio.sleep, 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelling()

    assert asyncio.run(main()) == 1
    assert metrics.snapshot()["call_count"] == 0


@every_policy
@pytest.mark.parametrize(
    ("step", "records"),
    [
        ("up", ["CallCompleted"]),
        (TypeError("bug"), ["CallCompleted"]),
        (Interrupted(), ["CallInterrupted"]),
        (Mine("through"), ["CallInterrupted"]),
    ],
    ids=repr,
)
def test_every_call_leaves_exactly_one_completion_record(colour, guard_of, recorder, policies, step, records):
    guard = guard_of(*policies, passthrough=(Mine,))
    guard.telemetry.register(recorder)
    try:
        colour.run(guard, colour.fn([step]))
    except (Interrupted, Mine):
        pass
    assert [name for name in recorder.names() if name in ("CallCompleted", "CallInterrupted")] == records


@pytest.mark.parametrize(
    ("step", "reason"),
    [(Interrupted(), "interrupted"), (Mine("x"), "passthrough"), (asyncio.CancelledError(), "cancelled")],
)
def test_an_interrupted_call_says_why(colour, guard_of, recorder, clock, step, reason):
    guard = guard_of(passthrough=(Mine,))
    guard.telemetry.register(recorder)
    with pytest.raises(type(step)):
        colour.run(guard, colour.fn([Slow(clock, 3, step)]))
    [event] = recorder.of(CallInterrupted)
    assert (event.reason, event.duration_s, event.operation_key) == (reason, 3, "x")


def test_a_completed_call_tells_duration_outcome_error_and_attempts(colour, guard_of, recorder, clock):
    guard = guard_of(Retry(attempts=2, base=1, jitter="none"))
    guard.telemetry.register(recorder)
    colour.run(guard, colour.fn([Slow(clock, 2, DOWN)]))
    [event] = recorder.of(CallCompleted)
    assert (event.duration_s, event.outcome, event.error_type, event.attempts) == (5, K.TRANSIENT_FAILURE, "OSError", 2)


@every_policy_but_fallback
def test_metrics_count_every_outcome_once(colour, guard_of, policies):
    metrics, guard = InMemoryMetrics(), guard_of(*policies)
    guard.telemetry.register(metrics)
    for step in ("up", "up", TypeError("bug")):
        colour.run(guard, colour.fn([step]))
    seen = metrics.snapshot()
    assert seen["call_count"] == 3
    assert seen["counts_by_operation_outcome"] == {"x/success": 2, "x/terminal_failure": 1}


def test_metrics_can_be_switched_off(colour, guard_of):
    metrics, guard = InMemoryMetrics(), guard_of(Retry(attempts=2, base=0), metrics=False)
    guard.telemetry.register(metrics)
    colour.run(guard, colour.fn(["up"]))
    colour.run(guard, colour.fn([DOWN]))
    assert metrics.snapshot()["call_count"] == 0


def test_a_listener_that_raises_never_reaches_the_call(colour, guard_of):
    def broken(event):
        raise RuntimeError("listener bug")

    guard = guard_of(Retry(attempts=2, base=0), Breaker(consecutive(1)))
    guard.telemetry.register(broken)
    assert colour.run(guard, colour.fn(["up"])).value == "up"
    assert colour.run(guard, colour.fn([DOWN])).reason == "circuit_open"


def test_a_hub_that_is_switched_off_makes_guards_plain_calls(colour, guard_of):
    guard = guard_of(Retry(attempts=5, base=0), Breaker(consecutive(1)), RateLimit(1))
    guard.telemetry.switch(off=True)
    fn = colour.fn([DOWN])
    assert [colour.run(guard, fn).attempts for _ in range(3)] == [1, 1, 1]
    assert guard.circuit.state == "closed"
    guard.telemetry.switch(off=False)
    assert colour.run(guard, fn).reason == "circuit_open"


# The context.


def test_the_function_sees_the_context_of_its_call(colour, guard_of):
    ctx = colour.call(guard_of(Timeout(total=5), name="op"), colour.fn(lambda: current_context()))
    assert ctx.operation_key == "op"
    assert len(ctx.call_id) == 12
    assert ctx.parent_call_id is None


def test_after_the_call_the_context_is_gone(colour, guard_of):
    for step in ("up", DOWN, Interrupted()):
        try:
            colour.run(guard_of(Retry(attempts=2, base=0), Timeout(total=5)), colour.fn([step]))
        except Interrupted:
            pass
        assert current_context() is None


def test_all_attempts_of_a_call_share_one_call_id(colour, guard_of):
    seen = []

    def body():
        seen.append(current_context().call_id)
        raise DOWN

    colour.run(guard_of(Retry(attempts=3, base=0)), colour.fn([body]))
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_a_property_set_by_one_attempt_is_seen_by_the_next(colour, guard_of):
    seen = []

    def body():
        ctx = current_context()
        seen.append(ctx.get(TENANT))
        ctx.set(TENANT, "acme")
        raise DOWN

    colour.run(guard_of(Retry(attempts=3, base=0)), colour.fn([body]))
    assert seen == [None, "acme", "acme"]


def test_a_nested_call_knows_its_parent_and_its_writes_do_not_leak_up(colour, guard_of):
    outer, inner = guard_of(Timeout(total=5), name="outer"), guard_of(Timeout(total=5), name="inner")

    def innermost():
        ctx = current_context()
        ctx.set(TENANT, "inner")
        return ctx

    def body():
        mine = current_context()
        mine.set(TENANT, "outer")
        nested = yield colour.inner_call(inner, colour.fn(innermost))
        return mine, nested

    mine, nested = colour.call(outer, colour.fn(body))
    assert nested.parent_call_id == mine.call_id
    assert nested.operation_key == "inner"
    assert mine.get(TENANT) == "outer"


def test_a_call_inherits_the_properties_of_the_surrounding_context(colour, guard_of):
    ctx = ResilienceContext("request")
    ctx.set(TENANT, "acme")
    with use_context(ctx):
        seen = colour.call(guard_of(Timeout(total=5)), colour.fn(lambda: current_context()))
    assert seen.get(TENANT) == "acme"
    assert seen.parent_call_id == ctx.call_id


def test_without_context_a_guard_neither_heeds_nor_shows_one(colour, guard_of, clock):
    from holdfast.core.context import deadline

    with deadline(-1, clock=clock):
        assert colour.run(guard_of(context=False), colour.fn(["up"])).value == "up"


def test_the_context_is_visible_in_a_thread_that_copied_it(guard_of):
    def body():
        seen = []
        thread = threading.Thread(target=copy_context().run, args=(lambda: seen.append(remaining_time()),))
        thread.start()
        thread.join()
        return seen

    assert guard_of(Timeout(total=5)).call(body) == [5]


async def test_the_context_is_visible_through_to_thread(guard_of):
    async def body():
        return await asyncio.to_thread(remaining_time)

    assert await guard_of(Timeout(total=5)).acall(body) == 5


# The forms.


def test_a_decorated_function_is_guarded(colour, guard_of):
    fn = colour.fn([DOWN, "up"])
    assert colour.plain(guard_of(Retry(attempts=2, base=0))(fn)) == "up"


def test_a_function_decorated_for_outcomes_returns_them(colour, guard_of):
    guard = guard_of(Retry(attempts=2, base=0))
    assert colour.plain(guard.outcome(colour.fn([DOWN, "up"]))).attempts == 2
    assert colour.plain(guard.outcome(colour.fn([DOWN]))).error is DOWN


def test_a_decorated_function_raises_the_original_exception(colour, guard_of):
    with pytest.raises(OSError, match="down") as caught:
        colour.plain(guard_of(Retry(attempts=2, base=0))(colour.fn([DOWN])))
    assert caught.value is DOWN


def test_a_decorated_function_keeps_its_colour(guard_of):
    guard = guard_of(Retry())

    @guard
    async def coroutine() -> None: ...

    @guard
    def plain() -> None: ...

    assert inspect.iscoroutinefunction(coroutine)
    assert not inspect.iscoroutinefunction(plain)
    assert asyncio.iscoroutinefunction(coroutine)


def test_a_decorated_function_keeps_name_docs_and_signature(guard_of):
    @guard_of(Retry())
    def charge(order: int, /, amount: float = 1.5, *rest: str, currency: str = "EUR", **more: object) -> str:
        """Charge it."""
        return f"{order} {amount} {rest} {currency} {more}"

    assert (charge.__name__, charge.__doc__) == ("charge", "Charge it.")
    assert charge.__module__ == __name__
    signature = inspect.signature(charge)
    assert list(signature.parameters) == ["order", "amount", "rest", "currency", "more"]
    assert signature.parameters["amount"].default == 1.5
    assert charge(1) == "1 1.5 () EUR {}"
    assert charge(1, 2.0, "a", "b", currency="USD", x=1) == "1 2.0 ('a', 'b') USD {'x': 1}"


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (lambda: "none", (), {}),
        (lambda a, b: (a, b), (1,), {"b": 2}),
        (lambda a=1, *, b=2: (a, b), (), {"b": 3}),
        (lambda *a, **k: (a, k), (1, 2), {"x": 3}),
        (lambda a, /, b: (a, b), (1, 2), {}),
        (lambda a, /, *, b: (a, b), (1,), {"b": 2}),
        (lambda args, kwargs: (args, kwargs), (1, 2), {}),
        (lambda fn_, failure_=1: (fn_, failure_), (1,), {}),
        (lambda plan, hub, started, result: (plan, hub, started, result), (1, 2, 3, 4), {}),
        (lambda self, cls: (self, cls), (1, 2), {}),
        (lambda wait=[]: wait, (), {}),
        (lambda _: _, (1,), {}),
        (lambda __a: __a, (1,), {}),
        (max, (3, 7), {}),
        (dict, (), {"a": 1}),
        (functools.partial(pow, 2), (5,), {}),
        (str.upper, ("a",), {}),
    ],
)
def test_any_signature_is_passed_on_as_it_is(guard_of, fn, args, kwargs):
    expected = fn(*args, **kwargs)
    guard = guard_of(Retry(attempts=2, base=0), Timeout(total=5))
    assert guard(fn)(*args, **kwargs) == expected
    assert guard.call(fn, *args, **kwargs) == expected
    assert guard.outcome(fn)(*args, **kwargs).value == expected


@pytest.mark.parametrize("fn", [lambda a: a, lambda a, /: a, lambda *, a: a])
def test_a_wrong_argument_is_a_type_error_of_the_function(guard_of, fn):
    with pytest.raises(TypeError):
        guard_of(Retry(attempts=3, base=0))(fn)(1, 2, 3)


def test_arguments_after_fn_belong_to_fn_whatever_their_names(colour, guard_of):
    fn = colour.fn(lambda **given: given)
    given = {"fn": 1, "self": 2, "args": 3, "kwargs": 4, "timeout": 5, "deadline": 6}
    assert colour.call(guard_of(Retry()), fn, **given) == given


def test_a_retried_function_gets_the_same_arguments_again(colour, guard_of):
    seen = []

    def body(*args, **kwargs):
        seen.append((args, kwargs))
        raise DOWN

    colour.run(guard_of(Retry(attempts=3, base=0)), colour.fn(body), 1, [2], key="v")
    assert seen == [((1, [2]), {"key": "v"})] * 3


def test_methods_bind(guard_of):
    guard = guard_of(Retry(attempts=2, base=0))

    class Client:
        made = 0

        @guard
        def get(self, path: str) -> tuple[object, str]:
            self.made += 1
            if self.made == 1:
                raise DOWN
            return self, path

        @guard
        async def aget(self, path: str) -> tuple[object, str]:
            return self, path

        @classmethod
        @guard
        def make(cls) -> object:
            return cls

        @staticmethod
        @guard
        def helper(x: int) -> int:
            return x

    client = Client()
    assert client.get("/") == (client, "/")
    assert asyncio.run(client.aget("/a")) == (client, "/a")
    assert Client.make() is Client
    assert (Client.helper(3), client.helper(4)) == (3, 4)


def test_a_partial_and_a_callable_object_are_recognised_as_async(guard_of):
    async def fetch(a: int, b: int) -> int:
        return a + b

    class Fetcher:
        async def __call__(self, a: int) -> int:
            return a

    guard = guard_of(Retry())
    assert asyncio.run(guard(functools.partial(fetch, 1))(2)) == 3
    assert asyncio.run(guard(Fetcher())(7)) == 7


def test_a_sync_function_may_be_run_by_the_async_form(guard_of):
    guard, steps = guard_of(Retry(attempts=2, base=0)), iter([DOWN, None])

    def fn() -> str:
        if error := next(steps):
            raise error
        return "up"

    assert asyncio.run(guard.acall(fn)) == "up"


def test_an_async_function_in_the_sync_form_is_a_type_error_that_says_what_to_do(guard_of):
    async def fn() -> None: ...

    guard = guard_of(Retry(attempts=3, base=0))
    for form in (guard.call, guard.run):
        with pytest.raises(TypeError, match=r"async.*acall|acall.*async"):
            form(fn)


def test_a_decorated_function_that_returns_a_coroutine_is_not_left_unguarded(guard_of):
    async def fetch() -> None: ...

    with pytest.raises(TypeError, match="async"):
        guard_of(Retry(attempts=3, base=0))(lambda: fetch())()


def test_a_generator_function_is_refused_because_nothing_would_be_guarded(guard_of):
    def rows():
        yield 1

    async def arows():
        yield 1

    for fn in (rows, arows):
        with pytest.raises(TypeError, match="generator"):
            guard_of(Retry())(fn)


class Rows:
    def __call__(self):
        yield 1


def rows():
    yield 1


async def arows():
    yield 1


@pytest.mark.parametrize("policies", [(), (Retry(attempts=3, base=0), Breaker()), (Timeout(total=5), Bulkhead(1))])
@pytest.mark.parametrize(
    "fn", [rows, arows, Rows(), functools.partial(rows)], ids=["def", "async", "object", "partial"]
)
def test_a_generator_function_is_refused_when_it_is_called_too(colour, guard_of, policies, fn):
    guard = guard_of(*policies)
    for verb in (colour.call, colour.run):
        for _ in range(2):  # what the refused call held is free again
            with pytest.raises(TypeError, match="is a generator, whose body runs after the call"):
                verb(guard, fn)


def test_a_generator_that_a_plain_function_returns_is_a_result_like_any_other(colour, guard_of):
    guard = guard_of(Retry(), Breaker())
    assert list(colour.call(guard, colour.fn(lambda: iter([1, 2])))) == [1, 2]
    assert list(colour.run(guard, lambda: (n for n in range(3))).value) == [0, 1, 2]


def test_a_stop_iteration_is_an_exception_like_any_other(guard_of):
    guard = guard_of(Retry(attempts=2, base=0))
    assert isinstance(guard.run(next, iter([])).error, StopIteration)
    with pytest.raises(StopIteration):
        guard.call(next, iter([]))


async def test_the_sync_form_works_inside_a_running_loop(guard_of):
    assert guard_of(Retry(), Timeout(total=5)).call(lambda: "up") == "up"


def test_a_value_that_is_an_exception_is_a_value(colour, guard_of):
    error = OSError("returned, not raised")
    assert colour.run(guard_of(Retry()), colour.fn(lambda: error)).value is error


def test_only_functions_can_be_decorated(guard_of):
    with pytest.raises(TypeError, match=r"guard\.call"):
        guard_of()(42)


def test_what_was_generated_for_a_function_can_be_read(path, guard_of):
    guard = guard_of(Retry(), Breaker())

    @guard
    def fetch(url: str) -> str:
        return url

    source = guard.source(fetch)
    assert source.startswith("def guarded(url):")
    assert ("circuit_" in source) == (path == "fused")


def test_a_traceback_goes_through_the_callers_own_frames(colour, guard_of):
    import traceback

    def the_culprit():
        raise ValueError("here")

    try:
        colour.call(guard_of(Retry(attempts=2, base=0)), colour.fn([the_culprit]))
    except ValueError as error:
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert "the_culprit" in frames


def test_a_failed_call_leaves_no_reference_cycle(guard_of):
    import gc
    import weakref

    class Big:
        pass

    guard = guard_of(Retry(attempts=2, base=0), Breaker(consecutive(99)), Timeout(total=5))

    def call() -> weakref.ref[Big]:
        big = Big()

        def fn() -> None:
            _ = big
            raise OSError("down")

        try:
            guard.call(fn)
        except OSError:
            pass
        return weakref.ref(big)

    gc.collect()
    gc.disable()
    try:
        # The breaker keeps the last error that opened it, but this one is closed.
        assert call()() is None
    finally:
        gc.enable()


def test_the_policies_and_the_hub_can_be_asked_for(guard_of):
    hub = Hub()
    guard = guard_of(Retry(attempts=2), Breaker(), telemetry=hub)
    assert guard.policies == (Retry(attempts=2), Breaker())
    assert guard.telemetry is hub
    assert repr(guard) == "<Guard x: Retry, Breaker>"
    assert repr(guard_of()) == "<Guard x: bare>"


def test_policies_apply_in_the_canonical_order_whatever_their_order(guard_of):
    policies = [Breaker(), Timeout(total=9, attempt=3), Retry(), Bulkhead(3), RateLimit(9), Fallback(value=1)]
    kinds = [strategy.kind for strategy in guard_of(*policies).plan.strategies]
    assert kinds == ["fallback", "timeout", "rate_limit", "bulkhead", "retry", "breaker", "attempt_timeout"]


def test_another_order_can_be_asked_for_by_name(guard_of):
    guard = guard_of(Retry(), Breaker(), order=("breaker", "retry"))
    assert [strategy.kind for strategy in guard.plan.strategies] == ["breaker", "retry"]


def test_a_custom_strategy_sits_between_bulkhead_and_retry(colour, guard_of):
    seen = []

    class Custom:
        async def execute(self, nxt, ctx):
            seen.append(ctx.operation_key)
            return await nxt(ctx)

    guard = guard_of(Retry(attempts=3, base=0), Custom(), Bulkhead(3))
    colour.run(guard, colour.fn([DOWN]))
    assert seen == ["x"]
    assert [getattr(strategy, "kind", "custom") for strategy in guard.plan.strategies] == [
        "bulkhead",
        "custom",
        "retry",
    ]


def test_a_custom_strategy_may_answer_without_going_on(colour, guard_of):
    from holdfast.core.outcome import Outcome

    class Canned:
        async def execute(self, nxt, ctx):
            return Outcome.success("canned")

    fn = colour.fn(["up"])
    assert colour.call(guard_of(Canned()), fn) == "canned"
    assert fn.calls == 0


def test_a_custom_strategy_that_suspends_in_a_sync_call_is_told_so(guard_of):
    class Sleepy:
        async def execute(self, nxt, ctx):
            await asyncio.sleep(0)
            return await nxt()

    guard = guard_of(Sleepy())
    with pytest.raises(RuntimeError, match="sync call"):
        guard.run(lambda: "up")

    async def up() -> str:
        return "up"

    assert asyncio.run(guard.acall(up)) == "up"


def test_a_sync_guard_starts_no_thread_and_loads_no_event_loop():
    program = """
import sys, threading
from holdfast.guard.guard import Guard
from holdfast.guard.retry import Retry
from holdfast.guard.bulkhead import Bulkhead
from holdfast.guard.timeout import Timeout
from holdfast.guard.rate_limit import RateLimit
from holdfast.machine.breaker import Breaker
guard = Guard("x", Retry(base=0), Breaker(), Timeout(total=5), Bulkhead(3), RateLimit(99, burst=99))
def bad(): raise OSError
print(guard.call(lambda: 1), guard.run(bad).attempts, guard(lambda: 2)())
print([m for m in ("asyncio", "pydantic") if m in sys.modules], threading.active_count())
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["1 3 2", "[] 1"]


def test_a_guard_without_a_hub_uses_the_process_wide_one():
    from holdfast.telemetry.hub import default_hub

    assert Guard("x").telemetry is default_hub()
