"""Calls that take next to nothing: one thread makes them all, and somebody has an eye on it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.store.port import Store
from holdfast.workflows.calling import Call
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.run import Run
from holdfast.workflows.task_call import TaskCall
from holdfast.workflows.threads import Threads
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows

PATIENCE_S = 60
WAITS, OPENS = -1, -2
gate = threading.Event()


@task
def light(number: int) -> int:
    if number == WAITS:
        assert gate.wait(PATIENCE_S)
    elif number == OPENS:
        gate.set()
    return number


@workflow
def single(number: int) -> Any:
    return light(number)


def line(steps: int) -> Any:
    @workflow(name="line")
    def line(number: int) -> Any:
        for _ in range(steps):
            number = light(number)
        return number

    return line


@pytest.fixture
def live(store: Store) -> Iterator[tuple[Workflows, WorkflowWorker]]:
    gate.clear()
    flows = Workflows(store, clock=SYSTEM_CLOCK)
    flows.register(light)
    worker = flows.worker(beat_s=0.05, ttl_s=60.0).start()
    yield flows, worker
    gate.set()
    worker.stop()
    flows.close()


def become_light(flows: Workflows, worker: WorkflowWorker) -> None:
    """Until the worker knows how little a call takes."""
    pace = worker._shift.hands._pace
    while not pace.is_light("light"):
        flows.start(single, 1).result(PATIENCE_S)


def test_a_light_call_that_hangs_holds_up_none_behind_it(live: tuple[Workflows, WorkflowWorker]) -> None:
    flows, worker = live
    become_light(flows, worker)
    runs = flows.start_many(single, [(WAITS,), *[(number,) for number in range(20)], (OPENS,)])
    assert [run.result(PATIENCE_S) for run in runs] == [WAITS, *range(20), OPENS]


def test_what_light_calls_have_left_is_stored_while_the_next_one_hangs(
    live: tuple[Workflows, WorkflowWorker],
) -> None:
    flows, worker = live
    become_light(flows, worker)
    *quick, slow = flows.start_many(single, [*[(number,) for number in range(20)], (WAITS,)])
    assert [run.result(PATIENCE_S) for run in quick] == [*range(20)]
    gate.set()
    assert slow.result(PATIENCE_S) == WAITS


def test_what_follows_from_a_light_call_is_made_by_the_same_thread_with_the_same_ticket(
    live: tuple[Workflows, WorkflowWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    flows, worker = live
    become_light(flows, worker)
    assert_few_tickets(flows, monkeypatch)


def test_a_commit_that_takes_its_time_does_not_cost_the_thread_what_follows_from_it(
    live: tuple[Workflows, WorkflowWorker], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows, worker = live
    become_light(flows, worker)
    commit = store.commit

    def slowly(*args: Any, **kwargs: Any) -> None:
        worker._shift.hands._lanes._spread()  # as whoever has an eye on it does when nothing ends for a moment
        commit(*args, **kwargs)

    monkeypatch.setattr(store, "commit", slowly)
    assert_few_tickets(flows, monkeypatch)


def assert_few_tickets(flows: Workflows, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, enter = list[TaskCall](), TaskCall.enter

    def entering(call: TaskCall) -> None:
        begun.append(call)
        enter(call)

    monkeypatch.setattr(TaskCall, "enter", entering)
    steps = 50
    for _ in range(20):  # somebody may look at a moment when the thread has no processor, and call another one
        begun.clear()
        assert flows.start(line(steps), 1).result(PATIENCE_S) == 1
        if len(begun) < steps // 2:
            return
    pytest.fail(f"{steps} calls took {len(begun)} tickets")


def test_patient_work_waits_for_the_thread_at_work_until_it_is_hurried() -> None:
    threads, begun, done = Threads("patient", 10.0), threading.Event(), threading.Event()
    release, seen = threading.Event(), list[str]()

    def hangs() -> None:
        begun.set()
        release.wait(PATIENCE_S)

    def follows() -> None:
        seen.append(threading.current_thread().name)
        done.set()

    assert threads.run(hangs)
    assert begun.wait(PATIENCE_S)
    assert threads.run(follows, patient=True)
    assert threads.is_behind
    assert not seen
    threads.hurry()
    assert done.wait(PATIENCE_S)
    assert not threads.is_behind
    release.set()
    threads.close()


def test_patient_work_is_done_by_the_thread_at_work() -> None:
    threads, done, seen = Threads("patient", 10.0), threading.Event(), list[int]()

    def first() -> None:
        for _ in range(3):
            threads.run(then, patient=True)

    def then() -> None:
        seen.append(threading.get_ident())
        if len(seen) == 3:
            done.set()

    assert threads.run(first, patient=True)  # nobody is at work: a thread comes
    assert done.wait(PATIENCE_S)
    assert len(set(seen)) == 1
    threads.close()


def test_what_is_done_with_is_freed_without_a_search_for_cycles(live: tuple[Workflows, WorkflowWorker]) -> None:
    flows, worker = live
    become_light(flows, worker)
    gc.collect()
    before = _of_workflows()  # other tests may have left some
    known = {id(one) for one in before}
    gc.disable()
    try:
        for run in flows.start_many(single, [(number,) for number in range(50)]):
            run.result(PATIENCE_S)
        worker.stop()
        assert not [one for one in _of_workflows() if id(one) not in known]
    finally:
        gc.enable()


def _of_workflows() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, Run | Call)]
