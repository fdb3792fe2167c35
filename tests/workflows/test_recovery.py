"""Recovery: workflows in which something is missing are taken up again."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import PolicyError, WorkflowNotFoundError
from holdfast.machine.graph import JoinType
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import instant
from holdfast.store.port import Delete, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.burial import buried
from holdfast.workflows.config import EngineConfig, HandlerConfig
from holdfast.workflows.functions import workflow
from holdfast.workflows.messages import CompleteStage, StartWorkflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.records import DEFINITION, ITEM, STAGE, WORKER, WORKFLOW, WorkerRecord
from holdfast.workflows.recovery import RecoveryStatus, WorkflowRecovery, recover_on_startup
from holdfast.workflows.result import TaskResult
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.tasks.builtin import builtin_tasks
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S, R = WorkflowStatus, RecoveryStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


def lose_items(store: Store, id: str) -> None:
    store.commit([Delete(ITEM, item) for item in store.page(ITEM) if item.workflow == id])


def waiting_for_nothing(flows: Workflows, store: Store) -> Any:
    """A workflow that somebody has written into by hand: one stage jumps for ever, another one waits for it."""
    run = start(flows, stage("a"), stage("b", milestone_ref_id="a", milestone_status=S.SUCCEEDED))
    [mine] = [one for one in store.page(STAGE) if one.ref == "a"]
    flow = flows.record(run.id)
    store.commit([
        Swap(STAGE, mine, evolve(mine, status="REDIRECT")), Swap(WORKFLOW, flow, evolve(flow, live=2)),
        *(Delete(ITEM, item) for item in store.page(ITEM)),
    ])  # fmt: skip
    return run


def recovered(flows: Workflows) -> dict[str, RecoveryStatus]:
    return {one.workflow_id: one.status for one in flows.recovery.recover_pending_workflows()}


def test_a_task_that_nobody_would_run_gets_an_item(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    lose_items(store, run.id)
    [result] = flows.recovery.recover_pending_workflows()
    assert (result.workflow_id, result.status) == (run.id, R.RECOVERED)
    assert result.found == ("stage 'a' had a task that nobody would have run",)
    assert flows.log(run.id)[-1].type == "recovered"
    assert recovered(flows) == {run.id: R.SKIPPED}  # again: nothing is missing
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "b"])
    assert recovered(flows) == {}


def test_what_has_ended_is_not_run_again(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["b"] = [TaskResult.suspend()]
    run = start(flows, stage("a"), stage("b", "a"))
    worker.run_once()
    lose_items(store, run.id)
    assert recovered(flows) == {run.id: R.RECOVERED}
    assert flows.signal(run.id, "any")
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a", "b", "b"])


def test_a_workflow_that_was_stored_and_never_begun_begins(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    lost, waits = (flows.store.store(Workflow.create("shop", "made", [stage("a")])).id for _ in range(2))
    flows.queue.push(StartWorkflow(execution_id=waits), delay=60)
    assert recovered(flows) == {lost: R.RECOVERED, waits: R.SKIPPED}
    worker.run_once()
    assert (flows.get(lost).status, flows.get(waits).status) == (S.SUCCEEDED, S.NOT_STARTED)


def test_a_stage_that_was_not_told_begins_and_a_count_that_is_wrong_is_mended(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    [mine] = store.page(STAGE)
    store.commit([Swap(STAGE, mine, evolve(mine, status="SUCCEEDED"))])  # as if somebody had written it by hand
    lose_items(store, run.id)
    [result] = flows.recovery.recover_pending_workflows()
    assert result.found == ("0 stages are under way, and not 1", "stage 'b' was not told that it could begin")
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["b"])


def test_a_workflow_in_which_nothing_is_left_to_do_ends(flows: Workflows, store: Store, journal: Journal) -> None:
    run = start(flows, stage("a"))
    [mine] = store.page(STAGE)
    store.commit([Swap(STAGE, mine, evolve(mine, status="SUCCEEDED"))])
    lose_items(store, run.id)
    assert recovered(flows) == {run.id: R.RECOVERED}
    assert run.status is S.SUCCEEDED


def test_a_stage_whose_parts_have_ended_goes_on(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    whole = stage("a")
    part = stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    run = start(flows, whole, part)
    [first] = [one for one in store.page(STAGE) if one.ref == "first"]
    store.commit([Swap(STAGE, first, evolve(first, status="SUCCEEDED"))])
    lose_items(store, run.id)
    flows.queue.push(CompleteStage(execution_id=run.id, stage_id="a"))  # the same mechanism, asked for by message
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a"])


def test_a_stage_whose_part_was_stopped_is_stopped(flows: Workflows, store: Store, journal: Journal) -> None:
    whole = stage("a")
    part = stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    run = start(flows, whole, part)
    [first] = [one for one in store.page(STAGE) if one.ref == "first"]
    store.commit([Swap(STAGE, first, evolve(first, status="STOPPED"))])
    lose_items(store, run.id)
    assert recovered(flows) == {run.id: R.RECOVERED}
    assert flows.stages(run.id)["a"] is S.STOPPED


def test_a_merge_that_waits_for_another_one_before_it_is_not_over(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    journal.answers["b"] = [TaskResult.wait_signal("go")]
    merge = stage("m", "a", "b", join_type=JoinType.MULTI_MERGE)
    run = start(flows, stage("a"), stage("b"), merge, stage("c", "m"))
    worker.run_once()
    assert recovered(flows) == {run.id: R.SKIPPED}
    flows.signal(run.id, "go")
    worker.run_once()
    assert (run.status, journal.ran[-3:]) == (S.SUCCEEDED, ["b", "m", "c"])


@pytest.mark.parametrize("owner", [SyntheticStageOwner.STAGE_BEFORE, SyntheticStageOwner.STAGE_AFTER])
def test_nor_is_a_part_that_is_such_a_merge(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, owner: SyntheticStageOwner
) -> None:
    journal.answers["b"] = [TaskResult.wait_signal("go")]
    whole = stage("m")
    part = stage("p", "a", "b", join_type=JoinType.MULTI_MERGE, parent_stage_id=whole.id, synthetic_stage_owner=owner)
    run = start(flows, stage("a"), stage("b"), whole, part, stage("c", "m"))
    worker.run_once()
    assert recovered(flows) == {run.id: R.SKIPPED}
    flows.signal(run.id, "go")
    worker.run_once()
    assert (run.status, journal.ran.count("p"), journal.ran.count("c")) == (S.SUCCEEDED, 2, 1)


def test_instances_of_an_earlier_run_of_a_merge_are_counted(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    flows.registry.register(
        "some", lambda stage: TaskResult.wait_signal("go") if stage.context["instance"] else TaskResult.success()
    )
    merge = stage("m", "a", "b", join_type=JoinType.MULTI_MERGE)
    merge.mi_config = MultiInstanceConfig(count=2, join_threshold=1)
    merge.tasks[0].implementing_class = "some"
    run = start(flows, stage("a"), stage("b"), merge)
    worker.run_once()
    assert run.record.live == 2  # an instance of each run
    assert recovered(flows) == {run.id: R.SKIPPED}


def test_the_end_of_a_workflow_below_that_is_on_its_way_is_not_missing(
    flows: Workflows, store: Store, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    @workflow
    def below() -> Any:
        return wait_signal("go")

    flows.add(below)
    flows.registry.register("sub_workflow", builtin_tasks()["sub_workflow"])
    journal.answers["a"] = [TaskResult.sleep(100.0)]
    above = stage("a", context={"workflow": "below", "timeout": 50.0})
    above.tasks = [TaskExecution.create(one, one) for one in ("sub_workflow", "noted")]
    above.place_tasks()
    run = start(flows, above)
    worker.run_once()
    [child] = flows.find(parent=run.id)
    flows.signal(child.id, "go")  # its end is stored, and nobody has taken note of it
    assert [item.kind for item in store.page(ITEM)] == ["child"]
    assert recovered(flows) == {run.id: R.SKIPPED}
    worker.run_once()
    clock.advance(60)
    worker.run_once()
    assert run.status is S.RUNNING  # it sleeps
    clock.advance(60)
    worker.run_once()
    assert (run.status, store.page(ITEM)) == (S.SUCCEEDED, [])


def test_the_work_of_the_dead_is_freed_first(
    flows: Workflows, store: Store, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    [item] = store.page(ITEM)
    store.commit([
        Insert(WORKER, WorkerRecord("dead", 1, store.now() - 1, "elsewhere", "1 1", "{}")),
        Swap(ITEM, item, evolve(item, owner="dead", due_at=None)),
    ])  # fmt: skip
    assert recover_on_startup(flows.store, flows.queue)[0].status is R.SKIPPED
    assert [item.owner for item in store.page(ITEM)] == [None]
    worker.run_once()
    assert run.status is S.SUCCEEDED


def test_what_is_older_than_the_limit_is_listed_and_left(
    flows: Workflows, store: Store, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    lose_items(store, run.id)
    clock.advance(25 * 3600)
    [result] = flows.recovery.recover_pending_workflows()
    assert (result.status, store.page(ITEM)) == (R.SKIPPED, [])
    assert "more than 24 hours ago" in result.message
    wider = WorkflowRecovery(flows.store, flows.queue, max_recovery_age_hours=48)
    assert [one.status for one in wider.recover_pending_workflows()] == [R.RECOVERED]
    lose_items(store, run.id)
    clock.advance(100 * 3600)
    assert flows.recovery.recover(run.id).status is R.RECOVERED
    worker.run_once()
    assert run.status is S.SUCCEEDED


def test_a_long_sleep_is_not_taken_for_age(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    journal.answers["a"] = [TaskResult.sleep(90 * 86400)]
    run = start(flows, stage("a"))
    worker.run_once()
    clock.advance(89 * 86400)
    [result] = flows.recovery.recover_pending_workflows()
    assert (result.status, result.message) == (R.SKIPPED, "nothing is missing")
    clock.advance(86400)
    worker.run_once()
    assert run.status is S.SUCCEEDED


def test_all_batches_are_looked_at_and_any_number_may_look(flows: Workflows, store: Store, journal: Journal) -> None:
    runs = [start(flows, stage("a")) for _ in range(7)]
    for run in runs:
        lose_items(store, run.id)
    first, second = (WorkflowRecovery(flows.store, flows.queue, batch_size=2) for _ in range(2))
    assert [one.status for one in first.recover_pending_workflows()] == [R.RECOVERED] * 7
    assert [one.status for one in second.recover_pending_workflows()] == [R.SKIPPED] * 7
    assert len(store.page(ITEM)) == 7


def test_a_worker_recovers_by_itself(flows: Workflows, store: Store, clock: ManualClock, journal: Journal) -> None:
    run = start(flows, stage("a"))
    lose_items(store, run.id)
    clock.advance(61)
    shift = flows.worker()._shift
    shift.look(woken=True)
    assert shift.at_hand.wait_idle(10)
    shift.close()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a"])


def test_a_worker_does_not_recover_where_that_is_switched_off(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, config=EngineConfig(recovery_enabled=False))
    journal = Journal(flows)
    run = start(flows, stage("a"))
    lose_items(store, run.id)
    clock.advance(61)
    shift = flows.worker()._shift
    shift.look(woken=True)
    shift.close()
    assert (run.status, journal.ran) == (S.RUNNING, [])


def test_the_age_is_the_configured_one(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, config=EngineConfig(recovery_max_age_hours=1))
    Journal(flows)
    run = start(flows, stage("a"))
    lose_items(store, run.id)
    clock.advance(2 * 3600)
    assert "more than 1 hours ago" in flows.recovery.recover_pending_workflows()[0].message


def test_a_stage_that_waits_for_nothing_fails_when_it_was_seen_so_too_often(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, config=HandlerConfig(max_stage_wait_retries=3))
    Journal(flows)
    run = waiting_for_nothing(flows, store)
    statuses: list[Any] = [recovered(flows)[run.id] for _ in range(3)]
    assert statuses == [R.PARTIAL, R.PARTIAL, R.RECOVERED]
    assert run.status is S.TERMINAL
    assert "seen 3 times" in str(run.record.reason)


def test_a_stage_whose_time_has_come_while_no_worker_is_there_waits_for_one(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, config=HandlerConfig(max_stage_wait_retries=1))
    Journal(flows)
    run = start(flows, stage("a", scheduled_time=clock.wall() + timedelta(seconds=50)))
    clock.advance(60)
    assert recovered(flows) == {run.id: R.SKIPPED}
    with closing(flows.worker()) as worker:
        worker.run_once()
    assert run.status is S.SUCCEEDED


def test_parts_that_wait_for_nothing_fail_with_their_stage(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, config=HandlerConfig(max_stage_wait_retries=1))
    Journal(flows)
    whole = stage("whole")
    part = {"parent_stage_id": whole.id, "synthetic_stage_owner": SyntheticStageOwner.STAGE_BEFORE}
    past = instant(store.now())
    parts = [stage(ref, milestone_ref_id="a", scheduled_time=past, **part) for ref in "pq"]
    run = start(flows, stage("a"), whole, *parts)
    [mine] = [one for one in store.page(STAGE) if one.ref == "a"]
    store.commit([Swap(STAGE, mine, evolve(mine, status="REDIRECT")), *(Delete(ITEM, one) for one in store.page(ITEM))])
    clock.advance(1)
    assert recovered(flows) == {run.id: R.RECOVERED}
    assert run.status is S.TERMINAL
    assert "seen 1 times" in str(run.record.reason)


def test_a_recovery_that_cannot_be_is_refused(flows: Workflows) -> None:
    with pytest.raises(PolicyError, match="max_recovery_age_hours"):
        WorkflowRecovery(flows.store, flows.queue, max_recovery_age_hours=0)
    with pytest.raises(PolicyError, match="batch_size"):
        WorkflowRecovery(flows.store, flows.queue, batch_size=0)
    with pytest.raises(WorkflowNotFoundError):
        flows.recovery.recover("none")


def test_a_worker_says_once_which_workflows_are_too_old_for_it(
    flows: Workflows, store: Store, clock: ManualClock, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(flows, stage("a"))
    lose_items(store, run.id)
    clock.advance(25 * 3600)
    assert [flows.recovery.sweep() for _ in range(2)] == [0, 0]
    assert [one.getMessage() for one in caplog.records if run.id in one.getMessage()] == [
        f"workflows: {run.id} is not taken up: its last change is more than 24 hours ago; "
        f"recover({run.id!r}) takes it up"
    ]


def test_a_round_goes_on_where_the_last_one_ended(
    flows: Workflows, store: Store, clock: ManualClock, journal: Journal
) -> None:
    runs = [start(flows, stage("a")) for _ in range(5)]
    for run in runs:
        lose_items(store, run.id)
    clock.advance(61)
    recovery = WorkflowRecovery(flows.store, flows.queue, batch_size=2)
    assert [recovery.sweep() for _ in range(4)] == [2, 2, 1, 0]


def test_a_workflow_that_nobody_understands_holds_up_no_other(
    flows: Workflows, store: Store, clock: ManualClock, journal: Journal
) -> None:
    bad, good = start(flows, stage("a")), start(flows, stage("a"), stage("b"))
    [record] = store.get(DEFINITION, [flows.record(bad.id).definition])
    assert record is not None
    store.commit([Swap(DEFINITION, record, evolve(record, graph="7"))])
    for run in (bad, good):
        lose_items(store, run.id)
    stranger = Workflows(store, clock=clock)
    Journal(stranger)
    assert recovered(stranger) == {bad.id: R.FAILED, good.id: R.RECOVERED}


def test_what_has_a_dead_item_waits_until_somebody_has_looked(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    [item] = store.page(ITEM)
    store.commit(buried(item, RuntimeError("it cannot be written"), store.now()))
    assert recovered(flows) == {run.id: R.SKIPPED}
    assert (store.page(ITEM), flows.dead.count(run.id)) == ([], 1)
    flows.dead.discard(item.id)
    assert recovered(flows) == {run.id: R.RECOVERED}
    worker.run_once()
    assert run.status is S.SUCCEEDED
