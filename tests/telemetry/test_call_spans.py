"""Spans of guarded calls and of their attempts: what happens inside is below them, in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import StatusCode

from holdfast import Breaker, CircuitOpen, Fallback, Guard, Hedge, Holdfast, Hub, Retry, Timeout, consecutive
from holdfast.telemetry.otel import OtelListener
from holdfast.testing import ManualClock


class Bench:
    """A hub that makes spans of calls, and what they were."""

    def __init__(self, hub: Hub | None = None, sampler: Sampler = ALWAYS_ON) -> None:
        self.hub = Hub() if hub is None else hub
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("shop")
        self.listener = OtelListener(tracer_provider=provider, attempts=False, spans=True)
        self.hub.register(self.listener)

    def guard(self, name: str, *policies: Any, **options: Any) -> Guard:
        return Guard(name, *policies, telemetry=self.hub, **options)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    def tree(self) -> dict[str, str | None]:
        """Each span's name, and that of the one above it."""
        done = self.exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in done}
        return {span.name: None if span.parent is None else names.get(span.parent.span_id) for span in done}


@pytest.fixture
def bench() -> Bench:
    return Bench()


Call = Callable[[Guard, Callable[[], Any]], Any]


def in_sync(guard: Guard, fn: Callable[[], Any]) -> Any:
    return guard(fn)()


def in_async(guard: Guard, fn: Callable[[], Any]) -> Any:
    @guard
    async def body() -> Any:
        await asyncio.sleep(0)
        return fn()

    return asyncio.run(body())


both_colours = pytest.mark.parametrize("call", [in_sync, in_async])


@both_colours
def test_what_happens_inside_a_call_is_below_its_attempt_and_that_below_the_call(bench: Bench, call: Call) -> None:
    def look() -> int:
        with bench.tracer.start_as_current_span("query"):
            return 12

    with bench.tracer.start_as_current_span("request"):
        assert call(bench.guard("stock", Retry(), Timeout(total=5)), look) == 12
    assert bench.tree() == {
        "query": "attempt stock", "attempt stock": "guard stock", "guard stock": "request", "request": None,
    }  # fmt: skip
    assert not trace.get_current_span().get_span_context().is_valid


@both_colours
def test_each_attempt_has_a_span_and_says_how_it_ended(bench: Bench, call: Call) -> None:
    answers = iter([ConnectionError("password=hunter2"), TimeoutError(), 12])

    def look() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert call(bench.guard("stock", Retry(attempts=3, base=0), Breaker()), look) == 12
    attempts, around = bench.spans("attempt stock"), bench.span("guard stock")
    told = [(one.attributes["guard.attempt"], one.attributes["guard.outcome"]) for one in attempts if one.attributes]
    assert told == [(0, "transient_failure"), (1, "timeout"), (2, "success")]
    assert [one.status.description for one in attempts] == ["ConnectionError", "TimeoutError", None]
    assert {one.parent.span_id for one in attempts if one.parent} == {around.context.span_id}
    assert around.status.status_code is StatusCode.UNSET
    assert around.attributes is not None
    assert (around.attributes["guard.attempts"], around.attributes["guard.outcome"]) == (3, "success")
    assert "hunter2" not in "".join(one.to_json() for one in bench.exporter.get_finished_spans())


@both_colours
def test_a_call_that_fails_or_is_refused_says_so(bench: Bench, call: Call) -> None:
    guard = bench.guard("stock", Breaker(consecutive(1)))

    def fail() -> None:
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError):
        call(guard, fail)
    with pytest.raises(CircuitOpen):
        call(guard, fail)
    failed, refused = bench.spans("guard stock")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ConnectionError")
    assert (refused.status.status_code, refused.status.description) == (StatusCode.ERROR, "circuit_open")
    assert refused.attributes is not None
    assert refused.attributes["guard.error_type"] == "CircuitOpen"
    assert len(bench.spans("attempt stock")) == 1  # a refused call was never made


@both_colours
def test_a_guard_inside_a_guard_is_below_it_and_knows_its_call(bench: Bench, call: Call) -> None:
    inner, outer = bench.guard("inner", Timeout(total=5)), bench.guard("outer", Timeout(total=5))
    assert call(outer, inner(lambda: 12)) == 12
    assert bench.tree() == {
        "attempt inner": "guard inner", "guard inner": "attempt outer", "attempt outer": "guard outer",
        "guard outer": None,
    }  # fmt: skip
    above, below = bench.span("guard outer").attributes, bench.span("guard inner").attributes
    assert above is not None
    assert below is not None
    assert below["guard.parent_call_id"] == above["guard.call_id"]
    assert below["holdfast.causation_id"] == above["holdfast.causation_id"] == above["guard.call_id"]


def test_a_fallback_is_below_the_call_and_beside_its_attempt(bench: Bench) -> None:
    def fall_back() -> int:
        with bench.tracer.start_as_current_span("other shelf"):
            return 0

    def fail() -> int:
        raise ConnectionError

    assert bench.guard("stock", Fallback(fall_back)).call(fail) == 0
    assert bench.tree() == {"attempt stock": "guard stock", "other shelf": "guard stock", "guard stock": None}


@pytest.mark.parametrize("is_async", [False, True])
def test_runs_side_by_side_are_attempts_of_one_call(bench: Bench, is_async: bool) -> None:
    guard = bench.guard("stock", Hedge(delay=0, max_hedged=1))
    if is_async:

        async def alook() -> int:
            await asyncio.sleep(0)
            return 12

        assert asyncio.run(guard.acall(alook)) == 12
    else:
        assert guard.call(lambda: 12) == 12
    around = bench.span("guard stock").context.span_id
    attempts = bench.spans("attempt stock")
    assert attempts
    assert {one.parent.span_id for one in attempts if one.parent} == {around}


def test_a_function_that_is_left_behind_in_its_thread_is_below_the_call(bench: Bench) -> None:
    guard = bench.guard("stock", Timeout(total=30, abandon=True))

    def look() -> int:
        with bench.tracer.start_as_current_span("query"):
            return 12

    assert guard.call(look) == 12
    assert bench.tree() == {"query": "attempt stock", "attempt stock": "guard stock", "guard stock": None}


def test_an_attempt_of_a_block_is_current_while_the_block_runs(bench: Bench) -> None:
    guard = bench.guard("stock", Retry(attempts=2, base=0))
    for attempt in guard.attempts():
        with bench.tracer.start_as_current_span("beside"), attempt, bench.tracer.start_as_current_span("query"):
            if attempt.number == 0:
                raise ConnectionError
    tree = bench.tree()
    assert (tree["query"], tree["attempt stock"], tree["guard stock"]) == ("attempt stock", "guard stock", None)
    assert tree["beside"] is None
    assert [one.status.description for one in bench.spans("attempt stock")] == ["ConnectionError", None]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_an_attempt_of_an_async_block_is_current_while_the_block_runs(bench: Bench) -> None:
    guard = bench.guard("stock", Retry(attempts=2, base=0))
    async for attempt in guard.attempts():
        async with attempt:
            with bench.tracer.start_as_current_span("query"):
                await asyncio.sleep(0)
    tree = bench.tree()
    assert (tree["query"], tree["attempt stock"], tree["guard stock"]) == ("attempt stock", "guard stock", None)


async def test_a_call_that_is_cancelled_has_not_failed(bench: Bench) -> None:
    begun = asyncio.Event()

    @bench.guard("stock", Timeout(total=30))
    async def look() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(look())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    around = bench.span("guard stock")
    assert around.attributes is not None
    assert around.attributes["guard.outcome"] == "cancelled"
    assert around.status.status_code is StatusCode.UNSET
    assert len(bench.spans("attempt stock")) == 1


async def test_calls_at_the_same_time_have_each_their_own(bench: Bench) -> None:
    guard = bench.guard("stock", Timeout(total=30))

    @guard
    async def look(number: int) -> None:
        with bench.tracer.start_as_current_span(f"query {number}"):
            await asyncio.sleep(0)

    await asyncio.gather(*(look(number) for number in range(5)))
    above = {one.parent.span_id for number in range(5) for one in bench.spans(f"query {number}") if one.parent}
    assert above == {one.context.span_id for one in bench.spans("attempt stock")}
    assert len(above) == 5


def test_a_sampler_that_fails_does_not_reach_the_call() -> None:
    class Broken(Sampler):
        def should_sample(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no idea")

        def get_description(self) -> str:
            return "broken"

    assert Bench(sampler=Broken()).guard("stock", Retry()).call(lambda: 12) == 12


def test_a_listener_that_makes_no_spans_of_calls_leaves_calls_on_their_fused_path() -> None:
    hub = Hub()
    hub.register(OtelListener(tracer_provider=TracerProvider(), attempts=False, work=True))
    assert not hub.loud
    assert hub.call_spans is None
    bench = Bench(hub)
    assert hub.call_spans is not None
    hub.unregister(bench.listener)
    assert hub.call_spans is None


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(f"sqlite:///{tmp_path}/h.db", clock=ManualClock(), telemetry=Hub(), background=False) as hold:
        yield hold


def test_a_letter_leads_back_to_the_call_that_failed_and_that_to_the_request(hold: Holdfast) -> None:
    bench = Bench(hold.telemetry)
    answers: Iterator[Any] = iter([ConnectionError("no answer"), 12])

    @hold.guard("stock", Retry(attempts=1), dead_letter=True).replayable
    def level(shelf: str) -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    with bench.tracer.start_as_current_span("request") as request, pytest.raises(ConnectionError):
        level("a")
    (letter,) = hold.letters.find()
    failed = bench.span("guard stock")
    assert failed.parent is not None
    assert failed.parent.span_id == request.get_span_context().span_id
    assert letter.metadata["traceparent"].split("-")[2] == f"{failed.context.span_id:016x}"
    assert hold.letters.replay(letter.id).outcome == "succeeded"
    replay = bench.span("replay stock")
    assert [link.context.span_id for link in replay.links] == [failed.context.span_id]
    again = bench.spans("guard stock")[-1]
    assert again.parent is not None
    assert again.parent.span_id == replay.context.span_id
