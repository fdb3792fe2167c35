"""What nobody could do anything with: listed, shown, replayed, discarded."""

from __future__ import annotations

import pytest

from holdfast.errors import DeadLetterError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.messages import SkipStage, StartWorkflow
from holdfast.workflows.records import DEFINITION, ITEM
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


def died(flows: Workflows, worker: WorkflowWorker, clock: ManualClock, *ids: str) -> None:
    """Messages for a workflow that is not there, each a second after the one before."""
    for id in ids:
        flows.queue.push(StartWorkflow(execution_id="none", message_id=id, max_attempts=1))
        worker.run_once()
        clock.advance(1)


def test_dead_items_are_listed_in_pages_the_last_one_first(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    died(flows, worker, clock, "a", "b", "c")
    first = flows.dead.list(limit=2)
    assert [dead.id for dead in first] == ["c", "b"]
    assert [dead.id for dead in flows.dead.list(limit=2, after=first[-1].cursor)] == ["a"]
    assert (flows.dead.count(), flows.dead.count("none"), flows.dead.count("other")) == (3, 3, 0)
    with pytest.raises(ValueError, match="is no cursor"):
        flows.dead.list(after="nothing")


def test_a_page_of_dead_items_is_as_long_as_the_configuration_says(store: Store, clock: ManualClock) -> None:
    from holdfast.workflows.config import HandlerConfig

    flows = Workflows(store, clock=clock, config=HandlerConfig(default_page_size=2))
    died(flows, flows.worker(), clock, "a", "b", "c")
    assert len(flows.dead.list()) == 2


def test_a_replayed_message_begins_with_its_first_attempt(
    flows: Workflows, store: Store, worker: WorkflowWorker, clock: ManualClock, journal: Journal
) -> None:
    died(flows, worker, clock, "k")
    flows.dead.replay("k")
    [item] = store.page(ITEM)
    assert (item.attempt, flows.dead.count(), flows.queue.size()) == (1, 0, 1)
    worker.run_once()
    assert flows.dead.show("k").attempts == 1  # still nobody of that name


def test_an_item_of_a_workflow_that_can_be_read_again_is_replayed(
    flows: Workflows, store: Store, clock: ManualClock, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    [record] = store.get(DEFINITION, [flows.record(run.id).definition])
    assert record is not None
    broken = evolve(record, graph="7")
    store.commit([Swap(DEFINITION, record, broken)])
    stranger = Workflows(store, clock=clock)
    Journal(stranger)
    stranger.worker().run_once()
    [dead] = flows.dead.list(run.id)
    assert (dead.type, dead.stage, run.status) == ("run", "a", S.RUNNING)
    store.commit([Swap(DEFINITION, broken, evolve(broken, graph=record.graph))])
    flows.dead.replay(dead.id)
    flows.worker().run_once()
    assert (run.status, journal.ran, flows.dead.count()) == (S.SUCCEEDED, ["a"], 0)


def test_an_item_of_a_stage_that_its_workflow_does_not_have_holds_nobody_up(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    strange, other = start(flows, stage("a")), start(flows, stage("b"))
    [item] = store.page(ITEM, equal(workflow=strange.id))
    store.commit([Swap(ITEM, item, evolve(item, ref="nowhere"))])
    worker.run_once()
    [dead] = flows.dead.list()
    assert (dead.workflow_id, dead.stage, other.status) == (strange.id, "nowhere", S.SUCCEEDED)
    assert "has no stage 'nowhere'" in str(dead.error)


def test_a_discarded_item_is_gone_and_its_id_is_free(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    died(flows, worker, clock, "k")
    assert not flows.queue.push(StartWorkflow(execution_id="none", message_id="k"))
    flows.dead.discard("k")
    assert flows.dead.list() == []
    assert flows.queue.push(StartWorkflow(execution_id="none", message_id="k"))


def test_what_is_not_dead_cannot_be_replayed_or_discarded(flows: Workflows, journal: Journal) -> None:
    run = start(flows, stage("a"))
    flows.queue.push(SkipStage(execution_id=run.id, stage_id="a", message_id="waits"))
    for act in (flows.dead.show, flows.dead.replay, flows.dead.discard):
        for id in ("waits", "none"):
            with pytest.raises(DeadLetterError, match=f"no dead item '{id}'"):
                act(id)
    assert flows.queue.size() == 1


def test_an_item_that_somebody_works_on_is_never_among_the_dead(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    [item] = store.page(ITEM)
    store.commit([Swap(ITEM, item, evolve(item, owner="somebody", due_at=None, attempt=99))])
    worker.run_once()
    assert (flows.dead.list(), run.status) == ([], S.RUNNING)
