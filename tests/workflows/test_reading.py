"""Looking at workflows: lists, one workflow as a model, its log, and how it stood at any point of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import TransientError, WorkflowDefinitionError, WorkflowNotFoundError
from holdfast.machine.graph import JoinType, SkipCause, SplitType
from holdfast.machine.workflow import COMPLETE, WorkflowStatus
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows import starting
from holdfast.workflows.assembly import REASON, WAITS_FOR
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.picture import picture
from holdfast.workflows.records import STAGE
from holdfast.workflows.result import TaskResult
from holdfast.workflows.sketch import sketch
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows

S = WorkflowStatus


@task
def greet(name: str) -> str:
    return f"hello {name}"


@workflow
def greeting(name: str) -> Any:
    return greet(name)


@workflow
def approval(name: str) -> Any:
    return greet(name, after=[wait_signal("go")])  # type: ignore[call-arg]


class Told:
    """Tasks that answer what they are told to, and take a while."""

    def __init__(self, flows: Workflows, clock: ManualClock) -> None:
        self.answers: dict[str, list[TaskResult]] = {}
        self._clock = clock
        flows.registry.register("told", self.run)

    def run(self, stage: StageExecution) -> TaskResult:
        self._clock.advance(2)
        waiting = self.answers.get(stage.ref_id, [])
        return waiting.pop(0) if waiting else TaskResult.success({stage.ref_id: 1})


@pytest.fixture
def told(flows: Workflows, clock: ManualClock) -> Told:
    return Told(flows, clock)


def stage(ref: str, *before: str, tasks: int = 1, **fields: Any) -> StageExecution:
    made = [TaskExecution.create(f"step-{at}", "told") for at in range(tasks)]
    return StageExecution.create("told", ref, ref, tasks=made, requisite_stage_ref_ids=set(before), **fields)


def start(flows: Workflows, *stages: StageExecution, **fields: Any) -> str:
    return flows.start(Workflow.create("shop", "made", stages, **fields)).id


def test_workflows_are_found_newest_first_by_status_name_application_and_time(
    flows: Workflows, worker: WorkflowWorker, told: Told, clock: ManualClock
) -> None:
    first = flows.start(greeting, "ann").id
    worker.run_once()
    clock.advance(60)
    noon = clock.wall()
    second, third = flows.start(approval, "bob").id, start(flows, stage("a"))

    def ids(**where: Any) -> list[str]:
        return [one.id for one in flows.find(**where)]

    assert ids() == [third, second, first]
    assert (ids(status=S.SUCCEEDED), ids(status=[S.RUNNING, "SUCCEEDED"])) == ([first], [third, second, first])
    assert (ids(name="greeting"), ids(application="shop")) == ([first], [third])
    assert (ids(since=noon), ids(until=noon - timedelta(seconds=1))) == ([third, second], [first])
    assert flows.counts() == {S.SUCCEEDED: 1, S.RUNNING: 2}


def test_a_page_goes_on_where_the_last_one_ended(flows: Workflows) -> None:
    started = [flows.start(greeting, str(number)).id for number in range(5)]  # all at the same time
    seen: list[str] = []
    after = None
    while page := flows.find(limit=2, after=after):
        seen += [one.id for one in page]
        after = page[-1].cursor
    assert seen == started[::-1]


@pytest.mark.parametrize("wrong", [{"status": "DONE"}, {"after": "what"}, {"after": "12.\0"}])
def test_what_is_no_status_or_cursor_is_refused(flows: Workflows, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is no"):
        flows.find(**wrong)


def test_a_workflow_is_shown_as_its_model_with_times_outputs_and_attempts(
    flows: Workflows, worker: WorkflowWorker, told: Told
) -> None:
    told.answers["b"] = [TaskResult.success(), TaskResult.terminal("no paper")]
    id = start(
        flows,
        stage("a", context={"n": 1}),
        stage("b", "a", tasks=3),
        stage("c", "b"),
        context={"order": 7},
        origin="web",
    )
    worker.run_once()
    seen = flows.workflow(id)
    a, b, c = seen.stages
    assert (seen.status, seen.name, seen.application, seen.context, seen.origin) == (
        S.TERMINAL, "made", "shop", {"order": 7}, "web",
    )  # fmt: skip
    assert (a.status, a.context, a.outputs, a.version) == (S.SUCCEEDED, {"n": 1}, {"a": 1}, 2)
    assert a.start_time is not None
    assert a.end_time == a.start_time + timedelta(seconds=2)
    assert [one.status for one in b.tasks] == [S.SUCCEEDED, S.TERMINAL, S.SKIPPED]
    assert [one.attempt for one in b.tasks] == [1, 1, 0]
    assert [one.start_time for one in b.tasks] == [b.start_time, b.tasks[0].end_time, None]
    assert (b.status, b.engine_state[REASON]) == (S.TERMINAL, "no paper")
    assert b.tasks[1].task_exception_details["message"] == "no paper"
    assert (c.status, c.skip_cause) == (S.SKIPPED, SkipCause.UPSTREAM_FAILED)
    assert (seen.end_time, seen.version) == (b.end_time, 4)


def test_a_workflow_of_functions_is_a_model_too(flows: Workflows) -> None:
    id = flows.start(approval, "ann", idempotency_key="ann-1").id
    seen = flows.workflow(id)
    waits, last = seen.stages
    assert (seen.context, seen.idempotency_key, len(seen.code_version or "")) == ({"name": "ann"}, "ann-1", 12)
    assert (last.ref_id, last.requisite_stage_ref_ids, last.tasks[0].implementing_class) == (
        "greet", {"wait_signal"}, "greet",
    )  # fmt: skip
    assert (waits.status, last.status, last.version, last.id) == (S.RUNNING, S.NOT_STARTED, 0, f"{id}.greet")


def test_a_task_that_is_under_way_is_where_its_stage_is(flows: Workflows, worker: WorkflowWorker) -> None:
    id = flows.start(approval, "ann").id
    assert flows.workflow(id).stage("wait_signal").tasks[0].status is S.RUNNING
    worker.run_once()
    seen = flows.workflow(id).stage("wait_signal")
    assert (seen.tasks[0].status, seen.engine_state[WAITS_FOR]) == (S.SUSPENDED, "go")


def test_what_is_to_be_done_and_when_is_shown(flows: Workflows, worker: WorkflowWorker, clock: ManualClock) -> None:
    @task
    def shaky() -> None:
        raise TransientError("not yet", retry_after=60)

    @workflow
    def tries() -> Any:
        return shaky()

    id = flows.start(tries).id
    [first] = flows.work(id)
    assert (first.stage, first.type, first.attempt, first.owner) == ("shaky", "shaky", 1, None)
    worker.run_once()
    [again] = flows.work(id)
    assert (again.attempt, again.due_at) == (2, clock.wall() + timedelta(seconds=60))
    tried = flows.workflow(id).stage("shaky").tasks[0]
    assert (tried.attempt, tried.task_exception_details["message"]) == (1, "not yet")
    flows.cancel(id)
    assert flows.work(id) == []


def test_the_instances_of_a_stage_are_shown_as_parts_of_it(
    flows: Workflows, worker: WorkflowWorker, told: Told
) -> None:
    id = start(flows, stage("many", mi_config=MultiInstanceConfig(count=2)), stage("z", "many"))
    worker.run_once()
    seen = flows.workflow(id)
    parts = [one for one in seen.stages if one.parent_stage_id == seen.stage("many").id]
    assert [(one.ref_id, one.status, one.tasks[0].attempt) for one in parts] == [
        ("many#1.0", S.SUCCEEDED, 1), ("many#1.1", S.SUCCEEDED, 1),
    ]  # fmt: skip
    assert [one.ref_id for one in seen.top_level_stages()] == ["many", "z"]
    assert "many#1.1" in picture(seen)
    assert "many#1.1" in sketch(seen)


def test_who_cancelled_a_workflow_and_why_is_shown(flows: Workflows) -> None:
    id = flows.start(approval, "ann").id
    flows.cancel(id, "changed my mind", by="ann")
    seen = flows.workflow(id)
    assert (seen.is_canceled, seen.canceled_by, seen.cancellation_reason) == (True, "ann", "changed my mind")


def test_the_log_is_numbered_by_transaction_and_read_in_pages(flows: Workflows, worker: WorkflowWorker) -> None:
    id = flows.start(approval, "ann").id
    worker.run_once()
    flows.signal(id, "go")
    worker.run_once()
    whole = flows.log(id)
    assert [one.type for one in whole if one.seq == 1] == ["workflow_started", "stage_started"]
    assert (whole[-1].type, whole[-1].facts["status"]) == ("workflow_ended", "SUCCEEDED")
    assert whole[-1].seq == flows.record(id).version
    assert sorted({one.seq for one in whole}) == list(range(1, whole[-1].seq + 1))
    parts = flows.log(id, limit=1)
    while more := flows.log(id, after=parts[-1].seq, limit=1):
        parts += more
    assert parts == whole


def test_what_is_not_there_is_said(flows: Workflows) -> None:
    for ask in (flows.workflow, flows.log, lambda id: flows.state_at(id, 0)):
        with pytest.raises(WorkflowNotFoundError, match="nope"):
            ask("nope")
    id = flows.start(greeting, "ann").id
    with pytest.raises(ValueError, match="0 to 1; there is no 2"):
        flows.state_at(id, 2)


def test_a_workflow_whose_id_is_refused_by_now_is_read_and_steered_as_before(flows: Workflows, store: Store) -> None:
    wanted = replace(flows.wanted(greeting, ("ann",), {}), id="orders/7")
    assert starting.start(store, flows.blueprints, wanted) == "orders/7"
    assert (flows.workflow("orders/7").id, flows.log("orders/7")[0].seq) == ("orders/7", 1)
    assert flows.cancel("orders/7").status is WorkflowStatus.CANCELED


def test_before_its_first_transaction_nothing_of_a_workflow_had_started(flows: Workflows) -> None:
    state = flows.state_at(flows.start(greeting, "ann").id, 0)
    assert (state.status, state.at, state.stages["greet"].status) == (S.NOT_STARTED, None, S.NOT_STARTED)


class Meddled:
    """A store in which something happens just before stages are read for the first time."""

    def __init__(self, store: Store, meddle: Callable[[], object]) -> None:
        self._store = store
        self._meddle: Callable[[], object] | None = meddle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def page(self, kind: Any, *args: Any, **options: Any) -> Any:
        if kind is STAGE and self._meddle is not None:
            meddle, self._meddle = self._meddle, None
            meddle()
        return self._store.page(kind, *args, **options)


def test_a_workflow_is_shown_as_it_was_at_one_moment(store: Store, flows: Workflows) -> None:
    id = flows.start(approval, "ann").id
    meddled = Workflows(Meddled(store, lambda: flows.cancel(id)))  # type: ignore[arg-type]  # the verbs are the store's
    seen = meddled.workflow(id)
    assert (seen.status, seen.stage("wait_signal").status) == (S.CANCELED, S.CANCELED)


class Witness:
    """A store that notes, after every commit, where each workflow and its stages stand."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seen: dict[tuple[str, int], dict[str, tuple[WorkflowStatus, int]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Any, **options: Any) -> None:
        self._store.commit(changes, **options)
        flows = Workflows(self._store)
        for one in flows.find():
            seen = flows.workflow(one.id)
            stages = {stage.ref_id: (stage.status, stage.incarnation) for stage in seen.stages}
            self.seen.setdefault((one.id, seen.version), {"": (one.status, 1), **stages})


def _jumping(told: Told) -> list[StageExecution]:
    told.answers["c"] = [TaskResult.jump_to("a"), TaskResult.success(), TaskResult.success()]
    return [stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "c")]


def _passing_over(told: Told) -> list[StageExecution]:
    told.answers["a"] = [TaskResult.jump_to("d")]
    return [stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "c")]


def _merging(told: Told) -> list[StageExecution]:
    return [stage("a"), stage("b"), stage("c", "a", "b", join_type=JoinType.MULTI_MERGE), stage("d", "c")]


def _merging_parts(told: Told) -> list[StageExecution]:
    whole = stage("c", "a", "b", join_type=JoinType.MULTI_MERGE)
    first = stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    return [stage("a"), stage("b"), whole, first]


def _in_instances(told: Told) -> list[StageExecution]:
    return [stage("a"), stage("many", "a", mi_config=MultiInstanceConfig(count=3)), stage("z", "many")]


def _splitting(told: Told) -> list[StageExecution]:
    conditions = {"b": "a > 5", "c": "a <= 5"}
    split = stage("a", split_type=SplitType.OR, split_conditions=conditions)
    return [split, stage("b", "a"), stage("c", "a"), stage("d", "b", "c", join_type=JoinType.OR)]


def _failing(told: Told) -> list[StageExecution]:
    told.answers |= {"a": [TaskResult.terminal("no")], "w": [TaskResult.suspend()]}
    return [stage("w"), stage("a"), stage("b", "a")]


def _waiting_in_vain(told: Told) -> list[StageExecution]:
    told.answers["a"] = [TaskResult.wait_signal("go", timeout=5, on_timeout=S.SKIPPED)]
    return [stage("a", tasks=2), stage("b", "a")]


def _of_parts(told: Told) -> list[StageExecution]:
    whole = stage("whole", continue_on_failure=True)
    told.answers["whole"] = [TaskResult.terminal("no")]
    first = stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    sorry = stage("sorry", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_ON_FAILURE)
    return [whole, first, sorry, stage("next", "whole")]


@pytest.mark.parametrize(
    "make",
    [
        _jumping,
        _passing_over,
        _merging,
        _merging_parts,
        _in_instances,
        _splitting,
        _failing,
        _waiting_in_vain,
        _of_parts,
    ],
)
def test_the_log_tells_where_everything_stood_at_every_number(
    store: Store, clock: ManualClock, make: Callable[[Told], list[StageExecution]]
) -> None:
    witness = Witness(store)
    flows = Workflows(witness, clock=clock)  # type: ignore[arg-type]  # the verbs are the store's
    told = Told(flows, clock)
    worker = flows.worker()
    id = start(flows, *make(told))
    for _ in range(3):
        worker.run_once()
        clock.advance(10)
    worker.close()
    assert flows.record(id).status in COMPLETE
    _check_past(witness, flows, id)


def test_the_log_tells_of_pauses_and_restarts_too(store: Store, clock: ManualClock) -> None:
    witness = Witness(store)
    flows = Workflows(witness, clock=clock)  # type: ignore[arg-type]  # the verbs are the store's
    told = Told(flows, clock)
    worker = flows.worker()
    told.answers["whole"] = [TaskResult.terminal("no")]
    whole = stage("whole", "a")
    first = stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    id = start(flows, stage("a"), whole, first, stage("next", "whole"))
    flows.pause(id, by="ann", reason="lunch")
    assert flows.workflow(id).paused is not None
    assert flows.state_at(id, flows.record(id).version).status is S.PAUSED
    flows.resume(id)
    worker.run_once()
    assert flows.record(id).status == S.TERMINAL
    flows.retry(id, by="ann")
    worker.run_once()
    worker.close()
    assert flows.record(id).status == S.SUCCEEDED
    _check_past(witness, flows, id)


def _check_past(witness: Witness, flows: Workflows, id: str) -> None:
    """The log says of every number what the records said then."""
    assert len(witness.seen) == flows.record(id).version
    for (_, seq), expected in witness.seen.items():
        state = flows.state_at(id, seq)
        stages = {ref: (one.status, one.incarnation) for ref, one in state.stages.items()}
        assert {"": (state.status, 1), **stages} == expected, f"at {seq}"


def test_a_workflow_that_was_made_known_is_started_by_its_name(flows: Workflows, worker: WorkflowWorker) -> None:
    flows.add(greeting)
    run = flows.start("greeting", name="ann")
    worker.run_once()
    assert run.result(0) == "hello ann"
    with pytest.raises(WorkflowDefinitionError, match=r"'greet' is known here; there are greeting"):
        flows.start("greet")
    with pytest.raises(WorkflowDefinitionError, match="two workflows"):
        flows.add(approval, "greeting")


def test_a_function_that_makes_a_workflow_can_be_known_too(
    flows: Workflows, worker: WorkflowWorker, told: Told
) -> None:
    @flows.add
    def made(ref: str) -> Workflow:
        return Workflow.create("shop", "made", [stage(ref)])

    run = flows.start("made", ref="x", idempotency_key="once")
    assert flows.start("made", ref="x", idempotency_key="another").id != run.id
    worker.run_once()
    assert flows.workflow(run.id).stage("x").status is S.SUCCEEDED
