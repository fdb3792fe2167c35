"""Workflows made of plain functions: what is run, in which order, with which arguments, and how often."""

from __future__ import annotations

import copy
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Retry
from holdfast.errors import (
    ConfigurationError,
    HoldfastError,
    PermanentError,
    TaskError,
    TransientError,
    WorkflowDefinitionError,
    WorkflowNotFoundError,
)
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.paging import PAGE
from holdfast.store.port import Insert, Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.records import SIGNAL, STAGE, SignalRecord
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_context import current_task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.waiting import sleep, wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows

S = WorkflowStatus


@task
def charge(order: dict[str, Any]) -> dict[str, Any]:
    return {"paid": order["id"]}


@task
async def pack(order: dict[str, Any]) -> str:
    return f"box {order['id']}"


@task
def ship(order: dict[str, Any], box: str, receipt: dict[str, Any]) -> str:
    return f"{box}, receipt {receipt['paid']}"


@workflow
def fulfil(order: dict[str, Any]) -> Any:
    receipt = charge(order)
    return ship(order, pack(order), receipt)  # type: ignore[arg-type]  # what it gives, not its coroutine


def test_what_one_task_leaves_is_the_argument_of_the_next(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(fulfil, {"id": 7})
    assert run.status is S.RUNNING
    worker.run_once()
    assert run.result(0) == "box 7, receipt 7"


def test_outside_of_a_workflow_a_task_is_its_function() -> None:
    assert charge({"id": 3}) == {"paid": 3}


def test_a_part_of_what_a_task_leaves_can_be_given_on(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def both() -> dict[str, Any]:
        return {"left": [1, 2], "right": "r"}

    @task
    def join(one: int, many: list[Any], named: dict[str, Any]) -> list[Any]:
        return [one, many, named]

    @workflow
    def parts() -> Any:
        found = both()
        return join(found["left"][1], [found["right"], 0], {"right": found["right"]})

    run = flows.start(parts)
    worker.run_once()
    assert run.result(0) == [2, ["r", 0], {"right": "r"}]


def test_a_task_that_is_called_twice_is_two_stages(flows: Workflows, worker: WorkflowWorker) -> None:
    @workflow
    def twice(a: dict[str, Any], b: dict[str, Any]) -> Any:
        return [charge(a), charge(b, ref="second")]

    run = flows.start(twice, {"id": 1}, {"id": 2})
    worker.run_once()
    assert run.result(0) == [{"paid": 1}, {"paid": 2}]


def test_after_makes_a_stage_wait_without_taking_anything(flows: Workflows, worker: WorkflowWorker) -> None:
    order: list[str] = []

    @task
    def first() -> None:
        order.append("first")

    @task
    def second() -> None:
        order.append("second")

    @workflow
    def one_by_one() -> Any:
        return second(after=first())

    run = flows.start(one_by_one)
    worker.run_once()
    assert (run.result(0), order) == (None, ["first", "second"])


@pytest.mark.parametrize(
    ("calls", "story"),
    [
        (lambda: pack(), "task 'pack': missing a required argument: 'order'; it takes order, got nothing"),
        (
            lambda: charge({}, note=1),
            "task 'charge': got an unexpected keyword argument 'note'; it takes order, got 1 by",
        ),
        (
            lambda: fulfil(),
            "workflow 'fulfil': missing a required argument: 'order'; it takes order, wait, timeout, got",
        ),
        (lambda: charge({}, after="pack"), "after= takes what the call of a task has returned, .* got 'pack'"),
        (lambda: charge({}, after=pack), "after= takes what the call of a task has returned, .* got <task 'pack'>"),
        (lambda: charge({}, after=[7]), "after= takes what the call of a task has returned, .* got 7"),
    ],
)
def test_a_call_that_cannot_be_says_what_is_taken_and_what_was_given(
    flows: Workflows, calls: Callable[[], Any], story: str
) -> None:
    with pytest.raises(WorkflowDefinitionError, match=story) as caught:
        flows.start(workflow(name="wrong")(calls))
    assert caught.value.code == "bad_arguments"


def test_the_same_key_gives_the_first_workflow_and_another_input_is_refused(flows: Workflows) -> None:
    run = flows.start(fulfil, {"id": 7}, idempotency_key="order-7")
    assert flows.start(fulfil, {"id": 7}, idempotency_key="order-7").id == run.id
    with pytest.raises(WorkflowDefinitionError, match=r"order-7.*another input"):
        flows.start(fulfil, {"id": 8}, idempotency_key="order-7")


def test_the_same_key_gives_the_first_workflow_also_when_the_code_has_changed_meanwhile(flows: Workflows) -> None:
    run = flows.start(workflow(name="sent")(lambda order: charge(order)), {"id": 7}, idempotency_key="order-7")
    deployed = workflow(name="sent", version="2")(lambda order: pack(order, after=charge(order)))
    assert flows.start(deployed, {"id": 7}, idempotency_key="order-7").id == run.id
    with pytest.raises(WorkflowDefinitionError, match=r"order-7.*another input"):
        flows.start(deployed, {"id": 8}, idempotency_key="order-7")
    with pytest.raises(WorkflowDefinitionError, match=r"order-7.*is a 'sent' and no 'fulfil'"):
        flows.start(fulfil, {"id": 7}, idempotency_key="order-7")


def test_the_same_key_gives_the_first_workflow_also_when_its_function_has_got_more_arguments(flows: Workflows) -> None:
    @workflow(name="sent")
    def before(order: Any) -> Any:
        return charge(order)

    @workflow(name="sent")
    def after(order: Any, pause: timedelta = timedelta(hours=1), *, tags: Any = (), **more: Any) -> Any:
        return charge(order)

    run = flows.start(before, {"id": 7}, idempotency_key="order-7")
    assert flows.start(after, {"id": 7}, idempotency_key="order-7").id == run.id
    assert flows.start(after, {"id": 7}, pause=timedelta(hours=1), idempotency_key="order-7").id == run.id
    with pytest.raises(WorkflowDefinitionError, match="has another input: pause, tags"):
        flows.start(after, {"id": 7}, timedelta(hours=2), tags=["a"], idempotency_key="order-7")
    with pytest.raises(WorkflowDefinitionError, match="has another input: more"):
        flows.start(after, {"id": 7}, gift=True, idempotency_key="order-7")
    flows.start(after, {"id": 8}, idempotency_key="order-8")
    with pytest.raises(WorkflowDefinitionError, match="has another input: more, pause, tags"):
        flows.start(before, {"id": 8}, idempotency_key="order-8")  # nobody knows any more what they were by default
    flows.start(before, {"flag": 1}, idempotency_key="order-9")
    with pytest.raises(WorkflowDefinitionError, match="has another input: order"):
        flows.start(after, {"flag": True}, idempotency_key="order-9")


def test_a_default_that_is_not_json_is_no_reason_to_refuse_a_key(flows: Workflows) -> None:
    unset: Any = [object(), float("nan")]
    run = flows.start(workflow(name="sent")(lambda order: charge(order)), {"id": 7}, idempotency_key="order-7")
    deployed = workflow(name="sent")(lambda order, note=unset: charge(order))
    with pytest.raises(WorkflowDefinitionError, match="has another input: note"):
        flows.start(deployed, {"id": 7}, "text", idempotency_key="order-7")
    assert run.record.idempotency_key == "order-7"


def test_a_model_with_the_same_key_and_another_input_in_its_stages_is_refused(flows: Workflows) -> None:
    flows.registry.register("note", lambda stage: None)

    def parcel(number: int) -> Workflow:
        tasks = [TaskExecution.create("note", "note")]
        one = StageExecution.create("note", "a", "a", tasks=tasks, context={"n": number})
        return Workflow.create("shop", "parcel", [one])

    run = flows.start(parcel(1), idempotency_key="p")
    assert flows.start(parcel(1), idempotency_key="p").id == run.id
    with pytest.raises(WorkflowDefinitionError, match="another input in its stages"):
        flows.start(parcel(2), idempotency_key="p")


@pytest.mark.parametrize("key", ["", 7])
def test_a_key_that_is_no_text_or_an_empty_one_is_refused(flows: Workflows, key: Any) -> None:
    with pytest.raises(WorkflowDefinitionError, match="idempotency_key must be a text of at least one character") as no:
        flows.start(fulfil, {"id": 7}, idempotency_key=key)
    assert no.value.code == "bad_key"
    assert flows.find() == []


def test_a_transient_error_is_tried_again_after_its_own_time(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    attempts: list[int] = []

    @task
    def shaky() -> str:
        here = current_task()
        assert here is not None
        attempts.append(here.attempt)
        if here.attempt < 3:
            raise TransientError("not yet", retry_after=60)
        return here.idempotency_key

    run = flows.start(_only(shaky))
    worker.run_once()
    assert attempts == [1]
    clock.advance(59)
    worker.run_once()
    assert attempts == [1]
    clock.advance(1)
    worker.run_once()
    clock.advance(60)
    worker.run_once()
    assert attempts == [1, 2, 3]
    assert run.result(0) == f"{run.id}.shaky.1.0"


@pytest.mark.parametrize("hint", [1e30, timedelta.max])
def test_whoever_asks_to_be_left_alone_for_ages_is_called_again_in_thirty_years(
    hint: Any, flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    calls: list[int] = []

    @task
    def throttled() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise TransientError("too many requests", retry_after=hint)
        return "done"

    run = flows.start(_only(throttled))
    worker.run_once()
    assert (run.status, run.record.reason) == (S.RUNNING, None)
    clock.advance(1e9)
    worker.run_once()
    assert run.result(0) == "done"


def test_without_a_policy_other_exceptions_are_final(flows: Workflows, worker: WorkflowWorker) -> None:
    calls: list[int] = []

    @task
    def breaks() -> None:
        calls.append(1)
        raise ValueError("no such order")

    run = flows.start(_only(breaks))
    worker.run_once()
    assert (run.status, len(calls)) == (S.TERMINAL, 1)
    with pytest.raises(TaskError, match="no such order"):
        run.result(0)


def test_an_error_is_kept_with_its_last_line_and_cut_after_two_thousand_characters(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @task
    def breaks(length: int) -> None:
        raise ValueError("a line of output\n" * (length // 17) + "and what was wrong")

    short, long = (flows.start(workflow(name="breaking")(lambda length: breaks(length)), size) for size in (1500, 5000))
    worker.run_once()
    assert (short.record.reason or "").endswith("and what was wrong")
    assert len(long.record.reason or "") == 2000


@pytest.mark.parametrize(("error", "calls"), [(OSError("down"), 3), (PermanentError("never"), 1)])
def test_with_a_policy_everything_but_a_permanent_error_is_tried_again(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, error: Exception, calls: int
) -> None:
    made: list[int] = []

    @task(retry=Retry(attempts=3, base=1))
    def breaks() -> None:
        made.append(1)
        raise error

    run = flows.start(_only(breaks))
    for _ in range(4):
        worker.run_once()
        clock.advance(30)
    assert (run.status, len(made)) == (S.TERMINAL, calls)


def test_a_result_that_is_not_json_fails_the_task_and_says_where(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def odd() -> Any:
        return {"handle": object()}

    run = flows.start(_only(odd))
    worker.run_once()
    with pytest.raises(TaskError, match="handle"):
        run.result(0)


def test_a_failure_skips_what_comes_after_it_and_cancels_what_waits(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def breaks() -> None:
        raise ValueError("no")

    @workflow
    def half() -> Any:
        wait_signal("never")
        return charge({"id": 1}, after=breaks())

    run = flows.start(half)
    worker.run_once()
    assert run.status is S.TERMINAL
    assert flows.stages(run.id) == {"wait_signal": S.CANCELED, "breaks": S.TERMINAL, "charge": S.SKIPPED}


def test_a_sleep_holds_nobody(flows: Workflows, worker: WorkflowWorker, clock: ManualClock) -> None:
    @workflow
    def later() -> Any:
        return charge({"id": 1}, after=sleep(30 * 86400))

    run = flows.start(later)
    worker.run_once()
    assert flows.stages(run.id)["sleep"] is S.SUSPENDED
    clock.advance(30 * 86400)
    worker.run_once()
    assert run.result(0) == {"paid": 1}


@workflow
def approved() -> Any:
    return wait_signal("approved", timeout=60)


def test_a_signal_lets_a_stage_go_on_with_its_value(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(approved)
    worker.run_once()
    assert flows.signal(run.id, "approved", {"by": "ann"})
    assert run.result(0) == {"by": "ann"}


def test_a_signal_that_comes_early_is_kept(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(approved)
    assert not flows.signal(run.id, "approved", 1)
    worker.run_once()
    assert run.result(0) == 1


def test_a_signal_is_found_among_very_many(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    @workflow
    def patient() -> Any:
        return wait_signal("word", after=sleep(1))

    run = flows.start(patient)
    many = [SignalRecord(f"{number:04}", 1, None, run.id, "other", "0") for number in range(PAGE)]
    store.commit([Insert(SIGNAL, one) for one in (*many, SignalRecord("last", 1, None, run.id, "word", "7"))])
    flows.skip(run.id, "sleep")
    worker.run_once()
    assert run.result(0) == 7


def test_one_who_waits_for_a_signal_is_found_among_very_many(
    flows: Workflows, worker: WorkflowWorker, store: Store
) -> None:
    flows.registry.register("wait", lambda stage: TaskResult.wait_signal(stage.context["word"]))
    waits = [TaskExecution.create("w", "wait")]
    several = MultiInstanceConfig(count=1)
    many = StageExecution.create("t", "m", "m", tasks=waits, mi_config=several, context={"word": "other"})
    one = StageExecution.create("t", "z", "z", tasks=waits, context={"word": "word"})
    run = flows.start(Workflow.create("shop", "many", [many, one]))
    worker.run_once()
    first = store.get(STAGE, [f"{run.id}.m#1.0"])[0]
    assert first is not None
    others = [f"m#1.{number}" for number in range(1, PAGE)]
    store.commit([Insert(STAGE, first._replace(id=f"{run.id}.{ref}", ref=ref)) for ref in others])
    assert flows.signal(run.id, "word")


def test_a_signal_that_does_not_come_in_time_fails_the_stage(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    run = flows.start(approved)
    worker.run_once()
    clock.advance(60)
    worker.run_once()
    with pytest.raises(TaskError, match="approved"):
        run.result(0)


def test_a_signal_to_a_workflow_that_has_ended_is_refused(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(fulfil, {"id": 1})
    worker.run_once()
    with pytest.raises(TaskError, match="SUCCEEDED"):
        flows.signal(run.id, "approved")


def test_a_cancelled_workflow_runs_nothing_more(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(approved)
    worker.run_once()
    flows.cancel(run.id, "not wanted", by="ann")
    assert run.status is S.CANCELED
    assert worker.run_once() == 0
    flows.cancel(run.id, "again")
    assert flows.record(run.id).reason == "not wanted"


def test_what_a_task_leaves_after_its_workflow_was_cancelled_counts_no_more(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @task
    def cancels() -> str:
        here = current_task()
        assert here is not None
        flows.cancel(here.workflow_id)
        return "late"

    run = flows.start(_only(cancels))
    worker.run_once()
    assert run.status is S.CANCELED
    assert flows.stages(run.id) == {"cancels": S.CANCELED}


def test_bad_definitions_are_refused_at_the_start(flows: Workflows) -> None:
    @workflow
    def nothing() -> None:
        return None

    @workflow
    def asks() -> Any:
        return charge({"id": 1}) or pack({"id": 2})

    @workflow
    def wrong() -> Any:
        return charge()  # type: ignore[call-arg]

    with pytest.raises(WorkflowDefinitionError, match="calls no task"):
        flows.start(nothing)
    with pytest.raises(TypeError, match="not known before the workflow runs"):
        flows.start(asks)
    with pytest.raises(WorkflowDefinitionError, match="order"):
        flows.start(wrong)
    with pytest.raises(WorkflowDefinitionError, match="required argument: 'order'; it takes order, got nothing"):
        flows.start(fulfil)
    with pytest.raises(WorkflowDefinitionError, match="required argument: 'order'; it takes order, got oder"):
        flows.start(fulfil, oder={"id": 1})
    with pytest.raises(WorkflowDefinitionError, match=r"too many .*; it takes order, got 2 by place"):
        flows.start(fulfil, {"id": 1}, 2)
    with pytest.raises(WorkflowNotFoundError, match="nowhere"):
        flows.get("nowhere")


@pytest.mark.parametrize(
    "asks",
    [
        lambda promise: promise == {"paid": 1},
        lambda promise: promise != None,  # noqa: E711  # what is refused
        lambda promise: promise in [{"paid": 1}],
        lambda promise: promise > 3,
        lambda promise: promise + 1,
        lambda promise: "receipt " + promise,
        lambda promise: f"receipt {promise}",
        lambda promise: f"receipt {promise['paid']}",
        lambda promise: str(promise),
        lambda promise: len(promise),
        lambda promise: list(promise),
    ],
)
def test_a_body_that_asks_a_promise_for_its_value_is_refused_and_stores_nothing_in_its_place(
    flows: Workflows, asks: Any
) -> None:
    @workflow
    def body() -> Any:
        return charge({"id": asks(charge({"id": 1}))})

    with pytest.raises(TypeError):
        flows.start(body)
    assert flows.find() == []


def test_a_body_that_asks_a_promise_is_told_what_it_is_and_what_to_do(flows: Workflows) -> None:
    with pytest.raises(TypeError, match=r"<what 'charge' leaves> is not known before .*; give it to a task as a whole"):
        flows.start(workflow(name="greets")(lambda: pack({"id": f"{charge({'id': 1})}"})))
    with pytest.raises(AttributeError, match=r"<what 'charge' leaves> is not known .* a part of it is \['paid'\]"):
        flows.start(workflow(name="dotted")(lambda: pack(charge({"id": 1}).paid)))  # type: ignore[attr-defined]


def test_promises_can_be_copied_with_what_they_are_in(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(workflow(name="copies")(lambda: pack(copy.deepcopy({"id": charge({"id": 1})["paid"]}))))
    worker.run_once()
    assert run.result(timeout=0) == "box 1"


def test_what_python_says_of_an_input_names_its_own_type(flows: Workflows) -> None:
    with pytest.raises(TypeError, match="'int' object is not subscriptable"):
        flows.start(workflow(name="looks")(lambda order: pack(order["id"])), 7)


def test_two_tasks_cannot_have_one_name(flows: Workflows) -> None:
    flows.register(charge)
    with pytest.raises(WorkflowDefinitionError, match="charge"):
        flows.register(task(name="charge")(lambda: None))


def test_a_worker_leaves_alone_what_it_does_not_know(flows: Workflows, worker_of: Any, store: Any) -> None:
    stranger = Workflows(store, clock=flows._clock).worker()
    run = flows.start(fulfil, {"id": 1})
    assert stranger.run_once() == 0
    worker_of().run_once()
    assert run.result(0) == "box 1, receipt 1"
    stranger.close()


def _only(one: Any) -> Any:
    return workflow(name=f"only-{one.name}")(lambda: one())


@pytest.mark.parametrize(
    ("wait", "says"),
    [
        (lambda: sleep(-5), "sleep must be a finite number of seconds above 0, got -5"),
        (lambda: sleep(timedelta(days=-1)), "sleep must be a finite number of seconds above 0"),
        (lambda: sleep(1e15), "sleep must be at most 1e[+]09 seconds, which is thirty years, got 1e[+]15"),
        (lambda: sleep("a day"), "sleep must be"),  # type: ignore[arg-type]  # what is refused
        (
            lambda: wait_signal("go", timeout=-1),
            "wait_signal.timeout must be a finite number of seconds above 0, got -1",
        ),
        (lambda: wait_signal("go", 5, "stop"), "wait_signal.on_timeout must be fail or continue, got 'stop'"),  # type: ignore[arg-type]  # what is refused
        (lambda: wait_signal(""), "wait_signal.name must be a text, got ''"),
    ],
)
def test_a_wait_that_cannot_be_is_refused_where_it_is_written(flows: Workflows, wait: Any, says: str) -> None:
    with pytest.raises(HoldfastError, match=says):
        flows.start(workflow(name="waits")(wait))


def test_a_timedelta_is_as_good_as_seconds_in_a_body(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    @workflow
    def later() -> Any:
        slept = sleep(timedelta(hours=1))
        limit = timedelta(minutes=1)
        return wait_signal("go", limit, "continue", after=slept)

    run = flows.start(later)
    for seconds, stages in (
        (3599, {"sleep": S.SUSPENDED, "wait_signal": S.NOT_STARTED}),
        (1, {"sleep": S.SUCCEEDED, "wait_signal": S.SUSPENDED}),
        (59, {"sleep": S.SUCCEEDED, "wait_signal": S.SUSPENDED}),
        (1, {"sleep": S.SUCCEEDED, "wait_signal": S.SUCCEEDED}),
    ):
        worker.run_once()
        clock.advance(seconds)
        worker.run_once()
        assert flows.stages(run.id) == stages
    assert run.status is S.SUCCEEDED


def test_a_timedelta_in_a_list_or_an_input_becomes_seconds_too(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def shown(*values: Any) -> list[Any]:
        return list(values)

    @workflow
    def spans(limit: timedelta, name: str) -> Any:
        return shown(limit, [timedelta(minutes=1), name], {"least": [timedelta(milliseconds=1)]})

    runs = [flows.start(spans, timedelta(seconds=number), "n") for number in (2, 3)]
    worker.run_once()
    assert [run.result(0) for run in runs] == [[n, [60.0, "n"], {"least": [0.001]}] for n in (2.0, 3.0)]
    assert len({flows.record(run.id).definition for run in runs}) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (fulfil.function, "decorate it with @workflow"),
        (charge, "call it in a function with @workflow"),
        (7, "the name of one that was added"),
    ],
)
def test_what_is_no_workflow_is_refused_with_what_to_do(flows: Workflows, given: Any, says: str) -> None:
    with pytest.raises(WorkflowDefinitionError, match=says) as caught:
        flows.start(given, {"id": 1})
    assert caught.value.code == "not_a_workflow"


def test_an_added_function_that_makes_no_workflow_is_refused(flows: Workflows) -> None:
    def odd() -> Any:
        return None

    flows.add(odd)
    with pytest.raises(WorkflowDefinitionError, match="None is no workflow"):
        flows.start("odd")


def test_an_input_may_be_called_workflow_or_self(flows: Workflows, worker: WorkflowWorker) -> None:
    @workflow
    def named(self: int, workflow: int) -> Any:
        return pair(self, workflow)

    @task
    def pair(one: int, other: int) -> list[int]:
        return [one, other]

    run = flows.start(named, self=1, workflow=2)
    worker.run_once()
    assert run.result(0) == [1, 2]


def test_an_input_that_start_takes_itself_is_refused_where_it_is_written() -> None:
    with pytest.raises(WorkflowDefinitionError, match=r"'keyed' has an input 'idempotency_key'.*rename it") as caught:

        @workflow
        def keyed(idempotency_key: str) -> Any:
            return charge({"id": idempotency_key})

    assert caught.value.code == "reserved_input"


def test_a_task_that_is_called_many_times_gets_a_name_for_each_that_is_not_taken(flows: Workflows) -> None:
    @workflow
    def many(order: dict[str, Any]) -> Any:
        return [charge(order, ref="charge-2"), *(charge(order) for _ in range(3))]  # type: ignore[call-arg]  # the engine's

    assert list(flows.stages(flows.start(many, {"id": 1}).id)) == ["charge-2", "charge", "charge-3", "charge-4"]


@pytest.mark.parametrize(
    ("ref", "code", "story"),
    [
        ("order#7", "bad_ref", "a stage cannot be called 'order#7', .*; call it 'order-7'"),
        ("#1.0", "bad_ref", "a stage cannot be called '#1.0'"),
        ("", "empty_ref", "must be a text, got ''"),
        (7, "empty_ref", "must be a text, got 7"),
    ],
)
def test_a_stage_of_a_body_that_cannot_be_called_so_is_refused(
    flows: Workflows, ref: Any, code: str, story: str
) -> None:
    with pytest.raises(WorkflowDefinitionError, match=story) as caught:
        flows.start(workflow(name="wrong")(lambda: charge({}, ref=ref)))
    assert caught.value.code == code


def test_a_stage_may_have_a_hash_in_its_name(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(workflow(name="hash")(lambda: charge({"id": 1}, ref="order#seven")))
    worker.run_once()
    assert run.result(0) == {"paid": 1}


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
            "several (2 sub-exceptions): ValueError: a; KeyError: 'b'",
        ),
        (
            ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("a")])]),
            "outer (1 sub-exception): ExceptionGroup: inner (1 sub-exception): ValueError: a",
        ),
        (FileNotFoundError(2, "gone", "caf\udce9.csv"), "[Errno 2] gone: 'caf\\udce9.csv'"),
        (ValueError("caf\udce9.csv\0"), "caf\N{REPLACEMENT CHARACTER}.csv\N{REPLACEMENT CHARACTER}"),
        (Speechless(), "it cannot say what it is"),
    ],
)
def test_what_a_task_raises_is_told_as_fully_as_it_can_be(
    flows: Workflows, worker: WorkflowWorker, error: Exception, said: str
) -> None:
    @task
    def fail() -> None:
        raise error

    run = flows.start(workflow(name="failing")(lambda: fail()))
    worker.run_once()
    assert (run.status, run.record.reason) == (S.TERMINAL, said)
    (kept,) = flows.workflow(run.id).stages[0].tasks
    assert kept.task_exception_details == {"type": type(error).__name__, "message": said}


def test_the_traceback_of_what_a_task_raised_is_logged_without_secrets(
    flows: Workflows, worker: WorkflowWorker, caplog: pytest.LogCaptureFixture
) -> None:
    def reach_the_bank() -> None:
        raise ValueError("password=hunter2 is wrong")

    @task
    def ask() -> None:
        reach_the_bank()

    run = flows.start(workflow(name="asking")(lambda: ask()))
    with caplog.at_level(logging.INFO, "holdfast.workflows"):
        worker.run_once()
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(f"workflow {run.id}, stage ask: attempt 1 has raised\nTraceback")
    assert "in reach_the_bank" in text
    assert "hunter2" not in text


def test_an_error_whose_traceback_cannot_be_written_is_logged_by_what_it_says(
    flows: Workflows, worker: WorkflowWorker, caplog: pytest.LogCaptureFixture
) -> None:
    @task
    def parse() -> None:
        raise SyntaxError("odd", ("file", 1, 1, 5))  # type: ignore[arg-type]  # as some parsers do

    run = flows.start(workflow(name="parsing")(lambda: parse()))
    with caplog.at_level(logging.INFO, "holdfast.workflows"):
        worker.run_once()
    assert run.status is S.TERMINAL
    assert "SyntaxError: odd" in caplog.text


def numbers() -> Iterator[int]:
    yield 1


async def more_numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("wrong", "story"),
    [
        (lambda: task(numbers), "functions that return what is stored; .*numbers.* yields"),
        (lambda: task(more_numbers), "functions that return what is stored; .*more_numbers.* yields"),
        (lambda: task(fulfil), "@task is for functions, got <workflow 'fulfil'>"),
        (lambda: task(guard=object())(print), "task 'print': guard must be the name of one"),
        (lambda: workflow(numbers), "@workflow is for plain functions"),
        (lambda: workflow(more_numbers), "@workflow is for plain functions"),
    ],
)
def test_what_can_be_no_task_or_workflow_is_refused_where_it_is_written(wrong: Callable[[], Any], story: str) -> None:
    with pytest.raises(ConfigurationError, match=story):
        wrong()


@pytest.mark.parametrize(
    ("wrong", "code", "story"),
    [
        (lambda flows: flows.register(print), "not_a_task", "print.* is no task; decorate a function with @task"),
        (lambda flows: flows.register(fulfil), "not_a_task", r"hold\.workflows\.add\(…\) makes a workflow known"),
        (lambda flows: flows.add(charge), "not_a_workflow", r"hold\.workflows\.register\(…\) makes a task known"),
        (lambda flows: flows.add("fulfil"), "not_a_workflow", "'fulfil' is no workflow; decorate a function"),
        (
            lambda flows: flows.register(charge, task(name="charge")(numbers_of)),
            "duplicate_task",
            r"two tasks 'charge', tests\.workflows\.test_functions:\d+ and tests\.workflows\.\w+:\d+; name one",
        ),
        (
            lambda flows: flows.start(workflow(name="none")(lambda: numbers_of())),
            "no_stages",
            "workflow 'none' calls no task; a step is a function with @task",
        ),
    ],
)
def test_what_is_no_task_or_workflow_is_told_what_to_do_instead(
    flows: Workflows, wrong: Callable[[Workflows], Any], code: str, story: str
) -> None:
    with pytest.raises(WorkflowDefinitionError, match=story) as caught:
        wrong(flows)
    assert caught.value.code == code


def numbers_of() -> list[int]:
    return [1]


def test_a_part_that_no_stored_result_can_have_is_refused_where_it_is_taken(flows: Workflows) -> None:
    with pytest.raises(TypeError, match=r"a part of <what 'charge' leaves> is named by .*, got slice\(0, 2, None\)"):
        flows.start(workflow(name="sliced")(lambda order: pack(charge(order)[0:2])), {})  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (lambda paid: ship(paid, b"box", paid), r"ship: args\[1\] is a bytes"),
        (lambda paid: ship(paid, box={"in": [b"box"]}, receipt={}), r"ship: box\.in\[0\] is a bytes"),
        (lambda paid: ship(paid, [paid, {"in": b"box"}], {}), r"ship: args\[1\]\[1\]\.in is a bytes"),
        (lambda paid: ship({7: paid}, "box", {}), r"ship: args\[0\] has the key 7; keys of stored data are texts"),
        (lambda paid: [paid, {"box": b"box"}], r"result\[1\]\.box is a bytes"),
        (lambda paid: b"box", "result is a bytes"),
    ],
)
def test_what_a_body_hands_on_and_is_not_json_is_named_by_its_place(
    flows: Workflows, body: Callable[[Any], Any], place: str
) -> None:
    with pytest.raises(TypeError, match=f"^{place}"):
        flows.start(workflow(name="odd")(lambda order: body(charge(order))), {"id": 1})
