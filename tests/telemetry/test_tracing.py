"""Spans around work that was made earlier, and their way back to the trace that caused it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast import Holdfast, Hub, InMemoryPublisher, Retry, RetryAfter, Saga, Step, task, workflow
from holdfast.telemetry.otel import OtelListener
from holdfast.telemetry.tracing import current_trace, trace_ids
from holdfast.testing import ManualClock

TRACE = "00-000102030405060708090a0b0c0d0e0f-0001020304050607-01"


class Bench:
    """A Holdfast whose hub makes spans, and what they were."""

    def __init__(self, hold: Holdfast, **options: Any) -> None:
        self.hold = hold
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("shop")
        chosen = {"attempts": False, "work": True, **options}
        self.listener = OtelListener(tracer_provider=self.provider, **chosen)
        hold.telemetry.register(self.listener)

    @property
    def clock(self) -> ManualClock:
        clock = self.hold._clock
        assert isinstance(clock, ManualClock)
        return clock

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Holdfast(f"sqlite:///{tmp_path}/h.db", clock=ManualClock(), telemetry=Hub(), background=False) as hold:
        yield Bench(hold)


def links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def id_of(span: Any) -> int:
    return int(span.get_span_context().span_id)


def test_a_replay_is_linked_to_the_trace_in_which_the_call_failed(bench: Bench) -> None:
    hold = bench.hold
    answers: Iterator[Any] = iter([ConnectionError("no answer"), 12])
    guard = hold.guard("stock", Retry(attempts=1), dead_letter=True)

    @guard.replayable
    def level(shelf: str) -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        with bench.tracer.start_as_current_span("look"):
            return int(answer)

    with bench.tracer.start_as_current_span("request") as request, pytest.raises(ConnectionError):
        level("a")
    (letter,) = hold.letters.find()
    made = request.get_span_context()
    assert letter.metadata["trace_id"] == f"{made.trace_id:032x}"
    assert letter.metadata["traceparent"] == f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags):02x}"

    assert hold.letters.replay(letter.id).outcome == "succeeded"
    replay = bench.span("replay stock")
    assert links(replay) == [id_of(request)]
    assert replay.parent is None
    assert replay.attributes is not None
    assert replay.attributes["letter.id"] == letter.id
    assert replay.attributes["letter.ending"] == "succeeded"
    assert replay.attributes["holdfast.causation_id"] == letter.metadata["causation_id"]
    assert replay.status.status_code is StatusCode.UNSET
    look = bench.span("look")
    assert look.parent is not None
    assert look.parent.span_id == id_of(replay)


def test_a_replay_that_fails_says_so_without_the_message(bench: Bench) -> None:
    guard = bench.hold.guard("stock", Retry(attempts=1), dead_letter=True)

    @guard.replayable
    def level() -> int:
        raise ConnectionError("password=hunter2")

    with pytest.raises(ConnectionError):
        level()
    (letter,) = bench.hold.letters.find()
    bench.hold.letters.replay(letter.id)
    replay = bench.span("replay stock")
    assert (replay.status.status_code, replay.status.description) == (StatusCode.ERROR, "ConnectionError")
    assert "hunter2" not in replay.to_json()
    assert links(replay) == []  # nobody had traced the call


def test_a_call_that_follows_its_request_at_once_is_a_part_of_its_trace_and_a_later_one_is_linked(
    bench: Bench,
) -> None:
    hold = bench.hold
    broker = InMemoryPublisher()
    hold.publishers.register(broker)
    broker.fail(ConnectionError("no broker"))
    with bench.tracer.start_as_current_span("request") as request, hold.sessions.begin() as session:
        hold.outbox.publish(session, "paid", {})
    hold.worker().run_once()
    first = bench.span("outbox publish")
    assert first.parent is not None
    assert (first.parent.span_id, links(first)) == (id_of(request), [])
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "ConnectionError")

    bench.clock.advance(3600)
    hold.worker().run_once()
    again = bench.spans("outbox publish")[1]
    assert (again.parent, links(again)) == (None, [id_of(request)])
    assert again.attributes is not None
    assert again.attributes["outbox.attempt"] == 2
    (message,) = broker.messages
    made = request.get_span_context()
    assert message.headers["traceparent"] == f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags):02x}"
    assert message.envelope.extensions["traceparent"] == message.headers["traceparent"]


def test_a_call_that_waited_long_for_its_worker_is_linked(bench: Bench) -> None:
    @bench.hold.operation
    def greet() -> None: ...

    with bench.hold.sessions.begin() as session:
        bench.hold.outbox.put(session, "greet", target="them", headers={"Traceparent": TRACE})
    bench.clock.advance(60)
    bench.hold.worker().run_once()
    span = bench.span("outbox greet")
    assert (span.parent, links(span)) == (None, [0x0001020304050607])


def test_what_a_call_enqueues_belongs_to_the_span_of_the_call(bench: Bench) -> None:
    hold = bench.hold

    @hold.operation
    def greet() -> None:
        with hold.sessions.begin() as session:
            hold.outbox.put(session, "wave", target="them")

    @hold.operation
    def wave() -> None: ...

    with hold.sessions.begin() as session:
        hold.outbox.put(session, "greet", target="them")
    for _ in range(2):
        hold.worker().run_once()
    wave_span, greet_span = bench.span("outbox wave"), bench.span("outbox greet")
    assert wave_span.parent is not None
    assert wave_span.parent.span_id == id_of(greet_span)


def test_the_steps_of_a_saga_tell_which_saga_they_belong_to(bench: Bench) -> None:
    hold = bench.hold

    @hold.operation
    def reserve() -> None: ...

    saga = hold.saga(Saga("order", [Step("reserve", "reserve", target="stock")]))
    with bench.tracer.start_as_current_span("request") as request, hold.sessions.begin() as session:
        saga_id = hold.sagas.start(session, saga, {})
    hold.worker().run_once()
    span = bench.span("outbox reserve")
    assert span.parent is not None
    assert span.parent.span_id == id_of(request)
    assert span.attributes is not None
    assert (span.attributes["saga.id"], span.attributes["saga.step"]) == (str(saga_id), "reserve")


def test_an_answer_that_asks_to_wait_is_no_error(bench: Bench) -> None:
    @bench.hold.operation
    def greet() -> RetryAfter:
        return RetryAfter(timedelta(seconds=30), "busy")

    with bench.hold.sessions.begin() as session:
        bench.hold.outbox.put(session, "greet", target="them")
    bench.hold.worker().run_once()
    assert bench.span("outbox greet").status.status_code is StatusCode.UNSET


def test_the_tasks_of_a_workflow_are_linked_to_the_trace_that_started_it(bench: Bench) -> None:
    hold = bench.hold

    @task
    def pack(order_id: str) -> str:
        with bench.tracer.start_as_current_span("box"):
            return order_id

    @task
    async def send(parcel: str) -> str:
        with bench.tracer.start_as_current_span("post"):
            return parcel

    @workflow
    def fulfil(order_id: str) -> Any:
        return send(pack(order_id))

    with bench.tracer.start_as_current_span("request") as request:
        run = hold.workflows.start(fulfil, "o-1")
    hold.worker().run_once()
    assert run.result() == "o-1"
    for name, inner in (("task pack", "box"), ("task send", "post")):
        span, child = bench.span(name), bench.span(inner)
        assert (span.parent, links(span)) == (None, [id_of(request)])
        assert span.attributes is not None
        assert span.attributes["workflow.id"] == run.id
        assert span.attributes["holdfast.causation_id"] == run.id
        assert child.parent is not None
        assert child.parent.span_id == id_of(span)


def test_a_workflow_below_another_is_linked_to_the_task_that_asked_for_it(bench: Bench) -> None:
    hold = bench.hold

    @task
    def pack(order_id: str) -> str:
        return order_id

    @workflow
    def inner(order_id: str) -> Any:
        return pack(order_id)

    @workflow
    def outer(order_id: str) -> Any:
        return inner(order_id)

    run = hold.workflows.start(outer, "o-1")
    worker = hold.worker()
    for _ in range(3):
        worker.run_once()
    assert run.result() == "o-1"
    packed, asked = bench.span("task pack"), bench.span("task workflow:inner")
    assert links(packed) == [id_of(asked)]
    assert packed.attributes is not None
    assert packed.attributes["holdfast.causation_id"] == run.id


def test_a_task_that_fails_marks_its_span(bench: Bench) -> None:
    @task
    def pack() -> None:
        raise ValueError("no box")

    @workflow
    def fulfil() -> Any:
        return pack()

    bench.hold.workflows.start(fulfil)
    bench.hold.worker().run_once()
    span = bench.span("task pack")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError")


def test_calls_have_spans_inside_the_span_of_their_replay(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/h.db", clock=ManualClock(), telemetry=Hub(), background=False) as hold:
        bench = Bench(hold, spans=True, work=None)
        guard = hold.guard("stock", Retry(attempts=1), dead_letter=True)

        @guard.replayable
        def level() -> int:
            raise ConnectionError("no answer")

        with pytest.raises(ConnectionError):
            level()
        (letter,) = hold.letters.find()
        hold.letters.replay(letter.id)
    first, second = bench.spans("guard stock")
    assert first.parent is None
    assert second.parent is not None
    assert second.parent.span_id == id_of(bench.span("replay stock"))
    for span in (first, second):
        assert span.attributes is not None
        assert span.attributes["holdfast.causation_id"] == letter.metadata["causation_id"]


def test_spans_of_work_cost_guarded_calls_nothing() -> None:
    hub = Hub()
    assert hub.spans is None
    listener = OtelListener(attempts=False, work=True)
    hub.register(listener)
    assert hub.spans is listener.spans is not None
    assert not hub.loud
    hub.unregister(listener)
    assert hub.spans is None


def test_a_listener_that_makes_no_spans_leaves_those_of_another() -> None:
    hub = Hub()
    hub.register(OtelListener(attempts=False))
    assert hub.spans is None
    makes = OtelListener(attempts=False, work=True)
    hub.register(makes)
    hub.register(OtelListener(attempts=False))
    assert hub.spans is makes.spans


def test_a_tracer_that_raises_does_not_reach_the_work(bench: Bench) -> None:
    class Broken:
        def start_span(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("no exporter")

    spans = bench.listener.spans
    assert spans is not None
    spans._tracer = Broken()  # type: ignore[assignment]  # a tracer of somebody's
    done = []

    @bench.hold.operation
    def greet() -> None:
        done.append(1)

    with bench.hold.sessions.begin() as session:
        bench.hold.outbox.put(session, "greet", target="them", headers={"traceparent": "nonsense"})
    bench.hold.worker().run_once()
    assert done == [1]


def test_headers_that_are_no_trace_context_are_ignored(bench: Bench) -> None:
    spans = bench.listener.spans
    assert spans is not None
    for headers in (
        None,
        {},
        {"traceparent": "nonsense"},
        {"traceparent": TRACE.replace("0001020304050607", "0" * 16)},
    ):
        with spans.open("work", headers, {}):
            pass
    assert all(not span.links and span.parent is None for span in bench.spans("work"))


def test_the_state_of_a_trace_goes_along(bench: Bench) -> None:
    parent = TraceContextTextMapPropagator().extract({"traceparent": TRACE, "tracestate": "shop=7"})
    with bench.tracer.start_as_current_span("request", parent):
        found = current_trace()
    assert found["tracestate"] == "shop=7"
    assert found["traceparent"].split("-")[1] == TRACE.split("-")[1]
    assert current_trace() == trace_ids() == {}
