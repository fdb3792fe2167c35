"""The store goes away and comes back: what tasks have done is kept and written later, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.errors import StoreUnavailable
from holdfast.machine.finalizer import FINALIZER
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.records import ITEM, WORKER
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import PATIENCE_S, Gate, until

S = WorkflowStatus


class Shaky:
    """A store that can be away, or do what it was asked and lose the answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_away = False
        self.loses: Callable[[str, tuple[Any, ...]], bool] = lambda verb, args: False
        self.refuses: Callable[[str, tuple[Any, ...]], bool] = lambda verb, args: False
        self.refused: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("get", "commit", "claim", "page", "tally", "sweep", "subscribe"):
            return found

        def asked(*args: Any, **options: Any) -> Any:
            if self.is_away or self.refuses(name, args):
                self.refused[name] += 1
                raise StoreUnavailable("the store is away")
            answer = found(*args, **options)
            if self.loses(name, args):
                raise StoreUnavailable("the answer was lost")
            return answer

        return asked


@pytest.fixture
def shaky() -> Shaky:
    return Shaky(MemoryStore())


@pytest.fixture
def flows(shaky: Shaky) -> Workflows:
    return Workflows(shaky)  # type: ignore[arg-type]  # a store in all that is used


def test_a_task_that_must_not_be_repeated_and_was_not_called_for_want_of_the_store_is_called_when_it_is_back() -> None:
    clock, calls = ManualClock(), list[int]()
    shaky = Shaky(MemoryStore(clock=clock))
    flows = Workflows(shaky, clock=clock)  # type: ignore[arg-type]  # a store in all that is used

    class Send(Task):
        effect = "at_least_once"

        def execute(self, stage: StageExecution) -> None:
            calls.append(1)

        def on_cleanup(self, stage: StageExecution) -> None:
            pass

    flows.registry.register("send", Send)
    one = StageExecution.create("send", "send", "send", tasks=[TaskExecution.create("send", "send")])
    run = flows.start(Workflow.create("shop", "sends", [one]))
    shaky.refuses = lambda verb, args: verb == "commit" and any(change.kind is FINALIZER for change in args[0])
    worker = flows.worker()
    worker.run_once()
    shaky.refuses = lambda verb, args: False
    assert (run.status, calls, shaky.refused["commit"] > 0) == (S.RUNNING, [], True)
    clock.advance(10)
    worker.run_once()
    worker.close()
    assert (run.status, calls) == (S.SUCCEEDED, [1])


def test_what_a_task_has_done_while_the_store_was_away_is_written_when_it_is_back(
    shaky: Shaky, flows: Workflows
) -> None:
    gate, calls = Gate(), list[int]()

    @task
    def charge() -> str:
        calls.append(1)
        gate()
        return "charged"

    @task
    def ship(what: str) -> str:
        return f"shipped, {what}"

    @workflow
    def order() -> Any:
        return ship(charge())

    worker = flows.worker(beat_s=0.02).start()
    run = flows.start(order)
    gate.entered()
    shaky.is_away = True
    gate.open()
    until(lambda: sum(shaky.refused.values()) > 3)
    shaky.is_away = False
    assert run.result(PATIENCE_S) == "shipped, charged"
    assert calls == [1]
    assert worker.stop(PATIENCE_S)
    assert shaky.page(ITEM) == shaky.page(WORKER) == []


def test_a_worker_does_not_ask_a_store_that_is_away_again_and_again(shaky: Shaky, flows: Workflows) -> None:
    worker = flows.worker(beat_s=0.1)
    flows.register(task(lambda: None, name="any"))
    shaky.is_away = True
    worker.start()
    until(lambda: sum(shaky.refused.values()) >= 2)
    assert not worker._shift.stopping.wait(0.5)
    assert sum(shaky.refused.values()) < 20
    shaky.is_away = False
    assert worker.stop(PATIENCE_S)


@pytest.mark.parametrize("verb", ["claim", "commit"])
def test_an_answer_that_was_lost_loses_no_work(shaky: Shaky, flows: Workflows, verb: str) -> None:
    lost: list[str] = []

    @task
    def step(number: int) -> int:
        return number + 1

    @workflow
    def chain() -> Any:
        number: Any = 0
        for _ in range(20):
            number = step(number)
        return number

    def loses(asked: str, args: tuple[Any, ...]) -> bool:
        if asked != verb or not args or (verb == "commit" and len(args[0]) < 3) or len(lost) >= 5:
            return False
        lost.append(asked)
        return True

    flows.register(step)
    runs = [flows.start(chain) for _ in range(5)]
    shaky.loses = loses
    worker = flows.worker(beat_s=0.02).start()
    assert [run.result(PATIENCE_S) for run in runs] == [20] * 5
    assert len(lost) >= 1
    assert worker.stop(PATIENCE_S)
    assert shaky.page(ITEM) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_change_goes_wrong_the_workflow_ends_as_it_should(when: str) -> None:
    @task
    def step(number: int) -> int:
        return number + 1

    @workflow
    def diamond() -> Any:
        first = step(0)
        left, right = step(step(first)), step(first)
        return [left, right, step(right)]

    changes = 1
    while True:
        shaky, seen = Shaky(MemoryStore()), Counter[str]()
        flows = Workflows(shaky)  # type: ignore[arg-type]  # a store in all that is used
        flows.register(step)
        run = flows.start(diamond)

        def goes_wrong(verb: str, args: tuple[Any, ...], seen: Counter[str] = seen, number: int = changes) -> bool:
            seen["changes"] += verb in ("commit", "claim")
            return verb in ("commit", "claim") and seen["changes"] == number

        if when == "before":
            shaky.refuses = goes_wrong
        else:
            shaky.loses = goes_wrong
        worker = flows.worker(beat_s=0.01).start()
        assert run.result(PATIENCE_S) == [3, 2, 3], changes
        assert worker.stop(PATIENCE_S)
        assert shaky.page(ITEM) == []
        flows.close()
        if seen["changes"] < changes:
            break
        changes += 1
    assert changes > 5


def test_a_store_that_is_away_while_arguments_are_read_fails_no_task(shaky: Shaky, flows: Workflows) -> None:
    @task
    def step(number: int) -> int:
        return number + 1

    @workflow
    def chain() -> Any:
        return step(step(step(1)))

    flows.register(step)
    failed: list[int] = []

    def loses(asked: str, args: tuple[Any, ...]) -> bool:
        if asked == "get" and args[0].name == "workflow_stage" and len(failed) < 3:
            failed.append(1)
            return True
        return False

    run = flows.start(chain)
    shaky.loses = loses
    worker = flows.worker(beat_s=0.02).start()
    assert run.result(PATIENCE_S) == 4
    assert failed
    assert worker.stop(PATIENCE_S)


def test_run_once_says_that_the_store_is_away_and_the_next_one_writes(shaky: Shaky, flows: Workflows) -> None:
    calls: list[int] = []

    @task
    def charge() -> str:
        calls.append(1)
        shaky.is_away = True
        return "charged"

    run = flows.start(workflow(name="order")(lambda: charge()))
    worker = flows.worker(beat_s=0.02)
    with pytest.raises(StoreUnavailable):
        worker.run_once()
    shaky.is_away = False
    worker.run_once()
    assert (run.result(0), calls) == ("charged", [1])
    worker.close()
