"""Whose turn it is: workflows with a long backlog, and rates of tasks and queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import PolicyError, TransientError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.store.query import Condition, Where
from holdfast.store.record import evolve
from holdfast.testing import ManualClock
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import ITEM, ItemRecord
from holdfast.workflows.task_context import current_task
from holdfast.workflows.turns import Turns
from holdfast.workflows.waiting import sleep
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows

S = WorkflowStatus
RAN: list[str] = []
PLACE = ("default", 0, "note")
DUE = (Condition("due_at", "is set"),)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@task
def note(name: str) -> str:
    RAN.append(name)
    return name


@workflow
def wide(name: str, width: int) -> Any:
    return [note(name) for _ in range(int(width))]


@workflow
def chain(name: str, length: int) -> Any:
    last = note(name)
    for _ in range(int(length) - 1):
        last = note(name, after=last)
    return last


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_huge_workflow_does_not_hold_up_those_that_come_after_it(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], threads: int
) -> None:
    flows.start(wide, "huge", 60)
    flows.start(chain, "small", 3)
    flows.start(wide, "other", 3)
    worker_of(threads=threads).run_once()
    assert Counter(RAN) == {"huge": 60, "small": 3, "other": 3}
    last = max(place for place, name in enumerate(RAN) if name != "huge")
    assert last < 30, RAN


def test_a_huge_workflow_goes_on_though_another_one_comes(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker]
) -> None:
    flows.start(wide, "huge", 30)
    flows.start(wide, "later", 60)
    worker_of(threads=1).run_once()
    early = Counter(RAN[:40])
    assert min(early["huge"], early["later"]) >= 10, early


def test_of_many_workflows_that_have_little_to_do_the_first_goes_first(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker], clock: ManualClock
) -> None:
    names = [f"w{number}" for number in range(20)]
    for name in names:
        flows.start(chain, name, 1)
        clock.advance(0.001)
    worker_of(threads=1).run_once()
    assert names == RAN


class Watched:
    """A store that counts the looks past somebody, each of which takes its time."""

    def __init__(self, store: Store, clock: ManualClock, cost_s: float) -> None:
        self._store = store
        self._clock = clock
        self._cost_s = cost_s
        self.looks = 0

    def page(self, kind: Any, where: Where, **options: Any) -> Any:
        self.looks += 1
        self._clock.advance(self._cost_s)
        return self._store.page(kind, where, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def own(item: ItemRecord) -> ItemRecord:
    return evolve(item, owner="me", due_at=None)


@pytest.mark.parametrize(("cost_s", "looks"), [(0.0, 28), (1.0, 2)])
def test_to_look_past_a_long_backlog_takes_a_small_part_of_the_time(
    flows: Workflows, store: Store, clock: ManualClock, cost_s: float, looks: int
) -> None:
    flows.start(wide, "huge", 60)
    watched = Watched(store, clock, cost_s)
    turns = Turns(watched, clock)  # type: ignore[arg-type]  # a store, but for its pages
    for _ in range(29):
        assert len(turns.claim(PLACE, DUE, own, 2)) == 2
        clock.advance(1.0)
    assert watched.looks == looks


def test_without_a_backlog_nobody_looks_past_anybody(flows: Workflows, store: Store, clock: ManualClock) -> None:
    watched = Watched(store, clock, 0.0)
    turns = Turns(watched, clock)  # type: ignore[arg-type]  # as above
    for _ in range(5):
        flows.start(wide, "small", 3)
        assert len(turns.claim(PLACE, DUE, own, 99)) == 3
    assert watched.looks == 0


def made_in(worker: WorkflowWorker, clock: ManualClock, seconds: float, step: float = 0.1) -> list[int]:
    """How many tasks have run after each step of time."""
    made = list[int]()
    for _ in range(round(seconds / step)):
        worker.run_once()
        made.append(len(RAN))
        clock.advance(step)
    return made


def test_tasks_of_a_type_are_begun_no_more_often_than_their_rate(
    flows: Workflows, worker: WorkflowWorker, store: Store, clock: ManualClock
) -> None:
    flows.rates.limit_task("note", 2, per=1)
    run = flows.start(wide, "a", 6)
    assert made_in(worker, clock, 1.1) == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3]
    waiting = store.page(ITEM)
    assert [(item.owner, item.attempt, item.due_at is None) for item in waiting] == [(None, 1, False)] * 3
    made_in(worker, clock, 1.6)
    assert run.status is S.SUCCEEDED


def test_after_a_pause_a_burst_may_be_begun_at_once(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.rates.limit_task("note", 60, per=timedelta(minutes=1), burst=4)
    flows.start(wide, "a", 6)
    assert made_in(worker, clock, 3, 1.0) == [4, 5, 6]


def test_a_rate_holds_for_all_workers_of_a_store_together(store: Store, clock: ManualClock) -> None:
    engines = [Workflows(store, clock=clock) for _ in range(3)]
    for engine in engines:
        engine.rates.limit_task("note", 1)
        engine.add(wide)
    engines[0].start(wide, "a", 9)
    workers = [engine.worker() for engine in engines]
    for _ in range(4):
        for worker in workers:
            worker.run_once()
        clock.advance(1)
    for worker in workers:
        worker.close()
    assert len(RAN) == 4


def test_a_queue_has_a_rate_for_all_of_its_tasks_and_what_only_waits_has_none(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    @task
    def other(name: str) -> None:
        RAN.append(name)

    @workflow
    def both(name: str) -> Any:
        return [note(name), other(name)]

    flows.rates.limit_queue("default", 1)
    flows.rates.limit_task("other", 1000, burst=50)  # of both, the tighter one counts
    for number in range(2):
        flows.start(both, f"{number}")
    assert made_in(worker, clock, 4, 1.0) == [1, 2, 3, 4]
    elsewhere = flows.rates.take("night", "note", 50)
    assert (elsewhere, flows.rates.take("default", "", 50)) == (50, 50)


def test_a_retry_takes_a_turn_like_any_other_and_waiting_for_one_costs_no_attempt(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    attempts: list[int] = []

    @task
    def flaky() -> str:
        here = current_task()
        assert here is not None
        attempts.append(here.attempt)
        if here.attempt < 3:
            raise TransientError("not now", retry_after=0.001)
        return "done"

    flows.rates.limit_task("flaky", 1, per=10)
    run = flows.start(workflow(name="flakily")(lambda: flaky()))
    for second in range(21):
        worker.run_once()
        assert len(attempts) == 1 + second // 10
        clock.advance(1)
    assert (run.result(0), attempts) == ("done", [1, 2, 3])


def test_what_a_step_makes_here_waits_for_its_turn_too(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.rates.limit_task("note", 1)
    run = flows.start(chain, "a", 3)
    assert made_in(worker, clock, 3, 1.0) == [1, 2, 3]
    assert run.status is S.SUCCEEDED


def test_a_worker_looks_again_when_the_rate_allows_the_next_one(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.rates.limit_task("note", 4)
    flows.start(wide, "a", 3)
    worker.run_once()
    assert 0 < worker.look() <= 0.25


def test_what_was_granted_and_not_begun_is_given_back(flows: Workflows, worker: WorkflowWorker) -> None:
    flows.rates.limit_task("note", 1, burst=10)
    flows.start(wide, "a", 2)
    worker.run_once()
    flows.start(wide, "a", 9)
    worker.run_once()
    assert len(RAN) == 10


def test_a_task_that_has_no_rate_goes_on_beside_one_that_has(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    @task
    def other() -> None:
        RAN.append("other")

    @workflow
    def both() -> Any:
        return [note("a"), note("b"), *(other() for _ in range(5)), sleep(0.01)]

    flows.rates.limit_task("note", 1, per=3600)
    flows.start(both)
    worker.run_once()
    assert Counter(RAN)["other"] == 5
    assert len(RAN) == 6


def test_what_is_no_rate_is_refused_by_name(flows: Workflows) -> None:
    with pytest.raises(PolicyError, match=r"Rate\.calls must be above 0"):
        flows.rates.limit_task("note", 0)
    with pytest.raises(PolicyError, match="per"):
        flows.rates.limit_queue("bulk", 1, per=-1)
