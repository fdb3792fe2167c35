"""Starting workflows where a worker is at work: in its commits, and with the first work in its hands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.context import deadline, remaining_time
from holdfast.errors import WorkflowDefinitionError
from holdfast.store.port import Change, Insert, Store
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import ITEM, WORKFLOW
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import Gate

told: ContextVar[str] = ContextVar("told", default="nothing")


@task
def add_one(number: int) -> int:
    return number + 1


@workflow
def twice(number: int) -> Any:
    return add_one(add_one(number))


@pytest.fixture
def live(store: Store) -> Iterator[tuple[Workflows, WorkflowWorker]]:
    flows = Workflows(store, clock=SYSTEM_CLOCK)
    flows.register(add_one)
    worker = flows.worker(beat_s=0.05, ttl_s=60.0).start()
    yield flows, worker
    worker.stop()
    flows.close()


def at_work(worker: WorkflowWorker, *, is_shown: bool = True) -> WorkflowWorker:
    """A worker as it is between two looks, without the thread that looks."""
    worker._shift.works = True
    if is_shown:
        worker.presence.show()
    return worker


def show(flows: Workflows, worker: WorkflowWorker) -> None:
    """Have the worker give a sign of life, which it does when it has work."""
    assert flows.start(twice, 1).result(30) == 3
    assert worker.presence.is_lasting


def test_the_first_task_of_a_new_workflow_belongs_to_the_worker_at_work(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], store: Store
) -> None:
    gate = Gate("done")
    wait = task(name="wait")(gate)
    waiting = workflow(name="waiting")(lambda: wait())
    first = flows.start(waiting)
    worker = at_work(worker_of())
    more = flows.start_many(waiting, [(), {}])
    owners = {item.workflow: (item.owner, item.version) for item in store.page(ITEM)}
    assert owners == {first.id: (None, 1)} | {run.id: (worker.presence.id, 1) for run in more}
    gate.open()
    assert [run.result(30) for run in more] == ["done"] * 2


def test_a_task_knows_nothing_of_the_deadline_and_the_context_in_which_its_workflow_was_started(
    live: tuple[Workflows, WorkflowWorker],
) -> None:
    flows, worker = live
    seen: list[tuple[float, str]] = []

    @task
    def look(number: int) -> None:
        seen.append((remaining_time(), told.get()))

    @workflow
    def looking(number: int) -> Any:
        return look(number)

    show(flows, worker)
    flows.start(looking, 1).result(30)
    token = told.set("something")
    try:
        with deadline(5.0):
            run = flows.start(looking, 1)
        run.result(30)
    finally:
        told.reset(token)
    assert all(left > 1000 and said == "nothing" for left, said in seen)
    assert len(seen) == 2


def test_a_worker_that_has_no_row_leaves_new_work_to_whoever_claims_it(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], store: Store
) -> None:
    worker = at_work(worker_of(), is_shown=False)
    flows.start(twice, 1)
    flows.start(twice, 1)
    assert {item.owner for item in store.page(ITEM)} == {None}
    assert not worker.presence.is_shown


def test_a_worker_that_stops_takes_no_new_work_and_leaves_none_behind(
    live: tuple[Workflows, WorkflowWorker], store: Store
) -> None:
    flows, worker = live
    show(flows, worker)
    started: list[Any] = []

    def start_some() -> None:
        started.extend(flows.start_many(twice, [(1,)] * 20))

    threads = [threading.Thread(target=start_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    worker.stop()
    for thread in threads:
        thread.join()
    assert len(started) == 80
    assert {item.owner for item in store.page(ITEM, limit=1000)} <= {None}
    other = flows.worker()
    other.run_once()
    other.close()
    assert {run.result(30) for run in started} == {3}


def test_nothing_goes_on_at_a_worker_that_is_closed(flows: Workflows, worker_of: Callable[..., WorkflowWorker]) -> None:
    """Who waits for a result would wait for news from there, and look at the store only now and then."""
    gate = Gate("done")
    wait = task(name="wait")(gate)
    waiting = workflow(name="waiting")(lambda: wait())
    flows.start(waiting)
    worker = at_work(worker_of())
    run = flows.start(waiting)
    gate.entered()
    assert worker.has(run.id)
    worker.close()
    assert not worker.has(run.id)
    gate.open()


def test_a_worker_takes_no_more_new_work_than_it_has_room_for(store: Store) -> None:
    flows = Workflows(store, clock=SYSTEM_CLOCK)
    gate, began = threading.Event(), threading.Semaphore(0)

    @task
    def wait_at_gate(number: int) -> int:
        began.release()
        gate.wait(30)
        return number

    @workflow
    def waiting(number: int) -> Any:
        return wait_at_gate(number)

    flows.register(add_one, wait_at_gate)
    worker = flows.worker(threads=2, beat_s=0.05, ttl_s=60.0).start()
    try:
        show(flows, worker)
        first = flows.start(waiting, 0)
        runs = [first, *flows.start_many(waiting, [(number,) for number in range(1, 10)])]
        assert began.acquire(timeout=30)
        assert began.acquire(timeout=30)
        owned = [item for item in store.page(ITEM, limit=100) if item.owner is not None]
        assert 2 <= len(owned) <= 4  # a claim may fill the same two slots at the same moment
        gate.set()
        assert [run.result(30) for run in runs] == list(range(10))
    finally:
        gate.set()
        worker.stop()
        flows.close()


def test_a_worker_of_another_queue_leaves_new_work_alone(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], store: Store
) -> None:
    flows.start(twice, 1)
    at_work(worker_of(queues=("other",)))
    flows.start(twice, 1)
    assert {item.owner for item in store.page(ITEM)} == {None}


def test_new_work_waits_behind_what_was_announced_and_not_looked_at(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], store: Store
) -> None:
    flows.start(twice, 1)
    worker = at_work(worker_of())
    worker.wake()
    flows.start(twice, 1)
    assert {item.owner for item in store.page(ITEM)} == {None}


def test_of_many_starts_one_whose_key_is_taken_gives_the_first_workflow(flows: Workflows) -> None:
    first = flows.start(twice, 2, idempotency_key="b")
    runs = flows.start_many(twice, [(1,), (2,), (3,)], idempotency_keys=["a", "b", None])
    assert runs[1].id == first.id
    assert len({run.id for run in runs}) == 3
    assert sum(flows.counts().values()) == 3


def test_a_hot_start_with_a_key_that_is_taken_gives_the_first_workflow(live: tuple[Workflows, WorkflowWorker]) -> None:
    flows, worker = live
    show(flows, worker)
    first = flows.start(twice, 2, idempotency_key="b")
    assert flows.start(twice, 2, idempotency_key="b").id == first.id
    with pytest.raises(WorkflowDefinitionError, match="another input"):
        flows.start(twice, 3, idempotency_key="b")
    assert first.result(30) == 4


def test_start_many_refuses_what_is_no_input_and_starts_nothing(flows: Workflows) -> None:
    with pytest.raises(WorkflowDefinitionError, match="a tuple of arguments, or a dict"):
        flows.start_many(twice, [(1,), 2])  # type: ignore[list-item]  # what is tested
    with pytest.raises(WorkflowDefinitionError, match="2 inputs and 1 idempotency_keys"):
        flows.start_many(twice, [(1,), (2,)], idempotency_keys=["a"])
    with pytest.raises(WorkflowDefinitionError, match="twice"):
        flows.start_many(twice, [(1,), {"wrong": 2}])
    assert flows.counts() == {}


def test_many_starts_of_a_workflow_that_is_new_to_the_store_take_few_commits(
    flows: Workflows, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, commits = store.commit, list[int]()

    def counting(changes: Sequence[Change], **kwargs: Any) -> None:
        commits.append(sum(isinstance(change, Insert) and change.kind is WORKFLOW for change in changes))
        commit(changes, **kwargs)

    monkeypatch.setattr(store, "commit", counting)
    runs = flows.start_many(twice, [(number,) for number in range(250)])
    assert [number for number in commits if number] == [1, 200, 49]  # the first one brings the definition
    assert [run.record.context for run in runs] == [f'{{"number":{number}}}' for number in range(250)]


def test_many_starts_of_which_some_have_a_definition_of_their_own_keep_their_order(flows: Workflows) -> None:
    @workflow
    def branches(number: int) -> Any:
        return add_one(add_one(number)) if number % 4 == 3 else add_one(number)

    flows.register(add_one)
    runs = flows.start_many(branches, [(number,) for number in range(20)])
    flows.worker().run_once()
    assert [run.result(0) for run in runs] == [number + 1 + (number % 4 == 3) for number in range(20)]


def test_starting_none_is_nothing(flows: Workflows) -> None:
    assert flows.start_many(twice, []) == []
