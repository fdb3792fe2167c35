"""Workflows of a pipeline with a limit: so many run at once, the others wait in line, and nobody is forgotten."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.backends.memory import MemoryStore
from holdfast.errors import InvalidStateTransitionError, WorkflowDefinitionError, WorkflowNotFoundError
from holdfast.machine.workflow import WorkflowStatus as S
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.messages import StartWorkflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.records import ITEM, PIPELINE, WAITING, WORKFLOW
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows


@task
def fail_if(bad: Any) -> Any:
    if bad == "fail":
        raise ValueError("it is bad")
    return bad


@workflow(limit=2)
def two(number: int) -> Any:
    return fail_if(wait_signal("go"))


@workflow(limit=1, keep_waiting=False)
def newest(number: int) -> Any:
    return wait_signal("go")


@pytest.fixture
def flows(flows: Workflows) -> Workflows:
    flows.registry.register("hold", lambda stage: None)
    return flows


def statuses(*runs: Any) -> list[str]:
    return [str(run.status) for run in runs]


def running(store: Store, pipeline: str = "two") -> int:
    record = store.get(PIPELINE, [pipeline])[0]
    assert record is not None
    return record.running


def test_what_is_beyond_the_limit_waits_in_line(flows: Workflows, store: Store) -> None:
    runs = [flows.start(two, n) for n in range(5)]
    assert statuses(*runs) == ["RUNNING", "RUNNING", "BUFFERED", "BUFFERED", "BUFFERED"]
    assert [flows.place(run.id) for run in runs] == [None, None, 1, 2, 3]
    assert flows.workflow(runs[2].id).max_concurrent_executions == 2
    assert [entry.type for entry in flows.log(runs[2].id)] == ["workflow_buffered"]
    assert flows.state_at(runs[2].id, 1).status is S.BUFFERED


@pytest.mark.parametrize("end", ["succeed", "fail", "cancel", "skip"])
def test_whoever_ends_lets_the_next_one_in_line_begin(
    flows: Workflows, worker: WorkflowWorker, store: Store, end: str
) -> None:
    runs = [flows.start(two, n) for n in range(4)]
    worker.run_once()
    if end == "cancel":
        flows.cancel(runs[0].id)
    elif end == "skip":
        flows.skip(runs[0].id, "wait_signal")
        worker.run_once()
    else:
        flows.signal(runs[0].id, "go", end)
        worker.run_once()
    assert runs[0].status.is_complete
    assert statuses(*runs[1:]) == ["RUNNING", "RUNNING", "BUFFERED"]
    assert running(store) == 2
    worker.run_once()
    for run in runs[1:]:
        flows.signal(run.id, "go", "ok")
        worker.run_once()
    assert all(run.status.is_complete for run in runs)
    assert running(store) == 0
    assert store.page(WAITING) == []
    assert store.page(ITEM) == []


def test_many_that_end_in_one_commit_let_as_many_begin(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    @task
    def step(number: int) -> int:
        return number

    @workflow(limit=3, pipeline="quick")
    def quick(number: int) -> Any:
        return step(number)

    runs = [flows.start(quick, n) for n in range(30)]
    worker.run_once()
    assert [run.result(0) for run in runs] == list(range(30))
    assert running(store, "quick") == 0
    starts = [flows.record(run.id).started_at for run in runs]
    assert starts == sorted(starts)


def test_one_that_waits_can_be_cancelled_and_takes_no_slot_with_it(flows: Workflows, store: Store) -> None:
    runs = [flows.start(two, n) for n in range(4)]
    flows.cancel(runs[2].id, "not wanted")
    assert statuses(*runs) == ["RUNNING", "RUNNING", "CANCELED", "BUFFERED"]
    assert S.NOT_STARTED not in {flows.stages(runs[2].id)[ref] for ref in ("wait_signal", "fail_if")}
    flows.cancel(runs[0].id)
    assert statuses(*runs) == ["CANCELED", "RUNNING", "CANCELED", "RUNNING"]
    assert (running(store), store.page(WAITING)) == (2, [])


def test_one_that_waits_can_be_neither_paused_nor_resumed(flows: Workflows) -> None:
    runs = [flows.start(two, n) for n in range(3)]
    for act in (flows.pause, flows.resume):
        with pytest.raises(InvalidStateTransitionError):
            act(runs[2].id)
    assert runs[2].status is S.BUFFERED


def test_what_is_said_to_one_that_waits_holds_when_it_begins(flows: Workflows, worker: WorkflowWorker) -> None:
    runs = [flows.start(two, n) for n in range(4)]
    flows.skip(runs[2].id, "wait_signal")
    flows.signal(runs[3].id, "go", "early")
    for run in runs[:2]:
        flows.cancel(run.id)
    worker.run_once()
    assert flows.stages(runs[2].id) == {"wait_signal": S.SKIPPED, "fail_if": S.SUCCEEDED}
    assert runs[3].result(0) == "early"


def test_a_paused_one_keeps_its_slot(flows: Workflows, worker: WorkflowWorker) -> None:
    runs = [flows.start(two, n) for n in range(3)]
    worker.run_once()
    flows.pause(runs[0].id)
    assert runs[2].status is S.BUFFERED


def test_a_retry_waits_in_line_like_any_other(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    runs = [flows.start(two, n) for n in range(3)]
    worker.run_once()
    flows.signal(runs[0].id, "go", "fail")
    worker.run_once()
    assert statuses(*runs) == ["TERMINAL", "RUNNING", "RUNNING"]
    flows.retry(runs[0].id)
    assert runs[0].status is S.BUFFERED
    assert worker.run_once() == 0
    flows.cancel(runs[1].id)
    assert (runs[0].status, running(store)) == (S.RUNNING, 2)
    worker.run_once()
    assert runs[0].status is S.TERMINAL  # the signal was bad, and still is
    assert "workflow_admitted" in [entry.type for entry in flows.log(runs[0].id)]
    assert running(store) == 1


def test_a_retry_that_waits_can_be_cancelled(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    runs = [flows.start(two, n) for n in range(3)]
    worker.run_once()
    flows.signal(runs[0].id, "go", "fail")
    worker.run_once()
    flows.retry(runs[0].id)
    flows.cancel(runs[0].id)
    assert (runs[0].status, running(store), store.page(WAITING)) == (S.CANCELED, 2, [])
    assert S.BUFFERED not in flows.stages(runs[0].id).values()


def test_a_retry_with_room_takes_a_slot(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    run = flows.start(two, 0)
    worker.run_once()
    flows.signal(run.id, "go", "fail")
    worker.run_once()
    assert running(store) == 0
    flows.retry(run.id)
    assert (run.status, running(store)) == (S.RUNNING, 1)


def test_without_keep_waiting_only_the_newest_begins(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    runs = [flows.start(newest, n) for n in range(4)]
    worker.run_once()
    flows.signal(runs[0].id, "go")
    worker.run_once()
    assert statuses(*runs) == ["SUCCEEDED", "CANCELED", "CANCELED", "RUNNING"]
    assert runs[1].record.reason == "a newer one of its pipeline goes first"
    assert (running(store, "newest"), store.page(WAITING)) == (1, [])


def test_a_raised_limit_lets_those_begin_who_wait_longest(flows: Workflows, store: Store) -> None:
    runs = [flows.start(two, n) for n in range(6)]
    flows.start_waiting("two", limit=4)
    assert statuses(*runs) == ["RUNNING"] * 4 + ["BUFFERED"] * 2
    flows.start_waiting("two", limit=1)  # who runs goes on
    flows.cancel(runs[0].id)
    assert statuses(*runs[1:]) == ["RUNNING"] * 3 + ["BUFFERED"] * 2


def test_a_new_one_does_not_overtake_those_who_wait(flows: Workflows) -> None:
    def limited(limit: int) -> Any:
        return flows.start(model(limit))

    first, second = limited(1), limited(1)
    third = limited(2)  # a higher limit, whose room belongs to the second
    assert statuses(first, second, third) == ["RUNNING", "RUNNING", "BUFFERED"]
    assert statuses(limited(4), third) == ["RUNNING", "RUNNING"]


def test_start_waiting_of_a_pipeline_without_limit_says_so(flows: Workflows) -> None:
    with pytest.raises(WorkflowNotFoundError, match="'nothing'"):
        flows.start_waiting("nothing")


def test_eight_threads_that_start_at_once_never_exceed_the_limit(flows: Workflows, store: Store) -> None:
    barrier = threading.Barrier(8)

    def go(number: int) -> None:
        barrier.wait()
        for n in range(3):
            flows.start(two, 10 * number + n)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.tally(WORKFLOW, ("status",)) == {("RUNNING",): 2, ("BUFFERED",): 22}
    assert (running(store), len(store.page(WAITING))) == (2, 22)


def model(limit: int, **fields: Any) -> Workflow:
    stage = StageExecution.create("wait", "wait", "wait", tasks=[TaskExecution.create("wait", "hold")])
    fields = {"pipeline_config_id": "models", "max_concurrent_executions": limit} | fields
    return Workflow.create("shop", "model", [stage], **fields)


def test_a_model_says_its_limit_by_its_fields(flows: Workflows) -> None:
    first = flows.start(model(0, is_limit_concurrent=True))
    second = flows.start(model(0, is_limit_concurrent=True))
    alone = flows.start(model(0))
    assert statuses(first, second, alone) == ["RUNNING", "BUFFERED", "RUNNING"]
    shown = flows.workflow(second.id)
    assert (shown.is_limit_concurrent, shown.max_concurrent_executions, shown.pipeline_config_id) == (True, 1, "models")


def test_one_that_waits_too_long_is_cancelled_when_its_turn_comes(flows: Workflows, clock: ManualClock) -> None:
    first = flows.start(model(1))
    late = flows.start(model(1, start_time_expiry=clock.wall() + timedelta(hours=1)))
    last = flows.start(model(1))
    clock.advance(7200)
    flows.cancel(first.id)
    assert statuses(late, last) == ["CANCELED", "RUNNING"]
    assert late.record.reason == "it could not start in time"


def test_one_that_is_too_late_already_takes_no_slot(flows: Workflows) -> None:
    late = flows.start(model(1, start_time_expiry=datetime(2000, 1, 1, tzinfo=UTC)))
    assert statuses(late, flows.start(model(1))) == ["CANCELED", "RUNNING"]


@pytest.mark.parametrize("limit", [0, -1, True, "3", 1.5])
def test_what_is_no_limit_is_refused_at_once(limit: Any) -> None:
    with pytest.raises(WorkflowDefinitionError, match=r"limit.* at least 1"):
        workflow(limit=limit)(lambda: None)


def test_a_limit_of_nothing_is_refused(flows: Workflows) -> None:
    with pytest.raises(WorkflowDefinitionError, match="no pipeline_config_id"):
        flows.start(model(3, pipeline_config_id=None))
    with pytest.raises(WorkflowDefinitionError, match="no limit"):
        workflow(pipeline="x")(lambda: None)


def test_a_sub_workflow_waits_in_line_too(flows: Workflows, worker: WorkflowWorker, store: Store) -> None:
    @workflow
    def outer(number: int) -> Any:
        return two(number)

    for number in range(4):
        flows.start(outer, number)
    worker.run_once()
    assert store.tally(WORKFLOW, ("status",)) == {("RUNNING",): 6, ("BUFFERED",): 2}
    buffered = flows.find(status="BUFFERED")[0]
    flows.cancel(str(buffered.parent))
    worker.run_once()
    assert flows.record(buffered.id).status == "CANCELED"
    for one in flows.find(name="two", status="RUNNING"):
        flows.signal(one.id, "go", 1)
    worker.run_once()
    assert running(store) == 1
    assert store.page(WAITING) == []


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "cancel", "succeed", "fail", "retry", "pause", "resume", "limit"]),
        st.integers(0, 5),
    ),
    max_size=30,
)


@given(acts=ACTS)
@settings(max_examples=60, deadline=None)
def test_whatever_is_done_the_line_is_kept(acts: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    flows = Workflows(store, clock=clock)
    worker = flows.worker()
    runs: list[Any] = []
    most = 2

    def chosen(number: int, *wanted: S) -> Any:
        found = [run for run in runs if run.status in wanted]
        return found[number % len(found)] if found else None

    for act, number in acts:
        if act == "start":
            runs.append(flows.start(two, number))
            most = 2  # the limit of who was started last
        elif act == "limit" and runs:
            most = 1 + number % 3
            flows.start_waiting("two", limit=most)
        elif act == "cancel" and (run := chosen(number, S.RUNNING, S.BUFFERED, S.PAUSED)):
            flows.cancel(run.id)
        elif act in ("succeed", "fail") and (run := chosen(number, S.RUNNING)):
            flows.signal(run.id, "go", act)
        elif act == "retry" and (run := chosen(number, S.TERMINAL)):
            flows.retry(run.id)
        elif act == "pause" and (run := chosen(number, S.RUNNING)):
            flows.pause(run.id)
        elif act == "resume" and (run := chosen(number, S.PAUSED)):
            flows.resume(run.id)
        before = {run.id for run in runs if run.status in (S.RUNNING, S.PAUSED)}
        worker.run_once()
        now = {run.id for run in runs if run.status in (S.RUNNING, S.PAUSED)}
        waiting = {run.id for run in runs if run.status is S.BUFFERED}
        if runs:
            assert running(store) == len(now)
        assert {row.id for row in store.page(WAITING)} == waiting
        assert len(now) <= max(most, len(before))  # a limit that was lowered ends nobody
        assert not waiting or len(now) >= most  # nobody waits while there is room
    worker.close()


def test_a_workflow_that_ends_as_soon_as_it_begins_takes_no_slot(flows: Workflows, worker: WorkflowWorker) -> None:
    def one(**fields: Any) -> Workflow:
        only = StageExecution.create("hold", "a", "a", tasks=[TaskExecution.create("hold", "hold")], **fields)
        return Workflow.create("shop", "brief", [only], pipeline_config_id="brief", is_limit_concurrent=True)

    runs = [flows.start(one(enabled=False)), flows.start(one()), flows.start(one(enabled=False)), flows.start(one())]
    assert statuses(*runs) == ["SUCCEEDED", "RUNNING", "SUCCEEDED", "BUFFERED"]
    worker.run_once()
    assert statuses(*runs) == ["SUCCEEDED"] * 4


def test_a_stored_workflow_takes_a_slot_when_it_begins_or_waits_in_line_for_one(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    def one() -> Workflow:
        tasks = [TaskExecution.create("wait", "wait")]
        only = StageExecution.create("wait", "a", "a", tasks=tasks)
        return Workflow.create("shop", "kept", [only], pipeline_config_id="kept", is_limit_concurrent=True)

    flows.registry.register("wait", lambda stage: None if "signal" in stage.context else TaskResult.suspend())
    runs = [flows.get(flows.store.store(one()).id) for _ in range(2)]
    for run in runs:
        flows.queue.push(StartWorkflow(execution_id=run.id))
        worker.run_once()
    assert statuses(*runs) == ["RUNNING", "BUFFERED"]
    for run in runs:
        assert flows.signal(run.id, "any")
        worker.run_once()
    assert statuses(*runs) == ["SUCCEEDED"] * 2


def test_a_workflow_that_fails_as_soon_as_it_begins_does_not_wait_in_line_for_that(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    def one(**fields: Any) -> Workflow:
        stages = [
            StageExecution.create(ref, ref, ref, tasks=[TaskExecution.create("hold", "hold")], **more)
            for ref, more in (("a", {}), ("z", fields))
        ]
        return Workflow.create("shop", "bad", stages, pipeline_config_id="bad", is_limit_concurrent=True)

    runs = [flows.start(one()), flows.start(one(mi_config=MultiInstanceConfig(count_from_context="unknown")))]
    assert flows.pause(runs[0].id).status is S.PAUSED
    worker.run_once()
    assert statuses(*runs) == ["PAUSED", "TERMINAL"]


def test_one_that_fails_as_soon_as_it_begins_by_now_ends_with_all_of_it(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    def one(ref: str, **fields: Any) -> StageExecution:
        return StageExecution.create(ref, ref, ref, tasks=[TaskExecution.create("hold", "hold")], **fields)

    limit: dict[str, Any] = {
        "pipeline_config_id": "bad", "is_limit_concurrent": True, "max_concurrent_executions": 1,
    }  # fmt: skip
    flows.registry.register("waits", lambda stage: TaskResult.suspend())
    waits = StageExecution.create("waits", "w", "w", tasks=[TaskExecution.create("waits", "waits")])
    first = flows.start(Workflow.create("shop", "bad", [waits], **limit))
    later = clock.wall() + timedelta(seconds=10)
    fails = one("z", mi_config=MultiInstanceConfig(count_from_context="unknown"), scheduled_time=later)
    second = flows.start(Workflow.create("shop", "bad", [one("a"), fails], **limit))
    worker.run_once()
    clock.advance(20)
    flows.cancel(first.id)  # whose end makes room
    at = flows.record(second.id).version
    assert flows.state_at(second.id, at).status is second.status is S.NOT_STARTED
    worker.run_once()
    assert statuses(first, second) == ["CANCELED", "TERMINAL"]
    assert flows.stages(second.id) == {"a": S.CANCELED, "z": S.TERMINAL}


def kept(**fields: Any) -> Workflow:
    only = StageExecution.create("wait", "a", "a", tasks=[TaskExecution.create("wait", "wait")], stage_timeout=60)
    return Workflow.create("shop", "kept", [only], pipeline_config_id="kept", is_limit_concurrent=True, **fields)


@pytest.mark.parametrize("begun_by", ["message", "recovery"])
@pytest.mark.parametrize("expires", [False, True])
def test_no_time_of_a_stored_workflow_runs_out_in_line_but_that_to_begin(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, begun_by: str, expires: bool
) -> None:
    flows.registry.register("wait", lambda stage: None if "signal" in stage.context else TaskResult.suspend())
    first = flows.start(kept())
    soon = {"start_time_expiry": clock.wall() + timedelta(seconds=30)} if expires else {}
    run = flows.get(flows.store.store(kept(**soon)).id)
    if begun_by == "message":
        flows.queue.push(StartWorkflow(execution_id=run.id))
        worker.run_once()
    else:
        flows.recovery.recover_pending_workflows()
        worker.run_once()
    assert statuses(first, run) == ["RUNNING", "BUFFERED"]
    assert flows.stages(run.id) == {"a": S.NOT_STARTED}
    clock.advance(50.0)
    assert flows.signal(first.id, "any")
    worker.run_once()
    assert statuses(first, run) == ["SUCCEEDED", "CANCELED" if expires else "RUNNING"]
    if not expires:
        clock.advance(50.0)
        worker.run_once()
        assert flows.signal(run.id, "any")
        worker.run_once()
        assert run.status is S.SUCCEEDED
