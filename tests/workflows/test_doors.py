"""What holds for every door to a workflow: one transaction, one handler, no event without its change."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends.open import open_store
from holdfast.errors import ConcurrencyError, StoreUnavailable
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Change, Insert, Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.messages import JumpToStage, PauseTask, RestartStage, ResumeStage, SignalStage, SkipStage
from holdfast.workflows.model import Workflow
from holdfast.workflows.records import (
    EVENT,
    ITEM,
    KINDS,
    MESSAGE,
    PROCESSED,
    SIGNAL,
    STAGE,
    WORKER,
    WORKFLOW,
    EventRecord,
    StageRecord,
    WorkerRecord,
    WorkflowRecord,
)
from holdfast.workflows.result import TaskResult
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@pytest.fixture
def journal(flows: Workflows) -> Journal:
    return Journal(flows)


class Watched:
    """A store that remembers its commits, and refuses those that a test says."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.commits: list[list[Change]] = []
        self.refuses: Any = lambda changes: False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change], **options: Any) -> None:
        if self.refuses(changes):
            raise StoreUnavailable("away")
        self._store.commit(changes, **options)
        self.commits.append(list(changes))


def record(change: Change) -> Any:
    return change.new if isinstance(change, Swap) else change.record


def test_no_change_of_a_workflow_is_stored_without_its_entry_in_the_log(store: Store, clock: ManualClock) -> None:
    watched = Watched(store)
    flows = Workflows(watched, clock=clock)  # type: ignore[arg-type]  # a store that watches
    journal, worker = Journal(flows), flows.worker()
    journal.answers["a"] = [TaskResult.wait_signal("go", 60)] * 2
    id = flows.store.store(Workflow.create("shop", "made", [stage("a"), stage("b", "a"), stage("c", "b")])).id
    flows.recovery.recover(id)
    worker.run_once()
    for message in (
        PauseTask(execution_id=id, stage_id="a"),
        ResumeStage(execution_id=id, stage_id="a"),
        SignalStage(execution_id=id, signal_name="other"),
        JumpToStage(execution_id=id, stage_id="a", target_stage_ref_id="a"),
        SignalStage(execution_id=id, signal_name="go"),
        RestartStage(execution_id=id, stage_id="c"),
    ):
        flows.queue.push(message)
        worker.run_once()
    assert (flows.dead.list(), flows.get(id).status) == ([], S.SUCCEEDED)
    numbers = []
    for changes in watched.commits:
        made = [record(change) for change in changes if not isinstance(change, str)]
        flow = [f"{one.id}.{one.version:09d}" for one in made if isinstance(one, WorkflowRecord)]
        events = [one.id for one in made if isinstance(one, EventRecord)]
        assert flow in (events, [])  # nothing but stages has changed, where it is not written
        assert bool(events) == any(isinstance(one, WorkflowRecord | StageRecord) for one in made)
        numbers += events
    assert numbers == [f"{id}.{number:09d}" for number in range(1, flows.record(id).version + 1)]
    assert [one.id for one in store.page(EVENT, limit=1000)] == numbers


def test_to_handle_a_message_is_one_transaction(store: Store, clock: ManualClock) -> None:
    watched = Watched(store)
    flows = Workflows(watched, clock=clock)  # type: ignore[arg-type]  # a store that watches
    Journal(flows)
    run = start(flows, stage("a"), stage("b", "a"))
    flows.queue.push(SkipStage(execution_id=run.id, stage_id="b", message_id="k"))
    [bell] = [item for item in store.page(ITEM) if item.kind == "message"]
    watched.commits.clear()
    flows.delivery.deliver(bell)
    [changes] = watched.commits
    assert {(type(change).__name__, change.kind) for change in changes} >= {
        ("Delete", ITEM), ("Delete", MESSAGE), ("Insert", PROCESSED), ("Swap", WORKFLOW), ("Insert", EVENT),
    }  # fmt: skip


def test_a_message_that_was_under_way_when_the_store_went_away_is_handled_when_it_is_back(
    store: Store, clock: ManualClock
) -> None:
    watched = Watched(store)
    flows = Workflows(watched, clock=clock)  # type: ignore[arg-type]  # a store that watches
    journal, worker = Journal(flows), flows.worker()
    run = start(flows, stage("a"))
    worker.run_once()
    flows.queue.push(RestartStage(execution_id=run.id, stage_id="a", message_id="k"))
    watched.refuses = lambda changes: any(change.kind is PROCESSED for change in changes)
    with pytest.raises(StoreUnavailable):
        worker.run_once()
    assert not flows.store.is_message_processed("k")
    watched.refuses = lambda changes: False
    worker.run_once()
    assert (journal.ran, flows.dead.list(), store.page(ITEM)) == (["a", "a"], [], [])


def test_the_message_of_a_worker_that_died_is_handled_by_another(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    flows.queue.push(SkipStage(execution_id=run.id, stage_id="a"))
    [bell] = [item for item in store.page(ITEM) if item.kind == "message"]
    store.commit([
        Insert(WORKER, WorkerRecord("dead", 1, store.now() - 1, "elsewhere", "1 1", "{}")),
        Swap(ITEM, bell, evolve(bell, owner="dead", due_at=None)),
    ])  # fmt: skip
    worker.run_once()
    assert (run.status, flows.queue.size(), store.page(ITEM)) == (S.SUCCEEDED, 0, [])


def test_a_worker_that_lost_a_message_does_nothing_with_it(
    flows: Workflows, store: Store, worker: WorkflowWorker, journal: Journal
) -> None:
    run = start(flows, stage("a"))
    worker.run_once()
    flows.queue.push(RestartStage(execution_id=run.id, stage_id="a", message_id="k"))
    [bell] = store.page(ITEM)
    store.commit([Swap(ITEM, bell, evolve(bell, owner="another", due_at=None))])
    flows.delivery.deliver(bell)  # as it was before
    assert (journal.ran, flows.store.is_message_processed("k"), flows.queue.size()) == (["a"], False, 1)


def test_a_message_whose_id_is_taken_meanwhile_goes_without_effect(store: Store, clock: ManualClock) -> None:
    watched = Watched(store)
    flows = Workflows(watched, clock=clock)  # type: ignore[arg-type]  # a store that watches
    journal, worker = Journal(flows), flows.worker()
    run = start(flows, stage("a"))
    worker.run_once()
    flows.queue.push(RestartStage(execution_id=run.id, stage_id="a", message_id="k"))

    def taken(changes: Sequence[Change]) -> bool:
        if any(change.kind is PROCESSED for change in changes):
            watched.refuses = lambda changes: False
            with flows.store.transaction() as txn:
                txn.mark_message_processed(message_id="k", handler_type="Mine", execution_id=run.id)
        return False

    watched.refuses = taken
    worker.run_once()
    assert (journal.ran, flows.queue.size(), store.page(ITEM)) == (["a"], 0, [])


def test_taking_a_signal_and_going_on_is_one_transaction(store: Store, clock: ManualClock) -> None:
    watched = Watched(store)
    flows = Workflows(watched, clock=clock)  # type: ignore[arg-type]  # a store that watches
    journal, worker = Journal(flows), flows.worker()
    journal.answers["a"] = [TaskResult.wait_signal("go", 60)]
    run = start(flows, stage("a"))
    flows.signal(run.id, "go", 7)
    taken_with: list[set[str]] = []

    def refuses(changes: Sequence[Change]) -> bool:
        if not any(change.kind is SIGNAL for change in changes):
            return False
        taken_with.append({change.kind.name for change in changes})
        return True

    watched.refuses = refuses
    with pytest.raises(StoreUnavailable):
        worker.run_once()
    assert taken_with
    assert all(kinds >= {EVENT.name, STAGE.name, ITEM.name} for kinds in taken_with)
    assert (len(store.page(SIGNAL)), flows.stages(run.id)) == (1, {"a": S.RUNNING})
    watched.refuses = lambda changes: False
    worker.run_once()
    assert (store.page(SIGNAL), run.status) == ([], S.SUCCEEDED)


def test_a_stage_that_runs_has_an_item_after_every_single_commit(store: Store, clock: ManualClock) -> None:
    watched = Watched(store)
    flows = Workflows(watched, clock=clock)  # type: ignore[arg-type]  # a store that watches
    Journal(flows)
    lacking: list[Any] = []

    def look(changes: Sequence[Change]) -> bool:
        running = {one.ref for one in store.page(STAGE) if one.status == "RUNNING"}
        lacking.extend(running - {item.ref for item in store.page(ITEM)})
        return False

    watched.refuses = look
    start(flows, stage("a"), stage("b"), stage("c", "a", "b"), stage("d", "c"))
    flows.worker().run_once()
    look(())
    assert lacking == []


def test_every_message_is_handled_once_by_many_workers(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'many.db'}", kinds=KINDS)
    flows = Workflows(store)
    journal = Journal(flows)
    runs = [start(flows, stage("a", context={"n": n})) for n in range(8)]
    flows.worker().run_once()
    journal.ran.clear()
    for number in range(40):
        run = runs[number % 8]
        flows.queue.push(SkipStage(execution_id=run.id, stage_id="a", message_id=f"m{number}", max_attempts=1))
        flows.queue.push(SkipStage(execution_id=run.id, stage_id="a", message_id=f"m{number}", max_attempts=1))
    workers = [flows.worker() for _ in range(3)]
    threads = [threading.Thread(target=worker.run_once) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(dead.id for dead in flows.dead.list()) == Counter(f"m{number}" for number in range(40))
    assert (flows.queue.size(), store.page(ITEM)) == (0, [])
    store.close()


def test_of_many_who_store_the_same_stage_one_wins_each_round(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'race.db'}", kinds=KINDS)
    flows = Workflows(store)
    Journal(flows)
    run = start(flows, stage("a"))
    won: list[int] = []

    def count(number: int, mine: Any) -> None:
        mine.context["by"] = number
        try:
            flows.store.store_stage(mine)
        except ConcurrencyError:
            return
        won.append(number)

    for _ in range(5):
        stages = [flows.store.get_stage(f"{run.id}.a") for _ in range(4)]
        threads = [threading.Thread(target=count, args=pair) for pair in enumerate(stages)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(won) == 5
    assert flows.store.get_stage(f"{run.id}.a").version == 6
    store.close()
