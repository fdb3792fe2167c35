"""The seed's store: stages as models, optimistic locks, transactions, marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    ConcurrencyError,
    ConfigurationError,
    InvalidStateTransitionError,
    TaskError,
    WorkflowDefinitionError,
    WorkflowNotFoundError,
)
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.store.query import equal
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock
from holdfast.workflows import starting
from holdfast.workflows.config import HandlerConfig, ResilienceConfig
from holdfast.workflows.events import WorkflowMoved
from holdfast.workflows.functions import workflow
from holdfast.workflows.messages import SkipStage, StartTask, StartWorkflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.records import ITEM, KINDS, PROCESSED
from holdfast.workflows.result import TaskResult
from holdfast.workflows.store import WorkflowStore
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


def kept(flows: Workflows, *stages: Any, **fields: Any) -> str:
    """A workflow that is stored and not begun."""
    return flows.store.store(Workflow.create("shop", "made", stages, **fields)).id


def test_a_stored_workflow_begins_when_it_is_asked_to(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    id = kept(flows, stage("a"), stage("b", "a"))
    assert (worker.run_once(), flows.get(id).status) == (0, S.NOT_STARTED)
    assert flows.queue.push(StartWorkflow(execution_id=id))
    worker.run_once()
    assert (flows.get(id).status, journal.ran) == (S.SUCCEEDED, ["a", "b"])


def test_what_is_kept_of_a_workflow_is_found_by_its_id_alone(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, store: Store
) -> None:
    """Its id is whatever somebody liked before some were refused, and that of another one may go on where it ends."""
    for id in ("shop", "shop.a", "shop.", "shop/a", "shop-a"):
        made = flows.wanted(Workflow.create("shop", "made", [stage("a"), stage("a.b", "a")]), (), {})
        starting.start(store, flows.blueprints, replace(made, id=id, begins=False))
        flows.queue.push(StartWorkflow(execution_id=id))

    @workflow
    def nightly() -> Any:
        return wait_signal("never")

    flows.schedule("shop.a", nightly, cron="0 3 * * *")
    while worker.run_once():
        pass
    for kind, within in ((one, one.within) for one in KINDS if one.within is not None):
        found: list[Any] = store.page(kind, limit=1000)
        wholes = {getattr(record, within) for record in found}
        assert wholes >= {"shop", "shop.a", "shop.", "shop/a", "shop-a"}
        for whole in wholes:
            own = [record for record in found if getattr(record, within) == whole]
            assert all(record.id.startswith(f"{whole}.") for record in own)
            assert store.page(kind, equal(**{within: whole})) == own
    for id in ("shop", "shop."):
        assert [entry.seq for entry in flows.log(id)] == sorted(entry.seq for entry in flows.log(id))
        assert {one.ref_id for one in flows.workflow(id).stages} == {"a", "a.b"}
    assert len(flows.schedules.log("shop.a")) == 1


def test_a_stage_that_somebody_else_has_changed_is_not_stored(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    mine, theirs = flows.store.get_stage(f"{run.id}.a"), flows.store.get_stage(f"{run.id}.a")
    assert mine.phase_version == ("RUNNING", 1)
    theirs.context["by"] = "them"
    flows.store.store_stage(theirs)
    assert theirs.phase_version == ("RUNNING", 2)
    mine.context["by"] = "me"
    with pytest.raises(ConcurrencyError, match=r"expected at version 1.*found at version 2 and RUNNING") as caught:
        flows.store.store_stage(mine, expected_phase="RUNNING")
    assert (caught.value.expected, caught.value.found) == (("RUNNING", 1), ("RUNNING", 2))
    assert mine.version == 1
    assert flows.store.get_stage(f"{run.id}.a").context == {"by": "them"}


def test_a_stage_in_another_phase_than_expected_is_not_stored(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    mine = flows.store.get_stage(f"{run.id}.a")
    with pytest.raises(ConcurrencyError) as caught:
        flows.store.store_stage(mine, expected_phase=S.SUSPENDED)
    assert (caught.value.expected, caught.value.found) == (("SUSPENDED", 1), ("RUNNING", 1))
    with pytest.raises(ValueError, match="expected_phase must be one of"):
        flows.store.store_stage(mine, expected_phase="WALKING")


def test_what_a_stored_stage_leaves_is_what_the_engine_goes_on_with(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    seen: list[Any] = []
    flows.registry.register("look", lambda stage: seen.append(stage.context["found"]) or TaskResult.success())
    last = stage("b", "a")
    last.tasks[0].implementing_class = "look"
    run = start(flows, stage("a"), last)
    mine = flows.store.get_stage(f"{run.id}.a")
    mine.outputs["found"] = 7
    mine.status = S.SUCCEEDED
    flows.store.store_stage(mine, expected_phase="RUNNING")
    assert mine.phase_version == ("SUCCEEDED", 2)
    assert flows.stages(run.id) == {"a": S.SUCCEEDED, "b": S.RUNNING}
    worker.run_once()
    assert (run.status, seen, journal.ran) == (S.SUCCEEDED, [7], [])


def test_a_started_stage_has_its_first_item_in_the_same_transaction(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    id = kept(flows, stage("a"))
    flows.queue.push(StartWorkflow(execution_id=id))
    flows.worker().run_once()
    run = start(flows, stage("b"), stage("c", "b"))
    mine = flows.store.get_stage(f"{run.id}.c")
    assert mine.phase_version == ("NOT_STARTED", 0)
    mine.status = S.RUNNING
    flows.store.store_stage(mine, expected_phase="NOT_STARTED")
    assert sorted(item.ref for item in store.page(ITEM)) == ["b", "c"]


def test_of_two_that_start_a_stage_one_does(flows: Workflows, store: Store, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b"), stage("c", "a", "b"))
    first, second = flows.store.get_stage(f"{run.id}.c"), flows.store.get_stage(f"{run.id}.c")
    started = 0
    for one in (first, second):
        one.status = S.RUNNING
        try:
            with flows.store.transaction(flows.queue) as txn:
                txn.store_stage(one)
                txn.push_message(StartTask(execution_id=run.id, stage_id=one.id))
        except ConcurrencyError:
            continue
        started += 1
    assert (started, flows.queue.size()) == (1, 1)


def test_the_transition_graph_holds_in_the_store(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    run = start(flows, stage("a"))
    stale = flows.store.get_stage(f"{run.id}.a")
    worker.run_once()
    fresh = flows.store.get_stage(f"{run.id}.a")
    vars(fresh)["status"] = S.RUNNING
    with pytest.raises(InvalidStateTransitionError, match="from SUCCEEDED to RUNNING"):
        flows.store.store_stage(fresh)
    stale.version = fresh.version
    vars(stale)["status"] = S.TERMINAL
    with pytest.raises(InvalidStateTransitionError):
        flows.store.store_stage(stale)
    assert run.status is S.SUCCEEDED


def test_a_state_that_only_the_engine_decides_is_refused(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    mine = flows.store.get_stage(f"{run.id}.a")
    mine.status = S.PAUSED
    with pytest.raises(TaskError, match="only the engine decides"):
        flows.store.store_stage(mine)
    assert flows.stages(run.id) == {"a": S.RUNNING}


@pytest.mark.parametrize(
    ("status", "whole", "after"),
    [
        (S.SKIPPED, S.SUCCEEDED, S.SUCCEEDED), (S.FAILED_CONTINUE, S.SUCCEEDED, S.SUCCEEDED),
        (S.TERMINAL, S.TERMINAL, S.SKIPPED), (S.CANCELED, S.CANCELED, S.SKIPPED), (S.STOPPED, S.SUCCEEDED, S.SKIPPED),
    ],
)  # fmt: skip
def test_what_follows_from_a_stored_end_is_what_follows_from_any(
    flows: Workflows, worker: WorkflowWorker, journal: Journal, status: S, whole: S, after: S
) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    mine = flows.store.get_stage(f"{run.id}.a")
    mine.status = status
    flows.store.store_stage(mine)
    worker.run_once()
    assert (run.status, flows.stages(run.id)) == (whole, {"a": status, "b": after})


def test_a_task_that_is_stored_as_ended_makes_room_for_the_next(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    two = stage("a")
    two.add_task(TaskExecution.create("then", "noted"))
    run = start(flows, two)
    mine = flows.store.get_stage(f"{run.id}.a")
    mine.tasks[0].status = S.SUCCEEDED
    flows.store.store_stage(mine)
    worker.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a"])
    assert [task.status for task in flows.workflow(run.id).stage("a").tasks] == [S.SUCCEEDED, S.SUCCEEDED]


def test_listeners_hear_of_an_end_that_is_stored_by_hand(store: Store, clock: ManualClock) -> None:
    heard: list[GuardEvent] = []

    class Listens:
        def on_event(self, event: GuardEvent) -> None:
            heard.append(event)

    hub = Hub()
    hub.register(Listens())
    flows = Workflows(store, clock=clock, telemetry=hub)
    Journal(flows)
    run = start(flows, stage("a"))
    mine = flows.store.get_stage(f"{run.id}.a")
    mine.status = S.SUCCEEDED
    flows.store.store_stage(mine)
    moves = [(one.workflow_id, one.status) for one in heard if isinstance(one, WorkflowMoved)]
    assert moves == [(run.id, "SUCCEEDED")]


def test_a_stage_whose_parts_are_under_way_cannot_be_suspended(flows: Workflows, journal: Journal) -> None:
    whole = stage("whole")
    part = stage("part", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE)
    run = start(flows, whole, part)
    mine = flows.store.get_stage(f"{run.id}.whole")
    mine.status = S.SUSPENDED
    with pytest.raises(TaskError, match="no task of it is under way"):
        flows.store.store_stage(mine)
    assert flows.stages(run.id) == {"whole": S.RUNNING, "part": S.RUNNING}


@pytest.mark.parametrize("phases", [(S.SUSPENDED,), (S.SUSPENDED, S.RUNNING)])
def test_a_stage_that_is_stored_as_waiting_has_no_more_time_than_before(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, journal: Journal, phases: tuple[S, ...]
) -> None:
    journal.answers["a"] = [TaskResult.suspend()]
    run = start(flows, stage("a", stage_timeout=100))
    for phase in phases:
        found = flows.store.get_stage(f"{run.id}.a")
        found.status = phase
        flows.store.store_stage(found)
    clock.advance(101)
    worker.run_once()
    assert (run.status, run.record.reason) == (S.TERMINAL, "stage 'a' took longer than 100 s")


def test_a_stage_that_is_not_there_is_not_found(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    with pytest.raises(WorkflowNotFoundError, match="no stage"):
        flows.store.get_stage(f"{run.id}.z")
    with pytest.raises(WorkflowNotFoundError, match="part of no workflow"):
        flows.store.store_stage(stage("a"))
    alone = flows.store.get_stage(f"{run.id}.a")
    alone._workflow, alone.id = None, "nowhere.a"
    with pytest.raises(WorkflowNotFoundError, match="nowhere"):
        flows.store.store_stage(alone)


def test_a_transaction_that_fails_leaves_nothing_and_the_old_versions(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    mine = flows.store.get_stage(f"{run.id}.a")
    with pytest.raises(RuntimeError), flows.store.transaction(flows.queue) as txn:
        mine.context["half"] = True
        txn.store_stage(mine)
        txn.push_message(SkipStage(execution_id=run.id, stage_id="a"))
        assert txn.mark_message_processed(message_id="m", handler_type="StartStage", execution_id=run.id)
        raise RuntimeError("between")
    assert (mine.version, flows.queue.size()) == (1, 0)
    assert not flows.store.is_message_processed("m")
    assert flows.store.get_stage(mine.id).context == {}


def test_outside_of_its_block_a_transaction_takes_nothing(flows: Workflows, journal: Journal) -> None:
    id = kept(flows, stage("a"))
    one, never = flows.store.get_stage(f"{id}.a"), flows.store.transaction(flows.queue)
    with flows.store.transaction(flows.queue) as over:
        assert over.mark_message_processed(message_id="m", handler_type="Test", execution_id=id)
    for txn in (over, never):
        for late in (
            lambda txn: txn.store_stage(one),
            lambda txn: txn.push_message(StartWorkflow(execution_id=id)),
            lambda txn: txn.mark_message_processed(message_id="late", handler_type="Test", execution_id=id),
        ):
            with pytest.raises(RuntimeError, match="outside of the transaction's block; use `with"):
                late(txn)
    assert [flows.store.is_message_processed(one) for one in ("m", "late")] == [True, False]


def test_what_a_transaction_does_is_there_together(flows: Workflows, worker: WorkflowWorker, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    mine = flows.store.get_stage(f"{run.id}.a")
    with flows.store.transaction(flows.queue) as txn:
        mine.status = S.SUCCEEDED
        txn.store_stage(mine, expected_phase="RUNNING")
        assert txn.mark_message_processed(message_id="m", handler_type="CompleteStage", execution_id=run.id)
        txn.push_message(SkipStage(execution_id=run.id, stage_id="b"), delay=60)
    assert flows.store.is_message_processed("m")
    assert (mine.version, flows.queue.size()) == (2, 1)
    assert mine.workflow.version == flows.record(run.id).version


def test_a_message_that_was_handled_is_not_handled_again(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    for expected in (True, False):
        with flows.store.transaction() as txn:
            marked = txn.mark_message_processed(message_id="m", handler_type="X", execution_id=run.id)
            assert marked is expected
    assert not flows.queue.push(SkipStage(execution_id=run.id, stage_id="a", message_id="m"))


def test_of_two_that_handle_a_message_one_loses_everything(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    mine = flows.store.get_stage(f"{run.id}.a")
    with (
        pytest.raises(ConcurrencyError, match="message m was handled by somebody else"),
        flows.store.transaction() as txn,
    ):
        assert txn.mark_message_processed(message_id="m", handler_type="X", execution_id=run.id)
        mine.context["late"] = True
        txn.store_stage(mine)
        with flows.store.transaction() as faster:
            assert faster.mark_message_processed(message_id="m", handler_type="X", execution_id=run.id)
    assert (mine.version, flows.store.get_stage(mine.id).context) == (1, {})


def test_a_change_elsewhere_in_the_workflow_is_no_conflict(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b"))
    mine, other = flows.store.get_stage(f"{run.id}.a"), flows.store.get_stage(f"{run.id}.b")
    other.context["x"] = 1
    flows.store.store_stage(other)
    mine.context["y"] = 2
    flows.store.store_stage(mine)
    assert (mine.version, flows.workflow(run.id).stage("b").context) == (2, {"x": 1})


def test_marks_of_workflows_that_have_ended_are_forgotten_after_a_while(
    flows: Workflows, store: Store, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    journal.answers["b"] = [TaskResult.suspend()]
    ended, runs = start(flows, stage("a")), start(flows, stage("b"))
    worker.run_once()
    for run in (ended, runs):
        with flows.store.transaction() as txn:
            txn.mark_message_processed(message_id=f"m-{run.id}", handler_type="X", execution_id=run.id)
    assert flows.recovery.forget_marks() == 0
    clock.advance(3601)
    assert flows.recovery.forget_marks() == 1
    assert [mark.workflow for mark in store.page(PROCESSED)] == [runs.id]


def test_a_store_can_be_made_of_a_url_or_of_the_configuration(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'flows.db'}"
    workflow = Workflow.create("shop", "made", [stage("a")])
    WorkflowStore(url).store(workflow)
    again = WorkflowStore(config=ResilienceConfig(database_url=url))
    assert again.retrieve(workflow.id).status is S.NOT_STARTED
    with pytest.raises(ConfigurationError, match="HOLDFAST_DATABASE_URL"):
        WorkflowStore(config=ResilienceConfig())


def test_a_stored_workflow_that_is_cancelled_never_begins(
    flows: Workflows, worker: WorkflowWorker, journal: Journal
) -> None:
    id = kept(flows, stage("a"))
    flows.cancel(id, "not today")
    assert (flows.get(id).status, flows.stages(id), flows.record(id).reason) == (
        S.CANCELED,
        {"a": S.CANCELED},
        "not today",
    )
    flows.queue.push(StartWorkflow(execution_id=id))
    worker.run_once()
    assert (flows.get(id).status, journal.ran) == (S.CANCELED, [])


def test_a_stage_of_a_workflow_that_has_not_begun_cannot_begin(flows: Workflows, journal: Journal) -> None:
    id = kept(flows, stage("a"))
    mine = flows.store.get_stage(f"{id}.a")
    mine.context["more"] = 1
    flows.store.store_stage(mine)
    mine.status = S.RUNNING
    with pytest.raises(TaskError, match="push a StartWorkflow first"):
        flows.store.store_stage(mine)


def test_a_workflow_is_stored_once(flows: Workflows, journal: Journal) -> None:
    workflow = Workflow.create("shop", "made", [stage("a")])
    flows.store.store(workflow)
    with pytest.raises(WorkflowDefinitionError, match="id_taken"):
        flows.store.store(workflow)


def test_whoever_is_always_too_late_hears_so_after_the_configured_tries(store: Store, clock: ManualClock) -> None:
    config = HandlerConfig(concurrency_max_retries=2, error_handling_max_retries=1, concurrency_jitter=0.0)
    flows = Workflows(Contended(store), clock=clock, config=config)  # type: ignore[arg-type]  # a store, but for commits
    Journal(flows)
    run = start(flows, stage("a"))
    slept = len(clock.slept)
    with pytest.raises(ConcurrencyError, match="changed by others all the time"):
        flows.pause(run.id)
    assert clock.slept[slept:][:2] == [0.1, 0.2]
    assert len(clock.slept) - slept == 3


class Contended:
    """A store on which somebody else is always faster to change a workflow."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Any, **options: Any) -> None:
        from holdfast.errors import Conflict
        from holdfast.store.port import Swap

        if any(isinstance(change, Swap) for change in changes):
            raise Conflict("somebody was faster", ())
        self._store.commit(changes, **options)


def test_a_stage_that_is_stored_as_ended_wakes_the_workflow_that_waits_for_its_own(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @workflow
    def below() -> Any:
        return wait_signal("never")

    @workflow
    def above() -> Any:
        return below()

    run = flows.start(above)
    worker.run_once()
    (child,) = flows.find(parent=run.id)
    mine = flows.store.get_stage(f"{child.id}.wait_signal")
    for status in (S.RUNNING, S.SUCCEEDED):
        mine.status = status
        flows.store.store_stage(mine)
    worker.run_once()
    assert run.status is S.SUCCEEDED
