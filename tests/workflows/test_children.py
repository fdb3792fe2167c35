"""Workflows inside workflows: their start and their end are steps of the one that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import TaskError, WorkflowDefinitionError
from holdfast.machine.workflow import WorkflowStatus as S
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.children import MOST_DEEP, SubWorkflow
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.records import ITEM
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.tasks.builtin import builtin_tasks
from holdfast.workflows.waiting import sleep, wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows


@task
def charge(order: dict[str, Any]) -> dict[str, Any]:
    return {"order": order, "paid": True}


@task
def ship(paid: Any) -> str:
    return f"shipped {paid['order']['id']}"


@workflow
def pay(order: dict[str, Any]) -> Any:
    return charge(order)


@workflow
def fulfil(order: dict[str, Any]) -> Any:
    paid = pay(order)
    return ship(paid)


@workflow
def approve(order: dict[str, Any]) -> Any:
    return wait_signal("approved")


@workflow
def patient(order: dict[str, Any]) -> Any:
    return approve(order)


@workflow
def grand(order: dict[str, Any]) -> Any:
    return patient(order)


def children_of(flows: Workflows, id: str) -> list[str]:
    return [one.id for one in flows.find(parent=id)]


def only_child(flows: Workflows, id: str) -> str:
    (child,) = children_of(flows, id)
    return child


def test_a_workflow_called_in_a_workflow_is_a_workflow_of_its_own(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(fulfil, {"id": 7, "kilos": 1.5, "tags": ["a", None]})
    worker.run_once()
    assert run.result(0) == "shipped 7"
    child = flows.workflow(only_child(flows, run.id))
    assert (child.name, child.status, child.parent_workflow_id) == ("pay", S.SUCCEEDED, run.id)
    assert child.context == {"order": {"id": 7, "kilos": 1.5, "tags": ["a", None]}}  # no type is lost
    assert {"child_started", "stage_resumed"} <= {entry.type for entry in flows.log(run.id)}


def test_no_worker_is_held_while_a_stage_waits_for_a_workflow(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    run = flows.start(patient, {})
    worker.run_once()
    assert flows.stages(run.id) == {"approve": S.SUSPENDED}
    clock.advance(10 * 86400)
    assert worker.run_once() == 0
    flows.signal(only_child(flows, run.id), "approved", {"by": "ann"})
    worker.run_once()
    assert run.result(0) == {"by": "ann"}


@task
def explode(order: Any) -> None:
    raise ValueError("no money")


def test_a_workflow_that_fails_fails_the_stage_that_started_it(flows: Workflows, worker: WorkflowWorker) -> None:
    @workflow
    def broke(order: Any) -> Any:
        return explode(order)

    @workflow
    def outer(order: Any) -> Any:
        return ship(broke(order))

    run = flows.start(outer, {"id": 1})
    worker.run_once()
    with pytest.raises(TaskError, match=r"workflow 'broke' .* is TERMINAL: no money"):
        run.result(0)
    left = flows.workflow(run.id).stage("broke").outputs["sub_workflow"]
    assert (left["status"], left["reason"], left["id"]) == ("TERMINAL", "no money", only_child(flows, run.id))


def test_a_cancelled_workflow_cancels_those_below_it(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    run = flows.start(grand, {})
    worker.run_once()
    child = only_child(flows, run.id)
    grandchild = only_child(flows, child)
    flows.cancel(run.id, "not wanted")
    worker.run_once()
    assert [flows.record(one).status for one in (run.id, child, grandchild)] == ["CANCELED"] * 3
    assert store.page(ITEM) == []


def test_a_paused_workflow_leaves_those_below_it_alone_and_takes_their_result_later(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    run = flows.start(patient, {})
    worker.run_once()
    flows.pause(run.id)
    flows.signal(only_child(flows, run.id), "approved", 1)
    worker.run_once()
    assert flows.record(only_child(flows, run.id)).status == "SUCCEEDED"
    assert run.status is S.PAUSED
    flows.resume(run.id)
    worker.run_once()
    assert run.result(0) == 1


def test_a_workflow_below_a_paused_one_can_be_cancelled(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(patient, {})
    worker.run_once()
    child = only_child(flows, run.id)
    flows.pause(child)
    flows.cancel(run.id)
    worker.run_once()
    assert flows.record(child).status == "CANCELED"


def test_a_stage_that_has_waited_long_enough_cancels_what_it_waited_for(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    @workflow
    def hasty(order: Any) -> Any:
        return patient(order, timeout=60)

    run = flows.start(hasty, {})
    worker.run_once()
    child = only_child(flows, run.id)
    clock.advance(61)
    worker.run_once()
    assert run.status is S.TERMINAL
    assert "came in time" in str(run.record.reason)
    assert flows.record(child).status == "CANCELED"
    assert flows.record(only_child(flows, child)).status == "CANCELED"  # the limit holds for all that is below


def test_a_workflow_that_nobody_waits_for_goes_its_own_way(flows: Workflows, worker: WorkflowWorker) -> None:
    @workflow
    def detach(order: Any) -> Any:
        return approve(order, wait=False)

    run = flows.start(detach, {})
    worker.run_once()
    child = run.result(0)
    assert child == only_child(flows, run.id)
    assert flows.record(child).status == "RUNNING"


def test_a_stage_that_is_restarted_starts_a_new_workflow(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(fulfil, {"id": 1})
    worker.run_once()
    flows.restart(run.id, "pay")
    worker.run_once()
    assert run.status is S.SUCCEEDED
    first, second = (flows.record(one) for one in children_of(flows, run.id))
    assert first.idempotency_key != second.idempotency_key


def test_a_stage_that_is_left_out_has_its_workflow_cancelled(flows: Workflows, worker: WorkflowWorker) -> None:
    run = flows.start(patient, {})
    worker.run_once()
    flows.skip(run.id, "approve")
    worker.run_once()
    assert run.status is S.SUCCEEDED
    assert flows.record(only_child(flows, run.id)).status == "CANCELED"


def test_a_retry_of_the_parent_resumes_the_workflow_that_failed(flows: Workflows, worker: WorkflowWorker) -> None:
    made: list[str] = []
    down = {"bank": True}

    @task
    def look(order: Any) -> str:
        made.append("look")
        return "seen"

    @task
    def book(seen: str) -> str:
        made.append("book")
        if down["bank"]:
            raise ValueError("the bank is down")
        return "booked"

    @workflow
    def banking(order: Any) -> Any:
        return book(look(order))

    @workflow
    def outer(order: Any) -> Any:
        return banking(order)

    run = flows.start(outer, {})
    worker.run_once()
    assert run.status is S.TERMINAL
    down["bank"] = False
    flows.retry(run.id)
    worker.run_once()
    assert run.result(0) == "booked"
    assert made == ["look", "book", "book"]
    assert len(children_of(flows, run.id)) == 1
    assert "child_resumed" in [entry.type for entry in flows.log(run.id)]


def test_a_retry_after_the_failed_workflow_was_retried_by_hand_takes_its_result(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    down = {"bank": True}

    @task
    def book(order: Any) -> str:
        if down["bank"]:
            raise ValueError("the bank is down")
        return "booked"

    @workflow
    def banking(order: Any) -> Any:
        return book(order)

    @workflow
    def outer(order: Any) -> Any:
        return banking(order)

    run = flows.start(outer, {})
    worker.run_once()
    down["bank"] = False
    flows.retry(only_child(flows, run.id))
    worker.run_once()
    assert run.status is S.TERMINAL  # it has ended, and is not changed behind anybody's back
    flows.retry(run.id)
    worker.run_once()
    assert run.result(0) == "booked"


def test_a_retry_starts_a_new_workflow_in_place_of_one_that_was_cancelled(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    run = flows.start(patient, {})
    worker.run_once()
    flows.cancel(only_child(flows, run.id))
    worker.run_once()
    assert run.status is S.TERMINAL
    flows.retry(run.id)
    worker.run_once()
    newest, old = flows.find(parent=run.id)
    assert (newest.status, old.status) == (S.RUNNING, S.CANCELED)
    flows.signal(newest.id, "approved", "yes")
    worker.run_once()
    assert run.result(0) == "yes"


def test_a_retry_of_what_failed_elsewhere_starts_a_new_workflow_for_a_stage_that_was_cut_off(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    down = {"bank": True}

    @task
    def book(paid: Any) -> str:
        if down["bank"]:
            raise ValueError("the bank is down")
        return "booked"

    @workflow
    def both(order: Any) -> Any:
        return [approve(order), book(wait_signal("paid"))]

    run = flows.start(both, {})
    worker.run_once()
    flows.signal(run.id, "paid")
    worker.run_once()
    assert flows.stages(run.id)["approve"] is S.CANCELED
    down["bank"] = False
    flows.retry(run.id)
    worker.run_once()
    newest, old = flows.find(parent=run.id)
    assert (newest.status, old.status) == (S.RUNNING, S.CANCELED)
    flows.signal(newest.id, "approved", "yes")
    worker.run_once()
    assert run.result(0) == ["yes", "booked"]


def test_a_workflow_that_starts_itself_without_end_is_stopped(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def again(number: int) -> Any:
        return SubWorkflow("endless", [number + 1])

    @workflow
    def endless(number: int) -> Any:
        return again(number)

    flows.add(endless)
    run = flows.start(endless, 0)
    worker.run_once()
    with pytest.raises(TaskError, match=f"{MOST_DEEP} is the limit"):
        run.result(0)
    assert flows.counts() == {S.TERMINAL: MOST_DEEP + 1}


def test_a_task_can_ask_for_a_workflow_by_its_name(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def choose(order: dict[str, Any]) -> Any:
        return SubWorkflow("pay", [order])

    @workflow
    def outer(order: dict[str, Any]) -> Any:
        return ship(choose(order))

    flows.add(pay)
    run = flows.start(outer, {"id": 3})
    worker.run_once()
    assert run.result(0) == "shipped 3"


@pytest.mark.parametrize("wrong", [lambda: SubWorkflow(pay, [1]), lambda: SubWorkflow("pay", "monday")])  # type: ignore[arg-type]
def test_a_sub_workflow_is_asked_for_by_its_name_with_a_list_of_arguments(
    flows: Workflows, worker: WorkflowWorker, wrong: Callable[[], SubWorkflow]
) -> None:
    @task
    def choose() -> Any:
        return wrong()

    @workflow
    def outer() -> Any:
        return choose()

    flows.add(pay)
    run = flows.start(outer)
    worker.run_once()
    assert run.status is S.TERMINAL
    assert str(run.record.reason).startswith("SubWorkflow takes the name that a workflow is known by, and a list")


def test_a_workflow_that_nobody_knows_fails_the_task_with_what_there_is(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @task
    def choose() -> Any:
        return SubWorkflow("pya")

    @workflow
    def outer() -> Any:
        return choose()

    flows.add(pay)
    run = flows.start(outer)
    worker.run_once()
    with pytest.raises(TaskError, match="no workflow 'pya' is known here; there are pay"):
        run.result(0)


def test_arguments_that_do_not_fit_are_refused_when_the_parent_starts(flows: Workflows) -> None:
    @workflow
    def outer() -> Any:
        return pay(1, 2)  # type: ignore[call-arg]  # that is the point

    with pytest.raises(WorkflowDefinitionError, match="too many positional"):
        flows.start(outer)


def test_a_worker_leaves_alone_what_starts_a_workflow_that_it_does_not_know(
    flows: Workflows, store: Store, clock: ManualClock, worker: WorkflowWorker
) -> None:
    stranger = Workflows(store, clock=clock)
    stranger.register(ship)
    run = flows.start(fulfil, {"id": 1})
    other = stranger.worker()
    assert other.run_once() == 0
    other.close()
    worker.run_once()
    assert run.status is S.SUCCEEDED


def stage_of(ref: str, **context: Any) -> StageExecution:
    tasks = [TaskExecution.create("start", "sub_workflow")]
    return StageExecution.create("sub_workflow", ref, ref, tasks=tasks, context=context)


@pytest.fixture
def model_flows(flows: Workflows) -> Workflows:
    for name, one in builtin_tasks().items():
        flows.registry.register(name, one)
    flows.add(pay)
    return flows


def test_a_stage_of_a_model_starts_a_workflow(model_flows: Workflows, worker: WorkflowWorker) -> None:
    stage = stage_of("paying", workflow="pay", input_from={"order": "the_order"})
    model = Workflow.create("shop", "outer", [stage], context={"the_order": {"id": 4}})
    stored = Workflow.from_document(model.to_document())  # the same as JSON
    run = model_flows.start(stored)
    worker.run_once()
    assert run.status is S.SUCCEEDED
    left = model_flows.workflow(run.id).stage("paying").outputs
    assert left["result"] == {"order": {"id": 4}, "paid": True}
    assert left["sub_workflow"]["status"] == "SUCCEEDED"


def test_a_model_that_is_started_by_a_stage_leaves_what_its_last_stages_left(
    model_flows: Workflows, worker: WorkflowWorker
) -> None:
    model_flows.registry.register("weigh", lambda stage: {"kilos": stage.context["kilos"] * 2})

    def weighing(kilos: int) -> Workflow:
        tasks = [TaskExecution.create("weigh", "weigh")]
        stage = StageExecution.create("weigh", "weigh", "weigh", tasks=tasks)
        return Workflow.create("shop", "weighing", [stage], context={"kilos": kilos})

    model_flows.add(weighing)
    run = model_flows.start(Workflow.create("shop", "outer", [stage_of("a", workflow="weighing", input=[21])]))
    worker.run_once()
    assert model_flows.workflow(run.id).stage("a").outputs["result"] == {"kilos": 42}


def test_a_model_that_starts_what_nobody_knows_is_refused_at_once(model_flows: Workflows) -> None:
    with pytest.raises(WorkflowDefinitionError, match="no workflow 'pya' is known here; there are pay"):
        model_flows.start(Workflow.create("shop", "outer", [stage_of("a", workflow="pya")]))


@pytest.mark.parametrize(
    ("context", "story"),
    [
        ({}, "needs 'workflow'"),
        ({"workflow": "pay", "input": 7}, "input must be a mapping"),
        ({"workflow": "pay", "input_from": {"order": "nowhere"}}, "'nowhere'"),
        ({"workflow": "pay", "wait": "no"}, "wait must be true or false"),
        ({"workflow": "pay", "input": {"order": 1}, "timeout": -1}, "timeout must be"),
    ],
)
def test_settings_of_a_sub_workflow_that_cannot_be_say_so(
    model_flows: Workflows, worker: WorkflowWorker, context: dict[str, Any], story: str
) -> None:
    run = model_flows.start(Workflow.create("shop", "outer", [stage_of("a", **context)]))
    worker.run_once()
    assert run.status is S.TERMINAL
    assert story in str(run.record.reason)


def test_many_workflows_of_one_parent_end_in_any_order(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], clock: ManualClock
) -> None:
    @workflow
    def nap(seconds: int) -> Any:
        return charge({"id": seconds}, after=sleep(seconds))

    @workflow
    def crowd(number: int) -> Any:
        return [nap(number - n) for n in range(number)]

    run = flows.start(crowd, 20)
    worker = worker_of()
    for _ in range(21):
        worker.run_once()
        clock.advance(1)
    assert [one["order"]["id"] for one in run.result(0)] == [20 - n for n in range(20)]


@pytest.mark.parametrize(
    ("fields", "below", "above"),
    [
        ({"enabled": False}, S.SUCCEEDED, S.SUCCEEDED),
        ({"mi_config": MultiInstanceConfig(count_from_context="unknown")}, S.TERMINAL, S.TERMINAL),
    ],
)
def test_the_end_of_a_workflow_that_ends_as_soon_as_it_begins_is_heard(
    flows: Workflows, worker: WorkflowWorker, store: Store, fields: dict[str, Any], below: S, above: S
) -> None:
    flows.registry.register("sub_workflow", builtin_tasks()["sub_workflow"])
    flows.registry.register("nothing", lambda stage: None)

    def brief() -> Workflow:
        tasks = [TaskExecution.create("nothing", "nothing")]
        return Workflow.create("shop", "brief", [StageExecution.create("nothing", "a", "a", tasks=tasks, **fields)])

    flows.add(brief)
    tasks = [TaskExecution.create("sub_workflow", "sub_workflow")]
    waits = StageExecution.create("sub_workflow", "a", "a", tasks=tasks, context={"workflow": "brief"})
    run = flows.start(Workflow.create("shop", "waits", [waits]))
    worker.run_once()
    assert [one.status for one in flows.find(parent=run.id)] == [below]
    assert (run.status, store.page(ITEM)) == (above, [])
