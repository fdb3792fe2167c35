"""The log's numbers as the lock for the steps of a workflow, and its record beside them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import Conflict
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.workflows.items import items_of
from holdfast.workflows.log import MOST_BEHIND, as_of_now, stands
from holdfast.workflows.records import EVENT, ITEM, STAGE, WORKFLOW, WorkflowRecord
from holdfast.workflows.settling import in_order
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


def stored(store: Store, id: str) -> WorkflowRecord:
    found = store.get(WORKFLOW, [id])[0]
    assert found is not None
    return found


def succeed(flows: Workflows, store: Store, id: str, ref: str) -> list[Any]:
    """What a worker commits when the task of a stage has answered, without committing it."""
    run = flows.run_of(id)
    step = run.advance(store.now())
    run.read(store, (ref, *run.blueprint.plan.stages[ref].after))
    step.succeed(ref, {"result": 1}, {})
    return run.changes(step, fenced=True)[0]


def test_a_step_of_stages_alone_leaves_the_record_of_its_workflow_as_it_was(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"))
    before = stored(store, run.id)
    changes = succeed(flows, store, run.id, "a")
    assert {change.kind for change in changes} == {EVENT, STAGE}
    store.commit(changes)
    assert stored(store, run.id) == before
    assert (before.version, flows.record(run.id).version, flows.workflow(run.id).version) == (1, 2, 2)
    assert flows.summary(run.id).version == 2
    assert flows.state_at(run.id, 2).stages["b"].status is S.RUNNING
    with pytest.raises(ValueError, match="goes from 0 to 2; there is no 3"):
        flows.state_at(run.id, 3)


def test_a_step_that_changes_the_workflow_itself_writes_its_record_at_the_number_of_its_entry(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "a"))
    assert stored(store, run.id).version == 1
    store.commit(succeed(flows, store, run.id, "a"))  # one stage has ended, and two are under way
    assert (stored(store, run.id).live, stored(store, run.id).version) == (2, 2)
    flows.cancel(run.id)
    assert (stored(store, run.id).status, stored(store, run.id).version) == (S.CANCELED, 3)


def test_of_two_steps_that_have_seen_the_same_state_only_one_is_stored(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b"), stage("c", "a"), stage("d", "b"))
    first, second = succeed(flows, store, run.id, "a"), succeed(flows, store, run.id, "b")
    store.commit(first)
    with pytest.raises(Conflict):
        store.commit(second)
    store.commit(succeed(flows, store, run.id, "b"))
    assert [one.id for one in store.page(EVENT, equal(workflow=run.id))] == [f"{run.id}.{n:09d}" for n in (1, 2, 3)]


def test_an_act_of_an_operator_beside_a_step_of_stages_alone_is_decided_anew(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    step = succeed(flows, store, run.id, "a")
    looks = 0

    def act(seen: Any, advance: Any) -> list[Any]:
        nonlocal looks
        looks += 1
        if looks == 1:
            store.commit(step)
        advance.note("looked", seen=seen.seq)
        return []

    flows.change(run.id, act)
    assert looks == 2
    assert [(entry.seq, entry.facts) for entry in flows.log(run.id) if entry.type == "looked"] == [(3, {"seen": 2})]


def test_a_worker_that_has_an_earlier_state_in_its_memory_reads_it_anew(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"))
    runs = worker._shift._runs
    runs.refresh([run.id])
    had = runs.get(run.id)
    runs.refresh([run.id])
    assert runs.get(run.id) is had
    store.commit(succeed(flows, store, run.id, "a"))
    runs.refresh([run.id])
    fresh = runs.get(run.id)
    assert had is not None
    assert fresh is not None
    assert (had.seq, fresh.seq, fresh.record == had.record) == (1, 2, True)


class Meddling:
    """A store in which something happens between two looks."""

    def __init__(self, store: Store, *acts: Any) -> None:
        self._store = store
        self._acts = list(acts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, kind: Any, ids: Any) -> list[Any]:
        found = self._store.get(kind, ids)
        if kind is EVENT and self._acts:
            self._acts.pop(0)()
        return found


def test_record_and_number_are_of_one_moment_whatever_happens_between_the_looks(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"), stage("c", "b"))
    store.commit(succeed(flows, store, run.id, "a"))
    early = stored(store, run.id)
    meddling: Any = Meddling(store, lambda: None, lambda: flows.pause(run.id))
    found = stands(meddling, early)
    assert found is not None
    record, seq = found
    assert (record.status, record.version, seq) == (S.PAUSED, 3, 3)


def test_the_record_of_a_long_workflow_is_written_now_and_then_and_its_last_number_is_found_near_it(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    refs = [f"s{number}" for number in range(30)]
    stages = [stage(ref, *before) for ref, before in zip(refs, [(), *((ref,) for ref in refs)], strict=False)]
    run = start(flows, *stages)
    behind = []
    for ref in refs[:-1]:
        store.commit(succeed(flows, store, run.id, ref))
        record = stored(store, run.id)
        assert stands(store, record) == (record, flows.log(run.id)[-1].seq)
        behind.append(flows.record(run.id).version - record.version)
    assert behind[: MOST_BEHIND + 2] == [*range(1, MOST_BEHIND + 1), 0, 1]
    assert max(behind) == MOST_BEHIND


def _chain(flows: Workflows, length: int) -> Any:
    return start(flows, *(stage(f"s{at}", *[f"s{at - 1}"] * bool(at)) for at in range(length)))


def test_many_workflows_are_looked_for_in_the_same_few_questions(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    runs = [_chain(flows, MOST_BEHIND + 4) for _ in range(MOST_BEHIND + 1)]
    for number, run in enumerate(runs):
        for at in range(number):
            store.commit(succeed(flows, store, run.id, f"s{at}"))
    records = [stored(store, run.id) for run in runs]
    asked: list[Any] = []
    counting: Any = Meddling(store, *[lambda: asked.append(1)] * 100)
    found = as_of_now(counting, [(record, record.version) for record in records])
    assert found == [(record, number + 1) for number, record in enumerate(records)]
    assert len(asked) == 2


def test_a_workflow_that_is_gone_by_then_stands_nowhere(flows: Workflows, store: Store, journal: Journal) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    store.commit(succeed(flows, store, run.id, "a"))
    early = stored(store, run.id)

    def remove() -> None:
        store.sweep(WORKFLOW, equal(id=run.id))

    meddling: Any = Meddling(store, remove)
    assert stands(meddling, early) is None
    assert as_of_now(store, []) == []


def test_of_many_changes_the_entries_of_logs_come_first_and_in_the_order_of_their_ids(
    flows: Workflows, store: Store, journal: Journal
) -> None:
    runs = [start(flows, stage("a"), stage("b", "a")) for _ in range(3)]
    made = in_order([one for run in reversed(runs) for one in succeed(flows, store, run.id, "a")])
    assert [change.record.id for change in made[:3]] == [f"{run.id}.000000002" for run in runs]  # type: ignore[union-attr]  # inserts
    assert {change.kind for change in made[3:]} == {STAGE}


def test_a_worker_whose_workflow_was_replaced_by_another_one_of_its_id_writes_nothing_into_it(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"), stage("b", "a"))
    [item] = items_of(store, flows.run_of(run.id))
    late = [Swap(ITEM, item, item._replace(version=item.version + 1, ref="b")), *succeed(flows, store, run.id, "a")]
    for kind in (STAGE, EVENT, ITEM):
        store.sweep(kind, equal(workflow=run.id))
    gone = stored(store, run.id)
    store.sweep(WORKFLOW, equal(id=run.id))
    store.commit([Insert(WORKFLOW, gone._replace(version=1, created_at=gone.created_at + 1))])
    with pytest.raises(Conflict):
        store.commit(late)
    assert store.page(EVENT, equal(workflow=run.id)) == []
