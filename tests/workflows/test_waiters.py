"""Waiting for the end of a workflow: told where it goes on in this process, found where it does not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import Retry
from holdfast.backends.memory import MemoryStore
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.errors import PolicyError, StoreUnavailable
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Insert, Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows import waiters as waiters_module
from holdfast.workflows.cancel import current_task_token
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.handle import WorkflowRun
from holdfast.workflows.records import WORKFLOW, WorkflowRecord
from holdfast.workflows.settling import ENDED, WAKE
from holdfast.workflows.waiters import ALONE_S, FRESH_S, POLL_S, Ended, Waiter, Waiters
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import PATIENCE_S, until

go_on = threading.Event()


@task
def holds(number: int) -> dict[str, Any]:
    go_on.wait(PATIENCE_S)
    return {"twice": 2 * number, "pair": (number, number)}


@task
def plain(number: int) -> int:
    return number


@workflow
def pair(number: int) -> Any:
    return [plain(number), holds(number)["pair"]]


@workflow
def patient() -> Any:
    return wait_signal("go")


def record(status: WorkflowStatus) -> WorkflowRecord:
    return WorkflowRecord(
        "w", 1, None, status.value, "w", "", "d", "default", 0, None, None, None, 0, 0, 1, None, None, None, "{}", "{}"
    )  # fmt: skip


def test_what_ends_in_this_process_is_told_as_it_is_stored(store: Store) -> None:
    flows = Workflows(store)
    flows.register(plain, holds)
    worker = flows.worker().start()
    go_on.clear()
    run = flows.start(pair, 3)
    threading.Timer(0.05, go_on.set).start()
    assert run.result(PATIENCE_S) == run.result(0) == [3, [3, 3]]
    assert worker.stop(PATIENCE_S)


def test_those_who_wait_in_a_forked_process_do_not_rely_on_who_waits_in_its_parent() -> None:
    running = record(WorkflowStatus.RUNNING)
    waiters = Waiters(MemoryStore(), lambda id: running, lambda id: False, SYSTEM_CLOCK)

    def looks_for_all() -> bool:
        return waiters.look(Waiter("w", None, lambda: None), woken=True) == POLL_S

    assert [looks_for_all(), looks_for_all()] == [True, False]
    child = os.fork()
    if child == 0:
        os._exit(0 if looks_for_all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Deaf(MemoryStore):
    """A store on which the end of a workflow cannot be heard of."""

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Any:
        if topic == ENDED:
            raise StoreUnavailable("away")
        return super().subscribe(topic, callback)


def test_who_cannot_listen_to_all_listens_to_nothing() -> None:
    store = Deaf()
    waiters = Waiters(store, lambda id: record(WorkflowStatus.RUNNING), lambda id: False, SYSTEM_CLOCK)
    with pytest.raises(StoreUnavailable):
        waiters.wait("w", PATIENCE_S)
    assert store._subscriptions == []


def test_nobody_asks_the_store_for_himself_while_another_one_asks_for_all() -> None:
    clock, asked = ManualClock(), list[str]()
    store = MemoryStore(clock)
    flows = {id: record(WorkflowStatus.RUNNING)._replace(id=id) for id in ("first", "second")}
    store.commit([Insert(WORKFLOW, flow) for flow in flows.values()])

    def ask(id: str) -> WorkflowRecord:
        asked.append(id)
        return flows[id]

    waiters = Waiters(store, ask, lambda id: False, clock)
    first, second = (Waiter(id, None, lambda: None) for id in flows)
    for one in (first, second):
        waiters.look(one, woken=True)
    asked.clear()
    clock.advance(ALONE_S)
    for one in (first, second):
        waiters.look(one, woken=False)
    assert asked == ["first"]
    clock.advance(ALONE_S)
    waiters.look(second, woken=False)  # the first one is held up
    assert asked == ["first", "second"]


def test_what_has_ended_elsewhere_is_found_however_much_is_told_of_others() -> None:
    store = MemoryStore()
    status = WorkflowStatus.RUNNING
    waiters = Waiters(store, lambda id: record(status), lambda id: True, SYSTEM_CLOCK)
    over = threading.Event()

    def tell() -> None:
        while not over.wait(0.01):
            store.commit([], wake=WAKE)

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        status = WorkflowStatus.SUCCEEDED
        assert waiters.wait("w", PATIENCE_S).record.status == "SUCCEEDED"
    finally:
        over.set()
        teller.join()
        waiters.close()


def test_whoever_does_not_wait_is_told_what_is_stored_not_what_is_thought_of_it() -> None:
    status = WorkflowStatus.RUNNING
    waiters = Waiters(MemoryStore(), lambda id: record(status), lambda id: True, SYSTEM_CLOCK)
    with pytest.raises(TimeoutError, match="has not ended within 0 s; it is RUNNING"):
        waiters.wait("w", 0)
    status = WorkflowStatus.CANCELED
    assert waiters.wait("w", 0).record.status == "CANCELED"
    waiters.close()


def test_nothing_is_kept_of_an_end_that_is_told_to_one_who_is_looking() -> None:
    def look(id: str) -> WorkflowRecord:
        ended = record(WorkflowStatus.SUCCEEDED)
        waiters.tell(Ended(ended, None))
        return ended

    waiters = Waiters(MemoryStore(), look, lambda id: False, SYSTEM_CLOCK)
    run = WorkflowRun(Workflows(MemoryStore()), "w")
    waiters.expect([run])
    assert waiters.wait("w", 0).record.status == "SUCCEEDED"
    assert waiters._fresh == {}


@pytest.fixture
def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of records that were asked for, in this order."""
    get, asked = store.get, list[str]()

    def noting(kind: Any, ids: Any) -> Any:
        asked.append(kind.name)
        return get(kind, ids)

    monkeypatch.setattr(store, "get", noting)
    return asked


@pytest.fixture
def flows(store: Store, clock: ManualClock) -> Workflows:
    made = Workflows(store, clock=clock)
    made.register(plain)
    return made


@workflow
def single(number: int) -> Any:
    return plain(number)


def test_who_asks_for_many_that_have_just_ended_here_is_told_without_a_look_at_the_store(
    flows: Workflows, asked: list[str]
) -> None:
    runs = flows.start_many(single, [(number,) for number in range(20)])
    flows.worker().run_once()
    asked.clear()
    assert [run.result(0) for run in runs] == list(range(20))
    assert asked == []
    assert [run.result(0) for run in runs] == list(range(20))  # for the second time, as it stands
    assert asked.count("workflow") == 20


def test_who_asks_some_time_after_the_end_is_told_how_it_stands(
    flows: Workflows, clock: ManualClock, asked: list[str]
) -> None:
    run = flows.start(single, 1)
    flows.worker().run_once()
    asked.clear()
    clock.advance(FRESH_S)
    assert run.result(0) == 1
    assert "workflow" in asked


def test_what_was_restarted_since_is_waited_for_again(flows: Workflows) -> None:
    run = flows.start(single, 1)
    flows.worker().run_once()
    flows.restart(run.id, "plain")
    with pytest.raises(TimeoutError):
        run.result(0)
    flows.worker().run_once()
    assert run.result(0) == 1


def test_who_asks_for_what_was_cancelled_here_is_told_at_once(flows: Workflows) -> None:
    go_on.clear()
    worker = flows.worker().start()
    run = flows.start(pair, 3)
    until(lambda: worker.has(run.id))
    flows.cancel(run.id)
    assert not worker.has(run.id)
    assert isinstance(flows.waiters.look(Waiter(run.id, None, lambda: None), woken=True), Ended)
    go_on.set()
    assert worker.stop(PATIENCE_S)


def test_what_anybody_may_go_on_with_is_not_taken_for_what_goes_on_here(flows: Workflows) -> None:
    @task(retry=Retry(attempts=2, base=3600))
    def shaky() -> None:
        raise ConnectionError

    @workflow
    def outer() -> Any:
        return plain(patient())

    worker = flows.worker()
    runs = [flows.start(workflow(name="retried")(lambda: shaky())), flows.start(outer)]
    worker.run_once()
    assert [run.status for run in runs] == [WorkflowStatus.RUNNING] * 2
    assert not any(worker.has(run.id) for run in runs)
    worker.close()


def test_a_worker_with_nothing_to_do_keeps_no_account_of_what_others_change(flows: Workflows) -> None:
    worker = flows.worker()
    for number in range(10):
        flows.cancel(flows.start(pair, number).id)
    assert len(worker._shift._settling._changed) == 0
    worker.close()


def test_an_end_that_is_told_after_the_workflow_was_restarted_does_not_count(flows: Workflows) -> None:
    run = flows.start(single, 1)
    flows.worker().run_once()
    late = Ended(run.record, None)
    flows.restart(run.id, "plain")
    flows.waiters.tell(late)
    with pytest.raises(TimeoutError):
        run.result(0)


def test_who_begins_to_wait_once_an_end_was_told_does_not_wait_for_that(flows: Workflows) -> None:
    goes_on: list[bool] = []
    entered, free = threading.Event(), threading.Event()

    @task
    def lasts() -> None:
        def look() -> None:  # called when the end was told, by whoever has told it
            goes_on.append(flows._goes_on_here(run.id))
            free.set()

        current_task_token().when_cancelled(look)
        entered.set()
        free.wait(PATIENCE_S)

    @task
    def breaks() -> None:
        entered.wait(PATIENCE_S)
        raise ValueError("no")

    run = flows.start(workflow(name="both")(lambda: [lasts(), breaks()]))
    flows.worker().run_once()
    assert goes_on == [False]


def test_what_has_failed_is_looked_at_and_may_have_been_mended_elsewhere(flows: Workflows, store: Store) -> None:
    @task
    def breaks() -> None:
        raise ValueError("no")

    flows.register(breaks)
    run = flows.start(workflow(name="breaks")(lambda: breaks()))
    flows.worker().run_once()
    elsewhere = Workflows(store, clock=flows.clock)
    elsewhere.register(task(name="breaks")(lambda: "mended"))
    elsewhere.retry(run.id)
    elsewhere.worker().run_once()
    assert run.result(0) == "mended"


def test_of_what_nobody_can_ask_for_nothing_is_kept_and_of_the_rest_only_so_much(
    flows: Workflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters_module, "MOST_FRESH", 5)
    flows.start_many(single, [(number,) for number in range(9)])
    flows.worker().run_once()
    assert flows.waiters._fresh == {}
    runs = flows.start_many(single, [(number,) for number in range(9)])
    flows.worker().run_once()
    assert len(flows.waiters._fresh) == 5
    assert [run.result(0) for run in runs] == list(range(9))


def test_one_looks_for_all_whose_workflows_go_on_elsewhere(flows: Workflows, store: Store, asked: list[str]) -> None:
    runs, woken = flows.start_many(single, [(number,) for number in range(20)]), list[str]()
    waiters = [Waiter(run.id, None, partial(woken.append, run.id)) for run in runs]
    for waiter in waiters:
        assert isinstance(flows.waiters.look(waiter, woken=True), float)
    asked.clear()
    for waiter in waiters:  # something has happened somewhere
        assert isinstance(flows.waiters.look(waiter, woken=True), float)
    assert asked.count("workflow") == 2  # for the first of them, and for all others together
    flows.pause(runs[0].id)
    flows.pause(runs[1].id)
    elsewhere = Workflows(store)
    elsewhere.register(plain)
    elsewhere.worker().run_once()
    woken.clear()
    assert isinstance(flows.waiters.look(waiters[0], woken=True), float)
    assert woken == [run.id for run in runs[2:]]
    for waiter in waiters[2:]:
        assert isinstance(flows.waiters.look(waiter, woken=True), Ended)
        flows.waiters.leave(waiter)
    woken.clear()
    flows.waiters.leave(waiters[0])
    assert woken == [runs[1].id]  # it looks from now on
    asked.clear()
    assert isinstance(flows.waiters.look(waiters[1], woken=True), float)
    assert asked.count("workflow") == 1
    flows.waiters.leave(waiters[1])


def test_who_has_waited_in_vain_is_told_that_no_worker_can_take_a_step() -> None:
    clock = ManualClock()
    flows = Workflows(MemoryStore(clock), clock=clock)
    run = flows.start(workflow(name="alone")(lambda: plain(1)))
    waiter = Waiter(run.id, 2.0, lambda: None)
    left = flows.waiters.look(waiter, woken=True)
    assert isinstance(left, float)
    clock.advance(2)
    with pytest.raises(TimeoutError, match="it is RUNNING, and stage 'plain' waits in vain: no worker is there"):
        flows.waiters.look(waiter, woken=False)
    flows.waiters.leave(waiter)


@pytest.mark.parametrize("timeout", ["5", float("nan"), object()])
def test_a_time_that_cannot_be_waited_for_is_refused(timeout: Any) -> None:
    flows = Workflows(MemoryStore())
    run = flows.start(workflow(name="alone")(lambda: plain(1)))
    with pytest.raises(PolicyError, match=r"timeout must be seconds, or a timedelta, got .*; leave it out"):
        run.result(timeout)


def test_the_time_to_wait_may_be_a_timedelta() -> None:
    flows = Workflows(MemoryStore())
    run = flows.start(workflow(name="alone")(lambda: plain(1)))
    with pytest.raises(TimeoutError, match="has not ended within 0 s"):
        run.result(timedelta(0))


@pytest.mark.parametrize("end", ["cancel", "signal"])
def test_the_end_that_this_process_brings_about_is_no_secret_to_who_asks_after_it(end: str) -> None:
    flows = Workflows(MemoryStore())
    run = flows.start(workflow(name="asking")(lambda: wait_signal("word")))
    worker = flows.worker()
    worker.run_once()  # the worker knows it now, and will hear of its end when it writes next
    if end == "cancel":
        flows.cancel(run.id)
    else:
        flows.signal(run.id, "word", 7)
    for _ in range(2):
        waiter = Waiter(run.id, PATIENCE_S, lambda: None)
        assert isinstance(flows.waiters.look(waiter, woken=True), Ended)
        flows.waiters.leave(waiter)
    worker.close()


def test_the_end_that_another_process_brings_about_is_no_secret_while_this_one_has_nothing_to_do() -> None:
    store = MemoryStore()
    flows, other = Workflows(store), Workflows(store)
    run = flows.start(workflow(name="asking")(lambda: wait_signal("word")))
    worker = flows.worker()
    worker.run_once()
    other.cancel(run.id)
    waiter = Waiter(run.id, PATIENCE_S, lambda: None)
    assert isinstance(flows.waiters.look(waiter, woken=True), Ended)
    flows.waiters.leave(waiter)
    worker.close()
