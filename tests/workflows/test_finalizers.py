"""Finalizers: whatever becomes of a stage and of the processes, what is to be cleaned up is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import ConfigurationError, InvalidStateTransitionError, TaskError, WorkflowNotFoundError
from holdfast.machine.finalizer import FINALIZER, FinalizerState, begun
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.paging import PAGE
from holdfast.store.port import Delete, Insert, Store, Swap
from holdfast.store.query import equal
from holdfast.testing.clock import ManualClock
from holdfast.workflows.finalizers import FinalizerRegistry, get_finalizer_registry
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import ITEM, WORKER
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import Task
from holdfast.workflows.task_context import current_task
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import stage, start

S = WorkflowStatus
F = FinalizerState


@pytest.fixture
def removed(flows: Workflows) -> list[str]:
    """What the finalizer `remove` has been called with."""
    paths: list[str] = []

    @flows.finalizers.add
    def remove(path: str) -> None:
        paths.append(path)

    return paths


def ask(name: str, **args: Any) -> None:
    here = current_task()
    assert here is not None
    here.finalize(name, **args)


@task
def unpack(*paths: str) -> None:
    for path in paths:
        ask("remove", path=path)


@workflow
def tidy(*paths: str) -> Any:
    return unpack(*paths)


def states(flows: Workflows) -> list[FinalizerState]:
    return [one.state for one in flows.finalizers.find()]


def kinds(flows: Workflows, id: str) -> list[str]:
    return [entry.type for entry in flows.log(id) if entry.type.startswith("finalizer")]


def test_a_finalizer_runs_when_its_stage_is_over_and_its_result_is_kept(
    flows: Workflows, worker: WorkflowWorker, removed: list[str]
) -> None:
    run = flows.start(tidy, "/tmp/a", "/tmp/b")
    worker.run_once()
    assert (run.status, removed) == (S.SUCCEEDED, ["/tmp/a", "/tmp/b"])
    found = flows.finalizers.find(run.id)
    assert [(one.name, one.args, one.state, one.attempts) for one in found] == [
        ("remove", {"path": "/tmp/a"}, F.DONE, 1),
        ("remove", {"path": "/tmp/b"}, F.DONE, 1),
    ]
    assert flows.finalizers.pending() == []
    assert kinds(flows, run.id) == ["finalizer_registered"] * 2 + ["finalizer_ended"] * 2


def test_a_finalizer_is_found_among_very_many_of_its_stage(
    flows: Workflows, worker: WorkflowWorker, store: Store, removed: list[str]
) -> None:
    @task
    def untidy() -> TaskResult:
        ask("remove", path="/tmp/a")
        return TaskResult.wait_signal("go")

    @workflow
    def patient() -> Any:
        return untidy()

    run = flows.start(patient)
    worker.run_once()
    [row] = store.page(FINALIZER)
    done = row._replace(state=F.DONE.value)
    store.commit([Insert(FINALIZER, done._replace(id=f"{run.id}.{number:04}")) for number in range(PAGE)])
    flows.cancel(run.id)
    worker.run_once()
    assert removed == ["/tmp/a"]


def test_a_finalizer_may_have_an_argument_that_is_called_name(flows: Workflows, worker: WorkflowWorker) -> None:
    dropped: list[str] = []

    @flows.finalizers.add
    def drop(name: str) -> None:
        dropped.append(name)

    @task
    def lock() -> None:
        here = current_task()
        assert here is not None
        here.finalize("drop", name="lock-7")

    run = flows.start(workflow(name="locking")(lambda: lock()))
    worker.run_once()
    assert (run.status, dropped) == (S.SUCCEEDED, ["lock-7"])


def test_a_finalizer_that_cannot_say_why_it_failed_has_failed(flows: Workflows, worker: WorkflowWorker) -> None:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @flows.finalizers.add
    def drop() -> None:
        raise Speechless

    @task
    def lock() -> None:
        ask("drop")

    run = flows.start(workflow(name="locking")(lambda: lock()))
    worker.run_once()
    (row,) = flows.finalizers.find(run.id)
    assert row.last_error == "Speechless: it cannot say what it is"


@pytest.mark.parametrize("ends", ["fails", "is cancelled", "begins anew"])
def test_it_runs_however_the_stage_ends(
    flows: Workflows, worker: WorkflowWorker, removed: list[str], ends: str
) -> None:
    @task
    def first() -> None:
        ask("remove", path=f"/tmp/{current_task().incarnation}")  # type: ignore[union-attr]  # it is one
        if ends == "fails":
            raise ValueError("no")

    @workflow
    def two() -> Any:
        return wait_signal("go", after=first())

    run = flows.start(two)
    worker.run_once()
    assert removed == ["/tmp/1"]
    if ends == "begins anew":
        flows.signal(run.id, "go")
        worker.run_once()
        flows.restart(run.id, "first")
        worker.run_once()
        assert removed == ["/tmp/1", "/tmp/2"]


def test_a_stage_that_is_cancelled_while_it_waits_is_cleaned_up(
    flows: Workflows, worker: WorkflowWorker, removed: list[str]
) -> None:
    def execute(stage: StageExecution) -> TaskResult:
        get_finalizer_registry().register(stage.id, "remove", args={"path": "x"})
        return TaskResult.wait_signal("go")

    flows.registry.register("noted", execute)
    run = start(flows, stage("a"))
    worker.run_once()
    assert (flows.finalizers.pending(), removed) == ([f"{run.id}.a"], [])
    flows.cancel(run.id, by="ann")
    worker.run_once()
    assert (removed, flows.finalizers.pending_count()) == (["x"], 0)
    assert flows.workflow(run.id).canceled_by == "ann"


def test_a_jump_back_cleans_up_what_was_under_way(flows: Workflows, worker: WorkflowWorker, removed: list[str]) -> None:
    """The stage that is begun anew has not ended: its finalizers run all the same."""
    jumps: list[str] = []

    def loop(stage: StageExecution) -> TaskResult:
        get_finalizer_registry().register(stage.id, "remove", args={"path": f"{stage.ref_id}{stage.incarnation}"})
        if not jumps:
            jumps.append(stage.ref_id)
            return TaskResult.jump_to("a")
        return TaskResult.success()

    flows.registry.register("noted", loop)
    start(flows, stage("a"))
    worker.run_once()
    assert sorted(removed) == ["a1", "a2"]


def test_a_paused_workflow_is_cleaned_up_too(flows: Workflows, worker: WorkflowWorker, removed: list[str]) -> None:
    @task
    def slow() -> None:
        ask("remove", path="x")
        flows.pause(current_task().workflow_id)  # type: ignore[union-attr]  # it is one

    @workflow
    def one() -> Any:
        return slow(after=unpack())  # type: ignore[call-arg]  # the engine takes it

    flows.start(one)
    worker.run_once()
    assert removed == ["x"]


def test_the_same_finalizer_registered_twice_is_one(
    flows: Workflows, worker: WorkflowWorker, removed: list[str]
) -> None:
    flows.start(tidy, "a", "a")
    worker.run_once()
    assert removed == ["a"]


def test_one_that_fails_is_tried_again_and_blocks_nobody(
    flows: Workflows, worker: WorkflowWorker, removed: list[str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    @flows.finalizers.add
    def stubborn() -> None:
        tries.append(1)
        raise OSError("password=hunter2 is busy")

    @task
    def open_both() -> None:
        ask("stubborn")
        ask("remove", path="x")

    @workflow
    def both() -> Any:
        return open_both()

    run = flows.start(both)
    worker.run_once()
    assert (len(tries), removed, states(flows)) == (1, ["x"], [F.PENDING, F.DONE])
    for _ in range(5):
        clock.advance(60)
        worker.run_once()
    assert (len(tries), states(flows)) == (4, [F.FAILED, F.DONE])
    error = flows.finalizers.find(run.id)[0].last_error
    assert error is not None
    assert "is busy" in error
    assert "hunter2" not in error
    assert "stubborn failed" in caplog.text


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [OSError("no \udc80 there"), Mute()], ids=["no text for a store", "no text"])
def test_one_whose_error_cannot_be_told_blocks_nobody_either(
    flows: Workflows, worker: WorkflowWorker, removed: list[str], error: Exception
) -> None:
    @flows.finalizers.add
    def odd() -> None:
        raise error

    @task
    def open_both() -> None:
        ask("odd")
        ask("remove", path="x")

    @workflow
    def both() -> Any:
        return open_both()

    flows.start(both)
    worker.run_once()
    assert (removed, states(flows)) == (["x"], [F.PENDING, F.DONE])


def test_one_that_failed_is_run_again_when_somebody_asks(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    broken = [True]

    @flows.finalizers.add
    def stubborn() -> None:
        if broken:
            raise OSError("busy")

    @task
    def opens() -> None:
        ask("stubborn")

    @workflow
    def one() -> Any:
        return opens()

    run = flows.start(one)
    for _ in range(5):
        worker.run_once()
        clock.advance(60)
    [failed] = flows.finalizers.find(run.id, state="FAILED")
    broken.clear()
    flows.finalizers.run_again(failed.id, by="ann")
    with pytest.raises(InvalidStateTransitionError):
        flows.finalizers.run_again(failed.id)
    worker.run_once()
    assert states(flows) == [F.DONE]
    with pytest.raises(WorkflowNotFoundError, match="nobody"):
        flows.finalizers.run_again("nobody")


def test_one_that_hangs_is_given_up_after_its_time(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    hangs, free = threading.Event(), threading.Event()

    @flows.finalizers.add
    def hang() -> None:
        hangs.set()
        free.wait(20)

    @task
    def opens() -> None:
        ask("hang")

    @workflow
    def one() -> Any:
        return opens()

    flows.start(one)
    looking = threading.Thread(target=worker.run_once)
    looking.start()
    assert hangs.wait(20)
    clock.advance(31)
    looking.join(20)
    free.set()
    [row] = flows.finalizers.find()
    assert row.state is F.PENDING
    assert "30 s" in str(row.last_error)


def test_async_finalizers_are_awaited(flows: Workflows, worker: WorkflowWorker) -> None:
    awaited: list[str] = []

    @flows.finalizers.add
    async def remove(path: str) -> None:
        awaited.append(path)

    flows.start(tidy, "a")
    worker.run_once()
    assert awaited == ["a"]


def test_a_callback_runs_in_its_own_process_though_another_worker_ends_the_stage(
    store: Store, flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    """Two engines on one store stand for two processes."""
    called: list[str] = []
    mine = threading.Event()

    def execute(stage: StageExecution) -> TaskResult:
        if mine.is_set():
            return TaskResult.success()
        mine.set()
        get_finalizer_registry().register(stage.id, "close", lambda: called.append("callback"))
        return TaskResult.wait_signal("go")

    flows.registry.register("noted", execute)
    run = start(flows, stage("a"))
    worker.run_once()
    other = Workflows(store, clock=clock)
    other.registry.register("noted", execute)
    other.finalizers.add(lambda stage_id: called.append(stage_id), "close")
    second = other.worker()
    flows.signal(run.id, "go")
    second.run_once()
    assert (run.status, called) == (S.SUCCEEDED, [])
    worker.run_once()
    assert (called, states(flows)) == (["callback"], [F.DONE])
    assert store.page(WORKER) == []  # nothing is kept alive for it any more
    second.close()


@pytest.mark.parametrize("stands_in", [True, False])
def test_a_callback_whose_process_is_gone_is_replaced_or_seen_to_be_lost(
    store: Store, flows: Workflows, worker: WorkflowWorker, clock: ManualClock, stands_in: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    called: list[str] = []

    def execute(stage: StageExecution) -> TaskResult:
        if stage.context.get("signal"):
            return TaskResult.success()
        get_finalizer_registry().register(stage.id, "close", lambda: called.append("callback"))
        return TaskResult.wait_signal("go")

    flows.registry.register("noted", execute)
    run = start(flows, stage("a"))
    worker.run_once()
    survivor = Workflows(store, clock=clock)
    survivor.registry.register("noted", execute)
    if stands_in:
        survivor.finalizers.add(lambda stage_id: called.append(stage_id), "close")
    survivor.signal(run.id, "go")
    clock.advance(60)  # no sign of life from the first one
    second = survivor.worker()
    second.run_once()
    second.close()
    if stands_in:
        assert (called, states(flows)) == ([f"{run.id}.a"], [F.DONE])
    else:
        assert (called, states(flows)) == ([], [F.LOST])
        assert kinds(flows, run.id)[-1] == "finalizer_lost"
        assert "finalizer close is lost" in caplog.text
    worker.run_once()
    assert "callback" not in called


def test_a_worker_that_does_not_know_the_function_leaves_it_to_one_that_does(
    store: Store, flows: Workflows, worker: WorkflowWorker, removed: list[str], clock: ManualClock
) -> None:
    stranger = Workflows(store, clock=clock)
    run = flows.start(tidy, "x")
    stranger.registry.register("noted", lambda stage: None)
    id = f"{run.id}.unpack"
    flows.finalizers.register(id, "remove", args={"path": "y"})
    flows.cancel(run.id)
    second = stranger.worker()
    second.run_once()
    assert (removed, states(flows)) == ([], [F.PENDING])
    assert [item.type for item in store.page(ITEM)] == ["finalizer.remove"]
    second.run_once()
    worker.run_once()
    assert (removed, states(flows), store.page(ITEM)) == (["y"], [F.DONE], [])
    second.close()


def test_what_is_registered_for_a_stage_that_is_over_runs_at_once(
    flows: Workflows, worker: WorkflowWorker, removed: list[str]
) -> None:
    run = flows.start(tidy)
    worker.run_once()
    flows.finalizers.register(f"{run.id}.unpack", "remove", args={"path": "late"})
    worker.run_once()
    assert removed == ["late"]


def test_execute_runs_what_is_pending_and_gives_results(flows: Workflows, removed: list[str]) -> None:
    run = flows.start(tidy, "x")
    id = f"{run.id}.unpack"
    flows.finalizers.register(id, "close", lambda: 1 / 0)
    flows.finalizers.register(id, "remove", args={"path": "x"})
    results = flows.finalizers.execute(id)
    assert [(one.name, one.success) for one in results] == [("close", False), ("remove", True)]
    assert [one.error for one in results] == ["ZeroDivisionError: division by zero", None]
    assert (removed, flows.finalizers.pending_count(id)) == (["x"], 1)  # what failed is tried again when it is over
    assert flows.finalizers.clear(id) == 1
    assert (flows.finalizers.pending(), flows.finalizers.execute(id)) == ([], [])
    assert kinds(flows, run.id)[-1] == "finalizer_cleared"


def test_bad_finalizers_are_refused_at_once(flows: Workflows, removed: list[str]) -> None:
    run = flows.start(tidy, "x")
    id = f"{run.id}.unpack"
    registry = flows.finalizers
    with pytest.raises(ConfigurationError, match=r"nothing is bound to 'unknown'; there are remove"):
        registry.register(id, "unknown", args={})
    with pytest.raises(TypeError, match="path"):
        registry.register(id, "remove", args={"path": object()})
    with pytest.raises(ConfigurationError, match="not both"):
        registry.register(id, "remove", lambda: None, args={})
    with pytest.raises(ConfigurationError, match="''"):
        registry.register(id, "", args={})
    with pytest.raises(WorkflowNotFoundError, match="has begun"):
        registry.register("nowhere.unpack", "remove", args={"path": "x"})
    with pytest.raises(ConfigurationError, match="two finalizers 'remove'"):
        registry.add(lambda path: None, "remove")
    assert registry.pending() == []


def test_without_an_engine_they_are_in_memory_only() -> None:
    registry = FinalizerRegistry()
    called: list[str] = []
    registry.register("s1", "first", lambda: called.append("first"))
    registry.register("s1", "second", lambda: 1 / 0)
    registry.register("s2", "third", lambda: called.append("third"))
    assert (registry.pending(), registry.pending_count(), registry.pending_count("s1")) == (["s1", "s2"], 3, 2)
    results = registry.execute("s1", timeout=5)
    assert [(one.name, one.success) for one in results] == [("first", True), ("second", False)]
    assert (called, registry.pending(), registry.execute("s1")) == (["first"], ["s2"], [])
    assert (registry.clear(), registry.pending()) == (1, [])


class Careful(Task):
    """Notes which of its hooks are called."""

    called: list[str]

    def execute(self, stage: StageExecution) -> TaskResult:
        answer = stage.context.get("answer", "success")
        if answer == "raise":
            raise TaskError("no")
        return TaskResult.wait_signal("go") if answer == "wait" else TaskResult.success()

    def on_cancel(self, stage: StageExecution) -> TaskResult:
        self.called.append(f"cancel {stage.ref_id}")
        return TaskResult.success({"stopped": True})

    def on_cleanup(self, stage: StageExecution) -> None:
        self.called.append(f"cleanup {stage.ref_id} {stage.status}")


class CarefulAsync(Task):
    """The same, with coroutines."""

    called: list[str]

    async def execute(self, stage: StageExecution) -> TaskResult:
        return Careful.execute(self, stage)  # type: ignore[arg-type]  # it needs nothing of it

    async def on_cancel(self, stage: StageExecution) -> TaskResult:
        return Careful.on_cancel(self, stage)  # type: ignore[arg-type]  # as above

    async def on_cleanup(self, stage: StageExecution) -> None:
        Careful.on_cleanup(self, stage)  # type: ignore[arg-type]  # as above


@pytest.fixture(params=[Careful, CarefulAsync])
def called(request: pytest.FixtureRequest, flows: Workflows, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(request.param, "called", found, raising=False)
    flows.registry.register("noted", request.param)
    return found


def test_on_cleanup_is_called_when_the_stage_has_succeeded_or_failed(
    flows: Workflows, worker: WorkflowWorker, called: list[str]
) -> None:
    start(flows, stage("a"), stage("b", "a", context={"answer": "raise"}))
    worker.run_once()
    assert sorted(called) == ["cleanup a SUCCEEDED", "cleanup b TERMINAL"]


def test_on_cancel_is_called_for_the_task_that_is_cut_and_what_it_brings_is_kept(
    flows: Workflows, worker: WorkflowWorker, called: list[str]
) -> None:
    run = start(flows, stage("a", context={"answer": "wait"}))
    worker.run_once()
    flows.cancel(run.id)
    worker.run_once()
    assert called == ["cancel a", "cleanup a CANCELED"]
    assert flows.workflow(run.id).stage("a").outputs == {"stopped": True}
    assert flows.workflow(run.id).stage("a").status is S.CANCELED


def test_hooks_come_before_finalizers_and_are_called_once_for_all_attempts(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, removed: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    order: list[str] = []

    class Twice(Task):
        def execute(self, stage: StageExecution) -> TaskResult:
            get_finalizer_registry().register(stage.id, "last", lambda: order.append("callback"))
            again = stage.tasks[0].attempt < 1
            return TaskResult.running() if again else TaskResult.success()

        def on_cleanup(self, stage: StageExecution) -> None:
            order.append("cleanup")

    flows.registry.register("noted", Twice())
    run = start(flows, stage("a"))
    worker.run_once()
    clock.advance(5)
    worker.run_once()
    assert (run.status, order) == (S.SUCCEEDED, ["cleanup", "callback"])


def test_the_logger_is_not_troubled_by_any_of_it(
    flows: Workflows, worker: WorkflowWorker, removed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(40):
            flows.start(tidy, "a", "b")
        worker.run_once()
    assert len(removed) == 80
    assert [one for one in caplog.records if one.name.startswith("holdfast")] == []


def test_two_engines_of_a_process_have_their_own_registries(
    store: Store, flows: Workflows, worker_of: Callable[..., WorkflowWorker], clock: ManualClock, removed: list[str]
) -> None:
    seen: list[Any] = []

    @task
    def look() -> None:
        seen.append(get_finalizer_registry())

    @workflow
    def looks() -> Any:
        return look()

    other = Workflows(store, clock=clock)
    other.start(looks)
    second = other.worker()
    second.run_once()
    second.close()
    assert seen == [other.finalizers]


def test_recovery_runs_what_is_pending_of_a_stage_that_is_over(
    store: Store, flows: Workflows, worker: WorkflowWorker, removed: list[str]
) -> None:
    run, other = flows.start(tidy, "x"), flows.start(tidy, "y")
    flows.finalizers.register(f"{run.id}.unpack", "remove", args={"path": "early"})
    flows.finalizers.register(f"{other.id}.unpack", "remove", args={"path": "later"})
    flows.cancel(run.id)
    assert flows.finalizers.recover(run.id) == 0  # its item is there
    [item] = store.page(ITEM, equal(workflow=run.id))
    store.commit([Delete(ITEM, item)])
    assert (flows.finalizers.recover(run.id), flows.finalizers.recover(other.id)) == (1, 0)
    flows.cancel(other.id)
    worker.run_once()
    assert sorted(removed) == ["early", "later"]


def test_one_that_takes_its_workers_with_it_is_given_up(
    store: Store, flows: Workflows, worker: WorkflowWorker, removed: list[str]
) -> None:
    run = flows.start(tidy, "x")
    flows.finalizers.register(f"{run.id}.unpack", "remove", args={"path": "deadly"})
    [row] = store.page(FINALIZER)
    for number in range(4):
        store.commit([Swap(FINALIZER, row, row := begun(row, f"dead {number}"))])
    flows.cancel(run.id)
    worker.run_once()
    [one] = flows.finalizers.find(run.id)
    assert (removed, one.state, one.last_error) == ([], F.FAILED, "its worker died while it ran")
