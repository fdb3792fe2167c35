"""What the engine does when something cannot be done: it says so, and holds up nobody else."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast import Retry
from holdfast.errors import Conflict, TaskError, TransientError
from holdfast.machine.run import Advance, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Delete, Store, Swap
from holdfast.store.query import equal
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.cancel import current_task_token
from holdfast.workflows.config import BulkheadConfig, ResilienceConfig
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.multi_instance import MultiInstanceConfig
from holdfast.workflows.preparing import Settlement
from holdfast.workflows.presence import MOST_CRASHES
from holdfast.workflows.records import DEFINITION, ITEM, STAGE, WORKFLOW
from holdfast.workflows.result import TaskResult
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints, Runs
from holdfast.workflows.settling import Settling
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import PATIENCE_S, Gate, until
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@task
def fine(number: int = 0) -> int:
    return number + 1


def only(one: Any) -> Any:
    return workflow(name=f"only-{one.name}")(lambda: one())


def test_an_answer_that_cannot_be_stored_fails_its_own_task_only(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def odd() -> Any:
        raise TransientError("again", context_update={"handle": object()})

    bad, good = flows.start(only(odd)), flows.start(only(fine))
    worker.run_once()
    assert good.result(0) == 1
    with pytest.raises(TaskError, match="context_update"):
        bad.result(0)


def test_an_exception_that_cannot_say_what_it_is_fails_its_task(flows: Workflows, worker: WorkflowWorker) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @task
    def breaks() -> None:
        raise Mute

    run = flows.start(only(breaks))
    worker.run_once()
    assert run.status is S.TERMINAL


def test_a_guard_that_is_not_there_fails_its_task(flows: Workflows, worker: WorkflowWorker) -> None:
    guarded = task(name="guarded", guard="nowhere")(lambda: None)
    run = flows.start(only(guarded))
    worker.run_once()
    with pytest.raises(TaskError, match="nowhere"):
        run.result(0)


def test_a_step_that_the_machine_refuses_fails_its_stage_and_nobody_elses(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    def hostile(stage: StageExecution) -> TaskResult:
        result = TaskResult.success({"a": 1})
        object.__setattr__(result, "outputs", {"a": {1, 2}})  # past every check, as a bug of ours would be
        return result

    flows.registry.register("hostile", hostile)
    stage = StageExecution.create("hostile", "a", "a", tasks=[TaskExecution.create("a", "hostile")])
    bad = flows.start(Workflow.create("shop", "odd", [stage]))
    good = [flows.start(only(fine)) for _ in range(3)]
    worker.run_once()
    assert [run.result(0) for run in good] == [1, 1, 1]
    assert bad.status is S.TERMINAL


def test_a_definition_that_nobody_understands_is_put_aside(flows: Workflows, store: Store, worker_of: Any) -> None:
    bad, good = flows.start(only(fine)), flows.start(workflow(name="other")(lambda: fine(4)))
    [record] = store.get(DEFINITION, [flows.record(bad.id).definition])
    assert record is not None
    store.commit([Swap(DEFINITION, record, evolve(record, graph='{"stages": 7}'))])
    stranger = Workflows(store, clock=flows._clock)
    stranger.register(fine)
    worker = stranger.worker()
    worker.run_once()
    worker.close()
    assert good.result(0) == 5
    assert store.page(ITEM) == []
    [dead] = flows.dead.list()
    assert (dead.type, dead.workflow_id, dead.stage) == ("run", bad.id, "fine")
    assert "cannot be read" in str(dead.error)


def test_the_item_of_a_workflow_that_is_gone_goes_too(flows: Workflows, store: Store, worker: WorkflowWorker) -> None:
    run = flows.start(only(fine))
    store.commit([Delete(WORKFLOW, flows.record(run.id))])
    worker.run_once()
    assert store.page(ITEM) == []


def test_a_failure_cancels_what_others_run_and_reads_what_it_needs(flows: Workflows, worker: WorkflowWorker) -> None:
    @task
    def breaks() -> None:
        raise ValueError("no")

    @workflow
    def wide() -> Any:
        branches = [fine(after=[fine(number)]) for number in range(5)]
        return fine(after=[*branches, breaks(after=branches[:1])])

    run = flows.start(wide)
    worker.run_once()
    assert run.status is S.TERMINAL
    assert not [status for status in flows.stages(run.id).values() if not status.is_complete]


def test_an_item_whose_workers_die_again_and_again_fails_its_task(
    flows: Workflows, store: Store, worker: WorkflowWorker
) -> None:
    run = flows.start(only(fine))
    [item] = store.page(ITEM)
    store.commit([Swap(ITEM, item, evolve(item, crashes=MOST_CRASHES))])
    worker.run_once()
    with pytest.raises(TaskError, match=f"{MOST_CRASHES} workers died"):
        run.result(0)


def test_a_task_that_takes_too_long_fails_and_its_late_result_counts_no_more(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    gate = Gate("late")
    slow = task(name="slow", timeout=30)(gate)
    run = flows.start(only(slow))
    thread = threading.Thread(target=worker.run_once)
    thread.start()
    gate.entered()
    clock.advance(30)
    thread.join(20)
    with pytest.raises(TaskError, match=r"slow.*30 s"):
        run.result(0)
    assert worker.stats()["slow"]["abandoned"] == 1
    gate.open()
    until(lambda: worker.stats()["slow"]["abandoned"] == 0)
    assert run.status is S.TERMINAL


def test_a_task_with_a_policy_is_tried_again_after_a_timeout(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    begun: list[int] = []

    @task(timeout=30, retry=Retry(attempts=2, base=1))
    async def slow() -> str:
        begun.append(1)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "second"

    run = flows.start(only(slow))
    thread = threading.Thread(target=worker.run_once)
    thread.start()
    until(lambda: begun)
    clock.advance(30)
    thread.join(20)
    clock.advance(60)
    worker.run_once()
    assert run.result(0) == "second"


def test_on_timeout_may_leave_a_result(flows: Workflows, worker: WorkflowWorker, clock: ManualClock) -> None:
    gate = Gate()

    class Slow(Task):
        def execute(self, stage: StageExecution) -> TaskResult:
            gate()
            return TaskResult.success()

        def on_timeout(self, stage: StageExecution) -> TaskResult:
            return TaskResult.success({"instead": stage.ref_id})

    flows.registry.register("slow", Slow)
    tasks = [TaskExecution.create("slow", "slow", timeout=5)]
    run = flows.start(Workflow.create("shop", "late", [StageExecution.create("slow", "a", "a", tasks=tasks)]))
    thread = threading.Thread(target=worker.run_once)
    thread.start()
    gate.entered()
    clock.advance(5)
    thread.join(20)
    gate.open()
    assert run.status is S.SUCCEEDED


def test_cancelling_a_workflow_tells_its_running_tasks(flows: Workflows, worker: WorkflowWorker) -> None:
    begun, heard = threading.Semaphore(0), []

    @task
    def patient() -> None:
        begun.release()
        token = current_task_token()
        until(lambda: token.cancelled)
        heard.append(True)

    @task
    async def forever() -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append(True)
            raise

    @workflow
    def both() -> Any:
        return [patient(), forever()]

    run = flows.start(both)
    thread = threading.Thread(target=worker.run_once)
    thread.start()
    assert begun.acquire(timeout=20)
    assert begun.acquire(timeout=20)
    flows.cancel(run.id, "not wanted")
    thread.join(20)
    assert (heard, run.status) == ([True, True], S.CANCELED)


def test_a_slow_type_takes_no_more_than_its_slots_and_holds_up_no_other(
    flows: Workflows, store: Store, worker_of: Callable[..., WorkflowWorker]
) -> None:
    gate = Gate("slow")
    slow = task(name="slow")(gate)
    worker = worker_of(bulkheads=ResilienceConfig(bulkheads=(("slow", BulkheadConfig(2)),)))
    stuck = [flows.start(only(slow)) for _ in range(5)]
    quick = [flows.start(only(fine)) for _ in range(5)]
    thread = threading.Thread(target=worker.run_once)
    thread.start()
    gate.entered(2)
    until(lambda: all(run.status is S.SUCCEEDED for run in quick))
    assert len([item for item in store.page(ITEM) if item.owner is not None]) == 2
    gate.open()
    thread.join(20)
    assert [run.result(0) for run in stuck] == ["slow"] * 5


def test_a_worker_looks_for_more_as_soon_as_a_call_that_took_too_long_has_ended(
    flows: Workflows, clock: ManualClock, worker_of: Callable[..., WorkflowWorker]
) -> None:
    hung = Gate()
    slow = task(name="slow", timeout=1)(hung)
    worker = worker_of(threads=1)
    runs = [flows.start(only(slow)) for _ in range(2)]
    worker.look()
    hung.entered()
    clock.advance(1.1)
    until(lambda: S.TERMINAL in {run.status for run in runs})
    worker.look()  # there is work, and no slot for it
    wake = worker._shift.wake
    wake.clear()
    hung.open()
    assert wake.wait(PATIENCE_S)
    while worker.run_once():
        pass
    assert {run.status for run in runs} == {S.TERMINAL, S.SUCCEEDED}


def test_a_task_that_leaves_the_program_has_failed_and_stops_no_worker(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @task
    def leaves() -> None:
        sys.exit(3)

    @task
    async def leaves_async() -> None:
        sys.exit("no such option")

    calls: list[int] = []

    @task(retry=Retry(attempts=2, base=0))
    def leaves_once() -> str:
        calls.append(1)
        return sys.exit(3) if len(calls) == 1 else "carried on"

    runs = [flows.start(only(one)) for one in (leaves, leaves_async, leaves_once, fine)]
    while worker.run_once():
        pass
    assert [run.status for run in runs] == [S.TERMINAL, S.TERMINAL, S.SUCCEEDED, S.SUCCEEDED]
    assert [run.record.reason for run in runs[:2]] == ["SystemExit: 3", "SystemExit: no such option"]
    assert flows.workflow(runs[0].id).stages[0].tasks[0].task_exception_details["type"] == "SystemExit"


class Panic(BaseException):
    """What extensions in other languages raise: no Exception."""


def test_a_task_that_raises_what_is_no_exception_has_failed_and_stops_no_worker(
    flows: Workflows, worker: WorkflowWorker
) -> None:
    @task
    def panics() -> None:
        raise Panic("index out of bounds")

    @task
    async def panics_async() -> None:
        raise Panic("index out of bounds")

    runs = [flows.start(only(one)) for one in (panics, panics_async, fine)]
    while worker.run_once():
        pass
    assert [run.status for run in runs] == [S.TERMINAL, S.TERMINAL, S.SUCCEEDED]
    assert flows.workflow(runs[0].id).stages[0].tasks[0].task_exception_details["type"] == "Panic"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("name \udc80 and \0"), Mute()], ids=["no text for a store", "no text"])
def test_a_task_is_called_again_whatever_its_error_says(
    flows: Workflows, worker: WorkflowWorker, error: Exception
) -> None:
    calls: list[int] = []

    @task(retry=Retry(attempts=2, base=0))
    def fails_once() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise error
        return "carried on"

    @task
    def fails() -> None:
        raise error

    again, once = flows.start(only(fails_once)), flows.start(only(fails))
    while worker.run_once():
        pass
    assert again.result(0) == "carried on"
    assert once.record.reason in ("name \ufffd and \ufffd", "it cannot say what it is")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyError("rows"), "KeyError: 'rows'"), (AssertionError(), "AssertionError"), (ValueError("no rows"), "no rows")],
)
def test_a_workflow_says_which_exception_it_failed_of_where_the_text_alone_says_nothing(
    flows: Workflows, worker: WorkflowWorker, error: Exception, reason: str
) -> None:
    @task
    def breaks() -> None:
        raise error

    run = flows.start(only(breaks))
    worker.run_once()
    assert run.record.reason == reason


def test_a_task_that_is_interrupted_stops_the_worker_and_its_item_is_anybodys(
    flows: Workflows, store: Store, worker: WorkflowWorker, worker_of: Callable[..., WorkflowWorker]
) -> None:
    calls: list[int] = []

    @task
    def leaves() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "carried on"

    run = flows.start(only(leaves))
    with pytest.raises(KeyboardInterrupt):
        worker.run_once()
    [item] = store.page(ITEM)
    assert (item.owner, item.attempt, item.crashes) == (None, 1, 0)
    assert item.due_at is not None
    worker_of().run_once()
    assert run.result(0) == "carried on"


def test_two_engines_that_write_to_one_workflow_both_get_through(
    flows: Workflows, worker_of: Callable[..., WorkflowWorker]
) -> None:
    @workflow
    def wide() -> Any:
        return [fine(number) for number in range(40)]

    runs = [flows.start(wide) for _ in range(3)]
    threads = [threading.Thread(target=worker_of(threads=2).run_once) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [run.result(0) for run in runs] == [list(range(1, 41))] * 3


def test_what_an_instance_leaves_to_do_is_gone_if_another_one_ends_the_stage_in_the_same_transaction(
    flows: Workflows, store: Store
) -> None:
    Journal(flows)
    config = MultiInstanceConfig(count=3, join_threshold=2, cancel_remaining=True)
    run = start(flows, stage("m", mi_config=config), stage("z", "m"))
    mine = store.claim(ITEM, equal(workflow=run.id), lambda item: evolve(item, owner="me", due_at=None), limit=9)
    settling = _settling(store)
    waits, first, second = mine
    settling.put(Settlement(waits, lambda step: step.suspend(waits.ref, Wait("never", None, True))))
    settling.put(Settlement(first, lambda step: step.succeed(first.ref, {}, {})))
    settling.put(Settlement(second, lambda step: step.succeed(second.ref, {}, {})))
    settling.flush()
    assert [item.ref for item in store.page(ITEM, equal(workflow=run.id))] == ["z"]


class Losing:
    """A store whose first commits lose against somebody else's."""

    def __init__(self, store: Store, losses: int) -> None:
        self._store = store
        self.losses = losses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Any, **options: Any) -> None:
        if self.losses:
            self.losses -= 1
            raise Conflict("somebody else was faster")
        self._store.commit(changes, **options)


def _settling(store: Any) -> Settling:
    """Of a worker that owns what "me" does, and takes nothing on."""
    nothing: Any = lambda *_: None  # noqa: E731
    return Settling(
        store, Runs(store, Blueprints(store)), owner=lambda: "me", room=lambda _: 0, may_own=lambda: True,
        hand_out=nothing, settled=nothing, told=nothing, retries=1,
    )  # fmt: skip


def _succeed(ref: str, step: Advance) -> None:
    step.succeed(ref, {}, {})


def _break(ref: str, step: Advance) -> None:
    step.succeed(ref, {}, {})
    raise ValueError("cannot be done")


@pytest.mark.parametrize(
    ("act", "losses", "status", "left", "stages"),
    [
        (_succeed, 3, WorkflowStatus.RUNNING, ["b"], {"a": WorkflowStatus.SUCCEEDED, "b": WorkflowStatus.RUNNING}),
        (_break, 1, WorkflowStatus.TERMINAL, [], {"a": WorkflowStatus.TERMINAL, "b": WorkflowStatus.SKIPPED}),
    ],
    ids=["what is written", "what is given up"],
)
def test_what_others_were_faster_than_is_settled_later_from_what_is_stored(
    flows: Workflows, store: Store, act: Any, losses: int, status: WorkflowStatus, left: list[str], stages: Any
) -> None:
    """Not from what is in memory, where the step is made: the workflow would go on as if it were stored."""
    Journal(flows)
    run = start(flows, stage("a"), stage("b", "a"))
    (mine,) = store.claim(ITEM, equal(workflow=run.id), lambda item: evolve(item, owner="me", due_at=None), limit=9)
    losing = Losing(store, losses)
    settling = _settling(losing)
    settling.put(Settlement(mine, partial(act, "a")))
    settling.flush()
    assert (losing.losses, store.page(ITEM, equal(workflow=run.id)), settling.waits) == (0, [mine], True)
    settling.take_up()
    settling.flush()
    assert [item.ref for item in store.page(ITEM, equal(workflow=run.id))] == left
    assert (run.status, settling.waits) == (status, False)
    assert {one.ref: one.status for one in store.page(STAGE, equal(workflow=run.id), by="id")} == stages


def test_nothing_of_a_workflow_that_has_ended_stays_in_memory(
    flows: Workflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What watches the time of its calls, which may be long, does not hold it."""
    runs: list[weakref.ref[Run]] = []
    make = Run.__init__

    def made(run: Run, *args: Any, **options: Any) -> None:
        runs.append(weakref.ref(run))
        make(run, *args, **options)

    monkeypatch.setattr(Run, "__init__", made)
    worker = flows.worker().start()
    try:
        for number in range(20):
            assert flows.start(workflow(name="chain")(lambda: fine(fine(fine(number))))).result(30) == number + 3  # noqa: B023
        until(lambda: not any(run() is not None for run in runs))
        assert len(runs) >= 20
    finally:
        worker.stop()


def test_a_task_that_is_asked_to_stop_may_look_at_its_workflow(flows: Workflows) -> None:
    """What it does then runs under none of our locks."""
    seen: list[WorkflowStatus] = []
    entered, free = threading.Event(), threading.Event()

    @task
    def waits() -> None:
        token = current_task_token()
        assert token is not None

        def look() -> None:
            settling = worker._shift._settling
            if settling.writing.acquire(timeout=5):  # whoever asks would hold it
                settling.writing.release()
                seen.append(run.status)
            free.set()

        token.when_cancelled(look)
        entered.set()
        free.wait(30)

    @task
    def breaks() -> None:
        entered.wait(30)
        raise ValueError("no")

    worker = flows.worker()
    run = flows.start(workflow(name="both")(lambda: [waits(), breaks()]))
    worker.run_once()
    assert seen == [S.TERMINAL]
    worker.close()
