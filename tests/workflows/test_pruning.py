"""Retention: what ended long ago goes, and what somebody may still need stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import ConfigurationError, Conflict, WorkflowNotFoundError
from holdfast.machine.finalizer import FINALIZER
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import instant
from holdfast.store.port import Delete, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.burial import buried
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.messages import StartWorkflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.pruning import PruneReport, Pruning
from holdfast.workflows.records import (
    DEFINITION,
    EVENT,
    SIGNAL,
    STAGE,
    WORKFLOW,
    EventRecord,
    ItemRecord,
    WorkflowRecord,
)
from holdfast.workflows.task_context import current_task
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage

DAY = timedelta(days=1)


@task
def touch(name: str) -> str:
    here = current_task()
    assert here is not None
    if name == "untidy":
        here.finalize("refuse")
    if name == "tidy":
        here.finalize("accept")
    return name


@workflow
def one(name: str) -> Any:
    return touch(name)


@workflow
def waiting(name: str) -> Any:
    return wait_signal("go", after=touch(name))


@pytest.fixture
def flows(flows: Workflows) -> Workflows:
    def refuse() -> None:
        raise OSError("no")

    flows.finalizers.add(refuse)
    flows.finalizers.add(lambda: None, "accept")
    return flows


def before(store: Store, days: float) -> Any:
    return instant(store.now()) - days * DAY


def test_a_workflow_that_ended_long_ago_goes_with_everything_of_it(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    old = flows.start(one, "tidy", idempotency_key="k")
    live = flows.start(waiting, "live")
    flows.signal(old.id, "nobody waits for it")
    worker.run_once()
    clock.advance(40 * 86400)
    young = flows.start(one, "young")
    worker.run_once()
    dry = flows.prune(before(store, 30), dry_run=True)
    assert (dry.pruned, dry.kept, flows.get(old.id).id) == (1, {}, old.id)
    assert flows.prune(before(store, 30)).pruned == 1
    with pytest.raises(WorkflowNotFoundError):
        flows.get(old.id)
    for kind in (STAGE, EVENT, SIGNAL, FINALIZER):
        assert {row.workflow for row in store.page(kind)} <= {live.id, young.id}
    assert {row.id for row in store.page(WORKFLOW)} == {live.id, young.id}
    assert len(store.page(DEFINITION)) == 2  # others may share them
    again = flows.start(one, "tidy", idempotency_key="k")
    assert again.id != old.id  # its key went with it


def test_who_knew_a_workflow_that_is_gone_cannot_change_the_one_that_has_its_id(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    def made() -> WorkflowRecord:
        queue = flows.store.store(Workflow.create("shop", "made", [stage("a")], id="x"))
        found = store.get(WORKFLOW, [queue.id])[0]
        assert found is not None
        return found

    Journal(flows)
    first = made()
    flows.queue.push(StartWorkflow(execution_id="x"))
    worker.run_once()
    clock.advance(1)
    assert flows.prune(instant(store.now())).pruned == 1
    second = made()
    assert (first.id, first.version) == (second.id, second.version)
    for stale in (Swap(WORKFLOW, first, evolve(first, status="CANCELED")), Delete(WORKFLOW, first)):
        for changes in ([stale], [stale, Insert(EVENT, EventRecord("x.000000002", 1, None, "x", 1, "[]"))]):
            with pytest.raises(Conflict):
                store.commit(changes)
    assert (store.get(WORKFLOW, ["x"]), len(store.page(EVENT))) == ([second], 1)


def test_what_somebody_has_to_look_at_stays(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    untidy, dead, child = flows.start(one, "untidy"), flows.start(one, "dead"), flows.start(one, "child")
    parent = flows.start(waiting, "parent")
    for _ in range(5):
        worker.run_once()
        clock.advance(3600)
    aside = ItemRecord("i", 1, None, "default", 0, "run", "touch", None, dead.id, "touch", 1, 0, 1, 0)
    record = store.get(WORKFLOW, [child.id])[0]
    assert record is not None
    store.commit(
        [
            *buried(aside, ValueError("odd"), store.now())[1:],
            Swap(WORKFLOW, record, evolve(record, parent=f"{parent.id}.touch")),
        ]
    )
    clock.advance(40 * 86400)
    report = flows.prune(before(store, 30))
    assert report.pruned == 0
    assert report.kept == {
        "it has finalizers that were not done": 1,
        "it has dead items, or work to be done": 1,
        "its parent is under way": 1,
    }
    flows.finalizers.clear(f"{untidy.id}.touch")
    flows.dead.discard(aside.id)
    flows.cancel(parent.id)
    assert flows.prune(before(store, 30)).pruned == 3


def test_one_that_a_retry_of_its_parent_would_go_on_with_stays_as_long_as_that(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    down = {"bank": True}

    @task
    def book() -> str:
        if down["bank"]:
            raise ValueError("the bank is down")
        return "booked"

    @workflow(dead_letter=False)
    def banking() -> Any:
        return book()

    @workflow(dead_letter=False)
    def outer() -> Any:
        return banking()

    run, gone = flows.start(outer), flows.start(outer)
    worker.run_once()
    clock.advance(40 * 86400)
    record = store.get(WORKFLOW, [run.id])[0]
    assert record is not None
    store.commit([Swap(WORKFLOW, record, evolve(record, ended_at=store.now()))])
    report = flows.prune(before(store, 30))
    assert (report.pruned, report.kept) == (2, {"its parent may be retried": 1})
    assert flows.find(parent=gone.id) == []
    down["bank"] = False
    flows.retry(run.id)
    worker.run_once()
    assert run.result(0) == "booked"


def test_one_that_is_restarted_meanwhile_stays(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    runs = [flows.start(one, name) for name in "abc"]
    worker.run_once()
    clock.advance(40 * 86400)

    class Slow(Pruning):
        def _reasons(self, found: Any) -> Any:
            why = super()._reasons(found)
            flows.restart(runs[1].id, "touch")
            return why

    report = PruneReport()
    Slow(store, store.now()).batch(report)
    assert (report.pruned, [run.id for run in flows.find()]) == (2, [runs[1].id])
    worker.run_once()
    assert runs[1].status is WorkflowStatus.SUCCEEDED


def test_a_limit_is_kept_and_what_stays_is_passed_over(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    flows.start(one, "untidy")
    for _ in range(5):
        flows.start(one, "x")
    for _ in range(5):
        worker.run_once()
        clock.advance(60)
    assert flows.prune(before(store, 0), limit=2).pruned == 2
    assert flows.prune(before(store, 0)).pruned == 3
    assert len(flows.find()) == 1


def test_a_worker_prunes_by_itself_if_it_is_told_to(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_RETENTION_DAYS", raising=False)
    flows.start(one, "x")
    keeps = worker_of()
    keeps.run_once()
    clock.advance(40 * 86400)
    keeps.run_once()
    assert len(flows.find()) == 1
    worker_of(retention_days=41).run_once()
    assert len(flows.find()) == 1
    worker_of(retention_days=39).run_once()
    assert flows.find() == []
    monkeypatch.setenv("HOLDFAST_RETENTION_DAYS", "soon")
    with pytest.raises(ConfigurationError, match="HOLDFAST_RETENTION_DAYS"):
        Workflows(MemoryStore())
